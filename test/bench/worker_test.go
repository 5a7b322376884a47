//go:build linux

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

const workerEnv = "MORTISE_BENCH_WORKER"

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	if task := os.Getenv(workerEnv); task != "" {
		if err := work(task); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// task is what one process has to do.
type task struct {
	Contender  string
	Addr       string
	Witness    string // the file that all have mapped
	Process    int
	Goroutines int
	Shared     bool // all want one lock, instead of one each
	Try        bool // TryLock of a lock that is held, by another client of this process
	Hold       time.Duration
	Window     time.Duration
}

// report is what came of it.
type report struct {
	Ops        int
	Each       []int     // by goroutine
	Waits      []float64 // µs: of each Lock+Unlock if nobody has to wait, else of each Lock
	Held       float64   // µs: the mean time from Lock's return to Unlock's call
	Seconds    float64   // measured
	CPU        float64   // µs of this process, user and system, for each op
	Allocs     float64   // for each op
	Bytes      float64
	Goroutines int
	Violations int64
	Failures   int // of a peer; of ours and of the floors any ends the run
}

// witness has a word for each lock that several want: who is inside.
type witness struct {
	inside     atomic.Int64
	violations atomic.Int64
}

func openWitness(path string) (*witness, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(witness{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*witness)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

func (w *witness) enter(who int64) {
	if !w.inside.CompareAndSwap(0, who) {
		w.violations.Add(1)
	}
}

func (w *witness) leave(who int64) {
	if !w.inside.CompareAndSwap(who, 0) {
		w.violations.Add(1)
	}
}

// work says ready, begins when it reads a line, and writes its report.
func work(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	c, err := find(t.Contender)
	if err != nil {
		return err
	}
	w, err := openWitness(t.Witness)
	if err != nil {
		return err
	}
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
	// Scripts are loaded, connections made, and pools filled.
	var warm sync.WaitGroup
	var failure atomic.Pointer[error]
	for g := range t.Goroutines {
		warm.Go(func() {
			for n := range 20 {
				unlock, err := l.TryLock(context.Background(), fmt.Sprintf("warm:%d:%d", t.Process, g))
				if err == nil {
					err = unlock()
				}
				if err != nil && c.role != peer {
					err = fmt.Errorf("warming up, %d: %w", n, err)
					failure.Store(&err)
				}
			}
		})
	}
	warm.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	runtime.GC()
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	r, err := t.run(l, w, c.role == peer)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func (t *task) name(g int) string {
	if t.Shared || t.Try {
		return "bench:shared"
	}
	return fmt.Sprintf("bench:%d:%d", t.Process, g)
}

// run is the workload. A peer's failures are counted, any other ends it.
func (t *task) run(l locks, w *witness, lenient bool) (*report, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &report{Each: make([]int, t.Goroutines)}
	waits := make([][]float64, t.Goroutines)
	held := make([]time.Duration, t.Goroutines)
	var over atomic.Bool
	var failures atomic.Int64
	var failure atomic.Pointer[error]
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := cpuTime(), time.Now()
	var goroutines atomic.Int64 // in the middle; the timer may be late, and find the end
	time.AfterFunc(t.Window/2, func() { goroutines.Store(int64(runtime.NumGoroutine())) })
	var got atomic.Int64
	var window time.Duration
	var end func()
	end = func() {
		if got.Load() == 0 && time.Since(began) < time.Minute {
			time.AfterFunc(t.Window, end) // the machine stood still for that long
			return
		}
		window = time.Since(began)
		over.Store(true)
		cancel() // who waits, leaves
	}
	time.AfterFunc(t.Window, end)
	var wg sync.WaitGroup
	for g := range t.Goroutines {
		name, who := t.name(g), int64(t.Process)<<32|int64(g+1)
		waits[g] = make([]float64, 0, 1<<12)
		wg.Go(func() {
			for !over.Load() {
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
				got.Add(1)
				waits[g] = append(waits[g], float64(d.Nanoseconds())/1e3)
				held[g] += h
			}
		})
	}
	wg.Wait()
	used := cpuTime() - cpu
	runtime.ReadMemStats(&after)
	if err := failure.Load(); err != nil {
		return nil, *err
	}
	var inside time.Duration
	for g := range waits {
		r.Each[g] = len(waits[g])
		r.Ops += len(waits[g])
		r.Waits = append(r.Waits, waits[g]...)
		inside += held[g]
	}
	ops := float64(max(r.Ops, 1))
	r.Held = float64(inside.Nanoseconds()) / 1e3 / ops
	r.Seconds = window.Seconds()
	r.CPU = float64(used.Microseconds()) / ops
	r.Allocs = float64(after.Mallocs-before.Mallocs) / ops
	r.Bytes = float64(after.TotalAlloc-before.TotalAlloc) / ops
	r.Goroutines = int(goroutines.Load())
	r.Failures = int(failures.Load())
	r.Violations = w.violations.Load()
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
