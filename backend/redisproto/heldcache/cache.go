// Package heldcache uses client-side caching of Redis: a cache of the locks that other owners hold, so
// that a session can refuse without a command, and a second connection for commands that need no
// tracking.
package heldcache

import (
	"sync"
	"time"
)

// DefaultSize bounds the cache of a client: some 20 MB with names of 64 bytes.
const DefaultSize = 100_000

// excludedFor is how long a release of unknown outcome keeps its name out of the cache. It is longer
// than client libraries keep a connection that does not answer.
const excludedFor = time.Minute

// Cache is the set of locks that other owners hold, as far as a session knows. Refused acquisitions add
// names, invalidations remove them. The cache lags behind the server by the time that an invalidation
// takes to arrive: meanwhile it may refuse wrongly. It never grants.
//
// Two races shape the cache:
//
//   - The reply to a refused acquisition goes to the goroutine of the call, invalidations go to
//     another goroutine. The lock may be freed, and the invalidation be handled, before the
//     first goroutine adds the name; nothing would ever remove it. So a Query begins before the
//     request is sent, and its outcome counts only if no invalidation of the name was handled
//     since.
//   - Tracking is switched on with NOLOOP: the server does not tell a connection of its own
//     writes. So the session's own releases count as invalidations when their reply arrives, and
//     a release of unknown outcome keeps the name out of the cache for a while (Exclude).
//
// The methods may be called concurrently. A call costs one mutex and some map operations. A name
// leaves nothing behind after its invalidation or expiry.
type Cache struct {
	max int

	mu      sync.Mutex
	entries map[string]entry
	queries map[string]underWay
	// seq counts invalidations; all is the seq of the last invalidation of all names.
	seq, all uint64
}

// entry is the state of a name: held, or excluded.
type entry struct {
	until    time.Time // the end of the entry; zero: no end
	excluded bool      // the name may not be added as held until then
}

// underWay is the acquisitions of a name that are on their way.
type underWay struct {
	count       int
	invalidated uint64 // seq of the last invalidation of the name while they were on their way
}

// Query is an acquisition on its way.
type Query struct {
	name  string
	since uint64 // seq when it began
}

// New returns a cache of at most max names.
func New(max int) *Cache {
	return &Cache{max: max, entries: map[string]entry{}, queries: map[string]underWay{}}
}

// Held reports whether another owner holds name, and the remaining time of its lease; negative if it
// has no end.
func (c *Cache) Held(name string, now time.Time) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[name]
	switch {
	case !ok || e.excluded:
		return 0, false
	case e.until.IsZero():
		return -1, true
	case !now.Before(e.until):
		delete(c.entries, name)
		return 0, false
	}
	return max(e.until.Sub(now).Round(time.Millisecond), time.Millisecond), true
}

// Begin is called before an acquisition is sent. End, Free or Refused must follow.
func (c *Cache) Begin(name string) Query {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.queries[name]
	l.count++
	c.queries[name] = l
	return Query{name: name, since: c.seq}
}

// End ends a query without a result.
func (c *Cache) End(l Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(l)
}

// Free ends a query that was granted: no other owner holds the name.
func (c *Cache) Free(l Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(l)
	c.forgetEntry(l.name)
}

// Refused ends a query that was refused. The acquisition was sent at sent; remaining is the rest of
// the holder's lease, negative if it has no end.
func (c *Cache) Refused(l Query, sent time.Time, remaining time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if overtaken := c.finish(l); overtaken {
		return
	}
	e := entry{}
	if remaining >= 0 {
		e.until = sent.Add(remaining)
	}
	c.put(l.name, e, sent)
}

// finish ends l, and reports whether an invalidation of the name was handled since it began.
func (c *Cache) finish(l Query) (overtaken bool) {
	now := c.queries[l.name]
	overtaken = now.invalidated > l.since || c.all > l.since
	if now.count--; now.count > 0 {
		c.queries[l.name] = now
	} else {
		delete(c.queries, l.name)
	}
	return overtaken
}

// Forget removes name, after an invalidation or a write of the session itself.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEntry(name)
}

func (c *Cache) forgetEntry(name string) {
	c.noteInvalidation(name)
	if e, ok := c.entries[name]; ok && !e.excluded {
		delete(c.entries, name)
	}
}

func (c *Cache) noteInvalidation(name string) {
	c.seq++
	if l, ok := c.queries[name]; ok {
		l.invalidated = c.seq
		c.queries[name] = l
	}
}

// ForgetAll removes all entries, after a flush or the loss of the connection. It also ends exclusions:
// releases in flight are lost with the connection.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.all = c.seq
	c.entries = map[string]entry{}
}

// Exclude keeps name out of the cache for a minute: a release by this session, of unknown outcome, may
// still arrive at the server.
func (c *Cache) Exclude(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteInvalidation(name)
	c.put(name, entry{until: now.Add(excludedFor), excluded: true}, now)
}

// put adds an entry. It also looks at a few other entries, and removes those that have ended, so that
// entries of names that are never asked for again go, too. If the cache is full, it removes live entries
// that are not excluded; if that makes no room, it does not add the entry.
func (c *Cache) put(name string, e entry, now time.Time) {
	if old, ok := c.entries[name]; ok {
		if old.excluded && now.Before(old.until) && !e.excluded {
			return
		}
		c.entries[name] = e
		return
	}
	seen := 0
	for n, old := range c.entries {
		full := len(c.entries) >= c.max
		over := !old.until.IsZero() && !now.Before(old.until)
		if over || full && !old.excluded {
			delete(c.entries, n)
		}
		if seen++; seen >= 4 && len(c.entries) < c.max || seen >= 32 {
			break
		}
	}
	if len(c.entries) < c.max {
		c.entries[name] = e
	}
}
