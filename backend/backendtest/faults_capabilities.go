package backendtest

import (
	"context"
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// The operations that Faults sees where the backend has what they belong to. Those on read-write locks,
// fair locks, delegated locks and expiring permits are OpAcquire, OpRelease and OpRenew besides. Of several
// locks, Name and Owner are those of the first.
const (
	OpSetCount    Op = "set count"
	OpCount       Op = "count"
	OpCountDown   Op = "count down"
	OpDeleteCount Op = "delete count"
	OpAddCount    Op = "add count"
	OpTakeCount   Op = "take count"
	OpCancelTake  Op = "cancel take"
	OpDrainCount  Op = "drain count"
	OpAcquireAll  Op = "acquire all"
	OpReleaseAll  Op = "release all"
	OpWithdraw    Op = "withdraw"
	OpLeave       Op = "leave"
	OpStepBack    Op = "step back"
)

type faultyReadWrite struct {
	f     *Faults
	under backend.ReadWriteStore
}

func (s faultyReadWrite) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	_, err := pass(s.f, ctx, Call{Op: OpWithdraw, Name: t.Name, Owner: claimant},
		func(ctx context.Context) (struct{}, error) { return struct{}{}, s.under.Withdraw(ctx, t, claimant) })
	return err
}

type faultyFair struct {
	f     *Faults
	under backend.FairStore
}

func (s faultyFair) Leave(ctx context.Context, r backend.LeaveRequest) (backend.LeaveReply, error) {
	return pass(s.f, ctx, Call{Op: OpLeave, Name: r.Name, Owner: r.Owner}, with(r, s.under.Leave))
}

type faultyDelegation struct {
	s     *faulty
	under backend.DelegationStore
}

func (s faultyDelegation) Enter(ctx context.Context, r backend.EnterRequest) (backend.AcquireReply, error) {
	leaves := s.s.leaves(backend.KindDelegated) && r.Replicas == 0
	return leaving(ctx, leaves, func(ctx context.Context) (backend.AcquireReply, error) {
		return pass(s.s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.Enter))
	})
}

type faultyQueue struct {
	s     *faulty
	under backend.QueueStore
}

// HandOver implements [backend.QueueStore]; it is a release.
func (s faultyQueue) HandOver(ctx context.Context, r backend.HandOverRequest) (backend.HandOverReply, error) {
	return leaving(ctx, s.s.leaves(backend.KindLock), func(ctx context.Context) (backend.HandOverReply, error) {
		return pass(s.s.f, ctx, Call{Op: OpRelease, Name: r.Name, Owner: r.Owner}, with(r, s.under.HandOver))
	})
}

func (s faultyQueue) StepBack(ctx context.Context, t backend.Topic) error {
	_, err := pass(s.s.f, ctx, Call{Op: OpStepBack, Name: t.Name}, only(t, s.under.StepBack))
	return err
}

type faultyBatch struct {
	backend.BatchStore
	f *Faults
}

func (s faultyBatch) AcquireAll(ctx context.Context, in []backend.AcquireRequest) ([]backend.AcquireReply, error) {
	in = slices.Clone(in)
	c := Call{Op: OpAcquireAll, Requests: len(in)}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	return pass(s.f, ctx, c, with(in, s.BatchStore.AcquireAll))
}

func (s faultyBatch) ReleaseAll(ctx context.Context, in []backend.ReleaseRequest, out []backend.ReleaseResult) {
	c := Call{Op: OpReleaseAll, Requests: len(in)}
	if len(in) > 0 {
		c.Name, c.Owner = in[0].Name, in[0].Owner
	}
	passBatch(s.f, ctx, c, in, out, batch[backend.ReleaseRequest, backend.ReleaseResult]{
		s.BatchStore.ReleaseAll, func(err error) backend.ReleaseResult { return backend.ReleaseResult{Err: err} },
	})
}

// countStore is what latches and semaphores of both kinds have in common.
type countStore interface {
	SetCount(ctx context.Context, r backend.CountRequest) (bool, error)
	Count(ctx context.Context, t backend.Topic) (int64, error)
}

type faultyCount[S countStore] struct {
	f     *Faults
	under S
}

func passCount[R any](f *Faults, ctx context.Context, op Op, r backend.CountRequest,
	do func(context.Context, backend.CountRequest) (R, error)) (R, error) {
	return pass(f, ctx, Call{Op: op, Name: r.Topic.Name, Owner: r.ID}, with(r, do))
}

func (s faultyCount[S]) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return passCount(s.f, ctx, OpSetCount, r, s.under.SetCount)
}

func (s faultyCount[S]) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return pass(s.f, ctx, Call{Op: OpCount, Name: t.Name}, with(t, s.under.Count))
}

type faultyLatches struct {
	faultyCount[backend.LatchStore]
}

func (s faultyLatches) CountDown(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpCountDown, r, s.under.CountDown)
}

func (s faultyLatches) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return passCount(s.f, ctx, OpDeleteCount, r, s.under.DeleteCount)
}

type faultyPermits struct {
	faultyCount[backend.PermitStore]
}

func (s faultyPermits) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpAddCount, r, s.under.AddCount)
}

type faultySemaphores struct {
	faultyCount[backend.SemaphoreStore]
}

func (s faultySemaphores) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpAddCount, r, s.under.AddCount)
}

func (s faultySemaphores) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	return passCount(s.f, ctx, OpTakeCount, r, s.under.TakeCount)
}

func (s faultySemaphores) CancelTake(ctx context.Context, r backend.CountRequest) error {
	c := Call{Op: OpCancelTake, Name: r.Topic.Name, Owner: r.ID}
	_, err := pass(s.f, ctx, c, only(r, s.under.CancelTake))
	return err
}

func (s faultySemaphores) DrainCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpDrainCount, r, s.under.DrainCount)
}
