package engine

import (
	"cmp"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/retry"
	"github.com/mortise-go/mortise/internal/timerq"
)

// repetition repeats a request in the background until it is done, or no longer matters.
type repetition struct {
	engine *Engine
	name   string                        // of the lock; it selects the lane
	send   func() (done bool, err error) // err is nil if the store has answered
	gaveUp func(last error)              // called if the request was not done in time, with its last failure; may be nil
	until  int64                         // monotonic
	began  clock.Instant
	pauses retry.Backoff
	sent   bool // send was called
	// owed: Shutdown waits for the store's answer until its context ends, and reports a request without one. Afterwards,
	// and for other requests, it waits for a second.
	owed  bool
	last  error // of send, while the request is owed
	timer timerq.Timer
}

// repeat calls send until it reports true, after pauses that double up to a second. At until it gives up, and calls
// gaveUp if that is not nil. Owed is as in repetition. Once Shutdown is over, nothing begins any more: a compensation
// would release a lock while the work under it goes on. It is called with the mutex.
func (s *renewer) repeat(
	name string, until int64, owed bool, send func() (done bool, err error), gaveUp func(last error),
) *repetition {
	e := s.engine
	p := &repetition{
		engine: e, name: name, send: send, gaveUp: gaveUp, until: until, began: e.Now(), owed: owed,
		pauses: retry.Backoff{Every: 50 * time.Millisecond, Most: time.Second},
	}
	if e.calls.over {
		return p
	}
	e.calls.running++
	if s.repeating == nil {
		s.repeating = make(map[*repetition]bool)
	}
	s.repeating[p] = true
	s.timers.Put(&p.timer, p.began.Mono, p)
	return p
}

// slowDown lets the pauses grow. It is for repetitions that go on until the given time though the store answers.
func (p *repetition) slowDown(until int64) { p.pauses.Slow(time.Duration(until - p.began.Mono)) }

// Fire queues the next call of send, or gives up.
func (p *repetition) Fire(now clock.Instant) {
	e := p.engine
	switch {
	case now.Mono >= p.until:
		delete(e.renewer.repeating, p) // what the request was about has run out
	// A process may have stood still for the second that Shutdown waits: send is called once all the same.
	case p.sent && e.calls.shut && p.hopeless(now): // an owed request stays in repeating, for Shutdown's error
		if !p.owed {
			delete(e.renewer.repeating, p)
		}
	default:
		p.sent = true
		e.renewer.lane(p.name).jobs.Push(p.again)
		return
	}
	e.calls.ended()
	p.tellGaveUp()
}

// tellGaveUp calls gaveUp once the mutex is free, with the last failure as it is now: a request may be on its way.
func (p *repetition) tellGaveUp() {
	if f, last := p.gaveUp, p.last; f != nil {
		p.gaveUp = nil
		p.engine.after(func() { f(last) })
	}
}

// hopeless reports whether Shutdown need not wait for p: it is owed and fails for a reason that stays, or it is not
// owed, and delays Shutdown already for a second.
func (p *repetition) hopeless(now clock.Instant) bool {
	if p.owed {
		return p.last != nil && !temporary(p.last)
	}
	return p.delays(now).Reached(now)
}

// delays returns until when p delays Shutdown if it is not owed: a second after Shutdown, or p, has begun.
func (p *repetition) delays(now clock.Instant) clock.Instant {
	return clock.Later(p.engine.calls.shutAt, p.began, now).Add(time.Second)
}

func (p *repetition) again() {
	e := p.engine
	done, err := p.send()
	now := e.Now()
	e.lock()
	defer e.unlock()
	p.last, p.owed = err, p.owed && err != nil
	if done {
		delete(e.renewer.repeating, p)
		e.calls.ended()
		return
	}
	at := min(now.Mono+int64(p.pauses.Next()), p.until)
	switch {
	case !e.calls.shut:
	case p.owed && !temporary(err):
		at = now.Mono
	case !p.owed:
		at = min(at, p.delays(now).Mono)
	}
	e.renewer.timers.Put(&p.timer, at, p)
}

// unconfirmed returns the names in the requests that are owed, one of their errors (nil if none has failed yet), and
// ends the repetitions. It is called with the mutex, when Shutdown ends.
func (s *renewer) unconfirmed(now clock.Instant) (names []string, last error) {
	for p := range s.repeating {
		if p.owed && now.Mono < p.until {
			names, last = append(names, p.name), cmp.Or(last, p.last)
		}
		p.tellGaveUp()
	}
	s.repeating = nil
	return names, last
}

// debt is what an owner may have in the store without a tenure: late requests of unknown outcome may have taken
// effect, or may do so until the time until. If unknown is zero, the owner may hold the lock, and one answer to a
// release suffices.
type debt struct {
	family  backend.Kind
	name    string
	owner   string
	keepFor time.Duration // how long the place in a fair lock's queue was asked for
	unknown int32
	until   int64 // monotonic
}

// heals is how long after its first answer a store may still get requests that an outage held up.
const heals = int64(500 * time.Millisecond)

// compensate releases what a debt's owner holds, until all late requests are found, or their leases would have run
// out, and the store has answered for some time: an outage may hold a request up for longer than its lease, and the
// release may overtake it. An owner id is never used again, and a local handoff passes on none with a request on its
// way, so the releases cannot hit another tenure. It is called with the mutex.
func (s *renewer) compensate(d debt) {
	e := s.engine
	if d.family == backend.KindFair {
		s.leaveFairQueue(d)
		return
	}
	if d.family == backend.KindWrite && d.unknown > 0 {
		s.withdrawLateClaims(d)
	}
	q := backend.ReleaseRequest{Name: d.name, Owner: d.owner, Undo: d.unknown > 0}
	s.pursue(d, func() (held, found bool, err error) {
		reply, err := e.store.kinds[d.family].release(e.base, q)
		return reply.Held, reply.Held, err
	})
}

// pursue calls undo as compensate says. Undo reports whether it released a lock, and whether it found a request. It is
// called with the mutex.
func (s *renewer) pursue(d debt, undo func() (held, found bool, err error)) {
	e := s.engine
	giveUp := max(d.until, e.Now().Mono) + int64(max(d.keepFor, e.Config.Watchdog))
	answered := clock.Never // when the store answered first
	var p *repetition
	p = s.repeat(d.name, giveUp, true, func() (done bool, err error) {
		sent := e.Now().Mono
		held, found, err := undo()
		if err != nil && !isWrongKind(err) { // with other data under its name, the owner holds nothing
			return false, err
		}
		answered = min(answered, e.Now().Mono)
		p.slowDown(d.until)
		if held {
			(*handler)(e).released(topicOf(d.family, d.name), false)
		}
		if found {
			d.unknown--
		}
		return d.unknown <= 0 || sent >= max(d.until, answered+heals), nil
	}, nil)
}

// withdrawLateClaims withdraws the claims that a debt's write requests leave if they arrive after their writer has
// withdrawn its claim. It repeats the withdrawal for as long as such a claim may last. All writers of a client share
// one claim, so nothing is withdrawn while a writer of the client asks. A withdrawal that crosses the request of a new
// writer costs that writer one more request: a withdrawal is announced as a release. It is called with the mutex.
func (s *renewer) withdrawLateClaims(d debt) {
	e, t := s.engine, topicOf(d.family, d.name)
	until := min(d.until, e.Now().Mono) + int64(e.Config.Watchdog)
	var p *repetition
	p = s.repeat(d.name, until, false, func() (done bool, err error) {
		e.lock()
		claims := e.names.claims(t)
		e.unlock()
		if !claims && e.store.can.ReadWrite.Withdraw(e.base, d.name, e.Config.ID) == nil {
			p.slowDown(until)
		}
		return false, nil
	}, nil)
}

// leaveFairQueue takes an owner out of a fair lock's queue, and releases the lock if the owner holds it. It ends as
// compensate does. It is called with the mutex.
func (s *renewer) leaveFairQueue(d debt) {
	e := s.engine
	fair := e.store.can.Fair
	if fair == nil {
		return
	}
	s.pursue(d, func() (held, found bool, err error) {
		reply, err := fair.Leave(e.base, backend.LeaveRequest{Name: d.name, Owner: d.owner, Wait: d.keepFor})
		return reply.Held, reply.Held || reply.Queued, err
	})
}

// abandon releases, in the background, what the last attempt got or may still get, and no tenure has.
func (c *attempt) abandon() {
	c.engine.lock()
	d := debt{family: c.Family, name: c.Name, owner: c.grant.owner, keepFor: c.keepFor}
	c.engine.renewer.abandon(&c.Request, &c.grant, d)
	c.engine.unlock()
	c.grant.abandoned = c.grant.abandoned || c.grant.granted || c.grant.unknown > 0
}

// abandon is attempt.abandon for callers with the mutex. d has the owner and the place.
func (s *renewer) abandon(r *Request, g *grant, d debt) {
	e := s.engine
	d.unknown, d.until = g.unknown, g.until
	if g.granted {
		d.until = max(d.until, e.Now().Mono+int64(r.TTL(e.Config.Watchdog)))
		if d.unknown > 0 { // the grant counts as well
			d.unknown++
		}
	}
	if g.granted || d.unknown > 0 {
		s.compensate(d)
	}
}
