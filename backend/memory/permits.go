package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// A count is a record under its name, as it is a key on Redis; to a lock of that name it is foreign data. The permits
// in use are a second record, and each remembered request is a further one, which expires.

func outName(name string) string { return "{" + name + "}:timeout" }

func onceName(q backend.CountRequest) string {
	return "mortise:1:once:{" + q.Topic.Name + "}:" + q.ID
}

// out is the permits in use of a semaphore.
type out record.Permits

// counts implements [backend.CountDownLatchStore], and has operations that semaphores share.
type counts struct{ *client }

// counted runs a step of a count. Once is what is remembered of an earlier execution of the request; nil if it is new.
func counted[R any](ctx context.Context, x counts, q backend.CountRequest,
	run func(p *record.Permits, st *record.Step, once *stored) R) (reply R, err error) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = x.refuses(ctx); err == nil {
		err = s.countable(q.Topic.Name)
	}
	if err == nil && q.Topic.Kind == backend.KindSemaphore {
		err = s.usable(q.Topic.Name)
	}
	if err != nil {
		return reply, err
	}
	var once *stored
	if q.ID != "" {
		once = s.find(onceName(q))
	}
	p, st := begin(s, x.client, s.permits, q.Topic.Name)
	reply = run(p, st, once)
	end(s, s.permits, p, st)
	return reply, nil
}

// countable fails if other data than a count has the name.
func (s *Store) countable(name string) error {
	if r := s.find(name); r != nil {
		if _, is := r.state.(*record.Permits); !is {
			return wrongKind(r)
		}
	}
	return nil
}

// usable fails if other data than permits in use has their name.
func (s *Store) usable(name string) error {
	if r := s.find(outName(name)); r != nil {
		if _, is := r.state.(*out); !is {
			return wrongKind(r)
		}
	}
	return nil
}

// remember stores the result of q, so that a repeated q is not executed again.
func (x counts) remember(q backend.CountRequest, took int64) {
	name := onceName(q)
	if old := x.store.find(name); old != nil {
		x.store.remove(old)
	}
	x.store.put(&stored{name: name, took: took}, time.Now().Add(backend.Remembered))
}

// did is remember for a request that succeeds or not.
func (x counts) did(q backend.CountRequest, done bool) bool {
	took := int64(0)
	if done {
		took = 1
	}
	x.remember(q, took)
	return done
}

// SetCount implements [backend.CountDownLatchStore].
func (x counts) SetCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x, q, func(p *record.Permits, st *record.Step, once *stored) bool {
		if once != nil {
			return once.took == 1
		}
		return x.did(q, p.Set(st, q.Topic.Kind, q.N))
	})
}

// Count implements [backend.CountDownLatchStore].
func (x counts) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return counted(ctx, x, backend.CountRequest{Topic: t}, func(p *record.Permits, st *record.Step, _ *stored) int64 {
		if t.Kind != backend.KindSemaphore {
			return p.N
		}
		return p.Count(st)
	})
}

// CountDown implements [backend.CountDownLatchStore].
func (x counts) CountDown(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, st *record.Step) { p.CountDown(st) })
}

// change runs a step that is not repeated with a request, and returns the count.
func (x counts) change(ctx context.Context, q backend.CountRequest,
	run func(*record.Permits, *record.Step)) (int64, error) {
	return counted(ctx, x, q, func(p *record.Permits, st *record.Step, once *stored) int64 {
		if once == nil {
			x.remember(q, 1)
			run(p, st)
		}
		return p.N
	})
}

// DeleteCount implements [backend.CountDownLatchStore].
func (x counts) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	return counted(ctx, x, q, func(p *record.Permits, st *record.Step, once *stored) bool {
		if once != nil {
			return once.took == 1
		}
		return x.did(q, p.DeleteLatch(st))
	})
}

// AddCount implements [backend.CountingSemaphoreStore].
func (x counts) AddCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, st *record.Step) { p.Add(st, q.N) })
}

// TakeCount implements [backend.CountingSemaphoreStore].
func (x counts) TakeCount(ctx context.Context, q backend.CountRequest) (backend.TakeReply, error) {
	return counted(ctx, x, q, func(p *record.Permits, st *record.Step, once *stored) backend.TakeReply {
		if once != nil {
			return backend.TakeReply{Granted: once.took == 1, Available: p.N}
		}
		reply := p.Take(st, q)
		if reply.Granted {
			x.remember(q, 1)
		}
		return reply
	})
}

// CancelTake implements [backend.CountingSemaphoreStore].
func (x counts) CancelTake(ctx context.Context, q backend.CountRequest) error {
	_, err := counted(ctx, x, q, func(p *record.Permits, st *record.Step, once *stored) (none struct{}) {
		x.remember(q, 0)
		if once != nil && once.took == 1 {
			p.Back(st, q.N)
		}
		return none
	})
	return err
}

// DrainCount implements [backend.CountingSemaphoreStore].
func (x counts) DrainCount(ctx context.Context, q backend.CountRequest) (int64, error) {
	return counted(ctx, x, q, func(p *record.Permits, _ *record.Step, once *stored) int64 {
		if once != nil {
			return once.took
		}
		took := p.Drain()
		x.remember(q, took)
		return took
	})
}

// semaphores implements [backend.CountingSemaphoreStore]. Its DeleteCount, unlike a latch's, announces nothing.
type semaphores struct{ counts }

// DeleteCount implements [backend.CountingSemaphoreStore].
func (x semaphores) DeleteCount(ctx context.Context, q backend.CountRequest) (bool, error) {
	q.Topic.Kind = backend.KindSemaphore // the permits in use are removed, too
	return counted(ctx, x.counts, q, func(p *record.Permits, _ *record.Step, once *stored) bool {
		if once != nil {
			return once.took == 1
		}
		return x.did(q, p.Delete())
	})
}

// permits implements [backend.SemaphoreStore]: permits with a lease each.
type permits struct{ semaphores }

// permitted runs a step of a semaphore without a request to remember.
func permitted[R any](ctx context.Context, x permits, name string,
	run func(*record.Permits, *record.Step) R) (R, error) {
	q := backend.CountRequest{Topic: backend.Topic{Kind: backend.KindSemaphore, Name: name}}
	return counted(ctx, x.counts, q, func(p *record.Permits, st *record.Step, _ *stored) R { return run(p, st) })
}

// Acquire implements [backend.SemaphoreStore].
func (x permits) Acquire(ctx context.Context, q backend.PermitRequest) (backend.PermitReply, error) {
	return permitted(ctx, x, q.Name, func(p *record.Permits, st *record.Step) backend.PermitReply {
		return p.Acquire(st, q)
	})
}

// SetLimit implements [backend.SemaphoreStore].
func (x permits) SetLimit(ctx context.Context, q backend.CountRequest) (int64, error) {
	return x.change(ctx, q, func(p *record.Permits, st *record.Step) { p.SetLimit(st, q.N) })
}

// InspectPermits implements [backend.SemaphoreStore].
func (x permits) InspectPermits(ctx context.Context, name string, most int) (backend.PermitsRecord, error) {
	return permitted(ctx, x, name, func(p *record.Permits, st *record.Step) backend.PermitsRecord {
		return p.Inspect(st, most)
	})
}

// Release implements [backend.SemaphoreStore]. An owner without permits needs no count.
func (x permits) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(s *Store) (r backend.ReleaseReply, err error) {
		p := s.permits[q.Name]
		if err = s.usable(q.Name); err != nil || p == nil || !p.Uses(q.Owner) && !q.Undo {
			return r, err
		}
		if err = s.countable(q.Name); err == nil {
			step(s, x.client, s.permits, q.Name, func(p *record.Permits, st *record.Step) { r = p.Release(st, q) })
		}
		return r, err
	})
}

// Renew implements [backend.SemaphoreStore].
func (x permits) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, renewing(x.client, x.store.permits, (*record.Permits).Renew))
}

// enrolling implements [backend.EnrolmentStore].
type enrolling struct{ *client }

// LeaveQueue implements [backend.EnrolmentStore].
func (x enrolling) LeaveQueue(ctx context.Context, t backend.Topic, number uint64, owner string) error {
	_, err := locked(ctx, x.client, func(s *Store) (none struct{}, _ error) {
		if t.Kind == backend.KindWrite {
			step(s, x.client, s.sides, t.Name, func(l *record.Sides, st *record.Step) { l.Leave(st, number, owner) })
		} else {
			step(s, x.client, s.permits, t.Name, func(p *record.Permits, st *record.Step) { p.Leave(st, number, owner) })
		}
		return none, nil
	})
	return err
}
