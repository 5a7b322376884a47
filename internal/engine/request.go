package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/localqueue"
)

// Request is what one call asks for.
type Request struct {
	Name  string
	Verb  string // what to call it in errors, if it is not lock or trylock
	Lacks string // what was missing, in errors; "" for a lock
	localqueue.Wish
	// Family is the record that it is about.
	Family       backend.Kind
	Try          bool
	Fenced       bool
	NonReentrant bool
	Polling      time.Duration // the first pause between asks; 0: releases are announced
	Lease        time.Duration // 0: the watchdog's
	Wait         time.Duration // 0: as long as the context
	MaxHold      time.Duration // 0: no bound
	Replicas     Replicas
	Age          *backend.Age // how old the store must be; nil: any age
	// Resumed: it has been waiting elsewhere, so what fails now is an interruption.
	Resumed bool
}

// Replicas is how many replicas are to have a grant, and for how long they are waited for.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// Op is what errors call the request.
func (r *Request) Op() string {
	switch {
	case r.Verb != "":
		return r.Verb
	case r.Try:
		return "trylock"
	}
	return "lock"
}

// Fail is the error of the request.
func (r *Request) Fail(err error) error { return fail.New(r.Op(), r.Name, err) }

// Refused is the error of a request that does not wait.
func (r *Request) Refused(remaining time.Duration) error {
	return r.notAcquired(remaining, r.missing("holds"))
}

// missing says what stands in the way.
func (r *Request) missing(holds string) string {
	if r.Lacks != "" {
		return r.Lacks
	}
	return "another owner " + holds + " it"
}

func (r *Request) notAcquired(remaining time.Duration, why string) error {
	if r.Family == backend.KindSemaphore || r.Family == backend.KindLatch {
		remaining = 0 // there is no lease that could end
	}
	return fail.Public(&fail.Error{
		Op: r.Op(), Name: r.Name, Remaining: remaining, Err: fmt.Errorf("%w: %s", fail.NotAcquired, why),
	})
}

// GaveUp is the error of a request whose wait ended with err. Left is what is left of the holder's lease,
// negative if the store has not said, and last the store's last failure.
func (r *Request) GaveUp(err error, left time.Duration, last error) error {
	switch {
	case errors.Is(err, fail.Closing):
		return r.Fail(fail.Closed)
	case !fail.WaitIsOver(err):
		return r.Fail(err)
	case last != nil:
		return r.Fail(fmt.Errorf("%w: still so after %v: %w", fail.Unavailable, r.Wait, last))
	case left < 0:
		return r.Fail(fmt.Errorf("%w: the store gave no answer in time, with a wait of %v", fail.Unavailable, r.Wait))
	}
	return r.stillHeld(left)
}

// stillHeld is the error of a request whose wait is over.
func (r *Request) stillHeld(left time.Duration) error {
	return r.notAcquired(left, fmt.Sprintf("%s for all of %v", r.missing("held"), r.Wait))
}

// topicOf is where releases of a kind of lock are announced, and whose queue its waiters stand in. The two sides of a
// read-write lock share one.
func topicOf(family backend.Kind, name string) backend.Topic {
	switch family {
	case backend.KindRead:
		family = backend.KindWrite
	case backend.KindFair, backend.KindDelegated: // where the holder is; waiters have topics of their own
		family = backend.KindLock
	}
	return backend.Topic{Kind: family, Name: name}
}

func lockTopic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

// call is one call that acquires, with its request.
type call struct {
	Request
	errand
	engine *Engine
	under  context.Context // what the call was given: the lease's parent
	wait   context.Context // bounds the waiting
	ttl    time.Duration   // the lease to ask for
	place  time.Duration   // for how long a place in a fair lock's queue is kept; 0: no place is asked for
	since  clock.Instant   // when it was called
	outer  *lease.Hold     // the live one that it enters under
	claim  *Claim          // that it enters under; nil if it does not
	key    lease.Key       // what its hold is found by in a context
	waiter waiter
	got    *lease.Hold // the lease that its last question came to; nil if none
	handed *grant      // what a tenure of this process has got for it; nil if it is to ask
	grant  grant       // what its last question came to
	marks  callMarks
}

// callMarks are what is true of a call.
type callMarks struct {
	fresh     bool // since is just past: nothing was waited for
	contended bool // the observer knows that it waits
	endless   bool // the store said last that only a release will help
	claims    bool // a refusal of it keeps fresh readers out
	relays    bool // it may be handed a record within the process, and be told of releases in turn
	enrols    bool // a refusal leaves its client's entry in the store's queue
}

// Acquire carries a request out: ctx is the lease's parent, and the waiting ends with wait.
func (e *Engine) Acquire(ctx, wait context.Context, r Request) (*lease.Handle, error) {
	if err := e.Usable(); err != nil {
		return nil, r.Fail(err)
	}
	if ctx == nil {
		return nil, r.Fail(fail.NilContext)
	}
	c := &call{Request: r, engine: e, under: ctx, wait: wait, ttl: e.ttl(&r), since: e.Now()}
	c.marks.fresh = true
	if err := c.replicable(); err != nil {
		return nil, r.Fail(err)
	}
	if r.Wait > 0 {
		var cancel context.CancelFunc
		c.wait, cancel = bound.Wait(wait, r.Wait)
		defer cancel()
	}
	h, err := c.take()
	if err != nil {
		c.notAcquired(err)
		return nil, err
	}
	return h, nil
}

// ttl is the lease that a request asks for.
func (e *Engine) ttl(r *Request) time.Duration {
	switch {
	case r.Lease > 0:
		return r.Lease
	case r.MaxHold > 0:
		return min(e.Config.Watchdog, clock.Outlasting(r.MaxHold))
	}
	return e.Config.Watchdog
}

// take acquires by the request's kind, or enters under what the context carries.
func (c *call) take() (*lease.Handle, error) {
	if c.Family != backend.KindPermits {
		c.key = c.engine.key(topicOf(c.Family, c.Name))
		switch x := c.under.Value(&c.key).(type) {
		case *lease.Hold:
			if h, ended, err := c.enter(x); !ended {
				return h, err
			}
		case *Claim:
			return c.enterDelegated(*x)
		}
	}
	switch {
	case c.Try:
		return c.tryOnce()
	case c.Family == backend.KindFair:
		return c.waitInLine()
	}
	return c.queueUp()
}

func (e *Engine) key(t backend.Topic) lease.Key {
	return lease.Key{Client: e, Record: uint8(t.Kind), Name: t.Name}
}

// topic is where the call waits.
func (c *call) topic() backend.Topic {
	if c.claim != nil {
		return backend.Topic{Kind: backend.KindDelegated, Name: c.Name, Owner: c.claim.Owner}
	}
	return topicOf(c.Family, c.Name)
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
