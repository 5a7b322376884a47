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
// after a panic of Waiting neither Acquired nor NotAcquired is called. A call of quorum.New has a
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
	Waiting func(Event)
	// Acquired: a lock was acquired or entered again, permits were acquired, a latch is open, or a tick
	// was granted. For each lease, Lost or Released follows; both if a lost lease is unlocked.
	Acquired func(Event)
	// NotAcquired: such a call returned an error; with a wrong argument only if the call has waited. Also
	// a claim of a tick that found the last started tick ahead of the store's clock; a claim that was
	// refused because the tick is not due, or another process has it, is no event.
	NotAcquired func(Event)
	// Renewed: the watchdog renewed a lease.
	Renewed func(Event)
	// RenewalFailed: a renewal failed, and is retried within the lease; or the lease ended while its
	// renewal had no answer. Then Remaining is zero, and Lost follows.
	RenewalFailed func(Event)
	// Lost: a lease ended without Unlock.
	Lost func(Event)
	// Released: an Unlock has ended.
	Released func(Event)
}

// Event is what an [Observer] is told. A field that does not belong to an event is zero.
type Event struct {
	// Name is the name of the lock, the semaphore, the latch or the schedule.
	Name string
	// Kind is the kind: "lock" (plain, fenced, polling and non-reentrant ones), "fair",
	// "read", "write", "counting_semaphore", "semaphore", "latch" or "tick".
	Kind string
	// Owner is the holder in the store; empty if there is none, or none yet.
	Owner string
	// Client is the name by [WithName]; empty without the option.
	Client string
	// Lease is the number of a lease: Acquired, Lost and Released of a lease have the same number.
	// Zero without a lease: for waits, refusals, counting semaphores, latches and ticks, and for
	// renewals, which are about all holds of an owner.
	Lease uint64
	// Context is the context of the waiting call; for a lease, of the call that acquired it. It may
	// have ended. Nil for renewals.
	Context context.Context

	// Waited, of Acquired and NotAcquired, is the time from the call to now.
	Waited time.Duration
	// Contended, of Acquired and NotAcquired, reports whether Waiting was called before.
	Contended bool
	// Crowded, of NotAcquired, reports whether the call was refused because of [WithMaxWaiters].
	Crowded bool
	// Holds is the hold count after Acquired and Released; above one, Acquired is a re-entry.
	Holds int
	// Token, of Acquired, is the fencing token; zero if there is none.
	Token int64

	// Held, of Lost and Released, is the time from the acquisition to the end of the lease or to Unlock.
	Held time.Duration
	// Took is the duration of a renewal's request, or of Unlock.
	Took time.Duration
	// Remaining is the rest of a lease: of the holder's for Waiting, negative if unknown; of the renewed lease
	// for Renewed; for RenewalFailed the time within which a retry must succeed.
	Remaining time.Duration
	// Asked, of Lost and Released, reports whether the lease ended as [WithLease] or [WithMaxHold] asked:
	// nothing failed. Released with Asked may come before its Lost.
	Asked bool
	// Reason, of Lost, is why the lease ended, in one word:
	//
	//	asked       as [WithLease] or [WithMaxHold] asked
	//	unanswered  no renewal was answered in time: the store was away, or slow
	//	late        no renewal had failed: this process was paused or starved
	//	removed     the store has no record of the owner any more
	//	unlocked    ForceUnlock of this client
	//	closed      the client was shut down
	Reason string
	// Err is what the call returned, for NotAcquired and Released; the failure, for RenewalFailed; for Lost it
	// wraps [ErrLost], or [ErrClosed] when the client was shut down.
	Err error
}

// eventOf returns an event of the engine for users.
func eventOf(e engine.Event) Event {
	return Event{
		Name: e.Name, Kind: e.Kind, Owner: e.Owner, Client: e.Client, Lease: e.Lease, Context: e.Context,
		Waited: e.Waited, Contended: e.Contended, Crowded: e.Err != nil && fail.IsCrowded(e.Err),
		Holds: e.Holds, Token: e.Token,
		Held: e.Held, Took: e.Took, Remaining: e.Remaining, Asked: e.Asked, Reason: e.Reason, Err: e.Err,
	}
}

// inner returns o as the engine's type; each function calls that of before first, if there is one.
func (o Observer) inner(before engine.Observer) engine.Observer {
	return engine.Observer{
		Waiting:       told(before.Waiting, o.Waiting),
		Acquired:      told(before.Acquired, o.Acquired),
		NotAcquired:   told(before.NotAcquired, o.NotAcquired),
		Renewed:       told(before.Renewed, o.Renewed),
		RenewalFailed: told(before.RenewalFailed, o.RenewalFailed),
		Lost:          told(before.Lost, o.Lost),
		Released:      told(before.Released, o.Released),
	}
}

// told returns a function that calls before, and f with the user's form of an event; nil functions are left out.
func told(before func(engine.Event), f func(Event)) func(engine.Event) {
	switch {
	case f == nil:
		return before
	case before == nil:
		return func(e engine.Event) { f(eventOf(e)) }
	}
	return func(e engine.Event) { before(e); f(eventOf(e)) }
}
