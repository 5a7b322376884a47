//go:build linux

package exclusion

import (
	"testing"
	"time"
)

// Each broken lock must be caught, by what is wrong with it, in the same harness.

// untilCaught runs until something is wrong, at most for a while.
func (c *crew) untilCaught() verdict {
	c.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if v := c.judge(); v.bad() || time.Now().After(end) {
			return v
		}
	}
}

// recorded tells whether the store has a record of the latest lock.
func (c *crew) recorded(v verdict) bool {
	c.t.Helper()
	n, err := c.server.Do("EXISTS", c.key(v.latest.name))
	if err != nil {
		c.t.Fatal(err)
	}
	return n == int64(1)
}

func TestSelftestCatchesAReleaseWithoutOwnerCheck(t *testing.T) {
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: time.Second, Overstay: 20, Broken: "release without owner check"})
			c.start(client, 4)
			c.start(client, 4)
			v := c.untilCaught()
			c.finish()
			t.Logf("%v\n%s", v, v.why())
			if len(v.violations) == 0 {
				t.Error("two holders at once were not noticed")
			}
		})
	}
}

func TestSelftestCatchesAWakeBeforeSubscribe(t *testing.T) {
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			c := newCrew(t, workerConfig{Workload: "rounds", Watchdog: 10 * time.Second, Broken: "wake before subscribe"})
			c.start(client, 1)
			c.start(client, 1)
			began := time.Now()
			v := c.rounds(func(int64) bool { return time.Since(began) > patience })
			free := !c.recorded(v)
			c.finish()
			t.Logf("%v\n%s", v, v.why())
			if len(v.silences) == 0 || !free || len(v.violations) != 0 {
				t.Errorf("a waiter beside a free lock was not noticed: free=%v", free)
			}
		})
	}
}

func TestSelftestCatchesARenewalAfterRelease(t *testing.T) {
	for _, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: 3 * time.Second, Broken: "renewal after release"})
			c.start(client, 4)
			c.start(client, 4)
			v := c.untilCaught()
			free := !c.recorded(v)
			c.finish()
			t.Logf("%v\n%s", v, v.why())
			if len(v.silences) == 0 || free || v.latest.end != released {
				t.Errorf("a record without a holder was not noticed: free=%v, the latest holder %v", free, v.latest)
			}
		})
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
		{what: "permits", broken: "release without owner check"},
		{what: "semaphore", broken: "release that counts twice"},
		{what: "semaphore", broken: "release that does not count", stuck: true},
	} {
		t.Run(tt.what+", "+tt.broken, func(t *testing.T) {
			t.Parallel()
			client := []string{"go-redis", "rueidis"}[i%2]
			c := newCrew(t, workerConfig{Workload: "crowd", What: tt.what, Watchdog: time.Second, Overstay: 4, Broken: tt.broken})
			if tt.what == "fair" {
				c.config.Overstay = 0
			}
			if tt.what == "permits" || tt.what == "semaphore" {
				c.permits(3)
			}
			c.start(client, 4)
			c.start(client, 4)
			v := c.untilCaught()
			c.finish()
			t.Logf("%v\n%s", v, v.why())
			if !tt.stuck && len(v.violations) == 0 {
				t.Error("more holders at once than there may be were not noticed")
			}
			if tt.stuck && (len(v.silences) == 0 || len(v.violations) > 0) {
				t.Error("permits that are gone were not noticed")
			}
		})
	}
}
