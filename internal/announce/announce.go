// Package announce calls the user's handlers in the background: the logger, and functions of the observer that no call
// waits for.
package announce

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/fifo"
)

const (
	// Capacity bounds the events that wait for the user's handlers.
	Capacity = 1024
	// sumInterval is the least time between two log lines of one Summary.
	sumInterval = time.Second
	// tickInterval is the same for lines about ticks, each of which is claimed again and again.
	tickInterval = 10 * time.Second
	// lastWords is how long Close waits for handlers even if its context has ended.
	lastWords = time.Second
)

// Announcer calls handlers on a goroutine of its own, which runs while there are events: a handler that is slow, or
// never returns, delays no lease. Events beyond Capacity are dropped and counted. The methods, except for Close, do
// not block and may be called with any mutex held: no handler is called under the Announcer's own mutex.
type Announcer struct {
	log *slog.Logger // nil: no log

	mu      sync.Mutex
	events  fifo.Queue[func()]
	sums    [sumKinds]sum
	running bool
	hurry   bool          // Close was called: a Summary is logged without a pause
	wake    chan struct{} // wakes the goroutine; capacity 1
	idle    chan struct{} // closed when nothing is left; non-nil while Close waits
}

// Summary is a log line that may concern many leases at once.
type Summary uint8

// The log lines that are summed up.
const (
	LeaseLost Summary = iota
	LeaseEnded
	RenewalFailed
	HeldLong
	TickFailed
	TickAhead
	CampaignFailed
	eventsDropped
	sumKinds
)

var sumLines = [sumKinds]struct {
	level slog.Level
	text  string
	many  string        // the attribute for the number of subjects, or calls of Sum, if there were several
	every time.Duration // the least time between two lines
	each  bool          // each call of Sum counts, also with one subject
}{
	LeaseLost:     {slog.LevelWarn, "mortise: lease ended without Unlock", "leases", sumInterval, true},
	LeaseEnded:    {slog.LevelDebug, "mortise: lease ended as asked", "leases", sumInterval, true},
	RenewalFailed: {slog.LevelWarn, "mortise: renewal failed, will be retried", "leases", sumInterval, false},
	HeldLong: {slog.LevelWarn, "mortise: lock held for longer than WithHoldWarning says; is its Unlock missing?", "leases",
		sumInterval, true},
	TickFailed: {slog.LevelWarn, "mortise: claim of a tick failed; no tick starts meanwhile", "claims",
		tickInterval, true},
	TickAhead: {slog.LevelWarn, "mortise: no tick starts: the last started tick is ahead of the store's clock", "claims",
		tickInterval, true},
	CampaignFailed: {slog.LevelWarn, "mortise: campaign for leadership failed, will be repeated", "campaigns", sumInterval,
		true},
	eventsDropped: {slog.LevelWarn, "mortise: the log or the observer is too slow; events were not told", "events",
		sumInterval, true},
}

// sum is the next log line of a Summary: what it tells, by subject.
type sum struct {
	n    map[string]int   // calls of Sum since the last line
	args map[string][]any // of the last of these calls; of the first one where each call has a lease of its own
	next time.Time        // the earliest time of the line
	// first is the subject whose args the line has.
	first string
}

// count returns the number that the line tells. Each: all calls count.
func (s *sum) count(each bool) int {
	n := len(s.n)
	for subject, calls := range s.n {
		if each || subject == "" {
			n += calls - 1
		}
	}
	return n
}

// New returns an Announcer. With a nil logger nothing is logged.
func New(log *slog.Logger) *Announcer {
	return &Announcer{log: log, wake: make(chan struct{}, 1)}
}

// Logs reports whether there is a logger.
func (a *Announcer) Logs() bool { return a.log != nil }

// Event calls f in the background, after the events that wait already. If Capacity events wait, f is dropped.
func (a *Announcer) Event(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.events.Len() >= Capacity {
		if a.log != nil {
			a.sums[eventsDropped].add("", nil)
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

// Sum logs a line that may concern many leases: at once if there was none in the last second. Otherwise it is logged
// when that second is over, once for all leases, with their number and the args of the first. A subject is what the
// line is about, for Drop, such as an owner; "" for a line that Drop never takes back.
func (a *Announcer) Sum(kind Summary, subject string, args ...any) {
	if a.log == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sums[kind].add(subject, args) {
		a.start()
	}
}

// add notes a call of Sum, and reports whether it is the first since the last line.
func (s *sum) add(subject string, args []any) (first bool) {
	if s.n == nil {
		s.n, s.args = make(map[string]int), make(map[string][]any)
	}
	if first = len(s.n) == 0; first {
		s.first = subject
	}
	if s.n[subject]++; subject != "" || s.n[subject] == 1 {
		s.args[subject] = args
	}
	return first
}

// Drop takes back what was to be logged about a subject: it is no longer so.
func (a *Announcer) Drop(kind Summary, subject string) {
	if a.log == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.sums[kind]
	delete(s.n, subject)
	delete(s.args, subject)
	if s.first == subject {
		for s.first = range s.n {
			break
		}
	}
}

// start starts the goroutine, or wakes it. It is called with the mutex.
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
		if !over { // a handler ended the goroutine with runtime.Goexit, as testing.T.FailNow does
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

// next returns the function to call now, or how long to wait for the next line. If nothing is left, it returns a
// negative time, and the goroutine is to end.
func (a *Announcer) next() (f func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	wait = -1
	for kind := range a.sums {
		s := &a.sums[kind]
		left := s.next.Sub(now)
		switch {
		case len(s.n) == 0:
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

// summed returns the function that logs a Summary's line, and clears its sum. It is called with the mutex.
func (a *Announcer) summed(kind Summary, now time.Time) func() {
	s := &a.sums[kind]
	line, args := sumLines[kind], s.args[s.first]
	if n := s.count(line.each); n > 1 || kind == eventsDropped {
		args = append([]any{line.many, n}, args...)
	}
	*s = sum{next: now.Add(line.every)}
	return func() { a.log.Log(context.Background(), line.level, line.text, args...) }
}

// Close waits until all events are announced. It gives up once a second has passed and ctx has ended, and returns an
// error. A cause that is not nil, or one that arrives on hurry, counts as the end of ctx.
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
			cause = fail.Gone(ctx)
		case cause = <-hurry:
		}
	}
	a.mu.Lock()
	waiting := a.events.Len()
	a.mu.Unlock()
	return fmt.Errorf("a handler of the log or the observer has not returned, and %d events wait for it; "+
		"a handler must not wait for the client: %w", waiting, cause)
}
