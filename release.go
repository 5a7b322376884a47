package mortise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

func (h *hold) unlock(ctx context.Context) error {
	u := unlocking{hold: h}
	var fx effects
	u.begin(&fx)
	fx.run()
	u.endContext()
	if u.err != nil {
		return u.err
	}
	var keep int
	var err error
	if live := u.ended == nil; ctx.Done() == nil {
		keep, err = h.owner.release(live)
	} else {
		keep, err = h.owner.releaseUnder(ctx, live)
	}
	return u.finish(keep, err)
}

// releaseUnder is release for a caller who may leave meanwhile.
func (o *owner) releaseUnder(ctx context.Context, live bool) (keep int, err error) {
	c := o.client
	x := &letting{owner: o, live: live}
	if c.leaves(o.family) {
		// No goroutine, unless it has to wait for its turn, or something goes wrong.
		c.mu.Lock()
		first := !o.busy && o.line == nil
		if first {
			o.busy = true
		}
		done := false
		if first {
			x.keep, done = o.keep(live)
			if !done && x.keep == 0 {
				x.handover = o.handover()
			}
		}
		c.mu.Unlock()
		switch {
		case done:
			return 0, nil
		case first:
			x.hasTurn = true
			if x.failure = x.send(ctx); x.failure == nil {
				return x.keep, x.released()
			}
			if x.left(x.failure) {
				return 0, gone(ctx)
			}
		}
	}
	err = sendOff(c, ctx, x)
	if _, gone := errors.AsType[*callerGone](err); gone {
		return 0, err // x is the goroutine's until it has answered
	}
	return x.keep, err
}

// letting is one release on its way, for a caller who may leave.
type letting struct {
	claimable
	owner *owner
	live  bool
	keep  int

	hasTurn  bool      // and keep is set
	handover *handover // nil if it is for all
	held     bool
	failure  error // of what was sent first
}

// send sends the release, for the first time.
func (x *letting) send(ctx context.Context) error {
	o := x.owner
	if x.handover != nil {
		err := x.handover.send(ctx)
		x.held = x.handover.reply.Held
		return err
	}
	reply, err := o.client.session.Release(ctx, o.releaseRequest(x.keep))
	x.held = reply.Held
	return err
}

// left tells whether err is that of a release whose caller has left, and then settles what
// becomes of it.
func (x *letting) left(err error) bool {
	c := x.owner.client
	if left, is := errors.AsType[*backend.Left[backend.ReleaseReply]](err); is {
		leftBehind(c, left, func(reply backend.ReleaseReply, err error) {
			x.held = reply.Held
			x.goOn(err)
		})
		return true
	}
	if left, is := errors.AsType[*backend.Left[backend.HandOverReply]](err); is {
		leftBehind(c, left, func(reply backend.HandOverReply, err error) {
			x.handover.reply, x.handover.failure, x.held = reply, err, reply.Held
			x.goOn(err)
		})
		return true
	}
	return false
}

// goOn settles the first that was sent, after its caller has left.
func (x *letting) goOn(err error) {
	if x.failure = err; err == nil {
		_ = x.released()
		return
	}
	_ = x.do()
}

func (x *letting) released() error {
	return x.owner.released(x.live, x.keep, x.held, false, x.handover, nil)
}

func (x *letting) do() (err error) {
	o := x.owner
	if x.hasTurn {
		held, unsure, err := o.client.sendReleaseAfter(o.releaseRequest(x.keep), x.failure)
		return o.released(x.live, x.keep, held, unsure, x.handover, err)
	}
	x.keep, err = o.release(x.live)
	return err
}

func (x *letting) orphan() {}

// unlocking is one call of Unlock.
type unlocking struct {
	hold  *hold
	at    instant
	ended error // why the hold had ended before, nil if it was live
	err   error // there is nothing to be released
}

// begin ends the hold.
func (u *unlocking) begin(fx *effects) {
	h := u.hold
	o := h.owner
	c := o.client
	u.at = c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.unlocked {
		u.err = &Error{Op: "unlock", Name: h.name(), Err: errTwice}
		return
	}
	h.unlocked = true
	if h.cause == nil {
		o.expire(u.at, fx)
	}
	u.ended = h.cause
	if errors.Is(u.ended, ErrClosed) {
		u.err = &Error{Op: "unlock", Name: h.name(), Err: fmt.Errorf("%w: %w before; the lock frees itself when its lease runs out", ErrNotHeld, ErrClosed)}
		return
	}
	if u.ended == nil {
		o.detach(h, ErrReleased)
		if o.live == 0 {
			// No renewal from here on.
			o.state = ownerReleasing
			c.sched.remove(&o.timed)
		} else {
			if o.renewal(u.at) == 0 {
				o.renewAt = never
			}
			c.reschedule(o)
		}
	}
}

// endContext comes after the effects of begin, without the mutex.
func (u *unlocking) endContext() {
	if u.err == nil && u.ended == nil {
		u.hold.end(ErrReleased)
	}
}

// finish makes what the release came to the result of Unlock.
func (u *unlocking) finish(keep int, err error) error {
	h := u.hold
	c := h.owner.client
	caller, gone := errors.AsType[*callerGone](err)
	switch {
	case gone:
		err = fmt.Errorf("%w: the release is sent all the same, its outcome is not known here", caller)
	case u.ended != nil:
		err = fmt.Errorf("%w: %w", ErrNotHeld, u.ended)
	}
	if err != nil {
		err = &Error{Op: "unlock", Name: h.name(), Err: err}
	}
	if f := c.observer.Released; f != nil {
		done := c.now()
		f(ReleasedEvent{
			Subject: h.subject(), Holds: keep, Err: err,
			Held: time.Duration(u.at.mono - h.since.mono), Took: time.Duration(done.mono - u.at.mono),
		})
	}
	return err
}

// release sets the hold count in the store to what is live here. live tells that
// the hold was live when Unlock was called.
func (o *owner) release(live bool) (keep int, err error) {
	c := o.client
	c.mu.Lock()
	if o.busy || o.line != nil {
		t := new(turn)
		if !o.enter(t) {
			c.mu.Unlock()
			<-t.ready
			c.mu.Lock()
		}
	} else {
		o.busy = true
	}
	keep, done := o.keep(live)
	x := letting{owner: o, live: live, keep: keep, hasTurn: true}
	if !done && keep == 0 {
		x.handover = o.handover()
	}
	c.mu.Unlock()
	if done {
		return 0, nil
	}
	if x.failure = x.send(c.inPlace(o.family)); x.failure == nil {
		return keep, x.released()
	}
	return keep, x.do()
}

// keep is the hold count that a release sets; the turn is o's. It is done, and gives the
// turn back, if the release of another hold, unlocked at the same time, did this one's work.
func (o *owner) keep(live bool) (keep int, done bool) {
	if live && o.freed {
		o.leave()
		return 0, true
	}
	if o.state == ownerLive {
		keep = int(o.live)
	}
	return keep, false
}

// released settles what a release came to, and gives the turn back. h is what was tried first, or nil.
func (o *owner) released(live bool, keep int, held, unsure bool, h *handover, err error) error {
	c := o.client
	var fx effects
	now := c.now()
	c.mu.Lock()
	foreign := errors.Is(err, backend.ErrWrongKind)
	switch {
	case foreign:
		o.lose(now, &fx, "the store holds other data under its name: somebody has put it there")
	case err != nil && keep == 0:
		c.compensateLocked(o.family, o.queue.topic.Name, o.id, o.place, 1, o.deadline.mono+int64(time.Second))
	case err == nil && !held && keep > 0:
		o.lose(now, &fx, "the store has no record of it any more: it was removed by somebody, or the store was flushed or restarted empty")
	}
	ask := h == nil || h.settle(err == nil && held)
	if o.state == ownerReleasing && keep == 0 {
		o.state = ownerOver
		o.freed = err == nil && (held || unsure)
		o.sweep()
		c.vacate(o, ask)
	}
	o.leave()
	c.mu.Unlock()
	fx.run()
	c.syncWatch(o.queue.topic)

	switch {
	case foreign:
		return fmt.Errorf("%w: %w: %w", ErrNotHeld, ErrWrongKind, err)
	case err != nil && c.base.Err() != nil:
		return fmt.Errorf("%w before the release was confirmed; the lock frees itself at the latest when its lease runs out: %w", ErrClosed, notCallers(err))
	case err != nil:
		return fmt.Errorf("%w: the release is not confirmed and is retried in the background; the lock frees itself at the latest when its lease runs out: %w", ErrUnavailable, notCallers(err))
	case !held && !unsure && live:
		return fmt.Errorf("%w: %w before it was unlocked: the store has no record of it any more; it was removed by somebody, or the store was flushed or restarted empty", ErrNotHeld, ErrLost)
	}
	return nil
}

func (o *owner) releaseRequest(keep int) backend.ReleaseRequest {
	return backend.ReleaseRequest{Kind: o.family, Name: o.queue.topic.Name, Owner: o.id, Keep: keep}
}

// sendRelease repeats a release that failed for a reason that may pass. unsure tells
// that one whose reply was lost may have done it: then nothing held is as it should be.
func (c *Client) sendRelease(req backend.ReleaseRequest) (held, unsure bool, err error) {
	return c.sendReleaseAfter(req, nil)
}

// sendReleaseAfter is sendRelease after one that was sent just now and failed, if failure is not nil.
func (c *Client) sendReleaseAfter(req backend.ReleaseRequest, failure error) (held, unsure bool, err error) {
	send := func() error {
		reply, err := c.session.Release(c.inPlace(req.Kind), req)
		if err != nil {
			unsure = unsure || backend.FaultOf(err).MayHaveRun
			return err
		}
		held = reply.Held
		return nil
	}
	if failure == nil {
		err = c.insist(send)
	} else {
		unsure = backend.FaultOf(failure).MayHaveRun
		err = c.insistAfter(failure, c.now(), send)
	}
	return held, unsure, err
}
