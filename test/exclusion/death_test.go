//go:build linux

package exclusion

import (
	"testing"
	"time"
)

func TestTheLockOfAKilledProcessPassesToAnotherWhenItsLeaseEndsAndNotBefore(t *testing.T) {
	const lease = 6 * time.Second // a holder that is stopped for a while holds on
	for _, pair := range [][2]string{{"go-redis", "rueidis"}, {"rueidis", "go-redis"}} {
		t.Run(pair[0]+" dies, "+pair[1]+" waits", func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: lease})
			c.book.linger.Store(^int64(0))
			holder := c.start(pair[0], 1)
			first := c.hang(holder)
			waiter := c.start(pair[1], 1)
			await(t, patience, "the other waits", func() bool { return c.book.worker[waiter].waiting.Load() != 0 })
			await(t, lease+patience, "the lease is renewed", func() bool { return first.renewed.Load() > first.first.Load() })

			c.kill(holder)
			asked := now()
			pttl, err := c.server.Do("PTTL", c.key(0))
			answered := now()
			if err != nil || pttl.(int64) <= 0 {
				t.Fatalf("PTTL of the dead holder's lock: %v, %v", pttl, err)
			}
			left := pttl.(int64) * int64(time.Millisecond)

			next := c.hang(waiter)
			a, b := first.read(), next.read()
			const tick = int64(2 * time.Millisecond) // the server counts in milliseconds
			const told = int64(2 * time.Second)      // when it was sent is reckoned from when the observer was told
			t.Logf("killed at %s, the lease had %v left; the last renewal was sent at %s; the waiter was in at %s, %v after the lease's end",
				stamp(c.faults[0].from), time.Duration(left), stamp(a.renewed), stamp(b.first), time.Duration(b.first-asked-left))
			if a.end != open || a.last > c.faults[0].to {
				t.Errorf("the killed holder should be dead: %v", a)
			}
			if b.begun > c.faults[0].from {
				t.Errorf("the waiter should have waited since before the kill: %v", b)
			}
			if b.first < asked+left-tick || b.first < a.renewed+int64(lease)-told {
				t.Errorf("it passed before the lease was over: %v was left at %s, renewed at %s for %v; %v", time.Duration(left), stamp(asked), stamp(a.renewed), lease, b)
			}
			if late := b.first - answered - left; late > int64(slack) {
				t.Errorf("it passed %v after the lease was over", time.Duration(late))
			}
			c.finish()
			if v := c.judge(); v.bad() || v.dead != 1 {
				t.Errorf("%v\n%s", v, v.why())
			}
		})
	}
}

func TestAHolderThatWasStoppedPastItsLeaseLearnsItFromTheVeryNextErr(t *testing.T) {
	const lease = 5 * time.Second // a holder that the machine stops for a while holds on
	for _, pair := range [][2]string{{"go-redis", "rueidis"}, {"rueidis", "go-redis"}} {
		t.Run(pair[0]+" is stopped, "+pair[1]+" waits", func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: lease, Fenced: true})
			c.book.linger.Store(^int64(0))
			holder := c.start(pair[0], 1)
			first := c.hang(holder)
			waiter := c.start(pair[1], 1)
			await(t, patience, "the other waits", func() bool { return c.book.worker[waiter].waiting.Load() != 0 })

			c.freeze(holder)
			stopped := now()
			next := c.hang(waiter)
			if a := first.read(); a.told != 0 || a.last > stopped {
				t.Fatalf("the process was not stopped: %v", a)
			}
			before, went := first.wrote.Load(), now()
			c.thaw(holder)
			// Not before it has asked once more: it may have been stopped just after it did.
			await(t, patience, "the holder is told", func() bool { return first.told.Load() != 0 })
			c.letGo(holder)
			await(t, patience, "the holder leaves", first.left)
			a, b := first.read(), next.read()
			t.Logf("stopped at %s, the other in at %s; went on at %s, told at %s", stamp(stopped), stamp(b.first), stamp(went), stamp(a.told))
			// A claim after it was stopped would be an Err that said nil.
			if a.last > stopped || !a.lost || a.told == 0 {
				t.Errorf("the first Err after the stop should be ErrLost: %v, lost=%v told at %s", a, a.lost, stamp(a.told))
			}
			if a.token == 0 || a.token >= b.token {
				t.Errorf("the stopped holder's token should be older: %d and %d", a.token, b.token)
			}
			// Its write is refused, which it made without a look at that.
			if before != taken || first.wrote.Load() != refused || next.wrote.Load() != taken {
				t.Errorf("writes (1 taken, 2 refused): %d before it was stopped, %d after; %d of the new holder", before, first.wrote.Load(), next.wrote.Load())
			}
			// And its Unlock touched nobody's lock.
			if a.end != notHeld {
				t.Errorf("its Unlock should be ErrNotHeld: %v", a)
			}
			await(t, patience, "the new holder holds on", func() bool { return next.last.Load() > a.freed })
			await(t, patience, "and renews", func() bool { return next.renewed.Load() > a.freed })
			c.finish()
			if v := c.judge(); v.bad() || v.lost != 1 {
				t.Errorf("%v\n%s", v, v.why())
			}
		})
	}
}
