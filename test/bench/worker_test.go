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

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const workerEnv = "MORTISE_BENCH_WORKER"

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	harness.Worker(workerEnv, func(int) error { work(); return nil })
	harness.Worker(loneEnv, loneFloor.run)
	os.Exit(m.Run())
}

// task is what one process has to do.
type task struct {
	Contender  string
	Addr       string
	TLS        string // where the certificates are, if Addr wants them
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

// here is the worker's process: what fails here ends it, and shows on standard error.
var here harness.InWorker

// work does one task, as member says.
func work() {
	in := bufio.NewReader(os.Stdin)
	var t task
	harness.OK(here, json.Unmarshal(harness.Must(in.ReadBytes('\n'))(here), &t))
	c := harness.Must(find(t.Contender))(here)
	next := func() { harness.Must(in.ReadString('\n'))(here) }
	if t.Leases != nil {
		t.Leases.work(c, t.Addr, next)
		return
	}
	if t.TLS != "" {
		encrypted = harness.Must(redistest.ReadTLS(t.TLS))(here)
	}
	w := harness.Must(openWitness(t.Witness))(here)
	w.tied = c.tied
	l := harness.Must(c.open(t.Addr))(here)
	defer l.Close()
	if t.Try {
		other := harness.Must(c.open(t.Addr))(here)
		defer other.Close()
		unlock := harness.Must(other.Lock(context.Background(), t.name(0)))(here)
		defer unlock()
	}
	harness.OK(here, t.warm(l, c.role == peer))
	runtime.GC()
	fmt.Println("ready")
	next() // begin
	harness.OK(here, json.NewEncoder(os.Stdout).Encode(t.run(l, w, c.role == peer, next)))
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
func (t *task) run(l locks, w *witness, lenient bool, next func()) *report {
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
	next()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var seen bytes.Buffer
	if t.Profile {
		harness.OK(here, pprof.StartCPUProfile(&seen))
	}
	cpu, begun, switched := cpuTime(), sum(), switches()
	next()
	used, ended := cpuTime()-cpu, sum()
	r.Switches = float64(switches() - switched)
	if t.Profile {
		pprof.StopCPUProfile()
		r.Parts = harness.Must(split(seen.Bytes()))(here)
	}
	runtime.ReadMemStats(&after)
	r.Goroutines = runtime.NumGoroutine()
	cancel() // waiters leave
	wg.Wait()
	if err := failure.Load(); err != nil {
		here.Fatal(*err)
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
	return r
}

// once is one operation. It returns what the caller waits for, and how long it held the lock.
func (t *task) once(ctx context.Context, l locks, w *witness, name string, who int64) (waited, held time.Duration,
	err error) {
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
	err   error       // the first that there was
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
func (m *member) give(k task, bound time.Duration) {
	m.busy = true
	m.guard = time.AfterFunc(bound, func() {
		m.Cmd.Process.Signal(syscall.SIGQUIT)
		time.AfterFunc(10*time.Second, func() { m.Cmd.Process.Kill() })
	})
	text, err := json.Marshal(k)
	m.fail(err)
	m.tell(string(text))
}

func (m *member) tell(line string) {
	if m.err == nil {
		m.fail(m.Tell(line))
	}
}

// await is the next line.
func (m *member) await() (line []byte) {
	if m.err == nil {
		var err error
		line, err = m.Out.ReadBytes('\n')
		m.fail(err)
	}
	return line
}

func (m *member) ready() {
	if line := m.await(); m.err == nil && string(line) != "ready\n" {
		m.fail(fmt.Errorf("it said %q", line))
	}
}

// decode reads a line of JSON.
func (m *member) decode(v any) {
	line := m.await()
	if m.err != nil {
		return
	}
	if err := json.Unmarshal(line, v); err != nil {
		m.fail(fmt.Errorf("%w in %.200q", err, line))
	}
}

// report is the end of the task.
func (m *member) report(r any) {
	if m.decode(r); m.err == nil {
		m.guard.Stop()
		m.busy = false
	}
}

// fail ends the process if err is one, and keeps it with what the process said: nothing is told to
// the process any more, or awaited.
func (m *member) fail(err error) {
	if err != nil && m.err == nil {
		m.dismiss()
		m.err = fmt.Errorf("a worker failed: %w\n%s", err, m.Output.String())
	}
}

// dismiss ends it. It may be called again.
func (m *member) dismiss() {
	if m.guard != nil {
		m.guard.Stop()
	}
	m.Kill()
}
