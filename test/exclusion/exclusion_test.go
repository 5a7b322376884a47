//go:build linux

package exclusion

import (
	"context"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	runFor    = flag.Duration("exclusion.time", 12*time.Second, "how long the plain lock is fought for")
	othersFor = flag.Duration("exclusion.others", 10*time.Second, "how long each of the other kinds is fought for")
)

// run lets time pass until at, and judges on the way, so that a failure is not waited for.
func (c *crew) run(at int64) {
	c.t.Helper()
	for harness.Now() < at {
		if v := c.judge(); v.Bad() {
			c.Finish()
			c.t.Fatalf("after %v: %v\n%s", time.Duration(harness.Now()-c.Began), v, v.Why())
		}
		time.Sleep(max(0, min(500*time.Millisecond, time.Duration(at-harness.Now()))))
	}
}

func TestExclusionHoldsWhileProcessesDieAndRedisStandsStill(t *testing.T) {
	c := newCrew(t, workerConfig{Workload: "crowd", Watchdog: time.Second, Overstay: 400})
	c.fight(*runFor, 16, 16)
	n := c.server.Must("EXISTS", c.key(0))
	harness.ErrorIf(t, n != int64(0), "the lock's record is there after all have left: %v", n)
}

// The same for the other kinds, side by side.
func TestExclusionOfTheOtherKinds(t *testing.T) {
	for _, what := range []string{"fair", "rw", "counting semaphore", "semaphore"} {
		harness.Beside(t, what, func(t *testing.T) {
			c := newCrew(t, workerConfig{Workload: "crowd", What: what, Watchdog: time.Second, Overstay: 400})
			// Two run at a time; and a dead waiter at the head of a queue has a second.
			c.rules.Slack = int64(slack + 2*time.Second)
			victim := 4 // goroutines in the process that is killed
			if what == "counting semaphore" {
				victim = 2 // whose permits are gone for good
			}
			switch what {
			case "counting semaphore", "semaphore":
				c.semaphore(5)
			}
			if what == "counting semaphore" {
				c.rules.Gone = victim
			}
			v := c.fight(*othersFor, 5, victim)
			harness.ErrorIf(t, what == "rw" && v.Together < 2, "no two readers were ever in together")
			c.left(v)
		})
	}
}

// semaphore makes the semaphore that workers fight for.
func (c *crew) semaphore(n int) {
	c.t.Helper()
	c.config.Size = n
	var made bool
	var err error
	if key := c.key(0); c.config.What == "counting semaphore" {
		made, err = semaphore.NewCounting(c.client(), key).TrySetPermits(context.Background(), n)
	} else {
		made, err = semaphore.New(c.client(), key, 0).TrySetPermits(context.Background(), n)
	}
	harness.FatalIf(c.t, !made || err != nil, "TrySetPermits: %v, %v", made, err)
}

// client is a client of the test's own.
func (c *crew) client() *mortise.Client {
	c.t.Helper()
	return harness.Client(c.t, harness.At(c.server.Addr()).Backend(c.t, harness.GoRedis))
}

// left checks what is in the store when all have left.
func (c *crew) left(v harness.Verdict) {
	c.t.Helper()
	client, ctx, key, size := c.client(), context.Background(), c.key(0), c.config.Size
	switch c.config.What {
	case "counting semaphore":
		// Those that are gone were held by the killed process, or were on their way to it.
		n, err := semaphore.NewCounting(client, key).Available(ctx)
		harness.ErrorIf(c.t, err != nil || n > size-v.Dead || n < size-c.rules.Gone,
			"%d of %d permits are there, %v; %d goroutines of the killed process held one", n, size, err, v.Dead)
	case "semaphore":
		c.Await("all permits are back", func() bool {
			n, err := semaphore.New(client, key, 0).Available(ctx)
			harness.FatalIf(c.t, err != nil || n > size, "%d of %d permits are there, %v", n, size, err)
			return n == size
		})
	default:
		c.Await("the lock's keys are gone", func() bool {
			return !slices.ContainsFunc(c.server.Must("KEYS", "*"+key+"*").([]any),
				func(k any) bool { return !strings.HasPrefix(k.(string), "redisson_lock_token:") })
		})
	}
}

// fight has processes fight for a while: one is killed, Redis stands still for less than a
// lease and for more, and one process is stopped for more than a lease, each while
// worker in there is inside.
func (c *crew) fight(d time.Duration, goroutines, victim int) harness.Verdict {
	t, lease := c.t, c.config.Watchdog
	t.Helper()
	owned := c.config.What != "counting semaphore" // its holder can lose it
	c.start("go-redis", victim)
	c.start("rueidis", goroutines)
	c.start("go-redis", goroutines)
	switch c.config.What {
	case "counting semaphore":
		goroutines = c.config.Size - c.rules.Gone - 1 // a stopped process keeps its permits: one is left to the others
	case "fair":
		goroutines = 1 // the one inside: a place of a stopped process costs five seconds, which is no fault
	}
	c.start("rueidis", goroutines)
	began := harness.Now()
	part := func(percent int) int64 { return began + int64(d)*int64(percent)/100 }
	c.progress("the start", patience)
	if c.config.Size > 0 {
		full(c, 1, 2)
	}

	// A holder dies.
	c.run(part(15))
	dead := c.hang(0)
	c.kill(0)
	c.progress("a process was killed that held the lock", lease+time.Duration(c.rules.Slack)+patience)
	h := dead.Read(0)
	harness.ErrorIf(t, h.End != harness.Open || h.Last > c.Faults[0].To, "the killed process should be dead: %v", h)

	// Redis stands still for less than a lease: a worker is inside all the while.
	c.run(part(35))
	survivor := c.hang(1)
	c.pauseRedis(lease * 3 / 10)
	c.LetGo(1)
	c.progress("Redis was paused for less than a lease", lease+time.Duration(c.rules.Slack)+patience)
	t.Logf("of the holders during the short pause: %v", survivor.Read(0))

	// And for more: the holder is told before another gets in.
	c.run(part(55))
	loser := c.hang(2)
	c.pauseRedis(2 * lease)
	if owned { // by the clock, whenever it got to run
		told(c, loser)
	}
	c.LetGo(2)
	c.progress("Redis was paused for more than a lease", lease+time.Duration(c.rules.Slack)+patience)
	h = loser.Read(0)
	harness.ErrorIf(t, owned && (!h.Lost || h.Last >= c.Faults[2].To),
		"the holder while Redis was paused for %v with a lease of %v should not be one any more: %v, told at %s",
		2*lease, lease, h, harness.Stamp(h.Told))

	// A holder's process stands still for more than its lease.
	c.run(part(78))
	frozen := c.hang(3)
	c.freeze(3)
	stopped := harness.Now()
	c.progress("a process was stopped that held the lock", lease+time.Duration(c.rules.Slack)+patience)
	for owned && harness.Now() < stopped+int64(lease) { // where others need not wait for its lease's end
		time.Sleep(10 * time.Millisecond)
	}
	c.thaw(3)
	if owned {
		told(c, frozen)
	}
	c.LetGo(3)
	c.Await("it leaves", frozen.Left)
	h = frozen.Read(0)
	harness.ErrorIf(t, owned && (!h.Lost || h.Last > stopped), "the holder that was stopped believed in its lock: %v", h)
	c.progress("the process went on", lease+time.Duration(c.rules.Slack)+patience)

	c.run(part(100))
	c.Finish()
	v := c.judge()
	t.Logf("%v in %v; 1 kill, 2 pauses of Redis, 1 of a process; %d failed Locks", v,
		time.Duration(harness.Now()-began).Round(time.Millisecond), c.failures())
	c.fails(v, true)
	inside := 0 // of the killed process, and not told that they had lost it
	for _, h := range c.Book.All() {
		if h.End == harness.Open && h.Leaving == 0 && h.Process == 0 && h.Told == 0 {
			inside++
		}
		harness.ErrorIf(t, h.End == harness.Open && h.Process != 0, "never left: %v", h)
	}
	most := max(1, c.config.Size)
	harness.ErrorIf(t, v.Dead < 1 || inside > most && c.config.What != "rw",
		"%d dead holders, want the one that was killed, and others of its process if there was room", v.Dead)
	return v
}

func (c *crew) failures() (n int64) {
	for p := range c.Members {
		n += c.Book.Worker[p].Failures.Load()
	}
	return n
}

// rounds runs rounds of the workload "rounds" until done says so, or something is wrong.
func (c *crew) rounds(done func(round int64) bool) harness.Verdict {
	c.t.Helper()
	checked := time.Now()
	for round := int64(1); ; round++ {
		c.asked = harness.Now()
		c.Book.Round.Store(round)
		for p := range c.Members {
			for c.Book.Worker[p].Round.Load() != round {
				if time.Since(checked) > 500*time.Millisecond {
					checked = time.Now()
					if v := c.judge(); v.Bad() {
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
	c.Finish()
	t.Logf("%d rounds: %v", rounds, v)
	c.fails(v, true)
	harness.ErrorIf(t, v.Handoffs < int(rounds)/2, "%d handoffs in %d rounds", v.Handoffs, rounds)
}

// eachPair runs a test in which a process on one client library fails, and one on the other waits.
func eachPair(t *testing.T, fails string, test func(t *testing.T, failing, waiting string)) {
	for _, pair := range [][2]string{{harness.GoRedis, harness.Rueidis}, {harness.Rueidis, harness.GoRedis}} {
		harness.Beside(t, pair[0]+" "+fails+", "+pair[1]+" waits", func(t *testing.T) { test(t, pair[0], pair[1]) })
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
		harness.Await(t, lease+patience, "the lease is renewed",
			func() bool { return first.Renewed.Load() > first.First.Load() })

		c.kill(holder)
		asked := harness.Now()
		pttl := c.server.Must("PTTL", c.key(0)).(int64)
		answered := harness.Now()
		harness.FatalIf(t, pttl <= 0, "PTTL of the dead holder's lock: %v", pttl)
		left := pttl * int64(time.Millisecond)

		next := c.hang(waiter)
		a, b := first.Read(0), next.Read(0)
		const tick = int64(2 * time.Millisecond) // the server counts in milliseconds
		const reckoned = int64(2 * time.Second)  // when it was sent is reckoned from when the observer was told
		t.Logf("killed at %s, the lease had %v left; the last renewal was sent at %s; "+
			"the waiter was in at %s, %v after the lease's end",
			harness.Stamp(c.Faults[0].From), time.Duration(left), harness.Stamp(a.Renewed), harness.Stamp(b.First),
			time.Duration(b.First-asked-left))
		harness.ErrorIf(t, a.End != harness.Open || a.Last > c.Faults[0].To, "the killed holder should be dead: %v", a)
		harness.ErrorIf(t, b.Begun > c.Faults[0].From, "the waiter should have waited since before the kill: %v", b)
		if b.First < asked+left-tick || b.First < a.Renewed+int64(lease)-reckoned {
			t.Errorf("it passed before the lease was over: %v was left at %s, renewed at %s for %v; %v", time.Duration(left),
				harness.Stamp(asked), harness.Stamp(a.Renewed), lease, b)
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
		told(c, first)
		c.LetGo(holder)
		c.Await("the holder leaves", first.Left)
		a, b := first.Read(0), next.Read(0)
		t.Logf("stopped at %s, the other in at %s; went on at %s, told at %s", harness.Stamp(stopped),
			harness.Stamp(b.First), harness.Stamp(went), harness.Stamp(a.Told))
		// A claim after it was stopped would be an Err that said nil.
		if a.Last > stopped || !a.Lost || a.Told == 0 {
			t.Errorf("the first Err after the stop should be ErrLost: %v, lost=%v told at %s", a, a.Lost, harness.Stamp(a.Told))
		}
		harness.ErrorIf(t, a.Token == 0 || a.Token >= b.Token,
			"the stopped holder's token should be older: %d and %d", a.Token, b.Token)
		// Its write is refused, which it made without a look at that.
		harness.ErrorIf(t, before != harness.Taken || first.Wrote.Load() != harness.Refused ||
			next.Wrote.Load() != harness.Taken,
			"writes (1 taken, 2 refused): %d before it was stopped, %d after; %d of the new holder", before,
			first.Wrote.Load(), next.Wrote.Load())
		// And its Unlock touched no lock.
		harness.ErrorIf(t, a.End != harness.NotHeld, "its Unlock should be ErrLost: %v", a)
		c.Await("the new holder holds on", func() bool { return next.Last.Load() > a.Freed })
		c.Await("and renews", func() bool { return next.Renewed.Load() > a.Freed })
		c.Finish()
		v := c.judge()
		c.fails(v, v.Lost == 1)
	})
}
