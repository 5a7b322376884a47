package engine

import (
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/retry"
	"github.com/mortise-go/mortise/internal/timerq"
)

// repetition sends something in the background, again and again, until it is done or can no longer matter.
type repetition struct {
	engine *Engine
	name   string // of the lock, which is on one node
	send   func() (done bool)
	gaveUp func() // called if it was not done in time; may be nil
	until  int64  // monotonic
	began  clock.Instant
	pauses retry.Backoff
	sent   bool // once at least
	timer  timerq.Timer
}

// repeat repeats send with pauses that double up to a second, until it is done, or until a time, when gaveUp is
// called, which may be nil. It is called with the mutex.
func (s *renewer) repeat(name string, until int64, send func() (done bool), gaveUp func()) *repetition {
	e := s.engine
	p := &repetition{
		engine: e, name: name, send: send, gaveUp: gaveUp, until: until, began: e.Now(),
		pauses: retry.Backoff{Every: 50 * time.Millisecond, Most: time.Second},
	}
	e.calls.running++
	s.timers.Put(&p.timer, p.began.Mono, p)
	return p
}

// rarely has the pauses grow, where the store answers, for what may be found until a time.
func (p *repetition) rarely(until int64) { p.pauses.Slow(time.Duration(until - p.began.Mono)) }

// Fire has it sent.
func (p *repetition) Fire(now clock.Instant) {
	e := p.engine
	// A process that stood still for the second that Shutdown waits sends it all the same.
	if now.Mono >= p.until || p.sent && e.calls.shut && p.last().Reached(now) {
		e.calls.ended()
		if p.gaveUp != nil {
			e.after(p.gaveUp)
		}
		return
	}
	p.sent = true
	e.renewer.lane(p.name).jobs.Push(p.again)
}

// last is until when p holds Shutdown up: a second, also where p comes late in it.
func (p *repetition) last() clock.Instant {
	return clock.Later(p.engine.calls.shutAt, p.began).Add(time.Second)
}

func (p *repetition) again() {
	e := p.engine
	done := p.send()
	now := e.Now()
	e.lock()
	defer e.unlock()
	if done {
		e.calls.ended()
		return
	}
	at := min(now.Mono+int64(p.pauses.Next()), p.until)
	if e.calls.shut {
		at = min(at, p.last().Mono)
	}
	e.renewer.timers.Put(&p.timer, at, p)
}

// debt is what an owner may have in the store that no tenure holds: late acquisitions of unknown outcome may have
// taken effect, or may yet, until a time. Where late is zero, one answer is enough: a release that failed is
// repeated.
type debt struct {
	family backend.Kind
	name   string
	owner  string
	place  time.Duration // for how long a place in the queue was asked for
	late   int
	until  int64 // monotonic
}

// compensate releases what a debt's owner holds until it has found all of it or it can no longer matter, because what
// would have been got has run out. Owner ids are never used again (nor are those handed on of which something is on
// its way), so it cannot hit another. It is called with the mutex.
func (s *renewer) compensate(d debt) {
	e := s.engine
	if d.family == backend.KindFair {
		s.leaveFairQueue(d)
		return
	}
	if d.family == backend.KindWrite && d.late > 0 {
		s.withdrawLateClaims(d)
	}
	q := backend.ReleaseRequest{Name: d.name, Owner: d.owner, Undo: d.late > 0}
	var p *repetition
	p = s.repeat(d.name, d.until, func() bool {
		reply, err := e.store.kinds[d.family].release(e.base, q)
		if err != nil {
			return false
		}
		p.rarely(d.until)
		if reply.Held {
			d.late--
			(*handler)(e).released(topicOf(d.family, d.name), false)
		}
		return d.late <= 0
	}, nil)
}

// withdrawLateClaims withdraws the claims that a debt's write requests leave if they arrive after their writer has
// withdrawn its own: for as long as a claim lasts. The claims of one client are one, so that of a writer that waits
// stays; it is made again if it goes all the same, because a withdrawal is announced as a release. It is called with
// the mutex.
func (s *renewer) withdrawLateClaims(d debt) {
	e, t := s.engine, topicOf(d.family, d.name)
	until := min(d.until, e.Now().Mono) + int64(e.Config.Watchdog)
	var p *repetition
	p = s.repeat(d.name, until, func() (done bool) {
		e.lock()
		claims := e.names.claims(t)
		e.unlock()
		if !claims && e.store.can.ReadWrite.Withdraw(e.base, d.name, e.Config.ID) == nil {
			p.rarely(until)
		}
		return false
	}, nil)
}

// leaveLine takes an owner out of a fair lock's queue, and releases the lock if it holds it. One answer is enough after
// the debt's requests can no longer take effect, as it is if none is late. It is called with the mutex.
func (s *renewer) leaveFairQueue(d debt) {
	e := s.engine
	fair := e.store.can.Fair
	if fair == nil {
		return
	}
	giveUp := max(d.until, e.Now().Mono) + int64(max(d.place, e.Config.Watchdog))
	var p *repetition
	p = s.repeat(d.name, giveUp, func() bool {
		last := d.late == 0 || e.Now().Mono >= d.until
		reply, err := fair.Leave(e.base, backend.LeaveRequest{Name: d.name, Owner: d.owner, Wait: d.place})
		if err != nil {
			return false
		}
		p.rarely(d.until)
		if reply.Held {
			(*handler)(e).released(lockTopic(d.name), false)
		}
		if reply.Held || reply.Queued {
			d.late--
		}
		return last || d.late <= 0
	}, nil)
}

// abandon releases, in the background, what the call's last question got, or may yet get, and no tenure has.
func (c *question) abandon() {
	c.engine.lock()
	d := debt{family: c.Family, name: c.Name, owner: c.grant.owner, place: c.place}
	c.engine.renewer.abandon(&c.Request, &c.grant, d)
	c.engine.unlock()
}

// abandon is called with the mutex.
func (s *renewer) abandon(r *Request, g *grant, d debt) {
	e := s.engine
	d.late, d.until = g.late, g.until
	if g.granted {
		d.until = max(d.until, e.Now().Mono+int64(e.Config.lease(r)))
		if d.late > 0 { // the grant is found as well
			d.late++
		}
	}
	if g.granted || d.late > 0 {
		s.compensate(d)
	}
}
