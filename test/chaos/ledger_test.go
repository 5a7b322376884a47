//go:build linux

package chaos

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
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
	maxProcesses = 512
	maxEntries   = 1 << 19
	maxStalls    = 1 << 15
	maxNames     = 1 << 17
)

// ledger is a file that all processes have mapped: the history, the fenced store, and how
// the test tells its workers what to do. Every word of it is read and written atomically, and
// it outlives the processes that wrote it.
type ledger struct {
	*control
	entries []entry
}

type control struct {
	used       atomic.Int64 // entries that were begun
	stop       atomic.Int64 // all end
	generation atomic.Int64 // of the names that are fought for
	strays     atomic.Int64 // processes in which rueidis left a connection of its own
	worker     [maxProcesses]struct {
		ready     atomic.Int64
		waiting   atomic.Int64 // goroutines in Lock, for a name that many want
		linger    atomic.Int64 // 1: whoever is inside stays there
		lingering atomic.Int64 // 1 + the index of the entry that stays
	}
	stalled atomic.Int64
	stall   [maxStalls]struct{ from, to atomic.Int64 }
	// store is the fenced store: for each name the largest token that it has seen.
	store [maxNames]atomic.Int64
}

// entry is one visit: Lock, the time inside, Unlock.
type entry struct {
	name    atomic.Int64
	process atomic.Int64
	who     atomic.Int64 // the goroutine's number in its process
	begun   atomic.Int64 // Lock was called
	got     atomic.Int64 // it returned
	token   atomic.Int64
	first   atomic.Int64 // the first time at which the lease said that it is held
	last    atomic.Int64 // the last such time
	told    atomic.Int64 // when it said that it had ended
	lost    atomic.Int64 // 1: that was ErrLost
	refused atomic.Int64 // when the fenced store refused a write of somebody who, asked afterwards, still held the lock
	stale   atomic.Int64 // when it refused one of somebody who did not
	leaving atomic.Int64 // Unlock was called
	freed   atomic.Int64 // Unlock returned; or Lock did, with an error
	end     atomic.Int64
	reads   atomic.Int64 // 1: of a read-write lock, as a reader
}

// How a visit ended.
const (
	open     = iota // it did not, or its process died
	released        // Unlock returned nil
	notHeld         // Unlock returned ErrNotHeld
	unsure          // Unlock returned another error
	denied          // Lock returned ErrNotAcquired
	failed          // Lock returned another error
)

var ends = [...]string{"open", "released", "not held", "unsure", "denied", "failed"}

// visit is what an entry says at one time.
type visit struct {
	index, name, process, who            int64
	begun, got, token, first, last, told int64
	refused, stale, leaving, freed, end  int64
	lost, reads                          bool
}

func (e *entry) read(index int64) visit {
	return visit{
		end:   e.end.Load(), // first: what it says is written down before it
		index: index, name: e.name.Load(), process: e.process.Load(), who: e.who.Load(),
		begun: e.begun.Load(), got: e.got.Load(), token: e.token.Load(), first: e.first.Load(), last: e.last.Load(), told: e.told.Load(),
		refused: e.refused.Load(), stale: e.stale.Load(), leaving: e.leaving.Load(), freed: e.freed.Load(), lost: e.lost.Load() != 0, reads: e.reads.Load() != 0,
	}
}

func (v visit) String() string {
	as := v.shape().String()
	if v.reads {
		as = "reader"
	}
	return fmt.Sprintf("[process %d, goroutine %d, name %d, %s, token %d: Lock at %s, in from %s to %s, %s at %s]",
		v.process, v.who, v.name, as, v.token, stamp(v.begun), stamp(v.first), stamp(v.last), ends[v.end], stamp(v.freed))
}

func stamp(at int64) string { return fmt.Sprintf("%.6f", float64(at)/1e9) }

// all reads the visits that have begun.
func (l *ledger) all() []visit {
	n := min(l.used.Load(), maxEntries)
	visits := make([]visit, 0, n)
	for i := range l.entries[:n] {
		if l.entries[i].begun.Load() != 0 {
			visits = append(visits, l.entries[i].read(int64(i)))
		}
	}
	return visits
}

// begin takes a new entry; nil if there is none left.
func (l *ledger) begin() (*entry, int64) {
	i := l.used.Add(1) - 1
	if i >= maxEntries {
		return nil, i
	}
	return &l.entries[i], i
}

const ledgerSize = int(unsafe.Sizeof(control{}) + maxEntries*unsafe.Sizeof(entry{}))

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
		entries: unsafe.Slice((*entry)(unsafe.Add(at, unsafe.Sizeof(control{}))), maxEntries),
	}
	return l, func() { syscall.Munmap(mem) }, nil
}

// span is a stretch of time.
type span struct{ from, to int64 }

const (
	beat = 10 * time.Millisecond
	late = 40 * time.Millisecond
)

// feel writes down when this process did not run though it wanted to, until done says so.
func (l *ledger) feel(done func() bool) {
	for before := now(); !done(); {
		time.Sleep(beat)
		at := now()
		if at-before > int64(late) {
			if i := l.stalled.Add(1) - 1; i < maxStalls {
				l.stall[i].to.Store(at)
				l.stall[i].from.Store(before)
			}
		}
		before = at
	}
}

// stalls are the times at which some process did not run though it wanted to.
func (l *ledger) stalls() (all []span) {
	for i := range l.stall[:min(l.stalled.Load(), maxStalls)] {
		if from := l.stall[i].from.Load(); from != 0 {
			all = append(all, span{from, l.stall[i].to.Load()})
		}
	}
	return all
}
