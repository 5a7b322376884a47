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
	// renewBatch is how many leases one command renews.
	renewBatch = 256
	// senders is how many commands the renewer has on their way at once, to each node.
	senders = 4
)

// renewer sends what becomes due: renewals, in batches, and jobs such as compensations. Guarded by the engine's
// mutex.
type renewer struct {
	engine *Engine
	timers *timerq.Queue
	lanes  map[int]*lane // by node of the store; 0 where there is one only, or it is not known
}

// lane is what is to be sent to one node of the store. Each has senders of its own, so that a node that hangs holds
// up nothing for the others.
type lane struct {
	due     fifo.Queue[*tenure] // to be renewed now
	jobs    fifo.Queue[func()]  // to be done now
	sending int                 // goroutines that send
}

func (s *renewer) init(e *Engine) {
	s.engine, s.lanes = e, make(map[int]*lane)
	s.timers = timerq.New(e.Clock, timerq.Hooks{Locker: (*locker)(&e.state), Idle: s.idle, Done: e.base.Done()})
}

// lane is that of a name's node.
func (s *renewer) lane(name string) *lane {
	node := s.engine.store.node(name)
	l := s.lanes[node]
	if l == nil {
		l = new(lane)
		s.lanes[node] = l
	}
	return l
}

// queue has a tenure renewed now.
func (s *renewer) queue(t *tenure) {
	t.Plan.Renewing = true
	s.lane(t.Key.Name).due.Push(t)
}

// idle sends what is due, after all that was due has fired.
func (s *renewer) idle(now clock.Instant) {
	s.gather(now)
	for node, l := range s.lanes {
		s.send(l)
		if node != 0 && l.sending == 0 {
			delete(s.lanes, node) // its node may be gone
		}
	}
}

// gather fills batches with what is due a little later: leases that were acquired in a row are renewed in one
// command.
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

// send hands batches and jobs to goroutines, few at a time.
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

// renew asks for more time for a batch of tenures. Its command's context ends with the client; what it finds out
// about a tenure that is over does not matter.
func (s *renewer) renew(batch []*tenure) {
	e := s.engine
	in := make([]backend.RenewRequest, 0, len(batch))
	var kinds [renewBatch]backend.Kind
	out := make([]backend.RenewResult, len(batch))
	asked := batch[:0]
	now := e.Now()
	e.lock()
	// A command is for one kind.
	slices.SortStableFunc(batch, func(a, b *tenure) int { return int(a.record()) - int(b.record()) })
	for _, t := range batch {
		if t.State != lease.Live {
			t.Plan.Renewing = false
			continue
		}
		kinds[len(in)] = t.record()
		in = append(in, backend.RenewRequest{Name: t.Key.Name, Owner: t.Owner, Lease: t.Question(now)})
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
	}
}

// renewal is one that the store has answered.
type renewal struct {
	tenure    *tenure
	sent, now clock.Instant
	kind      backend.Kind
	asked     backend.RenewRequest
	result    backend.RenewResult
}

// settle settles what became of a renewal.
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
	// A confirmation that comes too late revives nothing.
	if t.expire(r.now); t.State != lease.Live {
		return
	}
	if r.kind != t.record() {
		// It was delegated meanwhile: the renewal may have come after a callee that entered, and prolonged that one's
		// lease only.
		t.Plan.RenewAt = r.now.Mono
		t.reschedule()
		return
	}
	if x := t.trouble; x != nil {
		x.failures, x.last = 0, nil
	}
	extended := t.Renewed(r.sent, r.now, r.asked.Lease)
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

// failed has it repeated within the lease.
func (r renewal) failed() {
	t := r.tenure
	e, x, err := t.engine, t.troubled(), r.result.Err
	x.failures++
	x.last = err
	pause := retry.After(x.failures, 50*time.Millisecond, e.Config.Watchdog/30)
	t.Plan.RenewAt = r.now.Mono + int64(pause)
	left := t.Deadline.Until(r.now)
	if e.announce.Logs() {
		name := fail.Shorten(t.Key.Name)
		e.announce.Sum(announce.RenewalFailed, "name", name, "owner", t.Owner, "left", left, "err", err)
	}
	if f := e.Config.Observer.RenewalFailed; f != nil {
		e.tell(func() {
			v := tenureEvent(t)
			v.Remaining, v.Err = left, err
			f(v)
		})
	}
	t.reschedule()
}
