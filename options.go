package mortise

import (
	"math"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Option changes a call: Lock, TryLock, LockAll and the like. The zero Option does nothing. Options are
// comparable values, for mocks: mortise.WithWait(time.Second) == mortise.WithWait(time.Second). An option
// that does not apply to a call is refused with [ErrInvalid], never ignored. Of two equal options with
// different values the later one counts.
//
// [Client.With] gives options to all calls of a Locker, [WithDefaults] to all calls of a client, as far as
// they apply to the call. An option of a call comes before one of With, and this before one of
// WithDefaults. Two pairs exclude each other, and count as one option in this: [WithLease] and
// [WithMaxHold]; [Fair] and [Polling].
type Option struct {
	is option
	n  int
	d  time.Duration
}

// option says what an Option changes.
type option uint8

const (
	_ option = iota // nothing
	isLease
	isWait
	isMaxHold
	isReplicas
	isMaxWaiters
	isFair
	isFenced
	isNonReentrant
	isPolling
)

// MinLease is the shortest lease: the holder ends each lease early, by a safety margin of 10 ms or
// more, which would take most of a very short lease.
const MinLease = 50 * time.Millisecond

// MaxLease is the longest lease.
const MaxLease = 365 * 24 * time.Hour

// The constants are those of the engine, or the index is out of range.
var _ = [1]struct{}{}[(MinLease-engine.MinLease)|(MaxLease-engine.MaxLease)]

// WithLease takes the lock for d, without renewal. Without the option the watchdog renews the lease
// while the process lives. d is rounded up to whole milliseconds, and must be between [MinLease] and
// [MaxLease].
//
// On re-entry the lock is held for the rest of the outer lease or for d, whichever is longer.
func WithLease(d time.Duration) Option { return Option{is: isLease, d: d} }

// WithWait bounds how long Lock waits for the holder: Lock returns [ErrNotAcquired] after d. d must be
// positive. The option does not apply to TryLock, which does not wait.
//
// However short d is, Lock asks the store once, and acquires a free lock even if the answer takes
// longer than d. If there is no answer within d, or within a second if d is shorter, Lock returns
// [ErrUnavailable]. A request that times out is sent again within d, for ten seconds at most. A
// deadline of ctx bounds the first request, too. A call that waits behind another call of the same
// client sends nothing meanwhile, and returns [ErrNotAcquired] after d.
func WithWait(d time.Duration) Option { return Option{is: isWait, d: d} }

// WithMaxHold bounds the time for which the watchdog renews the lease: the lease ends d after the
// grant, with [ErrLost]. So a holder that hangs while its process lives loses the lock. d is between
// [MinLease] and [MaxLease]. The option excludes [WithLease], which is a bound by itself.
func WithMaxHold(d time.Duration) Option { return Option{is: isMaxHold, d: d} }

// WithReplicas makes Lock and TryLock return once n replicas of the store have the lock, so a
// failover to one of them keeps the lock. If fewer replicas have the lock after timeout, the lock is
// released, and the error is [ErrNotReplicated]: for the call, and for the calls of this client that
// waited behind it and want as many replicas within the same time or less. n is at least one. timeout is rounded up to
// whole milliseconds, positive and less than the lease; the time spent on replication is a part of the lease, which
// counts from before the request was sent. Redisson: checkLockSyncedSlaves.
//
// The option applies to acquisitions and re-entries. Renewals do not wait for replicas: a replica has
// the lock for the lease of the acquisition or of the last re-entry, and for longer if renewals reach
// the replica. Releases do not wait, either: if a release has not reached the new master, the lock is
// held there until its lease ends. docs/explanation/guarantees.md lists the losses that remain
// possible in a failover. The fencing token of a grant that was released is not drawn again.
//
// The option is for all kinds of locks. In [Client.LockAll] it applies to each part, with a request for each.
// It is not for quorum.New, which needs a majority of stores instead, nor for semaphores and latches:
// they return [ErrInvalid], as does any call with the option on a backend without replicas.
//
// Cost: a second command, WAIT, in the same round trip, and the time of replication. A refusal
// costs as much, except for a TryLock that is refused without a command. A request occupies a
// connection while it is under way: with go-redis a connection of the pool, for at most half of the
// pool; with rueidis and valkey-go a connection for blocking commands. A waiter with this option is
// not handed the lock within the process, but asks the store when the lock is released.
func WithReplicas(n int, timeout time.Duration) Option {
	return Option{is: isReplicas, n: n, d: timeout}
}

// WithMaxWaiters refuses the call instead of having it wait behind n or more calls of this client:
// Lock returns [ErrNotAcquired] at once, with a text of its own. So a flood of calls for one busy name
// keeps n calls waiting in the process, and no more. n is at least one. [Event.Crowded]
// marks a call that was refused.
//
// The calls that count are those of the client for the same name that wait, or whose request is on its
// way to the store. The sides of a read-write lock count together; a fair lock, a semaphore and a
// latch count apart from other kinds of the same name, and so do calls under a delegation. Holders do
// not count, nor do calls of other clients. A call that enters a lock again with a lease's context
// does not count and is not refused. What a call wants does not matter: an Acquire of one permit is
// refused behind n calls that want four, though one permit may be free; TryAcquire asks for it.
//
// The option does not apply to TryLock, which does not wait. In [Client.LockAll] it applies to the wait for
// each part, and the first refusal ends the call. quorum.New counts the calls that wait in it.
//
// Cost: none. A call that is refused sends no command, except in LockAll and Quorum, which try all
// locks before they wait.
func WithMaxWaiters(n int) Option { return Option{is: isMaxWaiters, n: n} }

// apply changes a request.
func (o Option) apply(r *engine.Request) error {
	switch o.is {
	case isLease:
		if o.d < MinLease || o.d > MaxLease {
			return fail.Invalidf("WithLease(%v): a lease is between %v and %v", o.d, MinLease, MaxLease)
		}
		r.Lease = clock.CeilMilli(o.d)
	case isWait:
		switch {
		case r.Try:
			return fail.Invalidf("WithWait does not apply to %s, which does not wait; use Lock, or Acquire, to wait", r.Op())
		case o.d <= 0:
			return fail.Invalidf("WithWait(%v): a wait is positive; use TryLock not to wait", o.d)
		}
		r.Wait = o.d
	case isMaxHold:
		if o.d < MinLease || o.d > MaxLease {
			return fail.Invalidf("WithMaxHold(%v): between %v and %v", o.d, MinLease, MaxLease)
		}
		r.MaxHold = clock.CeilMilli(o.d)
	case isReplicas:
		return o.applyReplicas(r)
	case isMaxWaiters:
		switch {
		case r.Try:
			return fail.Invalidf("WithMaxWaiters does not apply to %s, which does not wait", r.Op())
		case o.n < 1:
			return fail.Invalidf("WithMaxWaiters(%d): at least one; use TryLock not to wait, and omit the option for no bound",
				o.n)
		}
		r.MaxWaiters = int32(min(o.n, math.MaxInt32))
	case isFair, isFenced, isNonReentrant, isPolling:
		return o.applyKind(r)
	}
	return nil
}

func (o Option) applyReplicas(r *engine.Request) error {
	switch {
	case o.n < 1:
		return fail.Invalidf("WithReplicas(%d, %v): at least one replica; omit the option to wait for none", o.n, o.d)
	case o.d <= 0 || o.d > MaxLease:
		return fail.Invalidf("WithReplicas(%d, %v): the timeout is positive and less than the lease", o.n, o.d)
	}
	switch r.Family {
	case backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore:
		return fail.Invalidf("WithReplicas does not apply to %s, only to locks", r.Op())
	}
	r.Replicas = engine.Replicas{N: o.n, Timeout: clock.CeilMilli(o.d)}
	return nil
}

// with applies options to a request, and checks the name and the combination of options.
func with(r engine.Request, opts []Option) (engine.Request, error) {
	err := engine.CheckName(r.Name)
	for _, o := range opts {
		if err == nil {
			err = o.apply(&r)
		}
	}
	switch {
	case err != nil:
	case r.Lease > 0 && r.MaxHold > 0:
		err = fail.Invalidf("WithMaxHold does not apply together with WithLease, which is never renewed; use one of them")
	case r.Family == backend.KindFair && r.Polling > 0:
		err = fail.Invalidf("Fair and Polling: a waiter in a queue is told of its turn and does not ask; take one of them")
	}
	if err != nil {
		return r, r.Fail(err)
	}
	return r, nil
}
