//go:build linux

package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/redisgo"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// leased is locks whose leases are WithLease.
type leased struct{ *mortiseLocks }

func (m leased) Lock(ctx context.Context, name string) (func() error, error) {
	return unlocking(m.locker.Lock(ctx, name, mortise.WithLease(lease)))
}

// fleetContenders take part in BenchmarkFleet only.
func fleetContenders() []contender {
	return []contender{
		{name: "mortise fenced, go-redis", role: mine, open: openGoRedis(mortise.Fenced())},
		{name: "mortise WithLease, go-redis", role: mine, open: func(addr string) (locks, error) {
			rdb := goRedis(addr)
			l, err := openMortise(redisgo.New(rdb), nil, func() { rdb.Close() })
			if err != nil {
				return nil, err
			}
			return leased{l.(*mortiseLocks)}, nil
		}},
	}
}

// fleetRows are workloads in which processes pass one lock on, and the contenders of each.
func fleetRows() (rows []workload, of [][]string) {
	const peers, ours = "redsync bsm/redislock", "mortise, go-redis"
	var apart string // what sets the next rows apart
	var how workload
	add := func(processes, goroutines int, hold time.Duration, who ...string) {
		w := how
		w.name = fmt.Sprintf("%dx%d, hold %v%s", processes, goroutines, hold, apart)
		w.processes, w.goroutines, w.shared, w.hold = processes, goroutines, true, hold
		rows, of = append(rows, w), append(of, who)
	}
	for _, n := range []int{2, 4, 8, 16} {
		add(n, 1, time.Millisecond, append(strings.Fields(peers), ours)...)
	}
	add(8, 1, 0, append(strings.Fields(peers), ours)...)
	add(8, 16, time.Millisecond, ours)
	add(16, 16, time.Millisecond, ours)
	add(1, 64, time.Millisecond, ours)
	add(1, 4, time.Millisecond, ours, "mortise fenced, go-redis", "mortise WithLease, go-redis")
	add(8, 4, time.Millisecond, ours, "mortise fenced, go-redis", "mortise WithLease, go-redis")
	add(2, 2, 300*time.Millisecond, ours)
	for _, n := range []int{2, 8} {
		apart, how = ", TLS", workload{encrypted: true}
		add(n, 1, time.Millisecond, "bsm/redislock", ours)
		apart, how = ", 20 ms away", workload{slow: true}
		add(n, 1, time.Millisecond, "bsm/redislock", ours)
		apart, how = ", half Redisson", workload{mixed: true}
		add(n, 1, time.Millisecond, ours)
	}
	return rows, of
}

const fleetLine = "%-49s %10s %7s %7s %9.2f %13.2f %6.2f %9.2f\n"

// BenchmarkFleet is `make bench-fleet`: how processes that wait for one lock are served, by the old revision, by the
// new one and by peers, in turns.
func BenchmarkFleet(b *testing.B) {
	harness.FatalIf(b, *base == "", "no old binary; run make bench-fleet, or set -base")
	h := &hosts{redis: startRedis(b), java: findJava(b)}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		fmt.Printf("load of the last minute, and so on: %s", load)
	}
	fmt.Println("Medians of the rounds. A wait is from a call of Lock to its lock; commands are those of a handoff.")
	fmt.Printf(strings.ReplaceAll(fleetLine, ".2f", "s"), "", "handoffs/s", "to old", "p99", "p99/mean", "longest/mean",
		"Jain", "commands")
	all := append(contenders(), fleetContenders()...)
	rows, of := fleetRows()
	for i, w := range rows {
		if !strings.Contains(w.name, *only) {
			continue
		}
		if w.mixed && h.java == nil {
			fmt.Printf("%s: left out, since Redisson's worker is not built: run test/bench/peers\n", w.name)
			continue
		}
		var list []contender
		for _, name := range of[i] {
			for _, c := range all {
				if c.name != name || !strings.Contains(c.name, *who) {
					continue
				}
				if c.role == mine {
					list = append(list, older(c))
				}
				list = append(list, c)
			}
		}
		w.fleet(b, h, list, func(c contender, o outcome, ratio float64) {
			name := c.name
			if c.binary != "" {
				name += ", old"
			}
			fmt.Printf(fleetLine, w.name+": "+name, number(o.rate, 0), number(ratio, 2), micros(o.p99), o.p99/o.mean,
				o.max/o.mean, o.jain, o.commands)
		})
	}
}

// fleet runs rounds of each contender in turns, and shows the medians of each, with the median of the ratios of its
// rates to those of the old revision's of the same name. What an old revision does not know is left out.
func (w workload) fleet(b *testing.B, h *hosts, list []contender, show func(contender, outcome, float64)) {
	b.Helper()
	const least = time.Second
	runs := make([][]outcome, len(list))
	for range *rounds {
		for i, c := range list {
			o, err := w.run(b, h, c, w.window(least), nothing)
			if err != nil && c.binary != "" {
				continue
			}
			harness.FatalIf(b, err != nil, "%s, %s: %v", w.name, c.name, err)
			runs[i] = append(runs[i], *o)
		}
	}
	for i, c := range list {
		if len(runs[i]) == 0 {
			continue
		}
		m := medians(runs[i])
		if o, err := w.run(b, h, c, w.window(time.Second), sending); err == nil {
			m.commands = o.commands
		}
		var ratios []float64
		if i > 0 && list[i-1].binary != "" && c.role == mine {
			for k := range runs[i-1] {
				ratios = append(ratios, runs[i][k].rate/runs[i-1][k].rate)
			}
		}
		show(c, m, median(ratios))
	}
}
