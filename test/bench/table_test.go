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
	"text/tabwriter"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

var (
	rounds = flag.Int("rounds", 5, "runs of each, in turns")
	window = flag.Duration("window", time.Second, "how long a run takes")
	only   = flag.String("workload", "", "run the workloads whose name contains this")
)

func workloads() []workload {
	list := []workload{
		{name: "uncontended 1", what: "1 goroutine, Lock and Unlock", processes: 1, goroutines: 1},
		{name: "uncontended 32", what: "32 goroutines, a name each", processes: 1, goroutines: 32},
		{name: "uncontended 256", what: "256 goroutines, a name each", processes: 1, goroutines: 256},
		{name: "refused", what: "1 goroutine, TryLock of a lock that is held", processes: 1, goroutines: 1, try: true},
		{name: "contended 1x64", what: "one process, 64 goroutines, one name, held 0", processes: 1, goroutines: 64, shared: true},
	}
	for _, p := range []int{2, 8, 16} {
		list = append(list, workload{
			name: fmt.Sprintf("contended %dx16", p), what: fmt.Sprintf("%d processes of 16 goroutines, one name, held 1 ms", p),
			processes: p, goroutines: 16, shared: true, hold: time.Millisecond,
		})
	}
	return list
}

// BenchmarkTable is `make bench`. It measures in its own way, once.
func BenchmarkTable(b *testing.B) {
	s := redistest.Start(b)
	all := make(results)
	for _, w := range workloads() {
		if strings.Contains(w.name, *only) {
			all[w.name] = measure(b, s, w, *rounds, *window)
			all[w.name].print(os.Stdout)
		}
	}
	all.bars(os.Stdout)
}

// result is a workload's outcomes: the medians of each contender, in the order of contenders().
type result struct {
	workload workload
	names    []string
	median   map[string]outcome
}

type results map[string]*result

// measure has the contenders take turns. Commands are counted in one more run.
func measure(t testing.TB, s *redistest.Server, w workload, rounds int, window time.Duration) *result {
	t.Helper()
	r := &result{workload: w, median: make(map[string]outcome)}
	runs := make(map[string][]outcome)
	for n := range rounds {
		for _, c := range contenders() {
			if w.plays(c) {
				runs[c.name] = append(runs[c.name], w.run(t, s, c, window, false))
				if n == 0 {
					r.names = append(r.names, c.name)
				}
			}
		}
	}
	for _, c := range contenders() {
		if w.plays(c) {
			m := medians(runs[c.name])
			m.commands = w.run(t, s, c, min(window, time.Second), true).commands
			r.median[c.name] = m
		}
	}
	return r
}

// medians takes each figure's own; commands are not among them.
func medians(runs []outcome) (m outcome) {
	for i, figure := range m.figures() {
		var v []float64
		for k := range runs {
			v = append(v, *runs[k].figures()[i])
		}
		*figure = median(v)
	}
	return m
}

func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", r.workload.name, r.workload.what)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tper second\tcommands\tp50\tp99\tmax\tp99/mean\tJain\tclient CPU\tserver CPU\tallocs\tbytes\tgoroutines\tconnections\t")
	for _, name := range r.names {
		o := r.median[name]
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t%.1f\t%.3f\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", name, o.rate, o.commands,
			micros(o.p50), micros(o.p99), micros(o.max), o.p99/o.mean, o.jain, micros(o.cpu), micros(o.server), o.allocs, o.bytes, o.goroutines, o.conns)
	}
	w.Flush()
}

func micros(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return time.Duration(v * 1e3).Round(time.Duration(math.Pow(10, max(0, math.Floor(math.Log10(v*1e3+1))-2)))).String()
}

// of is a figure of a contender, NaN where it was not measured.
func (r results) of(workload, name string, get func(outcome) float64) float64 {
	if w := r[workload]; w != nil {
		if o, ok := w.median[name]; ok {
			return get(o)
		}
	}
	return math.NaN()
}

// best is the largest figure of those that play a role.
func (r results) best(workload string, role role, get func(outcome) float64) float64 {
	best := math.NaN()
	for _, c := range contenders() {
		if v := r.of(workload, c.name, get); c.role == role && !math.IsNaN(v) && (math.IsNaN(best) || v > best) {
			best = v
		}
	}
	return best
}

func rate(o outcome) float64     { return o.rate }
func p99(o outcome) float64      { return o.p99 }
func commands(o outcome) float64 { return o.commands }
func allocs(o outcome) float64   { return o.allocs }
func spread(o outcome) float64   { return o.p99 / o.mean }

// bars is what this project wants of itself.
func (r results) bars(out io.Writer) {
	type bar struct {
		what  string
		least bool
		want  float64
		got   float64
	}
	const (
		u1, u32, u256 = "uncontended 1", "uncontended 32", "uncontended 256"
		crowd, local  = "contended 8x16", "contended 1x64"
		gr, ru        = "mortise, go-redis", "mortise, rueidis"
		hashGR        = "hash floor, go-redis"
		hashRU        = "hash floor, rueidis"
		bareRU        = "bare floor, rueidis"
	)
	ratio := func(workload, a, b string, get func(outcome) float64) float64 {
		return r.of(workload, a, get) / r.of(workload, b, get)
	}
	// A command's way and back, of one goroutine: half of the bare floor's two.
	rtt := r.of(u1, bareRU, func(o outcome) float64 { return o.p50 }) / 2
	queue := func(name string) float64 {
		perfect := 1e6 / (r.of(crowd, name, func(o outcome) float64 { return o.held }) + rtt)
		return r.of(crowd, name, rate) / perfect
	}
	bars := []bar{
		{"uncontended 32: mortise/rueidis to the hash floor", true, 0.97, ratio(u32, ru, hashRU, rate)},
		{"uncontended 32: mortise/rueidis to the bare floor", true, 0.88, ratio(u32, ru, bareRU, rate)},
		{"uncontended 32: mortise/go-redis to the hash floor", true, 1.2, ratio(u32, gr, hashGR, rate)},
		{"uncontended 256: mortise/go-redis to the hash floor", true, 1.5, ratio(u256, gr, hashGR, rate)},
		{"uncontended 256: p99 of mortise/go-redis to the hash floor's", false, 0.4, ratio(u256, gr, hashGR, p99)},
		{"uncontended 1: mortise/go-redis to the hash floor", true, 0.97, ratio(u1, gr, hashGR, rate)},
		{"uncontended 1: mortise/rueidis to the hash floor", true, 0.97, ratio(u1, ru, hashRU, rate)},
		{"uncontended 32: the best of ours to the best peer", true, 1.6, r.best(u32, mine, rate) / r.best(u32, peer, rate)},
		{"contended 8x16: mortise/go-redis to a perfect queue", true, 0.95, queue(gr)},
		{"contended 8x16: mortise/rueidis to a perfect queue", true, 0.95, queue(ru)},
		{"contended 8x16: commands per handoff, go-redis", false, 2.5, r.of(crowd, gr, commands)},
		{"contended 8x16: commands per handoff, rueidis", false, 2.5, r.of(crowd, ru, commands)},
		{"contended 8x16: p99 wait to the mean, go-redis", false, 4, r.of(crowd, gr, spread)},
		{"contended 8x16: p99 wait to the mean, rueidis", false, 4, r.of(crowd, ru, spread)},
		{"contended 8x16: p99 wait to the mean, fair, go-redis", false, 1.5, r.of(crowd, "mortise fair, go-redis", spread)},
		{"contended 8x16: p99 wait to the mean, fair, rueidis", false, 1.5, r.of(crowd, "mortise fair, rueidis", spread)},
		{"contended 1x64: the best of ours to the best peer", true, 2, r.best(local, mine, rate) / r.best(local, peer, rate)},
		{"contended 1x64: commands per handoff, go-redis", false, 1.1, r.of(local, gr, commands)},
		{"contended 1x64: commands per handoff, rueidis", false, 1.1, r.of(local, ru, commands)},
		{"refused: mortise/rueidis to the best peer", true, 20, r.of("refused", ru, rate) / r.best("refused", peer, rate)},
		{"refused: commands, rueidis", false, 0.01, r.of("refused", ru, commands)},
		{"uncontended 32: allocations above the floor, go-redis", false, 12, r.of(u32, gr, allocs) - r.of(u32, hashGR, allocs)},
		{"uncontended 32: allocations above the floor, rueidis", false, 12, r.of(u32, ru, allocs) - r.of(u32, hashRU, allocs)},
	}
	bars = slices.DeleteFunc(bars, func(b bar) bool { return math.IsNaN(b.got) })
	if len(bars) == 0 {
		return
	}
	fmt.Fprintf(out, "\nThe bars\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, b := range bars {
		sign, met := "<=", b.got <= b.want
		if b.least {
			sign, met = ">=", b.got >= b.want
		}
		verdict := "met"
		if !met {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%s %.2f\t%.2f\t%s\n", b.what, sign, b.want, b.got, verdict)
	}
	w.Flush()
}
