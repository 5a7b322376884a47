//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

const workerEnv = "MORTISE_BENCH_WORKER"

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	harness.Worker(workerEnv, func(int) error { return work() })
	os.Exit(m.Run())
}

// task is what one process has to do.
type task struct {
	Contender  string
	Addr       string
	Witness    string // the file that all have mapped
	Process    int
	Run        int64 // it is part of names: what a process of the last run left on its way may arrive yet
	Goroutines int
	Shared     bool // all want one lock, instead of one each
	Try        bool // TryLock of a lock that is held, by another client of this process
	Hold       time.Duration
	Fair       bool // of Redisson's locks; ours have a contender each
	Profile    bool // see where the time goes

	Leases *leasesTask // instead of all that
}

// report is what came of it.
type report struct {
	Error      string    // of a peer in Java; a Go process says it on standard error
	All        int       // ops from the beginning to the end
	Each       []int     // those in the window, by goroutine
	Waits      []float64 // µs: of each Lock+Unlock if there are no waiters, else of each Lock
	Held       float64   // µs: the mean time from Lock's return to Unlock's call
	Between    int       // ops while the next three were measured, which is the window but for some ms
	CPU        float64   // µs of this process, user and system
	Allocs     float64
	Bytes      float64
	Goroutines int // at the window's end
	Failures   int // of a peer; of ours and of the floors any ends the run
	Switches   float64
	Parts      [parts]float64 // of its time, where a profile was asked for
}

// work does one task, as member says.
func work() error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var t task
	if err := json.Unmarshal(line, &t); err != nil {
		return err
	}
	c, err := find(t.Contender)
	if err != nil {
		return err
	}
	if t.Leases != nil {
		return t.Leases.work(c, t.Addr, in)
	}
	w, err := openWitness(t.Witness)
	if err != nil {
		return err
	}
	w.tied = c.tied
	l, err := c.open(t.Addr)
	if err != nil {
		return err
	}
	defer l.Close()
	if t.Try {
		other, err := c.open(t.Addr)
		if err != nil {
			return err
		}
		defer other.Close()
		unlock, err := other.Lock(context.Background(), t.name(0))
		if err != nil {
			return err
		}
		defer unlock()
	}
	if err := t.warm(l, c.role == peer); err != nil {
		return err
	}
	runtime.GC()
	next := func() error { _, err := in.ReadString('\n'); return err }
	fmt.Println("ready")
	if err := next(); err != nil { // begin
		return err
	}
	r, err := t.run(l, w, c.role == peer, next)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// warm loads scripts, makes connections, and fills pools.
func (t *task) warm(l locks, lenient bool) error {
	return harness.Workers(t.Goroutines, t.Goroutines, func(g int) error {
		for n := range 10 {
			unlock, err := l.TryLock(context.Background(), fmt.Sprintf("warm:%d:%d:%d", t.Run, t.Process, g))
			if err == nil {
				err = unlock()
			}
			if err != nil && !lenient {
				return fmt.Errorf("warming up, %d: %w", n, err)
			}
		}
		return nil
	})
}

func (t *task) name(g int) string {
	if t.Shared || t.Try {
		return fmt.Sprintf("bench:%d", t.Run)
	}
	return fmt.Sprintf("bench:%d:%d:%d", t.Run, t.Process, g)
}

// run is the workload. A peer's failures are counted, any other ends it. next is called at the
// window's beginning and at its end.
func (t *task) run(l locks, w *witness, lenient bool, next func() error) (*report, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &report{Each: make([]int, t.Goroutines)}
	waits := make([][]float64, t.Goroutines)
	held := make([]time.Duration, t.Goroutines)
	all := make([]word, t.Goroutines)
	sum := func() (n int) {
		for g := range all {
			n += int(all[g].Load())
		}
		return n
	}
	var failures atomic.Int64
	var failure atomic.Pointer[error]
	var wg sync.WaitGroup
	for g := range t.Goroutines {
		name, who := t.name(g), int64(t.Process)<<32|int64(g+1)
		waits[g] = make([]float64, 0, 1<<12)
		wg.Go(func() {
			for w.phase.Load() != over {
				d, h, err := t.once(ctx, l, w, name, who)
				switch {
				case err == nil:
				case ctx.Err() != nil:
					return
				case lenient:
					failures.Add(1)
					continue
				default:
					failure.Store(&err)
					return
				}
				if all[g].Add(1) == 1 {
					w.served.Add(1)
				}
				if w.phase.Load() == measuring {
					w.ops.Add(1)
					waits[g] = append(waits[g], float64(d.Nanoseconds())/1e3)
					held[g] += h
				}
			}
		})
	}
	if err := next(); err != nil {
		return nil, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var seen bytes.Buffer
	if t.Profile {
		if err := pprof.StartCPUProfile(&seen); err != nil {
			return nil, err
		}
	}
	cpu, begun, switched := cpuTime(), sum(), switches()
	if err := next(); err != nil {
		return nil, err
	}
	used, ended := cpuTime()-cpu, sum()
	r.Switches = float64(switches() - switched)
	if t.Profile {
		pprof.StopCPUProfile()
		var err error
		if r.Parts, err = split(seen.Bytes()); err != nil {
			return nil, err
		}
	}
	runtime.ReadMemStats(&after)
	r.Goroutines = runtime.NumGoroutine()
	cancel() // waiters leave
	wg.Wait()
	if err := failure.Load(); err != nil {
		return nil, *err
	}
	var inside time.Duration
	for g := range waits {
		r.Each[g] = len(waits[g])
		r.Waits = append(r.Waits, waits[g]...)
		inside += held[g]
	}
	r.Held = float64(inside.Nanoseconds()) / 1e3 / float64(max(len(r.Waits), 1))
	r.All, r.Between = sum(), ended-begun
	r.CPU = float64(used.Microseconds())
	r.Allocs = float64(after.Mallocs - before.Mallocs)
	r.Bytes = float64(after.TotalAlloc - before.TotalAlloc)
	r.Failures = int(failures.Load())
	return r, nil
}

// once is one operation. It returns what the caller waits for, and how long it held the lock.
func (t *task) once(ctx context.Context, l locks, w *witness, name string, who int64) (waited, held time.Duration, err error) {
	asked := time.Now()
	if t.Try {
		_, err := l.TryLock(ctx, name)
		if err == nil {
			return 0, 0, errors.New("TryLock got a lock that is held")
		}
		if !errors.Is(err, errHeld) {
			return 0, 0, err
		}
		return time.Since(asked), 0, nil
	}
	unlock, err := l.Lock(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	got := time.Now()
	if t.Shared {
		w.enter(who)
		if t.Hold > 0 {
			time.Sleep(t.Hold)
		}
		w.leave(who)
	}
	freed := time.Now()
	if err := unlock(); err != nil {
		return 0, 0, fmt.Errorf("unlock: %w", err)
	}
	if t.Shared {
		return got.Sub(asked), freed.Sub(got), nil
	}
	return time.Since(asked), freed.Sub(got), nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// member is a process that does tasks, one after the other. It is told, and answers, in lines:
//
//	a task as JSON    "ready"
//	"begin"           nothing: the witness shows what goes on
//	"measure"         nothing
//	"end"             its report as JSON
type member struct {
	*harness.Process
	busy  bool        // it has a task
	guard *time.Timer // asks for its stacks and ends it, if a task takes for ever
}

// startMember starts a process that ends with this one. Its tasks are bounded, each.
func startMember(cmd *exec.Cmd) (*member, error) {
	p, err := harness.Talk(cmd)
	return &member{Process: p}, err
}

// enlist starts a test binary as a worker: this one again, if binary is empty.
func enlist(binary string) (*member, error) {
	cmd := harness.Self(workerEnv, 1)
	if binary != "" {
		cmd.Path = binary
	}
	// The race detector makes a process sleep for a second at its end, by default.
	cmd.Env = append(cmd.Env, "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	return startMember(cmd)
}

// give starts a task, which takes bound at most.
func (m *member) give(k task, bound time.Duration) error {
	m.busy = true
	m.guard = time.AfterFunc(bound, func() {
		m.Cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(10*time.Second, func() { m.Cmd.Process.Kill() })
	})
	text, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return m.tell(string(text))
}

func (m *member) tell(line string) error { return m.failed(m.Tell(line)) }

// await is the next line.
func (m *member) await() ([]byte, error) {
	line, err := m.Out.ReadBytes('\n')
	return line, m.failed(err)
}

func (m *member) ready() error {
	line, err := m.await()
	if err == nil && string(line) != "ready\n" {
		err = m.failed(fmt.Errorf("it said %q", line))
	}
	return err
}

func (m *member) report(r any) error {
	line, err := m.await()
	if err != nil {
		return err
	}
	m.guard.Stop()
	m.busy = false
	if err := json.Unmarshal(line, r); err != nil {
		return m.failed(fmt.Errorf("%w in %.200q", err, line))
	}
	return nil
}

// failed ends the process if err is one, and says what the process said.
func (m *member) failed(err error) error {
	if err == nil {
		return nil
	}
	m.dismiss()
	return fmt.Errorf("a worker failed: %w\n%s", err, m.Output.String())
}

// dismiss ends it. It may be called again.
func (m *member) dismiss() {
	if m.guard != nil {
		m.guard.Stop()
	}
	m.Kill()
}
