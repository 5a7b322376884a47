package mortise

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// reenter takes one more hold for o, h's owner or the writer that h was entered under,
// once h is the innermost. It reports ended if h has ended: it then confers nothing. A
// client that is shutting down lets its holders enter again, so that they can finish.
func (c *Client) reenter(ctx, wait context.Context, r *request, h *hold, o *owner) (lease *Lease, ended bool, err error) {
	if r.kind.NonReentrant && h.err() == nil {
		return nil, false, r.fail(fmt.Errorf("%w: the context's lease holds this lock already, and Kind{NonReentrant} does not enter again; unlock it first, or use the reentrant lock", ErrInvalid))
	}
	if o.lent.Load() {
		return c.nestUnder(ctx, wait, r, h)
	}
	ended, err = c.takeTurn(wait, r, o, &turn{hold: h})
	if ended || err != nil {
		return nil, ended, err
	}
	r.outer = h
	c.mu.Lock()
	if o.state != ownerLive { // the writer has ended, the reader under it has not
		o.leave()
		c.mu.Unlock()
		return nil, false, r.fail(errUpgrade)
	}
	if o.lent.Load() {
		o.leave()
		c.mu.Unlock()
		return c.nestUnder(ctx, wait, r, h)
	}
	holds := int(o.live) + 1
	fenced := r.kind.Fenced && !o.fenced
	c.mu.Unlock()

	g := new(grant)
	err = dispatch(c, wait, func() error {
		*g = c.askReentry(r, o.id, holds, fenced)
		return nil
	}, func() { c.undoReentry(o, g) })
	return c.settleReentry(ctx, wait, r, o, g, holds, fenced, err)
}

// takeTurn has o's chain do t's operation next; leave gives it back. It reports ended if
// t's hold has ended.
func (c *Client) takeTurn(wait context.Context, r *request, o *owner, t *turn) (ended bool, err error) {
	now := c.now()
	var fx effects
	c.mu.Lock()
	o.expire(now, &fx)
	t.hold.owner.expire(now, &fx)
	switch {
	case t.hold.cause != nil:
		ended = true
		c.mu.Unlock()
	case r.try && o.taken(t):
		left := o.deadline.until(now)
		c.mu.Unlock()
		err = r.refused(left)
	case o.enter(t):
		c.mu.Unlock()
	default:
		c.mu.Unlock()
		fx.run()
		fx = effects{}
		if err = c.awaitTurn(wait, r, o, t); err == nil {
			c.mu.Lock()
			if ended = t.hold.cause != nil; ended && t.granted {
				o.leave()
			}
			c.mu.Unlock()
		}
	}
	fx.run()
	if err != nil || ended {
		return ended, err
	}
	if wait.Err() != nil {
		c.mu.Lock()
		o.leave()
		c.mu.Unlock()
		return false, r.gaveUp(gone(wait), 0, nil)
	}
	return false, nil
}

// awaitTurn waits for t to be granted, or sent away because its hold ended.
func (c *Client) awaitTurn(wait context.Context, r *request, o *owner, t *turn) error {
	r.fresh = false
	nowWaits(wait)
	if !r.try && r.contends() && c.observer.Waiting != nil {
		c.mu.Lock()
		left := o.deadline.until(c.now())
		c.mu.Unlock()
		c.observer.Waiting(WaitingEvent{Subject: r.subject(), Remaining: left})
	}
	var err error
	select {
	case <-t.ready:
		return nil
	case <-wait.Done():
		err = gone(wait)
	case <-c.closing:
		err = errClosing
	}
	c.mu.Lock()
	o.quit(t)
	left := max(o.deadline.until(c.now()), 0)
	c.mu.Unlock()
	return r.gaveUp(err, left, nil)
}

func (c *Client) askReentry(r *request, owner string, holds int, fenced bool) (g grant) {
	req := backend.ReenterRequest{Kind: r.family, Name: r.name, Owner: owner, Holds: holds, Lease: r.ttl, Fenced: fenced,
		Replicas: r.replicas.n, ReplicaWait: r.replicas.timeout}
	first := c.now()
	for n := 0; ; n++ {
		g.sent = c.now()
		reply, err := c.session.Reenter(c.base, req)
		if err == nil {
			g.granted, g.token, g.err = reply.Held, reply.Token, nil
			if g.granted {
				g.err = r.lacks(reply.Replicas) // the count is then set back
			}
			return g
		}
		g.err = err
		if g.blame(err, g.sent, r.ttl); !c.again(err, n, first) {
			return g
		}
	}
}

func (c *Client) settleReentry(ctx, wait context.Context, r *request, o *owner, g *grant, holds int, fenced bool, err error) (*Lease, bool, error) {
	var caller *callerGone
	if errors.As(err, &caller) {
		return nil, false, r.gaveUp(err, 0, nil)
	}
	if g.err != nil || (g.granted && wait.Err() != nil) {
		failure := g.err
		if failure == nil {
			failure = gone(wait)
		} else {
			failure = c.explain(failure)
		}
		c.undoReentry(o, g)
		return nil, false, r.gaveUp(failure, 0, nil)
	}
	now := c.now()
	var fx effects
	if !g.granted {
		c.mu.Lock()
		o.lose(now, &fx, noRecord)
		o.leave()
		c.mu.Unlock()
		fx.run()
		return nil, false, r.fail(o.lost("it was gone from the store when it was to be entered again"))
	}
	h := new(hold)
	h.begin(ctx, r, c.leases.Add(1), g.sent)
	c.mu.Lock()
	o.expire(now, &fx)
	if o.state != ownerLive {
		o.leave()
		c.mu.Unlock()
		fx.run()
		return nil, false, r.fail(o.lost("its lease ran out while it was entered again"))
	}
	if o.lent.Load() { // meanwhile: somebody may have entered before
		c.mu.Unlock()
		fx.run()
		c.undoReentry(o, g)
		return c.nestUnder(ctx, wait, r, r.outer)
	}
	o.deadline = later(o.deadline, deadlineOf(g.sent, r.ttl))
	o.ttl = max(o.ttl, r.ttl)
	if fenced {
		o.fenced, o.token = true, g.token
	}
	o.attach(h)
	o.settled(holds)
	if h.watchdog {
		o.renewAt = min(o.renewAt, g.sent.mono+int64(c.watchdog/3))
	}
	o.leave()
	c.reschedule(o)
	c.mu.Unlock()
	fx.run()
	c.acquired(r, h, holds)
	return &h.lease, false, nil
}

// undoReentry sets the hold count back to what it is without the re-entry that
// nobody wants, and gives the turn back.
func (c *Client) undoReentry(o *owner, g *grant) {
	var failure error
	c.mu.Lock()
	keep, live := o.count(), o.state == ownerLive
	c.mu.Unlock()
	if live && keep > 0 && (g.granted || g.late > 0) {
		// Where it fails, the next count that is set puts it right, being absolute.
		_, _, failure = c.sendRelease(o.releaseRequest(keep))
	}
	c.mu.Lock()
	if failure != nil && o.state == ownerLive {
		o.countIsStale(c.now())
	}
	o.leave()
	c.mu.Unlock()
}
