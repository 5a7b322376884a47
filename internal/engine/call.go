package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// call is one call that acquires, with its request.
type call struct {
	Request
	engine     *Engine
	under      context.Context // what the call was given: the lease's parent
	wait       context.Context // bounds the waiting
	ttl        time.Duration   // the lease to ask for
	place      time.Duration   // for how long a place in a fair lock's queue is kept; 0: no place is asked for
	since      clock.Instant   // when it was called
	outer      *lease.Hold     // the live one that it enters under
	delegation *Delegation     // that it enters under; nil if it does not
	key        lease.Key       // what its hold is found by in a context
	waiter     waiter          // its place in the local queue
	asks       question
	marks      callMarks
	site       uintptr // where it was called from
}

// callMarks are what is true of a call.
type callMarks struct {
	fresh     bool  // since is just past: nothing was waited for
	contended bool  // the observer knows that it waits
	endless   bool  // the store said last that only a release will help
	claims    bool  // a refusal of it keeps fresh readers out
	enrols    bool  // a refusal leaves its client's entry in the store's queue
	heard     bool  // of a release, which served no entry
	stays     bool  // if it is granted, the entry stays for those behind it
	sending   bool  // the question's slot is to be given back if the backend panics
	least     int64 // permits that the waiters want at the least
}

// begin sets a call up: ctx is the lease's parent, and the waiting ends with wait.
func (c *call) begin(e *Engine, ctx, wait context.Context, r Request) {
	c.Request, c.engine, c.under, c.wait = r, e, ctx, wait
	c.ttl, c.since = e.Config.lease(&r), e.Now()
	c.asks.call = c
}

// Acquire carries a request out: ctx is the lease's parent, and the waiting ends with wait.
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
		c.notAcquired(err)
		return nil, err
	}
	return h, nil
}

// enter takes the lock under what the context carries; entered is false where that is nothing.
func (c *call) enter() (h *lease.Handle, entered bool, err error) {
	if c.Family == backend.KindSemaphore {
		return nil, false, nil
	}
	c.key = keyOf(c.engine, topicOf(c.Family, c.Name))
	switch x := c.under.Value(&c.key).(type) {
	case *lease.Hold:
		h, ended, err := entry{c, x}.enter()
		return h, !ended, err
	case *Delegation:
		h, err = c.enterDelegated(*x)
		return h, true, err
	}
	return nil, false, nil
}

// lease is what a request asks for.
func (cfg *Config) lease(r *Request) time.Duration {
	switch {
	case r.Lease > 0:
		return r.Lease
	case r.MaxHold > 0:
		return min(cfg.Watchdog, clock.Outlasting(r.MaxHold))
	}
	return cfg.Watchdog
}

func keyOf(e *Engine, t backend.Topic) lease.Key {
	return lease.Key{Client: e.number, Record: uint8(t.Kind), Name: t.Name}
}

// topic is where the call waits.
func (c *call) topic() backend.Topic {
	if c.delegation != nil {
		return backend.Topic{Kind: backend.KindDelegated, Name: c.Name, Owner: c.delegation.Owner}
	}
	return topicOf(c.Family, c.Name)
}

// enrolment is what the call asks of the store's queue.
func (c *call) enrolment() backend.Enrolment {
	if !c.marks.enrols {
		return backend.Enrolment{}
	}
	return backend.Enrolment{
		Entry: uint64(c.asks.entry), Stays: c.marks.stays, Least: c.marks.least, Heard: c.marks.heard,
	}
}

// now is the time; without a look at the clock, if the call has not waited since it began.
func (c *call) now() clock.Instant {
	if c.marks.fresh {
		return c.since
	}
	return c.engine.Now()
}

// ready is now for a call that then waits.
func (c *call) ready() clock.Instant {
	now := c.now()
	c.marks.fresh = false
	return now
}

// gaveUp is Request.GaveUp with what the store said last.
func (c *call) gaveUp(err error, left time.Duration, last error) error {
	if c.marks.endless && left >= 0 && last == nil && fail.WaitIsOver(err) {
		return c.stillHeld(-1)
	}
	return c.GaveUp(err, left, last)
}

// replicable refuses a call that wants replicas and cannot have them.
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

// lacks is why a request that was granted has not got the replicas that it wants; nil if it has.
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

// hold makes h a hold of the call's. It is not yet live.
func (c *call) hold(h *lease.Hold, ctx context.Context, since clock.Instant) {
	h.Number, h.Family, h.Since = c.engine.ids.leases.Add(1), uint8(c.Family), since
	h.MaxHold, h.Marks.Watchdog = c.MaxHold, c.Lease == 0
	h.Outer, h.Under, h.Site = c.outer, ctx, c.site
}
