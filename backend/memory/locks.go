package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// target is the state of a name that a session's request is about, of a kind.
type target[P any] struct {
	by   *client
	all  map[string]P
	kind backend.Kind
	name string
}

func (x *client) lock(k backend.Kind, name string) target[*record.Lock] {
	return target[*record.Lock]{x, x.store.locks, k, name}
}

func (x *client) side(k backend.Kind, name string) target[*record.Sides] {
	return target[*record.Sides]{x, x.store.sides, k, name}
}

// on runs a step for a request. It fails if other data than a lock of the target's kind has the name, without a step. A
// request about a hold (anyLock) has its step all the same: the owner does not hold this kind of lock.
func on[T any, P state[T], Q, R any](ctx context.Context, at target[P], q Q,
	run func(P, *record.Step, Q) R) (out R, err error) {
	s := at.by.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = at.by.refuses(ctx); err != nil {
		return out, err
	}
	if err = s.lookup(at.kind, at.name); err != nil && at.kind != anyLock {
		return out, err
	}
	l, st := begin(s, at.by, at.all, at.name)
	reply := run(l, st, q)
	end(s, at.all, l, st)
	if err == nil {
		out = reply
	}
	return out, err
}

// none is a request without anything to it, and bare the step for it.
type none struct{}

func bare[P, R any](run func(P, *record.Step) R) func(P, *record.Step, none) R {
	return func(l P, st *record.Step, _ none) R { return run(l, st) }
}

// left returns the time that is left of an owner's lease of a lock; 0 if it does not hold the lock. It fails if data
// that is no lock has the name.
func (s *Store) left(name, owner string) (left time.Duration, err error) {
	if err := s.lookup(anyLock, name); err != nil {
		return 0, err
	}
	step(s, nil, s.locks, name, func(l *record.Lock, st *record.Step) { left = l.Left(st, owner) })
	return left, nil
}

// Acquire implements [backend.Store].
func (x *session) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).Acquire)
}

// SetHolds implements [backend.Store].
func (x *session) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return on(ctx, x.lock(anyLock, q.Name), q, (*record.Lock).SetHolds)
}

// Release implements [backend.Store].
func (x *session) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, x.lock(anyLock, q.Name), q, (*record.Lock).Release)
}

// Renew implements [backend.Store] and [backend.DelegationStore].
func (x *client) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, renewing(x, x.store.locks, (*record.Lock).Renew))
}

// Inspect implements [backend.Store].
func (x *session) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return on(ctx, x.lock(backend.KindLock, name), none{}, bare((*record.Lock).Inspect))
}

// ForceRelease implements [backend.Store].
func (x *session) ForceRelease(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).ForceRelease)
}

// aged implements [backend.AgeStore].
type aged struct{ *session }

// KnowsAge implements [backend.AgeStore]. A new store has lost no data: until [Store.Flush] it is old enough for each
// request.
func (x aged) KnowsAge() bool { return true }

// AcquireAged implements [backend.AgeStore].
func (x aged) AcquireAged(ctx context.Context, q backend.AgedRequest) (backend.AgedReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, func(l *record.Lock, st *record.Step,
		q backend.AgedRequest) backend.AgedReply {
		young := time.Until(x.store.lost.Add(q.Least))
		if !x.store.lost.IsZero() && young > 0 && l.Left(st, q.Owner) == 0 {
			return backend.AgedReply{Young: true, AcquireReply: backend.AcquireReply{Remaining: st.Left(st.Now + young)}}
		}
		return backend.AgedReply{AcquireReply: l.Acquire(st, q.AcquireRequest)}
	})
}

// queue implements [backend.QueueStore].
type queue struct{ *session }

// Enrol implements [backend.QueueStore].
func (x queue) Enrol(ctx context.Context, q backend.EnrolRequest) (backend.EnrolReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).Enrol)
}

// Serve implements [backend.QueueStore].
func (x queue) Serve(ctx context.Context, q backend.ServeRequest) (backend.ServeReply, error) {
	return on(ctx, x.lock(anyLock, q.Name), q, (*record.Lock).Serve)
}

// Leave implements [backend.QueueStore].
func (x queue) Leave(ctx context.Context, q backend.LeaveEntryRequest) error {
	_, err := locked(ctx, x.client, func(s *Store) (none struct{}, _ error) {
		step(s, x.client, s.locks, q.Name, func(l *record.Lock, st *record.Step) { l.Leave(st, q.Owner) })
		return none, nil
	})
	return err
}

// fair implements [backend.FairStore].
type fair struct{ *client }

// Acquire implements [backend.FairStore].
func (x fair) Acquire(ctx context.Context, q backend.FairRequest) (backend.FairReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).AcquireFair)
}

// Release implements [backend.FairStore].
func (x fair) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, x.lock(anyLock, q.Name), q, (*record.Lock).ReleaseFair)
}

// Leave implements [backend.FairStore]. Data that is no lock counts as not held, as in the script.
func (x fair) Leave(ctx context.Context, q backend.LeaveRequest) (backend.LeaveReply, error) {
	return locked(ctx, x.client, func(s *Store) (r backend.LeaveReply, _ error) {
		step(s, x.client, s.locks, q.Name, func(l *record.Lock, st *record.Step) { r = l.LeaveFair(st, q.Owner) })
		return r, nil
	})
}

// delegated implements [backend.DelegationStore].
type delegated struct{ *client }

// Enter implements [backend.DelegationStore].
func (x delegated) Enter(ctx context.Context, q backend.EnterRequest) (backend.EnterReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).Enter)
}

// Release implements [backend.DelegationStore].
func (x delegated) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, x.lock(backend.KindLock, q.Name), q, (*record.Lock).ReleaseDelegated)
}

// multi implements [backend.BatchStore]: operations on several names in one step.
type multi struct{ *client }

// Groups implements [backend.BatchStore]. It returns one group of all names.
func (x multi) Groups(names []string) [][]int {
	if len(names) == 0 {
		return nil
	}
	group := make([]int, len(names))
	for i := range group {
		group[i] = i
	}
	return [][]int{group}
}

// AcquireAll implements [backend.BatchStore].
func (x multi) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	return locked(ctx, x.client, func(s *Store) ([]backend.AcquireReply, error) {
		out := make([]backend.AcquireReply, len(in))
		granted := true
		for i, q := range in {
			err := s.lookup(backend.KindLock, q.Name)
			if slices.ContainsFunc(in[:i], func(p backend.AcquireRequest) bool { return p.Name == q.Name }) {
				err = &backend.Fault{Err: fmt.Errorf("memory: %q twice in one AcquireAll", q.Name)}
			}
			if err != nil {
				return nil, &backend.RequestError{Index: i, Err: err}
			}
			step(s, x.client, s.locks, q.Name, func(l *record.Lock, st *record.Step) { out[i].Remaining = l.Ask(st, q.Owner) })
			granted = granted && out[i].Remaining == 0
		}
		for i, q := range in {
			if granted {
				step(s, x.client, s.locks, q.Name, func(l *record.Lock, st *record.Step) { out[i] = l.Take(st, q) })
			}
		}
		return out, nil
	})
}

// ReleaseAll implements [backend.BatchStore].
func (x multi) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	for i, q := range in {
		r, err := (&session{x.client}).Release(ctx, q)
		out[i] = backend.ReleaseResult{Held: r.Held, Err: err}
	}
}
