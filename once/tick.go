package once

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// engineOf returns the engine of a client.
var engineOf = bridge.Engine.(func(*mortise.Client) *engine.Engine)

// TickRequest claims a tick of a schedule; see [TryTick]. Its durations are whole milliseconds.
type TickRequest struct {
	// ID identifies the claim: 1 to 256 bytes of UTF-8 without control characters. Repeat a claim of
	// unknown outcome, whose reply was lost, with the same ID; after a claim that was answered use
	// another ID. crypto/rand.Text makes IDs.
	ID string
	// Interval is between 10 ms and 366 days.
	Interval time.Duration
	// Offset is added to the times of the ticks: zero or more, and less than Interval.
	Offset time.Duration
	// CatchUp is how many ticks before the newest tick may be claimed: zero to 1,000, and at most 366
	// days back.
	CatchUp int
	// MaxLate is how long after its time a tick may be claimed; zero for no bound.
	MaxLate time.Duration
}

// Tick is the answer to a claim.
type Tick struct {
	// Claimed reports whether the claim was granted a tick.
	Claimed bool
	// At is the tick's time by the store's clock; zero if no tick was granted. Of two ticks of a name
	// the later has the larger At, so At can serve as a fencing token: At.UnixMilli().
	At time.Time
	// Next is the time until the next tick can be claimed; zero if one can be claimed now.
	Next time.Duration
}

// TryTick claims a tick of a schedule: the oldest due tick that may still be claimed and is later
// than all claimed ticks. Each tick is granted to one claim among all processes. The ticks are the
// multiples of the interval since the Unix epoch, plus the offset, by the store's clock; the clocks of
// the processes do not matter. [Every], which runs a function at each tick, claims its ticks so.
//
// The store keeps the last claimed tick for 30 days and CatchUp+2 intervals. If the store has none,
// because the name is new, had no granted claim for so long, or the store was emptied, the newest tick
// may have been claimed before, and is not granted: the tick after it is the first. A claim with
// another interval or offset is also granted only ticks later than the last.
//
// If the last claimed tick is ahead of the store's clock, because the clock was set back or was ahead
// for a while, no tick is granted until the clock is there: Next is then more than the interval. The
// client logs such a claim and failed claims ([mortise.WithLogger]), 10 s apart, and tells the observer.
//
// Errors: [mortise.ErrUnavailable], [mortise.ErrClosed], [mortise.ErrInvalidName], [mortise.ErrWrongKind], ctx's own;
// [mortise.ErrInvalid] for a bad r, and with a backend without schedules. The outcome of a claim with ErrUnavailable or
// ctx's error is unknown. All are wrapped in [*mortise.Error].
//
// Cost: one command. The schedule is a key of some 100 bytes, apart from the lock of the same name.
func TryTick(ctx context.Context, c *mortise.Client, name string, r TickRequest) (Tick, error) {
	e := engineOf(c)
	reply, err := counters.ClaimTick(ctx, e, backend.TickRequest{
		Name: engine.FullName(e, name), ID: r.ID, Interval: r.Interval, Offset: r.Offset,
		Missed: r.CatchUp, Late: r.MaxLate,
	})
	return Tick{Claimed: reply.Granted, At: reply.Tick, Next: reply.Next}, err
}
