package cas

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// sides implements [backend.ReadWriteStore].
type sides struct{ *session }

// sideStep returns the step of a request for a side, as lockStep does.
func sideStep[Q, R any](kind backend.Kind, q Q,
	run func(*record.Sides, *record.Step, Q) R) func(*record.Name, *record.Step) (R, error) {
	return func(n *record.Name, s *record.Step) (r R, err error) {
		if err = n.Refuses(kind); err != nil && kind != record.AnyLock {
			return r, err
		}
		return run(&n.Sides, n.For(s, record.SidesData), q), nil
	}
}

// AcquireRead implements [backend.ReadWriteStore]. An owner of another kind of lock holds no side to enter under.
func (x sides) AcquireRead(ctx context.Context, q backend.ReadRequest) (backend.ReadReply, error) {
	kind := backend.KindRead
	if q.Under != "" {
		kind = record.AnyLock
	}
	return ask(ctx, x.session, q.Name, sideStep(kind, q, (*record.Sides).AcquireRead))
}

// AcquireWrite implements [backend.ReadWriteStore].
func (x sides) AcquireWrite(ctx context.Context, q backend.WriteRequest) (backend.WriteReply, error) {
	return ask(ctx, x.session, q.Name, sideStep(backend.KindWrite, q, (*record.Sides).AcquireWrite))
}

// SetWriteHolds implements [backend.ReadWriteStore].
func (x sides) SetWriteHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return ask(ctx, x.session, q.Name, sideStep(record.AnyLock, q, (*record.Sides).SetWriteHolds))
}

// ReleaseRead implements [backend.ReadWriteStore].
func (x sides) ReleaseRead(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, sideStep(record.AnyLock, q, (*record.Sides).ReleaseRead))
}

// ReleaseWrite implements [backend.ReadWriteStore].
func (x sides) ReleaseWrite(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return ask(ctx, x.session, q.Name, sideStep(record.AnyLock, q, (*record.Sides).ReleaseWrite))
}

// RenewReads implements [backend.ReadWriteStore].
func (x sides) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renew(ctx, in, out, (*record.Sides).RenewRead)
}

// RenewWrites implements [backend.ReadWriteStore].
func (x sides) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renew(ctx, in, out, (*record.Sides).RenewWrite)
}

func (x sides) renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult,
	run func(*record.Sides, *record.Step, backend.RenewRequest) backend.RenewResult) {
	renewEach(ctx, x.session, in, out,
		func(n *record.Name, s *record.Step, q backend.RenewRequest) backend.RenewResult {
			return run(&n.Sides, n.For(s, record.SidesData), q)
		})
}

// InspectRW implements [backend.ReadWriteStore].
func (x sides) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	return ask(ctx, x.session, name, sideStep(backend.KindWrite, none{}, bare((*record.Sides).Inspect)))
}

// ForceReleaseRW implements [backend.ReadWriteStore].
func (x sides) ForceReleaseRW(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return ask(ctx, x.session, q.Name, sideStep(backend.KindWrite, q, (*record.Sides).ForceRelease))
}

// Withdraw implements [backend.ReadWriteStore].
func (x sides) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := askOf(ctx, x.session, name, true, func(n *record.Name, s *record.Step) (none, error) {
		n.Sides.Withdraw(n.For(s, record.SidesData), claimant)
		return none{}, nil
	})
	return err
}

// enrolling implements [backend.EnrolmentStore].
type enrolling struct{ *session }

// LeaveQueue implements [backend.EnrolmentStore].
func (x enrolling) LeaveQueue(ctx context.Context, t backend.Topic, entry uint64, owner string) error {
	_, err := askOf(ctx, x.session, t.Name, true, func(n *record.Name, s *record.Step) (none, error) {
		if t.Kind == backend.KindWrite {
			n.Sides.Leave(n.For(s, record.SidesData), entry, owner)
		} else {
			n.Permits.Leave(n.For(s, record.CountData), entry, owner)
		}
		return none{}, nil
	})
	return err
}
