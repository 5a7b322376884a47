package memory

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// sided implements [backend.ReadWriteStore].
type sided struct{ *client }

// AcquireRead implements [backend.ReadWriteStore]. An owner of another kind of lock holds no side to enter under.
func (x sided) AcquireRead(ctx context.Context, q backend.ReadRequest) (backend.ReadReply, error) {
	kind := backend.KindRead
	if q.Under != "" {
		kind = anyLock
	}
	return on(ctx, x.side(kind, q.Name), q, (*record.Sides).AcquireRead)
}

// AcquireWrite implements [backend.ReadWriteStore].
func (x sided) AcquireWrite(ctx context.Context, q backend.WriteRequest) (backend.WriteReply, error) {
	return on(ctx, x.side(backend.KindWrite, q.Name), q, (*record.Sides).AcquireWrite)
}

// SetWriteHolds implements [backend.ReadWriteStore].
func (x sided) SetWriteHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return on(ctx, x.side(anyLock, q.Name), q, (*record.Sides).SetWriteHolds)
}

// ReleaseRead implements [backend.ReadWriteStore].
func (x sided) ReleaseRead(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, x.side(anyLock, q.Name), q, (*record.Sides).ReleaseRead)
}

// ReleaseWrite implements [backend.ReadWriteStore].
func (x sided) ReleaseWrite(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, x.side(anyLock, q.Name), q, (*record.Sides).ReleaseWrite)
}

// RenewReads implements [backend.ReadWriteStore].
func (x sided) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, renewing(x.client, x.store.sides, (*record.Sides).RenewRead))
}

// RenewWrites implements [backend.ReadWriteStore].
func (x sided) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, renewing(x.client, x.store.sides, (*record.Sides).RenewWrite))
}

// InspectRW implements [backend.ReadWriteStore].
func (x sided) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	return on(ctx, x.side(backend.KindWrite, name), none{}, bare((*record.Sides).Inspect))
}

// ForceReleaseRW implements [backend.ReadWriteStore].
func (x sided) ForceReleaseRW(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return on(ctx, x.side(backend.KindWrite, q.Name), q, (*record.Sides).ForceRelease)
}

// Withdraw implements [backend.ReadWriteStore].
func (x sided) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := locked(ctx, x.client, func(s *Store) (none struct{}, _ error) {
		step(s, x.client, s.sides, name, func(l *record.Sides, st *record.Step) { l.Withdraw(st, claimant) })
		return none, nil
	})
	return err
}
