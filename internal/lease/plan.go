package lease

import (
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Plan is when a tenure is renewed. Times are monotonic; clock.Never for no time.
type Plan struct {
	RenewAt  int64 // the lease is renewed
	VerifyAt int64 // the store is asked whether it is still held, without a renewal
	// Renewing: a renewal is on its way. Verify: ask again after it, even if nothing needs renewal.
	Renewing, Verify bool
	Watchdog         time.Duration // the client's timeout
}

// NewPlan is the plan of a tenure that nothing is planned for.
func NewPlan(watchdog time.Duration) Plan {
	return Plan{RenewAt: clock.Never, VerifyAt: clock.Never, Watchdog: watchdog}
}

// Start plans the first renewal of a lease asked for at sent, for h if it wants one.
func (t *Tenure) Start(sent clock.Instant, h *Hold) {
	if h.Marks.Watchdog || t.Mode == Shared && t.TTL > t.Plan.Watchdog {
		t.Plan.RenewAt = min(t.Plan.RenewAt, sent.Mono+int64(t.Plan.Watchdog/3))
	}
}

// Next is when something comes next but the end of the lease.
func (p *Plan) Next() int64 {
	if p.Renewing {
		return clock.Never
	}
	return min(p.RenewAt, p.VerifyAt)
}

// Soon is within what a renewal may be sent early, to go with others.
func (p *Plan) Soon(now clock.Instant) int64 { return now.Mono + int64(p.Watchdog/48) }

// Question is what is to be asked of the store now: for how long to renew, zero only to ask.
func (t *Tenure) Question(now clock.Instant) time.Duration {
	p := &t.Plan
	p.Verify = false
	lease := t.Wants(now)
	if soon := p.Soon(now); p.VerifyAt <= soon && p.RenewAt > soon {
		lease = 0
	}
	p.VerifyAt = clock.Never
	return lease
}

// Renewed notes that the store has renewed the lease for a time, from sent on; zero where it was only asked. It
// reports whether the lease is longer now.
func (t *Tenure) Renewed(sent, now clock.Instant, lease time.Duration) (extended bool) {
	extended = lease > 0 && !t.upholds()
	if extended {
		t.Deadline = clock.Later(t.Deadline, clock.Deadline(sent, lease))
	}
	switch {
	case t.Wants(now) == 0:
		t.Plan.RenewAt = clock.Never
	case lease > 0 || t.Plan.RenewAt == clock.Never:
		t.Plan.RenewAt = sent.Mono + int64(t.Plan.Watchdog/3)
	}
	return extended
}

// Wants says for how long the lease is to be renewed; 0 not at all.
func (t *Tenure) Wants(now clock.Instant) time.Duration {
	// It may have been cut a third of the timeout ago, since the last assertion.
	if left := t.Deadline.Until(now); t.upholds() && left > t.Plan.Watchdog*2/3 {
		return clock.Outlasting(left)
	}
	var want time.Duration
	for h := range t.All {
		end, bounded := h.Until()
		switch {
		case !h.Marks.Watchdog:
		case !bounded:
			return t.Plan.Watchdog
		default:
			want = max(want, min(t.Plan.Watchdog, clock.Outlasting(end.Until(now))))
		}
	}
	return want
}

// upholds tells a reader whose lease is never renewed. Redisson's readers that renew cut the time of the record
// down to their own timeout, and Redisson 3.x that of every reader in it: what is left of a longer lease is asserted
// again, and never becomes more by that.
func (t *Tenure) upholds() bool {
	return t.Mode == Shared && t.Live == 1 && !t.First.Marks.Watchdog
}

// Slept moves what is planned: leases end by the wall clock while a machine sleeps, so they are renewed as much
// earlier.
func (p *Plan) Slept(d time.Duration) {
	if p.RenewAt != clock.Never {
		p.RenewAt -= int64(d)
	}
}
