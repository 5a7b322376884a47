package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

// Semaphore is a number of permits that all clients of a store share. A permit is held for a lease, so the
// permits of a dead process expire. It shares its record with Redisson's RPermitExpirableSemaphore. Its methods
// may be called concurrently. [CountingSemaphore] is the one whose permits have no owner.
//
// The lease is as that of a lock: by default it is short and renewed while the process lives, which Redisson's
// are not. The ends of leases are judged by the store's clock;
// Redisson judges them by that of each JVM, so keep those clocks together.
type Semaphore struct{ count counters.Semaphore }

// Semaphore returns the semaphore of a name. It does no I/O: a bad name, or a backend
// without semaphores, shows in its methods ([ErrInvalidName], [ErrInvalid]).
func (c *Client) Semaphore(name string) *Semaphore {
	return &Semaphore{counters.NewSemaphore(c.inner(), name)}
}

// TrySetPermits makes n permits, zero or more, if none were ever made, and reports
// whether it did.
//
// Redisson: trySetPermits. Cost: one command.
func (p *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return p.count.TrySet(ctx, n)
}

// AddPermits makes delta more, or fewer where it is negative: permits that are out are
// not called back, so fewer than none may be free then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (p *Semaphore) AddPermits(ctx context.Context, delta int) error { return p.count.Add(ctx, delta) }

// Available reads how many permits are free, those that have expired included.
//
// Redisson: availablePermits. Cost: one command.
func (p *Semaphore) Available(ctx context.Context) (int, error) { return p.count.Available(ctx) }

// Acquire takes a permit, waiting while none is free: until ctx ends, or for as long as
// [WithWait] says. It is woken by a release, or when the first of the permits that are out
// expires. Waiters of this client are served in the order in which they came.
// The permit is renewed until it is released; [WithLease] takes one that is
// not, [WithMaxHold] bounds the renewal. A call that ends without a permit leaves
// none behind.
//
// Errors are those of Lock. Like a lease, a permit ends with [ErrLost] before another
// Go process can get it.
//
// Redisson: acquire(lease, unit), tryAcquire(wait, lease, unit). Cost: one command if
// one is free; renewals are batched, in one command for up to 256 permits of a slot.
func (p *Semaphore) Acquire(ctx context.Context, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, engine.Request{}, opts)
}

// TryAcquire takes a permit or returns [ErrNotAcquired] if none is free;
// [Error.Remaining] then tells when the first of those that are out ends unless renewed. It
// does not wait its turn behind waiters. The other errors are those of Lock.
//
// Redisson: tryAcquire. Cost: one command.
func (p *Semaphore) TryAcquire(ctx context.Context, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, engine.Request{Try: true}, opts)
}

func (p *Semaphore) acquire(ctx context.Context, r engine.Request, opts []Option) (*Permit, error) {
	r.Name, r.Family = p.count.Topic.Name, backend.KindSemaphore
	r, err := with(r, opts)
	if err != nil {
		return nil, err
	}
	if err := p.count.Check(); err != nil {
		return nil, r.Fail(err)
	}
	l, err := p.count.Engine.Acquire(ctx, ctx, r)
	if err != nil {
		return nil, err
	}
	return &Permit{lease: (*Lease)(l), id: l.Holding().(*lease.Hold).Tenure.Owner}, nil
}

// Release releases a permit by its id, whichever client acquired it: a permit of this client
// then ends as by [Permit.Release]. [ErrNotHeld] if it is not out, or has expired;
// [ErrInvalid] if id is none.
//
// Redisson: release(id). Cost: one command.
func (p *Semaphore) Release(ctx context.Context, id string) error { return p.count.Release(ctx, id) }

// Permit is one that is held. Its methods may be called concurrently, and on a nil
// *Permit, which holds nothing.
type Permit struct {
	lease *Lease
	id    string
}

// NewPermit makes a permit that no [*Client] stands behind, for fakes and mocks: [NewLease] says how it ends. Release
// calls release, which may be nil.
func NewPermit(ctx context.Context, name, id string, release func(context.Context) error) *Permit {
	return &Permit{lease: NewLease(ctx, name, release), id: id}
}

// ID is the permit's id, 32 lower-case hexadecimal digits, by which any process can
// release it: Redisson's too.
func (p *Permit) ID() string {
	if p == nil {
		return ""
	}
	return p.id
}

// Name is the name that it is a permit of.
func (p *Permit) Name() string { return p.inner().Name() }

// Context is a child of the context that Acquire was given, and ends when the permit
// does: as [Lease.Context].
func (p *Permit) Context() context.Context { return p.inner().Context() }

// Err is nil while the permit is held, and then says why it is not: as [Lease.Err].
func (p *Permit) Err() error { return p.inner().Err() }

// Release ends the permit and gives it back. It behaves, and fails, as [Lease.Unlock].
//
// Redisson: release(id). Cost: one command.
func (p *Permit) Release(ctx context.Context) error {
	return counters.Released(p.inner().Unlock(ctx))
}

func (p *Permit) inner() *Lease {
	if p == nil {
		return nil
	}
	return p.lease
}
