//go:build linux

package bench

import (
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	rounds   = flag.Int("rounds", 5, "runs of each, in turns")
	window   = flag.Duration("window", 500*time.Millisecond, "how long a run takes at least")
	every    = flag.Bool("every", false, "all rounds of all workloads, also of those on whose times no bar rests")
	only     = flag.String("workload", "", "run the workloads whose name contains this; leases is one, too")
	who      = flag.String("contender", "", "have those take part whose name contains this")
	leases   = flag.Int("leases", 100_000, "how many leases are held")
	leaseFor = flag.Duration("leasefor", time.Minute, "for how long")
	heapFile = flag.String("heap", "", "write profiles of the heap while leases are held to files that begin so")
	docs     = flag.String("docs", "", "write plots, and the generated part of performance.md, into this directory")
)

// BenchmarkTable is `make bench`. It measures in its own way, once.
func BenchmarkTable(b *testing.B) {
	began := time.Now()
	h := &hosts{redis: startRedis(b), java: findJava(b)}
	if path := findEtcd(); path != "" {
		var err error
		if h.etcd, err = startEtcd(b, path); err != nil {
			b.Log(err)
		}
	}
	all := &results{of: make(map[string]*result), at: began, hosts: h, setting: describe(b, h)}
	fmt.Println(all.setting)
	var list []workload
	for _, w := range workloads() {
		if strings.Contains(w.name, *only) {
			list = append(list, w)
		}
	}
	if h.java != nil && len(list) > 0 && strings.Contains("Redisson", *who) {
		h.java.warm(b, h, list)
		fmt.Printf("\nRedisson is warm after %v\n", time.Since(began).Round(time.Second))
	}
	for _, w := range list {
		n := *rounds
		if w.once && !*every {
			n = 1
		}
		start := time.Now()
		all.of[w.name] = measure(b, h, w, n, *window)
		all.of[w.name].print(os.Stdout)
		fmt.Printf("%d rounds, in %v\n", n, time.Since(start).Round(time.Second))
	}
	if strings.Contains("leases", *only) {
		all.held = hold(b, holders(), *leases, 30*time.Second, *leaseFor, *heapFile)
		printHoldings(os.Stdout, all.held, *leaseFor)
	}
	if strings.Contains("refused", *only) {
		for _, trip := range tripsOfInvalidations {
			l := refusals(b, h.redis.Server, trip, 100)
			l.print(os.Stdout)
			all.late = append(all.late, l)
		}
	}
	all.spending(os.Stdout)
	all.printBars(os.Stdout)
	fmt.Printf("\nin %v\n", time.Since(began).Round(time.Second))
	if *docs == "" {
		return
	}
	harness.OK(b, all.write(*docs))
}

// result is a workload's outcomes: the medians of each contender, in the order of contenders().
type result struct {
	workload workload
	names    []string
	median   map[string]outcome
	spent    map[string]spent // of floors and ours, where a profile was taken
	failed   []string         // runs, each with its contender and why
}

type results struct {
	of      map[string]*result
	held    []holding
	late    []lateness
	hosts   *hosts
	at      time.Time
	setting string
}

// profileFor is how long a profile is taken: some hundred samples a second.
const profileFor = 3 * time.Second

// measure has the contenders take turns. Commands are counted in one more run, and a profile is taken in another.
func measure(t testing.TB, h *hosts, w workload, rounds int, least time.Duration) *result {
	t.Helper()
	r := &result{workload: w, median: make(map[string]outcome), spent: make(map[string]spent)}
	var players []contender
	for _, c := range contenders() {
		if w.plays(c) && h.has(c) && strings.Contains(c.name, *who) {
			players = append(players, c)
			r.names = append(r.names, c.name)
		}
	}
	runs := make(map[string][]outcome)
	for range rounds {
		for _, c := range players {
			if o := r.run(t, h, c, w.window(least), nothing); o != nil {
				runs[c.name] = append(runs[c.name], *o)
			}
		}
	}
	for _, c := range players {
		m := medians(runs[c.name])
		m.commands, m.sent = math.NaN(), math.NaN()
		if o := r.run(t, h, c, least, sending); o != nil {
			m.commands, m.sent = o.commands, o.sent
		}
		r.median[c.name] = m
		if !w.profiled() || c.role == peer {
			continue
		}
		if o := r.run(t, h, c, max(least, profileFor), profiling); o != nil {
			r.spent[c.name] = spent{o.cpu, o.server, o.rate * (o.cpu + o.server) / 1e6, o.switches, o.parts}
		}
	}
	return r
}

// run is nil if the run failed. That a peer fails is shown, and no failure of this benchmark.
func (r *result) run(t testing.TB, h *hosts, c contender, window time.Duration, what watch) *outcome {
	t.Helper()
	o, err := r.workload.run(t, h, c, window, what)
	if err == nil {
		return o
	}
	r.failed = append(r.failed, fmt.Sprintf("%s, %s: %v", r.workload.name, c.name, err))
	if c.role != peer {
		t.Error(r.failed[len(r.failed)-1])
	}
	return nil
}

// medians takes each figure's own; commands are not among them. Of nothing they are NaN.
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

func columns(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

func (r *result) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", r.workload.name, r.workload.what)
	w := columns(out)
	head := "\tper second\tx Redisson\tcommands\tp50\tp99\tmax\tp99/mean\tJain\theld\t" +
		"client CPU\tserver CPU\tallocs\tbytes\tgoroutines\tconnections\t"
	if r.workload.slow {
		head += "p50 in round trips\t"
	}
	fmt.Fprintln(w, head)
	java := r.median["Redisson"].rate // 0 where it is not there
	for _, name := range r.names {
		o := r.median[name]
		row := []string{name, number(o.rate, 0), number(o.rate/java, 2), number(o.commands, 2), micros(o.p50),
			micros(o.p99), micros(o.max), number(o.p99/o.mean, 1),
			number(o.jain, 3), micros(o.held), micros(o.cpu), micros(o.server), number(o.allocs, 0), number(o.bytes,
				0), number(o.goroutines, 0), number(o.conns, 0)}
		if r.workload.slow {
			row = append(row, number(trips(o), 1))
		}
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	w.Flush()
	for _, why := range r.failed {
		fmt.Fprintln(out, "FAILED:", why)
	}
}

// number writes v, or a dash where it was not measured.
func number(v float64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "-"
	}
	return fmt.Sprintf("%.*f", digits, v)
}

func micros(v float64) string {
	if math.IsNaN(v) {
		return "-"
	}
	return time.Duration(v * 1e3).Round(time.Duration(math.Pow(10, max(0, math.Floor(math.Log10(v*1e3+1))-2)))).String()
}

// figure is one of a contender's, NaN where it was not measured.
func (r *results) figure(workload, name string, get func(outcome) float64) float64 {
	if w := r.of[workload]; w != nil {
		if o, ok := w.median[name]; ok {
			return get(o)
		}
	}
	return math.NaN()
}

// best is the largest figure of those that play a role. Ours with a context that cannot end is
// not among them: the others could be left.
func (r *results) best(workload string, role role, get func(outcome) float64) float64 {
	best := math.NaN()
	for _, c := range contenders() {
		if v := r.figure(workload, c.name, get); c.role == role && !c.endless && !math.IsNaN(v) &&
			(math.IsNaN(best) || v > best) {
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
func trips(o outcome) float64    { return o.p50 / float64((2 * delay).Microseconds()) }
