//go:build unix

// Package beside measures a store's locks beside what else locks there: the store's own locks, or another library's.
//
// The workers are processes of their own: the test's binary, executed again. The ways to lock take turns, round by
// round, so that a slow minute of the machine meets all of them. Compare within a table: a ratio holds, a figure is
// this machine's. In rows with one name, whoever gets in makes a file that must not be there, and removes it.
package beside

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/child"
	"github.com/mortise-go/mortise/internal/redistest/stats"
)

// Way is a way to lock.
type Way struct {
	Name string
	// Open opens what a process needs, at the address of the store.
	Open func(at string) (Lock, error)
}

// Lock waits until it has a lock, and returns what releases it.
type Lock func(ctx context.Context, name string) (unlock func() error, err error)

// Mortise is the Open of a client of mortise, on the backend of an address.
func Mortise(backendAt func(at string) backend.Backend) func(at string) (Lock, error) {
	return func(at string) (Lock, error) {
		c, err := mortise.New(backendAt(at))
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context, name string) (func() error, error) {
			l, err := c.Lock(ctx, name)
			if err != nil {
				return nil, err
			}
			return func() error { return l.Unlock(context.Background()) }, nil
		}, nil
	}
}

// row is a workload.
type row struct {
	name                  string
	processes, goroutines int
	shared                bool // all want one name, else each goroutine has its own
	hold                  time.Duration
}

var rows = []row{
	{name: "uncontended 1", processes: 1, goroutines: 1},
	{name: "uncontended 32", processes: 1, goroutines: 32},
	{name: "8x1, one name, hold 1ms", processes: 8, goroutines: 1, shared: true, hold: time.Millisecond},
	{name: "8x8, one name, hold 1ms", processes: 8, goroutines: 8, shared: true, hold: time.Millisecond},
	{name: "8x8, a name each", processes: 8, goroutines: 8},
}

// task is what a worker is told by its environment.
type task struct {
	Way, At    string
	Process    int
	Run        string // a part of the names
	Goroutines int
	Inside     string // the file of whoever is inside; empty if each goroutine has a name of its own
	Hold       time.Duration
	Window     time.Duration
}

// done is what came of it.
type done struct {
	Each  []int   // turns by goroutine
	Waits []int64 // ns, from a call to its lock; with a name each, to the end of the release
}

const taskOf = "MORTISE_TEST_BESIDE"

// Worker makes this process a worker if it is told to be one, and ends it then. TestMain calls it first.
func Worker(ways ...Way) {
	text := os.Getenv(taskOf)
	if text == "" {
		return
	}
	if err := work(text, ways); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settling is a part of a window in front of it, which is not counted.
const settling = 4

func work(text string, ways []Way) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	var lock Lock
	for _, w := range ways {
		if w.Name == t.Way {
			var err error
			if lock, err = w.Open(t.At); err != nil {
				return err
			}
		}
	}
	if lock == nil {
		return fmt.Errorf("no way %q", t.Way)
	}
	if unlock, err := lock(context.Background(), fmt.Sprintf("%s:warm:%d", t.Run, t.Process)); err != nil {
		return err
	} else if err := unlock(); err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.ReadAll(os.Stdin); err != nil { // until all are ready
		return err
	}
	began := time.Now()
	from, to := began.Add(t.Window/settling), began.Add(t.Window+t.Window/settling)
	d := done{Each: make([]int, t.Goroutines)}
	errs := make([]error, t.Goroutines)
	var mu sync.Mutex
	var all sync.WaitGroup
	for g := range t.Goroutines {
		all.Go(func() {
			var waits []int64
			waits, errs[g] = t.turns(lock, g, from, to)
			mu.Lock()
			defer mu.Unlock()
			d.Each[g] = len(waits)
			d.Waits = append(d.Waits, waits...)
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(d)
}

// turns takes and releases a lock until to, and returns the waits of those that began after from.
func (t *task) turns(lock Lock, g int, from, to time.Time) (waits []int64, err error) {
	// Who still waits a good while after the window has not been served in it.
	ctx, cancel := context.WithDeadline(context.Background(), to.Add(10*time.Second))
	defer cancel()
	name := t.Run
	if t.Inside == "" {
		name = fmt.Sprintf("%s:%d:%d", t.Run, t.Process, g)
	}
	for {
		asked := time.Now()
		if asked.After(to) {
			return waits, nil
		}
		unlock, err := lock(ctx, name)
		if err != nil {
			return waits, err
		}
		got := time.Now()
		if t.Inside != "" {
			f, err := os.OpenFile(t.Inside, os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return waits, fmt.Errorf("another is inside: %w", err)
			}
			<-time.After(t.Hold)
			if err := errors.Join(f.Close(), os.Remove(t.Inside)); err != nil {
				return waits, err
			}
		}
		if err := unlock(); err != nil {
			return waits, err
		}
		if t.Inside == "" {
			got = time.Now()
		}
		if asked.After(from) {
			waits = append(waits, int64(got.Sub(asked)))
		}
	}
}

// outcome is a run: turns a second, waits in ms, and Jain's index of the goroutines.
type outcome struct{ rate, p50, p99, longest, jain float64 }

func (o *outcome) figures() []*float64 {
	return []*float64{&o.rate, &o.p50, &o.p99, &o.longest, &o.jain}
}

var (
	rounds = flag.Int("beside.rounds", 3, "rounds of each way to lock in a row of a table of stores")
	window = flag.Duration("beside.window", 2*time.Second, "how long a round is measured")
)

// Table prints a row for each workload and way: the medians of the rounds, and the medians of the ratios to the first
// way's rate. at returns a store's address, one that is as good as new for each run.
func Table(b *testing.B, at func() string, ways ...Way) {
	b.Helper()
	fmt.Printf("%-24s %-28s %10s %9s %9s %9s %9s %6s\n", "", "",
		"turns/s", "to first", "p50 ms", "p99 ms", "longest", "Jain")
	for i, r := range rows {
		runs := make([][]outcome, len(ways))
		for round := range *rounds {
			for k, w := range ways {
				runs[k] = append(runs[k], r.run(b, w, at(), fmt.Sprintf("beside:%d:%d", i, round)))
			}
		}
		for k, w := range ways {
			o := medians(runs[k])
			ratios := make([]float64, *rounds)
			for n := range ratios {
				ratios[n] = runs[k][n].rate / runs[0][n].rate
			}
			fmt.Printf("%-24s %-28s %10.0f %9.2f %9.2f %9.2f %9.1f %6.3f\n", r.name, w.Name, o.rate,
				stats.Quantile(ratios, .5), o.p50, o.p99, o.longest, o.jain)
		}
	}
}

func medians(of []outcome) (m outcome) {
	for i, f := range m.figures() {
		var all []float64
		for k := range of {
			all = append(all, *of[k].figures()[i])
		}
		*f = stats.Quantile(all, .5)
	}
	return m
}

// run is a round of a way to lock.
func (r row) run(b *testing.B, w Way, at, name string) (o outcome) {
	b.Helper()
	inside := ""
	if r.shared {
		inside = filepath.Join(b.TempDir(), "inside")
	}
	var crew []*child.Process
	for p := range r.processes {
		text, err := json.Marshal(task{w.Name, at, p, name, r.goroutines, inside, r.hold, *window})
		check.NoError(b, err)
		crew = append(crew, child.Start(b, taskOf+"="+string(text)))
	}
	for _, p := range crew {
		p.Says(b, "ready")
	}
	for _, p := range crew {
		check.NoError(b, p.In.Close())
	}
	var each []int
	var waits []float64
	for _, p := range crew {
		var d done
		check.NoError(b, json.Unmarshal([]byte(p.Line(b)), &d))
		check.NoError(b, p.Wait())
		each = append(each, d.Each...)
		for _, ns := range d.Waits {
			waits = append(waits, float64(ns)/1e6)
		}
	}
	check.FatalIf(b, len(waits) == 0, "%s, %s: nobody got in", r.name, w.Name)
	o.rate = float64(len(waits)) / window.Seconds()
	o.p50, o.p99, o.longest = stats.Quantile(waits, .5), stats.Quantile(waits, .99), stats.Quantile(waits, 1)
	o.jain = stats.Jain(each)
	return o
}
