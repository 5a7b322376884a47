// Package announce calls the user's handlers: a logger, and functions of an observer that no caller waits for.
package announce

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fifo"
)

const (
	// Capacity bounds the events that wait for the user's handlers.
	Capacity = 1024
	// sumInterval is how often the log repeats that many leases have a thing in common.
	sumInterval = time.Second
	// lastWords is for how long Close waits, at the least, for handlers that still run.
	lastWords = time.Second
)

// Announcer has a goroutine of its own while there is something to announce, so that a handler that is slow, or
// never returns, delays no lease. What does not fit into its queue is dropped, and counted. Its methods may be called
// with any mutex held: it calls nothing while its own is held.
type Announcer struct {
	log *slog.Logger // nil: silent

	mu      sync.Mutex
	events  fifo.Queue[func()]
	sums    [sumKinds]sum
	running bool
	hurry   bool          // Close waits: nothing is summed up any more
	wake    chan struct{} // has room for one
	idle    chan struct{} // non-nil while Close waits
}

// Summary is a log line that may concern many leases at once.
type Summary uint8

// The lines that are summed up.
const (
	LeaseLost Summary = iota
	LeaseEnded
	RenewalFailed
	HeldLong
	eventsDropped
	sumKinds
)

var sumLines = [sumKinds]struct {
	level slog.Level
	text  string
}{
	LeaseLost:     {slog.LevelWarn, "mortise: lease ended without Unlock"},
	LeaseEnded:    {slog.LevelDebug, "mortise: lease ended as asked"},
	RenewalFailed: {slog.LevelWarn, "mortise: renewal failed, will be retried"},
	HeldLong:      {slog.LevelWarn, "mortise: lock held for longer than WithHoldWarning says; is its Unlock missing?"},
	eventsDropped: {slog.LevelWarn, "mortise: the log or the observer is too slow; events were not told"},
}

// sum gathers what one line says.
type sum struct {
	n    int
	args []any     // of the first of them
	next time.Time // no line before
}

// New makes an announcer; a nil logger is silent.
func New(log *slog.Logger) *Announcer {
	return &Announcer{log: log, wake: make(chan struct{}, 1)}
}

// Logs reports whether there is a logger.
func (a *Announcer) Logs() bool { return a.log != nil }

// Event has f called, unless too many events wait already.
func (a *Announcer) Event(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events.Len() >= Capacity {
		if a.log != nil {
			a.sums[eventsDropped].n++
		}
		return
	}
	a.events.Push(f)
	a.start()
}

// Line logs one line.
func (a *Announcer) Line(level slog.Level, text string, args ...any) {
	if a.log != nil {
		a.Event(func() { a.log.Log(context.Background(), level, text, args...) })
	}
}

// Sum logs a line that may concern many leases: at once if there was none in the last second, otherwise at the
// end of that second, with their number and what the first of them is about.
func (a *Announcer) Sum(kind Summary, args ...any) {
	if a.log == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.sums[kind]
	if s.n++; s.n == 1 {
		s.args = args
		a.start()
	}
}

// start starts the goroutine, or has it look again. It is called with the mutex.
func (a *Announcer) start() {
	if !a.running {
		a.running = true
		go a.run()
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

func (a *Announcer) run() {
	over := false
	defer func() {
		if !over { // a handler ended the goroutine: runtime.Goexit, as testing.T.FailNow does
			go a.run()
		}
	}()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		f, wait := a.next()
		if f != nil {
			f()
			continue
		}
		if wait < 0 {
			over = true
			return
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.wake:
		}
	}
}

// next is what to call now, or how long to wait for it; a negative time if there is nothing.
func (a *Announcer) next() (f func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	wait = -1
	for kind := range a.sums {
		s := &a.sums[kind]
		left := s.next.Sub(now)
		switch {
		case s.n == 0:
		case left <= 0 || a.hurry:
			return a.summed(Summary(kind), now), 0
		case wait < 0 || left < wait:
			wait = left
		}
	}
	if a.events.Len() > 0 {
		return a.events.Pop(), 0
	}
	if wait < 0 {
		a.running = false
		if a.idle != nil {
			close(a.idle)
			a.idle = nil
		}
	}
	return nil, wait
}

// summed takes what was gathered. It is called with the mutex.
func (a *Announcer) summed(kind Summary, now time.Time) func() {
	s := &a.sums[kind]
	line, args := sumLines[kind], s.args
	switch {
	case kind == eventsDropped:
		args = []any{"events", s.n}
	case s.n > 1:
		args = append([]any{"leases", s.n}, args...)
	}
	*s = sum{next: now.Add(sumInterval)}
	return func() { a.log.Log(context.Background(), line.level, line.text, args...) }
}

// Close waits until all is announced, or ctx has ended and a second is over. A cause, or one that arrives at
// hurry, counts as the end of ctx.
func (a *Announcer) Close(ctx context.Context, cause error, hurry <-chan error) error {
	idle := make(chan struct{})
	a.mu.Lock()
	a.hurry = true
	if !a.running {
		a.mu.Unlock()
		return nil
	}
	a.idle = idle
	a.start()
	a.mu.Unlock()
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	select {
	case <-idle:
		return nil
	case <-timer.C:
	}
	if cause == nil {
		select {
		case <-idle:
			return nil
		case <-ctx.Done():
			cause = context.Cause(ctx)
		case cause = <-hurry:
		}
	}
	a.mu.Lock()
	waiting := a.events.Len()
	a.mu.Unlock()
	return fmt.Errorf("a handler of the log or the observer has not returned, and %d events wait for it; "+
		"a handler must not wait for the client: %w", waiting, cause)
}
