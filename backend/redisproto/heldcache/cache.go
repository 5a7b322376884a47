// Package heldcache is a client's knowledge of held locks by client-side caching: the cache of
// names held by others, for refusals without a command, and the second connection, for commands
// without tracking.
package heldcache

import (
	"sync"
	"time"
)

// DefaultSize bounds the cache of a client: some 20 MB with names of 64 bytes.
const DefaultSize = 100_000

// excludedFor is how long a release with an unknown outcome keeps its name out of the
// cache. Client libraries give up a silent connection sooner.
const excludedFor = time.Minute

// Cache is a session's knowledge of locks held by others, for refusals without a command. Refused
// acquires fill the cache, and invalidations keep the cache true. The cache may lag behind by the
// time of an invalidation's trip, and then refuses wrongly. The cache never grants.
//
// Two races shape the cache:
//
//   - The reply of a refused acquire goes to the goroutine of the call, invalidations go to
//     another goroutine. The lock may be freed, and the invalidation be handled, before the
//     first goroutine records "held"; nothing would ever correct the record. So a query begins
//     before the request to the server, and its outcome counts only if no invalidation of the
//     name was handled since.
//   - Tracking is switched on with NOLOOP: the server does not tell a connection of its own
//     writes. So a session's own releases are handled as invalidations, when their reply
//     arrives; and a release of unknown outcome keeps the name out of the cache for a while
//     (Exclude).
//
// The methods may be called concurrently. A call costs one mutex and some map operations; a name
// leaves nothing behind after its invalidation or expiry.
type Cache struct {
	max int

	mu      sync.Mutex
	entries map[string]entry
	queries map[string]underWay
	// seq counts invalidations; all is its value at the last one for all names.
	seq, all uint64
}

// entry is what is believed of a name.
type entry struct {
	until    time.Time // zero: without end
	excluded bool      // nothing may be believed of it until then
}

// underWay stands for the acquires of a name that are on their way.
type underWay struct {
	count       int
	invalidated uint64 // seq of the name's last invalidation since count was zero
}

// Query is an acquire in flight.
type Query struct {
	name  string
	since uint64
}

// New makes a cache of at most so many names.
func New(max int) *Cache {
	return &Cache{max: max, entries: map[string]entry{}, queries: map[string]underWay{}}
}

// Held reports whether the cache has name as held, and the remaining time; negative if without end.
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

// Begin is called before an acquire is sent. End, Free or Refused must follow.
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

// Free ends a granted query: no other owner holds the name.
func (c *Cache) Free(l Query) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finish(l)
	c.forgetEntry(l.name)
}

// Refused ends a query with a refusal: the acquire was sent at the given time, and refused for the
// remaining time (negative: without end).
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

// finish takes l off the acquires on their way, and reports whether an invalidation
// was handled meanwhile.
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

// Forget handles an invalidation of name, or the session's own write.
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

// ForgetAll handles an invalidation of everything: a flush, or a lost connection (and with the
// connection every release in flight).
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.all = c.seq
	c.entries = map[string]entry{}
}

// Exclude keeps name out of the cache, for a release of this session may still arrive.
func (c *Cache) Exclude(name string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteInvalidation(name)
	c.put(name, entry{until: now.Add(excludedFor), excluded: true}, now)
}

// put writes an entry down, for which it queries at a few others and drops those
// that are over, so that entries that are never asked for again go too.
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
