//go:build linux

package exclusion

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// now is in nanoseconds of a clock that all processes of this machine share.
func now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

const (
	maxProcesses = 10
	maxHolds     = 1 << 17
)

// ledger is a file that all processes have mapped. Every word of it is read and
// written atomically, and it outlives the processes that wrote it.
type ledger struct {
	*control
	holds []entry
}

// control is how the test tells its workers what to do.
type control struct {
	used   atomic.Int64 // holds that were begun
	stop   atomic.Int64 // all end
	round  atomic.Int64 // of the workload "rounds"
	linger atomic.Int64 // bit p: whoever of process p is inside stays there
	store  atomic.Int64 // the fenced store: the largest token that has written
	worker [maxProcesses]struct {
		ready     atomic.Int64
		waiting   atomic.Int64 // goroutines in Lock
		lingering atomic.Int64 // 1 + the index of the hold that stays
		round     atomic.Int64 // the last that it was through with
		failures  atomic.Int64 // Locks that failed, other than because all ends
	}
}

// entry is one hold, as its holder writes it down.
type entry struct {
	name    atomic.Int64
	process atomic.Int64
	who     atomic.Int64 // the goroutine's number in its process
	shared  atomic.Int64 // 1: a reader, who does not mind others
	under   atomic.Int64 // 1 + the index of the writer's hold that this one was entered under
	begun   atomic.Int64 // Lock was called
	first   atomic.Int64 // the first time at which the lease said that it is held; written last on entry
	last    atomic.Int64 // the last such time
	told    atomic.Int64 // when the lease said that it had ended
	lost    atomic.Int64 // 1: that was ErrLost
	renewed atomic.Int64 // when the last request was sent that got or renewed the lease
	token   atomic.Int64
	wrote   atomic.Int64 // what became of its last write to the fenced store
	end     atomic.Int64 // see hold.end
	freed   atomic.Int64 // Unlock returned
}

// What becomes of a write to the fenced store.
const (
	taken = 1 + iota
	refused
)

// How a hold ended.
const (
	open     = iota // it did not, or its process died
	released        // Unlock returned nil
	notHeld         // Unlock returned ErrNotHeld
	unsure          // Unlock returned another error
	going           // Unlock was called, and its process died before it returned
)

// hold is what an entry says at one time.
type hold struct {
	name, process, who, begun, first, last, told, renewed, token, end, freed int64

	// family is what a hold shares with those that were entered under it: 1 + an index.
	family       int64
	shared, lost bool
}

func (e *entry) read() hold {
	return hold{
		name: e.name.Load(), process: e.process.Load(), who: e.who.Load(), shared: e.shared.Load() != 0, family: e.under.Load(), begun: e.begun.Load(), first: e.first.Load(), last: e.last.Load(),
		told: e.told.Load(), lost: e.lost.Load() != 0, renewed: e.renewed.Load(), token: e.token.Load(), end: e.end.Load(), freed: e.freed.Load(),
	}
}

// left tells whether Unlock has returned.
func (e *entry) left() bool {
	end := e.end.Load()
	return end != open && end != going
}

func (h hold) String() string {
	end := [...]string{"open", "released", "not held", "unsure", "going"}[h.end]
	side := ""
	if h.shared {
		side = " (a reader)"
	}
	return fmt.Sprintf("[process %d%s, name %d, token %d: Lock at %s, in from %s to %s, %s at %s]",
		h.process, side, h.name, h.token, stamp(h.begun), stamp(h.first), stamp(h.last), end, stamp(h.freed))
}

func stamp(at int64) string { return fmt.Sprintf("%.6f", float64(at)/1e9) }

// all reads the holds that claim something.
func (l *ledger) all() []hold {
	n := min(l.used.Load(), maxHolds)
	holds := make([]hold, 0, n)
	for i := range l.holds[:n] {
		if l.holds[i].first.Load() != 0 {
			h := l.holds[i].read()
			if h.family == 0 {
				h.family = int64(i) + 1
			}
			holds = append(holds, h)
		}
	}
	return holds
}

// begin takes a new entry; nil if there is none left.
func (l *ledger) begin() (*entry, int64) {
	i := l.used.Add(1) - 1
	if i >= maxHolds {
		return nil, i
	}
	return &l.holds[i], i
}

const ledgerSize = int(unsafe.Sizeof(control{}) + maxHolds*unsafe.Sizeof(entry{}))

// openLedger maps the file at path, which it makes if there is none.
func openLedger(path string) (*ledger, func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if err := f.Truncate(int64(ledgerSize)); err != nil {
		return nil, nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, ledgerSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	at := unsafe.Pointer(unsafe.SliceData(mem))
	l := &ledger{
		control: (*control)(at),
		holds:   unsafe.Slice((*entry)(unsafe.Add(at, unsafe.Sizeof(control{}))), maxHolds),
	}
	return l, func() { syscall.Munmap(mem) }, nil
}

// await looks until ok says yes, within d.
func await(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}
