package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/timerq"
)

// tenure is a lease.Tenure with its engine and its requests. Its owner id is never used again, except by a local
// handoff, which requires that no request with the id is on its way. So a late renewal or release of an ended tenure
// cannot touch another tenure. Guarded by the engine's mutex.
type tenure struct {
	lease.Tenure
	engine     *Engine
	name       *name
	family     backend.Kind
	handedOver bool          // a local handoff gave the record to another tenure
	freed      bool          // a release set the count to zero, for all holds that had ended by then
	frees      bool          // it is being released in the background, perhaps before a release that is on its way
	keepFor    time.Duration // for how long it asked for a place in the queue of a fair lock
	timer      timerq.Timer
	hasText    bool      // the store may have a text of the owner: the release removes the text first
	first      int32     // the lease of a grant by a message, in ms, until it is confirmed; then 0
	trouble    *trouble  // nil if no request failed
	release    releasing // of the first hold: it needs no allocation
}

// of returns the tenure of a hold.
func of(h *lease.Hold) *tenure { return ofTenure(h.Tenure) }

func ofTenure(t *lease.Tenure) *tenure { return t.Keeper.(*tenure) }

// Lock locks the engine's mutex.
func (t *tenure) Lock() { t.engine.lock() }

// Unlock unlocks the engine's mutex, and carries out the effects.
func (t *tenure) Unlock() { t.engine.unlock() }

// Now returns the time by the client's clock.
func (t *tenure) Now() clock.Instant { return t.engine.Now() }

// Err returns nil while h is live, and then the cause of its end. It reads the clocks, and ends what has run out.
func (t *tenure) Err(h *lease.Hold) error {
	now := t.engine.Now()
	t.engine.lock()
	if h.Cause == nil {
		t.expire(now)
	}
	cause := h.Cause
	t.engine.unlock()
	return cause
}

// kind returns the kind whose methods release t: KindDelegated if the record may have other owners.
func (t *tenure) kind() backend.Kind {
	if t.Delegated.Load() {
		return backend.KindDelegated
	}
	return t.family
}

// record returns the kind whose methods renew t. The record of a fair lock is the plain lock's.
func (t *tenure) record() backend.Kind {
	if k := t.kind(); k != backend.KindFair {
		return k
	}
	return backend.KindLock
}

// expire ends the tenure if its lease has run out by now, or else its holds whose MaxHold is over.
func (t *tenure) expire(now clock.Instant) {
	if t.State != lease.Live {
		return
	}
	if t.Deadline.Reached(now) {
		cause, why := t.lost("its lease ran out, as WithLease or WithMaxHold asked"), byOption
		if !t.Asked(now) {
			why, cause = t.ranOut(now)
		}
		t.free(now)
		t.endAll(cause, why, now)
		return
	}
	before := t.Live
	for h := range t.All {
		if end, bounded := h.Until(); bounded && end.Reached(now) {
			t.finish(h, t.lost("it was held for as long as WithMaxHold allows"), byOption, now)
		}
	}
	if t.Live > 0 && t.Live < before {
		t.countIsStale(now)
	}
	if t.Live == 0 {
		t.free(now)
		t.over()
	}
}

// ranOut returns the reason and the cause of a lease that ran out before it was renewed. It reports a renewal without
// an answer to the observer: it may wait in the client library, and have failed nowhere.
func (t *tenure) ranOut(now clock.Instant) (why reason, cause error) {
	const text, or = "its lease ran out before it was renewed", "the store was unavailable, or the process was paused " +
		"or starved"
	x, e := t.trouble, t.engine
	failedBefore := ""
	if x != nil && x.last != nil {
		failedBefore = fmt.Sprintf("; the last renewal failed: %v", x.last)
	}
	switch {
	case t.Plan.Renewing:
		err := errors.New("no answer to the renewal: " + or)
		if busy := e.store.busy(t.Key.Name); busy != nil {
			err = fmt.Errorf("no answer to the renewal: %w", busy)
		}
		t.tellRenewalFailed(0, err)
		return byStore, t.lost(fmt.Sprintf("%s; %v%s", text, err, failedBefore))
	case failedBefore != "":
		return byStore, t.lost(text + failedBefore)
	}
	return byPause, t.lost(text + "; " + or)
}

// tellRenewalFailed reports a failed renewal to the observer. Left is the rest of the lease.
func (t *tenure) tellRenewalFailed(left time.Duration, err error) {
	if f := t.engine.Config.Observer.RenewalFailed; f != nil {
		t.engine.tell(func() {
			v := tenureEvent(t)
			v.Remaining, v.Err = left, err
			f(v)
		})
	}
}

// free releases, in the background, the record of a tenure whose lease has run out, if the record may last longer: by
// a re-entry whose answer came too late or never, or by a reader that entered under t.
func (t *tenure) free(now clock.Instant) {
	if t.Mode == lease.Shared || !t.Entered() {
		return
	}
	e := t.engine
	d := debtOf(t, 0, mayLast(t, now))
	d.family = t.kind()
	e.renewer.compensate(d)
	t.frees = true
}

// mayLast returns until when t's record may last after t's lease has run out. All leases in the record were asked for
// before now, and none is longer than the maximum here.
func mayLast(t *tenure, now clock.Instant) int64 {
	return now.Mono + int64(max(t.TTL, t.Longest(), t.engine.Config.Watchdog)+time.Second)
}

const (
	// noRecord is the reason of a loss: the store has no record of the tenure.
	noRecord = "the store has no record of it any more: it was removed, or the store was flushed or restarted empty"
	// otherData is the reason of a loss: the key has other data.
	otherData = "the store holds other data under its name"
	// forced is the reason of a loss by ForceUnlock of this client.
	forced = "ForceUnlock removed it"
)

// lose ends the tenure and all its holds because another owner may hold the lock.
func (t *tenure) lose(now clock.Instant, why string) {
	if t.State != lease.Live {
		return
	}
	t.endAll(t.lost(why), reasonOf(why), now)
	if t.family == backend.KindSemaphore && t.Owner != firstPermit(t) { // some of its permits may still be in use
		t.engine.renewer.compensate(debtOf(t, 0, t.Deadline.Mono))
	}
}

func (t *tenure) lost(why string) error {
	return fail.New("lease", t.Key.Name, fmt.Errorf("%w: %s", fail.Lost, why))
}

// endAll ends all holds, and the tenure.
func (t *tenure) endAll(cause error, why reason, now clock.Instant) {
	for h := range t.All {
		t.finish(h, cause, why, now)
	}
	t.over()
}

// finish ends a hold without an Unlock.
func (t *tenure) finish(h *lease.Hold, cause error, why reason, now clock.Instant) {
	t.Detach(h, cause)
	h.Marks.Asked = why == byOption
	e := t.engine
	e.endContext(h, cause)
	if e.announce.Logs() {
		kind := announce.LeaseLost
		if why == byOption {
			kind = announce.LeaseEnded
		}
		e.announce.Sum(kind, "", "name", fail.Shorten(h.Name()), "owner", t.Owner, "cause", cause)
	}
	tellLost(t, h, now.Sub(h.Since), cause, why)
}

// over ends the tenure. An effect removes it from the engine's state once the contexts of its holds have ended.
func (t *tenure) over() {
	t.State = lease.Over
	t.trouble.untold()
	e := t.engine
	e.renewer.timers.Remove(&t.timer)
	e.after(func() {
		e.lock()
		t.sweep()
		t.vacate(true)
		e.names.watches.update(t.name.topic)
		e.unlock()
	})
}

// sweep compensates requests of unknown outcome that were sent for t's owner.
func (t *tenure) sweep() {
	if x := t.trouble; x != nil && x.unknown > 0 {
		t.engine.renewer.compensate(debtOf(t, x.unknown, x.until))
		x.unknown = 0
	}
}

// debtOf returns the debt of t's owner.
func debtOf(t *tenure, late int32, until int64) debt {
	return debt{family: t.family, name: t.Key.Name, owner: t.Owner, keepFor: t.keepFor, unknown: late, until: until}
}

// vacate removes t from the engine's state. Ask: the first waiter is to ask if the lock is free now.
func (t *tenure) vacate(ask bool) {
	e, n := t.engine, t.name
	e.calls.held--
	e.names.drops(t)
	e.names.removeCallee(t)
	exclusive := n.Holder == &t.Tenure
	free := n.Dismiss(&t.Tenure)
	if exclusive {
		n.queue().Hold(false)
	}
	switch {
	case !free:
	case ask:
		n.queue().Notify()
	default:
		n.queue().Wake() // while t held the record, the waiter slept without a time
	}
	e.names.tidy(n)
	e.calls.check()
}

// verify asks the store at once whether t is still held, by a request that may also renew it, unless t is delegated.
// After a failed renewal the retry asks: each interruption of the session calls verify, and an outage has many.
func (t *tenure) verify() {
	if t.State != lease.Live {
		return
	}
	t.Plan.Verify = true
	x, now := t.trouble, t.engine.Now().Mono
	switch {
	case x != nil && x.failures > 0 && t.Plan.RenewAt != clock.Never: // a retry is planned
	case t.Delegated.Load():
		t.Plan.VerifyAt = now // a renewal would be a change, of which the other owners are notified
	default:
		t.Plan.RenewAt = now
	}
	t.reschedule()
}

// granted returns the lease that the store has granted t: TTL, or less until a grant by a message is confirmed.
func (t *tenure) granted() time.Duration {
	if t.first > 0 {
		return time.Duration(t.first) * time.Millisecond
	}
	return t.TTL
}

// confirmLater plans the renewal that confirms a grant by a message: until then its lease is short, and shorter than
// WithMaxHold allows by the time that the message took.
func (t *tenure) confirmLater(g *grant, now clock.Instant) {
	if g.first == 0 || g.lease() >= t.TTL && t.First.MaxHold == 0 {
		return
	}
	t.first = g.first
	t.Plan.RenewAt = min(t.Plan.RenewAt, cmp.Or(g.verifyAt, now.Mono+int64(confirmAfter)))
}

// hinted verifies t after a change of its record. The record of a delegated tenure changes each time that another
// owner enters, leaves or renews. So such a tenure is verified only about once a second.
func (t *tenure) hinted() {
	if t.Delegated.Load() {
		t.checkSoon(t.engine.Now())
	} else {
		t.verify()
	}
}

// checkSoon plans a verification within checkWithin, unless one is planned.
func (t *tenure) checkSoon(now clock.Instant) {
	if t.State == lease.Live && t.Plan.VerifyAt == clock.Never {
		t.Plan.VerifyAt = now.Mono + int64(checkWithin*3/4+rand.N(checkWithin/4))
		t.reschedule()
	}
}

// reschedule sets the timer to the next due time.
func (t *tenure) reschedule() {
	if t.State == lease.Live {
		t.engine.renewer.timers.Put(&t.timer, t.due(), t)
	}
}

// due returns the next time at which t has work: an end, a request, a warning or a repair.
func (t *tenure) due() int64 {
	q := t.engine.renewer.timers
	at := min(q.DueAt(t.Deadline), t.Plan.Next())
	for h := range t.All {
		if end, bounded := h.Until(); bounded {
			at = min(at, q.DueAt(end))
		}
		at = min(at, warnAt(t, h))
	}
	if x := t.trouble; x != nil && x.repairAt != 0 {
		at = min(at, x.repairAt)
	}
	return at
}

// Slept implements timerq.Sleeper.
func (t *tenure) Slept(d time.Duration) (at int64) {
	t.Plan.Slept(d)
	return t.due()
}

// Fire implements timerq.Task: it does the work of t that is due.
func (t *tenure) Fire(now clock.Instant) {
	t.expire(now)
	if t.State != lease.Live {
		return
	}
	warn(t, now)
	if t.Plan.Next() <= now.Mono {
		t.engine.renewer.queue(t)
	}
	if x := t.trouble; x != nil && x.repairAt != 0 && x.repairAt <= now.Mono {
		x.repairAt = 0
		t.engine.renewer.lane(t.Key.Name).jobs.Push(x.repair)
	}
	t.reschedule()
}

// errUpgrade is the error of a reader that asks for the write lock.
var errUpgrade = fmt.Errorf("%w: the context's lease holds the read lock, and a reader cannot become a writer: "+
	"two that tried would wait for each other; unlock it first", fail.Invalid)

// isWrongKind reports whether the store's key has other data.
func isWrongKind(err error) bool { return errors.Is(err, backend.ErrWrongKind) }
