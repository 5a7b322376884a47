//go:build linux

package bench

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	base  = flag.String("base", "", "the test binary of the old revision, for BenchmarkCompare")
	quick = flag.Bool("quick", false, "compare in three short rounds, and only workloads on whose times a bar rests")
)

// What the new revision may cost, beside the old one.
const (
	// The least median of the rounds' ratios of rates, new to old. Where the old revision beside itself differs
	// by more than sameRatio allows, although the row was repeated, the lower edge of that is the least.
	leastRatio = 0.97
	sameRatio  = 0.015

	// Rows of one goroutine: every operation sends and allocates the same. The rest is for the background
	// and for the operation that the window's end cuts in two.
	exactCommands, exactAllocs = 0.02, 0.5
	// Rows of several goroutines: calls that meet share a command and its allocations, and the scheduler
	// decides which calls meet. A revision compared with itself differed by 8 to 19 % of the commands and 1 to
	// 3 % of the allocations.
	sharedCommands, sharedAllocs = 0.15, 0.05
	// Leases that are held: the heap in use, and renewals. 20,000 leases on a busy machine differed by 4 % of the bytes.
	leaseBytes, leaseCommands = 0.05, 0.10
)

// A row that misses, or whose old revision beside itself differs too much, goes on until it has extended times as many
// rounds. All its rounds count.
const extended = 4

// BenchmarkCompare is `make bench-compare`. The workers of the old side run -base, the workers of the
// new side run this binary. Driver, server, workloads and arithmetic are the same for both sides.
func BenchmarkCompare(b *testing.B) {
	harness.FatalIf(b, *base == "", "no old binary; run make bench-compare, or set -base")
	began := time.Now()
	h := &hosts{redis: startRedis(b)}
	n, least := *rounds, *window
	if *quick {
		n, least = 3, 200*time.Millisecond
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("load of the last minute, and so on: %s", load)
	}
	var list []*comparison
	for _, w := range workloads() {
		if !strings.Contains(w.name, *only) || *quick && w.once {
			continue
		}
		for _, c := range contenders() {
			if c.role != mine || !w.plays(c) || !strings.Contains(c.name, *who) {
				continue
			}
			p := compare(b, h, w, c, n, least)
			fmt.Printf("%s, %s:%s\n", p.workload, p.contender,
				fmt.Sprintf(strings.Repeat(" %.3f", len(p.old)), anys(p.ratios())...))
			list = append(list, p)
		}
	}
	printComparisons(os.Stdout, list)
	for _, p := range list {
		for _, fault := range p.faults() {
			b.Errorf("%s, %s: %s", p.workload, p.contender, fault)
		}
	}
	if strings.Contains("leases", *only) && !*quick {
		compareLeases(b)
	}
	fmt.Printf("\nin %v\n", time.Since(began).Round(time.Second))
}

// comparison is one row: a workload and one of our contenders, in two revisions.
type comparison struct {
	workload, contender string
	alone               bool      // one goroutine
	old, new, again     []outcome // by round: the old revision runs before the new one, and again after it
	oldSent, newSent    []float64 // commands an operation, counted in runs of their own
}

// older is c at the old revision.
func older(c contender) contender {
	c.binary = *base
	return c
}

// compare runs rounds of old, new and old; and more of them if the row misses, or if the old rates differ.
func compare(t testing.TB, h *hosts, w workload, c contender, rounds int, least time.Duration) *comparison {
	t.Helper()
	p := &comparison{workload: w.name, contender: c.name, alone: w.waiters() == 1}
	run := func(c contender, window time.Duration, what watch) outcome {
		o, err := w.run(t, h, c, window, what)
		harness.FatalIf(t, err != nil, "%s, %s, binary %q: %v", w.name, c.name, c.binary, err)
		return *o
	}
	for len(p.old) == 0 || len(p.old) < extended*rounds && (!p.steady() || len(p.faults()) > 0) {
		for range rounds {
			p.old = append(p.old, run(older(c), w.window(least), nothing))
			p.new = append(p.new, run(c, w.window(least), nothing))
			p.again = append(p.again, run(older(c), w.window(least), nothing))
		}
		for range min(rounds, 3) {
			p.oldSent = append(p.oldSent, run(older(c), least, sending).commands)
			p.newSent = append(p.newSent, run(c, least, sending).commands)
		}
	}
	return p
}

// ratios of rates are new to old, by round. The old rate of a round is the mean of those before and after the new one:
// a machine that grows slower or faster meanwhile does not count.
func (p *comparison) ratios() (list []float64) {
	for i := range p.old {
		list = append(list, 2*p.new[i].rate/(p.old[i].rate+p.again[i].rate))
	}
	return list
}

// same is the median ratio of the old revision's rates to its own rates.
func (p *comparison) same() float64 {
	var list []float64
	for i := range p.old {
		list = append(list, p.again[i].rate/p.old[i].rate)
	}
	return median(list)
}

// edge is the lower edge of what the old revision differs by from itself. Which of its runs is first does not count.
func (p *comparison) edge() float64 { return min(p.same(), 1/p.same()) }

// steady reports whether the old revision is as fast as itself.
func (p *comparison) steady() bool { return math.Abs(p.same()-1) <= sameRatio }

// verdict says whether the row is met, and by what, and names commands and allocations that differ.
func (p *comparison) verdict() string {
	var said []string
	differ := func(what string, old, new, exact float64) {
		if math.Abs(new-old) > exact {
			said = append(said, fmt.Sprintf("%+.2f %s", new-old, what))
		}
	}
	differ("commands", median(p.oldSent), median(p.newSent), exactCommands)
	differ("allocations", medians(p.old).allocs, medians(p.new).allocs, exactAllocs)
	is := "met"
	if len(p.faults()) > 0 {
		is = "MISSED"
	} else if median(p.ratios()) < leastRatio {
		is = "met by A/A"
	}
	return strings.Join(append([]string{is}, said...), ", ")
}

// faults lists what the row misses. A figure that is not a number is a miss.
func (p *comparison) faults() (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	least := leastRatio
	if !p.steady() {
		least = min(least, p.edge())
	}
	if r := median(p.ratios()); !(r >= least) {
		add("the median ratio of rates is %.3f, want %.3f at least", r, least)
	}
	judge := func(what string, old, new, exact, shared float64) {
		if p.alone && !(new-old <= exact) {
			add("%.2f %s an operation, want no more than the old revision's %.2f", new, what, old)
		}
		if !p.alone && !(new <= old*(1+shared)+exact) {
			add("%.2f %s an operation, old %.2f; want %.0f %% more at most", new, what, old, 100*shared)
		}
	}
	judge("commands", median(p.oldSent), median(p.newSent), exactCommands, sharedCommands)
	judge("allocations", medians(p.old).allocs, medians(p.new).allocs, exactAllocs, sharedAllocs)
	return list
}

func printComparisons(out io.Writer, list []*comparison) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(out, "\nA is the old revision, B the new one. A/A and A/B are median ratios of rates, the later to the "+
		"earlier. Commands and allocations are of one operation.")
	w := columns(out)
	fmt.Fprintln(w, "\trounds\tA/A\tA/B\tcommands, old\tnew\tallocations, old\tnew\tverdict\t")
	var middles []float64
	for _, p := range list {
		r := median(p.ratios())
		middles = append(middles, r)
		fmt.Fprintf(w, "%s, %s\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.1f\t%.1f\t%s\t\n", p.workload, p.contender, len(p.old),
			p.same(), r, median(p.oldSent), median(p.newSent), medians(p.old).allocs, medians(p.new).allocs, p.verdict())
	}
	w.Flush()
	fmt.Fprintf(out, "A/B: from %.3f to %.3f, their median %.3f\n", slices.Min(middles), slices.Max(middles),
		median(middles))
}

// compareLeases has both revisions hold leases at the same time, each on a server of its own. The
// figures are counts and bytes, so the sides do not disturb each other.
func compareLeases(t testing.TB) {
	t.Helper()
	var both []contender
	for _, c := range holders() {
		if strings.Contains(c.name, *who) {
			both = append(both, older(c), c)
		}
	}
	held := hold(t, both, *leases, 30*time.Second, *leaseFor, "")
	for i := 0; i+1 < len(held); i += 2 {
		old, new := held[i], held[i+1]
		fmt.Printf("leases, %s: bytes each %.0f, new %.0f; commands a second %.1f, new %.1f; own goroutines %d, new %d\n",
			new.contender, old.bytes, new.bytes, old.commands, new.commands, old.goroutines, new.goroutines)
		for _, fault := range leaseFaults(old, new) {
			t.Errorf("leases, %s: %s", new.contender, fault)
		}
	}
}

// leaseFaults lists what the new revision misses when it holds leases.
func leaseFaults(old, new holding) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if !(new.bytes <= old.bytes*(1+leaseBytes)) {
		add("%.0f bytes each, old %.0f; want %.0f %% more at most", new.bytes, old.bytes, 100*leaseBytes)
	}
	if !(new.commands <= old.commands*(1+leaseCommands)) {
		add("%.1f commands a second, old %.1f; want %.0f %% more at most", new.commands, old.commands, 100*leaseCommands)
	}
	if new.goroutines > old.goroutines {
		add("%d goroutines of its own, old %d", new.goroutines, old.goroutines)
	}
	if new.lost+new.missing > 0 {
		add("%d leases lost, %d gone from the server", new.lost, new.missing)
	}
	return list
}

func anys(list []float64) (all []any) {
	for _, v := range list {
		all = append(all, v)
	}
	return all
}

// Each figure that a row is judged by is missed when it is just over its bound, and met at the bound.
func TestACompareRowMissesByEachOfItsFigures(t *testing.T) {
	row := func(alone bool, rate, commands, allocs float64) *comparison {
		p := &comparison{alone: alone}
		for _, noise := range []float64{1, 0.5, 2} { // of the machine: all runs of a round have it
			p.old = append(p.old, outcome{rate: 1000 * noise, allocs: 20})
			p.new = append(p.new, outcome{rate: 1000 * noise * rate, allocs: allocs})
			p.again = append(p.again, outcome{rate: 1000 * noise, allocs: 20})
			p.oldSent, p.newSent = append(p.oldSent, 2), append(p.newSent, commands)
		}
		return p
	}
	// The old revision's second run is faster than the first, both by half of what is said.
	unsteady := func(same, rate float64) *comparison {
		p := row(true, rate, 2, 20)
		for i := range p.again {
			mean := p.old[i].rate
			p.old[i].rate, p.again[i].rate = 2*mean/(1+same), 2*mean*same/(1+same)
		}
		return p
	}
	for _, c := range []struct {
		what    string
		row     *comparison
		verdict string
		missed  string // the fault's beginning
	}{
		{"the same", row(true, 1, 2, 20), "met", ""},
		{"faster", row(true, 1.5, 2, 20), "met", ""},
		{"3 % slower", row(true, 0.9701, 2, 20), "met", ""},
		{"more than 3 % slower", row(true, 0.969, 2, 20), "MISSED", "the median ratio of rates is 0.969, want 0.970"},
		{"A/A within, 3 % slower", unsteady(0.986, 0.9701), "met", ""},
		{"A/A within, more than 3 % slower", unsteady(1.014, 0.969), "MISSED",
			"the median ratio of rates is 0.969, want 0.970"},
		{"A/A without, but above the least", unsteady(0.98, 0.9701), "met", ""},
		{"A/A 5 % slower, above its edge", unsteady(0.95, 0.9501), "met by A/A", ""},
		{"A/A 5 % slower, below its edge", unsteady(0.95, 0.949), "MISSED", "the median ratio of rates is 0.949, want 0.950"},
		{"A/A faster, above its edge", unsteady(1/0.95, 0.9501), "met by A/A", ""},
		{"A/A faster, below its edge", unsteady(1/0.95, 0.949), "MISSED", "the median ratio of rates is 0.949, want 0.950"},
		{"no rate", row(true, math.NaN(), 2, 20), "MISSED", "the median ratio of rates is NaN"},
		{"no rate of A/A", unsteady(math.NaN(), 1), "MISSED", "the median ratio of rates is NaN"},
		{"alone, one command more in ten operations", row(true, 1, 2.1, 20), "MISSED, +0.10 commands", "2.10 commands"},
		{"alone, one command less in ten operations", row(true, 1, 1.9, 20), "met, -0.10 commands", ""},
		{"alone, an allocation more", row(true, 1, 2, 21), "MISSED, +1.00 allocations", "21.00 allocations"},
		{"alone, an allocation less", row(true, 1, 2, 19), "met, -1.00 allocations", ""},
		{"not alone, commands within", row(false, 1, 2.3, 20), "met, +0.30 commands", ""},
		{"not alone, commands above", row(false, 1, 2.35, 20), "MISSED, +0.35 commands", "2.35 commands"},
		{"not alone, fewer commands", row(false, 1, 1, 20), "met, -1.00 commands", ""},
		{"not alone, allocations within", row(false, 1, 2, 21.4), "met, +1.40 allocations", ""},
		{"not alone, allocations above", row(false, 1, 2, 21.6), "MISSED, +1.60 allocations", "21.60 allocations"},
	} {
		got := c.row.faults()
		met := len(got) == 0
		harness.ErrorIf(t, met != (c.missed == "") || !met && (len(got) != 1 || !strings.HasPrefix(got[0], c.missed)),
			"%s: %q, want %q", c.what, got, c.missed)
		harness.ErrorIf(t, c.row.verdict() != c.verdict, "%s: the verdict is %q, want %q", c.what, c.row.verdict(), c.verdict)
	}
	for same, steady := range map[float64]bool{
		1: true, 0.986: true, 1.014: true, 0.984: false, 1.016: false, math.NaN(): false,
	} {
		harness.ErrorIf(t, unsteady(same, 1).steady() != steady, "A/A %.3f: steady is %v", same, !steady)
	}
	old := holding{bytes: 500, commands: 40, goroutines: 6}
	for _, c := range []struct {
		new    holding
		missed string
	}{
		{old, ""},
		{holding{bytes: 526, commands: 40, goroutines: 6}, "526 bytes"},
		{holding{bytes: 500, commands: 45, goroutines: 6}, "45.0 commands"},
		{holding{bytes: 500, commands: 40, goroutines: 7}, "7 goroutines"},
		{holding{bytes: 500, commands: 40, goroutines: 6, lost: 1}, "1 leases lost"},
	} {
		if got := leaseFaults(old, c.new); (len(got) == 0) != (c.missed == "") || len(got) > 0 &&
			(len(got) != 1 || !strings.HasPrefix(got[0], c.missed)) {
			t.Errorf("%+v: %q, want %q", c.new, got, c.missed)
		}
	}
}
