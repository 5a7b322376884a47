// Package mortise is a distributed locking SDK: locks that a fleet of processes share through a
// store, with one API for all stores.
//
//	locks, err := mortise.New(redisgo.New(rdb)) // or rueidis.New(...), memory.New()
//	if err != nil { ... }
//	defer locks.Close()
//
//	lease, err := locks.Lock(ctx, "orders:42", mortise.WithWait(5*time.Second))
//	if err != nil { ... } // ErrNotAcquired, ErrUnavailable, ctx's own
//	defer lease.Unlock(ctx)
//	work(lease.Context()) // ends if the lock is lost
//
// # Leases
//
// A lock is held for a lease. By default the lease is short, and the watchdog renews it in the
// background while the process lives, so the lock of a dead process frees itself; [WithLease] asks
// for a lease without renewal. If a lease cannot be renewed in time, [Lease.Context] ends and
// [Lease.Err] returns [ErrLost] before another owner can get the lock. If the lock's record was
// removed (DEL, a failover, [Client.ForceUnlock]), the holder learns of the loss at its next renewal
// only, and with WithLease when the lease ends. Run work that must not outlive the lock under this
// context.
//
// # Re-entry
//
// The owner of a lock travels in the context. Lock with a context of the innermost lease on a name
// enters again; with any other context Lock waits, even in the goroutine that holds the lock. See
// [Locker].
//
// # Limits
//
// No lock service can guarantee exclusion whatever clocks and networks do: a process can be paused
// between the check of its lease and a write. If data is at stake, take a fencing token,
// [Lease.Token], and let the data's store refuse smaller tokens. See docs/explanation/guarantees.md.
package mortise

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Locker takes locks by name. Applications inject, mock and decorate a Locker; the interface is
// frozen at these two methods. [*Client] implements Locker with the reentrant lock, and
// [Client.With] and [Client.RW] return others.
//
// Names are any UTF-8 text of 1 to 65,536 bytes whose braces, if any, form a Redis hash tag
// ("{tenant}:7"); other names are [ErrInvalidName]. Of a name and the same name in braces, "n" and
// "{n}", use only one: they are two locks, but on Redis they share the keys of the fair queue, of the
// fencing tokens and of a semaphore's permits, as in Redisson.
//
// Re-entry: a context made by [Lease.Context], or derived from it, carries the lease. Lock and
// TryLock with such a context enter the lock again if the lease is the innermost live lease of its
// owner on this name; the lock is then free after as many Unlocks as there were Locks. So two
// goroutines that share a lease's context and both lock its name take turns. With a context whose
// lease has ended, Lock competes as any other call does.
//
// [context.WithoutCancel] keeps a context's values, leases among them. So background work with the
// values of a request enters the handler's lock while the handler holds it, and may go on after the
// handler has unlocked. For work that must compete for the lock, use
// mortise.WithoutLeases(context.WithoutCancel(ctx)): see [WithoutLeases].
type Locker interface {
	// Lock takes the lock. While another owner holds the lock, Lock waits, until ctx ends, or for as
	// long as [WithWait] says. A waiting call does not poll: the release, or the end of the holder's
	// lease, wakes it.
	//
	// The lease's context is a child of ctx, so bound the wait with WithWait and not with a deadline,
	// which would also end the work. If ctx ends later, the lease and its renewal go on until Unlock.
	//
	// Errors: [ErrNotAcquired] when WithWait ran out or WithMaxWaiters refuses the call,
	// [ErrUnavailable] when the store failed,
	// [ErrClosed], [ErrWrongKind], [ErrInvalidName], [ErrInvalid], or ctx's own. All are wrapped in
	// [*Error].
	//
	// Cost: one command when the lock is free. After a WithWait of a second or more that ran out, one that
	// asks who holds the lock: [Error.Owner].
	Lock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// TryLock takes the lock or returns [ErrNotAcquired] without waiting for its holder;
	// [Error.Remaining] is then the rest of the holder's lease. The other errors are the errors of
	// Lock.
	//
	// With client-side caching (packages rueidis and valkey), a lock that another process releases may
	// be refused for the time of a message from the server, and for 750 ms at most if that message does
	// not arrive. A call with the context of a request that httplock or grpclock serve asks the server.
	//
	// Cost: one command; none if this client knows the holder, as its own or by client-side caching. The
	// second refusal within 750 ms costs two with client-side caching, further ones none.
	TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error)
}

// WithoutLeases returns a context that ends with ctx and has its values, but no leases and no
// delegations: Lock and TryLock compete for every name, even for names that ctx holds. Use it for
// work beside the holder, such as a goroutine that outlives a request. A holder that waits for such
// a Lock of its own lock waits for ever.
//
// A nil ctx is returned as it is: Lock and TryLock refuse it with [ErrInvalid]. It costs no command.
func WithoutLeases(ctx context.Context) context.Context {
	if ctx == nil {
		return nil
	}
	return lease.Without{Context: ctx}
}

// Do takes the lock, runs fn under the lease's context, and releases the lock, also when fn panics.
//
// Do returns fn's error. If the lock was lost while fn ran, or the client was closed, the error also
// wraps [ErrLost] or [ErrClosed]: fn's work may have overlapped with another holder's. If fn
// succeeded and the release failed, Do returns the error of [Lease.Unlock].
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	if l == nil || fn == nil {
		return fail.New("do", name, fail.Invalidf("the Locker and the function must not be nil"))
	}
	held, err := l.Lock(ctx, name, opts...)
	switch {
	case err != nil:
		return err
	case held == nil:
		return fail.New("do", name, fail.Invalidf("the Locker returned neither a lease nor an error"))
	}
	defer func() {
		lost := held.Err()
		unlocked := held.Unlock(context.WithoutCancel(ctx))
		if lost == nil && errors.Is(unlocked, ErrLost) {
			lost = unlocked
		}
		if errors.Is(lost, ErrReleased) { // fn has unlocked it
			lost = nil
		}
		switch {
		case err != nil && lost != nil && !errors.Is(err, lost):
			err = fmt.Errorf("%w; %w", err, lost)
		case err != nil:
		case lost != nil:
			err = lost
		default:
			err = unlocked
		}
	}()
	return fn(held.Context())
}
