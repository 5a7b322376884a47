package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
)

// Observer is told what a client does, for metrics and traces. Its functions may
// be nil. They are called outside of all locks, perhaps concurrently, and must not wait for
// the client.
//
// Waiting, Acquired, NotAcquired and Released are called by the goroutine of the call that they
// are about, before it returns: a slow one delays that call, and a slow Waiting also the calls of the
// client that wait behind it for the same name.
//
// Renewed, RenewalFailed and Lost are called one after the other by a goroutine of the client's, after the
// contexts of leases that are over have ended; so Released may be told before Lost. Up to 1,024 of these events
// and of log lines wait for their turn. The newest is dropped if there are more, and the log says how many were.
// [Client.Shutdown] has all told before it returns, if its ctx leaves the time, and reports handlers that did
// not return.
type Observer struct {
	// Waiting: a call began to wait: for another holder, for permits, for a latch. Acquired
	// or NotAcquired follows.
	Waiting func(WaitingEvent)
	// Acquired: a lock was acquired or entered again, permits were, or a latch is open. For
	// each lease, Lost or Released follows; both where a lost one is unlocked.
	Acquired func(AcquiredEvent)
	// NotAcquired: such a call returned an error, other than that it was made wrongly.
	NotAcquired func(NotAcquiredEvent)
	// Renewed: the watchdog renewed a lease.
	Renewed func(RenewedEvent)
	// RenewalFailed: the store did not answer a renewal; it is retried within the lease.
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
	// Lease numbers the client's leases from one: the same in Acquired, Lost and Released of
	// one. Zero where there is none: of waits, refusals, counting semaphores and latches, and of
	// renewals, which are of all that an owner holds of the name.
	Lease uint64
	// Context is what was passed to the call that waits or waited; of a lease, to the one
	// that acquired it. It may have ended. Nil for renewals.
	Context context.Context
	// Client is what [WithName] calls the client; empty without it.
	Client string
}

// inner is o as the engine calls it.
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

// each is one function for those that the observers have; nil if none has one.
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
	// Contended tells that Waiting was called before.
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
	// Contended tells that Waiting was called before.
	Contended bool
	// Err is what the call returns.
	Err error
}

// RenewedEvent: see [Observer].
type RenewedEvent struct {
	Subject
	// Took is the time that the store took to answer.
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
	// Asked tells that the lease ended when [WithLease] or [WithMaxHold] said so: nothing failed.
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
	// Holds is the hold count that is left.
	Holds int
	// Err is what Unlock returned.
	Err error
}
