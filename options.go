package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Option changes a call of Lock or TryLock. Options are comparable values, for mocks:
// mortise.WithWait(time.Second) == mortise.WithWait(time.Second). An option that does not apply to
// a call is refused with [ErrInvalid], never ignored.
type Option interface {
	apply(engine.Request) (engine.Request, error)
}

// MinLease is the shortest lease: a shorter lease would end, by the safety margin of each lease,
// about when it began.
const MinLease = engine.MinLease

// MaxLease is the longest lease.
const MaxLease = engine.MaxLease

// WithLease holds the lock for d without renewal; without the option the watchdog renews the lease
// while the holder lives. d is rounded up to whole milliseconds and must be between [MinLease] and
// [MaxLease].
//
// On re-entry the lock is held for the rest of the outer lease or for d, whichever is longer.
func WithLease(d time.Duration) Option { return leaseOption(d) }

// WithWait bounds how long Lock waits for the holder, and then returns [ErrNotAcquired]. d must be
// positive. Not for TryLock, which does not wait.
//
// The store is asked once however short d is: a free lock is acquired though the answer takes
// longer than d. Without an answer within d, or within a second if d is shorter, Lock returns
// [ErrUnavailable]. A deadline of ctx bounds the first request, too. A call that waits behind
// another call of the same client sends nothing meanwhile, and returns [ErrNotAcquired] after d.
func WithWait(d time.Duration) Option { return waitOption(d) }

// WithMaxHold stops the renewal of the lease so that the lease ends d after the grant, with
// [ErrLost]: a bound on a holder that hangs while its process lives. d is between [MinLease] and
// [MaxLease]. Not together with [WithLease], itself such a bound.
func WithMaxHold(d time.Duration) Option { return maxHoldOption(d) }

// WithReplicas makes Lock and TryLock return once n replicas of the store have the lock, so a
// failover to one of them keeps the lock. If fewer have the lock after timeout, the lock is
// released, and the error is [ErrNotReplicated]. n is at least one; timeout, rounded up to whole
// milliseconds, is positive and less than the lease, and counts as a part of the lease: the lease
// counts from before the request was sent, as always. Redisson: checkLockSyncedSlaves.
//
// The option is about the acquisition, and about re-entry. Renewals are not waited for: the
// replicas have the lock for the lease at its acquisition or last re-entry, and for longer if
// renewals reach them, as they do unless they are cut off. Releases are not waited for, either: a
// release without a trace on the new master leaves the lock held there until its lease ends.
// docs/explanation/guarantees.md lists the remaining losses in a failover. A fencing token of a
// released grant stays drawn.
//
// For all kinds of locks, in [LockAll] for each part, with a request for each. Not for [Quorum],
// whose majority does without, nor for semaphores and latches: [ErrInvalid], as with a backend
// without replicas.
//
// Cost: a second command, WAIT, in the same round trip, and the time of replication. A refusal
// costs as much, except a refusal of TryLock without a command. A request occupies a connection
// while it is under way: on go-redis of its pool, at most half of the pool; on rueidis and
// valkey-go of the connections for commands that block. A waiter with this option is not handed the
// lock inside its client, but asks for the lock at its release.
func WithReplicas(n int, timeout time.Duration) Option {
	return replicasOption{n, timeout}
}

type (
	leaseOption    time.Duration
	waitOption     time.Duration
	maxHoldOption  time.Duration
	replicasOption struct {
		n       int
		timeout time.Duration
	}
)

func (o leaseOption) apply(r engine.Request) (engine.Request, error) {
	d := time.Duration(o)
	if d < MinLease || d > MaxLease {
		return r, fail.Invalidf("WithLease(%v): a lease is between %v and %v", d, MinLease, MaxLease)
	}
	r.Lease = clock.CeilMilli(d)
	return r, nil
}

func (o waitOption) apply(r engine.Request) (engine.Request, error) {
	d := time.Duration(o)
	switch {
	case r.Try:
		return r, fail.Invalidf("WithWait does not apply to %s, which does not wait; use Lock, or Acquire, to wait", r.Op())
	case d <= 0:
		return r, fail.Invalidf("WithWait(%v): a wait is positive; use TryLock not to wait", d)
	}
	r.Wait = d
	return r, nil
}

func (o maxHoldOption) apply(r engine.Request) (engine.Request, error) {
	d := time.Duration(o)
	if d < MinLease || d > MaxLease {
		return r, fail.Invalidf("WithMaxHold(%v): between %v and %v", d, MinLease, MaxLease)
	}
	r.MaxHold = clock.CeilMilli(d)
	return r, nil
}

func (o replicasOption) apply(r engine.Request) (engine.Request, error) {
	switch {
	case o.n < 1:
		return r, fail.Invalidf("WithReplicas(%d, %v): at least one replica; omit the option to wait for none",
			o.n, o.timeout)
	case o.timeout <= 0 || o.timeout > MaxLease:
		return r, fail.Invalidf("WithReplicas(%d, %v): the timeout is positive and less than the lease", o.n, o.timeout)
	}
	switch r.Family {
	case backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore:
		return r, fail.Invalidf("WithReplicas does not apply to %s, only to locks", r.Op())
	}
	r.Replicas = engine.Replicas{N: o.n, Timeout: clock.CeilMilli(o.timeout)}
	return r, nil
}

// with applies options to a request and checks the whole.
func with(r engine.Request, opts []Option) (engine.Request, error) {
	err := engine.CheckName(r.Name)
	for _, o := range opts {
		switch {
		case err != nil:
		case o == nil:
			err = fail.Invalidf("a nil Option")
		default:
			r, err = o.apply(r)
		}
	}
	if err == nil && r.Lease > 0 && r.MaxHold > 0 {
		err = fail.Invalidf("WithMaxHold does not apply together with WithLease, which is never renewed; use one of them")
	}
	if err != nil {
		return r, r.Fail(err)
	}
	return r, nil
}
