package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// RWLocker has the two sides of read-write locks: under one name, any number of leases of Read, or one of Write.
// [Client.RW] makes it; for a test, two fakes make one: RWLocker{Read: r, Write: w}. It is Redisson's
// RReadWriteLock, and shares its record.
//
// # Re-entry
//
// With the context of a lease of write, write enters again and read does too; with
// that of a lease of read, read does. A lease of read is independent of the one it was
// entered under: its time is its own, and so is its Unlock. So a writer becomes a reader
// by locking read and then unlocking write, while no other writer gets in (a downgrade);
// the context of its lease of read then goes on, with the context that write was locked
// with. The reverse, write with the context of a lease of read, would wait for itself:
// it is refused at once with [ErrInvalid]. Goroutines that share a context and both lock write
// take turns, also with those that lock read; those that lock read do not.
//
// # What waits for what
//
// A writer that waits is not starved by readers: as long as it waits, a Lock or TryLock
// of read by any client of this package waits behind it. So lock read with the context of
// the lease that you have, as with any Go RWMutex: with a fresh context you would wait for a
// writer that waits for you. Readers that waited and writers that wait compete for
// what a writer releases. In a client all wait in the order in which they came. A writer whose process died
// while it waited keeps fresh readers out for at most the watchdog timeout. Redisson's
// readers know nothing of waiting writers: a stream of them starves writers, here as
// there; its writers leave no sign that they wait, so a stream of readers starves them.
//
// # Leases
//
// Each lease of read is renewed, and ends, by itself. The record lives as long as the
// longest. A reader of Redisson's that renews cuts that down to its own timeout, and up to
// Redisson 3.52 the time of every reader: so a [WithLease] of read that is longer than the watchdog timeout is
// asserted again every third of it, and the two sides' watchdog timeouts should be alike.
//
// Options and errors are those of [Locker]; ErrInvalid where the backend has no read-write
// locks. A name that is in use for another kind of lock is [ErrWrongKind].
//
// Cost: one command for each Lock and Unlock that need not wait; TryLock of write is refused without
// a command where a reader of this client is known, and either where a writer is. A
// writer that waits for readers sends one each third of the watchdog timeout, to say
// that it still does, and one when it leaves without the lock.
type RWLocker struct {
	// Read takes leases that share a name, Write one that excludes all others.
	Read, Write Locker

	client *Client
}

// RW returns the client's read-write locks. It does no I/O: a backend without read-write locks shows in the
// methods of the two sides ([ErrInvalid]).
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

// Inspect is [Client.Inspect] for a read-write lock. It costs one command.
func (l RWLocker) Inspect(ctx context.Context, name string) (LockInfo, error) {
	name = engine.FullName(l.client.inner(), name)
	if err := l.client.hasRW(); err != nil {
		return LockInfo{Name: name}, fail.New("inspect", name, err)
	}
	return l.client.inspect(ctx, backend.KindWrite, name)
}

// ForceUnlock is [Client.ForceUnlock] for a read-write lock: its writer's hold, or those of all its readers.
func (l RWLocker) ForceUnlock(ctx context.Context, name string) (bool, error) {
	name = engine.FullName(l.client.inner(), name)
	if err := l.client.hasRW(); err != nil {
		return false, fail.New("forceunlock", name, err)
	}
	return l.client.engine.ForceUnlock(ctx, backend.KindWrite, name)
}
