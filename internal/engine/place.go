package engine

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
)

// place is what the waiters' entry in the queue of a store that grants (backend.Capabilities.Grants) asks for: a plain
// lock, a side of a read-write lock, or permits with leases. The store writes the owner into the record, and tells the
// client: the message is the grant. An owner is asked for again and again until it is granted or given up, and never
// afterwards.
type place struct {
	owner  string // empty: the next request draws one
	family backend.Kind
	wants  int32 // permits
	fenced bool
	ttl    time.Duration
	told   bool // the store is to tell whenever the entry becomes the first: this client waits for a crowd of names
	// unknown requests for owner have an unknown outcome; until is when none of them can take effect any more (monotonic).
	unknown int32
	until   int64
	// serving is the owner that a handoff by command (backend.ServeRequest.Next) asks for, until its reply.
	serving string
	// instead is the owner that was asked for before, and is no more: the next request takes its place.
	instead string
	asking  bool          // the first waiter's request for owner is on its way
	came    *grant        // the grant of owner, which came before the answer to that request
	trip    time.Duration // how long the last request took
	last    string        // the owner that was granted last
}

// ask returns the grant that a request of c asks for.
func (s *names) ask(n *name, c *call) grant {
	p := &n.place
	if p.owner == "" || !p.asksFor(c) {
		s.giveUp(n)
		*p = place{
			owner: c.attempt.owner(), family: c.Family, wants: c.Wants, fenced: c.Fenced, ttl: c.ttl,
			told: s.waiting >= crowd, last: p.last, trip: p.trip, instead: cmp.Or(p.owner, p.serving, p.instead),
		}
	}
	p.asking = true
	return grant{owner: p.owner, unknown: p.unknown, until: p.until}
}

// asksFor reports whether the place's owner is one that the call can be.
func (p *place) asksFor(c *call) bool {
	return p.family == c.Family && p.wants == c.Wants && p.fenced == c.Fenced && p.ttl == c.ttl
}

// giveUp compensates the requests of unknown outcome for the owner of n's place, which is then asked for no more.
func (s *names) giveUp(n *name) {
	if p := &n.place; p.unknown > 0 {
		d := debt{family: p.family, name: n.topic.Name, owner: p.owner, unknown: p.unknown, until: p.until}
		if n.enrolled { // by a request that was answered
			d.unknown++
		}
		s.engine.renewer.compensate(d)
		p.owner, p.unknown = "", 0
	}
}

// asks returns the owner that a request for owner replaces, and whether it is to be told when it is the first.
func (s *names) asks(t backend.Topic, owner string) (instead string, told bool) {
	s.engine.lock()
	defer s.engine.unlock()
	if n := s.records[t]; n != nil && n.waiters != nil && n.place.owner == owner {
		return n.place.instead, n.place.told
	}
	return "", false
}

// answered notes the outcome of a request for the grant g. Failed: the store has not answered.
func (p *place) answered(g *grant, failed bool, now clock.Instant) {
	if p.owner != g.owner {
		return
	}
	p.trip = now.Sub(g.asked)
	p.asking, p.unknown, p.until = false, g.unknown, g.until
	if !failed {
		p.instead = ""
	}
}

// spent notes that owner is not to be asked for again: its last request goes on without a caller, or what the owner has
// is being released.
func (p *place) spent(owner string) {
	if p.owner == owner {
		*p = place{instead: owner, last: p.last, trip: p.trip}
	}
}

// serves notes that a handoff by command to c asks for owner. It returns the owner that this one replaces.
func (s *names) serves(n *name, c *call, owner string) (instead string) {
	p := &n.place
	s.giveUp(n)
	instead = cmp.Or(p.owner, p.instead)
	*p = place{
		serving: owner, family: c.Family, wants: c.Wants, fenced: c.Fenced, ttl: c.ttl, told: s.waiting >= crowd,
		instead: instead, last: p.last, trip: p.trip,
	}
	return instead
}

// served notes the outcome of the handoff by command that asked for owner, unless the owner was granted, or the first
// waiter has asked meanwhile. Failed: the store has not answered, or not made the handoff. Enrolled: the owner is in
// the queue.
func (p *place) served(owner string, failed, enrolled bool) {
	if p.serving != owner {
		return
	}
	if p.serving = ""; !failed {
		p.instead = ""
	}
	if enrolled {
		p.owner = owner
	}
}

// granted notes that the owner is a tenure's now.
func (p *place) granted(owner string) {
	if p.last = owner; p.owner == owner || p.serving == owner {
		*p = place{last: owner, trip: p.trip}
	}
}

// comes notes that the entry of n's waiters has come into the store's queue, if untold is positive: for how long the
// store does not tell that the entry has become the first.
func (n *name) comes(now int64, untold time.Duration) {
	if untold > 0 {
		n.untold, n.firstInStore = now+int64(untold), false
	}
}

// retry returns when the first waiter asks again, which was to be at: earlier if the store, when it was last asked, did
// not tell yet that the entry is the first, or has told when the lease of the owner before it ends. That owner may be
// dead.
func (n *name) retry(asked, now, at int64) int64 {
	if n.firstInStore && now < n.before {
		at = min(at, n.before)
	}
	if n.untold != 0 && asked <= n.untold {
		at = min(at, n.untold+int64(rand.N(untoldSpread)))
	}
	return at
}

// untoldSpread is the time over which the clients of a fleet spread these requests: no request is later than the end
// of a first lease that began when the entry came.
const untoldSpread = 400 * time.Millisecond

// confirmAfter is the time from a grant by a message to the renewal that confirms it.
const confirmAfter = 50 * time.Millisecond

// Granted implements backend.QueueHandler.
func (h *handler) Granted(t backend.Topic, m backend.Grant) {
	e := (*Engine)(h)
	e.lock()
	defer e.unlock()
	now := e.Now()
	n := e.names.records[t]
	w := n.first()
	from := clock.Instant{ // the wall clock, too: the machine may have slept since
		Mono: now.Mono - int64(time.Since(m.From)), Wall: now.Wall - int64(time.Now().Round(0).Sub(m.From.Round(0))),
	}
	g := &grant{granted: true, owner: m.Owner, sent: from, first: int32(m.Lease / time.Millisecond)}
	g.reply.Token, g.asked = m.Token, g.sent
	switch {
	case w != nil && m.Owner == n.place.instead && t.Kind == backend.KindLock: // the next request takes it over
		n.Notify()
	case w == nil || m.Owner != n.place.owner && m.Owner != n.place.serving:
		e.names.decline(n, t, m.Owner)
	case n.place.asking:
		n.place.came = g
	case w.takes(&n.place, g, now):
		g.unknown, g.until = n.place.unknown, n.place.until
		n.give(w, g)
	default:
		n.Notify()
	}
}

// give gives the first waiter a grant by a message.
func (n *name) give(w *waiter, g *grant) {
	n.place.granted(g.owner)
	n.enrolled, n.firstInStore = false, false
	w.give(g)
}

// lease returns the lease of a grant by a message that is not confirmed yet; 0 for any other.
func (g *grant) lease() time.Duration { return time.Duration(g.first) * time.Millisecond }

// takes reports whether a grant by a message is enough for the waiter, and leaves time to confirm it. A lease that the
// caller chose is not confirmed: of that, no more may be over than a request would take, or a twentieth. Otherwise the
// waiter asks: for replicas, for the lease that it wants, or with a new owner.
func (w *waiter) takes(p *place, g *grant, now clock.Instant) bool {
	c := w.call
	if c == nil || c.Part || w.handoffGrant != nil || !p.asksFor(c) {
		return false
	}
	if c.Lease > 0 {
		return c.Lease <= g.lease() && now.Sub(g.sent) <= max(2*p.trip, c.Lease/20)
	}
	return clock.Deadline(g.sent, g.lease()).Until(now) >= confirmAfter+2*p.trip
}

// decline gives a grant back that no waiter expects, unless the owner has the lock: its own request may have found the
// grant before the message came.
func (s *names) decline(n *name, t backend.Topic, owner string) {
	if !n.has(owner) && (t.Kind != backend.KindSemaphore || s.permits[firstOf(owner)] == nil) {
		s.leave(t, 0, owner)
	}
}

// has reports whether the owner has the lock, or a side of it, or was the last one to be granted it, or was handed to
// a waiter that has not made it a tenure yet. An owner that has it is never left.
func (n *name) has(owner string) bool {
	if n == nil {
		return false
	}
	if t := n.holder(); t != nil && t.Owner == owner {
		return true
	}
	for r := range n.Readers {
		if r.Owner == owner {
			return true
		}
	}
	if n.waiters == nil {
		return false
	}
	for t := range n.queue().All {
		if t.Waiter.(*waiter).has(owner) {
			return true
		}
	}
	return n.place.last == owner
}
