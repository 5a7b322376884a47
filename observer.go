package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Observer has functions for the events of a client, for metrics and traces. The functions may be
// nil. They are called without a lock of the client held, perhaps concurrently, and must not wait for
// the client.
//
// Waiting, Acquired, NotAcquired and Released are called by the goroutine of the user's call, before
// the call returns: a slow function delays the call, and a slow Waiting also the client's later calls
// for the same name. A panic reaches the caller; a lock that the call acquired is then released, and
// after a panic of Waiting neither Acquired nor NotAcquired is called. A call of [Quorum] has a
// goroutine for each store, and the Unlock of a [Client.LockAll] one for each node, which call them; a panic
// reaches the caller there, too. A lease of Quorum that locks a store again, or is lost, has no caller.
//
// Renewed, RenewalFailed and Lost are called one at a time by a goroutine of the client, after the
// contexts of ended leases have ended; so Released may come before Lost. Up to 1,024 of these
// events and of log lines are queued. Further events are dropped, and the log has their number.
// [Client.Shutdown] delivers all events before it returns, if its ctx leaves the time, and reports
// handlers that did not return. A panic without a caller ends the process.
type Observer struct {
	// Waiting: a call began to wait: for another holder, for permits, for a latch. Acquired
	// or NotAcquired follows.
	Waiting func(WaitingEvent)
	// Acquired: a lock was acquired or entered again, permits were acquired, a latch is open, or a tick
	// was granted. For each lease, Lost or Released follows; both if a lost lease is unlocked.
	Acquired func(AcquiredEvent)
	// NotAcquired: such a call returned an error; with a wrong argument only if the call has waited. Also
	// a claim of a tick that found the last started tick ahead of the store's clock; a claim that was
	// refused because the tick is not due, or another process has it, is no event.
	NotAcquired func(NotAcquiredEvent)
	// Renewed: the watchdog renewed a lease.
	Renewed func(RenewedEvent)
	// RenewalFailed: a renewal failed, and is retried within the lease; or the lease ended while its
	// renewal had no answer. Then Remaining is zero, and Lost follows.
	RenewalFailed func(RenewalFailedEvent)
	// Lost: a lease ended without Unlock.
	Lost func(LostEvent)
	// Released: an Unlock has ended.
	Released func(ReleasedEvent)
}

// Subject is the part that all events have: the lock and the call.
type Subject struct {
	// Name is the name of the lock, the semaphore, the latch or the schedule.
	Name string
	// Kind is the kind: "lock" (plain, fenced, polling and non-reentrant ones), "fair",
	// "read", "write", "counting_semaphore", "semaphore", "latch" or "tick".
	Kind string
	// Owner is the holder in the store; empty if there is none, or none yet.
	Owner string
	// Lease is the number of a lease: Acquired, Lost and Released of a lease have the same number.
	// Zero without a lease: for waits, refusals, counting semaphores, latches and ticks, and for
	// renewals, which are about all holds of an owner.
	Lease uint64
	// Context is the context of the waiting call; for a lease, of the call that acquired it. It may
	// have ended. Nil for renewals.
	Context context.Context
	// Client is the name by [WithName]; empty without the option.
	Client string
}

// inner returns o as the engine's type.
func (o Observer) inner() engine.Observer {
	subject := func(e engine.Event) Subject { return Subject{e.Name, e.Kind, e.Owner, e.Lease, e.Context, e.Client} }
	return engine.Observer{
		Waiting: told(o.Waiting, func(e engine.Event) WaitingEvent { return WaitingEvent{subject(e), e.Remaining} }),
		Acquired: told(o.Acquired, func(e engine.Event) AcquiredEvent {
			return AcquiredEvent{subject(e), e.Waited, e.Contended, e.Holds, e.Token}
		}),
		NotAcquired: told(o.NotAcquired, func(e engine.Event) NotAcquiredEvent {
			return NotAcquiredEvent{subject(e), e.Waited, e.Contended, fail.IsCrowded(e.Err), e.Err}
		}),
		Renewed: told(o.Renewed, func(e engine.Event) RenewedEvent {
			return RenewedEvent{subject(e), e.Took, e.Remaining}
		}),
		RenewalFailed: told(o.RenewalFailed, func(e engine.Event) RenewalFailedEvent {
			return RenewalFailedEvent{subject(e), e.Remaining, e.Err}
		}),
		Lost: told(o.Lost, func(e engine.Event) LostEvent { return LostEvent{subject(e), e.Held, e.Asked, e.Err} }),
		Released: told(o.Released, func(e engine.Event) ReleasedEvent {
			return ReleasedEvent{subject(e), e.Held, e.Took, e.Holds, e.Asked, e.Err}
		}),
	}
}

// told returns a function that calls f with the user's form of an event; nil if f is nil.
func told[E any](f func(E), as func(engine.Event) E) func(engine.Event) {
	if f == nil {
		return nil
	}
	return func(e engine.Event) { f(as(e)) }
}

// Observers returns an Observer that calls several observers, in this order.
func Observers(all ...Observer) Observer {
	return Observer{
		Waiting:       each(all, func(o Observer) func(WaitingEvent) { return o.Waiting }),
		Acquired:      each(all, func(o Observer) func(AcquiredEvent) { return o.Acquired }),
		NotAcquired:   each(all, func(o Observer) func(NotAcquiredEvent) { return o.NotAcquired }),
		Renewed:       each(all, func(o Observer) func(RenewedEvent) { return o.Renewed }),
		RenewalFailed: each(all, func(o Observer) func(RenewalFailedEvent) { return o.RenewalFailed }),
		Lost:          each(all, func(o Observer) func(LostEvent) { return o.Lost }),
		Released:      each(all, func(o Observer) func(ReleasedEvent) { return o.Released }),
	}
}

// each returns a function that calls the observers' functions in turn; nil if all are nil.
func each[E any](all []Observer, of func(Observer) func(E)) func(E) {
	var some []func(E)
	for _, o := range all {
		if f := of(o); f != nil {
			some = append(some, f)
		}
	}
	switch len(some) {
	case 0:
		return nil
	case 1:
		return some[0]
	}
	return func(e E) {
		for _, f := range some {
			f(e)
		}
	}
}

// WaitingEvent: see [Observer].
type WaitingEvent struct {
	Subject
	// Remaining is the rest of the holder's lease; negative if unknown.
	Remaining time.Duration
}

// AcquiredEvent: see [Observer].
type AcquiredEvent struct {
	Subject
	// Waited is the time from the call of Lock to now.
	Waited time.Duration
	// Contended reports whether Waiting was called before.
	Contended bool
	// Holds is the hold count; above one it is a re-entry.
	Holds int
	// Token is the fencing token, zero if there is none.
	Token int64
}

// NotAcquiredEvent: see [Observer].
type NotAcquiredEvent struct {
	Subject
	// Waited is the time from the call to now.
	Waited time.Duration
	// Contended reports whether Waiting was called before.
	Contended bool
	// Crowded reports whether the call was refused because of [WithMaxWaiters].
	Crowded bool
	// Err is what the call returns.
	Err error
}

// RenewedEvent: see [Observer].
type RenewedEvent struct {
	Subject
	// Took is the duration of the request to the store.
	Took time.Duration
	// Remaining is the rest of the lease after the renewal.
	Remaining time.Duration
}

// RenewalFailedEvent: see [Observer].
type RenewalFailedEvent struct {
	Subject
	// Remaining is the rest of the lease: a retry must succeed within this time.
	Remaining time.Duration
	Err       error
}

// LostEvent: see [Observer].
type LostEvent struct {
	Subject
	// Held is how long the lease was held.
	Held time.Duration
	// Asked reports whether the lease ended as [WithLease] or [WithMaxHold] asked: nothing failed.
	Asked bool
	// Err wraps ErrLost, or ErrClosed when the client was shut down.
	Err error
}

// ReleasedEvent: see [Observer].
type ReleasedEvent struct {
	Subject
	// Held is the time from the acquisition to Unlock, and Took the duration of Unlock.
	Held time.Duration
	Took time.Duration
	// Holds is the remaining hold count.
	Holds int
	// Asked reports whether the lease had ended before Unlock as [WithLease] or [WithMaxHold] asked:
	// the Asked of its LostEvent, which may come later.
	Asked bool
	// Err is what Unlock returned.
	Err error
}
