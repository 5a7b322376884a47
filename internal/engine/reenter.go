package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// goneMeanwhile is the reason in the error of a re-entry whose record is gone.
const goneMeanwhile = "it was gone from the store when it was to be entered again"

// nestedCall is a call that enters the lock under a hold, which its context carries.
type nestedCall struct {
	*call
	hold *lease.Hold
}

// enter enters the lock. It reports ended if the hold has ended: the call then competes for the lock as any other.
func (c nestedCall) enter() (got *lease.Handle, ended bool, err error) {
	h := c.hold
	if c.NonReentrant && h.Err() == nil {
		return nil, false, c.Fail(fail.Invalidf("the context's lease holds this lock already, and a non-reentrant lock is " +
			"not entered again; unlock it first, or use the reentrant lock"))
	}
	t := of(h)
	switch c.Family {
	case backend.KindRead:
		return c.read()
	case backend.KindWrite:
		if t, ended = c.writer(); ended {
			return nil, true, nil
		}
		if t == nil {
			return nil, h.Err() != nil, c.Fail(errUpgrade)
		}
	}
	if t.Delegated.Load() {
		return c.enterAsCallee(h)
	}
	return c.again(t)
}

// writer returns the tenure of the innermost live hold, of c.hold and those that it was entered under, that is not a
// reader's; nil if there is none. It reports ended if c.hold has ended.
func (c nestedCall) writer() (t *tenure, ended bool) {
	h := c.hold
	c.engine.lock()
	defer c.engine.unlock()
	for x := h; x != nil; x = x.Outer {
		if !x.Shared() && x.Cause == nil {
			return of(x), h.Cause != nil
		}
	}
	return nil, h.Cause != nil
}

// read takes the read lock under c.hold, a reader's or a writer's. The new tenure has a lease of its own. In the Order
// of c.hold it waits only for writers that entered from other contexts, and for running operations.
func (c nestedCall) read() (got *lease.Handle, ended bool, err error) {
	h := c.hold
	e, t := c.engine, of(h)
	if ended, err = c.takeTurn(t, &lease.Turn{Hold: h, Shared: true, Lease: c.ttl}); ended || err != nil {
		return nil, ended, err
	}
	c.outer, c.marks.fresh = h, false
	x, err := c.askInTurn(t)
	g := &c.attempt.grant
	switch {
	case err != nil:
		return nil, false, c.gaveUp(err, -1, nil)
	case x != nil:
		return &x.Handle, false, nil
	case g.err != nil:
		return nil, false, c.Fail(e.Explain(g.err))
	case g.reply.Absent:
		return nil, false, c.Fail(t.lost(goneMeanwhile))
	}
	return nil, false, c.Refused(g.reply.Remaining)
}

// askInTurn asks the store while the operation runs in t's Order, and ends the operation, also if an observer panics.
func (c nestedCall) askInTurn(t *tenure) (x *lease.Hold, err error) {
	e := c.engine
	e.begin() // during Shutdown, too: a holder may enter, so that it can finish
	defer e.end()
	defer func() {
		e.lock()
		defer e.unlock()
		if err == nil && c.attempt.grant.reply.Absent {
			t.lose(e.Now(), noRecord)
		}
		t.Leave()
	}()
	return c.attempt.run()
}

// takeTurn waits until the operation turn runs in t's Order; t.Leave ends it. It reports ended, without a running
// operation, if turn.Hold has ended.
func (c nestedCall) takeTurn(t *tenure, turn *lease.Turn) (ended bool, err error) {
	e := c.engine
	now := e.Now()
	e.lock()
	t.expire(now)
	of(turn.Hold).expire(now)
	switch {
	case turn.Hold.Cause != nil:
		ended = true
	case c.Try && t.Taken(turn):
		err = c.Refused(t.Deadline.Until(now))
	case !t.Enter(turn):
		e.unlock()
		err = c.awaitTurn(t, turn)
		e.lock()
		if err == nil {
			if ended = turn.Hold.Cause != nil; ended && turn.Granted() {
				t.Leave()
			}
		}
	}
	if err == nil && !ended && c.wait.Err() != nil {
		t.Leave()
		err = c.gaveUp(fail.Gone(c.wait), 0, nil)
	}
	e.unlock()
	return ended, err
}

// awaitTurn waits until turn runs, or has left the line because its hold ended.
func (c nestedCall) awaitTurn(t *tenure, turn *lease.Turn) error {
	e := c.engine
	c.marks.fresh = false
	bound.Begins(c.wait)
	ready := false
	defer func() {
		if !ready { // the call leaves the line, also if the observer panics
			e.lock()
			t.Quit(turn)
			e.unlock()
		}
	}()
	if !c.Try && c.tellsWaiting() {
		e.lock()
		left := t.Deadline.Until(e.Now())
		e.unlock()
		c.waiting(left)
	}
	var err error
	for closing := e.calls.closing; err == nil; {
		select {
		case <-turn.Ready:
			ready = true
			return nil
		case <-c.wait.Done():
			err = fail.Gone(c.wait)
		case <-closing:
			e.lock()
			taken := t.Taken(turn)
			e.unlock()
			if closing = nil; taken { // otherwise turn runs, or only a running release has to end: a holder may enter
				err = fail.Closing
			}
		}
	}
	e.lock()
	left := max(t.Deadline.Until(e.Now()), 0)
	e.unlock()
	return c.gaveUp(err, left, nil)
}

// reentry is a request for one more hold of a tenure. It is a pending command.
type reentry struct {
	errand
	call   *call
	tenure *tenure
	holds  int
	lease  time.Duration // the longest that the tenure has, the new one included
	fenced bool          // the request draws a token: no earlier hold of the tenure has one
	grant  grant
}

// again takes one more hold of t, once c.hold is the innermost. t is the tenure of c.hold, or of the writer that it
// was entered under. Shutdown does not refuse it, so that holders can finish.
func (c nestedCall) again(t *tenure) (got *lease.Handle, ended bool, err error) {
	e, h := c.engine, c.hold
	if ended, err = c.takeTurn(t, &lease.Turn{Hold: h, Lease: c.ttl}); ended || err != nil {
		return nil, ended, err
	}
	c.outer = h
	x := &reentry{call: c.call, tenure: t}
	e.lock()
	live, delegated := t.State == lease.Live, t.Delegated.Load()
	ended = h.Cause != nil
	if !live || delegated {
		t.Leave()
	}
	x.holds, x.fenced = int(t.Live)+1, c.Fenced && !t.Fence.Drawn
	x.lease = max(c.ttl, t.Left(e.Now()))
	e.unlock()
	switch {
	case !live && ended: // the call competes for the lock as any other
		c.outer = nil
		return nil, true, nil
	case !live: // the writer has ended, and c.hold, a reader's, has not
		return nil, false, c.Fail(errUpgrade)
	case delegated:
		return c.enterAsCallee(h)
	}
	if err = e.carryOut(c.wait, x, false); err != nil {
		return nil, false, c.gaveUp(err, -1, nil)
	}
	return x.makeLease()
}

func (x *reentry) send(ctx context.Context) error {
	c, g := x.call, &x.grant
	q := backend.HoldsRequest{
		Name: c.Name, Owner: x.tenure.Owner, Holds: x.holds, Lease: x.lease, Fenced: x.fenced,
		Replication: backend.Replication{Replicas: c.Replicas.N, ReplicaWait: c.Replicas.Timeout},
	}
	g.sending(c.engine.Now())
	g.sent = g.asked
	reply, err := c.engine.store.kinds[c.Family].setHolds(ctx, q)
	if g.err = err; err != nil {
		g.blame(err, c.ttl)
		return err
	}
	if g.granted, g.reply.Token = reply.Held, reply.Token; g.granted {
		g.err = c.lacks(reply.Replicas) // makeLease then undoes the re-entry
	}
	return nil
}

func (*reentry) left(error) func() error { return nil }

func (x *reentry) finish(err error) error {
	x.grant.resume(x.call, x, err)
	return nil
}

func (x *reentry) dispose() { x.undo() }

func (x *reentry) abort() {
	x.grant.blame(errPanicked, x.call.ttl)
	x.leave(errPanicked, 0)
}

// makeLease makes the re-entry a lease, and ends the running operation of the tenure's Order.
func (x *reentry) makeLease() (*lease.Handle, bool, error) {
	c, t, g := x.call, x.tenure, &x.grant
	e := c.engine
	if g.err != nil || g.granted && c.wait.Err() != nil {
		failure := fail.Gone(c.wait)
		if g.err != nil {
			failure = e.Explain(g.err)
		}
		_ = x.takeBack()
		return nil, false, c.gaveUp(failure, -1, nil)
	}
	h := new(lease.Hold)
	c.hold(h, c.under, g.sent)
	now := e.Now()
	e.lock()
	if why := x.refusal(now); why != "" {
		unlocked := errors.Is(c.outer.Cause, fail.Released) // the release in line covers the new hold, too
		t.Leave()
		e.unlock()
		if unlocked { // the call competes for the lock as any other
			c.outer = nil
			return nil, true, nil
		}
		return nil, false, c.Fail(t.lost(why))
	}
	if t.Delegated.Load() { // delegated meanwhile: a callee may have entered before this hold
		e.unlock()
		if err := x.takeBack(); err != nil {
			return nil, false, c.gaveUp(err, -1, nil)
		}
		return c.enterAsCallee(c.outer)
	}
	t.Deadline = clock.Later(t.Deadline, clock.Deadline(g.sent, c.ttl), now)
	t.TTL = max(t.TTL, c.ttl)
	if x.fenced {
		t.Fence = lease.Fence{Token: g.reply.Token, Drawn: true}
	}
	t.Attach(h)
	t.countConfirmed(x.holds)
	if g.unknown > 0 {
		t.troubled().noteLate(x.holds)
	}
	if h.Marks.Watchdog {
		t.Start(g.sent, now, h)
	}
	t.Leave()
	t.reschedule()
	e.unlock()
	c.acquired(h, x.holds)
	return &h.Handle, false, nil
}

// refusal returns why the tenure cannot be entered; "" if it can. It is called with the mutex.
func (x *reentry) refusal(now clock.Instant) string {
	t := x.tenure
	if !x.grant.granted {
		t.lose(now, noRecord)
		return goneMeanwhile
	}
	if t.expire(now); t.State != lease.Live {
		return "its lease ran out while it was entered again"
	}
	return ""
}

// takeBack is undo for a caller that may leave meanwhile: takeBack then returns *fail.CallerGone.
func (x *reentry) takeBack() error {
	c := x.call
	return c.engine.SendOff(c.wait, func() error { x.undo(); return nil }, nil)
}

// undo sets the store's hold count to that of the live holds, and ends the running operation.
func (x *reentry) undo() {
	t, g := x.tenure, &x.grant
	e := t.engine
	var failure error
	e.lock()
	keep, live := t.Count(), t.State == lease.Live
	e.unlock()
	late := 0
	defer func() { x.leave(failure, late) }()
	if live && keep > 0 && (g.granted || g.unknown > 0) {
		failure, late = errPanicked, keep // until SendRelease returns
		var unsure bool
		if _, unsure, failure = e.SendRelease(t.kind(), releaseOf(t, keep)); !unsure {
			late = 0
		}
	}
}

// leave ends the running operation. If the store's hold count could not be set, the next operation sets it: counts are
// absolute. Late is the hold count that a release of unknown outcome sets; 0: there is none.
func (x *reentry) leave(failure error, late int) {
	t := x.tenure
	e := t.engine
	e.lock()
	defer e.unlock()
	if x.grant.unknown > 0 {
		t.troubled().noteLate(x.holds)
	}
	if late > 0 {
		t.troubled().noteLate(late)
	}
	if failure != nil && t.State == lease.Live {
		t.countIsStale(e.Now())
	}
	t.Leave()
}

// withdrawClaim withdraws, in the background, the claim of a writer that leaves without the lock. A client has one
// claim on a name. If another writer of the client waits, its next request makes the claim again.
func (c *call) withdrawClaim() {
	e, t := c.engine, c.topic()
	s := e.store.can.ReadWrite
	if s == nil {
		return
	}
	e.begin()
	go func() {
		defer e.end()
		// If this fails, the claim ends by itself.
		_ = e.retry.Do(e.base, func() error { return s.Withdraw(e.base, t.Name, e.Config.ID) })
		e.lock()
		defer e.unlock()
		e.names.notify(t)
	}()
}
