// Package semaphore has permits that all clients of a store share: [Semaphore], whose permits are held for a lease and
// have owners, and [Counting], a number of permits without owners.
//
//	jobs := semaphore.New(client, "jobs", 4)
//	permit, err := jobs.Acquire(ctx, 1)
//	if err != nil { ... }
//	defer permit.Release(ctx)
//	work(permit.Context()) // ends if the permit is lost
package semaphore

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Semaphore is a number of permits that all clients of a store share. Each permit is held for a
// lease, so permits of a dead process expire. It shares its record with Redisson's
// RPermitExpirableSemaphore. Its methods may be called concurrently. [Counting] has
// permits without owners.
//
// The names "n" and "{n}" are two semaphores that share the key of their permits on Redis, as in
// Redisson: use only one of the two names.
//
// The lease of a permit is like that of a lock: by default short and renewed while the process lives,
// unlike Redisson's. Leases end by the store's clock. Redisson uses the clock of each JVM, so keep
// the JVMs' clocks synchronized with the store's.
type Semaphore struct {
	count counters.Semaphore
	limit engine.Limit
}

// New returns the semaphore of a name, and declares its limit: the number of permits, free or
// in use. Make a Semaphore once and keep it. New does no I/O: for a bad name, a negative limit,
// or a backend without semaphores, the methods return an error ([mortise.ErrInvalidName], [mortise.ErrInvalid]).
//
// The first Acquire or TryAcquire sets the limit in the store, in the same command. Later calls set
// it only if the store has no semaphore of the name, because it is new or lost its data. So a process
// that starts with another limit changes the limit for all processes: while two versions of a program
// declare different limits, the last declaration counts. A lowered limit does not take permits back:
// no permit is free until fewer permits than the limit are in use.
//
// A limit of zero declares none: the store's limit applies, set by [Semaphore.SetPermits], by another
// process or by Redisson. If the store has none, Acquire waits. Use zero if the limit is managed
// elsewhere, or is changed while processes that declare a limit come and go.
func New(c *mortise.Client, name string, limit int) *Semaphore {
	e := engineOf(c)
	s := &Semaphore{count: counters.NewSemaphore(e, engine.FullName(e, name))}
	s.limit.N.Store(int64(limit))
	return s
}

// The way to the engine of a client.
var (
	engineOf = bridge.Engine.(func(*mortise.Client) *engine.Engine)
	with     = bridge.Request.(func(engine.Request, []mortise.Option) (engine.Request, error))
	leaseOf  = bridge.Lease.(func(*lease.Handle) *mortise.Lease)
)

// ErrNotHeld: [Semaphore.Release] found a permit that is not in use: it was released before, has expired, or never was.
var ErrNotHeld error

func init() { ErrNotHeld = fail.NotHeld }

// made returns p, or for nil a zero semaphore, whose methods return [mortise.ErrInvalid].
func (p *Semaphore) made() *Semaphore {
	if p == nil {
		return new(Semaphore)
	}
	return p
}

// SetPermits sets the number of permits, free or in use, zero or more, and wakes waiters if there are
// more permits. Permits in use stay in use, so the number of free permits may be negative then. The
// number replaces the limits that clients have declared. It becomes the limit of this Semaphore, even
// if that was not declared yet; zero declares none: see [New].
//
// A first Acquire that declares a limit, of another Semaphore or of one whose first Acquire timed out,
// may reach the store after SetPermits, and then replaces the number: the store does not remember who
// set it. Where the number is changed at run time, all processes use [New] with a limit of
// zero.
//
// Redisson: setPermits. Cost: one command.
func (p *Semaphore) SetPermits(ctx context.Context, n int) error {
	p = p.made()
	return p.count.SetLimit(ctx, n, &p.limit)
}

// TrySetPermits sets the number of permits to n, zero or more, if the store has no semaphore of the
// name, and reports whether it did.
//
// Redisson: trySetPermits. Cost: one command.
func (p *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return p.made().count.TrySet(ctx, n)
}

// AddPermits adds delta permits; a negative delta removes permits. Permits in use stay in use, so the
// number of free permits may be negative then. delta is not zero. The limit that this Semaphore
// declares stays as it is, and Acquire refuses more permits than that; [Semaphore.SetPermits] changes it.
//
// Redisson: addPermits. Cost: one command.
func (p *Semaphore) AddPermits(ctx context.Context, delta int) error {
	return p.made().count.Add(ctx, delta)
}

// Available returns the number of free permits, expired permits included.
//
// Redisson: availablePermits. Cost: one command.
func (p *Semaphore) Available(ctx context.Context) (int, error) { return p.made().count.Available(ctx) }

// Delete removes the semaphore from the store, and reports whether there was one. Permits in use
// are lost: their holders learn of the loss at the next renewal. Waiters go on waiting; if they
// declare a limit, their next request makes the semaphore again.
//
// Redisson: delete. Cost: one command.
func (p *Semaphore) Delete(ctx context.Context) (bool, error) { return p.made().count.Delete(ctx) }

// Acquire takes n permits, between 1 and 128, all or none. While fewer are free, it waits, until ctx
// ends, or for as long as [mortise.WithWait] says. A release, or the end of a lease, wakes the call. Waiters
// of this client for the same number are served in order; a waiter for fewer may overtake a waiter
// for more, as in Redisson, so a steady stream of calls for few permits can keep a call for many
// waiting.
//
// The permits are held as one [Permit], renewed until its release; [mortise.WithLease] takes a Permit
// without renewal, [mortise.WithMaxHold] bounds the renewal. A call that ends without a Permit keeps no
// permit.
//
// Errors are those of Lock; [mortise.ErrInvalid] also if n is above the declared limit. Like a lease, a
// Permit ends with [mortise.ErrLost] before another Go process can get its permits.
//
// Redisson: acquire(n, lease, unit), tryAcquire(n, wait, lease, unit). Cost: one command if n are
// free; renewals are batched, in one command for up to 256 permits of a slot.
func (p *Semaphore) Acquire(ctx context.Context, n int, opts ...mortise.Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, between 1 and 128, or returns [mortise.ErrNotAcquired] if fewer are free;
// [mortise.Error.Remaining] is then the time until the first lease ends if it is not renewed. TryAcquire does
// not queue behind waiters. The other errors are those of Acquire.
//
// Redisson: tryAcquire(n). Cost: one command.
func (p *Semaphore) TryAcquire(ctx context.Context, n int, opts ...mortise.Option) (*Permit, error) {
	return p.acquire(ctx, n, engine.Request{Try: true}, opts)
}

func (p *Semaphore) acquire(ctx context.Context, n int, r engine.Request, opts []mortise.Option) (*Permit, error) {
	p = p.made()
	r.Name, r.Family, r.Wants = p.count.Topic.Name, backend.KindSemaphore, int32(n)
	r.Limit = &p.limit
	if err := p.count.Made(); err != nil {
		return nil, r.Fail(err)
	}
	r, err := p.count.With(with(r, opts))
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(p.count.CheckWants(n, int(p.limit.N.Load())), p.count.Check()); err != nil {
		return nil, r.Fail(err)
	}
	l, err := p.count.Engine.Acquire(ctx, ctx, r)
	if err != nil {
		return nil, err
	}
	return &Permit{lease: leaseOf(l), ids: l.Holding().(*lease.Hold).Tenure.Owner}, nil
}

// Release releases permits by their ids, whichever client acquired them. A [Permit] of this client
// ends as by [Permit.Release]; ids must have all ids of the Permit, or none. If ids has only some ids
// of another client's Permit, that Permit is lost: its client notices at the next renewal, and
// releases the other permits.
//
// Release returns [ErrNotHeld] if a permit is not in use, or has expired; the others are released all
// the same. It returns [mortise.ErrInvalid] without an id, for a malformed id, or for some ids of a Permit of
// this client: then nothing is released.
//
// Redisson: release(id), release(ids). Cost: one command for up to 128 ids of one length.
func (p *Semaphore) Release(ctx context.Context, ids ...string) error {
	return p.made().count.Release(ctx, ids)
}

// Info is the record of a semaphore in the store.
type Info struct {
	Name string
	// Limit is the number of permits, free and in use.
	Limit int
	// Free is the number of free permits, expired permits included; negative after the limit was
	// lowered below the number in use.
	Free int
	// Out is the number of permits in use. Permits lists them, the earliest end first, 100 at most.
	Out     int
	Permits []PermitInfo
}

// PermitInfo is a permit in use.
type PermitInfo struct {
	// ID is the id for [Semaphore.Release].
	ID string
	// Client is the holding client; empty for Redisson's.
	Client string
	// Remaining is the rest of its lease; negative if the lease has no end.
	Remaining time.Duration
	// Mine reports whether Client is this client.
	Mine bool
}

// listed is the most permits that Inspect lists.
const listed = 100

// Inspect reads the limit and the permits in use. It is for operators and tools: the answer may be
// outdated on arrival. Errors are those of [mortise.Client.Inspect].
//
// Redisson: getPermits, acquiredPermits. Cost: one command.
func (p *Semaphore) Inspect(ctx context.Context) (Info, error) {
	p = p.made()
	s := Info{Name: p.count.Topic.Name}
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
	lease *mortise.Lease
	ids   string // joined by commas
}

// NewPermit makes a Permit without a [*mortise.Client], for fakes and mocks. It ends as a lease of [mortise.NewLease]
// does; Release calls release, which may be nil.
func NewPermit(ctx context.Context, name string, release func(context.Context) error, ids ...string) *Permit {
	return &Permit{lease: mortise.NewLease(ctx, name, 0, release), ids: strings.Join(ids, ",")}
}

// IDs returns the ids of the permits, with which any process can release them, Redisson included. An
// id is lower-case hexadecimal digits: 16 random bytes, and the id of the client.
func (p *Permit) IDs() []string {
	if p == nil || p.ids == "" {
		return nil
	}
	return strings.Split(p.ids, ",")
}

// Name returns the semaphore's name.
func (p *Permit) Name() string { return p.inner().Name() }

// Context returns a child of Acquire's context that ends with the permit: see [mortise.Lease.Context].
func (p *Permit) Context() context.Context { return p.inner().Context() }

// Err returns nil while the permit is held, and afterwards the reason of its end: see [mortise.Lease.Err].
func (p *Permit) Err() error { return p.inner().Err() }

// Release ends the permits and releases them, as [mortise.Lease.Unlock] does a lock, and with the same errors.
//
// Redisson: release(ids). Cost: one command.
func (p *Permit) Release(ctx context.Context) error {
	return counters.Released(p.inner().Unlock(ctx))
}

func (p *Permit) inner() *mortise.Lease {
	if p == nil {
		return nil
	}
	return p.lease
}
