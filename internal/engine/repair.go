package engine

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/lease"
)

// trouble is what few tenures have.
type trouble struct {
	tenure   *tenure
	failures int   // renewals failed in a row
	last     error // of them
	// until: acquisitions whose outcome is unknown, late in number, may take effect until then.
	late  int32
	until int64
	// repairAt is when the store's hold count is set right again (monotonic; zero if it need not be), and repairs
	// how often that was tried in a row.
	repairAt int64
	repairs  int
}

func (t *tenure) troubled() *trouble {
	if t.trouble == nil {
		t.trouble = &trouble{tenure: t}
	}
	return t.trouble
}

// countIsStale notes that the store's hold count may be higher than t's. Where t was delegated, callees wait for
// the count to fall, so it is set at once; otherwise the next operation that sets it will do.
func (t *tenure) countIsStale(now clock.Instant) {
	if t.Stale = true; t.Delegated.Load() {
		t.troubled().repairSoon(now.Mono)
		t.reschedule()
	}
}

// settled notes that the store has confirmed a hold count. A hold that ran out meanwhile has made it too high already.
func (t *tenure) settled(count int) {
	if count != t.Count() {
		return
	}
	t.Stale = false
	if x := t.trouble; x != nil {
		x.repairAt, x.repairs = 0, 0
	}
}

// repairSoon has the store's hold count set right at a time, unless that is due already.
func (x *trouble) repairSoon(at int64) {
	if x.repairAt == 0 {
		x.repairAt = at
	}
}

// repairLater has the store's hold count set again after a failure, with backoff.
func (x *trouble) repairLater(now clock.Instant) {
	x.tenure.Stale = true
	x.repairs++
	x.repairSoon(now.Mono + int64(min(25*time.Millisecond<<min(x.repairs, 10), time.Second)))
	x.tenure.reschedule()
}

// repair sets the store's hold count to what is live, in the tenure's turn. It does not wait for that: it is sent by
// one of few goroutines.
func (x *trouble) repair() {
	t := x.tenure
	r := releasing{tenure: t, live: true}
	t.engine.lock()
	if t.Stale && t.State == lease.Live { // otherwise the operation before has set it, or the tenure is over
		if turn := new(lease.Turn); t.Enter(turn) {
			r.prepare()
		} else {
			t.Quit(turn)
			x.repairLater(t.engine.Now())
		}
	}
	t.engine.unlock()
	if r.ready {
		_ = r.run(context.Background()) // a failure is followed by another repair
	}
}
