// Package timed knows by how much a busy machine delays what is measured.
package timed

import (
	"sync"
	"testing"
	"time"
)

// Machine knows when this machine was too busy to let goroutines go on: see [Test].
type Machine struct {
	mu    sync.Mutex
	spans [1 << 16]span
	next  int
}

// span is a time in which a goroutine that was due did not run.
type span struct{ due, ran time.Time }

// Test is for a test that judges real time. Until t ends it notes when the machine delays a goroutine that is due, and
// [Machine.Within] adds the delays to its bound: they are no fault of what is tested.
func Test(t testing.TB) *Machine {
	m, stop := Watch()
	t.Cleanup(stop)
	return m
}

// Watch is Test for all tests of a package. stop ends it.
func Watch() (m *Machine, stop func()) {
	m = new(Machine)
	over, done := make(chan struct{}), make(chan struct{})
	go m.watch(over, done)
	return m, func() { close(over); <-done }
}

// watch allocates nothing as it goes on: tests that count allocations run beside it.
func (m *Machine) watch(over <-chan struct{}, done chan<- struct{}) {
	defer close(done)
	const step, noise = 5 * time.Millisecond, time.Millisecond
	timer := time.NewTimer(step)
	defer timer.Stop()
	for due := time.Now().Add(step); ; {
		select {
		case <-over:
			return
		case <-timer.C:
		}
		now := time.Now()
		if now.Sub(due) > noise {
			m.note(span{due, now})
		}
		due = now.Add(step)
		timer.Reset(step)
	}
}

// note keeps the newest spans: at 5 ms each, more than any test lasts.
func (m *Machine) note(s span) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spans[m.next%len(m.spans)] = s
	m.next++
}

// Late is by how much the machine was late since a time, all in all.
func (m *Machine) Late(since time.Time) (sum time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.spans[:min(m.next, len(m.spans))] {
		if s.due.Before(since) {
			s.due = since
		}
		sum += max(0, s.ran.Sub(s.due))
	}
	return sum
}

// Within notes an error if something that has just ended took longer than bound and the delays of the machine
// meanwhile. A busy machine delays servers, too, and each of several steps: the delays count twice.
func (m *Machine) Within(t testing.TB, what string, took, bound time.Duration) {
	t.Helper()
	if late := m.Late(time.Now().Add(-took)); took > bound+2*late {
		t.Errorf("%s took %v, want %v at most, and twice the %v by which the machine was late", what, took, bound, late)
	}
}
