package cas

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// locks implements [backend.Store]: the operations of plain locks. Those of other kinds are in components: types that
// share the session.
type locks struct{ *session }

// Capabilities implements [backend.Store]. The store lacks Batch, Age, Partitions, Leaver and Replicas.
func (x *locks) Capabilities() backend.Capabilities {
	c := counts{x.session}
	return backend.Capabilities{
		ReadWrite: sides{x.session}, Fair: fair{x.session}, Delegation: delegated{x.session}, Queue: queue{x},
		Grants: true, Enrolments: enrolling{x.session}, CountDownLatches: c, CountingSemaphores: semaphores{c},
		Semaphores: permits{semaphores{c}}, Ticks: ticks{x.session}, Proclamations: proclaimed{x.session},
		Check: checks{x.session}, Operator: operator{x.session}, List: x.lister(),
	}
}

// lockStep returns the step of a request for a kind of lock. A request about a hold ([record.AnyLock]) has its step on
// a read-write lock, too: the owner does not hold this kind of lock.
func lockStep[Q, R any](kind backend.Kind, q Q,
	run func(*record.Lock, *record.Step, Q) R) func(*record.Name, *record.Step) (R, error) {
	return func(n *record.Name, s *record.Step) (r R, err error) {
		if err = n.Refuses(kind); err != nil {
			return r, err
		}
		return run(&n.Lock, n.For(s, record.LockData), q), nil
	}
}

// none is a request without anything to it, and bare the step for it.
type none struct{}

func bare[P, R any](run func(P, *record.Step) R) func(P, *record.Step, none) R {
	return func(l P, s *record.Step, _ none) R { return run(l, s) }
}

// Acquire implements [backend.Store].
func (x *locks) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).Acquire))
}

// SetHolds implements [backend.Store].
func (x *locks) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(record.AnyLock, q, (*record.Lock).SetHolds))
}

// Release implements [backend.Store].
func (x *locks) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(record.AnyLock, q, (*record.Lock).Release))
}

// Renew implements [backend.Store] and [backend.DelegationStore].
func (x *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renewEach(ctx, x, in, out, func(n *record.Name, s *record.Step, q backend.RenewRequest) backend.RenewResult {
		return n.Lock.Renew(n.For(s, record.LockData), q)
	})
}

// renewEach sends renewals, all at once.
func renewEach(ctx context.Context, x *session, in []backend.RenewRequest, out []backend.RenewResult,
	run func(*record.Name, *record.Step, backend.RenewRequest) backend.RenewResult) {
	replies, keys, calls := make([]backend.RenewResult, len(in)), make([]*key, len(in)), make([]*call, len(in))
	for i, q := range in {
		calls[i] = &call{lenient: true, run: func(n *record.Name, s *record.Step) error {
			replies[i] = run(n, s, q)
			return nil
		}}
		keys[i] = x.begin(ctx, q.Name, calls[i])
	}
	for i := range in {
		if err := x.wait(ctx, keys[i], calls[i]); err != nil {
			out[i] = backend.RenewResult{Err: err}
		} else {
			out[i] = replies[i]
		}
	}
}

// Inspect implements [backend.Store].
func (x *locks) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return ask(ctx, x.session, name, lockStep(backend.KindLock, none{}, bare((*record.Lock).Inspect)))
}

// ForceRelease implements [backend.Store].
func (x *locks) ForceRelease(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).ForceRelease))
}

// queue implements [backend.QueueStore].
type queue struct{ *locks }

// Enrol implements [backend.QueueStore].
func (x queue) Enrol(ctx context.Context, q backend.EnrolRequest) (backend.EnrolReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).Enrol))
}

// Serve implements [backend.QueueStore].
func (x queue) Serve(ctx context.Context, q backend.ServeRequest) (backend.ServeReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(record.AnyLock, q, (*record.Lock).Serve))
}

// Leave implements [backend.QueueStore].
func (x queue) Leave(ctx context.Context, q backend.LeaveEntryRequest) error {
	_, err := askOf(ctx, x.session, q.Name, true, func(n *record.Name, s *record.Step) (none, error) {
		n.Lock.Leave(n.For(s, record.LockData), q.Owner)
		return none{}, nil
	})
	return err
}

// fair implements [backend.FairStore].
type fair struct{ *session }

// Acquire implements [backend.FairStore].
func (x fair) Acquire(ctx context.Context, q backend.FairRequest) (backend.FairReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).AcquireFair))
}

// Release implements [backend.FairStore].
func (x fair) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(record.AnyLock, q, (*record.Lock).ReleaseFair))
}

// Leave implements [backend.FairStore].
func (x fair) Leave(ctx context.Context, q backend.LeaveRequest) (backend.LeaveReply, error) {
	return askOf(ctx, x.session, q.Name, true, func(n *record.Name, s *record.Step) (backend.LeaveReply, error) {
		return n.Lock.LeaveFair(n.For(s, record.LockData), q.Owner), nil
	})
}

// delegated implements [backend.DelegationStore].
type delegated struct{ *session }

// Enter implements [backend.DelegationStore].
func (x delegated) Enter(ctx context.Context, q backend.EnterRequest) (backend.EnterReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).Enter))
}

// Release implements [backend.DelegationStore].
func (x delegated) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, lockStep(backend.KindLock, q, (*record.Lock).ReleaseDelegated))
}
