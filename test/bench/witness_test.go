//go:build linux

package bench

import (
	"sync/atomic"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// witness is memory that all processes of a run share: who is inside, and how far the run is.
// Worker.java knows where its words are.
type witness struct {
	*words
	close func()
	tied  bool // a lock that is held ends with the context that it was taken with
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
	w, unmap, err := harness.Map[words](path)
	return &witness{words: w, close: unmap}, err
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
