//go:build linux

package exclusion

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// eachPair runs a test in which a process on one client library fails, and one on the other waits.
func eachPair(t *testing.T, fails string, test func(t *testing.T, failing, waiting string)) {
	for _, pair := range [][2]string{{harness.GoRedis, harness.Rueidis}, {harness.Rueidis, harness.GoRedis}} {
		t.Run(pair[0]+" "+fails+", "+pair[1]+" waits", func(t *testing.T) {
			t.Parallel()
			test(t, pair[0], pair[1])
		})
	}
}

// holds starts a process that gets in and stays, and another that waits behind it, and stays once it
// is in.
func (c *crew) holds(failing, waiting string) (holder, waiter int, first *harness.Entry) {
	c.t.Helper()
	for p := range 2 {
		c.Book.Worker[p].Linger.Store(1)
	}
	holder = c.start(failing, 1)
	first = c.hang(holder)
	waiter = c.start(waiting, 1)
	c.Await("the other waits", func() bool { return c.Waiting(waiter) != 0 })
	return holder, waiter, first
}

func TestTheLockOfAKilledProcessPassesToAnotherWhenItsLeaseEndsAndNotBefore(t *testing.T) {
	const lease = 6 * time.Second // a holder that is stopped for a while holds on
	eachPair(t, "dies", func(t *testing.T, failing, waiting string) {
		c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: lease})
		holder, waiter, first := c.holds(failing, waiting)
		harness.Await(t, lease+patience, "the lease is renewed", func() bool { return first.Renewed.Load() > first.First.Load() })

		c.kill(holder)
		asked := harness.Now()
		pttl := c.server.Must("PTTL", c.key(0)).(int64)
		answered := harness.Now()
		harness.FatalIf(t, pttl <= 0, "PTTL of the dead holder's lock: %v", pttl)
		left := pttl * int64(time.Millisecond)

		next := c.hang(waiter)
		a, b := first.Read(0), next.Read(0)
		const tick = int64(2 * time.Millisecond) // the server counts in milliseconds
		const told = int64(2 * time.Second)      // when it was sent is reckoned from when the observer was told
		t.Logf("killed at %s, the lease had %v left; the last renewal was sent at %s; the waiter was in at %s, %v after the lease's end",
			harness.Stamp(c.Faults[0].From), time.Duration(left), harness.Stamp(a.Renewed), harness.Stamp(b.First), time.Duration(b.First-asked-left))
		harness.ErrorIf(t, a.End != harness.Open || a.Last > c.Faults[0].To,
			"the killed holder should be dead: %v", a)
		harness.ErrorIf(t, b.Begun > c.Faults[0].From, "the waiter should have waited since before the kill: %v", b)
		if b.First < asked+left-tick || b.First < a.Renewed+int64(lease)-told {
			t.Errorf("it passed before the lease was over: %v was left at %s, renewed at %s for %v; %v", time.Duration(left), harness.Stamp(asked), harness.Stamp(a.Renewed), lease, b)
		}
		late := b.First - answered - left
		harness.ErrorIf(t, late > int64(slack), "it passed %v after the lease was over", time.Duration(late))
		c.Finish()
		v := c.judge()
		c.fails(v, v.Dead == 1)
	})
}

func TestAHolderThatWasStoppedPastItsLeaseLearnsItFromTheVeryNextErr(t *testing.T) {
	const lease = 5 * time.Second // a holder that the machine stops for a while holds on
	eachPair(t, "is stopped", func(t *testing.T, failing, waiting string) {
		c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: lease, Fenced: true})
		holder, waiter, first := c.holds(failing, waiting)

		c.freeze(holder)
		stopped := harness.Now()
		next := c.hang(waiter)
		a := first.Read(0)
		harness.FatalIf(t, a.Told != 0 || a.Last > stopped, "the process was not stopped: %v", a)
		before, went := first.Wrote.Load(), harness.Now()
		c.thaw(holder)
		// Not before it has asked once more: it may have been stopped just after it did.
		c.Await("the holder is told", func() bool { return first.Told.Load() != 0 })
		c.LetGo(holder)
		c.Await("the holder leaves", first.Left)
		a, b := first.Read(0), next.Read(0)
		t.Logf("stopped at %s, the other in at %s; went on at %s, told at %s", harness.Stamp(stopped), harness.Stamp(b.First), harness.Stamp(went), harness.Stamp(a.Told))
		// A claim after it was stopped would be an Err that said nil.
		if a.Last > stopped || !a.Lost || a.Told == 0 {
			t.Errorf("the first Err after the stop should be ErrLost: %v, lost=%v told at %s", a, a.Lost, harness.Stamp(a.Told))
		}
		harness.ErrorIf(t, a.Token == 0 || a.Token >= b.Token,
			"the stopped holder's token should be older: %d and %d", a.Token, b.Token)
		// Its write is refused, which it made without a look at that.
		if before != harness.Taken || first.Wrote.Load() != harness.Refused || next.Wrote.Load() != harness.Taken {
			t.Errorf("writes (1 taken, 2 refused): %d before it was stopped, %d after; %d of the new holder", before, first.Wrote.Load(), next.Wrote.Load())
		}
		// And its Unlock touched nobody's lock.
		harness.ErrorIf(t, a.End != harness.NotHeld, "its Unlock should be ErrNotHeld: %v", a)
		c.Await("the new holder holds on", func() bool { return next.Last.Load() > a.Freed })
		c.Await("and renews", func() bool { return next.Renewed.Load() > a.Freed })
		c.Finish()
		v := c.judge()
		c.fails(v, v.Lost == 1)
	})
}
