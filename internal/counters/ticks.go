package counters

import (
	"cmp"
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Bounds of a schedule: its interval, and the number of missed ticks that a claim may catch up on.
const (
	MinInterval = 10 * time.Millisecond
	MaxInterval = 366 * 24 * time.Hour
	MaxCatchUp  = 1000
)

// ClaimTick claims a tick of a schedule.
func ClaimTick(ctx context.Context, e *engine.Engine, r backend.TickRequest) (backend.TickReply, error) {
	n := count(e, backend.Topic{Name: r.Name}, "schedules",
		func(can *backend.Capabilities) backend.TickStore { return can.Ticks })
	if err := cmp.Or(e.Usable(), checkTick(&r)); err != nil {
		return backend.TickReply{}, n.fail("claimtick", err)
	}
	if err := n.Usable(); err != nil {
		return backend.TickReply{}, n.fail("claimtick", err)
	}
	since := e.Now()
	reply, err := ask(ctx, &n, "claimtick", backend.TickStore.ClaimTick, r)
	n.TellClaim(ctx, since, r, reply, err)
	return reply, err
}

func checkTick(r *backend.TickRequest) error {
	switch {
	case r.Interval < MinInterval || r.Interval > MaxInterval:
		return fail.Invalidf("an interval of %v; between %v and %v", r.Interval, MinInterval, MaxInterval)
	case r.Offset < 0 || r.Offset >= r.Interval:
		return fail.Invalidf("an offset of %v; 0 or more, and less than the interval, %v", r.Offset, r.Interval)
	case r.Missed < 0 || r.Missed > MaxCatchUp || time.Duration(r.Missed) > MaxInterval/r.Interval:
		return fail.Invalidf("to catch up on %d ticks, %v apart; between 0 and %d, and at most %v back",
			r.Missed, r.Interval, MaxCatchUp, MaxInterval)
	case r.Late < 0:
		return fail.Invalidf("a MaxLate of %v; positive, or 0 for no bound", r.Late)
	case r.Interval%time.Millisecond != 0:
		return fail.Invalidf("an interval of %v; whole milliseconds", r.Interval)
	case r.Offset%time.Millisecond != 0:
		return fail.Invalidf("an offset of %v; whole milliseconds", r.Offset)
	case r.Late%time.Millisecond != 0:
		return fail.Invalidf("a MaxLate of %v; whole milliseconds", r.Late)
	}
	return engine.CheckID("TickRequest.ID", r.ID)
}
