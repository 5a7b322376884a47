package mortise

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Option changes one call of Lock or TryLock. Options are comparable values, so
// that a mock can match them: mortise.WithWait(time.Second) == mortise.WithWait(time.Second).
// One that does not apply to a call is refused with [ErrInvalid], never ignored.
type Option interface{ apply(*request) error }

// MinLease is the shortest lease: less would be over, by the safety margin that
// every lease has, about when it began.
const MinLease = 50 * time.Millisecond

// MaxLease is the longest lease.
const MaxLease = 365 * 24 * time.Hour

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

type (
	leaseOption   time.Duration
	waitOption    time.Duration
	maxHoldOption time.Duration
)

func (o leaseOption) apply(r *request) error {
	d := time.Duration(o)
	if d < MinLease || d > MaxLease {
		return fmt.Errorf("%w: WithLease(%v): a lease is between %v and %v", ErrInvalid, d, MinLease, MaxLease)
	}
	r.lease = ceilMilli(d)
	return nil
}

func (o waitOption) apply(r *request) error {
	d := time.Duration(o)
	if r.try {
		return fmt.Errorf("%w: WithWait does not apply to %s, which does not wait; use Lock, or Acquire, to wait", ErrInvalid, r.op())
	}
	if d <= 0 {
		return fmt.Errorf("%w: WithWait(%v): a wait is positive; use TryLock not to wait", ErrInvalid, d)
	}
	r.wait = d
	return nil
}

func (o maxHoldOption) apply(r *request) error {
	d := time.Duration(o)
	if d < MinLease || d > MaxLease {
		return fmt.Errorf("%w: WithMaxHold(%v): between %v and %v", ErrInvalid, d, MinLease, MaxLease)
	}
	r.maxHold = ceilMilli(d)
	return nil
}

// request is one call of Lock or TryLock with its options applied.
type request struct {
	name     string
	verb     string // what to call it in errors, if it is not Lock or TryLock
	short    string // what was missing, in errors; "" for a lock
	kind     Kind
	lease    time.Duration // 0: watchdog
	wait     time.Duration // 0: as long as ctx
	maxHold  time.Duration // 0: no bound
	replicas replicasOption
	age      *backend.Age // how old the store must be; nil: any age

	under context.Context // what the call was given
	ttl   time.Duration   // the lease to ask for
	queue time.Duration   // for how long a place in the queue is kept; 0: no place is asked for
	since instant         // when it was called
	outer *hold           // the live one that it enters under
	claim *Claim          // that it enters under; nil if it does not
	key   holdKey         // what its hold is found by in a context
	// handed is what the holder before has got for it; nil if it is to ask.
	handed *handed
	waiter waiter // that it is, the first time that it stands in a queue

	family    backend.Kind // the record it is about
	try       bool
	contended bool // the observer was told that it waits
	endless   bool // the store said last that only a release will help
	claims    bool // a refusal of it is to keep fresh readers out
	// refusedBefore: it has been waiting elsewhere, so what fails now is an interruption.
	refusedBefore bool
	// relays: a holder of the same client may hand its lock over to it, and its client may be
	// told of releases in turn.
	relays bool
	// waits is what backend.AcquireRequest calls so, of the next request.
	waits  bool
	gate   *gate // once it is known; see gateOf
	fresh  bool  // since is just past: nothing was waited for
	placed bool  // it has a place at the gate
}

// topic is where it waits.
func (r *request) topic() backend.Topic {
	if r.claim != nil {
		return backend.Topic{Kind: backend.KindNested, Name: r.name, Owner: r.claim.Owner}
	}
	return topicOf(r.family, r.name)
}

func (r *request) op() string {
	switch {
	case r.verb != "":
		return r.verb
	case r.try:
		return "trylock"
	}
	return "lock"
}

func newRequest(name string, try bool, kind Kind, opts []Option) (*request, error) {
	r := &request{name: name, try: try, kind: kind}
	if kind.Fair {
		r.family = backend.KindFair
	}
	return r.with(opts)
}

// with applies options and checks the whole.
func (r *request) with(opts []Option) (*request, error) {
	name := r.name
	if err := checkName(name); err != nil {
		return r, r.fail(err)
	}
	for _, o := range opts {
		if o == nil {
			return r, r.fail(fmt.Errorf("%w: a nil Option", ErrInvalid))
		}
		if err := o.apply(r); err != nil {
			return r, r.fail(err)
		}
	}
	if r.lease > 0 && r.maxHold > 0 {
		return r, r.fail(fmt.Errorf("%w: WithMaxHold does not apply together with WithLease, which is never renewed; use one of them", ErrInvalid))
	}
	return r, nil
}

func (r *request) fail(err error) error {
	return &Error{Op: r.op(), Name: r.name, Err: err}
}

func ceilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}
