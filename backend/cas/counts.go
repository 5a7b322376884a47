package cas

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// counts implements [backend.CountDownLatchStore], and has operations that semaphores share.
type counts struct{ *session }

// counted runs a step of a count. Once is what is remembered of an earlier execution of the request, and did whether
// it is remembered.
func counted[R any](ctx context.Context, x counts, q backend.CountRequest,
	run func(p *record.Permits, s *record.Step, once int64, did bool) (reply R, took int64, remember bool)) (R, error) {
	var reply, none R
	var took int64
	var remember bool
	asks := request{q.Topic.Name, q.ID}
	c := &call{run: func(n *record.Name, s *record.Step) error {
		if err := n.Refuses(q.Topic.Kind); err != nil {
			return err
		}
		x.known.settle(n, s)
		once, did := n.Remembered(q.ID)
		if !did {
			once, did = x.known.of(asks)
		}
		if reply, took, remember = run(&n.Permits, n.For(s, record.CountData), once, did); remember {
			n.Remember(s, q.ID, took)
		}
		return nil
	}, then: func(err error) {
		if err == nil && remember {
			x.known.note(asks, took)
		}
	}}
	if err := x.wait(ctx, x.begin(ctx, q.Topic.Name, c), c); err != nil {
		return none, err
	}
	return reply, nil
}

// count runs a step without a request to remember.
func count[R any](ctx context.Context, x counts, t backend.Topic,
	run func(*record.Permits, *record.Step) R) (R, error) {
	return counted(ctx, x, backend.CountRequest{Topic: t},
		func(p *record.Permits, s *record.Step, _ int64, _ bool) (R, int64, bool) { return run(p, s), 0, false })
}

// change runs a step that is not repeated with a request, and returns the count.
func (x counts) change(ctx context.Context, q backend.CountRequest,
	run func(*record.Permits, *record.Step)) (int64, error) {
	return counted(ctx, x, q, func(p *record.Permits, s *record.Step, _ int64, did bool) (int64, int64, bool) {
		if !did {
			run(p, s)
		}
		return p.N, 1, !did
	})
}

// attempt runs a step that succeeds or not, and is not repeated with a request.
func (x counts) attempt(ctx context.Context, q backend.CountRequest,
	run func(*record.Permits, *record.Step) bool) (bool, error) {
	return counted(ctx, x, q, func(p *record.Permits, s *record.Step, once int64, did bool) (bool, int64, bool) {
		if !did && run(p, s) {
			once = 1
		}
		return once == 1, once, !did
	})
}

// SetCount implements [backend.CountDownLatchStore].
func (x counts) SetCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return x.attempt(ctx, q, func(p *record.Permits, s *record.Step) bool { return p.Set(s, q.Topic.Kind, q.N) })
}

// Count implements [backend.CountDownLatchStore].
func (x counts) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return count(ctx, x, t, func(p *record.Permits, s *record.Step) int64 {
		if t.Kind != backend.KindSemaphore {
			return p.N
		}
		return p.Count(s)
	})
}

// CountDown implements [backend.CountDownLatchStore].
func (x counts) CountDown(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, s *record.Step) { p.CountDown(s) })
}

// DeleteCount implements [backend.CountDownLatchStore].
func (x counts) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return x.attempt(ctx, q, (*record.Permits).DeleteLatch)
}

// AddCount implements [backend.CountingSemaphoreStore].
func (x counts) AddCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, s *record.Step) { p.Add(s, q.N) })
}

// TakeCount implements [backend.CountingSemaphoreStore].
func (x counts) TakeCount(ctx context.Context, q backend.CountRequest) (backend.TakeReply, error) {
	return counted(ctx, x, q,
		func(p *record.Permits, s *record.Step, once int64, did bool) (backend.TakeReply, int64, bool) {
			if did {
				return backend.TakeReply{Granted: once == 1, Available: p.N}, 0, false
			}
			reply := p.Take(s, q)
			return reply, 1, reply.Granted
		})
}

// CancelTake implements [backend.CountingSemaphoreStore].
func (x counts) CancelTake(ctx context.Context, q backend.CountRequest) error {
	_, err := counted(ctx, x, q, func(p *record.Permits, s *record.Step, once int64, did bool) (none, int64, bool) {
		if did && once == 1 {
			p.Back(s, q.N)
		}
		return none{}, 0, true
	})
	return err
}

// DrainCount implements [backend.CountingSemaphoreStore].
func (x counts) DrainCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x, q, func(p *record.Permits, _ *record.Step, once int64, did bool) (int64, int64, bool) {
		if did {
			return once, 0, false
		}
		took := p.Drain()
		return took, took, true
	})
}

// semaphores implements [backend.CountingSemaphoreStore]. Its DeleteCount, unlike a latch's, announces nothing.
type semaphores struct{ counts }

// DeleteCount implements [backend.CountingSemaphoreStore].
func (x semaphores) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return x.attempt(ctx, q, func(p *record.Permits, _ *record.Step) bool { return p.Delete() })
}

// permits implements [backend.SemaphoreStore]: permits with a lease each.
type permits struct{ semaphores }

func semaphore(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindSemaphore, Name: name}
}

// Acquire implements [backend.SemaphoreStore].
func (x permits) Acquire(ctx context.Context, q backend.PermitRequest) (backend.PermitReply, error) {
	return count(ctx, x.counts, semaphore(q.Name), func(p *record.Permits, s *record.Step) backend.PermitReply {
		return p.Acquire(s, q)
	})
}

// SetLimit implements [backend.SemaphoreStore].
func (x permits) SetLimit(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, s *record.Step) { p.SetLimit(s, q.N) })
}

// InspectPermits implements [backend.SemaphoreStore].
func (x permits) InspectPermits(ctx context.Context, name string, most int) (backend.PermitsRecord, error) {
	return count(ctx, x.counts, semaphore(name), func(p *record.Permits, s *record.Step) backend.PermitsRecord {
		return p.Inspect(s, most)
	})
}

// Release implements [backend.SemaphoreStore]. An owner without permits needs no count, but an undo may find its entry.
func (x permits) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, func(n *record.Name, s *record.Step) (r backend.ReleaseReply, err error) {
		if !q.Undo && !n.Permits.Uses(q.Owner) {
			return r, nil
		}
		return n.Permits.Release(n.For(s, record.CountData), q), nil
	})
}

// Renew implements [backend.SemaphoreStore].
func (x permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renewEach(ctx, x.session, in, out,
		func(n *record.Name, s *record.Step, q backend.RenewRequest) backend.RenewResult {
			return n.Permits.Renew(n.For(s, record.CountData), q)
		})
}
