package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
)

// Observer has functions for the events of a client, for metrics and traces. The functions may be
// nil. They are called outside of all locks, perhaps concurrently, and must not wait for the
// client.
//
// Waiting, Acquired, NotAcquired and Released are called by the goroutine of the call in question,
// before the call returns: a slow function delays the call, and a slow Waiting also the calls of
// the client behind it for the same name. A panic passes on to the caller; a lock that the call
// acquired is then released.
//
// Renewed, RenewalFailed and Lost are called in turn by a goroutine of the client's, after the
// contexts of ended leases have ended; so Released may come before Lost. Up to 1,024 of these
// events and of log lines are queued. Further events are dropped, and the log has their number.
// [Client.Shutdown] delivers all events before it returns, if its ctx leaves the time, and reports
// handlers that did not return.
type Observer struct {
	// Waiting: a call began to wait: for another holder, for permits, for a latch. Acquired
	// or NotAcquired follows.
	Waiting func(WaitingEvent)
	// Acquired: a lock was acquired or entered again, permits were, or a latch is open. For each
	// lease, Lost or Released follows; both if a lost lease is unlocked.
	Acquired func(AcquiredEvent)
	// NotAcquired: such a call returned an error, other than a wrong argument's.
	NotAcquired func(NotAcquiredEvent)
	// Renewed: the watchdog renewed a lease.
	Renewed func(RenewedEvent)
	// RenewalFailed: the store did not answer a renewal; the renewal is retried within the lease.
	RenewalFailed func(RenewalFailedEvent)
	// Lost: a lease ended without Unlock.
	Lost func(LostEvent)
	// Released: an Unlock is over.
	Released func(ReleasedEvent)
}

// Subject is what an event is about.
type Subject struct {
	// Name is what was locked, or acquired of.
	Name string
	// Kind is the family: "lock" (plain, fenced, polling and non-reentrant ones), "fair",
	// "read", "write", "counting_semaphore", "semaphore" or "latch".
	Kind string
	// Owner is the holder in the store; empty where there is none (yet).
	Owner string
	// Lease numbers the client's leases: Acquired, Lost and Released of a lease have the same number.
	// Zero without a lease: for waits, refusals, counting semaphores and latches, and for renewals,
	// which are about all holds of an owner.
	Lease uint64
	// Context is the context of the waiting call; for a lease, of the call that acquired it. It may
	// have ended. Nil for renewals.
	Context context.Context
	// Client is the name by [WithName]; empty without the option.
	Client string
}

// inner is o for the engine.
func (o Observer) inner() engine.Observer {
	subject := func(e engine.Event) Subject { return Subject{e.Name, e.Kind, e.Owner, e.Lease, e.Context, e.Client} }
	return engine.Observer{
		Waiting: told(o.Waiting, func(e engine.Event) WaitingEvent { return WaitingEvent{subject(e), e.Remaining} }),
		Acquired: told(o.Acquired, func(e engine.Event) AcquiredEvent {
			return AcquiredEvent{subject(e), e.Waited, e.Contended, e.Holds, e.Token}
		}),
		NotAcquired: told(o.NotAcquired, func(e engine.Event) NotAcquiredEvent {
			return NotAcquiredEvent{subject(e), e.Waited, e.Contended, e.Err}
		}),
		Renewed: told(o.Renewed, func(e engine.Event) RenewedEvent {
			return RenewedEvent{subject(e), e.Took, e.Remaining}
		}),
		RenewalFailed: told(o.RenewalFailed, func(e engine.Event) RenewalFailedEvent {
			return RenewalFailedEvent{subject(e), e.Remaining, e.Err}
		}),
		Lost: told(o.Lost, func(e engine.Event) LostEvent { return LostEvent{subject(e), e.Held, e.Asked, e.Err} }),
		Released: told(o.Released, func(e engine.Event) ReleasedEvent {
			return ReleasedEvent{subject(e), e.Held, e.Took, e.Holds, e.Err}
		}),
	}
}

// told calls f with what an event is to users; nil if f is.
func told[E any](f func(E), as func(engine.Event) E) func(engine.Event) {
	if f == nil {
		return nil
	}
	return func(e engine.Event) { f(as(e)) }
}

// Observers calls several observers, in this order.
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

// each calls the observers' functions in turn; nil without any.
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
	// Remaining is what is left of the holder's lease; negative if unknown.
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
	// Err is what the call returns.
	Err error
}

// RenewedEvent: see [Observer].
type RenewedEvent struct {
	Subject
	// Took is the time of the store's answer.
	Took time.Duration
	// Remaining is what is now left of the lease.
	Remaining time.Duration
}

// RenewalFailedEvent: see [Observer].
type RenewalFailedEvent struct {
	Subject
	// Remaining is what is left of the lease: the time in which a retry must succeed.
	Remaining time.Duration
	Err       error
}

// LostEvent: see [Observer].
type LostEvent struct {
	Subject
	// Held is how long the lease was held.
	Held time.Duration
	// Asked reports whether [WithLease] or [WithMaxHold] ended the lease: nothing failed.
	Asked bool
	// Err wraps ErrLost, or ErrClosed when the client was shut down.
	Err error
}

// ReleasedEvent: see [Observer].
type ReleasedEvent struct {
	Subject
	// Held is the time from acquisition to Unlock; Took, that of the release.
	Held time.Duration
	Took time.Duration
	// Holds is the remaining hold count.
	Holds int
	// Err is what Unlock returned.
	Err error
}
