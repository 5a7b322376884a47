package mortise

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
)

// Semaphore is a limit that all clients of a store share: a number of permits, each held for a
// lease, so permits of a dead process expire. It shares its record with Redisson's
// RPermitExpirableSemaphore. Its methods may be called concurrently. [CountingSemaphore] has
// permits without owners.
//
// The lease is as a lock's: by default short and renewed while the process lives, unlike
// Redisson's. The store's clock decides the ends of leases; Redisson uses the clock of each JVM, so
// keep these clocks together.
type Semaphore struct {
	count counters.Semaphore
	limit engine.Limit
}

// Semaphore returns the semaphore of a name, and declares its limit: the number of permits, free or
// in use. Make it once and keep it. Semaphore does no I/O: a bad name, a negative limit, or a
// backend without semaphores, is an error of the methods ([ErrInvalidName], [ErrInvalid]).
//
// The first Acquire or TryAcquire sets the limit in the store, in the same command; later calls set
// it only in a store without a semaphore of the name, new or after a loss of data. So a process
// that starts with another limit raises or lowers it for all: while two versions of a program
// declare different limits, the last declaration counts. A lowered limit takes no permit back:
// nothing is free until fewer permits than the limit are in use.
//
// A limit of zero declares none: the limit is in the store, set by [Semaphore.SetPermits], by
// another process or by Redisson. Without a limit there, Acquire waits. Take zero if the limit is
// managed elsewhere, or is changed while declaring processes come and go.
func (c *Client) Semaphore(name string, limit int) *Semaphore {
	return &Semaphore{
		count: counters.NewSemaphore(c.inner(), engine.FullName(c.inner(), name)), limit: engine.Limit{N: int64(limit)},
	}
}

// SetPermits sets the number of permits, free or in use, zero or more, and wakes waiters for
// additional permits. Permits in use are not called back, so the number of free permits may be
// negative then. The limit that clients declared is replaced, also this Semaphore's that it has not
// declared yet: see [Client.Semaphore].
//
// Redisson: setPermits. Cost: one command.
func (p *Semaphore) SetPermits(ctx context.Context, n int) error {
	err := p.count.SetLimit(ctx, n)
	if err == nil {
		p.limit.Declared.Store(true)
	}
	return err
}

// TrySetPermits makes n permits, zero or more, if none were ever made, and reports whether it did.
//
// Redisson: trySetPermits. Cost: one command.
func (p *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return p.count.TrySet(ctx, n)
}

// AddPermits makes delta more permits, or fewer with a negative delta: permits in use are not
// called back, so the number of free permits may be negative then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (p *Semaphore) AddPermits(ctx context.Context, delta int) error { return p.count.Add(ctx, delta) }

// Available reads how many permits are free, expired permits included.
//
// Redisson: availablePermits. Cost: one command.
func (p *Semaphore) Available(ctx context.Context) (int, error) { return p.count.Available(ctx) }

// Delete removes the semaphore from the store, and reports whether there was one. Permits in use
// are lost: their holders are told at the next renewal. Waiters go on waiting; if they declare a
// limit, the next request makes the semaphore anew.
//
// Redisson: delete. Cost: one command.
func (p *Semaphore) Delete(ctx context.Context) (bool, error) { return p.count.Delete(ctx) }

// Acquire takes n permits, between 1 and 128, all or none, waiting while fewer are free: until ctx
// ends, or for as long as [WithWait] says. A release, or the first end of a lease in use, wakes the
// call. Waiters of this client for the same number are served in order; a waiter for fewer may
// overtake a waiter for more, as in Redisson, so a steady stream of calls for few permits can keep
// a call for many waiting.
//
// The permits are held as one [Permit], renewed until its release; [WithLease] takes a Permit
// without renewal, [WithMaxHold] bounds the renewal. A call that ends without a Permit leaves no
// permit behind.
//
// Errors are those of Lock; [ErrInvalid] also if n is above the declared limit. Like a lease, a
// Permit ends with [ErrLost] before another Go process can get its permits.
//
// Redisson: acquire(n, lease, unit), tryAcquire(n, wait, lease, unit). Cost: one command if n are
// free; renewals are batched, in one command for up to 256 calls of a slot.
func (p *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, between 1 and 128, or returns [ErrNotAcquired] if fewer are free;
// [Error.Remaining] is then the time until the first lease in use ends without a renewal. It does
// not queue behind waiters. The other errors are those of Acquire.
//
// Redisson: tryAcquire(n). Cost: one command.
func (p *Semaphore) TryAcquire(ctx context.Context, n int, opts ...Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{Try: true}, opts)
}

func (p *Semaphore) acquire(ctx context.Context, n int, r engine.Request, opts []Option) (*Permit, error) {
	r.Name, r.Family, r.Wants = p.count.Topic.Name, backend.KindSemaphore, int64(n)
	r.Limit = &p.limit
	r, err := p.count.With(with(r, opts))
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.count.CheckWants(n, int(p.limit.N)), p.count.Check()); err != nil {
		return nil, r.Fail(err)
	}
	l, err := p.count.Engine.Acquire(ctx, ctx, r)
	if err != nil {
		return nil, err
	}
	return &Permit{lease: (*Lease)(l), ids: l.Holding().(*lease.Hold).Tenure.Owner}, nil
}

// Release releases permits by their ids, whichever client acquired them: a [Permit] of this client
// then ends as by [Permit.Release]. Permits that this client acquired together are released
// together: ids has all of them or none. A Permit of another client is lost with some of its ids;
// its client releases the other ids at the next renewal.
//
// [ErrNotHeld] if a permit is not in use, or has expired; the others are released all the same.
// [ErrInvalid] without an id, with a malformed id, or with a part of a Permit: then nothing is
// released.
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
	// Free is the number of free permits, expired permits included; negative after the limit was
	// lowered below the number in use.
	Free int
	// Out is the number in use, and Permits lists them, the earliest end first: 100 at the most.
	Out     int
	Permits []PermitInfo
}

// PermitInfo is a permit in use.
type PermitInfo struct {
	// ID is the id for [Semaphore.Release].
	ID string
	// Client is the holding client; empty for Redisson's.
	Client string
	// Remaining is the rest of its lease; negative without an end.
	Remaining time.Duration
	// Mine reports whether Client is this client.
	Mine bool
}

// listed is how many permits Inspect lists.
const listed = 100

// Inspect reads the limit and the permits in use, for people and tools: the answer may be outdated
// on arrival. Errors are those of [Client.Inspect].
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

// Permit is the result of a call of Acquire: a permit, or several that end together. Its methods
// may be called concurrently, and on a nil *Permit, which holds nothing.
type Permit struct {
	lease *Lease
	ids   string // joined by commas
}

// NewPermit makes a permit without a [*Client], for fakes and mocks: [NewLease] says how it ends.
// Release calls release, which may be nil.
func NewPermit(ctx context.Context, name string, release func(context.Context) error, ids ...string) *Permit {
	return &Permit{lease: NewLease(ctx, name, release), ids: strings.Join(ids, ",")}
}

// IDs are the ids of the permits, for a release by any process, Redisson's too. An id is lower-case
// hexadecimal digits: 16 random bytes, and the id of the client.
func (p *Permit) IDs() []string {
	if p == nil || p.ids == "" {
		return nil
	}
	return strings.Split(p.ids, ",")
}

// Name is the semaphore's name.
func (p *Permit) Name() string { return p.inner().Name() }

// Context is a child of Acquire's context, and ends with the permit: as [Lease.Context].
func (p *Permit) Context() context.Context { return p.inner().Context() }

// Err is nil while the permit is held, and afterwards the reason of its end: as [Lease.Err].
func (p *Permit) Err() error { return p.inner().Err() }

// Release ends the permits and releases them. It behaves, and fails, as [Lease.Unlock].
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
