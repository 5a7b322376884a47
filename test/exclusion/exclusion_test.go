//go:build linux

package exclusion

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/redisgo"
)

var (
	runFor    = flag.Duration("exclusion.time", 12*time.Second, "how long the plain lock is fought for")
	othersFor = flag.Duration("exclusion.others", 10*time.Second, "how long each of the other kinds is fought for")
)

// run lets time pass until at, and judges on the way, so that a failure is not waited for.
func (c *crew) run(at int64) {
	c.t.Helper()
	for now() < at {
		if v := c.judge(); v.bad() {
			c.finish()
			c.t.Fatalf("after %v: %v\n%s", time.Duration(now()-c.began), v, v.why())
		}
		time.Sleep(max(0, min(500*time.Millisecond, time.Duration(at-now()))))
	}
}

func TestExclusionHoldsWhileProcessesDieAndRedisStandsStill(t *testing.T) {
	c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: time.Second, Overstay: 400})
	c.fight(*runFor, 16, 16)
	if n, err := c.server.Do("EXISTS", c.key(0)); err != nil || n != int64(0) {
		t.Errorf("the lock's record is there after all have left: %v, %v", n, err)
	}
}

// The same for the other kinds, side by side.
func TestExclusionOfTheOtherKinds(t *testing.T) {
	for _, what := range []string{"fair", "rw", "semaphore", "permits"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := newCrew(t, workerConfig{Workload: "crowd", What: what, Watchdog: time.Second, Overstay: 400})
			c.slack = slack + 2*time.Second // two run at a time; and one who is first in a queue and dead has a second
			victim := 4                     // goroutines in the process that is killed
			if what == "semaphore" {
				victim = 2 // whose permits are gone for good
			}
			switch what {
			case "semaphore", "permits":
				c.permits(5)
			}
			if what == "semaphore" {
				c.lost = victim
			}
			v := c.fight(*othersFor, 5, victim)
			switch what {
			case "rw":
				if v.together < 2 {
					t.Error("no two readers were ever in together")
				}
			case "semaphore", "permits":
				if v.together != c.config.Size {
					t.Errorf("at most %d of %d permits were ever out", v.together, c.config.Size)
				}
			}
			c.left(v)
		})
	}
}

// permits makes the semaphore that workers fight for.
func (c *crew) permits(n int) {
	c.t.Helper()
	c.config.Size = n
	var made bool
	var err error
	if key := c.key(0); c.config.What == "semaphore" {
		made, err = c.client().Semaphore(key).TrySetPermits(context.Background(), n)
	} else {
		made, err = c.client().Permits(key).TrySetPermits(context.Background(), n)
	}
	if !made || err != nil {
		c.t.Fatalf("TrySetPermits: %v, %v", made, err)
	}
}

// client is a client of the test's own.
func (c *crew) client() *mortise.Client {
	c.t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: c.server.Addr()})
	client, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		client.Close()
		rdb.Close()
	})
	return client
}

// left checks what is in the store when all have left.
func (c *crew) left(v verdict) {
	c.t.Helper()
	client, ctx, key, size := c.client(), context.Background(), c.key(0), c.config.Size
	switch c.config.What {
	case "semaphore":
		// Those that are gone were held by the killed process, or were on their way to it.
		n, err := client.Semaphore(key).Available(ctx)
		if err != nil || n > size-v.dead || n < size-c.lost {
			c.t.Errorf("%d of %d permits are there, %v; %d goroutines of the killed process held one", n, size, err, v.dead)
		}
	case "permits":
		await(c.t, patience, "all permits are back", func() bool {
			n, err := client.Permits(key).Available(ctx)
			if err != nil || n > size {
				c.t.Fatalf("%d of %d permits are there, %v", n, size, err)
			}
			return n == size
		})
	default:
		await(c.t, patience, "the lock's keys are gone", func() bool {
			keys, err := c.server.Do("KEYS", "*"+key+"*")
			if err != nil {
				c.t.Fatal(err)
			}
			return !slices.ContainsFunc(keys.([]any), func(k any) bool { return !strings.HasPrefix(k.(string), "redisson_lock_token:") })
		})
	}
}

// fight has processes fight for a while: one is killed, Redis stands still for less than a
// lease and for more, and one process is stopped for more than a lease, each while
// somebody in there is inside.
func (c *crew) fight(d time.Duration, goroutines, victim int) verdict {
	t, lease := c.t, c.config.Watchdog
	t.Helper()
	owned := c.config.What != "semaphore" // whoever holds it can lose it
	c.start("go-redis", victim)
	c.start("rueidis", goroutines)
	c.start("go-redis", goroutines)
	switch c.config.What {
	case "semaphore":
		goroutines = c.config.Size - c.lost - 1 // a stopped process keeps its permits: one is left to the others
	case "fair":
		goroutines = 1 // the one inside: a place of a stopped process costs five seconds, which is no fault
	}
	c.start("rueidis", goroutines)
	began := now()
	part := func(percent int) int64 { return began + int64(d)*int64(percent)/100 }
	c.progress("the start", patience)

	// A holder dies.
	c.run(part(15))
	dead := c.hang(0)
	c.kill(0)
	c.progress("a process was killed that held the lock", lease+c.slack+patience)
	if h := dead.read(); h.end != open || h.last > c.faults[0].to {
		t.Errorf("the killed process should be dead: %v", h)
	}

	// Redis stands still for less than a lease: somebody is inside all the while.
	c.run(part(35))
	survivor := c.hang(1)
	c.pauseRedis(lease * 3 / 10)
	c.letGo(1)
	c.progress("Redis was paused for less than a lease", lease+c.slack+patience)
	t.Logf("whoever was inside during the short pause: %v", survivor.read())

	// And for more: whoever is inside is told before anybody else gets in.
	c.run(part(55))
	loser := c.hang(2)
	c.pauseRedis(2 * lease)
	if owned { // by the clock, whenever it got to run
		await(t, patience, "it is told", func() bool { return loser.told.Load() != 0 })
	}
	c.letGo(2)
	c.progress("Redis was paused for more than a lease", lease+c.slack+patience)
	if h := loser.read(); owned && (!h.lost || h.last >= c.faults[2].to) {
		t.Errorf("whoever was inside when Redis was paused for %v with a lease of %v should not have been any more by then: %v, told at %s", 2*lease, lease, h, stamp(h.told))
	}

	// A holder's process stands still for more than its lease.
	c.run(part(78))
	frozen := c.hang(3)
	c.freeze(3)
	stopped := now()
	c.progress("a process was stopped that held the lock", lease+c.slack+patience)
	for owned && now() < stopped+int64(lease) { // where others need not wait for its lease's end
		time.Sleep(10 * time.Millisecond)
	}
	c.thaw(3)
	if owned {
		// Not before it has asked once more: it may have been stopped just after it did.
		await(t, patience, "it is told", func() bool { return frozen.told.Load() != 0 })
	}
	c.letGo(3)
	await(t, patience, "it leaves", frozen.left)
	if h := frozen.read(); owned && (!h.lost || h.last > stopped) {
		t.Errorf("whoever was stopped while inside believed that it still was: %v", h)
	}
	c.progress("the process went on", lease+c.slack+patience)

	c.run(part(100))
	c.finish()
	v := c.judge()
	t.Logf("%v in %v; 1 kill, 2 pauses of Redis, 1 of a process; %d failed Locks", v, time.Duration(now()-began).Round(time.Millisecond), c.failures())
	if v.bad() {
		t.Errorf("%s", v.why())
	}
	inside := 0 // of the killed process, and not told that they had lost it
	for _, h := range c.book.all() {
		if h.end == open && h.process == 0 && h.told == 0 {
			inside++
		}
		if (h.end == open || h.end == going) && h.process != 0 {
			t.Errorf("never left: %v", h)
		}
	}
	if most := max(1, c.config.Size); v.dead < 1 || inside > most && c.config.What != "rw" {
		t.Errorf("%d dead holders, want the one that was killed, and others of its process if there was room", v.dead)
	}
	return v
}

func (c *crew) failures() (n int64) {
	for p := range c.members {
		n += c.book.worker[p].failures.Load()
	}
	return n
}

// rounds runs rounds of the workload "rounds" until done says so, or something is wrong.
func (c *crew) rounds(done func(round int64) bool) verdict {
	c.t.Helper()
	checked := time.Now()
	for round := int64(1); ; round++ {
		c.asked = now()
		c.book.round.Store(round)
		for p := range c.members {
			for c.book.worker[p].round.Load() != round {
				if time.Since(checked) > 500*time.Millisecond {
					checked = time.Now()
					if v := c.judge(); v.bad() {
						return v
					}
				}
				time.Sleep(20 * time.Microsecond)
			}
		}
		if done(round) {
			return c.judge()
		}
	}
}

func TestNoWaiterSleepsThroughARelease(t *testing.T) {
	c := newCrew(t, workerConfig{Workload: "rounds", Watchdog: 10 * time.Second})
	c.start("go-redis", 1)
	c.start("rueidis", 1)
	began := time.Now()
	rounds := int64(0)
	v := c.rounds(func(round int64) bool {
		rounds = round
		return time.Since(began) > 5*time.Second
	})
	c.finish()
	t.Logf("%d rounds: %v", rounds, v)
	if v.bad() {
		t.Errorf("%s", v.why())
	}
	if v.handoffs < int(rounds)/2 {
		t.Errorf("%d handoffs in %d rounds", v.handoffs, rounds)
	}
}
