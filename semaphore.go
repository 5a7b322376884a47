package mortise

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

// Semaphore is a limit that all clients of a store share: so many permits, of which each is held for a
// lease, so that the permits of a dead process expire. It shares its record with Redisson's
// RPermitExpirableSemaphore. Its methods may be called concurrently. [CountingSemaphore] is the one
// whose permits have no owner.
//
// The lease is as that of a lock: by default it is short and renewed while the process lives, which Redisson's
// are not. The ends of leases are judged by the store's clock;
// Redisson judges them by that of each JVM, so keep those clocks together.
type Semaphore struct {
	count    counters.Semaphore
	limit    int
	declared atomic.Bool // the store has heard of limit
}

// Semaphore returns the semaphore of a name, and declares how many permits it has, free ones and others. Make it once
// and keep it. Semaphore does no I/O: a bad name, a negative limit, or a backend without semaphores, shows in
// the methods ([ErrInvalidName], [ErrInvalid]).
//
// The first Acquire or TryAcquire sets the limit in the store, in the same command; later ones set it only where the
// store has no semaphore of the name, because it is new or the store lost its data. So a process that starts with
// another limit raises or lowers it for all: while two versions of a program that declare different limits run side
// by side, that of the process that declared last counts. A limit that is lowered takes no permit back: nothing is
// free until fewer are out than the limit.
//
// A limit of zero declares none: the store says how many there are, as set by [Semaphore.SetPermits],
// by another process or by Redisson. Where none was set, Acquire waits. Take zero where the limit is managed elsewhere,
// or is changed while processes that would declare it come and go.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{count: counters.NewSemaphore(c.inner(), engine.FullName(c.inner(), name)), limit: limit}
}

// SetPermits sets how many permits there are, free ones and others, zero or more, and wakes waiters if there are more
// than before. Permits that are out are not called back, so fewer than none may be free then. The limit that clients
// declared is replaced: see [Client.Semaphore].
//
// Redisson: setPermits. Cost: one command.
func (p *Semaphore) SetPermits(ctx context.Context, n int) error { return p.count.SetLimit(ctx, n) }

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

// Delete removes the semaphore from the store, and reports whether there was one. Permits that are out are lost: their
// holders learn of it at the next renewal. Waiters go on waiting; where they declare a limit, the next one that asks
// makes the semaphore anew.
//
// Redisson: delete. Cost: one command.
func (p *Semaphore) Delete(ctx context.Context) (bool, error) { return p.count.Delete(ctx) }

// Acquire takes n permits, between 1 and 128, all or none, waiting while fewer are free: until ctx ends, or for as long
// as [WithWait] says. It is woken by a release, or when the first of the permits that are out
// expires. Waiters of this client that want the same number are served in the order in which they came; one that wants
// fewer may overtake one that wants more, as in Redisson, so a steady stream of calls for few permits can keep a call
// for many waiting.
//
// The permits are held as one [Permit], which is renewed until it is released; [WithLease] takes one that is
// not, [WithMaxHold] bounds the renewal. A call that ends without a permit leaves
// none behind.
//
// Errors are those of Lock; [ErrInvalid] also if n is above the declared limit. Like a lease, a permit ends with
// [ErrLost] before another Go process can get it.
//
// Redisson: acquire(n, lease, unit), tryAcquire(n, wait, lease, unit). Cost: one command if
// n are free; renewals are batched, in one command for up to 256 calls of a slot.
func (p *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, between 1 and 128, or returns [ErrNotAcquired] if fewer are free;
// [Error.Remaining] then tells when the first of those that are out ends unless renewed. It
// does not wait its turn behind waiters. The other errors are those of Acquire.
//
// Redisson: tryAcquire(n). Cost: one command.
func (p *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{Try: true}, opts)
}

func (p *Semaphore) acquire(ctx context.Context, n int, r engine.Request, opts []Option) (*Permit, error) {
	r.Name, r.Family, r.Wants = p.count.Topic.Name, backend.KindSemaphore, int64(n)
	r.Limit = engine.Limit{N: int64(p.limit), Declare: !p.declared.Load()}
	r, err := p.count.With(with(r, opts))
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.count.CheckWants(n, p.limit), p.count.Check()); err != nil {
		return nil, r.Fail(err)
	}
	l, err := p.count.Engine.Acquire(ctx, ctx, r)
	if err == nil || errors.Is(err, ErrNotAcquired) { // the store has answered
		p.declared.Store(true)
	}
	if err != nil {
		return nil, err
	}
	return &Permit{lease: (*Lease)(l), ids: l.Holding().(*lease.Hold).Tenure.Owner}, nil
}

// Release releases permits by their ids, whichever client acquired them: a [Permit] of this client
// then ends as by [Permit.Release]. Permits that this client acquired together are released together: ids has all of
// them or none. A Permit of another client, some ids of which are released, is lost, and its client releases the others
// when it notices, at the next renewal.
//
// [ErrNotHeld] if one of the permits is not out, or has expired; the others are released all the same. [ErrInvalid] if
// there is no id, one is none, or others belong to it: then nothing is released.
//
// Redisson: release(id), release(ids). Cost: one command for up to 128 ids of one length.
func (p *Semaphore) Release(ctx context.Context, ids ...string) error {
	return p.count.Release(ctx, ids)
}

// SemaphoreInfo is what the store says of a semaphore.
type SemaphoreInfo struct {
	Name string
	// Limit is how many permits there are, free ones and others.
	Limit int
	// Free is how many are free, those that have expired included. It is negative where the limit was lowered below
	// what was out.
	Free int
	// Out is how many are out, and Permits lists them, those whose leases end first: 100 at the most.
	Out     int
	Permits []PermitInfo
}

// PermitInfo is a permit that is out.
type PermitInfo struct {
	// ID is the id by which [Semaphore.Release] releases it.
	ID string
	// Client is the client that holds it; empty for one of Redisson's.
	Client string
	// Remaining is what is left of its lease; negative if it has no end.
	Remaining time.Duration
	// Mine tells that Client is this client.
	Mine bool
}

// listed is how many permits Inspect lists.
const listed = 100

// Inspect reads how many permits there are, and which are out. It is for people and tools: what it says may be outdated
// when it arrives. Errors are those of [Client.Inspect].
//
// Redisson: getPermits, acquiredPermits. Cost: one command.
func (p *Semaphore) Inspect(ctx context.Context) (SemaphoreInfo, error) {
	s := SemaphoreInfo{Name: p.count.Topic.Name}
	r, err := p.count.Inspect(ctx, listed)
	if err != nil {
		return s, err
	}
	s.Limit, s.Free, s.Out = int(r.Free+r.Out), int(r.Free), int(r.Out)
	for _, x := range r.List {
		client := engine.PermitClient(x.ID)
		mine := client == p.count.Engine.Config.ID
		s.Permits = append(s.Permits, PermitInfo{ID: x.ID, Client: client, Remaining: x.Remaining, Mine: mine})
	}
	return s, nil
}

// Permit is what one call of Acquire holds: one permit, or several that end together. Its methods may be called
// concurrently, and on a nil *Permit, which holds nothing.
type Permit struct {
	lease *Lease
	ids   string // joined by commas
}

// NewPermit makes a permit that no [*Client] stands behind, for fakes and mocks: [NewLease] says how it ends. Release
// calls release, which may be nil.
func NewPermit(ctx context.Context, name string, release func(context.Context) error, ids ...string) *Permit {
	return &Permit{lease: NewLease(ctx, name, release), ids: strings.Join(ids, ",")}
}

// IDs are the ids of the permits, by which any process can release them: Redisson's too. An id is lower-case
// hexadecimal digits: 16 random bytes, and the id of the client.
func (p *Permit) IDs() []string {
	if p == nil || p.ids == "" {
		return nil
	}
	return strings.Split(p.ids, ",")
}

// Name is the name that it is a permit of.
func (p *Permit) Name() string { return p.inner().Name() }

// Context is a child of the context that Acquire was given, and ends when the permit
// does: as [Lease.Context].
func (p *Permit) Context() context.Context { return p.inner().Context() }

// Err is nil while the permit is held, and then says why it is not: as [Lease.Err].
func (p *Permit) Err() error { return p.inner().Err() }

// Release ends the permits and gives them back. It behaves, and fails, as [Lease.Unlock].
//
// Redisson: release(ids). Cost: one command.
func (p *Permit) Release(ctx context.Context) error {
	return counters.Released(p.inner().Unlock(ctx))
}

func (p *Permit) inner() *Lease {
	if p == nil {
		return nil
	}
	return p.lease
}
