//go:build linux

package bench

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// Every contender gets through every workload, and nobody is let in beside another. No figure
// is judged but those that do not depend on the machine.
func TestEveryContenderGetsThroughEveryWorkload(t *testing.T) {
	s := redistest.Start(t)
	for _, w := range workloads() {
		if w.processes > 2 || w.goroutines > 64 {
			continue
		}
		for _, c := range contenders() {
			if !w.plays(c) {
				continue
			}
			o := w.run(t, s, c, 100*time.Millisecond, true)
			if c.role == peer { // how it fares is not ours to check
				continue
			}
			if o.rate <= 0 || o.mean <= 0 || o.jain <= 0 {
				t.Errorf("%s, %s: %+v", w.name, c.name, o)
			}
			// Connections that are made meanwhile send some too.
			if !w.shared && !w.try && o.commands < 2 {
				t.Errorf("%s, %s: %.2f commands for Lock and Unlock, want 2 at least", w.name, c.name, o.commands)
			}
		}
	}
}

func TestTheWitnessSeesTwoInside(t *testing.T) {
	w, err := openWitness(t.TempDir() + "/witness")
	if err != nil {
		t.Fatal(err)
	}
	w.enter(1)
	w.enter(2)
	w.leave(1)
	if n := w.violations.Load(); n != 1 {
		t.Errorf("%d violations, want 1", n)
	}
	w.leave(1)
	if n := w.violations.Load(); n != 2 {
		t.Errorf("%d violations after a second leave, want 2", n)
	}
}

func TestStatistics(t *testing.T) {
	v := []float64{5, 1, 4, 2, 3}
	if m, q, a := median(v), quantile(v, 0.99), mean(v); m != 3 || q != 5 || a != 3 {
		t.Errorf("median %v, p99 %v, mean %v", m, q, a)
	}
	if m := median([]float64{4, 1}); m != 2.5 {
		t.Errorf("median of two: %v", m)
	}
	if a, b := jain([]int{7, 7, 7}), jain([]int{9, 0, 0}); a != 1 || b < 0.333 || b > 0.334 {
		t.Errorf("Jain: %v and %v", a, b)
	}
}

func TestMediansAreOfEachFigureByItself(t *testing.T) {
	m := medians([]outcome{{rate: 1, conns: 30, commands: 5}, {rate: 3, conns: 10}, {rate: 2, conns: 20}})
	if want := (outcome{rate: 2, conns: 20}); m != want {
		t.Errorf("%+v, want %+v", m, want)
	}
}
