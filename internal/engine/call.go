package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/callsite"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// call is one call that acquires a lock, or waits for a count.
type call struct {
	Request
	engine     *Engine
	under      context.Context   // the context given to the call: the parent of the lease's context
	wait       context.Context   // bounds the waiting
	ttl        time.Duration     // the lease to ask for
	keepFor    time.Duration     // how long the store keeps the place in a fair lock's queue; 0: no place is asked for
	since      clock.Instant     // when the call began
	outer      *lease.Hold       // the hold that the call enters under; nil if there is none
	delegation *lease.Delegation // the delegation that the call enters under; nil if there is none
	key        lease.Key         // finds the lock's hold or delegation in the context
	waiter     waiter            // the ticket in the local queue
	attempt    attempt
	marks      callMarks
	site       callsite.Site // of the call into this module, for the log; 0 if not needed
}

// callMarks are flags of a call, and least.
type callMarks struct {
	fresh     bool  // the call has neither waited nor sent a request, so since serves as the time
	contended bool  // the call had to wait: the observer was told, or is not to be
	claims    bool  // the call is a writer whose refused requests claim the lock: backend.WriteRequest.Claim
	enrols    bool  // a refusal of the request puts the client's entry into the store's queue
	places    bool  // the request asks for the owner of the waiters' place
	heard     bool  // the session reported a release that served no entry: backend.EnrolRequest.Heard
	stays     bool  // backend.Enrolment.Stays: more waiters are behind this one
	sent      bool  // the attempt's request was passed to the store, or is about to be
	sending   bool  // the attempt's request is being sent: abortIf
	asked     uint8 // the kind that the user asked for: Family may become KindDelegated, and back
	least     int32 // the smallest number of permits that a waiter of the name wants: backend.MaxCount at most
}

// begin initializes a call. The lease's context is a child of ctx, and wait bounds the waiting.
func (c *call) begin(e *Engine, ctx, wait context.Context, r Request) {
	c.Request, c.engine, c.under, c.wait = r, e, ctx, wait
	c.ttl, c.since = r.TTL(e.Config.Watchdog), e.Now()
	c.attempt.call, c.marks.asked = c, uint8(r.Family)
}

// Acquire acquires the lock of a request. The lease's context is a child of ctx, and wait bounds the waiting.
func (e *Engine) Acquire(ctx, wait context.Context, r Request) (h *lease.Handle, err error) {
	if err := e.Usable(); err != nil {
		return nil, r.Fail(err)
	}
	if ctx == nil {
		return nil, r.Fail(fail.NilContext)
	}
	c := new(call)
	c.begin(e, ctx, wait, r)
	c.marks.fresh, c.site = true, siteOf(ctx, e)
	if err := c.replicable(); err != nil {
		return nil, r.Fail(err)
	}
	if r.Wait > 0 {
		var cancel context.CancelFunc
		c.wait, cancel = bound.Wait(wait, r.Wait)
		defer cancel()
	}
	h, entered, err := c.enter()
	switch {
	case entered:
	case c.Try:
		h, err = c.tryOnce()
	case c.Family == backend.KindFair:
		h, err = c.queueUpFair()
	default:
		h, err = c.queueUp()
	}
	if err != nil {
		c.nameHolder(err)
		c.notAcquired(err)
		return nil, err
	}
	return h, nil
}

// After a wait of longWait or more that ended in vain, a command asks who holds the lock, and has lookWait for it.
const (
	longWait = time.Second
	lookWait = 250 * time.Millisecond
)

// nameHolder puts the holder into the error of a long wait for a lock.
func (c *call) nameHolder(err error) {
	if c.Wait < longWait || hasCount(c.Family) || !errors.Is(err, fail.NotAcquired) {
		return
	}
	ctx, cancel := context.WithTimeout(c.under, lookWait)
	defer cancel()
	if rec, failed := c.engine.Inspect(ctx, c.Family, c.Name); failed == nil {
		fail.Of(err).Owner = rec.Owner
	}
}

// hasCount reports whether calls of kind k wait for a count or for permits, which no one owner has.
func hasCount(k backend.Kind) bool {
	return k == backend.KindSemaphore || k == backend.KindCountingSemaphore || k == backend.KindCountDownLatch
}

// enter enters the lock under the hold or the delegation that the context carries. It reports entered as false, and
// does nothing, if the context carries none, or a hold that has ended.
func (c *call) enter() (h *lease.Handle, entered bool, err error) {
	if c.Family == backend.KindSemaphore {
		return nil, false, nil
	}
	c.key = keyOf(c.engine, topicOf(c.Family, c.Name))
	switch x := c.under.Value(&c.key).(type) {
	case *lease.Hold:
		h, ended, err := nestedCall{c, x}.enter()
		return h, !ended, err
	case *lease.Delegation:
		h, err = c.enterDelegated(*x)
		return h, true, err
	}
	return nil, false, nil
}

func keyOf(e *Engine, t backend.Topic) lease.Key {
	return lease.Key{Client: e.number, Record: uint8(t.Kind), Name: t.Name}
}

// topic returns the topic of the local queue in which the call waits.
func (c *call) topic() backend.Topic {
	if c.delegation != nil {
		return backend.Topic{Kind: backend.KindDelegated, Name: c.Name, Owner: c.delegation.Owner}
	}
	return topicOf(c.Family, c.Name)
}

// enrolment returns the entry for a request of the call; the zero Enrolment if the call does not enrol.
func (c *call) enrolment() backend.Enrolment {
	if !c.marks.enrols {
		return backend.Enrolment{}
	}
	q := backend.Enrolment{
		Entry: uint64(c.attempt.entry), Stays: c.marks.stays, Least: int64(c.marks.least), Heard: c.marks.heard,
		Grants: c.marks.places,
	}
	if q.Grants {
		q.Instead, _ = c.engine.names.asks(c.topic(), c.attempt.grant.owner)
	}
	return q
}

// gaveUp is GaveUp, which asks the engine why the store has not answered.
func (c *call) gaveUp(err error, left time.Duration, last error) error {
	return c.GaveUp(err, left, last, func() error { return c.engine.Unanswered(c.Name, c.Wait) })
}

// now returns the time. While the call is fresh it does not read the clocks.
func (c *call) now() clock.Instant {
	if c.marks.fresh {
		return c.since
	}
	return c.engine.Now()
}

// ready returns the time of a request that is sent next. The call is not fresh afterwards.
func (c *call) ready() clock.Instant {
	now := c.now()
	c.marks.fresh = false
	return now
}

// replicable returns an error if the call wants replicas, and the store or the lease does not allow that.
func (c *call) replicable() error {
	r, e := c.Replicas, c.engine
	if r.N == 0 {
		return nil
	}
	if !e.store.can.Replicas {
		return fail.Invalidf("WithReplicas does not apply: the backend (%T) has no replicas that can be waited for; "+
			"those of redisgo (with a *redis.Client or *redis.ClusterClient), rueidis and valkey have", e.store.Store)
	}
	if r.Timeout >= c.ttl {
		return fail.Invalidf("WithReplicas(%d, %v): the timeout is to be less than the lease, which is %v",
			r.N, r.Timeout, c.ttl)
	}
	return nil
}

// lacks returns an error if a grant has fewer replicas than the call wants.
func (c *call) lacks(replicas int) error {
	if replicas >= c.Replicas.N {
		return nil
	}
	return &backend.Fault{
		Err: fmt.Errorf("%w: %d of %d replicas acknowledged the lock within %v, so the lock was released",
			fail.NotReplicated, replicas, c.Replicas.N, c.Replicas.Timeout),
		Remedy: "INFO replication on the master tells how many there are and how far behind; bring them back, or ask " +
			"for fewer, or give them more time",
	}
}

// hold initializes h, the hold of the call. The caller makes it live by Tenure.Attach.
func (c *call) hold(h *lease.Hold, ctx context.Context, since clock.Instant) {
	h.Number, h.Family, h.Since = c.engine.ids.leases.Add(1), c.marks.asked, since
	h.MaxHold, h.Marks.Watchdog = c.MaxHold, c.Lease == 0
	h.Outer, h.Under, h.Site = c.outer, ctx, c.site
}
