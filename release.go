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
	x := letting{owner: h.owner}
	var fx effects
	c := h.owner.client
	c.mu.Lock()
	if u.begin(&fx); u.err == nil {
		if x.live = u.ended == nil; !x.live {
			c.running++ // Shutdown does not wait for it as for one that is held
		}
		x.begin()
	}
	c.mu.Unlock()
	fx.run()
	u.endContext()
	if u.err != nil {
		return u.err
	}
	if !x.live {
		defer c.end()
	}
	return u.finish(x.run(ctx))
}

// letting is one release: it sets the hold count in the store to what is live here.
type letting struct {
	owner *owner
	live  bool // the hold was live when Unlock was called

	ready    bool // it has the owner's turn, and what follows is set
	done     bool // the release of another hold, unlocked at the same time, did this one's work
	keep     int
	handover *handover // nil if it is for all

	sent    bool
	held    bool
	failure error // of what was sent first
}

// begin takes the owner's turn if nobody comes before. It is called with the mutex.
func (x *letting) begin() {
	if o := x.owner; !o.busy && o.line == nil {
		o.busy = true
		x.prepare()
	}
}

// await waits for the owner's turn.
func (x *letting) await() {
	o := x.owner
	c := o.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := new(turn); !o.enter(t) {
		c.mu.Unlock()
		<-t.ready
		c.mu.Lock()
	}
	x.prepare()
}

func (x *letting) prepare() {
	x.ready = true
	if x.keep, x.done = x.owner.keep(x.live); !x.done && x.keep == 0 {
		x.handover = x.owner.handover()
	}
}

// run releases for a caller who may leave meanwhile.
func (x *letting) run(ctx context.Context) (keep int, err error) {
	c, family := x.owner.client, x.owner.kind()
	stays := ctx.Done() == nil
	if stays && !x.ready {
		x.await()
	}
	switch {
	case x.done, x.handover.pass():
		return 0, nil
	case stays:
		x.send(c.inPlace(family))
	case x.ready && c.leaves(family): // no goroutine, unless something goes wrong
		x.send(ctx)
	}
	if x.sent && x.failure == nil {
		return x.keep, x.released()
	}
	if stays {
		return x.keep, x.repeat()
	}
	p := &parting{letting: *x}
	if p.left() {
		return 0, gone(ctx)
	}
	err = sendOff(c, ctx, p)
	if _, gone := errors.AsType[*callerGone](err); gone {
		return 0, err // p is the goroutine's until it has answered
	}
	return p.keep, err
}

// send sends the release, for the first time.
func (x *letting) send(ctx context.Context) {
	o := x.owner
	x.sent = true
	if x.handover != nil {
		x.failure = x.handover.send(ctx)
		x.held = x.handover.reply.Held
		return
	}
	reply, err := o.client.session.Release(ctx, o.releaseRequest(x.keep))
	x.held, x.failure = reply.Held, err
}

// repeat goes on after a failure.
func (x *letting) repeat() error {
	o := x.owner
	held, unsure, err := o.client.sendReleaseAfter(o.releaseRequest(x.keep), x.failure)
	return o.released(x.live, x.keep, held, unsure, x.handover, err)
}

func (x *letting) released() error {
	return x.owner.released(x.live, x.keep, x.held, false, x.handover, nil)
}

// parting is a release whose caller may leave it to itself.
type parting struct {
	claimable
	letting
}

func (p *parting) do() error {
	if !p.ready {
		p.await()
	}
	if p.done || !p.sent && p.handover.pass() {
		return nil
	}
	if !p.sent {
		p.send(p.owner.client.inPlace(p.owner.kind()))
	}
	if p.failure == nil {
		return p.released()
	}
	return p.repeat()
}

func (p *parting) orphan() {}

// left tells whether the caller left what was sent, and then settles what becomes of it.
func (p *parting) left() bool {
	c := p.owner.client
	if left, is := errors.AsType[*backend.Left[backend.ReleaseReply]](p.failure); is {
		leftBehind(c, left, func(reply backend.ReleaseReply, err error) {
			p.held, p.failure = reply.Held, err
			_ = p.do()
		})
		return true
	}
	if left, is := errors.AsType[*backend.Left[backend.HandOverReply]](p.failure); is {
		leftBehind(c, left, func(reply backend.HandOverReply, err error) {
			p.handover.reply, p.handover.failure, p.held, p.failure = reply, err, reply.Held, err
			_ = p.do()
		})
		return true
	}
	return false
}

// unlocking is one call of Unlock.
type unlocking struct {
	hold  *hold
	at    instant
	ended error // why the hold had ended before, nil if it was live
	err   error // there is nothing to be released
}

// begin ends the hold, with the mutex.
func (u *unlocking) begin(fx *effects) {
	h := u.hold
	o := h.owner
	c := o.client
	u.at = c.now()
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

// keep is the hold count that a release sets; the turn is o's. It is done, and gives the
// turn back, if the release of another hold, unlocked at the same time, did this one's work.
func (o *owner) keep(live bool) (keep int, done bool) {
	if o.passed || live && o.freed {
		o.leave()
		return 0, true
	}
	if o.state == ownerLive {
		keep = o.count()
	}
	return keep, false
}

// released settles what a release came to, and gives the turn back. h is what was tried first, or nil.
func (o *owner) released(live bool, keep int, held, unsure bool, h *handover, err error) error {
	c := o.client
	var fx effects
	c.mu.Lock()
	foreign := errors.Is(err, backend.ErrWrongKind)
	switch {
	case foreign:
		o.lose(c.now(), &fx, "the store holds other data under its name: somebody has put it there")
	case err != nil && keep > 0:
		if o.state == ownerLive {
			o.repairLater(c.now())
		}
	case err != nil && o.trouble != nil && o.trouble.late > 0: // sweep finds what this was to release, too
		o.trouble.late++
		o.trouble.until = max(o.trouble.until, o.deadline.mono+int64(time.Second))
	case err != nil:
		c.compensateLocked(o.kind(), o.queue.topic.Name, o.id, o.place, 0, o.deadline.mono+int64(time.Second))
	case err == nil && !held && keep > 0:
		o.lose(c.now(), &fx, "the store has no record of it any more: it was removed by somebody, or the store was flushed or restarted empty")
	}
	if err == nil && held && keep > 0 {
		o.settled(keep)
	}
	ask := h == nil || h.settle(err == nil && held)
	if o.state == ownerReleasing && keep == 0 {
		o.state = ownerOver
		o.freed = err == nil && (held || unsure)
		o.sweep()
		c.vacate(o, ask)
	}
	o.leave()
	settled := c.watchSettled(o.queue.topic)
	c.mu.Unlock()
	fx.run()
	if !settled {
		c.syncWatch(o.queue.topic)
	}

	switch {
	case foreign:
		return fmt.Errorf("%w: %w: %w", ErrNotHeld, ErrWrongKind, err)
	case err != nil && c.base.Err() != nil:
		return fmt.Errorf("%w before the release was confirmed; the lock frees itself at the latest when its lease runs out: %w", ErrClosed, notCallers(err))
	case err != nil && keep > 0:
		return fmt.Errorf("%w: the lower hold count is not confirmed and is set again in the background while the lock is held: %w", ErrUnavailable, notCallers(err))
	case err != nil:
		return fmt.Errorf("%w: the release is not confirmed and is retried in the background; the lock frees itself at the latest when its lease runs out: %w", ErrUnavailable, notCallers(err))
	case !held && !unsure && live:
		return fmt.Errorf("%w: %w before it was unlocked: the store has no record of it any more; it was removed by somebody, or the store was flushed or restarted empty", ErrNotHeld, ErrLost)
	}
	return nil
}

func (o *owner) releaseRequest(keep int) backend.ReleaseRequest {
	return backend.ReleaseRequest{Kind: o.kind(), Name: o.queue.topic.Name, Owner: o.id, Keep: keep}
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
