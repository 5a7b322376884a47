//go:build linux

package bench

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// witness is memory that all processes of a run share: who is inside, and how far the run is.
// Worker.java knows where its words are.
type witness struct {
	*words
	tied bool // a lock that is held ends with the context that it was taken with
}

type words struct {
	inside     word // 0, or who
	violations word
	served     word // goroutines that had their turn
	ops        word // in the window
	phase      word
}

// word has a cache line of its own.
type word struct {
	atomic.Int64
	_ [7]int64
}

// The phases of a run.
const (
	settling  = iota // what comes now is not measured
	measuring        // the window
	over
)

// openWitness maps the file at path, which it makes if it is not there.
func openWitness(path string) (*witness, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(words{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &witness{words: (*words)(unsafe.Pointer(unsafe.SliceData(mem)))}, nil
}

func (w *witness) close() {
	syscall.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(w.words)), int(unsafe.Sizeof(*w.words))))
}

func (w *witness) enter(who int64) { w.swap(0, who) }

func (w *witness) leave(who int64) { w.swap(who, 0) }

// swap counts a violation where somebody else was inside, or had been; unless the run is over
// then, and locks may end with the context of those who took them (rueidislock's do).
func (w *witness) swap(from, to int64) {
	if !w.inside.CompareAndSwap(from, to) && !(w.tied && w.phase.Load() == over) {
		w.violations.Add(1)
	}
}
