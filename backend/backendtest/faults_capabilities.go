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
	OpSetLimit    Op = "set limit"
	OpCancelTake  Op = "cancel take"
	OpDrainCount  Op = "drain count"
	OpAcquireAll  Op = "acquire all"
	OpReleaseAll  Op = "release all"
	OpWithdraw    Op = "withdraw"
	OpLeave       Op = "leave"
	OpLeaveQueue  Op = "leave queue"
	OpClaimTick   Op = "claim tick"
	OpProclaim    Op = "proclaim"
	OpProclaimed  Op = "proclaimed"
)

type faultyList struct {
	f     *Faults
	under backend.ListStore
}

func (s faultyList) List(ctx context.Context, r backend.ListRequest) (backend.ListPage, error) {
	return pass(s.f, ctx, Call{Op: OpInspect, Name: r.Prefix}, with(r, s.under.List))
}

type faultyOperator struct {
	f     *Faults
	under backend.OperatorStore
}

func (s faultyOperator) Describe(ctx context.Context, r backend.DescribeRequest) (backend.Description, error) {
	return pass(s.f, ctx, Call{Op: OpInspect, Name: r.Name}, with(r, s.under.Describe))
}

type faultyTicks struct {
	f     *Faults
	under backend.TickStore
}

func (s faultyTicks) ClaimTick(ctx context.Context, r backend.TickRequest) (backend.TickReply, error) {
	return pass(s.f, ctx, Call{Op: OpClaimTick, Name: r.Name, Owner: r.ID}, with(r, s.under.ClaimTick))
}

type faultyProclamations struct {
	f     *Faults
	under backend.ProclamationStore
}

func (s faultyProclamations) Proclaim(ctx context.Context, r backend.ProclaimRequest) (bool, error) {
	return pass(s.f, ctx, Call{Op: OpProclaim, Name: r.Name, Owner: r.Owner}, with(r, s.under.Proclaim))
}

func (s faultyProclamations) Proclaimed(ctx context.Context, name string) (backend.Proclamation, error) {
	return pass(s.f, ctx, Call{Op: OpProclaimed, Name: name}, with(name, s.under.Proclaimed))
}

type faultyReadWrite struct {
	f     *Faults
	under backend.ReadWriteStore
}

func (s faultyReadWrite) AcquireRead(ctx context.Context, r backend.ReadRequest) (backend.ReadReply, error) {
	return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.AcquireRead))
}

func (s faultyReadWrite) AcquireWrite(ctx context.Context, r backend.WriteRequest) (backend.WriteReply, error) {
	return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.AcquireWrite))
}

func (s faultyReadWrite) SetWriteHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	return s.f.setHolds(ctx, r, s.under.SetWriteHolds)
}

func (s faultyReadWrite) ReleaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return s.f.release(ctx, r, s.under.ReleaseRead)
}

func (s faultyReadWrite) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return s.f.release(ctx, r, s.under.ReleaseWrite)
}

func (s faultyReadWrite) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.f.renew(ctx, in, out, s.under.RenewReads)
}

func (s faultyReadWrite) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.f.renew(ctx, in, out, s.under.RenewWrites)
}

func (s faultyReadWrite) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	return pass(s.f, ctx, Call{Op: OpInspect, Name: name}, with(name, s.under.InspectRW))
}

func (s faultyReadWrite) ForceReleaseRW(ctx context.Context, r backend.ForceRequest) (bool, error) {
	return pass(s.f, ctx, Call{Op: OpForceRelease, Name: r.Name, Owner: r.Owner}, with(r, s.under.ForceReleaseRW))
}

func (s faultyReadWrite) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := pass(s.f, ctx, Call{Op: OpWithdraw, Name: name, Owner: claimant},
		func(ctx context.Context) (struct{}, error) { return struct{}{}, s.under.Withdraw(ctx, name, claimant) })
	return err
}

type faultyFair struct {
	f     *Faults
	under backend.FairStore
}

func (s faultyFair) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.Acquire))
}

func (s faultyFair) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return s.f.release(ctx, r, s.under.Release)
}

func (s faultyFair) Leave(ctx context.Context, r backend.LeaveRequest) (backend.LeaveReply, error) {
	return pass(s.f, ctx, Call{Op: OpLeave, Name: r.Name, Owner: r.Owner}, with(r, s.under.Leave))
}

type faultyDelegation struct {
	s     *faulty
	under backend.DelegationStore
}

func (s faultyDelegation) Enter(ctx context.Context, r backend.EnterRequest) (backend.EnterReply, error) {
	leaves := s.s.leaves(backend.KindDelegated) && r.Replicas == 0
	return leaving(ctx, leaves, func(ctx context.Context) (backend.EnterReply, error) {
		return pass(s.s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.Enter))
	})
}

func (s faultyDelegation) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return leaving(ctx, s.s.leaves(backend.KindDelegated), func(ctx context.Context) (backend.ReleaseReply, error) {
		return s.s.f.release(ctx, r, s.under.Release)
	})
}

func (s faultyDelegation) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.s.f.renew(ctx, in, out, s.under.Renew)
}

type faultyQueue struct {
	s     *faulty
	under backend.QueueStore
}

func (s faultyQueue) Enrol(ctx context.Context, r backend.EnrolRequest) (backend.EnrolReply, error) {
	return leaving(ctx, s.s.leaves(backend.KindLock) && r.Replicas == 0,
		func(ctx context.Context) (backend.EnrolReply, error) {
			return pass(s.s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.Enrol))
		})
}

// Serve implements [backend.QueueStore]; it is a release.
func (s faultyQueue) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	return leaving(ctx, s.s.leaves(backend.KindLock), func(ctx context.Context) (backend.ServeReply, error) {
		return pass(s.s.f, ctx, Call{Op: OpRelease, Name: r.Name, Owner: r.Owner}, with(r, s.under.Serve))
	})
}

func (s faultyQueue) Leave(ctx context.Context, r backend.LeaveEntryRequest) error {
	_, err := pass(s.s.f, ctx, Call{Op: OpLeaveQueue, Name: r.Name}, only(r, s.under.Leave))
	return err
}

type faultyEnrolments struct {
	s     *faulty
	under backend.EnrolmentStore
}

func (s faultyEnrolments) LeaveQueue(ctx context.Context, t backend.Topic, entry uint64, owner string) error {
	leave := func(ctx context.Context, t backend.Topic) error { return s.under.LeaveQueue(ctx, t, entry, owner) }
	_, err := pass(s.s.f, ctx, Call{Op: OpLeaveQueue, Name: t.Name}, only(t, leave))
	return err
}

type faultyAge struct {
	backend.AgeStore
	f *Faults
}

func (s faultyAge) AcquireAged(ctx context.Context, r backend.AgedRequest) (backend.AgedReply, error) {
	return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.AgeStore.AcquireAged))
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
	DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error)
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

func (s faultyCount[S]) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return passCount(s.f, ctx, OpDeleteCount, r, s.under.DeleteCount)
}

type faultyLatches struct {
	faultyCount[backend.CountDownLatchStore]
}

func (s faultyLatches) CountDown(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpCountDown, r, s.under.CountDown)
}

type faultySemaphores struct {
	faultyCount[backend.SemaphoreStore]
}

func (s faultySemaphores) Acquire(ctx context.Context, r backend.PermitRequest) (backend.PermitReply, error) {
	return pass(s.f, ctx, Call{Op: OpAcquire, Name: r.Name, Owner: r.Owner}, with(r, s.under.Acquire))
}

func (s faultySemaphores) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return s.f.release(ctx, r, s.under.Release)
}

func (s faultySemaphores) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.f.renew(ctx, in, out, s.under.Renew)
}

func (s faultySemaphores) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpAddCount, r, s.under.AddCount)
}

func (s faultySemaphores) SetLimit(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpSetLimit, r, s.under.SetLimit)
}

func (s faultySemaphores) InspectPermits(ctx context.Context, name string, most int) (backend.PermitsRecord, error) {
	return pass(s.f, ctx, Call{Op: OpInspect, Name: name}, func(ctx context.Context) (backend.PermitsRecord, error) {
		return s.under.InspectPermits(ctx, name, most)
	})
}

type faultyCountingSemaphores struct {
	faultyCount[backend.CountingSemaphoreStore]
}

func (s faultyCountingSemaphores) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpAddCount, r, s.under.AddCount)
}

func (s faultyCountingSemaphores) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	return passCount(s.f, ctx, OpTakeCount, r, s.under.TakeCount)
}

func (s faultyCountingSemaphores) CancelTake(ctx context.Context, r backend.CountRequest) error {
	c := Call{Op: OpCancelTake, Name: r.Topic.Name, Owner: r.ID}
	_, err := pass(s.f, ctx, c, only(r, s.under.CancelTake))
	return err
}

func (s faultyCountingSemaphores) DrainCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s.f, ctx, OpDrainCount, r, s.under.DrainCount)
}
