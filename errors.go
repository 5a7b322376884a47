package mortise

import (
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// What can go wrong, for errors.Is. A web handler answers 423 for
// ErrNotAcquired and 503 for ErrUnavailable.
var (
	// ErrNotAcquired: another owner holds the lock, and the wait, if any, ran out.
	ErrNotAcquired = fail.NotAcquired
	// ErrNotHeld: Unlock of a lock that its lease does not hold: lost, already unlocked, or taken
	// away. Nothing was released.
	ErrNotHeld = fail.NotHeld
	// ErrLost: the lease ended without Unlock: it was not renewed in time, ran out, or its record was
	// removed.
	ErrLost = fail.Lost
	// ErrReleased: the lease was ended by Unlock.
	ErrReleased = fail.Released
	// ErrClosed: the client was shut down.
	ErrClosed = fail.Closed
	// ErrUnavailable: the store failed, as against the lock: unreachable, refusing the credentials,
	// read-only, loading. The text has the reason, and the remedy.
	ErrUnavailable = fail.Unavailable
	// ErrWrongKind: the name is in use for another kind of lock or for other data.
	ErrWrongKind = fail.WrongKind
	// ErrInvalidName: the name cannot be a lock's.
	ErrInvalidName = fail.InvalidName
	// ErrInvalid: an argument or option makes no sense here.
	ErrInvalid = fail.Invalid
	// ErrNotReplicated: fewer replicas than [WithReplicas] asks for had the lock in time, and the lock
	// was released. The error is [ErrUnavailable], too, never [ErrNotAcquired].
	ErrNotReplicated = fail.NotReplicated
	// ErrDelegationEnded: a Lock or TryLock under a delegation ([Client.WithDelegations]) whose hold
	// was unlocked or lost, or ran out. Nothing was locked. To compete for the lock like any other
	// call, use a context without the delegation.
	ErrDelegationEnded = fail.DelegationEnded
)

// Error is the error of every operation on a lock. It wraps a sentinel, and the cause.
type Error struct {
	// Op is the operation: lock, trylock, lockall, trylockall, unlock, lease, inspect, forceunlock, ping, proclaim,
	// proclamations, claimtick; lead and current of package leader, every of package once; of
	// latches and semaphores set, count, countdown, wait, delete, setpermits, acquire,
	// tryacquire, release, available, addpermits, drain.
	Op string
	// Name is the lock's name.
	Name string
	// Remaining is, with ErrNotAcquired, the rest of the holder's lease as last known; negative
	// without an end, zero if unknown. A hint for Retry-After: a watchdog may renew the lease.
	Remaining time.Duration
	// Err is or wraps the sentinel and the cause.
	Err error
}

func init() { fail.Public = func(e *fail.Error) error { return (*Error)(e) } }

// Error names the operation, the lock and the cause.
func (e *Error) Error() string { return (*fail.Error)(e).Error() }

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// As finds the form of the packages below mortise.
func (e *Error) As(target any) bool {
	t, is := target.(**fail.Error)
	if is {
		*t = (*fail.Error)(e)
	}
	return is
}
