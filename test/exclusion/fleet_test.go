//go:build linux

package exclusion

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var fleetFor = flag.Duration("fleet.time", time.Second, "how long processes of two versions share a lock of each kind")

// What two versions come to in one fleet. Times are asserted where a kind runs for fleetTimed or more.
const (
	fleetVisits = 3    // of each goroutine, at least
	fleetShare  = 0.05 // of the visits, for each version
	fleetTimed  = 5 * time.Second
	fleetWait   = 2 * time.Second // the longest; for LockAll three times as long
)

// fleet is a crew of both versions.
type fleet struct {
	*crew
	older []int64 // processes of the older version
}

// startOlder is start, of the older version.
func (c *fleet) startOlder(client string, goroutines int) {
	c.t.Helper()
	cmd := c.config.command(len(c.Members), client, goroutines)
	cmd.Path = olderWorker(c.t)
	c.older = append(c.older, int64(len(c.Members)))
	c.Start(cmd)
}

// stop has process p leave, release what it holds, and end.
func (c *fleet) stop(p int) {
	c.t.Helper()
	harness.OK(c.t, c.Members[p].Cmd.Process.Signal(syscall.SIGTERM))
	harness.OK(c.t, c.Members[p].Ends(patience))
}

// version is what the processes of one version had of a run.
type version struct {
	visits  map[[2]int64]int // by process and goroutine
	waits   []time.Duration
	longest time.Duration // that of what still waits at the end, too
}

func (v *version) total() (n int) {
	for _, m := range v.visits {
		n += m
	}
	return n
}

// least is how many visits a goroutine had at least.
func (v *version) least(goroutines int) int {
	if len(v.visits) < goroutines {
		return 0
	}
	least := v.total()
	for _, n := range v.visits {
		least = min(least, n)
	}
	return least
}

// versions tells the visits of this version and of the older one between two times.
func (c *fleet) versions(from, to int64) (both [2]version) {
	left := map[[2]int64]int64{}
	for i := range both {
		both[i].visits = map[[2]int64]int{}
	}
	for _, x := range c.Book.All() {
		v, waiter := &both[c.isOlder(x.Process)], [2]int64{x.Process, x.Who}
		if x.First == 0 || x.First < from || x.First > to || x.Family != x.Index+1 { // a writer that reads on has waited once
			continue
		}
		v.visits[waiter]++
		v.waits = append(v.waits, time.Duration(x.First-max(x.Begun, from)))
		left[waiter] = max(left[waiter], x.First)
	}
	for waiter, at := range left {
		v := &both[c.isOlder(waiter[0])]
		v.longest = max(v.longest, slices.Max(v.waits), time.Duration(to-at))
	}
	return both
}

func (c *fleet) isOlder(process int64) int {
	if slices.Contains(c.older, process) {
		return 1
	}
	return 0
}

// fleets are the kinds of locks that both versions share, and the goroutines of a process.
var fleets = []struct {
	what       string
	goroutines int
}{
	{"plain", 1}, {"plain", 4}, {"fenced", 1}, {"fenced", 4}, {"fair", 4}, {"rw", 4}, {"LockAll", 4}, {"polling", 4},
}

// Two processes of each version share a lock of each kind.
func TestTwoVersionsOfTheWireExcludeEachOtherAndEachMakesProgress(t *testing.T) {
	olderWorker(t)
	for _, tt := range fleets {
		run := func(t *testing.T) { shareAmongVersions(t, tt.what, tt.goroutines) }
		if name := fmt.Sprintf("%s, %d", tt.what, tt.goroutines); *fleetFor < fleetTimed {
			harness.Beside(t, name, run)
		} else {
			t.Run(name, run) // times are asserted
		}
	}
}

func shareAmongVersions(t *testing.T, what string, goroutines int) {
	config := workerConfig{Workload: "turns", What: what, Fenced: what == "fenced", Watchdog: 30 * time.Second}
	c := fleet{crew: newCrew(t, config)}
	for _, client := range harness.Libraries {
		c.startOlder(client, goroutines)
		c.start(client, goroutines)
	}
	from := harness.Now()
	c.run(from + int64(*fleetFor))
	var both [2]version
	all, few := 2*goroutines, fleetVisits
	longest := fleetWait
	switch what {
	case "polling": // a lock with a queue of this version's waiters is never free when the older version polls
		few = 0
	case "LockAll": // the older version's gets names that are free at once, which is seldom
		few, longest = 1, 3*fleetWait
	}
	harness.Await(t, time.Minute, "each goroutine of both versions has had the lock some times", func() bool {
		both = c.versions(from, harness.Now())
		return both[0].least(all) >= fleetVisits && both[1].least(all) >= few
	})
	if few == 0 {
		for p := range c.Members {
			if c.isOlder(int64(p)) == 0 {
				c.stop(p)
			}
		}
		harness.Await(t, time.Minute, "the older version goes on alone", func() bool {
			alone := c.versions(from, harness.Now())
			return alone[1].least(all) >= fleetVisits
		})
	}
	c.Finish()
	c.fails(c.judge(), true)
	total := both[0].total() + both[1].total()
	for i, name := range []string{"this version", "the older one"} {
		v := &both[i]
		share := float64(v.total()) / float64(total)
		t.Logf("%s: share %.2f of %d, wait: p99 %v, longest %v", name, share, total,
			time.Duration(stats.Quantile(v.waits, 0.99)).Round(100*time.Microsecond), v.longest.Round(time.Millisecond))
		promised := i == 0 || few > 0
		harness.ErrorIf(t, promised && share < fleetShare, "%s has %.3f of the visits, want %.2f or more", name, share,
			fleetShare)
		harness.ErrorIf(t, promised && *fleetFor >= fleetTimed && v.longest > longest,
			"a waiter of %s waited for %v, want at most %v", name, v.longest, longest)
	}
}

// A fleet rolls over, process by process, and one process goes back.
func TestAFleetRollsOverToThisVersionOfTheWire(t *testing.T) {
	olderWorker(t)
	for _, what := range []string{"", "fair", "rw", "LockAll"} {
		harness.Beside(t, cmp.Or(what, "lock"), func(t *testing.T) {
			const goroutines, lease = 3, 2 * time.Second
			c := fleet{crew: newCrew(t, workerConfig{Workload: "crowd", What: what, Watchdog: lease})}
			c.rules.Slack = int64(slack + 2*time.Second)
			for i := range 3 {
				c.startOlder(harness.Libraries[i%2], goroutines)
			}
			within := lease + time.Duration(c.rules.Slack) + patience
			c.progress("the older version started", within)
			for p := range 3 {
				client := harness.Libraries[p%2]
				c.start(client, goroutines)
				c.progress("a process of this version started", within)
				if p == 1 {
					c.hang(p)
					c.kill(p)
				} else {
					c.stop(p)
				}
				c.progress("a process of the older version ended", within)
			}
			c.startOlder(harness.GoRedis, goroutines)
			c.progress("a process of the older version started", within)
			c.stop(3)
			c.progress("a process of this version ended", within)
			c.Finish()
			v := c.judge()
			t.Log(v)
			c.fails(v, v.Dead > 0)
		})
	}
}
