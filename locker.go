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
// A lock is held for a lease. By default the lease is short and renewed in the background while the
// holder lives (the watchdog), so the lock of a dead process frees itself; [WithLease] asks for a
// lease without renewal. If a holder cannot renew in time, [Lease.Context] ends and [Lease.Err]
// returns [ErrLost] before another owner can get the lock. If the record was removed (DEL, a
// failover, [Client.ForceUnlock]), the holder learns of it at its next renewal only, and with
// WithLease when the lease ends. Work that must not outlive the lock runs under this context.
//
// # Re-entry
//
// The owner of a lock travels in the context. Lock with a context of the innermost lease on a name
// enters again; with any other context Lock waits, even in the goroutine that holds the lock. See
// [Locker].
//
// # Limits
//
// No lock service guarantees exclusion by itself if clocks and networks may do anything: a process
// can be paused between looking at its lease and writing. If data is at stake, take a fencing
// token, [Lease.Token], and let the data's store refuse older tokens. See
// docs/explanation/guarantees.md.
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
// [Client.Locker] returns others.
//
// Names are any UTF-8 text of 1 to 65,536 bytes whose braces, if any, form a Redis hash tag
// ("{tenant}:7"); other names are [ErrInvalidName].
//
// Re-entry: a context made by [Lease.Context], or derived from it, carries the lease. Lock and
// TryLock with such a context enter the lock again if the lease is the innermost live lease of its
// owner on this name; the lock is then free after as many Unlocks as there were Locks. Two
// goroutines that share a lease's context and both lock its name therefore take turns. A context
// whose lease has ended confers nothing.
//
// [context.WithoutCancel] keeps a context's values, leases among them. So background work with the
// values of a request enters the handler's lock while the handler holds it, and may go on after the
// handler has unlocked. Work that has to wait its turn gets
// mortise.WithoutLeases(context.WithoutCancel(ctx)): see [WithoutLeases].
type Locker interface {
	// Lock takes the lock, waiting while another owner holds the lock: until ctx ends, or for as long
	// as [WithWait] says. Waiting sends nothing: the release, or the end of the holder's lease, wakes
	// the call.
	//
	// The lease's context is a child of ctx, so bound the wait with WithWait and not with a deadline,
	// which would also end the work. A ctx that ends later ends neither the lease nor its renewal;
	// Unlock does.
	//
	// Errors: [ErrNotAcquired] when WithWait ran out, [ErrUnavailable] when the store failed,
	// [ErrClosed], [ErrWrongKind], [ErrInvalidName], [ErrInvalid], or ctx's own. All are wrapped in
	// [*Error].
	//
	// Cost: one command when the lock is free.
	Lock(ctx context.Context, name string, opts ...Option) (*Lease, error)

	// TryLock takes the lock or returns [ErrNotAcquired] without waiting for its holder;
	// [Error.Remaining] is then the rest of the holder's lease. The other errors are the errors of
	// Lock.
	//
	// Cost: one command; none if this client knows the holder, as its own or by client-side caching.
	TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error)
}

// WithoutLeases returns a context with the end and the values of ctx, but without leases: Lock and
// TryLock compete for every name, also for names that ctx holds, and its [Delegations] are none.
// Use it for work beside the holder, such as a goroutine that outlives a request. A holder that
// waits for its own call with such a context waits for ever.
//
// ctx must not be nil. It costs no command.
func WithoutLeases(ctx context.Context) context.Context { return lease.Without{Context: ctx} }

// Do takes the lock, runs fn under the lease's context, and releases the lock, also when fn panics.
//
// Do returns fn's error. If the lock was lost while fn ran, or the client closed, the error wraps
// [ErrLost] or [ErrClosed], beside fn's error if there is one: fn's work may have overlapped with
// another holder's. If fn succeeded and the release failed, Do returns the error of [Lease.Unlock].
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	if l == nil || fn == nil {
		return fail.New("do", name, fail.Invalidf("the Locker and the function must not be nil"))
	}
	held, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
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
