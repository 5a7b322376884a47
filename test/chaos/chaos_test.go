//go:build linux

package chaos

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	runChaos    = flag.Bool("chaos", false, "run TestChaos and TestSelftest, which take minutes")
	chaosRounds = flag.Int("chaos.rounds", 1, "how often at least each fault happens in each deployment where it can")
	chaosTime   = flag.Duration("chaos.time", 0, "and for how long at least")
	chaosSeed   = flag.Uint64("chaos.seed", 0, "of the order of faults and what they do; by default another each time")
	chaosOps    = flag.Int("chaos.operations", 0, "and how many Locks and Unlocks at least")
	chaosMany   = flag.Int("chaos.faults", 0, "and how many faults")
	chaosTo     = flag.String("chaos.report", "", "a directory for chaos.md and chaos.svg")
	chaosOnly   = flag.String("chaos.only", "", "a fault, by name, to the exclusion of others")
)

func TestMain(m *testing.M) {
	harness.Worker(workerEnv, work)
	flag.Parse()
	if *runChaos {
		flag.Set("test.parallel", "4") // the deployments wait more than they work
		if unset := flag.Lookup("test.timeout").Value.String() == "0s"; unset {
			flag.Set("test.timeout", (15*time.Minute*time.Duration(*chaosRounds) + 2**chaosTime +
				time.Duration(*chaosMany)*10*time.Second + time.Duration(*chaosOps)*5*time.Millisecond).String())
		}
	}
	os.Exit(m.Run())
}

// usual is what a run is like.
func usual() workerConfig {
	return workerConfig{Lease: 2 * time.Second, Goroutines: 6, Think: 6 * time.Millisecond}
}

// deck is the faults of a site, in an order.
func (c *crew) deck() (all []kind) {
	for _, k := range catalog {
		if (k.sites == nil || slices.Contains(k.sites, c.site.kind)) && (*chaosOnly == "" || *chaosOnly == k.name) {
			all = append(all, k)
		}
	}
	c.rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// suffer does faults one after the other.
func (c *crew) suffer(kinds []kind) {
	c.t.Helper()
	c.progress("the start")
	for _, k := range kinds {
		c.lookAtMaster()
		strike := func() bool { return c.strike(k.name) }
		behind := ""
		if c.rand.IntN(4) == 0 && k.weather == nil {
			name := backgrounds[c.rand.IntN(len(backgrounds))]
			strike = func() bool { return c.before(name, func() bool { return c.strike(k.name) }) }
			behind = ", behind it: " + name
		}
		if !strike() {
			c.skipped = append(c.skipped, k.name)
			c.progress("a fault that was not done: " + k.name)
			continue
		}
		if k.promise == harness.TellsLater {
			c.master, c.seen = c.site.master(), harness.Now()
		}
		c.progress(k.name)
		if f := c.Faults[len(c.Faults)-1]; testing.Verbose() {
			c.t.Logf("%7.3f s to %7.3f s: %s%s; the next held after %v",
				seconds(f.From-c.Began), seconds(f.To-c.Began), k.name, behind, time.Duration(f.Again-f.To).Round(time.Millisecond))
		}
		pass(c.between(50*time.Millisecond, 300*time.Millisecond))
	}
	c.lookAtMaster()
	c.progress("all faults")
	pass(time.Duration(c.rules.Slack))
	harness.ErrorIf(c.t, c.stuck(), "a process waits for a lock without a holder")
	c.progress("a calm")
}

// lookAtMaster notes a failover that was not asked for: a machine that stands still for long
// looks to sentinels like a dead master.
func (c *crew) lookAtMaster() {
	c.t.Helper()
	if c.site.kind != sentinels {
		return
	}
	if m := c.site.master(); m != c.master {
		if c.master != nil {
			c.site.settle()
			c.Faults = append(c.Faults, harness.Fault{Kind: "failover that was not asked for", Promise: harness.TellsLater,
				From: c.seen - int64(10*time.Second), To: harness.Now(), Name: harness.NoName, Process: harness.NoProcess})
		}
		c.master = c.site.master()
	}
	c.seen = harness.Now()
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// outcome is what became of a crew.
type outcome struct {
	site    string
	redis   string // its version
	began   int64
	ended   int64
	faults  []harness.Fault
	skipped []string
	illEnds int
	strays  int
	remains int
	verdict harness.Verdict
	rate    []int // visits that came in, second by second
}

// round runs all deployments side by side, each of its faults once.
func round(t *testing.T, seed uint64) []outcome {
	var mu sync.Mutex
	var all []outcome
	t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
		for _, where := range everywhere {
			harness.Beside(t, where, func(t *testing.T) {
				c := newCrew(t, where, usual(), seed)
				c.startAll()
				c.suffer(c.deck())
				o := c.end()
				mu.Lock()
				defer mu.Unlock()
				all = append(all, o)
			})
		}
	})
	slices.SortFunc(all, func(a, b outcome) int {
		return slices.Index(everywhere, a.site) - slices.Index(everywhere, b.site)
	})
	return all
}

// end ends a run and judges it.
func (c *crew) end() outcome {
	c.t.Helper()
	ended := harness.Now()
	c.finish()
	c.lookAtMaster()
	c.left()
	v := c.verdict()
	linearize(&v, c.Book.All(), c.Faults)
	c.t.Logf("%d faults, %v", len(c.Faults), v)
	if len(c.skipped) > 0 {
		c.t.Logf("could not be done: %q", c.skipped)
	}
	if took, over := lull(c.Book.All(), c.Faults); took > int64(time.Second) {
		c.t.Logf("no lock was granted anywhere for %v, until %.3f s", time.Duration(took).Round(time.Millisecond),
			seconds(over-c.Began))
	}
	if v.Longest.Took > 0 {
		c.t.Logf("the longest after a partition, %v: %s", time.Duration(v.Longest.Took), v.Longest.What)
	}
	if v.Bad() {
		c.t.Errorf("%s", v.Why())
	}
	o := outcome{site: c.site.kind, redis: c.site.version(), began: c.Began, ended: ended, faults: c.Faults,
		skipped: c.skipped, illEnds: c.illEnds, strays: int(c.Book.Strays.Load()), remains: len(c.remains), verdict: v}
	o.rate = make([]int, (ended-c.Began)/int64(time.Second)+1)
	for _, x := range c.Book.All() {
		if i := (x.First - c.Began) / int64(time.Second); x.First != 0 && int(i) < len(o.rate) {
			o.rate[i]++
		}
	}
	return o
}

func TestChaos(t *testing.T) {
	if !*runChaos {
		t.Skip("it takes minutes: make chaos")
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano() % 1_000_000_000)
	}
	t.Logf("replay with: go test -run TestChaos -chaos -chaos.seed=%d", seed)
	var all []outcome
	began := time.Now()
	for i := uint64(0); ; i++ {
		all = append(all, round(t, seed+i)...)
		v, faults := total(all)
		t.Logf("after %v: %d faults, %v", time.Since(began).Round(time.Second), faults, v)
		write(t, seed, time.Since(began), all)
		if t.Failed() || i+1 >= uint64(*chaosRounds) && time.Since(began) >= *chaosTime && v.Operations >= *chaosOps &&
			faults >= *chaosMany {
			break
		}
	}
	if len(all) == 0 {
		return // it failed before anything was done
	}
	t.Logf("\n%s", markdown(seed, time.Since(began), all))
}

// total sums up.
func total(all []outcome) (v harness.Verdict, faults int) {
	for _, o := range all {
		v.Add(o.verdict)
		faults += len(o.faults)
	}
	return v, faults
}

// smokeKinds are those of the test that is part of `make verify`.
var smokeKinds = []string{"holder killed", "partition of half of the processes", "reply lost, connection cut",
	"CLIENT KILL TYPE pubsub", "server killed, back with its AOF"}

func TestSmoke(t *testing.T) {
	c := newCrew(t, standalone, usual(), 1)
	c.startAll()
	var kinds []kind
	for _, k := range catalog {
		if slices.Contains(smokeKinds, k.name) {
			kinds = append(kinds, k)
		}
	}
	harness.FatalIf(t, len(kinds) != len(smokeKinds), "%d kinds of faults, want %q", len(kinds), smokeKinds)
	c.suffer(kinds)
	o := c.end()
	harness.ErrorIf(t, len(o.skipped) > 0, "could not be done: %q", o.skipped)
}

// lull is the longest time between faults in which no visit came in anywhere, and when it was over.
func lull(visits []harness.Visit, faults []harness.Fault) (longest, over int64) {
	var came []int64
	for _, x := range visits {
		if x.First != 0 {
			came = append(came, x.First)
		}
	}
	slices.Sort(came)
	for i := 1; i < len(came); i++ {
		from := came[i-1]
		for _, f := range faults {
			if f.From < came[i] {
				from = max(from, min(f.To, came[i]))
			}
		}
		if came[i]-from > longest {
			longest, over = came[i]-from, came[i]
		}
	}
	return longest, over
}
