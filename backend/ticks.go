package backend

import (
	"context"
	"time"
)

// TickStore has schedules: ticks at fixed intervals by the store's clock, of which each is claimed
// at most once. TickStore is a capability: [Capabilities.Ticks].
//
// The ticks of an interval are its multiples since the Unix epoch, plus an offset. A store keeps
// the last claimed tick of a name, and the ID of its claim, for at least [TickRequest.Keep]. A
// claim is granted only a tick after the last claimed tick, whatever the intervals of the two
// claims are.
type TickStore interface {
	// ClaimTick claims the oldest due tick after the last claimed tick and within the request's
	// bounds.
	//
	// A store that has no tick of the name cannot know whether the newest tick was claimed before,
	// nor the newest tick of another interval. It records the present time, without an ID, and
	// refuses: the next tick is the first that can be granted.
	//
	// The same request a second time changes nothing and is granted the same tick, as long as this
	// tick is the last and within the bounds. ClaimTick answers ErrWrongKind if the record holds no
	// tick.
	ClaimTick(ctx context.Context, r TickRequest) (TickReply, error)
}

// TickRequest claims a tick. Its durations are whole milliseconds.
type TickRequest struct {
	Name string
	// ID is never used for another claim, once a claim with this ID was answered.
	ID string
	// Interval is positive. Offset is zero or more, and less than Interval.
	Interval, Offset time.Duration
	// Missed is how many ticks before the newest one the request may claim.
	Missed int
	// Late bounds the time between a tick and its claim; zero for no bound.
	Late time.Duration
}

// Keep returns how long the store keeps the granted tick: 30 days longer than the request can reach
// into the past. After the end the name is new to the store, and no tick that is due is granted; so
// the record is to outlive a stop of all processes.
func (r TickRequest) Keep() time.Duration {
	return time.Duration(r.Missed+2)*r.Interval + 30*24*time.Hour
}

// TickReply answers a TickRequest.
type TickReply struct {
	Granted bool
	// Tick is the time of the granted tick, by the store's clock.
	Tick time.Time
	// Next is the time until the next tick can be claimed; zero if a tick can be claimed now.
	Next time.Duration
}
