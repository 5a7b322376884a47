package record

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// counts implements [backend.CountDownLatchStore], and has operations that semaphores share.
type counts struct{ *session }

// memory is what is remembered of a request: what it came to, if it has been carried out before. Otherwise the step
// says what to remember, and whether.
type memory struct {
	took     int64
	did      bool
	remember bool
}

// came notes what a request came to.
func (m *memory) came(took int64) { m.took, m.remember = took, true }

// done is came for a request that succeeds or not.
func (m *memory) done(is bool) {
	if m.came(0); is {
		m.took = 1
	}
}

// counted runs a step of a count with what is remembered of its request.
func counted[R any](ctx context.Context, x *session, q backend.CountRequest,
	run func(*Permits, *Step, backend.CountRequest, *memory) R) (r R, err error) {
	if x.holder == nil {
		return countedElsewhere(ctx, x, q, run)
	}
	if err = x.holder.Lock(ctx); err != nil {
		return r, err
	}
	defer x.holder.Unlock()
	n, s := x.holder.Begin(q.Topic.Name)
	if err = n.Refuses(q.Topic.Kind); err == nil {
		m := &s.memory
		*m = memory{}
		m.took, m.did = x.known.of(request{q.Topic.Name, q.ID})
		if r = run(&n.Permits, n.For(s, CountData), q, m); m.remember {
			x.known.note(request{q.Topic.Name, q.ID}, m.took)
		}
	}
	x.holder.End(n, s)
	return r, err
}

// countedElsewhere remembers in the name, too, until the session has learned what the request came to.
func countedElsewhere[R any](ctx context.Context, x *session, q backend.CountRequest,
	run func(*Permits, *Step, backend.CountRequest, *memory) R) (R, error) {
	var reply, none R
	var m memory
	is := request{q.Topic.Name, q.ID}
	c := &Call{Name: q.Topic.Name, Run: func(n *Name, s *Step) error {
		m = memory{}
		if err := n.Refuses(q.Topic.Kind); err != nil {
			return err
		}
		x.known.settle(n, s)
		if m.took, m.did = n.Remembered(q.ID); !m.did {
			m.took, m.did = x.known.of(is)
		}
		if reply = run(&n.Permits, n.For(s, CountData), q, &m); m.remember {
			n.Remember(s, q.ID, m.took)
		}
		return nil
	}, Then: func(err error) {
		if err == nil && m.remember {
			x.known.note(is, m.took)
		}
	}}
	if x.asker.Ask(ctx, c); c.Err != nil {
		return none, c.Err
	}
	return reply, nil
}

// SetCount implements [backend.CountDownLatchStore].
func (x counts) SetCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, q backend.CountRequest, m *memory) bool {
		if !m.did {
			m.done(p.Set(s, q.Topic.Kind, q.N))
		}
		return m.took == 1
	})
}

// Count implements [backend.CountDownLatchStore].
func (x counts) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return on(ctx, ofPermits(x.session, t.Kind, t.Name), t.Kind, func(p *Permits, s *Step, k backend.Kind) int64 {
		if k != backend.KindSemaphore {
			return p.N
		}
		return p.Count(s)
	})
}

// CountDown implements [backend.CountDownLatchStore].
func (x counts) CountDown(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, _ backend.CountRequest, m *memory) int64 {
		if !m.did {
			p.CountDown(s)
			m.came(1)
		}
		return p.N
	})
}

// DeleteCount implements [backend.CountDownLatchStore].
func (x counts) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, _ backend.CountRequest, m *memory) bool {
		if !m.did {
			m.done(p.DeleteLatch(s))
		}
		return m.took == 1
	})
}

// AddCount implements [backend.CountingSemaphoreStore].
func (x counts) AddCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, q backend.CountRequest, m *memory) int64 {
		if !m.did {
			p.Add(s, q.N)
			m.came(1)
		}
		return p.N
	})
}

// TakeCount implements [backend.CountingSemaphoreStore].
func (x counts) TakeCount(ctx context.Context, q backend.CountRequest) (backend.TakeReply, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, q backend.CountRequest, m *memory) backend.TakeReply {
		if m.did {
			return backend.TakeReply{Granted: m.took == 1, Available: p.N}
		}
		reply := p.Take(s, q)
		if reply.Granted {
			m.came(1)
		}
		return reply
	})
}

// CancelTake implements [backend.CountingSemaphoreStore].
func (x counts) CancelTake(ctx context.Context, q backend.CountRequest) error {
	_, err := counted(ctx, x.session, q, func(p *Permits, s *Step, q backend.CountRequest, m *memory) none {
		if m.did && m.took == 1 {
			p.Back(s, q.N)
		}
		m.came(0)
		return none{}
	})
	return err
}

// DrainCount implements [backend.CountingSemaphoreStore].
func (x counts) DrainCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x.session, q, func(p *Permits, _ *Step, _ backend.CountRequest, m *memory) int64 {
		if !m.did {
			m.came(p.Drain())
		}
		return m.took
	})
}

// semaphores implements [backend.CountingSemaphoreStore]. Its DeleteCount, unlike a latch's, announces nothing.
type semaphores struct{ counts }

// DeleteCount implements [backend.CountingSemaphoreStore].
func (x semaphores) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x.session, q, func(p *Permits, _ *Step, _ backend.CountRequest, m *memory) bool {
		if !m.did {
			m.done(p.Delete())
		}
		return m.took == 1
	})
}

// permits implements [backend.SemaphoreStore]: permits with a lease each.
type permits struct{ semaphores }

// Acquire implements [backend.SemaphoreStore].
func (x permits) Acquire(ctx context.Context, q backend.PermitRequest) (backend.PermitReply, error) {
	return on(ctx, ofPermits(x.session, backend.KindSemaphore, q.Name), q, (*Permits).Acquire)
}

// SetLimit implements [backend.SemaphoreStore].
func (x permits) SetLimit(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x.session, q, func(p *Permits, s *Step, q backend.CountRequest, m *memory) int64 {
		if !m.did {
			p.SetLimit(s, q.N)
			m.came(1)
		}
		return p.N
	})
}

// InspectPermits implements [backend.SemaphoreStore].
func (x permits) InspectPermits(ctx context.Context, name string, most int) (backend.PermitsRecord, error) {
	return on(ctx, ofPermits(x.session, backend.KindSemaphore, name), most, (*Permits).Inspect)
}

// Release implements [backend.SemaphoreStore]. An owner without permits needs no count, but an undo may find its entry.
func (x permits) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	kind := AnyData
	if q.Undo {
		kind = backend.KindSemaphore
	}
	r, err := on(ctx, ofName(x.session, kind, q.Name), q, (*Name).releasePermits)
	if err == nil {
		err = r.err
	}
	return r.ReleaseReply, err
}

// permitsReleased is a reply, or why there is none.
type permitsReleased struct {
	backend.ReleaseReply
	err error
}

func (n *Name) releasePermits(s *Step, q backend.ReleaseRequest) (r permitsReleased) {
	if !q.Undo && !n.Permits.Uses(q.Owner) {
		return r
	}
	if r.err = n.Refuses(backend.KindSemaphore); r.err == nil {
		r.ReleaseReply = n.Permits.Release(n.For(s, CountData), q)
	}
	return r
}

// Renew implements [backend.SemaphoreStore].
func (x permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renew(ctx, ofPermits(x.session, AnyData, ""), in, out, (*Permits).Renew)
}
