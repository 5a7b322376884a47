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

func (w *witness) close() {
	syscall.Munmap(unsafe.Slice((*byte)(unsafe.Pointer(w)), int(unsafe.Sizeof(*w))))
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
