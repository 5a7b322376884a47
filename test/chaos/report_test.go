//go:build linux

package chaos

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// tally is what became of the faults of one kind.
type tally struct {
	name    string
	promise harness.Promise
	times   map[string]int // by site
	again   []int64        // how long after it was over a visit was in again
	class   int
}

// Faults are drawn in these rows.
var classes = []string{"processes", "network", "commands, servers", "the store forgets", "failover"}

func classOf(f harness.Fault) int {
	switch {
	case f.Promise == harness.TellsLater:
		return 4
	case f.Promise == harness.TokensRise:
		return 3
	case strings.HasPrefix(f.Kind, "holder") || strings.HasPrefix(f.Kind, "waiter"):
		return 0
	}
	if strings.HasPrefix(f.Kind, "replica") {
		return 2
	}
	for _, word := range []string{"partition", "latency", "jitter", "bandwidth", "torn", "requests", "connections",
		"repl"} {
		if strings.Contains(f.Kind, word) {
			return 1
		}
	}
	return 2
}

// tallies counts the faults by kind.
func tallies(all []outcome) []tally {
	byKind := map[string]*tally{}
	for _, o := range all {
		for _, f := range o.faults {
			x := byKind[f.Kind]
			if x == nil {
				x = &tally{name: f.Kind, promise: f.Promise, times: map[string]int{}, class: classOf(f)}
				byKind[f.Kind] = x
			}
			x.times[o.site]++
			if f.Again != 0 {
				x.again = append(x.again, max(0, f.Again-f.To))
			}
		}
	}
	var list []tally
	for _, x := range byKind {
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b tally) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.name, b.name))
	})
	return list
}

// figures are the median and the largest, and how many there are.
func figures(all []int64) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	return fmt.Sprintf("%s / %s", short(all[len(all)/2]), short(all[len(all)-1]))
}

func short(ns int64) string {
	switch d := time.Duration(ns); {
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	default:
		return d.Round(10 * time.Millisecond).String()
	}
}

// write writes down what was done so far and what held, where it is asked to.
func write(t *testing.T, seed uint64, took time.Duration, all []outcome) {
	t.Helper()
	if *chaosTo == "" || len(all) == 0 {
		return
	}
	for name, data := range map[string][]byte{"chaos.md": markdown(seed, took, all), "chaos.svg": timeline(all)} {
		harness.Check(t, os.WriteFile(filepath.Join(*chaosTo, name), data, 0o666))
	}
}

func markdown(seed uint64, took time.Duration, all []outcome) []byte {
	v, faults := total(all)
	list := tallies(all)
	illEnds, strays, remains := 0, 0, 0
	for _, o := range all {
		illEnds += o.illEnds
		strays += o.strays
		remains += o.remains
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `# Chaos

A run of %d faults of %d kinds, in %v, with processes that compete for locks. The command

    %s

makes the same faults in the same order again; the calls under way at each fault differ from run to
run. %s, %s, %d cores, shared with other work.

Holders and waiters are processes, on go-redis and rueidis, four on each of three deployments at a
time: one Redis with an AOF; a master, a replica and three sentinels; a cluster of three masters.
The processes compete for plain locks and fair locks, half of them with fencing tokens, for
read-write locks, and for %d permits of a name. Every process reaches the servers through a proxy of
the harness. The run is judged outside Redis, by one clock: [test/chaos](../../test/chaos/doc.go)
has the rules.

| | |
|---|---|
`, faults, len(list), took.Round(time.Second), command(seed, len(all)/len(everywhere)),
		all[0].redis, runtime.Version(), runtime.NumCPU(), permitsMade)
	zero := func(found int) string { return fmt.Sprintf("**%d**", found) }
	for _, row := range []struct{ what, figures string }{
		{"calls of Lock and Unlock that returned", fmt.Sprint(v.Operations)},
		{"locks acquired; of these, lost before Unlock, held by a process that was killed",
			fmt.Sprintf("%d; %d, %d", v.Acquisitions, v.Lost, v.Dead)},
		{"plain locks, fair locks, writers, readers, permits",
			fmt.Sprintf("%d, %d, %d, %d, %d", v.Kinds[harness.Plain], v.Kinds[harness.Fair],
				v.Kinds[harness.ReadWrite]-v.Readers, v.Readers, v.Kinds[harness.Permits])},
		{"handoffs between processes, without readers and permits", fmt.Sprint(v.Handoffs)},
		{"two holders at once, a reader beside a writer, a permit too many, " +
			"where [guarantees](guarantees.md) promises none", zero(len(v.Violations))},
		{"tokens that did not rise, where tokens must rise", zero(len(v.Regressions))},
		{"free locks with a waiter, for longer than a lease and 1 s; after a partition, for longer than 1 s",
			zero(len(v.Silences))},
		{"histories that porcupine checked; acquisitions and ends of holds in them",
			fmt.Sprintf("%d, %d", v.Checked, v.Events)},
		{"holds without a promise, since the store may have lost their records", fmt.Sprint(v.Excused)},
		{"writes that the fenced store refused, from holders that had lost their lock", fmt.Sprint(v.Stale)},
		{"processes that ended with an error or left goroutines behind; processes that left a connection " +
			"of rueidis behind, on sentinel and cluster; records left in a store",
			fmt.Sprintf("%d; %d; %d", illEnds, strays, remains)},
		{fmt.Sprintf("from the end of a partition to the next holder of a lock that was free and waited for: "+
			"median, longest of %d", len(v.Heals)), figures(v.Heals)},
	} {
		fmt.Fprintf(&b, "| %s | %s |\n", row.what, row.figures)
	}
	b.WriteString(`
![The faults over time, and the locks acquired each second](chaos.svg)

*Promised* is what [guarantees](guarantees.md) promises during the fault, and what the run checks. The
last column is the time from the end of the fault until a call got a lock, on any name: median and
longest.

| fault | promised | standalone | sentinel | cluster | next holder after |
|---|---|---|---|---|---|
`)
	for _, x := range list {
		fmt.Fprintf(&b, "| %s | %s |", x.name, x.promise)
		for _, site := range everywhere {
			if n := x.times[site]; n > 0 {
				fmt.Fprintf(&b, " %d |", n)
			} else {
				fmt.Fprint(&b, " |")
			}
		}
		fmt.Fprintf(&b, " %s |\n", figures(x.again))
	}
	return b.Bytes()
}

// command is how to repeat a run of so many rounds.
func command(seed uint64, rounds int) string {
	return fmt.Sprintf("make chaos CHAOS='-chaos.seed=%d -chaos.rounds=%d'", seed, rounds)
}

// timeline draws when what struck, and how many came in.
func timeline(all []outcome) []byte {
	const (
		left, wide  = 150, 1050
		row, curve  = 12, 44
		top, bottom = 24, 30
	)
	colors := []string{"#4c78a8", "#f58518", "#72b7b2", "#e45756", "#b279a2"}
	from, to, most := all[0].began, all[0].ended, 1
	for _, o := range all {
		from, to = min(from, o.began), max(to, o.ended)
		most = max(most, slices.Max(o.rate))
	}
	x := func(at int64) float64 { return left + float64(at-from)/float64(to-from)*wide }
	site := row*len(classes) + curve + 22
	height := top + site*len(everywhere) + bottom
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-size="10"
  font-family="system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"
  aria-label="The faults of each deployment over time, and the locks acquired each second.">`+"\n",
		left+wide+20, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+"\n")
	for i, name := range everywhere {
		y := top + i*site
		fmt.Fprintf(&b, `<text x="8" y="%d" font-size="12" font-weight="bold">%s</text>`+"\n", y+8, name)
		for k, class := range classes {
			if class == "failover" && name != sentinels {
				continue
			}
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", left-6, y+row*k+19, class)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">acquired, to %d/s</text>`+"\n",
			left-6, y+row*len(classes)+curve/2+14, most)
		base := float64(y + row*len(classes) + curve + 12)
		fmt.Fprintf(&b, `<line x1="%d" y1="%.0f" x2="%d" y2="%.0f" stroke="#ccc"/>`+"\n", left, base, left+wide, base)
		for _, o := range all {
			if o.site != name {
				continue
			}
			for _, f := range o.faults {
				fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"><title>%s, %s</title></rect>`+"\n",
					x(f.From), y+row*classOf(f)+11, max(1, x(f.To)-x(f.From)), row-2, colors[classOf(f)], html.EscapeString(f.Kind),
					short(f.To-f.From))
			}
			fmt.Fprintf(&b, `<polyline fill="none" stroke="#555" stroke-width="0.8" points="`)
			for s, n := range o.rate {
				fmt.Fprintf(&b, "%.1f,%.1f ", x(o.began+int64(s)*int64(time.Second)), base-float64(n)/float64(most)*curve)
			}
			fmt.Fprintf(&b, `"/>`+"\n")
		}
	}
	for k := range 11 {
		at := from + (to-from)*int64(k)/10
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f s</text>`+"\n", x(at), height-12, seconds(at-from))
	}
	fmt.Fprintf(&b, "</svg>\n")
	return b.Bytes()
}
