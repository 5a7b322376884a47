//go:build linux

package exclusion

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// untilCaught runs until something is wrong, at most for a while.
func (c *crew) untilCaught() (v harness.Verdict) {
	harness.Awaits(patience, func() bool {
		time.Sleep(50 * time.Millisecond)
		v = c.judge()
		return v.Bad()
	})
	return v
}

// recorded reports whether the store has a record of the latest lock.
func (c *crew) recorded(v harness.Verdict) bool {
	c.t.Helper()
	return c.server.Must("EXISTS", c.key(v.Latest.Name)) == int64(1)
}

// selftest has a broken lock run until it is caught, in two processes with so many goroutines. free
// reports whether the store has no record then.
func (c *crew) selftest(client string, goroutines int) (v harness.Verdict, free bool) {
	c.t.Helper()
	c.start(client, goroutines)
	c.start(client, goroutines)
	if began := time.Now(); c.config.Workload == "rounds" {
		v = c.rounds(func(int64) bool { return time.Since(began) > patience })
	} else {
		v = c.untilCaught()
	}
	free = !c.recorded(v)
	c.Finish()
	c.t.Logf("%v\n%s", v, v.Why())
	return v, free
}

// Each broken lock is caught in the same harness, by what is wrong with it.
func TestSelftestCatchesBrokenPlainLocks(t *testing.T) {
	for _, tt := range []struct {
		broken     string
		config     workerConfig
		goroutines int
		caught     func(v harness.Verdict, free bool) bool
	}{
		{"release without owner check", workerConfig{Workload: "crowd", Watchdog: time.Second, Overstay: 20}, 4,
			func(v harness.Verdict, _ bool) bool { return v.Overlaps() }},
		{"wake before subscribe", workerConfig{Workload: "rounds", Watchdog: 10 * time.Second},
			1, // a waiter beside a free lock
			func(v harness.Verdict, free bool) bool { return len(v.Silences) > 0 && free && !v.Overlaps() }},
		{"renewal after release", workerConfig{Workload: "crowd", Watchdog: 3 * time.Second}, 4, // a record without a holder
			func(v harness.Verdict, free bool) bool {
				return len(v.Silences) > 0 && !free && v.Latest.End == harness.Released
			}},
	} {
		for _, client := range harness.Libraries {
			t.Run(tt.broken+", "+client, func(t *testing.T) {
				tt.config.Broken = tt.broken
				v, free := newCrew(t, tt.config).selftest(client, tt.goroutines)
				harness.ErrorIf(t, !tt.caught(v, free),
					"not caught: the lock is free: %v; the latest holder is %v", free, v.Latest)
			})
		}
	}
}

func TestSelftestCatchesBrokenLocksOfTheOtherKinds(t *testing.T) {
	for i, tt := range []struct {
		what, broken string
		stuck        bool
	}{
		{what: "fair", broken: "grant in vain"},
		{what: "rw", broken: "release without owner check"},
		{what: "rw", broken: "downgrade that frees"},
		{what: "semaphore", broken: "release without owner check"},
		{what: "counting semaphore", broken: "release that counts twice"},
		{what: "counting semaphore", broken: "release that does not count", stuck: true},
	} {
		harness.Beside(t, tt.what+", "+tt.broken, func(t *testing.T) {
			client := harness.Libraries[i%2]
			c := newCrew(t, workerConfig{Workload: "crowd", What: tt.what, Watchdog: time.Second, Overstay: 4,
				Broken: tt.broken})
			if tt.what == "fair" {
				c.config.Overstay = 0
			}
			if tt.what == "semaphore" || tt.what == "counting semaphore" {
				c.semaphore(3)
			}
			v, _ := c.selftest(client, 4)
			harness.ErrorIf(t, !tt.stuck && !v.Overlaps(), "more holders at once than there may be were not noticed")
			harness.ErrorIf(t, tt.stuck && (len(v.Silences) == 0 || v.Overlaps()), "permits that are gone were not noticed")
		})
	}
}
