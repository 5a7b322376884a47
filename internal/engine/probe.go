package engine

import (
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

// Snapshot counts what a client has in memory.
type Snapshot struct {
	Held    int // live tenures
	Running int // commands whose end is awaited
	Names   int // that something holds or waits for
	Waiting int // calls that sleep in a local queue, those that were the first
	Watches int // topics that the session was asked to watch
	Lines   int // of fair locks
	Nested  int // names that a tenure has entered under another
	Timers  int
	Slots   int // of in-flight limiters that are taken
}

// Snapshot counts what the client has in memory now.
func (p Probe) Snapshot() Snapshot {
	e := p.engine
	e.lock()
	defer e.unlock()
	s := Snapshot{
		Held: e.calls.held, Running: e.calls.running, Names: len(e.names.records), Watches: len(e.names.watches.all),
		Lines: len(e.names.fair.all), Nested: len(e.names.entered), Timers: e.renewer.timers.Len(), Slots: len(e.limits.one),
	}
	for _, n := range e.names.records {
		if w := n.first(); w != nil && w.Slept() {
			s.Waiting++
		}
	}
	return s
}

// Handler is the engine as its session sees it.
func (e *Engine) Handler() backend.Handler { return (*handler)(e) }

// Probe is what tests look at.
type Probe struct{ engine *Engine }

// Probe is what tests look at.
func (e *Engine) Probe() Probe { return Probe{e} }

// OnTimers has f called by the goroutine of the client's timers, which does nothing else meanwhile: for tests of
// processes that stand still.
func (p Probe) OnTimers(f func()) {
	e := p.engine
	e.lock()
	defer e.unlock()
	run := timerq.Func(func(clock.Instant) { e.after(f) })
	e.renewer.timers.Put(new(timerq.Timer), e.Now().Mono, run)
}

// Closing is closed when Shutdown begins.
func (p Probe) Closing() <-chan struct{} { return p.engine.calls.closing }
