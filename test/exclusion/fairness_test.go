//go:build linux

package exclusion

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var fairFor = flag.Duration("fairness.time", 500*time.Millisecond,
	"how long TestFairness measures, for each client and number of waiters")

const (
	fairProcesses = 8
	fairTurns     = 6 // of each waiter, at least
)

// sent counts the commands that clients have sent for their locks: those that no script of ours runs.
// What the client libraries send when a connection opens (PING, CLIENT TRACKING) does not count: it grows
// with the connections, and some open only after the clients have begun to take turns, more of them on a
// slow machine.
func (c *crew) sent() int64 {
	c.t.Helper()
	return c.server.Calls("evalsha", "eval", "subscribe", "unsubscribe", "ssubscribe", "sunsubscribe", "script|load")
}

// overtaken is how often, while one waiter waits, another usually gets the lock: for each wait the most acquisitions of
// one other waiter in it, the median of that for each waiter, and the largest of these. In turn it is one at most,
// whatever the machine does: a process that it stops before it asks misses turns, but is not overtaken, nor does a
// process count that goes on alone meanwhile. order is by First.
func overtaken(order []harness.Visit) (worst int) {
	most := map[[2]int64][]int{} // of each waiter's waits
	for k, h := range order {
		who := [2]int64{h.Process, h.Who}
		got := map[[2]int64]int{}
		n := 0
		for m := k - 1; m >= 0 && order[m].First > h.Begun; m-- {
			if other := [2]int64{order[m].Process, order[m].Who}; other != who {
				got[other]++
				n = max(n, got[other])
			}
		}
		most[who] = append(most[who], n)
	}
	for _, n := range most {
		slices.Sort(n)
		worst = max(worst, n[len(n)/2])
	}
	return worst
}

// fairness is what a run came to.
type fairness struct {
	waiters      int
	took         time.Duration
	acquisitions int
	least, most  int // acquisitions of one waiter
	jain         float64
	overtaken    int           // see there
	mean, p99    time.Duration // of the waits
	longest      time.Duration
	commands     float64 // for each acquisition
	// What the machine does to others shows in the waits: how late a sleep of a millisecond
	// in the test's own process was at most, and how much later than 50ms all of them were together.
	stall, stalled time.Duration
}

func (f fairness) String() string {
	return fmt.Sprintf("%3d waiters: %.0f handoffs/s, %.2f commands each; "+
		"%d to %d acquisitions a waiter, Jain's index %.4f, overtaken %d times at most; "+
		"wait: mean %v, p99 %v, %.2f times the mean, longest %.2f times; "+
		"the machine stood still for %v at most, %v in all",
		f.waiters, float64(f.acquisitions)/f.took.Seconds(), f.commands, f.least, f.most, f.jain, f.overtaken,
		f.mean.Round(10*time.Microsecond), f.p99.Round(10*time.Microsecond), float64(f.p99)/float64(f.mean),
		float64(f.longest)/float64(f.mean),
		f.stall.Round(time.Millisecond), f.stalled.Round(time.Millisecond))
}

// measure lets processes take turns for a while, and looks at the acquisitions that
// came in that time.
func measure(t *testing.T, config workerConfig, client string, processes, waiters int) fairness {
	t.Helper()
	config.Workload, config.Watchdog = "turns", time.Minute
	c := newCrew(t, config)
	for range processes {
		c.start(client, waiters/processes)
	}
	entries := c.Book.Count
	start := entries()
	harness.Await(t, time.Minute, "all have begun to take turns",
		func() bool { return entries() >= start+int64(2*waiters) })
	// count counts commands and acquisitions at one time: with none, or few, between.
	count := func() (commands, acquired int64) {
		closest := int64(math.MaxInt64)
		for end := harness.Now() + int64(patience); closest > 1 && harness.Now() < end; {
			a, n := entries(), c.sent()
			if d := entries() - a; d < closest {
				closest, commands, acquired = d, n, a
			}
		}
		return commands, acquired
	}
	before, i := count()
	from := harness.Now()
	turns := map[[2]int64]int{}
	// Each has had its turns, also one that the machine stopped.
	enough := func(j int64) bool {
		clear(turns)
		for k := i; k < j; k++ {
			if h := c.Book.Entries[k].Read(k); h.First != 0 {
				turns[[2]int64{h.Process, h.Who}]++
			}
		}
		few := 0
		for _, n := range turns {
			if n < fairTurns {
				few++
			}
		}
		return len(turns) == waiters && few == 0
	}
	var stall, stalled time.Duration
	for looked := from; ; {
		if at := harness.Now(); at >= from+int64(*fairFor) && at > looked+int64(20*time.Millisecond) {
			if enough(entries()) {
				break
			}
			looked = harness.Now()
		}
		slept := harness.Now()
		time.Sleep(time.Millisecond)
		late := time.Duration(harness.Now()-slept) - time.Millisecond
		if stall = max(stall, late); late > 50*time.Millisecond {
			stalled += late
		}
		if harness.Now() > from+int64(time.Minute+*fairFor) {
			t.Fatalf("%d acquisitions within %v", entries()-i, time.Duration(harness.Now()-from))
		}
	}
	after, j := count()
	to := harness.Now()
	enough(j)
	c.Finish()
	c.fails(c.judge(), true)

	f := fairness{waiters: waiters, took: time.Duration(to - from), acquisitions: int(j - i),
		commands: float64(after-before) / float64(j-i), stall: stall, stalled: stalled}
	var order []harness.Visit
	var waits []time.Duration
	for k := i; k < j; k++ {
		h := c.Book.Entries[k].Read(k)
		if h.First != 0 {
			order = append(order, h)
			waits = append(waits, time.Duration(h.First-h.Begun))
		}
	}
	f.least = math.MaxInt
	var each []float64
	for _, n := range turns {
		f.least, f.most = min(f.least, n), max(f.most, n)
		each = append(each, float64(n))
	}
	f.jain = stats.Jain(each)
	slices.SortFunc(order, func(a, b harness.Visit) int { return cmp.Compare(a.First, b.First) })
	f.overtaken = overtaken(order)
	f.mean, f.p99 = time.Duration(stats.Mean(waits)), time.Duration(stats.Quantile(waits, 0.99))
	f.longest = slices.Max(waits)
	return f
}

// What is asserted is counted; the times are printed. `make fairness` measures for longer.
func TestFairnessOfEightProcessesAndWhatAHandoffCosts(t *testing.T) {
	for _, client := range harness.Libraries {
		t.Run(client, func(t *testing.T) {
			var commands []float64
			for _, waiters := range []int{8, 32, 128} {
				f := measure(t, workerConfig{What: "fair"}, client, fairProcesses, waiters)
				t.Log(f)
				commands = append(commands, f.commands)
				harness.ErrorIf(t, f.commands > 4,
					"%d waiters: %.2f commands for each handoff, want at most 4", waiters, f.commands)
				// Over a short time one process that the machine stops spoils the index itself.
				harness.ErrorIf(t, *fairFor >= 10*time.Second && f.jain < 0.98,
					"%d waiters: Jain's index is %.4f, want at least 0.98", waiters, f.jain)
				harness.ErrorIf(t, f.overtaken > 1,
					"%d waiters: while one waits, another usually gets the lock %d times", waiters, f.overtaken)
			}
			harness.ErrorIf(t, slices.Max(commands)-slices.Min(commands) > 0.75,
				"the commands for a handoff grow with the waiters: %.2f", commands)
		})
	}
}

// Clients of a plain lock with one waiter each are served in turn, and a handoff costs the refusal that enrols, the
// claim and the release.
func TestProcessesThatWaitForAPlainLockAreServedInTurn(t *testing.T) {
	for _, client := range harness.Libraries {
		t.Run(client, func(t *testing.T) {
			for _, processes := range []int{2, 4, 8, 16} {
				f := measure(t, workerConfig{}, client, processes, processes)
				t.Log(f)
				harness.ErrorIf(t, f.commands > 3.2,
					"%d processes: %.2f commands for each handoff, want at most 3.2", processes, f.commands)
				harness.ErrorIf(t, f.overtaken > 1,
					"%d processes: while one waits, another usually gets the lock %d times", processes, f.overtaken)
			}
		})
	}
}

func TestJainsIndexAndThePercentile(t *testing.T) {
	for _, tt := range []struct {
		x    []float64
		want float64
	}{{[]float64{3, 3, 3, 3}, 1}, {[]float64{8, 0, 0, 0}, 0.25}, {[]float64{1, 3}, 0.8}} {
		got := stats.Jain(tt.x)
		harness.ErrorIf(t, math.Abs(got-tt.want) > 1e-9, "stats.Jain(%v) = %v, want %v", tt.x, got, tt.want)
	}
	var waits []int
	for i := range 200 {
		waits = append(waits, 200-i)
	}
	mean, p99 := stats.Mean(waits), stats.Quantile(waits, 0.99)
	harness.ErrorIf(t, mean != 100.5 || p99 != 198, "mean %v, p99 %v; want 100.5 and 198", mean, p99)
}

func TestHowOftenAWaiterIsOvertaken(t *testing.T) {
	// turns names the waiter of each acquisition; asks is how many acquisitions before its own a waiter asked.
	of := func(turns []int64, asks func(who int64) int64) (order []harness.Visit) {
		for n, who := range turns {
			h := harness.Visit{Who: who}
			h.First = int64(n + 1)
			h.Begun = h.First - asks(who)
			order = append(order, h)
		}
		return order
	}
	var turns, stopped, favours []int64
	for n := range int64(600) {
		turns = append(turns, n%4)
		if n >= 400 { // one of two had not asked meanwhile
			stopped = append(stopped, 0, 1)
		} else {
			stopped = append(stopped, 0)
		}
		favours = append(favours, 0, 1+n%3, 0)
	}
	for _, tt := range []struct {
		name  string
		order []harness.Visit
		want  int
	}{
		{"four in turn", of(turns, func(int64) int64 { return 4 }), 1},
		{"one goes on alone", of(stopped, func(int64) int64 { return 2 }), 1},
		{"one is favoured", of(favours, func(who int64) int64 { return min(2+7*who, 9) }), 6},
	} {
		got := overtaken(tt.order)
		harness.ErrorIf(t, got != tt.want, "%s: overtaken %d times, want %d", tt.name, got, tt.want)
	}
}

// stand starts a process whose one goroutine then stands in the queue as the n-th.
func (c *crew) stand(client string, n int64) int {
	c.t.Helper()
	p := c.start(client, 1)
	c.Await("it stands in the queue", func() bool {
		return c.server.Must("LLEN", "redisson_lock_queue:{"+c.key(0)+"}") == n
	})
	return p
}

// listened counts the waiters in the queue whose channel has a subscriber.
func (c *crew) listened() (n int) {
	c.t.Helper()
	for _, field := range c.server.Must("LRANGE", "redisson_lock_queue:{"+c.key(0)+"}", "0", "-1").([]any) {
		reply := c.server.Must("PUBSUB", "NUMSUB", "redisson_lock__channel:{"+c.key(0)+"}:"+field.(string))
		if reply.([]any)[1] != int64(0) {
			n++
		}
	}
	return n
}

func TestKilledProcessesAtTheHeadOfTheQueueHoldTheOthersUpForASecondAtMost(t *testing.T) {
	const lease = time.Minute // the others do not wait for it, nor for a place to be given up
	for _, client := range harness.Libraries {
		for _, dead := range []int{1, 2} {
			harness.Beside(t, fmt.Sprintf("%s, %d in a row", client, dead), func(t *testing.T) {
				c := newCrew(t, workerConfig{Workload: "crowd", What: "fair", Watchdog: lease})
				c.Book.Worker[0].Linger.Store(1)
				holder := c.start(client, 1)
				first := c.hang(holder)
				for n := range dead {
					c.stand(client, int64(n+1))
				}
				for n := range 3 {
					c.stand(client, int64(dead+n+1))
				}
				c.Await("each is listened for", func() bool { return c.listened() == dead+3 })
				for n := range dead {
					c.kill(1 + n)
				}
				c.Await("the server has noticed", func() bool { return c.listened() == 3 })

				c.LetGo(holder)
				c.progress("the head was killed", lease/3)
				c.Finish()
				free := first.Read(0).Freed
				next := int64(math.MaxInt64)
				for _, h := range c.Book.All() {
					if h.First > free {
						next = min(next, h.First)
					}
				}
				held := time.Duration(next - free)
				t.Logf("%v from the release to the next holder", held.Round(time.Millisecond))
				harness.ErrorIf(t, held > lease/4, "the lock was free for %v", held)
				v := c.judge()
				harness.ErrorIf(t, v.Overlaps() || v.Dead != 0, "%v\n%s", v, v.Why())
			})
		}
	}
}

// A process that is killed has as many places in the queue as it had waiters.
func TestAKilledProcessWithManyPlacesInTheQueueHoldsTheOthersUpOnce(t *testing.T) {
	for _, client := range harness.Libraries {
		t.Run(client, func(t *testing.T) {
			const waiters = 64
			c := newCrew(t, workerConfig{Workload: "turns", What: "fair", Watchdog: time.Second})
			for range fairProcesses {
				c.start(client, waiters/fairProcesses)
			}
			harness.Await(t, time.Minute, "all have begun to take turns", func() bool { return c.Book.Used.Load() >= 3*waiters })
			c.kill(0)
			killed := c.Faults[0].To
			at := c.Book.Used.Load()
			harness.Await(t, 2*time.Minute, "the others go on", func() bool { return c.Book.Used.Load() >= at+3*waiters })
			c.Finish()
			holds := c.Book.All()
			slices.SortFunc(holds, func(a, b harness.Visit) int { return int(a.First - b.First) })
			var worst, sum time.Duration
			n := 0
			for i, h := range holds[1:] {
				if gap := time.Duration(h.First - holds[i].Freed); h.First > killed && holds[i].Freed > 0 {
					worst = max(worst, gap)
					if gap > 900*time.Millisecond {
						n++
						sum += gap
					}
				}
			}
			t.Logf("the lock was free for longer than 900ms %d times, %v together; %v at most", n, sum, worst)
			// Once for all of its places, and not for each of the eight.
			harness.ErrorIf(t, n > 4, "a killed process held the others up %d times, for %v", n, sum)
			v := c.judge()
			harness.ErrorIf(t, v.Overlaps(), "%v\n%s", v, v.Why())
		})
	}
}
