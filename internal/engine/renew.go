package engine

import (
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/fifo"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/retry"
	"github.com/mortise-go/mortise/internal/timerq"
)

const (
	// renewBatch bounds the leases that one command renews.
	renewBatch = 256
	// senders bounds the goroutines that send for a lane.
	senders = 4
)

// renewer sends what the timers find due: renewals, in batches, and jobs such as compensations. Guarded by the
// engine's mutex.
type renewer struct {
	engine *Engine
	timers *timerq.Queue
	// repeating are the repetitions that are under way, and the owed ones that Shutdown gave up.
	repeating map[*repetition]bool
	lanes     map[int]*lane // by node of the store; 0: a single node, or an unknown one
}

// lane has the work for one node of the store. Each lane has its own goroutines, so a node that does not answer delays
// only its own work.
type lane struct {
	due     fifo.Queue[*tenure] // to renew now
	jobs    fifo.Queue[func()]  // to call now
	sending int                 // goroutines that send, at most senders
}

func (s *renewer) init(e *Engine) {
	s.engine, s.lanes = e, make(map[int]*lane)
	s.timers = timerq.New(e.Clock, timerq.Hooks{Locker: (*locker)(&e.state), Idle: s.idle, Done: e.base.Done()})
}

// lane returns the lane of the node that has a name.
func (s *renewer) lane(name string) *lane {
	node := s.engine.store.node(name)
	l := s.lanes[node]
	if l == nil {
		l = new(lane)
		s.lanes[node] = l
	}
	return l
}

// queue puts a tenure into the next batch of renewals.
func (s *renewer) queue(t *tenure) {
	t.Plan.Renewing = true
	s.lane(t.Key.Name).due.Push(t)
}

// idle sends what is due. The timers call it with the mutex after all due tasks have fired.
func (s *renewer) idle(now clock.Instant) {
	s.gather(now)
	for node, l := range s.lanes {
		s.send(l)
		if node != 0 && l.sending == 0 {
			delete(s.lanes, node) // the node may be gone
		}
	}
}

// gather fills incomplete batches with renewals that are due soon (Plan.Soon): one command then renews leases that
// were acquired one after the other.
func (s *renewer) gather(now clock.Instant) {
	room := 0
	for _, l := range s.lanes {
		if n := l.due.Len() % renewBatch; n != 0 {
			room += renewBatch - n
		}
	}
	for ; room > 0; room-- {
		task, _ := s.timers.First()
		t, is := task.(*tenure)
		if !is || t.Plan.Next() > t.Plan.Soon(now) {
			return
		}
		s.queue(t)
		t.reschedule()
	}
}

// send starts goroutines for batches and jobs, up to senders.
func (s *renewer) send(l *lane) {
	e := s.engine
	for l.sending < senders {
		var job func()
		switch {
		case l.due.Len() > 0:
			batch := make([]*tenure, min(l.due.Len(), renewBatch))
			for i := range batch {
				batch[i] = l.due.Pop()
			}
			job = func() { s.renew(batch) }
		case l.jobs.Len() > 0:
			job = l.jobs.Pop()
		default:
			return
		}
		l.sending++
		e.calls.running++
		go func() {
			job()
			e.lock()
			defer e.unlock()
			l.sending--
			s.send(l)
			e.calls.ended()
		}()
	}
}

// renew renews a batch of tenures. The commands' context ends only with the client. Answers for tenures that have
// ended meanwhile are ignored.
func (s *renewer) renew(batch []*tenure) {
	e := s.engine
	in := make([]backend.RenewRequest, 0, len(batch))
	var kinds [renewBatch]backend.Kind
	out := make([]backend.RenewResult, len(batch))
	asked := batch[:0]
	now := e.Now()
	e.lock()
	// The store has a method for each kind.
	slices.SortStableFunc(batch, func(a, b *tenure) int { return int(a.record()) - int(b.record()) })
	for _, t := range batch {
		if t.State != lease.Live {
			t.Plan.Renewing = false
			continue
		}
		kinds[len(in)] = t.record()
		q := backend.RenewRequest{Name: t.Key.Name, Owner: t.Owner, Lease: t.Question(now), Had: now.Sub(t.First.Since)}
		if t.Plan.Exact && q.Lease > 0 {
			// Not beside a re-entry or a release: it must not come after a re-entry that asks for longer. It asks for
			// the watchdog timeout at least: if its outcome is unknown, it may come late, and the next renewal in time.
			if t.Plan.Shortened = true; t.BeginAlone() {
				q.Exact, t.Plan.Exact, q.Lease = true, false, max(q.Lease, t.Plan.Watchdog)
			}
		}
		in = append(in, q)
		asked = append(asked, t)
	}
	e.unlock()
	if len(in) == 0 {
		return
	}
	sent := e.Now()
	e.store.renew(e.base, kinds[:], in, out[:len(in)])
	e.lock()
	defer e.unlock()
	now = e.Now()
	for i, t := range asked {
		t.Plan.Renewing = false
		if t.State == lease.Live {
			renewal{tenure: t, sent: sent, now: now, kind: kinds[i], asked: in[i], result: out[i]}.settle()
		}
		if in[i].Exact {
			t.Leave()
		}
	}
}

// renewal is the answer to the renewal of one tenure.
type renewal struct {
	tenure    *tenure
	sent, now clock.Instant
	kind      backend.Kind
	asked     backend.RenewRequest
	result    backend.RenewResult
}

// settle applies the answer to the tenure. It is called with the mutex.
func (r renewal) settle() {
	t := r.tenure
	if r.result.Err != nil {
		r.failed()
		return
	}
	if !r.result.Held {
		t.lose(r.now, noRecord)
		return
	}
	// A confirmation after the deadline does not revive the lease.
	if t.expire(r.now); t.State != lease.Live {
		return
	}
	if r.kind != t.record() {
		// The tenure was delegated while the plain renewal was on its way. The renewal may have come after a callee
		// had entered, and have extended only the callee's lease. So it does not count.
		t.Plan.RenewAt = r.now.Mono
		t.reschedule()
		return
	}
	if x := t.trouble; x != nil {
		x.untold()
		x.failures, x.last = 0, nil
	}
	extended := t.Renewed(r.sent, r.now, r.asked.Lease)
	if extended {
		t.first = 0
	}
	if r.asked.Lease > 0 {
		t.Lasts(r.result.Remaining, r.asked.Exact, r.now)
	}
	if t.Plan.Verify {
		t.verify()
	}
	if f := t.engine.Config.Observer.Renewed; f != nil && extended {
		took, left := r.now.Sub(r.sent), t.Deadline.Until(r.now)
		t.engine.tell(func() {
			v := tenureEvent(t)
			v.Took, v.Remaining = took, left
			f(v)
		})
	}
	t.reschedule()
}

// failed plans the next attempt: after 100 ms, doubling up to a 30th of the watchdog timeout.
func (r renewal) failed() {
	t := r.tenure
	e, x, err := t.engine, t.troubled(), r.result.Err
	x.failures++
	t.Plan.Unsure = t.Plan.Unsure || r.asked.Exact
	x.last = err
	pause := retry.After(x.failures, 50*time.Millisecond, e.Config.Watchdog/30)
	t.Plan.RenewAt = r.now.Mono + int64(pause)
	left := t.Deadline.Until(r.now)
	if e.announce.Logs() {
		name := fail.Shorten(t.Key.Name)
		e.announce.Sum(announce.RenewalFailed, t.Owner, "name", name, "owner", t.Owner, "left", left, "err", err)
	}
	t.tellRenewalFailed(left, err)
	t.reschedule()
}
