//go:build linux

package bench

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

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
	both := []string{oursGoRedis, oursRueidis}

	// The same client with its own defaults first, and then with the options that ours sets.
	for _, options := range []string{"", tracking} {
		least(0.97, ratio(u32, oursRueidis, hashRueidis+options, rate), "uncontended 32: mortise/rueidis to the hash floor%s", options)
		least(0.88, ratio(u32, oursRueidis, bareRueidis+options, rate), "uncontended 32: mortise/rueidis to the bare floor%s", options)
	}
	least(1.2, ratio(u32, oursGoRedis, hashGoRedis, rate), "uncontended 32: mortise/go-redis to the hash floor")
	least(1.5, ratio(u256, oursGoRedis, hashGoRedis, rate), "uncontended 256: mortise/go-redis to the hash floor")
	most(0.4, ratio(u256, oursGoRedis, hashGoRedis, p99), "uncontended 256: p99 of mortise/go-redis to the hash floor's")
	least(0.97, ratio(u1, oursGoRedis, hashGoRedis, rate), "uncontended 1: mortise/go-redis to the hash floor")
	for _, options := range []string{"", tracking} {
		least(0.97, ratio(u1, oursRueidis, hashRueidis+options, rate), "uncontended 1: mortise/rueidis to the hash floor%s", options)
	}
	least(1.6, r.best(u32, mine, rate)/r.best(u32, peer, rate), "uncontended 32: the best of ours to the best peer")

	// A command's way and back, of one goroutine: half of the bare floor's two.
	rtt := r.figure(u1, bareRueidis, func(o outcome) float64 { return o.p50 }) / 2
	for _, name := range both {
		perfect := 1e6 / (r.figure(crowd, name, func(o outcome) float64 { return o.held }) + rtt)
		least(0.95, r.figure(crowd, name, rate)/perfect, "contended 8x16: mortise/%s to a perfect queue", client(name))
	}
	for _, name := range both {
		most(2.5, r.figure(crowd, name, commands), "contended 8x16: commands per handoff, %s", client(name))
	}
	for _, name := range both {
		fewest, highest := math.Inf(1), 0.0
		for _, n := range waiterSteps {
			v := r.figure(waitersWorkload(n), name, commands)
			fewest, highest = min(fewest, v), max(highest, v) // NaN stays
		}
		most(1.2, highest/fewest, "8 to 256 waiters: most to fewest commands per handoff, %s", client(name))
		most(1.2, highest/r.figure(waitersWorkload(waiterSteps[0]), name, commands), "8 to 256 waiters: most commands per handoff to those with 8, %s", client(name))
	}
	for _, name := range both {
		most(4, r.figure(crowd, name, spread), "contended 8x16: p99 wait to the mean, %s", client(name))
	}
	for _, name := range both {
		most(1.5, r.figure(crowd, strings.Replace(name, "mortise", "mortise fair", 1), spread), "contended 8x16: p99 wait to the mean, fair, %s", client(name))
	}
	least(2, r.best(local, mine, rate)/r.best(local, peer, rate), "contended 1x64: the best of ours to the best peer")
	for _, name := range both {
		most(1.1, r.figure(local, name, commands), "contended 1x64: commands per handoff, %s", client(name))
	}
	least(20, r.figure("refused", oursRueidis, rate)/r.best("refused", peer, rate), "refused: mortise/rueidis to the best peer")
	most(0.01, r.figure("refused", oursRueidis, commands), "refused: commands, rueidis")
	most(12, r.figure(u32, oursGoRedis, allocs)-r.figure(u32, hashGoRedis, allocs), "uncontended 32: allocations above the floor, go-redis")
	for _, options := range []string{"", tracking} {
		most(12, r.figure(u32, oursRueidis, allocs)-r.figure(u32, hashRueidis+options, allocs), "uncontended 32: allocations above the floor%s, rueidis", options)
	}
	for _, h := range r.held {
		most(8, float64(h.goroutines), "%d leases: own goroutines, %s", h.leases, client(h.contender))
		most(600, h.bytes, "%d leases: bytes each, %s", h.leases, client(h.contender))
		most(0, float64(max(h.lost, h.missing)), "%d leases: lost, %s", h.leases, client(h.contender))
		most(1.1, h.commands/h.want, "%d leases: commands to those expected, %s", h.leases, client(h.contender))
	}
	for _, w := range workloads() {
		for _, name := range both {
			least(1, ratio(w.name, name, "Redisson", rate), "%s: mortise/%s to Redisson", w.name, client(name))
		}
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
