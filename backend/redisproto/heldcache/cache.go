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

const (
	// goodFor is how long an answer counts after the cache was last known to be true: a connection that
	// hangs delivers no invalidations, and nothing else tells of it for ten seconds.
	goodFor = 750 * time.Millisecond
	// tickAfter is how long the cache answers before it asks for a tick.
	tickAfter = 250 * time.Millisecond
	// Callers that spin, which is refusals of spinning or more in spinFor, rest if they are refused in the
	// next restFor. While they keep all processors busy, the Go runtime looks for what has arrived each 10 ms
	// only, and may take 10 ms more to read it.
	spinFor, spinning, restFor = 8 * time.Millisecond, 200, time.Millisecond
)

// Cache is the set of locks that other owners hold, as far as a session knows. Refused acquisitions add
// names, invalidations remove them. The cache lags behind the server by the time that an invalidation
// takes to arrive: meanwhile it may refuse wrongly. It never grants.
//
// Four facts shape the cache:
//
//   - The reply to a refused acquisition goes to the goroutine of the call, invalidations go to
//     another goroutine. The lock may be freed, and the invalidation be handled, before the
//     first goroutine adds the name; nothing would ever remove it. So a Query begins before the
//     request is sent, and its outcome counts only if no invalidation of the name was handled
//     since.
//   - Tracking is switched on with NOLOOP: the server does not tell a connection of its own
//     writes. So the session's own releases count as invalidations when their reply arrives, and
//     a release of unknown outcome keeps the name out of the cache for a while (Exclude).
//   - The reply to a release may arrive in this process before the invalidation that it causes does. So a
//     release counts as an invalidation in all caches of the process (Freed).
//   - A connection that hangs delivers nothing. So an answer counts for goodFor after the request from
//     which it is known, or after a tick: a request over the tracking connection whose reply arrived, and
//     with it all invalidations before. There is no tick unless the cache answers.
//
// The methods may be called concurrently. A call costs one mutex and some map operations. A name
// leaves nothing behind after its invalidation or expiry.
type Cache struct {
	max  int
	base time.Time // times below are nanoseconds since base

	mu      sync.Mutex
	entries map[string]entry
	queries map[string]underWay
	// seq counts invalidations; all is the seq of the last invalidation of all names.
	seq, all uint64
	// ticked is when the last tick was sent whose reply arrived; 0: none. chain is the first of the ticks
	// up to ticked without a gap of more than goodFor. A gap may hide a new connection.
	ticked, chain int64
	tried         int64 // when the last tick was sent
	ticking       bool  // the reply to a tick is to come
	// spun is the number of refusals since spunSince, and resting is the end of the rest of callers that spin.
	spunSince, resting int64
	spun               int
}

// Answer is what the cache knows of a name.
type Answer struct {
	Held      bool          // another owner holds it
	Remaining time.Duration // the rest of its lease; negative if it has no end
	Tick      bool          // the caller is to send a tick, and to call Tick with its outcome
	Rest      bool          // the caller is to rest before it passes the refusal on: others spin, too
}

// entry is what is known of a name.
type entry struct {
	until int64 // the end of the entry; 0: no end
	asked int64 // when the request was sent whose reply is the entry
	state state
	freed generation
}

type state uint8

const (
	held     state = iota
	refused        // another connection said that the name is held: its changes are not told
	excluded       // the name may not be added
)

// underWay is the acquisitions of a name that are on their way.
type underWay struct {
	count       int
	invalidated uint64 // seq of the last invalidation of the name while they were on their way
}

// Query is an acquisition on its way.
type Query struct {
	name  string
	since uint64 // seq when it began
	freed generation
}

// New returns a cache of at most max names.
func New(max int) *Cache {
	base := time.Now().Add(-time.Hour) // so that 0 is long ago
	return &Cache{max: max, base: base, entries: map[string]entry{}, queries: map[string]underWay{}}
}

// at returns a time as nanoseconds since base.
func (c *Cache) at(t time.Time) int64 { return int64(t.Sub(c.base)) }

// Held returns what the cache knows of name.
func (c *Cache) Held(name string, now time.Time) Answer {
	at := c.at(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[name]
	switch {
	case !ok || e.state != held:
		return Answer{}
	case e.over(at) || !e.freed.last() || !c.good(e, at):
		delete(c.entries, name)
		return Answer{}
	}
	a := Answer{Held: true, Remaining: -1, Rest: c.rest(at)}
	if a.Tick = !c.ticking && at > max(e.asked, c.ticked, c.tried)+int64(tickAfter); a.Tick {
		c.ticking, c.tried = true, at
	}
	if e.until != 0 {
		a.Remaining = max(time.Duration(e.until-at).Round(time.Millisecond), time.Millisecond)
	}
	return a
}

// rest counts a refusal, and reports whether its caller is to rest.
func (c *Cache) rest(at int64) bool {
	if c.spun++; at-c.spunSince > int64(spinFor) {
		if c.spun >= spinning {
			c.resting = at + int64(restFor)
		}
		c.spunSince, c.spun = at, 0
	}
	return at < c.resting
}

// good reports whether e is still known to be true: from its own request, or from the ticks since.
func (c *Cache) good(e entry, at int64) bool {
	return at <= e.asked+int64(goodFor) || at <= c.ticked+int64(goodFor) && e.asked+int64(goodFor) >= c.chain
}

// Tick ends a tick that was sent at sent over the tracking connection, the only one of the session.
// answered reports whether its reply arrived.
func (c *Cache) Tick(sent time.Time, answered bool) {
	at := c.at(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ticking = false; !answered {
		return
	}
	if at > c.ticked+int64(goodFor) {
		c.chain = at
	}
	c.ticked = at
}

// RefusedElsewhere notes that another connection was refused the name now. It reports whether the cache is to
// learn of the holder, by a query over the tracking connection: the name was refused shortly before, too.
func (c *Cache) RefusedElsewhere(name string, now time.Time) (learn bool) {
	at := c.at(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[name]; ok && !e.over(at) {
		return e.state == refused && c.queries[name].count == 0
	}
	c.put(name, entry{until: at + int64(goodFor), state: refused}, at)
	return false
}

// Begin is called before an acquisition is sent. End, Free or Refused must follow.
func (c *Cache) Begin(name string) Query {
	freed := freedOf(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.queries[name]
	l.count++
	c.queries[name] = l
	return Query{name: name, since: c.seq, freed: freed}
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
	at := c.at(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if overtaken := c.finish(l); overtaken {
		return
	}
	e := entry{asked: at, freed: l.freed}
	if remaining >= 0 {
		e.until = at + int64(remaining)
	}
	c.put(l.name, e, at)
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

// Freed removes name from all caches of the process, after a write of the session itself that may have
// freed the lock.
func (c *Cache) Freed(name string) {
	noteFreed(name)
	c.Forget(name)
}

// Forget removes name, after an invalidation or another write of the session itself.
func (c *Cache) Forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetEntry(name)
}

func (c *Cache) forgetEntry(name string) {
	c.noteInvalidation(name)
	if e, ok := c.entries[name]; ok && e.state != excluded {
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
	noteFreed(name)
	at := c.at(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteInvalidation(name)
	c.put(name, entry{until: at + int64(excludedFor), state: excluded}, at)
}

func (e entry) over(at int64) bool { return e.until != 0 && at >= e.until }

// put adds an entry. It also looks at a few other entries, and removes those that have ended, so that
// entries of names that are never asked for again go, too. If the cache is full, it removes live entries
// that are not excluded; if that makes no room, it does not add the entry.
func (c *Cache) put(name string, e entry, at int64) {
	if old, ok := c.entries[name]; ok {
		if old.state == excluded && !old.over(at) && e.state != excluded {
			return
		}
		c.entries[name] = e
		return
	}
	seen := 0
	for n, old := range c.entries {
		full := len(c.entries) >= c.max
		if old.over(at) || full && old.state != excluded {
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
