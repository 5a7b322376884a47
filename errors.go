package mortise

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What can go wrong, for errors.Is. A web handler answers 423 for
// ErrNotAcquired and 503 for ErrUnavailable.
var (
	// ErrNotAcquired: somebody else holds the lock, and the wait, if any, ran out.
	ErrNotAcquired = errors.New("not acquired")
	// ErrNotHeld: Unlock of a lock that its lease does not hold: lost, released
	// before, or taken away. Nothing was released.
	ErrNotHeld = errors.New("not held")
	// ErrLost: the lease ended though nobody unlocked it: it could not be renewed
	// in time, ran out, or its record was removed.
	ErrLost = errors.New("lock lost")
	// ErrReleased: the lease was ended by Unlock.
	ErrReleased = errors.New("lock released")
	// ErrClosed: the client was shut down.
	ErrClosed = errors.New("client closed")
	// ErrUnavailable: the store failed, as against the lock: unreachable, refusing
	// the credentials, read-only, loading. The text says which, and what to do.
	ErrUnavailable = errors.New("store unavailable")
	// ErrWrongKind: the name is in use for another kind of lock or for other data.
	ErrWrongKind = errors.New("wrong kind")
	// ErrBadName: the name cannot be a lock's.
	ErrBadName = errors.New("bad name")
	// ErrInvalid: an argument or option makes no sense here.
	ErrInvalid = errors.New("invalid")
)

// Error is the error of every operation on a lock. It wraps one of the sentinels,
// and the cause below it.
type Error struct {
	// Op is the operation: lock, trylock, lockall, unlock, lease, inspect, forceunlock, ping; of
	// latches and semaphores set, count, countdown, wait, delete, setpermits, acquire,
	// tryacquire, release, available, addpermits, drain.
	Op string
	// Name is the lock's name.
	Name string
	// Remaining is, with ErrNotAcquired, what is left of the holder's lease as
	// last heard; negative if it has no end, zero if unknown. A hint for
	// Retry-After: a watchdog may renew it.
	Remaining time.Duration
	// Err is or wraps the sentinel and the cause.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("mortise: ")
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", shorten(e.Name))
	}
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Remaining > 0 {
		fmt.Fprintf(&b, "; the holder's lease ends in %v unless renewed", e.Remaining.Round(time.Millisecond))
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// shorten keeps a hostile name from flooding a log.
func shorten(name string) string {
	const most = 200
	if len(name) <= most {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(name[:most], ""), len(name))
}
