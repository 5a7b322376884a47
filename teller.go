package mortise

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxUntold bounds the events that wait for the user's handlers.
	maxUntold = 1024
	// sumUp is how often the log says again that many leases have a thing in common.
	sumUp = time.Second
	// lastWords is for how long Shutdown waits, at the least, for handlers that are still called.
	lastWords = time.Second
)

// teller calls the user's handlers: the logger, and those functions of the observer that no caller
// waits for. It has a goroutine of its own while there is something to tell, so that a handler
// that is slow, or never returns, delays no lease. What it cannot queue is dropped, and counted.
//
// Its mutex is taken last: it is held while nothing is called.
type teller struct {
	log *slog.Logger // nil: silent

	mu      sync.Mutex
	events  fifo[func()]
	dropped int // since the log last said so
	sums    [sumKinds]sum
	running bool
	hurry   chan struct{} // closed when Shutdown waits: nothing is summed up any more
	wake    chan struct{} // has room for one
	idle    chan struct{} // non-nil while Shutdown waits
}

// sumKind is a log line that may concern many leases at once.
type sumKind uint8

const (
	sumLost sumKind = iota
	sumEnded
	sumRenewal
	sumDropped
	sumKinds
)

var sumLines = [sumKinds]struct {
	level slog.Level
	text  string
}{
	sumLost:    {slog.LevelWarn, "mortise: lease ended without Unlock"},
	sumEnded:   {slog.LevelDebug, "mortise: lease ended as asked"},
	sumRenewal: {slog.LevelWarn, "mortise: renewal failed, will be retried"},
	sumDropped: {slog.LevelWarn, "mortise: the log or the observer is too slow; events were not told"},
}

// sum gathers what one line says.
type sum struct {
	n    int
	args []any     // of the first of them
	next time.Time // no line before
}

func newTeller(log *slog.Logger) *teller {
	return &teller{log: log, hurry: make(chan struct{}), wake: make(chan struct{}, 1)}
}

// event has f called, unless too many wait for that already.
func (t *teller) event(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.events.len() >= maxUntold {
		t.dropped++
		return
	}
	t.events.push(f)
	t.start()
}

// line logs one line.
func (t *teller) line(level slog.Level, text string, args ...any) {
	if t.log != nil {
		t.event(func() { t.log.Log(context.Background(), level, text, args...) })
	}
}

// sum logs a line that may concern many leases: at once if there was none in the last second,
// else at the end of that second, with their number and what the first of them is about.
func (t *teller) sum(kind sumKind, args ...any) {
	if t.log == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.sums[kind]
	if s.n++; s.n == 1 {
		s.args = args
		t.start()
	}
}

// start is called with the mutex.
func (t *teller) start() {
	if !t.running {
		t.running = true
		go t.run()
		return
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *teller) run() {
	over := false
	defer func() {
		if !over { // a handler ended the goroutine: runtime.Goexit, as testing.T.FailNow does
			go t.run()
		}
	}()
	var timer *time.Timer
	for {
		f, wait := t.next()
		if f != nil {
			f()
			continue
		}
		if wait < 0 {
			if timer != nil {
				timer.Stop()
			}
			over = true
			return
		}
		timer = after(timer, wait)
		select {
		case <-timer.C:
		case <-t.wake:
		case <-t.hurry:
		}
	}
}

// next is what to call now, or how long to wait for it; a negative time if there is nothing.
func (t *teller) next() (f func(), wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	hurried := false
	select {
	case <-t.hurry:
		hurried = true
	default:
	}
	if t.dropped > 0 && t.log != nil {
		s := &t.sums[sumDropped]
		s.n, t.dropped = s.n+t.dropped, 0
	}
	now := time.Now()
	wait = -1
	for kind := range t.sums {
		s := &t.sums[kind]
		left := s.next.Sub(now)
		switch {
		case s.n == 0:
		case left <= 0 || hurried:
			return t.summed(sumKind(kind), now), 0
		case wait < 0 || left < wait:
			wait = left
		}
	}
	if t.events.len() > 0 {
		return t.events.pop(), 0
	}
	if wait < 0 {
		t.running = false
		if t.idle != nil {
			close(t.idle)
			t.idle = nil
		}
	}
	return nil, wait
}

// summed takes what was gathered. It is called with the mutex.
func (t *teller) summed(kind sumKind, now time.Time) func() {
	s := &t.sums[kind]
	line, args := sumLines[kind], s.args
	switch {
	case kind == sumDropped:
		args = []any{"events", s.n}
	case s.n > 1:
		args = append([]any{"leases", s.n}, args...)
	}
	*s = sum{next: now.Add(sumUp)}
	return func() { t.log.Log(context.Background(), line.level, line.text, args...) }
}

// close waits until all is told, or ctx has ended and a second is over. A cause, or one that arrives
// at hurry, is as good as the end of ctx.
func (t *teller) close(ctx context.Context, cause error, hurry <-chan error) error {
	t.mu.Lock()
	close(t.hurry)
	if !t.running {
		t.mu.Unlock()
		return nil
	}
	idle := make(chan struct{})
	t.idle = idle
	t.mu.Unlock()
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
	t.mu.Lock()
	untold := t.events.len()
	t.mu.Unlock()
	return fmt.Errorf("a handler of the log or the observer has not returned, and %d events wait for it; a handler must not wait for the client: %w", untold, cause)
}
