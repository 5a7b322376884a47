package mortise

import (
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Option changes one call of Lock or TryLock. Options are comparable values, so
// that a mock can match them: mortise.WithWait(time.Second) == mortise.WithWait(time.Second).
// One that does not apply to a call is refused with [ErrInvalid], never ignored.
type Option interface {
	apply(engine.Request) (engine.Request, error)
}

// MinLease is the shortest lease: less would be over, by the safety margin that
// every lease has, about when it began.
const MinLease = engine.MinLease

// MaxLease is the longest lease.
const MaxLease = engine.MaxLease

// WithLease holds the lock for d and never renews it; without this option the
// watchdog renews the lease while the holder lives. d is rounded up to whole
// milliseconds and must be between [MinLease] and [MaxLease].
//
// On re-entry the lock is held for what remains of the outer lease or for d,
// whichever is longer.
func WithLease(d time.Duration) Option { return leaseOption(d) }

// WithWait bounds how long Lock waits for the holder; when it runs out, Lock returns
// [ErrNotAcquired]. d must be positive. Not for TryLock, which does not wait.
//
// The store is asked once however short d is: a free lock is acquired though the answer takes
// longer than d. Where there is no answer within d, or one second if d is shorter, Lock returns
// [ErrUnavailable]. A deadline of ctx bounds that, too. A call that waits behind another of the same
// client asks nothing meanwhile, and is [ErrNotAcquired] after d.
func WithWait(d time.Duration) Option { return waitOption(d) }

// WithMaxHold ends the lease d after it was acquired, by not renewing it further:
// a bound on what a holder that hangs, but whose process lives, can do. The lease
// then ends with [ErrLost]. d is between [MinLease] and [MaxLease]. Not together with
// [WithLease], which is such a bound itself.
func WithMaxHold(d time.Duration) Option { return maxHoldOption(d) }

// WithReplicas has Lock and TryLock return once n replicas of the store have the lock, so that a failover
// to one of them does not lose it. If fewer have it after timeout, the lock is given back, and the
// error is [ErrNotReplicated]. n is at least one; timeout, rounded up to whole milliseconds, is
// positive and less than the lease, of which it takes its part: the lease counts from before the request was
// sent, as ever. Redisson: checkLockSyncedSlaves.
//
// It is about the acquisition, and about re-entry. Renewals are not waited for: the replicas have the lock for
// as long as the lease was when it was acquired, or last entered again, and for longer
// if they hear of renewals, as they do unless they are cut off. Neither are releases: one that the new master
// has not heard of leaves the lock held there until its lease is over.
// docs/explanation/guarantees.md says what a failover can still lose. A fencing token that was drawn for a lock that is given back stays drawn.
//
// For all kinds of locks, in [LockAll] for each part, which then costs a request of its own. Not for
// [Quorum], whose majority does without, semaphores and latches. [ErrInvalid] for those, and with a
// backend that has no replicas.
//
// Cost: a second command, WAIT, in the same round trip, and the time that replication takes. A
// refusal costs as much; that of TryLock which needs no command is as quick as ever. A request occupies a connection
// while it is on its way: on go-redis of its pool, of which half is used for that at most, on
// rueidis and valkey-go of those for commands that block. A waiter with this option is not handed the lock inside
// its client, but asks for it when it is released.
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
		return r, fail.Invalidf("WithReplicas(%d, %v): at least one replica; omit the option to wait for none", o.n, o.timeout)
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
