// Package heldcache is what a client knows of held locks by client-side caching: the cache of names
// that others hold, which refuses without a command, and the second connection, for commands that
// the server need not track.
package heldcache

import (
	"sync"
	"time"
)

// DefaultSize bounds a cache of one client: some 20 MB with names of 64 bytes.
const DefaultSize = 100_000

// excludedFor is how long a release with an unknown outcome keeps its name out of the
// cache. Client libraries give up a silent connection sooner.
const excludedFor = time.Minute

// Cache is what a session believes that others hold, for refusing without a command.
// It is filled by refused acquires and kept true by invalidations. It may lag
// behind by the length of an invalidation's trip, and then refuses wrongly. It never
// grants.
//
// Two races shape it:
//
//   - The reply of a refused acquire goes to the goroutine that sent it, invalidations
//     go to another. The lock may be freed, and the invalidation be handled, before
//     that goroutine gets to write "held" down; nothing would ever correct it.
//     So a query is begun before the server is asked, and its outcome
//     counts only if no invalidation of the name was handled since.
//   - Tracking is switched on with NOLOOP: the server does not tell a connection of
//     its own writes. So a session's own releases are handled as invalidations,
//     when their reply arrives; and a release whose outcome is unknown keeps the
//     name out of the cache for a while (Exclude).
//
// The methods may be called concurrently. They cost one mutex and some map
// operations; a name leaves nothing behind once it is invalidated or expired.
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

// Query is one acquire on its way.
type Query struct {
	name  string
	since uint64
}

// New makes a cache of so many names at most.
func New(max int) *Cache {
	return &Cache{max: max, entries: map[string]entry{}, queries: map[string]underWay{}}
}

// Held reports whether name is believed to be held, and for how long yet; negative
// if without end.
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

// End ends a query that shows nothing.
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

// Refused says that the acquire which was sent at that time was refused for the
// time that remained (negative: without end).
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

// ForgetAll handles an invalidation of everything: a flush, or a lost connection,
// on which no release is on its way any more either.
func (c *Cache) ForgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	c.all = c.seq
	c.entries = map[string]entry{}
}

// Exclude keeps name out of the cache, for a release of ours may still arrive.
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
