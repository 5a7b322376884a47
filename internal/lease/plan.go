package lease

import (
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Plan says when a tenure is next renewed or verified. Times are monotonic nanoseconds; clock.Never is no time.
type Plan struct {
	RenewAt  int64 // when to renew the lease
	VerifyAt int64 // when to ask the store, without a renewal, whether the tenure's record is still there
	// Renewing: a request is on its way. Verify: ask the store again afterwards, even if nothing needs renewal.
	Renewing, Verify bool
	// Exact: the next renewal also shortens the record, which lasts longer than any lease that was asked for. Shortened:
	// such a renewal was sent, and no later answer has shown that it helped.
	Exact, Shortened bool
	Unsure           bool          // such a renewal had no answer: it may reach the store later
	Watchdog         time.Duration // the client's watchdog timeout
}

// NewPlan returns a plan with nothing planned.
func NewPlan(watchdog time.Duration) Plan {
	return Plan{RenewAt: clock.Never, VerifyAt: clock.Never, Watchdog: watchdog}
}

// Start plans the first renewal of a lease that was asked for at sent, if the watchdog renews h. A reader's lease that
// is longer than the watchdog timeout gets a plan, too: see upholds.
func (t *Tenure) Start(sent, now clock.Instant, h *Hold) {
	if h.Marks.Watchdog || t.Mode == Shared && t.TTL > t.Plan.Watchdog {
		t.Plan.RenewAt = min(t.Plan.RenewAt, t.Plan.after(sent, now))
	}
}

// after returns when to renew a lease that was asked for at sent: after a third of the watchdog timeout, by the clock
// on which that is over first.
func (p *Plan) after(sent, now clock.Instant) int64 {
	return now.Mono + int64(sent.Add(p.Watchdog/3).Until(now))
}

// Next returns the time of the next request; clock.Never while one is on its way.
func (p *Plan) Next() int64 {
	if p.Renewing {
		return clock.Never
	}
	return min(p.RenewAt, p.VerifyAt)
}

// Soon returns the time up to which a planned request may be sent now, to share a batch: a 48th of the watchdog
// timeout from now.
func (p *Plan) Soon(now clock.Instant) int64 { return now.Mono + int64(p.Watchdog/48) }

// Question returns the lease that a request sent now asks for; zero only verifies. It clears the planned verification.
func (t *Tenure) Question(now clock.Instant) time.Duration {
	p := &t.Plan
	p.Verify = false
	lease := t.Wants(now)
	if soon := p.Soon(now); p.VerifyAt <= soon && p.RenewAt > soon {
		lease = 0
	}
	p.VerifyAt = clock.Never
	if lease > 0 { // a record that has lost its time to live gets this one: it must not end before a longer lease
		lease = max(lease, t.Left(now))
	}
	return lease
}

// Left returns what is left of the lease in the store, or up to 2 ms less: a request for it makes no record longer.
func (t *Tenure) Left(now clock.Instant) time.Duration {
	return clock.Outlasting(t.Deadline.Until(now)) - 2*time.Millisecond
}

// Lasts notes that the record lasts for left after a renewal, exact or not. If that is longer than any lease that the
// tenure can have asked for (the server's clock was set back, or PERSIST or RESTORE has changed the time to live), the
// next renewal is exact, and the first such renewal is due at once. left is zero where the record lasts for no longer
// than was asked.
func (t *Tenure) Lasts(left time.Duration, exact bool, now clock.Instant) {
	p := &t.Plan
	longest := max(t.TTL, t.Longest(), p.Watchdog)
	switch {
	case left > longest+longest/32:
		if p.Exact = true; !p.Shortened {
			p.RenewAt = now.Mono
		}
	case !exact:
		p.Exact, p.Shortened = false, false
	}
}

// Renewed notes a successful request, sent at sent, that asked for lease; zero was a verification without a renewal.
// It reports whether the request was a renewal that can have moved the deadline.
func (t *Tenure) Renewed(sent, now clock.Instant, lease time.Duration) (extended bool) {
	extended = lease > 0 && !t.upholds()
	if extended {
		t.Deadline = clock.Later(t.Deadline, clock.Deadline(sent, lease), now)
	}
	switch {
	case t.Wants(now) == 0:
		t.Plan.RenewAt = clock.Never
	case lease > 0 || t.Plan.RenewAt == clock.Never:
		t.Plan.RenewAt = t.Plan.after(sent, now)
	}
	return extended
}

// Wants returns the lease to ask for in a renewal; 0 if no hold needs a renewal.
func (t *Tenure) Wants(now clock.Instant) time.Duration {
	// The last assertion was a third of the timeout ago. A record that was cut to the timeout since then lasts for
	// two thirds of it at least: only a longer lease needs an assertion.
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

// upholds reports whether t is a reader whose one hold the watchdog does not renew. A reader of Redisson that renews
// cuts the time to live of the record to its own timeout; Redisson 3.x cuts that of every reader in the record. So t
// asserts what is left of a longer lease again, each third of the timeout. An assertion never extends the lease. A
// tenure that an exact renewal of its own may cut (to the timeout at least) asserts likewise, once the watchdog renews
// none of its holds.
func (t *Tenure) upholds() bool {
	if t.Plan.Unsure {
		for h := range t.All {
			if h.Marks.Watchdog {
				return false
			}
		}
		return true
	}
	return t.Mode == Shared && t.Live == 1 && !t.First.Marks.Watchdog
}

// Slept plans the next renewal earlier by d, the time for which the machine slept: the lease ended by the wall clock
// meanwhile, and the monotonic clock stood still.
func (p *Plan) Slept(d time.Duration) {
	if p.RenewAt != clock.Never {
		p.RenewAt -= int64(d)
	}
}
