package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
)

// TickRequest claims a tick of a schedule; see [Client.ClaimTick]. Its durations are whole milliseconds.
type TickRequest struct {
	// ID is the claim's own, 1 to 256 bytes of UTF-8 without control characters. A claim whose
	// outcome is unknown, its reply lost, is repeated with the same ID; a claim that was answered
	// is followed by one with another ID, which crypto/rand.Text makes.
	ID string
	// Interval is between 10 ms and 366 days.
	Interval time.Duration
	// Offset moves the ticks. It is zero or more, and less than Interval.
	Offset time.Duration
	// CatchUp is how many ticks before the newest one may be claimed: zero to 1,000, and 366 days
	// back at the most.
	CatchUp int
	// MaxLate is how long after its time a tick may be claimed; zero for no bound.
	MaxLate time.Duration
}

// Tick is the answer to a claim.
type Tick struct {
	// Claimed reports whether the claim was granted a tick.
	Claimed bool
	// At is the tick's time by the store's clock; zero where none was claimed. Of two ticks of one
	// name the later has the larger At, so At can serve as a fencing token: At.UnixMilli().
	At time.Time
	// Next is the time until the next tick can be claimed; zero if one can be claimed now.
	Next time.Duration
}

// ClaimTick claims a tick of a schedule: the oldest one that is due, may still be claimed, and
// comes after all that were. Each tick is granted to one claim in all processes. The ticks are the
// multiples of the interval since the Unix epoch, plus the offset, by the store's clock; the clocks
// of the processes do not matter. Package once, which runs a function at each tick, is built on it.
//
// The store keeps the last tick that was claimed. Where it keeps none, because the name is new or
// the store was emptied, the newest tick may have been claimed: the tick after it is the first that
// is granted. Claims with another interval or offset are granted ticks after the last one, too.
//
// Errors: [ErrUnavailable], [ErrClosed], [ErrInvalidName], [ErrWrongKind], ctx's own; [ErrInvalid]
// where r makes no sense, and with a backend that has no schedules. The outcome of a claim that
// returns ErrUnavailable or ctx's error is not known. All are wrapped in [*Error].
//
// Cost: one command. The schedule of a name is one key of some 100 bytes, which expires an hour and
// two intervals, and those of CatchUp, after the last claim that was granted. It shares nothing
// with the lock of that name.
func (c *Client) ClaimTick(ctx context.Context, name string, r TickRequest) (Tick, error) {
	reply, err := counters.ClaimTick(ctx, c.inner(), backend.TickRequest{
		Name: name, ID: r.ID, Interval: r.Interval, Offset: r.Offset, Missed: r.CatchUp, Late: r.MaxLate,
	})
	return Tick{Claimed: reply.Granted, At: reply.Tick, Next: reply.Next}, err
}
