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
			e.calls.running++ // the tenure may not count in calls.held any more
			x.owes()
		}
		x.sent = u.at.Mono
		x.begin()
	}
	e.unlock()
	if u.err != nil {
		return u.finish()
	}
	u.endContext()
	if !x.live {
		defer e.end()
	}
	if u.result = x.run(ctx); !fail.IsGone(u.result) { // otherwise the goroutine that sends it uses x now
		u.keep = x.keep
	}
	return u.finish()
}

// unlocking is one call of Unlock.
type unlocking struct {
	hold   *lease.Hold
	at     clock.Instant
	ended  error // why the hold had ended before the call; nil if it was live
	err    error // set if there is nothing to release
	keep   int   // the hold count that remains
	result error // of the release
}

// begin ends the hold. It is called with the mutex.
func (u *unlocking) begin() {
	h := u.hold
	t := of(h)
	u.at = t.engine.Now()
	if h.Marks.Unlocked {
		u.err = fail.Twice
		return
	}
	h.Marks.Unlocked = true
	if h.Cause == nil {
		t.expire(u.at)
	}
	u.ended = h.Cause
	switch {
	case errors.Is(u.ended, fail.Closed):
		u.err = fmt.Errorf("%w before the Unlock; the lock frees itself when its lease runs out", fail.Closed)
	case u.ended == nil:
		t.Detach(h, fail.Released)
		u.keep = t.Count()
		if t.Live == 0 { // no renewal is sent from here on
			t.State = lease.Releasing
			t.trouble.untold()
			t.engine.renewer.timers.Remove(&t.timer)
			return
		}
		if t.Wants(u.at) == 0 {
			t.Plan.RenewAt = clock.Never
		}
		t.reschedule()
	}
}

// endContext ends the hold's context. It is called after begin, without the mutex.
func (u *unlocking) endContext() {
	if u.ended == nil {
		u.hold.End(fail.Released)
	}
}

// finish returns the result of Unlock, and reports it to the observer, unless the lease was unlocked before.
func (u *unlocking) finish() error {
	h, err := u.hold, u.result
	e := of(h).engine
	switch {
	case u.err != nil:
		err = u.err
	case u.ended != nil:
		err = u.ended
	case fail.IsGone(err):
		err = fmt.Errorf("%w: the release is sent all the same; its outcome is unknown", err)
	}
	if err != nil {
		err = fail.New("unlock", h.Name(), err)
	}
	if f := e.Config.Observer.Released; f != nil && u.err != fail.Twice {
		v := holdEvent(h)
		v.Holds, v.Err, v.Held, v.Took = u.keep, err, u.at.Sub(h.Since), e.Since(u.at)
		v.Asked = h.Marks.Asked
		f(v)
	}
	return err
}

// releasing is one release: it sets the store's hold count to that of the live holds. It is a pending command.
type releasing struct {
	errand
	live    bool // the hold was live when Unlock was called
	ready   bool // it is the running operation of the tenure's Order, and is prepared
	text    bool // the owner's text is to be removed first, so that followers learn of the release at once
	done    bool // nothing is left to send: it is settled, another release covered it, or the record was handed over
	held    bool
	unsure  bool  // an attempt whose reply was lost may have taken effect: a later reply "not held" is no error
	owed    bool  // it counts in calls.owing
	sent    int64 // when it was first sent (monotonic)
	tenure  *tenure
	keep    int
	handoff *handoff // nil: the release is for all clients
}

// owes notes that Shutdown reports the release if it has no answer, though its lease was lost: the tenure is not
// reported, and the record may last longer than the lease. It is called with the mutex.
func (x *releasing) owes() {
	x.owed = true
	x.tenure.engine.calls.owe(x.tenure.Key.Name)
}

// answered ends owes. It is called with the mutex.
func (x *releasing) answered() {
	if x.owed {
		x.owed = false
		x.tenure.engine.calls.settled(x.tenure.Key.Name)
	}
}

// begin makes the release the running operation of the tenure's Order, if that is idle. It is called with the mutex.
func (x *releasing) begin() {
	if x.tenure.TryBegin() {
		x.prepare()
	}
}

// prepare is prepareForAll, and plans a handoff if the record is released.
func (x *releasing) prepare() {
	if x.prepareForAll(); !x.done && x.keep == 0 {
		x.handoff = newHandoff(x.tenure)
	}
}

// prepareForAll sets the hold count to send. If another release, or a handoff, has covered this one, nothing is to be
// sent, and the operation ends.
func (x *releasing) prepareForAll() {
	t := x.tenure
	x.ready = true
	if t.handedOver || x.live && t.freed {
		t.Leave()
		x.done = true
		x.answered()
		return
	}
	if t.State == lease.Live {
		x.keep = t.Count()
	}
	x.text = t.hasText && t.State == lease.Releasing
}

// await waits until the release is the running operation.
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

// run sends the release for a caller that may leave.
func (x *releasing) run(ctx context.Context) error {
	t := x.tenure
	if x.ready {
		if x.done = x.done || x.handoff.local(); x.done {
			return nil
		}
	}
	leaves := t.engine.store.leaves(t.kind()) && (x.ready || ctx.Done() == nil) && !x.text
	e := t.engine
	way, direct := e.route(ctx, leaves) // from here on as carryOut, without its frame: test/faults bounds them
	if !direct {
		return e.carryOutElsewhere(ctx, x)
	}
	sending := true
	defer abortIf(&sending, x)
	err := e.sent(ctx, x, x.send(way))
	sending = false
	return err
}

func (x *releasing) send(ctx context.Context) error {
	if !x.ready {
		x.await()
		x.sent = x.tenure.engine.Now().Mono
		x.done = x.done || x.handoff.local()
	}
	if x.done {
		return nil
	}
	if x.text {
		removeText(x.tenure)
	}
	if x.handoff != nil {
		return x.noteServe(x.handoff.send(ctx))
	}
	reply, err := x.tenure.engine.store.kinds[x.tenure.kind()].release(ctx, releaseOf(x.tenure, x.keep))
	x.held = reply.Held
	return err
}

// noteServe notes the answer to a handoff.
func (x *releasing) noteServe(reply backend.ServeReply, err error) error {
	x.handoff.reply, x.handoff.failure, x.held = reply, err, reply.Held
	return err
}

func (x *releasing) left(err error) func() error {
	if x.handoff != nil {
		return leftBehind(err, func(reply backend.ServeReply, err error) { _ = x.noteServe(reply, err) })
	}
	return leftBehind(err, func(reply backend.ReleaseReply, _ error) { x.held = reply.Held })
}

func (x *releasing) finish(err error) error {
	if x.done {
		return nil
	}
	t := x.tenure
	switch {
	case err == nil:
	case x.handoff != nil && isWrongKind(err): // of the counter of tokens, perhaps: then the owner has the lock still
		x.held, x.unsure, err = t.engine.SendRelease(t.kind(), releaseOf(t, x.keep))
	default:
		x.held, x.unsure, err = t.engine.resumeRelease(t.kind(), releaseOf(t, x.keep), x.since(), err)
	}
	return x.settle(err)
}

// since returns when the release was first sent.
func (x *releasing) since() time.Time {
	return time.Now().Add(time.Duration(x.sent - x.tenure.engine.Now().Mono))
}

func (*releasing) dispose() {}

func (x *releasing) abort() {
	if x.ready && !x.done {
		x.unsure = true
		if h := x.handoff; h != nil && h.failure == nil { // Serve panicked: it may have granted the lock
			h.failure = errPanicked
		}
		_ = x.settle(errPanicked)
	}
}

// settle applies the answer, and ends the running operation.
func (x *releasing) settle(err error) error {
	t := x.tenure
	e := t.engine
	e.lock()
	x.done = true
	x.answered()
	switch {
	case isWrongKind(err):
		t.lose(e.Now(), otherData)
	case err != nil:
		x.failed()
	case !x.held && x.keep > 0:
		t.lose(e.Now(), noRecord)
	case x.keep > 0:
		t.countConfirmed(x.keep)
	}
	if x.keep > 0 && x.unsure {
		t.troubled().noteLate(x.keep)
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

// failed plans the repetition, in the background, of a release that failed.
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
	case t.trouble != nil && t.trouble.unknown > 0: // sweep releases what this was to release, too
		t.trouble.unknown++
		t.trouble.until = max(t.trouble.until, until)
	default:
		d := debtOf(t, 0, until)
		d.family = t.kind()
		t.engine.renewer.compensate(d)
	}
}

// explain returns the error of Unlock.
func (x *releasing) explain(err error) error {
	switch {
	case isWrongKind(err):
		return fmt.Errorf("%w: %w: %w", fail.Lost, fail.WrongKind, err)
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
		if t := x.tenure; t.Deadline.Reached(t.engine.Now()) {
			return fmt.Errorf("%w, or the release took longer than the lease, which ran out meanwhile: the store has no "+
				"record of it", fail.Lost)
		}
		return fmt.Errorf("%w before the Unlock: %s", fail.Lost, noRecord)
	}
	return nil
}

func releaseOf(t *tenure, keep int) backend.ReleaseRequest {
	return backend.ReleaseRequest{Name: t.Key.Name, Owner: t.Owner, Keep: keep}
}

// SendRelease sends a release, and retries temporary failures. Unsure: an attempt whose reply was lost may have taken
// effect, so a false held is no error.
func (e *Engine) SendRelease(k backend.Kind, q backend.ReleaseRequest) (held, unsure bool, err error) {
	sent := time.Now()
	reply, err := e.store.kinds[k].release(e.unleft(e.store.leaves(k)), q)
	if err == nil {
		return reply.Held, false, nil
	}
	return e.resumeRelease(k, q, sent, err)
}

// resumeRelease is SendRelease after a first attempt, sent at the time sent, that returned failure.
func (e *Engine) resumeRelease(k backend.Kind, q backend.ReleaseRequest, sent time.Time,
	failure error) (held, unsure bool, err error) {
	unsure = backend.FaultOf(failure).MayHaveRun
	err = e.retry.Resume(e.base, failure, sent, func() error {
		reply, err := e.store.kinds[k].release(e.unleft(e.store.leaves(k)), q)
		unsure = unsure || err != nil && backend.FaultOf(err).MayHaveRun
		held = reply.Held
		return err
	})
	return held, unsure, err
}
