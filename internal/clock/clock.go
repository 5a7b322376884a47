// Package clock measures time on two clocks at once. A lease is over as soon as either clock says so: the
// monotonic clock stands still while a machine sleeps, and the wall clock may be set back.
package clock

import (
	"sync/atomic"
	"time"
)

// Never is a monotonic time that does not come.
const Never = int64(1<<63 - 1)

// Instant is a point in time on both clocks.
type Instant struct {
	Mono int64 // nanoseconds since the Clock's epoch
	Wall int64 // nanoseconds since 1970
}

// Clock reads instants. Instants of two clocks must not be compared.
type Clock struct {
	epoch time.Time
	slept *atomic.Int64 // by Sleep
}

// New makes a clock whose monotonic time begins now.
func New() Clock { return Clock{time.Now(), new(atomic.Int64)} }

// Sleep has the wall clock gain d on the monotonic one, as when a machine sleeps: for tests.
func (k Clock) Sleep(d time.Duration) { k.slept.Add(int64(d)) }

// Epoch is when the clock's monotonic time began.
func (k Clock) Epoch() time.Time { return k.epoch }

// Now reads both clocks.
func (k Clock) Now() Instant {
	t := time.Now()
	return Instant{Mono: int64(t.Sub(k.epoch)), Wall: t.UnixNano() + k.slept.Load()}
}

// Since is the monotonic time from i to now.
func (k Clock) Since(i Instant) time.Duration { return k.Now().Sub(i) }

// Add is the instant d after i.
func (i Instant) Add(d time.Duration) Instant {
	return Instant{Mono: i.Mono + int64(d), Wall: i.Wall + int64(d)}
}

// Sub is the monotonic time from earlier to i.
func (i Instant) Sub(earlier Instant) time.Duration { return time.Duration(i.Mono - earlier.Mono) }

// Reached reports whether now is at or past i on either clock.
func (i Instant) Reached(now Instant) bool { return now.Mono >= i.Mono || now.Wall >= i.Wall }

// Until is what is left at now, by the clock on which less is left.
func (i Instant) Until(now Instant) time.Duration {
	return time.Duration(min(i.Mono-now.Mono, i.Wall-now.Wall))
}

// Later returns the later of two instants. Both clocks advance alike between the calls that made the
// instants, so comparing one is enough.
func Later(a, b Instant) Instant {
	if a.Mono >= b.Mono {
		return a
	}
	return b
}

// Margin is how much before the store a holder considers its lease over, for clocks that run at slightly
// different rates.
func Margin(lease time.Duration) time.Duration { return max(10*time.Millisecond, lease/100) }

// Deadline is the holder's end of a lease that was asked for at sent.
func Deadline(sent Instant, lease time.Duration) Instant { return sent.Add(lease - Margin(lease)) }

// Outlasting is the lease whose holder's end, margin deducted, is d away.
func Outlasting(d time.Duration) time.Duration {
	return CeilMilli(max(d+10*time.Millisecond, d*100/99+1))
}

// CeilMilli rounds d up to whole milliseconds.
func CeilMilli(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1) / time.Millisecond * time.Millisecond
}
