package backendtest

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// The operations on counts that Faults sees, where the backend has them. Those on
// expiring permits are OpAcquire, OpRelease and OpRenew.
const (
	OpSetCount    Op = "set count"
	OpCount       Op = "count"
	OpCountDown   Op = "count down"
	OpDeleteCount Op = "delete count"
	OpAddCount    Op = "add count"
	OpTakeCount   Op = "take count"
	OpCancelTake  Op = "cancel take"
	OpDrainCount  Op = "drain count"
)

// counter is a session with all capabilities that have to do with counts.
type counter interface {
	backend.LatchSession
	backend.SemaphoreSession
	backend.PermitSession
}

// faultyCounter is a faulty session over one that is a counter.
type faultyCounter struct {
	*faulty
	under counter
}

var _ counter = (*faultyCounter)(nil)

func passCount[R any](s *faultyCounter, ctx context.Context, op Op, r backend.CountRequest,
	do func(context.Context, backend.CountRequest) (R, error)) (R, error) {
	return pass(s.f, ctx, Call{Op: op, Name: r.Topic.Name, Owner: r.ID},
		func(ctx context.Context) (R, error) { return do(ctx, r) })
}

func (s *faultyCounter) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return passCount(s, ctx, OpSetCount, r, s.under.SetCount)
}

func (s *faultyCounter) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return passCount(s, ctx, OpCount, backend.CountRequest{Topic: t},
		func(ctx context.Context, r backend.CountRequest) (int64, error) { return s.under.Count(ctx, r.Topic) })
}

func (s *faultyCounter) CountDown(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s, ctx, OpCountDown, r, s.under.CountDown)
}

func (s *faultyCounter) DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return passCount(s, ctx, OpDeleteCount, r, s.under.DeleteCount)
}

func (s *faultyCounter) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s, ctx, OpAddCount, r, s.under.AddCount)
}

func (s *faultyCounter) TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error) {
	return passCount(s, ctx, OpTakeCount, r, s.under.TakeCount)
}

func (s *faultyCounter) CancelTake(ctx context.Context, r backend.CountRequest) error {
	_, err := passCount(s, ctx, OpCancelTake, r, func(ctx context.Context, r backend.CountRequest) (struct{}, error) {
		return struct{}{}, s.under.CancelTake(ctx, r)
	})
	return err
}

func (s *faultyCounter) DrainCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	return passCount(s, ctx, OpDrainCount, r, s.under.DrainCount)
}

func (s *faultyCounter) Permits() {}
