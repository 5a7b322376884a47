package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Release ends a hold and releases it in the store.
func (t *tenure) Release(ctx context.Context, h *lease.Hold) error {
	e := t.engine
	u := unlocking{hold: h}
	x := &t.release
	if h != &t.First {
		x = new(releasing)
	}
	e.lock()
	if u.begin(); u.err == nil {
		x.tenure, x.live = t, u.ended == nil
		if !x.live {
			e.calls.running++ // Shutdown does not wait for it as for one that is held
		}
		x.begin()
	}
	e.unlock()
	if u.err != nil {
		return u.err
	}
	u.endContext()
	if !x.live {
		defer e.end()
	}
	if err := x.run(ctx); err != nil {
		if fail.IsGone(err) {
			return u.finish(0, err) // x is not the caller's any more
		}
		return u.finish(x.keep, err)
	}
	return u.finish(x.keep, nil)
}

// unlocking is one call of Unlock.
type unlocking struct {
	hold  *lease.Hold
	at    clock.Instant
	ended error // why the hold had ended before, nil if it was live
	err   error // there is nothing to be released
}

// begin ends the hold, with the mutex.
func (u *unlocking) begin() {
	h := u.hold
	t := of(h)
	u.at = t.engine.Now()
	if h.Marks.Unlocked {
		u.err = fail.New("unlock", h.Name(), fail.Twice)
		return
	}
	h.Marks.Unlocked = true
	if h.Cause == nil {
		t.expire(u.at)
	}
	u.ended = h.Cause
	switch {
	case errors.Is(u.ended, fail.Closed):
		u.err = fail.New("unlock", h.Name(), fmt.Errorf("%w: %w before; the lock frees itself when its lease runs out",
			fail.NotHeld, fail.Closed))
	case u.ended == nil:
		t.Detach(h, fail.Released)
		if t.Live == 0 { // no renewal from here on
			t.State = lease.Releasing
			t.engine.renewer.timers.Remove(&t.timer)
			return
		}
		if t.Wants(u.at) == 0 {
			t.Plan.RenewAt = clock.Never
		}
		t.reschedule()
	}
}

// endContext comes after begin, without the mutex.
func (u *unlocking) endContext() {
	if u.ended == nil {
		u.hold.End(fail.Released)
	}
}

// finish makes what the release came to the result of Unlock. Keep is the hold count that is left.
func (u *unlocking) finish(keep int, err error) error {
	h := u.hold
	e := of(h).engine
	switch {
	case fail.IsGone(err):
		err = fmt.Errorf("%w: the release is sent all the same; its outcome is unknown", err)
	case u.ended != nil:
		err = fmt.Errorf("%w: %w", fail.NotHeld, u.ended)
	}
	if err != nil {
		err = fail.New("unlock", h.Name(), err)
	}
	if f := e.Config.Observer.Released; f != nil {
		v := holdEvent(h)
		v.Holds, v.Err, v.Held, v.Took = keep, err, u.at.Sub(h.Since), e.Since(u.at)
		f(v)
	}
	return err
}

// releasing is one release, a pending command: it sets the hold count in the store to what is live here.
type releasing struct {
	errand
	live    bool // the hold was live when Unlock was called
	ready   bool // it has the tenure's turn, and what follows is set
	done    bool // nothing is to be sent: another release did this one's work, or the record was handed on
	held    bool
	unsure  bool // an attempt whose reply was lost may have done it: then nothing held is as it should be
	tenure  *tenure
	keep    int
	handoff *handoff // nil if it is for all
	at      int      // its place among those of one call
	err     error    // what it came to there
}

// begin takes the tenure's turn if no other operation comes before. It is called with the mutex.
func (x *releasing) begin() {
	if x.tenure.TryBegin() {
		x.prepare()
	}
}

// prepare is prepareForAll, and has the record go on within the process where it can.
func (x *releasing) prepare() {
	if x.prepareForAll(); !x.done && x.keep == 0 {
		x.handoff = newHandoff(x.tenure)
	}
}

// prepareForAll decides what is sent, in the tenure's turn. It gives the turn back if nothing is to be sent because the
// release of another hold, unlocked at the same time, did this one's work.
func (x *releasing) prepareForAll() {
	t := x.tenure
	x.ready = true
	if t.handed || x.live && t.freed {
		t.Leave()
		x.done = true
		return
	}
	if t.State == lease.Live {
		x.keep = t.Count()
	}
}

// await waits for the tenure's turn.
func (x *releasing) await() {
	t := x.tenure
	t.Lock()
	defer t.Unlock()
	if turn := new(lease.Turn); !t.Enter(turn) {
		t.Unlock()
		<-turn.Ready
		t.Lock()
	}
	x.prepare()
}

// run releases for a caller that may leave meanwhile.
func (x *releasing) run(ctx context.Context) error {
	t := x.tenure
	if x.ready {
		if x.done = x.done || x.handoff.local(); x.done {
			return nil
		}
	}
	leaves := t.engine.store.leaves(t.kind()) && (x.ready || ctx.Done() == nil)
	e := t.engine
	returned := false
	defer func() {
		if !returned && x.ready { // the backend panicked
			_ = x.settle(errPanicked)
		}
	}()
	if way, direct := e.route(ctx, leaves); direct { // a lone caller passes as few functions as can be
		err := e.sent(ctx, x, x.send(way))
		returned = true
		return err
	}
	err := e.apart(ctx, x)
	returned = true
	return err
}

// errPanicked is what a release comes to whose backend panics in the caller's goroutine.
var errPanicked = errors.New("the backend panicked")

func (x *releasing) send(ctx context.Context) error {
	if !x.ready {
		x.await()
		x.done = x.done || x.handoff.local()
	}
	if x.done {
		return nil
	}
	if x.handoff != nil {
		return x.handed(x.handoff.send(ctx))
	}
	reply, err := x.tenure.engine.store.kinds[x.tenure.kind()].release(ctx, releaseOf(x.tenure, x.keep))
	x.held = reply.Held
	return err
}

// handed notes what a handoff came to.
func (x *releasing) handed(reply backend.ServeReply, err error) error {
	x.handoff.reply, x.handoff.failure, x.held = reply, err, reply.Held
	return err
}

func (x *releasing) left(err error) func() error {
	if x.handoff != nil {
		return leftBehind(err, func(reply backend.ServeReply, err error) { _ = x.handed(reply, err) })
	}
	return leftBehind(err, func(reply backend.ReleaseReply, _ error) { x.held = reply.Held })
}

func (x *releasing) finish(err error) error {
	if x.done {
		return nil
	}
	if err != nil {
		t := x.tenure
		x.held, x.unsure, err = t.engine.resumeRelease(t.kind(), releaseOf(t, x.keep), time.Now(), err)
	}
	return x.settle(err)
}

func (*releasing) dispose() {}

// settle settles what a release came to, and gives the tenure's turn back.
func (x *releasing) settle(err error) error {
	t := x.tenure
	e := t.engine
	e.lock()
	switch {
	case isWrongKind(err):
		t.lose(e.Now(), otherData)
	case err != nil:
		x.failed()
	case !x.held && x.keep > 0:
		t.lose(e.Now(), noRecord)
	case x.keep > 0:
		t.settled(x.keep)
	}
	ask := x.handoff == nil || x.handoff.settle(err == nil && x.held)
	if t.State == lease.Releasing && x.keep == 0 {
		t.State = lease.Over
		t.freed = err == nil && (x.held || x.unsure)
		t.sweep()
		t.vacate(ask)
	}
	x.unsure = x.unsure || t.frees
	t.Leave()
	e.names.watches.update(t.name.topic)
	e.unlock()
	return x.explain(err)
}

// failed has a release that failed repeated in the background.
func (x *releasing) failed() {
	t := x.tenure
	until := t.Deadline.Mono + int64(time.Second)
	if t.Mode == lease.Admitting && t.Entered() {
		until = mayLast(t, t.engine.Now())
	}
	t.frees = t.frees || x.keep == 0
	switch {
	case x.keep > 0:
		if t.State == lease.Live {
			t.troubled().repairLater(t.engine.Now())
		}
	case t.trouble != nil && t.trouble.late > 0: // sweep finds what this was to release, too
		t.trouble.late++
		t.trouble.until = max(t.trouble.until, until)
	default:
		d := debtOf(t, 0, until)
		d.family = t.kind()
		t.engine.renewer.compensate(d)
	}
}

// explain is what Unlock says of a release.
func (x *releasing) explain(err error) error {
	switch {
	case isWrongKind(err):
		return fmt.Errorf("%w: %w: %w", fail.NotHeld, fail.WrongKind, err)
	case err != nil && x.tenure.engine.base.Err() != nil:
		return fmt.Errorf("%w before the release was confirmed; the lock frees itself at the latest when its lease runs "+
			"out: %w", fail.Closed, fail.NotCallers(err))
	case err != nil && x.keep > 0:
		return fmt.Errorf("%w: the lower hold count is not confirmed and is set again in the background while the lock is "+
			"held: %w", fail.Unavailable, fail.NotCallers(err))
	case err != nil:
		return fmt.Errorf("%w: the release is not confirmed and is retried in the background; the lock frees itself at the "+
			"latest when its lease runs out: %w", fail.Unavailable, fail.NotCallers(err))
	case !x.held && !x.unsure && x.live:
		return fmt.Errorf("%w: %w before the Unlock: %s", fail.NotHeld, fail.Lost, noRecord)
	}
	return nil
}

func releaseOf(t *tenure, keep int) backend.ReleaseRequest {
	return backend.ReleaseRequest{Name: t.Key.Name, Owner: t.Owner, Keep: keep}
}

// SendRelease repeats a release that fails for a reason that may pass. Unsure tells that an attempt whose reply
// was lost may have done it: then nothing held is as it should be.
func (e *Engine) SendRelease(k backend.Kind, q backend.ReleaseRequest) (held, unsure bool, err error) {
	sent := time.Now()
	reply, err := e.store.kinds[k].release(e.unleft(e.store.leaves(k)), q)
	if err == nil {
		return reply.Held, false, nil
	}
	return e.resumeRelease(k, q, sent, err)
}

// resumeRelease is SendRelease after an attempt that was sent at a time and failed.
func (e *Engine) resumeRelease(k backend.Kind, q backend.ReleaseRequest, sent time.Time,
	failure error) (held, unsure bool, err error) {
	unsure = backend.FaultOf(failure).MayHaveRun
	err = e.retry.Resume(failure, sent, func() error {
		reply, err := e.store.kinds[k].release(e.unleft(e.store.leaves(k)), q)
		unsure = unsure || err != nil && backend.FaultOf(err).MayHaveRun
		held = reply.Held
		return err
	})
	return held, unsure, err
}
