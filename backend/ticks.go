package backend

import (
	"context"
	"time"
)

// TickStore has schedules: ticks at fixed intervals by the store's clock, each of which is claimed
// at most once. It is a capability: [Capabilities.Ticks].
//
// The ticks of an interval are the multiples of it since the Unix epoch, plus an offset. A store
// keeps the last tick that was claimed of a name, and by which claim, for [TickRequest.Keep] at the
// least. A claim is granted a tick after that one only, whatever the intervals of the two claims
// are.
type TickStore interface {
	// ClaimTick claims the oldest tick that is due, may be claimed, and comes after the last one.
	//
	// A store that keeps no tick of the name cannot know whether the newest one was claimed. It
	// keeps the newest one as claimed by no request, and refuses: the next tick is the first that
	// can be granted.
	//
	// The same request a second time, while the tick that it was granted is the last one and may
	// still be claimed, changes nothing and is granted that tick again. It answers ErrWrongKind
	// where the record holds no tick.
	ClaimTick(ctx context.Context, r TickRequest) (TickReply, error)
}

// TickRequest claims a tick. Its durations are whole milliseconds.
type TickRequest struct {
	Name string
	// ID is never used for another claim, once a claim with it was answered.
	ID string
	// Interval is positive. Offset is zero or more, and less than Interval.
	Interval, Offset time.Duration
	// Missed is how many ticks before the newest one may be claimed.
	Missed int
	// Late is how long after its time a tick may be claimed; zero for no bound.
	Late time.Duration
}

// Keep is how long the store keeps the tick that it grants: longer than a claim may reach back.
func (r TickRequest) Keep() time.Duration {
	return time.Duration(r.Missed+2)*r.Interval + time.Hour
}

// TickReply answers a TickRequest.
type TickReply struct {
	Granted bool
	// Tick is the time of the tick that was granted, by the store's clock.
	Tick time.Time
	// Next is the time until the next tick can be claimed; zero if one can be claimed now.
	Next time.Duration
}
