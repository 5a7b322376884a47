package group

import (
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a time of the clock that all processes of the machine share, and that goes on while the machine sleeps:
// leases do so, too.
type Instant int64

// Now returns the present.
func Now() Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("group: CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
	}
	return Instant(t.Nano())
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Left returns the time until the instant; negative if it has passed.
func (i Instant) Left() time.Duration { return time.Duration(i - Now()) }
