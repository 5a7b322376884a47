//go:build linux

package harness

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
)

// Now is in nanoseconds of a clock that all processes of this machine share.
func Now() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return t.Nano()
}

// SleepUntil sleeps until a time of that clock.
func SleepUntil(at int64) {
	for now := Now(); now < at; now = Now() {
		time.Sleep(time.Duration(at - now))
	}
}

// Stamp writes a time of that clock, in seconds.
func Stamp(at int64) string { return fmt.Sprintf("%.6f", float64(at)/1e9) }

// Map maps the file at path, which it makes if there is none, as a V that all processes share. V
// is made of words that are read and written atomically.
func Map[V any](path string) (v *V, unmap func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(*v))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	return (*V)(unsafe.Pointer(unsafe.SliceData(mem))), func() { syscall.Munmap(mem) }, nil
}

// The sizes of a ledger.
const (
	MaxProcesses = 512
	MaxEntries   = 1 << 19
	MaxNames     = 1 << 17
	maxStalls    = 1 << 15
)

// Ledger is a file that all processes have mapped: which process was inside which lock, and when;
// the fenced store; and how the test tells its workers what to do. It outlives the processes
// that wrote it.
type Ledger struct {
	Used   atomic.Int64 // entries that were begun
	Stop   atomic.Int64 // 1: all end
	Round  atomic.Int64 // what workers are to do now, or of which generation the names are
	Strays atomic.Int64 // processes in which rueidis left a connection of its own
	Worker [MaxProcesses]struct {
		Ready     atomic.Int64
		Waiting   atomic.Int64 // goroutines that wait for a lock which is fought for
		Linger    atomic.Int64 // 1: the goroutine that is inside stays there
		Lingering atomic.Int64 // 1 + the index of the entry that stays
		Round     atomic.Int64 // the last that it was through with
		Failures  atomic.Int64 // locks that failed, other than because all ends
	}
	stalled atomic.Int64
	stall   [maxStalls]struct{ from, to atomic.Int64 }
	store   [MaxNames]atomic.Int64 // the fenced store: for each name the largest token that it has seen
	Entries [MaxEntries]Entry
}

// Entry is one visit to a lock, as its worker writes it down: Lock, the time inside, Unlock.
type Entry struct {
	Described
	Begun   atomic.Int64 // Lock was called
	Got     atomic.Int64 // it returned
	Token   atomic.Int64
	First   atomic.Int64 // the first time at which the lease said that it is held
	Last    atomic.Int64 // the last such time
	Told    atomic.Int64 // when it said that it had ended
	Lost    atomic.Int64 // 1: that was ErrLost
	Renewed atomic.Int64 // when the last request was sent that got or renewed the lease
	Wrote   atomic.Int64 // what became of its last write to the fenced store
	Refused atomic.Int64 // when the store refused a write, and the lease, asked afterwards, was still held
	Stale   atomic.Int64 // when it refused one and the lease was not
	Leaving atomic.Int64 // Unlock was called
	Freed   atomic.Int64 // Unlock returned; or Lock did, with an error
	End     atomic.Int64
}

// What becomes of a write to the fenced store.
const (
	Taken = 1 + iota
	Refused
)

// How a visit ended.
const (
	Open     = iota // it did not, or its process died
	Released        // Unlock returned nil
	NotHeld         // Unlock returned ErrLost or ErrReleased
	Unsure          // Unlock returned another error
	Denied          // Lock returned ErrNotAcquired
	Failed          // Lock returned another error
)

var ends = [...]string{"open", "released", "not held", "unsure", "denied", "failed"}

// Shape is a kind of lock.
type Shape int

// The shapes. A lock has room for one; a read-write lock for any number of readers, or for a writer,
// which takes all of it; permits for as many as were made.
const (
	Plain Shape = iota
	Fair
	ReadWrite
	Permits
	Shapes // how many there are
)

// Crowd is more than there are readers.
const Crowd = 1 << 20

func (s Shape) String() string { return [...]string{"plain", "fair", "read-write", "permits"}[s] }

// Room is how much room there is in a lock of a shape, with so many permits.
func (s Shape) Room(permits int) int {
	switch s {
	case ReadWrite:
		return Crowd
	case Permits:
		return permits
	}
	return 1
}

// Fenced reports whether a lock of the shape gives out tokens.
func (s Shape) Fenced() bool { return s == Plain || s == Fair }

// Visit is what an entry says at one time.
type Visit struct {
	Index, Name, Process, Who, Token int64
	Moments
	Wrote, End  int64
	Family      int64 // what a visit shares with those that were entered under it: 1 + an index
	Shape       Shape
	Room, Takes int
	Lost        bool
}

// Moments are when things happened, in an [Entry]'s words; 0: they did not.
type Moments struct {
	Begun, Got, First, Last, Told, Renewed, Refused, Stale, Leaving, Freed int64
}

// Described is what a visit is to be: written down before it begins.
type Described struct {
	Name    atomic.Int64
	Process atomic.Int64
	Who     atomic.Int64 // the goroutine's number in its process
	Shape   atomic.Int64
	Room    atomic.Int64 // how much room there is in the lock: see [Shape]
	Takes   atomic.Int64 // how much of it this visit takes
	Under   atomic.Int64 // 1 + the index of the writer's visit that this one was entered under
}

// Describe writes down, before a visit begins, what it is to.
func (e *Entry) Describe(name, process, who int64, shape Shape, permits int, reads bool) {
	room := shape.Room(permits)
	takes := room
	if reads || shape == Permits {
		takes = 1
	}
	e.Name.Store(name)
	e.Process.Store(process)
	e.Who.Store(who)
	e.Shape.Store(int64(shape))
	e.Room.Store(int64(room))
	e.Takes.Store(int64(takes))
}

// Claim writes down that the lease, asked after at, was held.
func (e *Entry) Claim(at int64) {
	e.Last.Store(at)
	e.First.CompareAndSwap(0, at)
}

// Tell writes down, once, that the lease, asked after at, had ended with err.
func (e *Entry) Tell(at int64, err error) {
	if e.Told.Load() != 0 {
		return
	}
	if errors.Is(err, mortise.ErrLost) {
		e.Lost.Store(1)
	}
	e.Told.Store(at)
}

// Leave writes down how Unlock ended.
func (e *Entry) Leave(err error) {
	e.Freed.Store(Now())
	switch {
	case err == nil:
		e.End.Store(Released)
	case errors.Is(err, mortise.ErrLost), errors.Is(err, mortise.ErrReleased):
		e.End.Store(NotHeld)
	default:
		e.End.Store(Unsure)
	}
}

// Fail writes down how Lock failed.
func (e *Entry) Fail(err error) {
	e.Freed.Store(Now())
	if errors.Is(err, mortise.ErrNotAcquired) {
		e.End.Store(Denied)
	} else {
		e.End.Store(Failed)
	}
}

// Left reports whether Unlock has returned.
func (e *Entry) Left() bool { return e.End.Load() != Open }

// Read is what the entry with that index says now.
func (e *Entry) Read(index int64) Visit {
	v := Visit{
		End:   e.End.Load(), // first: what it says is written down before it
		Index: index, Name: e.Name.Load(), Process: e.Process.Load(), Who: e.Who.Load(), Token: e.Token.Load(),
		Moments: Moments{
			Begun: e.Begun.Load(), Got: e.Got.Load(), First: e.First.Load(), Last: e.Last.Load(), Told: e.Told.Load(),
			Renewed: e.Renewed.Load(), Refused: e.Refused.Load(), Stale: e.Stale.Load(),
			Leaving: e.Leaving.Load(), Freed: e.Freed.Load(),
		},
		Wrote: e.Wrote.Load(), Family: e.Under.Load(), Lost: e.Lost.Load() != 0,
		Shape: Shape(e.Shape.Load()), Room: int(e.Room.Load()), Takes: int(e.Takes.Load()),
	}
	if v.Family == 0 {
		v.Family = index + 1
	}
	return v
}

// Shares reports whether others may be inside with it.
func (v Visit) Shares() bool { return v.Takes < v.Room }

// Reads reports whether it is a reader's.
func (v Visit) Reads() bool { return v.Shape == ReadWrite && v.Shares() }

func (v Visit) String() string {
	as := v.Shape.String()
	if v.Reads() {
		as = "reader"
	}
	end := ends[v.End]
	if v.End == Open && v.Leaving != 0 {
		end = "leaving"
	}
	return fmt.Sprintf("[process %d, goroutine %d, name %d, %s, token %d: Lock at %s, in from %s to %s, %s at %s]",
		v.Process, v.Who, v.Name, as, v.Token, Stamp(v.Begun), Stamp(v.First), Stamp(v.Last), end, Stamp(v.Freed))
}

// Count is how many entries there are.
func (l *Ledger) Count() int64 { return min(l.Used.Load(), MaxEntries) }

// Begin takes a new entry; nil if there is none left.
func (l *Ledger) Begin() (*Entry, int64) {
	i := l.Used.Add(1) - 1
	if i >= MaxEntries {
		return nil, i
	}
	return &l.Entries[i], i
}

// All reads the visits that have begun.
func (l *Ledger) All() []Visit {
	n := l.Count()
	visits := make([]Visit, 0, n)
	for i := range l.Entries[:n] {
		if l.Entries[i].Begun.Load() != 0 {
			visits = append(visits, l.Entries[i].Read(int64(i)))
		}
	}
	return visits
}

// Came counts the visits that got in after a time, from an entry on, and when the first did.
func (l *Ledger) Came(after, from int64) (n int, first int64) {
	for i := max(0, from); i < l.Count(); i++ {
		if at := l.Entries[i].First.Load(); at > after {
			n++
			if first == 0 || at < first {
				first = at
			}
		}
	}
	return n, first
}

// Write writes to the fenced store, which refuses a token smaller than one it has seen. It
// reports whether the store took it.
func (l *Ledger) Write(e *Entry) bool {
	token := e.Token.Load()
	if token == 0 {
		return true
	}
	cell := &l.store[e.Name.Load()%MaxNames]
	for {
		seen := cell.Load()
		if token < seen {
			e.Wrote.Store(Refused)
			return false
		}
		if cell.CompareAndSwap(seen, token) {
			e.Wrote.Store(Taken)
			return true
		}
	}
}

// Stay is how a visit goes on while it is inside.
type Stay struct {
	Until    int64                        // when it is to leave
	Overstay bool                         // it stays though its lease has ended
	Linger   bool                         // it stays for as long as its process is told to
	Over     func() bool                  // all is to end
	Pause    func(at int64) time.Duration // after which it asks its lease again
}

// Stay is the critical section of a visit of process p: it asks the lease, writes down what the lease
// says, and writes to the fenced store whether the lease is still held or not, as a holder would that
// was stopped before it asked.
func (l *Ledger) Stay(p int, e *Entry, index int64, lease interface{ Err() error }, s Stay) {
	self := &l.Worker[p]
	defer self.Lingering.CompareAndSwap(index+1, 0)
	for {
		at, err := Now(), lease.Err()
		if err == nil {
			e.Claim(at)
		} else {
			e.Tell(at, err)
		}
		if !l.Write(e) {
			if at := Now(); lease.Err() == nil {
				e.Refused.CompareAndSwap(0, at)
			} else {
				e.Stale.CompareAndSwap(0, at)
			}
		}
		if err != nil && !s.Overstay {
			return
		}
		linger := s.Linger && self.Linger.Load() != 0 && !s.Over() && err == nil
		if linger {
			self.Lingering.CompareAndSwap(0, index+1)
		}
		if at >= s.Until && !linger || s.Over() {
			return
		}
		time.Sleep(s.Pause(at))
	}
}

// Span is a stretch of time.
type Span struct{ From, To int64 }

const (
	beat = 10 * time.Millisecond
	late = 40 * time.Millisecond
)

// Feel writes down when this process did not run though it wanted to, until done says so.
func (l *Ledger) Feel(done func() bool) {
	for before := Now(); !done(); {
		time.Sleep(beat)
		at := Now()
		if at-before > int64(late) {
			if i := l.stalled.Add(1) - 1; i < maxStalls {
				l.stall[i].to.Store(at)
				l.stall[i].from.Store(before)
			}
		}
		before = at
	}
}

// Stalls are the times at which some process did not run though it wanted to.
func (l *Ledger) Stalls() (all []Span) {
	for i := range l.stall[:min(l.stalled.Load(), maxStalls)] {
		if from := l.stall[i].from.Load(); from != 0 {
			all = append(all, Span{from, l.stall[i].to.Load()})
		}
	}
	return all
}
