package mortise

import (
	"errors"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// Errors for errors.Is. A web handler answers 423 for ErrNotAcquired and 503 for ErrUnavailable.
var (
	// ErrNotAcquired: another owner holds the lock, or it is reserved for the next waiter, and the wait,
	// if any, is over; or [WithMaxWaiters] refuses the call.
	ErrNotAcquired error
	// ErrLost: the lease ended without Unlock: it was not renewed in time, ran out, or its record was
	// removed. An Unlock then releases nothing.
	ErrLost error
	// ErrReleased: the lease was ended by Unlock; a second Unlock is an error, too.
	ErrReleased error
	// ErrClosed: the client was shut down.
	ErrClosed error
	// ErrUnavailable: the store failed: for example, it is unreachable, refuses the credentials, is
	// read-only, or is loading its data. The text has the reason, and the remedy.
	ErrUnavailable error
	// ErrWrongKind: the name is in use for another kind of lock or for other data.
	ErrWrongKind error
	// ErrInvalidName: the name is not allowed: see [Locker].
	ErrInvalidName error
	// ErrInvalid: an argument or an option is wrong, or does not apply.
	ErrInvalid error
	// ErrNotReplicated: fewer replicas than [WithReplicas] asks for had the lock in time, and the lock
	// was released. The error is [ErrUnavailable], too, never [ErrNotAcquired].
	ErrNotReplicated error
)

// Error is the error of every operation on a lock. It wraps a sentinel, and the cause.
type Error struct {
	// Op is the operation: new, check, lock, trylock, lockall, trylockall, quorum, do, unlock, lease,
	// inspect, forceunlock, withdelegations, proclaim, proclamations, claimtick, ping, shutdown; lead,
	// current and observe of package leader, every of package once; of latches and semaphores set,
	// count, countdown, wait, delete, setpermits, acquire, tryacquire, release, available, addpermits,
	// drain.
	Op string
	// Name is the lock's name.
	Name string
	// Owner is the holder of a lock, after a [WithWait] of a second or more that ended with ErrNotAcquired:
	// one command asks for it then, as [Client.Inspect] does. Empty otherwise, and if the lock is free by
	// then, or the store does not answer within a quarter of a second.
	Owner string
	// Remaining is, with ErrNotAcquired, the rest of the holder's lease as last known; negative if
	// the lease has no end, zero if unknown. It is a hint for Retry-After: a watchdog may renew the
	// lease.
	Remaining time.Duration
	// Err wraps the sentinel and the cause, or is the sentinel.
	Err error
}

func init() {
	ErrNotAcquired, ErrNotReplicated, ErrUnavailable = fail.NotAcquired, fail.NotReplicated, fail.Unavailable
	ErrLost, ErrReleased, ErrClosed = fail.Lost, fail.Released, fail.Closed
	ErrWrongKind, ErrInvalidName, ErrInvalid = fail.WrongKind, fail.InvalidName, fail.Invalid
	fail.Public = func(e *fail.Error) error { return (*Error)(e) }
	fail.Find = func(err error) *fail.Error {
		e, _ := errors.AsType[*Error](err)
		return (*fail.Error)(e)
	}
}

// Error returns the operation, the name of the lock and the cause as a text.
func (e *Error) Error() string { return (*fail.Error)(e).Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Err
}
