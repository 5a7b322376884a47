package engine

import (
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

// Snapshot counts what a client has in memory, for tests.
type Snapshot struct {
	Held    int // live tenures
	Running int // calls and background jobs that Shutdown waits for
	Names   int // names with tenures or waiters
	Waiting int // names whose first waiter sleeps, or has slept
	Watches int // topics that the session watches for the client
	Lines   int // fair locks with waiters, now or a short time ago
	Nested  int // names with tenures that entered by delegation
	Timers  int
	Slots   int // slots taken of the in-flight limiter for names whose node is unknown
}

// Snapshot counts what the client has in memory now.
func (p Probe) Snapshot() Snapshot {
	e := p.engine
	e.lock()
	defer e.unlock()
	s := Snapshot{
		Held: e.calls.held, Running: e.calls.running, Names: len(e.names.records), Watches: len(e.names.watches.all),
		Lines: len(e.names.fair.all), Nested: len(e.names.callees), Timers: e.renewer.timers.Len(),
		Slots: len(e.limits.one.slots),
	}
	for _, n := range e.names.records {
		if w := n.first(); w != nil && w.Slept() {
			s.Waiting++
		}
	}
	return s
}

// Handler returns the engine as the handler of its session.
func (e *Engine) Handler() backend.Handler { return (*handler)(e) }

// Probe lets tests look into an engine.
type Probe struct{ engine *Engine }

// Probe returns the engine's probe.
func (e *Engine) Probe() Probe { return Probe{e} }

// OnTimers calls f on the goroutine of the client's timers, which does nothing else meanwhile: for tests of processes
// that stand still.
func (p Probe) OnTimers(f func()) {
	e := p.engine
	e.lock()
	defer e.unlock()
	run := timerq.Func(func(clock.Instant) { e.after(f) })
	e.renewer.timers.Put(new(timerq.Timer), e.Now().Mono, run)
}

// Closing returns a channel that is closed when Shutdown begins.
func (p Probe) Closing() <-chan struct{} { return p.engine.calls.closing }
