package engine

import (
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

// tenure is a lease.Tenure with what the store is told of it. Its owner id is never used again, but by a tenure that
// it is handed to within the process, when nothing of it is on its way: what is still on its way when it is over (a
// renewal, a release) can touch no other. Guarded by the engine's mutex.
type tenure struct {
	lease.Tenure
	engine  *Engine
	name    *name
	family  backend.Kind
	handed  bool          // its record is another's now
	freed   bool          // a release set the count to zero, for all holds that had ended by then
	frees   bool          // it is being released in the background, perhaps before a release that is on its way
	place   time.Duration // for how long it asked for a place in the queue of a fair lock
	timer   timerq.Timer
	trouble *trouble  // nil as long as all goes well
	release releasing // of its first hold
}

// of is the tenure of a hold.
func of(h *lease.Hold) *tenure { return ofTenure(h.Tenure) }

func ofTenure(t *lease.Tenure) *tenure { return t.Keeper.(*tenure) }

// Lock takes the engine's mutex.
func (t *tenure) Lock() { t.engine.lock() }

// Unlock lets it go.
func (t *tenure) Unlock() { t.engine.unlock() }

// Err compares the clocks, and is nil while h is live.
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

// kind is what the store is asked by: a tenure that was delegated is not alone in its record.
func (t *tenure) kind() backend.Kind {
	if t.Delegated.Load() {
		return backend.KindDelegated
	}
	return t.family
}

// record is the kind of what is renewed: the record of a fair lock is the plain one's.
func (t *tenure) record() backend.Kind {
	if k := t.kind(); k != backend.KindFair {
		return k
	}
	return backend.KindLock
}

// expire ends what has run out by now: the tenure, or holds with a bound.
func (t *tenure) expire(now clock.Instant) {
	if t.State != lease.Live {
		return
	}
	if t.Deadline.Reached(now) {
		asked := t.Asked(now)
		why := "its lease ran out before it was renewed; the store was unavailable, or the process was paused or starved"
		if x := t.trouble; asked {
			why = "its lease ran out, as WithLease or WithMaxHold asked"
		} else if x != nil && x.last != nil {
			why = fmt.Sprintf("%s; the last renewal failed: %v", why, x.last)
		}
		t.free(now)
		t.endAll(t.lost(why), asked, now)
		return
	}
	before := t.Live
	for h := range t.All {
		if end, bounded := h.Until(); bounded && end.Reached(now) {
			t.finish(h, t.lost("it was held for as long as WithMaxHold allows"), true, now)
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

// free has a tenure whose time is over released where its record may last longer: it was entered, or a call tried to.
// A reader's lease that came under it, or an extension that was answered too late, is the record's, too.
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

// mayLast is until when t's record may last, though t's own time is over, if the store answers no more: the leases in
// the record were asked for before, each for no longer than this.
func mayLast(t *tenure, now clock.Instant) int64 {
	return now.Mono + int64(max(t.TTL, t.Longest(), t.engine.Config.Watchdog)+time.Second)
}

const (
	// noRecord is why a tenure is lost that is not in the store.
	noRecord = "the store has no record of it any more: it was removed, or the store was flushed or restarted empty"
	// otherData is why a tenure is lost whose key holds something else.
	otherData = "the store holds other data under its name"
)

// lose ends the tenure and all its holds: the lock is not ours any more.
func (t *tenure) lose(now clock.Instant, why string) {
	if t.State != lease.Live {
		return
	}
	t.endAll(t.lost(why), false, now)
	if t.family == backend.KindSemaphore && t.Owner != firstPermit(t) { // some of its permits may be out still
		t.engine.renewer.compensate(debtOf(t, 0, t.Deadline.Mono))
	}
}

func (t *tenure) lost(why string) error {
	return fail.New("lease", t.Key.Name, fmt.Errorf("%w: %s", fail.Lost, why))
}

// endAll ends all holds, and the tenure. Asked: their ends are those that Lock was asked for.
func (t *tenure) endAll(cause error, asked bool, now clock.Instant) {
	for h := range t.All {
		t.finish(h, cause, asked, now)
	}
	t.over()
}

// finish ends one hold without an Unlock.
func (t *tenure) finish(h *lease.Hold, cause error, asked bool, now clock.Instant) {
	t.Detach(h, cause)
	e := t.engine
	e.endContext(h, cause)
	if e.announce.Logs() {
		kind := announce.LeaseLost
		if asked {
			kind = announce.LeaseEnded
		}
		e.announce.Sum(kind, "name", fail.Shorten(h.Name()), "owner", t.Owner, "cause", cause)
	}
	tellLost(t, h, now.Sub(h.Since), cause, asked)
}

// over takes the tenure out of the client once its holders have been told.
func (t *tenure) over() {
	t.State = lease.Over
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

// sweep compensates acquisitions of t that were sent before the one that got the lock, that were given up, and
// that may yet arrive.
func (t *tenure) sweep() {
	if x := t.trouble; x != nil && x.late > 0 {
		t.engine.renewer.compensate(debtOf(t, x.late, x.until))
		x.late = 0
	}
}

// debt is what may be left of t's owner in the store.
func debtOf(t *tenure, late int, until int64) debt {
	return debt{family: t.family, name: t.Key.Name, owner: t.Owner, place: t.place, late: late, until: until}
}

// vacate takes t out of this process; the first waiter asks, if it is to, or has been handed the lock.
func (t *tenure) vacate(ask bool) {
	e, n := t.engine, t.name
	e.calls.held--
	e.names.drops(t)
	e.names.part(t)
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
		n.queue().Wake() // it has a time to look now
	}
	e.names.tidy(n)
	e.calls.check()
}

// verify has the store asked whether t still holds what it holds.
func (t *tenure) verify() {
	if t.State != lease.Live {
		return
	}
	t.Plan.Verify = true
	if now := t.engine.Now().Mono; t.Delegated.Load() {
		t.Plan.VerifyAt = now // a renewal would be a change, of which the others are told
	} else {
		t.Plan.RenewAt = now
	}
	t.reschedule()
}

// hinted has the store asked whether t still holds what it holds, since its record has changed. That of a tenure
// that was delegated changes each time that another enters or leaves, and when another is renewed: it is asked
// at most once a second, by a question that changes nothing.
func (t *tenure) hinted() {
	if t.Delegated.Load() {
		t.checkSoon(t.engine.Now())
	} else {
		t.verify()
	}
}

// checkSoon has the store asked within a second, unless that is planned.
func (t *tenure) checkSoon(now clock.Instant) {
	if t.State == lease.Live && t.Plan.VerifyAt == clock.Never {
		t.Plan.VerifyAt = now.Mono + int64(checkWithin*3/4+rand.N(checkWithin/4))
		t.reschedule()
	}
}

// reschedule sets the timer for what comes next.
func (t *tenure) reschedule() {
	if t.State == lease.Live {
		t.engine.renewer.timers.Put(&t.timer, t.due(), t)
	}
}

// due is when something comes next for t.
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

// Slept moves what is planned: see timerq.Sleeper.
func (t *tenure) Slept(d time.Duration) (at int64) {
	t.Plan.Slept(d)
	return t.due()
}

// Fire is a lease or a bound that ran out, or a renewal or a repair that is due.
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

// errUpgrade refuses a writer that comes from a reader.
var errUpgrade = fmt.Errorf("%w: the context's lease holds the read lock, and a reader cannot become a writer: "+
	"two that tried would wait for each other; unlock it first", fail.Invalid)

// isWrongKind reports whether the name holds other data.
func isWrongKind(err error) bool { return errors.Is(err, backend.ErrWrongKind) }
