//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// What is generated of performance.md stands between these.
const (
	beginMark = "<!-- bench: from here on written by `make bench` -->\n"
	endMark   = "<!-- bench: up to here -->\n"
)

// describe says what was measured on what, and what is missing.
func describe(t testing.TB, h *hosts) string {
	t.Helper()
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	add("%d cores", runtime.NumCPU())
	add("Redis %s, server and clients on the same machine", h.redis.Info("redis_version"))
	add("%s", strings.Replace(runtime.Version(), "go", "Go ", 1))
	for _, m := range []struct{ name, path string }{
		{"go-redis", "github.com/redis/go-redis/v9"},
		{"rueidis and its rueidislock", "github.com/redis/rueidis"},
		{"redsync", "github.com/go-redsync/redsync/v4"},
		{"bsm/redislock", "github.com/bsm/redislock"},
	} {
		version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", m.path).Output()
		harness.FatalIf(t, err != nil, "go list -m %s: %v", m.path, err)
		add("%s %s", m.name, strings.TrimPrefix(strings.TrimSpace(string(version)), "v"))
	}
	var missing []string
	if h.java != nil {
		add("Redisson %s on %s", redissonVersion, javaVersion())
	} else {
		missing = append(missing, "Redisson (a JDK and Maven)")
	}
	if h.etcd != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if status, err := h.etcd.client.Status(ctx, h.etcd.address); err == nil {
			add("etcd %s, which writes to the disk before it answers", status.Version)
		}
	} else {
		missing = append(missing, "etcd (etcd-server)")
	}
	out := strings.Join(parts, ", ") + "."
	if len(missing) > 0 {
		out += " Not there, and left out: " + strings.Join(missing, ", ") + "."
	}
	return out
}

// write draws the plots and renews the generated part of performance.md in dir. What was not run
// is left out, so all has to be.
func (r *results) write(dir string) error {
	if *only != "" {
		return errors.New("-docs needs all workloads: leave -workload out")
	}
	if err := r.draw(dir); err != nil {
		return err
	}
	path := filepath.Join(dir, "performance.md")
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var part bytes.Buffer
	r.page(&part)
	page, err = splice(page, part.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644)
}

// splice puts part between the marks of page.
func splice(page, part []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark))
	_, after, closed := bytes.Cut(rest, []byte(endMark))
	if !ok || !closed {
		return nil, fmt.Errorf("it lacks the lines %q and %q", beginMark, endMark)
	}
	return bytes.Join([][]byte{before, []byte(beginMark), part, []byte(endMark), after}, nil), nil
}

// title is its name on the page.
func (c contender) title() string {
	if c.role == mine {
		return strings.Replace(c.name, "mortise", "**mortise**", 1)
	}
	return c.name
}

// column is one of a table on the page.
type column struct {
	head  string
	value func(name string) string
}

// table has a row for each contender that took part in any of the workloads.
func (r *results) table(out io.Writer, head string, workloads []string, columns []column) {
	fmt.Fprintf(out, "\n| %s |", head)
	for _, c := range columns {
		fmt.Fprintf(out, " %s |", c.head)
	}
	fmt.Fprintf(out, "\n|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, c := range contenders() {
		took := false
		for _, w := range workloads {
			took = took || r.of[w] != nil && r.of[w].median[c.name].rate != 0
		}
		if !took {
			continue
		}
		fmt.Fprintf(out, "| %s |", c.title())
		for _, col := range columns {
			fmt.Fprintf(out, " %s |", col.value(c.name))
		}
		fmt.Fprintln(out)
	}
}

// at is what a workload came to: columns of it.
type at struct {
	*results
	workload string
}

func (a at) column(head string, get func(outcome) float64, format func(float64) string) column {
	return column{head, func(name string) string { return format(a.figure(a.workload, name, get)) }}
}

func (a at) handoffs() column { return a.column("handoffs/s", rate, digits(0)) }
func (a at) each() column     { return a.column("commands each", commands, digits(2)) }
func (a at) wait() column     { return a.column("p99 wait", p99, micros) }
func (a at) spread() column   { return a.column("p99 / mean", spread, digits(1)) }
func (a at) jain() column {
	return a.column("Jain's index", func(o outcome) float64 { return o.jain }, digits(3))
}

// beside is a column with the rate as a multiple of Redisson's.
func (a at) beside(head string) column {
	return column{head, func(name string) string {
		return number(a.figure(a.workload, name, rate)/a.figure(a.workload, "Redisson", rate), 2)
	}}
}

// rates is a column of handoffs per second, and the commands for each.
func (a at) rates(head string) column {
	return column{head, func(name string) string {
		v := a.figure(a.workload, name, rate)
		if math.IsNaN(v) {
			return "-"
		}
		return number(v, 0) + " / " + number(a.figure(a.workload, name, commands), 1)
	}}
}

func digits(n int) func(float64) string { return func(v float64) string { return number(v, n) } }

func (r *results) page(out io.Writer) {
	light := ""
	if !*every {
		light = "; one round where no bar rests on the times"
	}
	fmt.Fprintf(out, "\n`make bench`, on %s: %s Medians of %d rounds%s.\n", r.at.UTC().Format(time.DateOnly), r.setting,
		*rounds, light)

	u := []string{"uncontended 1", "uncontended 32", "uncontended 256"}
	var columns []column
	for i, n := range []string{"1", "32", "256"} {
		a := at{r, u[i]}
		columns = append(columns, a.column(n+": per second", rate, digits(0)), a.column("p99", p99, micros))
	}
	a := at{r, u[1]}
	columns = append(columns, a.column("commands", commands, digits(1)), a.column("allocations", allocs, digits(0)),
		a.column("client CPU", func(o outcome) float64 { return o.cpu }, micros),
		a.column("server CPU", func(o outcome) float64 { return o.server }, micros), a.beside("x Redisson, at 32"))
	fmt.Fprint(out, "\n### A name each\n\nLock and Unlock by 1, 32 and 256 goroutines of one process; "+
		"the columns without a number are of 32.\n")
	r.table(out, "", u, columns)

	fmt.Fprintf(out, "\n### Where the time goes\n\nOf a Lock and an Unlock, in a run of %v with Go's profiler on; "+
		"switches are of the client's threads, parts of its profile.\n", profileFor)
	r.spending(out)

	fmt.Fprintf(out, "\n### One process\n")
	a = at{r, "refused"}
	r.table(out, "TryLock of a held lock", []string{a.workload}, []column{
		a.column("per second", rate, digits(0)), a.column("commands", commands, digits(2)), a.beside("x Redisson"),
	})
	a = at{r, "contended 1x64"}
	r.table(out, "64 goroutines, one name, held 0", []string{a.workload}, []column{
		a.handoffs(), a.each(), a.wait(), a.spread(), a.jain(), a.beside("x Redisson"),
	})

	a = at{r, "contended 8x16"}
	fmt.Fprintf(out, "\n### 8 processes, 16 goroutines each, one name, held 1 ms\n")
	r.table(out, "", []string{a.workload}, []column{
		a.handoffs(), a.each(), a.column("p50 wait", func(o outcome) float64 { return o.p50 }, micros), a.wait(),
		a.column("longest", func(o outcome) float64 { return o.max }, micros), a.spread(), a.jain(),
		a.column("held", func(o outcome) float64 { return o.held }, micros), a.beside("x Redisson"),
	})

	fmt.Fprintf(out, "\n### More waiters, more processes\n")
	for _, p := range plots {
		fmt.Fprintf(out, "\n![%s, against waiters](%s)\n", p.title, p.file)
	}
	rates := func(what, unit string, times int, steps []int, workload func(n int) string) {
		var names []string
		var columns []column
		for _, n := range steps {
			names = append(names, workload(n))
			columns = append(columns, at{r, workload(n)}.rates(fmt.Sprint(times*n, " ", unit)))
		}
		fmt.Fprintf(out, "\n%s:\n", what)
		r.table(out, "", names, columns)
	}
	rates("Handoffs per second / commands for each. 8 processes, held 1 ms", "waiters", 8, waiterSteps, waitersWorkload)
	for _, hold := range []struct{ what, workload string }{{"held 1 ms", ""}, {"held 0", " held 0"}} {
		rates("16 goroutines in each process, "+hold.what, "processes", 1, []int{2, 4, 8, 16},
			func(n int) string { return fmt.Sprintf("contended %dx16%s", n, hold.workload) })
	}

	var failed []string
	for _, w := range workloads() {
		if one := r.of[w.name]; one != nil {
			failed = append(failed, one.failed...)
		}
	}
	if len(failed) > 0 {
		fmt.Fprintf(out, "\nRuns that failed, and are in no figure:\n\n")
		for _, why := range failed {
			line, _, _ := strings.Cut(why, "\n")
			fmt.Fprintf(out, "- %s\n", line)
		}
	}

	slow, far := at{r, "slow uncontended 1"}, at{r, "slow contended 4x4"}
	fmt.Fprint(out, "\n### A server 10 ms away, each way\n\nRound trips are 20 ms. "+
		"Contended: 4 processes, 4 goroutines each, one name, held 0.\n")
	r.table(out, "", []string{slow.workload, far.workload}, []column{
		slow.column("Lock and Unlock, in round trips", trips, digits(2)),
		far.column("contended: handoffs/s", rate, digits(1)), far.each(), far.wait(), far.beside("x Redisson"),
	})

	fmt.Fprintf(out, "\n### Many leases\n\nOne client, watchdog timeout 30 s, held for %v. "+
		"Expected commands are leases, by 10 s, by %d, or with client-side caching by %d (decisions 26).\n\n",
		*leaseFor, allAtOnce, redisproto.TrackedBatch)
	fmt.Fprintln(out, "| | leases | own goroutines | all goroutines | bytes each | lost | commands per second | "+
		"expected | of the server, each |\n|---|---|---|---|---|---|---|---|---|")
	for _, h := range r.held {
		fmt.Fprintf(out, "| %s | %d | %d | %d | %.0f | %d | %.1f | %.1f | %s |\n",
			strings.Replace(h.contender, "mortise", "**mortise**", 1), h.leases, h.goroutines, h.all, h.bytes, max(h.lost,
				h.missing), h.commands, h.want, micros(h.each))
	}

	fmt.Fprintf(out, "\n### The bars\n\nWhat this project wants of itself, and where it stands.\n\n"+
		"| | wanted | measured | |\n|---|---|---|---|\n")
	for _, b := range r.bars() {
		mark := ""
		if !b.met() {
			mark = "**missed**"
		}
		fmt.Fprintf(out, "| %s | %s %s | %.2f | %s |\n", b.what, map[bool]string{true: "≥", false: "≤"}[b.least],
			strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.2f", b.want), "0"), "."), b.got, mark)
	}
	fmt.Fprintln(out)
}

// waiterSteps are the goroutines in each of 8 processes of the workloads that are plotted.
var waiterSteps = []int{1, 4, 16, 32}

func waitersWorkload(goroutines int) string { return fmt.Sprintf("contended 8x%d", goroutines) }

// plots are written to docs, and shown by the page.
var plots = []struct {
	file, title, axis string
	figure            func(outcome) float64
	log               bool
}{
	{"bench-throughput.svg", "Handoffs per second, 8 processes, one name, held 1 ms", "handoffs per second", rate, false},
	{"bench-commands.svg", "Commands for each handoff, 8 processes, one name, held 1 ms", "commands per handoff",
		commands, true},
}

// draw writes the plots into dir. They have what was measured with all numbers of waiters.
func (r *results) draw(dir string) error {
	for _, d := range plots {
		plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
		p := plot.New()
		p.Title.Text = d.title
		p.X.Label.Text, p.Y.Label.Text = "waiters", d.axis
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticksAt(8*waiterSteps[0], 8*waiterSteps[1], 8*waiterSteps[2],
			8*waiterSteps[3])
		if d.log {
			p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, ticksAt(1, 2, 5, 10, 20, 50, 100, 200)
			p.Y.Min, p.Y.Max = 1, 1
		} else {
			p.Y.Min = 0
		}
		p.Add(plotter.NewGrid())
		p.X.Max = 4 * float64(8*waiterSteps[len(waiterSteps)-1]) // room for the legend
		p.Legend.Top, p.Legend.Left, p.Legend.XOffs = true, true, vg.Points(430)
		p.Legend.Padding = vg.Points(2)
		drawn := 0
		for _, c := range contenders() {
			var line plotter.XYs
			for _, n := range waiterSteps {
				if v := r.figure(waitersWorkload(n), c.name, d.figure); !math.IsNaN(v) && v > 0 {
					line = append(line, plotter.XY{X: float64(8 * n), Y: v})
				}
			}
			if len(line) != len(waiterSteps) {
				continue
			}
			l, points, err := plotter.NewLinePoints(line)
			if err != nil {
				return err
			}
			l.Color, points.Color = colors[drawn%len(colors)], colors[drawn%len(colors)]
			points.Shape = plotutil.Shape(drawn)
			l.Width = vg.Points(1)
			if c.role == mine {
				l.Width = vg.Points(2.5)
			}
			p.Add(l, points)
			p.Legend.Add(c.name, l, points)
			drawn++
		}
		if drawn == 0 {
			continue
		}
		if d.log {
			p.Y.Max *= 1.5
		}
		if err := p.Save(9*vg.Inch, 4.5*vg.Inch, filepath.Join(dir, d.file)); err != nil {
			return err
		}
	}
	return nil
}

// colors are Tableau's ten.
var colors = []color.Color{
	rgb(0x1f77b4), rgb(0xff7f0e), rgb(0x2ca02c), rgb(0xd62728), rgb(0x9467bd),
	rgb(0x8c564b), rgb(0xe377c2), rgb(0x7f7f7f), rgb(0xbcbd22), rgb(0x17becf),
}

func rgb(v uint32) color.Color { return color.RGBA{uint8(v >> 16), uint8(v >> 8), uint8(v), 0xff} }

func ticksAt(values ...int) plot.ConstantTicks {
	ticks := make(plot.ConstantTicks, len(values))
	for i, v := range values {
		ticks[i] = plot.Tick{Value: float64(v), Label: fmt.Sprint(v)}
	}
	return ticks
}

const (
	oursGoRedis = "mortise, go-redis"
	oursRueidis = "mortise, rueidis"
	hashGoRedis = "hash floor, go-redis"
	hashRueidis = "hash floor, rueidis"
	bareRueidis = "bare floor, rueidis"
	tracking    = ", tracking" // after a floor's name
)

// bar is one thing that this project wants of itself.
type bar struct {
	what  string
	least bool // the bar is the least that is wanted, not the most
	want  float64
	got   float64
}

func (b bar) met() bool {
	if b.least {
		return b.got >= b.want
	}
	return b.got <= b.want
}

func (b bar) sign() string {
	if b.least {
		return ">="
	}
	return "<="
}

// bars are those that were measured.
func (r *results) bars() []bar {
	const (
		u1, u32, u256 = "uncontended 1", "uncontended 32", "uncontended 256"
		crowd, local  = "contended 8x16", "contended 1x64"
	)
	var list []bar
	add := func(least bool, want, got float64, what string, args ...any) {
		if !math.IsNaN(got) && !math.IsInf(got, 0) {
			list = append(list, bar{fmt.Sprintf(what, args...), least, want, got})
		}
	}
	least := func(want, got float64, what string, args ...any) { add(true, want, got, what, args...) }
	most := func(want, got float64, what string, args ...any) { add(false, want, got, what, args...) }
	ratio := func(workload, a, b string, get func(outcome) float64) float64 {
		return r.figure(workload, a, get) / r.figure(workload, b, get)
	}
	client := func(name string) string { return strings.TrimPrefix(name, "mortise, ") }

	// The same client with its own defaults first, and then with the options that ours sets.
	for _, options := range []string{"", tracking} {
		hash, bare := hashRueidis+options, bareRueidis+options
		least(0.97, ratio(u32, oursRueidis, hash, rate), "uncontended 32: mortise/rueidis to the hash floor%s", options)
		least(0.88, ratio(u32, oursRueidis, bare, rate), "uncontended 32: mortise/rueidis to the bare floor%s", options)
		least(0.97, ratio(u1, oursRueidis, hash, rate), "uncontended 1: mortise/rueidis to the hash floor%s", options)
		most(12, r.figure(u32, oursRueidis, allocs)-r.figure(u32, hash, allocs),
			"uncontended 32: allocations above the floor%s, rueidis", options)
	}
	least(1.2, ratio(u32, oursGoRedis, hashGoRedis, rate), "uncontended 32: mortise/go-redis to the hash floor")
	least(1.5, ratio(u256, oursGoRedis, hashGoRedis, rate), "uncontended 256: mortise/go-redis to the hash floor")
	most(0.4, ratio(u256, oursGoRedis, hashGoRedis, p99), "uncontended 256: p99 of mortise/go-redis to the hash floor's")
	least(0.97, ratio(u1, oursGoRedis, hashGoRedis, rate), "uncontended 1: mortise/go-redis to the hash floor")
	most(12, r.figure(u32, oursGoRedis, allocs)-r.figure(u32, hashGoRedis, allocs),
		"uncontended 32: allocations above the floor, go-redis")
	least(1.6, r.best(u32, mine, rate)/r.best(u32, peer, rate), "uncontended 32: the best of ours to the best peer")

	// A command's way and back, of one goroutine: half of the bare floor's two.
	rtt := r.figure(u1, bareRueidis, func(o outcome) float64 { return o.p50 }) / 2
	for _, name := range []string{oursGoRedis, oursRueidis} {
		perfect := 1e6 / (r.figure(crowd, name, func(o outcome) float64 { return o.held }) + rtt)
		least(0.95, r.figure(crowd, name, rate)/perfect, "contended 8x16: mortise/%s to a perfect queue", client(name))
		most(2.5, r.figure(crowd, name, commands), "contended 8x16: commands per handoff, %s", client(name))
		fewest, highest := math.Inf(1), 0.0
		for _, n := range waiterSteps {
			v := r.figure(waitersWorkload(n), name, commands)
			fewest, highest = min(fewest, v), max(highest, v) // NaN stays
		}
		most(1.2, highest/fewest, "8 to 256 waiters: most to fewest commands per handoff, %s", client(name))
		most(1.2, highest/r.figure(waitersWorkload(waiterSteps[0]), name, commands),
			"8 to 256 waiters: most commands per handoff to those with 8, %s", client(name))
		most(4, r.figure(crowd, name, spread), "contended 8x16: p99 wait to the mean, %s", client(name))
		fair := strings.Replace(name, "mortise", "mortise fair", 1)
		most(1.5, r.figure(crowd, fair, spread), "contended 8x16: p99 wait to the mean, fair, %s", client(name))
		few, many := waitersWorkload(waiterSteps[0]), waitersWorkload(waiterSteps[len(waiterSteps)-1])
		least(0.9, r.figure(many, fair, rate)/r.figure(few, fair, rate), "256 waiters: handoffs to those with 8, fair, %s",
			client(name))
		most(1.1, r.figure(local, name, commands), "contended 1x64: commands per handoff, %s", client(name))
		for _, w := range workloads() {
			least(1, ratio(w.name, name, "Redisson", rate), "%s: mortise/%s to Redisson", w.name, client(name))
		}
	}
	least(2, r.best(local, mine, rate)/r.best(local, peer, rate), "contended 1x64: the best of ours to the best peer")
	least(20, r.figure("refused", oursRueidis, rate)/r.best("refused", peer, rate),
		"refused: mortise/rueidis to the best peer")
	most(0.01, r.figure("refused", oursRueidis, commands), "refused: commands, rueidis")
	least(500_000, r.figure("refused", oursRueidis, rate), "refused: a second, rueidis")
	for _, l := range r.late {
		most(0, float64(l.late), "refused: of %d locks that another process released, those refused later than %v after "+
			"an invalidation's trip of %v", l.releases, refusalBound, l.trip)
	}
	for _, h := range r.held {
		most(8, float64(h.goroutines), "%d leases: own goroutines, %s", h.leases, client(h.contender))
		most(600, h.bytes, "%d leases: bytes each, %s", h.leases, client(h.contender))
		most(0, float64(max(h.lost, h.missing)), "%d leases: lost, %s", h.leases, client(h.contender))
		most(1.1, h.commands/h.want, "%d leases: commands to those expected, %s", h.leases, client(h.contender))
	}
	return list
}

func (r *results) printBars(out io.Writer) {
	list := r.bars()
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(out, "\nThe bars\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, b := range list {
		fmt.Fprintf(w, "%s\t%s %.2f\t%.2f\t%s\n", b.what, b.sign(), b.want, b.got, verdict(b))
	}
	w.Flush()
}

func verdict(b bar) string {
	if b.met() {
		return "met"
	}
	return "MISSED"
}
