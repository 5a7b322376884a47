package engine

import (
	"sync"

	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/lease"
)

// state is the mutex of a client's locks, what is to be done when it is let go, and what Shutdown waits for.
type state struct {
	mu       sync.Mutex // guards what follows, and all other state of the engine
	effects  effects
	calls    calls
	announce *announce.Announcer
}

// effects are what must be done after the mutex was let go: first the contexts of all leases that are over end, then
// the rest in its order, then handlers of the user's are announced. None of it calls the user's code.
type effects struct {
	ends  []ending
	after []func()
	told  []func()
}

type ending struct {
	hold  *lease.Hold
	cause error
}

func (e *state) lock() { e.mu.Lock() }

// unlock carries out what was noted meanwhile.
func (e *state) unlock() {
	fx := &e.effects
	if len(fx.ends)+len(fx.after)+len(fx.told) == 0 {
		e.mu.Unlock()
		return
	}
	done := *fx
	*fx = effects{}
	e.mu.Unlock()
	for _, x := range done.ends {
		x.hold.End(x.cause)
	}
	for _, f := range done.after {
		f()
	}
	for _, f := range done.told {
		e.announce.Event(f)
	}
}

// after has f called without the mutex.
func (e *state) after(f func()) { e.effects.after = append(e.effects.after, f) }

// tell announces a call of a handler of the user's.
func (e *state) tell(f func()) { e.effects.told = append(e.effects.told, f) }

// end ends the context of a hold whose cause is set.
func (e *state) endContext(h *lease.Hold, cause error) {
	e.effects.ends = append(e.effects.ends, ending{h, cause})
}

// locker is the engine's mutex, for the timers.
type locker state

// Lock takes the mutex.
func (l *locker) Lock() { (*state)(l).lock() }

// Unlock lets the mutex go and carries out what was noted.
func (l *locker) Unlock() { (*state)(l).unlock() }
