package engine

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/lease"
)

// trouble is state that a tenure needs only after failures.
type trouble struct {
	tenure   *tenure
	failures int   // failed renewals in a row
	last     error // the error of the last one
	// late acquisitions of unknown outcome may take effect until the time until (monotonic).
	unknown int32
	until   int64
	// repairAt is when the store's hold count is set again (monotonic); 0: not planned. repairs counts the attempts
	// that have failed in a row.
	repairAt int64
	repairs  int
	// lateCount is the lowest hold count that a request of unknown outcome sets; 0: there is none. See mayDelegate.
	lateCount int
}

func (t *tenure) troubled() *trouble {
	if t.trouble == nil {
		t.trouble = &trouble{tenure: t}
	}
	return t.trouble
}

// untold takes back the log line of failed renewals that will not be retried any more.
func (x *trouble) untold() {
	if x != nil && x.failures > 0 {
		x.tenure.engine.announce.Drop(announce.RenewalFailed, x.tenure.Owner)
	}
}

// noteLate notes that a request of unknown outcome sets the hold count.
func (x *trouble) noteLate(count int) {
	if x.lateCount == 0 || count < x.lateCount {
		x.lateCount = count
	}
}

// mayDelegate reports whether h, a live hold of the tenure, can safely be delegated. A request of unknown outcome that
// sets the hold count may still arrive, after later ones, and set the count back. Then a delegation of an outer hold
// would let a callee in beside an inner hold. And the delegation of a hold above the count would fit no hold of the
// store, so the lock would be taken for lost. Once a tenure is delegated, its count does not rise.
func (x *trouble) mayDelegate(h *lease.Hold) bool {
	if x == nil || x.lateCount == 0 {
		return true
	}
	return x.tenure.Innermost(h, false) && x.tenure.Count() <= x.lateCount
}

// countIsStale notes that the store's hold count may be higher than t's. The next operation of t sets it. Callees of a
// delegated tenure wait for a lower count, so it is set at once then.
func (t *tenure) countIsStale(now clock.Instant) {
	if t.Stale = true; t.Delegated.Load() {
		t.troubled().repairSoon(now.Mono)
		t.reschedule()
	}
}

// countConfirmed notes that the store has confirmed a hold count. If t's count has changed meanwhile, the stored count
// is stale.
func (t *tenure) countConfirmed(count int) {
	if count != t.Count() {
		return
	}
	t.Stale = false
	if x := t.trouble; x != nil {
		x.repairAt, x.repairs = 0, 0
	}
}

// repairSoon plans a repair at a time, unless one is planned.
func (x *trouble) repairSoon(at int64) {
	if x.repairAt == 0 {
		x.repairAt = at
	}
}

// repairLater plans a repair after a failure: 50 ms later, doubling up to a second.
func (x *trouble) repairLater(now clock.Instant) {
	x.tenure.Stale = true
	x.repairs++
	x.repairSoon(now.Mono + int64(min(25*time.Millisecond<<min(x.repairs, 10), time.Second)))
	x.tenure.reschedule()
}

// repair sets the store's hold count to t's, if no other operation of t runs; otherwise it tries again later. It does
// not wait, because it runs on one of a lane's few goroutines.
func (x *trouble) repair() {
	t := x.tenure
	r := releasing{tenure: t, live: true, sent: t.engine.Now().Mono}
	t.engine.lock()
	if t.Stale && t.State == lease.Live { // otherwise another operation has set the count, or the tenure has ended
		if turn := new(lease.Turn); t.Enter(turn) {
			r.prepare()
		} else {
			t.Quit(turn)
			x.repairLater(t.engine.Now())
		}
	}
	t.engine.unlock()
	if r.ready {
		_ = r.run(context.Background()) // a failure plans another repair
	}
}
