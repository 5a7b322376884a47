// Package clock measures time on two clocks at once. A lease is over as soon as either clock reaches its end: the
// monotonic clock stands still while a machine sleeps, and the wall clock may be set back.
package clock

import (
	"sync/atomic"
	"time"
)

// Never is a monotonic time that is never reached.
const Never = int64(1<<63 - 1)

// Instant is a point in time on both clocks.
type Instant struct {
	Mono int64 // nanoseconds since the Clock's epoch
	Wall int64 // nanoseconds since 1970
}

// Clock reads instants. Instants of two clocks must not be compared.
type Clock struct {
	epoch time.Time
	slept *atomic.Int64 // the sum of Sleep's arguments, in nanoseconds
}

// New returns a clock whose monotonic time begins now.
func New() Clock { return Clock{time.Now(), new(atomic.Int64)} }

// Sleep moves the wall clock ahead of the monotonic clock by d, as the sleep of a machine does. It is for tests.
func (k Clock) Sleep(d time.Duration) { k.slept.Add(int64(d)) }

// Epoch returns the time at which the clock's monotonic time began.
func (k Clock) Epoch() time.Time { return k.epoch }

// Now reads both clocks.
func (k Clock) Now() Instant {
	t := time.Now()
	return Instant{Mono: int64(t.Sub(k.epoch)), Wall: t.UnixNano() + k.slept.Load()}
}

// Since returns the monotonic time from i to now.
func (k Clock) Since(i Instant) time.Duration { return k.Now().Sub(i) }

// Add returns the instant d after i.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{Mono: i.Mono + int64(d), Wall: i.Wall + int64(d)}
}

// Sub returns the monotonic time from earlier to i.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i.Mono - earlier.Mono) }

// Reached reports whether now is at or past i on either clock.
func (i Instant) Reached(now Instant) bool { return now.Mono >= i.Mono || now.Wall >= i.Wall }

// Until returns the time from now to i, by the clock that reaches i first.
func (i Instant) Until(now Instant) time.Duration {
	return time.Duration(min(i.Mono-now.Mono, i.Wall-now.Wall))
}

// Later returns the instant of the two that is reached later, as far as is known at now. Where the machine has slept,
// the one that was set before may be later on the monotonic clock, and earlier on the wall clock.
func Later(a, b, now Instant) Instant {
	if a.Until(now) >= b.Until(now) {
		return a
	}
	return b
}

// Margin returns how much earlier the holder ends a lease than the store does: the clocks of both may run at slightly
// different rates.
func Margin(lease time.Duration) time.Duration { return max(10*time.Millisecond, lease/100) }

// Deadline returns the holder's end of a lease that was asked for at sent: Margin before the store can end it.
func Deadline(sent Instant, lease time.Duration) Instant { return sent.Add(lease - Margin(lease)) }

// Outlasting returns a lease that the holder ends after d at the earliest, in whole milliseconds.
func Outlasting(d time.Duration) time.Duration {
	return CeilMilli(max(d+10*time.Millisecond, d*100/99+1))
}

// CeilMilli rounds d up to whole milliseconds.
func CeilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}
