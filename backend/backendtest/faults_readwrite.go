package backendtest

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// OpWithdraw is seen where the backend has read-write locks. Their other operations are
// those of locks.
const OpWithdraw Op = "withdraw"

// withRW gives a faulty session read-write locks, if the one under it has them.
func withRW(x *faulty) faultySession {
	rw, has := x.Session.(backend.RWSession)
	c, counts := x.Session.(counter)
	switch {
	case has && counts:
		return &faultyBoth{&faultyCounter{x, c}, rw}
	case has:
		return &faultyRW{x, rw}
	case counts:
		return &faultyCounter{x, c}
	}
	return x
}

type faultyRW struct {
	*faulty
	rw backend.RWSession
}

type faultyBoth struct {
	*faultyCounter
	rw backend.RWSession
}

func (s *faultyRW) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	return passWithdraw(s.f, s.rw, ctx, t, claimant)
}

func (s *faultyBoth) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	return passWithdraw(s.f, s.rw, ctx, t, claimant)
}

func passWithdraw(f *Faults, rw backend.RWSession, ctx context.Context, t backend.Topic, claimant string) error {
	_, err := pass(f, ctx, Call{Op: OpWithdraw, Name: t.Name, Owner: claimant},
		func(ctx context.Context) (struct{}, error) {
			return struct{}{}, rw.Withdraw(ctx, t, claimant)
		})
	return err
}
