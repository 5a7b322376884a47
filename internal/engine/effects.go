package engine

import (
	"sync"

	"github.com/mortise-go/mortise/internal/announce"
	"github.com/mortise-go/mortise/internal/lease"
)

// state is the mutex of an engine, the effects noted under it, and what Shutdown waits for.
type state struct {
	mu       sync.Mutex // guards the other fields, and all other state of the engine
	effects  effects
	calls    calls
	announce *announce.Announcer
}

// effects are carried out when the mutex is unlocked: first the contexts of all ended leases end, then the functions
// in after are called in order, and then the events in told are queued. None of that calls user code.
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

// unlock unlocks the mutex, and then carries out the effects that were noted under it.
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

// after notes a function to be called without the mutex.
func (e *state) after(f func()) { e.effects.after = append(e.effects.after, f) }

// tell notes an event: a call of a function of the user's Observer.
func (e *state) tell(f func()) { e.effects.told = append(e.effects.told, f) }

// endContext notes that the context of a hold ends. The hold's Cause is set.
func (e *state) endContext(h *lease.Hold, cause error) {
	e.effects.ends = append(e.effects.ends, ending{h, cause})
}

// locker is the engine's mutex as a sync.Locker, for the timers.
type locker state

// Lock locks the mutex.
func (l *locker) Lock() { (*state)(l).lock() }

// Unlock unlocks the mutex, and carries out the effects.
func (l *locker) Unlock() { (*state)(l).unlock() }
