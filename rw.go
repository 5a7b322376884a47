package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// RWLocker has the two sides of read-write locks: under a name, any number of leases of Read, or a
// lease of Write. [Client.RW] makes an RWLocker; in a test, two fakes do: RWLocker{Read: r, Write:
// w}. It shares its record with Redisson's RReadWriteLock.
//
// # Re-entry
//
// With the context of a lease of write, write enters again and read does, too; with the context of
// a lease of read, read does. A lease of read is independent of its outer lease: its time is its
// own, and so is its Unlock. So a writer becomes a reader by locking read and then unlocking write,
// while no other writer gets in (a downgrade); the context of its lease of read goes on then, with
// the context of Lock of write. The reverse, write with the context of a lease of read, would wait
// for itself: [ErrInvalid] at once, unless a lease of write is above both. Two leases of read under
// one of write whose contexts both lock write wait for each other: bound the wait. Goroutines that
// share a context and both lock write take turns, also with goroutines that lock read; goroutines
// that only lock read do not.
//
// # What waits for what
//
// Readers do not starve a waiting writer: while a writer waits, a Lock or TryLock of read by any
// client of this package waits behind the writer. So lock read with the context of your lease, as
// with any Go RWMutex: with a fresh context you would wait for a writer that waits for you. Readers
// and writers that waited compete for a writer's release. In a client, calls are served in their
// order. A writer whose process died while waiting keeps fresh readers out for at most the watchdog
// timeout. Redisson's readers do not see waiting writers: a stream of them starves writers, here as
// there; its writers leave no sign while they wait, so a stream of readers starves them.
//
// # Leases
//
// Each lease of read is renewed, and ends, by itself. The record lives as long as the longest
// lease. A renewal of a Redisson reader cuts the record to its own timeout, and up to Redisson 3.52
// the time of every reader: so a [WithLease] of read longer than the watchdog timeout is asserted
// again every third of the timeout, and the two sides' watchdog timeouts should be equal.
//
// Options and errors are those of [Locker]; ErrInvalid with a backend without read-write locks. A
// name of another kind of lock is [ErrWrongKind].
//
// Cost: one command for each Lock and Unlock without a wait; no command for a refused TryLock of
// write beside a known reader of this client, and of either side beside a known writer. A writer
// that waits for readers sends a command each third of the watchdog timeout, to keep its place, and
// another when it leaves without the lock.
type RWLocker struct {
	// Read takes leases that share a name, Write a lease that excludes all others.
	Read, Write Locker

	client *Client
}

// RW returns the client's read-write locks, without I/O: a backend without read-write locks is an
// error of the methods of the two sides ([ErrInvalid]).
func (c *Client) RW() RWLocker {
	return RWLocker{&side{c, backend.KindRead}, &side{c, backend.KindWrite}, c}
}

// side is a side of read-write locks.
type side struct {
	client *Client
	family backend.Kind
}

func (s *side) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name, Family: s.family}, opts)
}

func (s *side) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.acquire(ctx, engine.Request{Name: name, Family: s.family, Try: true}, opts)
}

func (s *side) acquire(ctx context.Context, r engine.Request, opts []Option) (*Lease, error) {
	r, err := s.client.with(r, opts)
	if err != nil {
		return nil, err
	}
	if err := s.client.hasRW(); err != nil {
		return nil, r.Fail(err)
	}
	return public(s.client.engine.Acquire(ctx, ctx, r))
}

func (c *Client) hasRW() error {
	e := c.inner()
	return e.Can(e != nil && e.Capabilities().ReadWrite != nil, "read-write locks")
}

// Inspect is [Client.Inspect] for a read-write lock. Cost: one command.
func (l RWLocker) Inspect(ctx context.Context, name string) (LockInfo, error) {
	name = engine.FullName(l.client.inner(), name)
	if err := l.client.hasRW(); err != nil {
		return LockInfo{Name: name}, fail.New("inspect", name, err)
	}
	return l.client.inspect(ctx, backend.KindWrite, name)
}

// ForceUnlock is [Client.ForceUnlock] for a read-write lock: its writer's hold, or the holds of all
// its readers.
func (l RWLocker) ForceUnlock(ctx context.Context, name string) (bool, error) {
	name = engine.FullName(l.client.inner(), name)
	if err := l.client.hasRW(); err != nil {
		return false, fail.New("forceunlock", name, err)
	}
	return l.client.engine.ForceUnlock(ctx, backend.KindWrite, name)
}
