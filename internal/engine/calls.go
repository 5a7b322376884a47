package engine

import (
	"errors"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// calls is what Shutdown waits for. Guarded by the engine's mutex, except for the channels.
type calls struct {
	held    int // live tenures
	running int // calls and background jobs that Shutdown waits for
	// owing has, by name, the number of requests on their way, and repeated by their callers, whose loss leaves something
	// in the store, and that no live tenure, repetition or slot of a limiter stands for.
	owing   map[string]int
	idle    chan struct{} // closed when held and running are zero; nil unless Shutdown waits for that
	shut    bool          // Shutdown has begun, at shutAt
	over    bool          // Shutdown has ended the leases that were left
	shutAt  clock.Instant
	closing chan struct{} // closed when Shutdown begins
	closed  chan struct{} // closed when Shutdown is over
	hurry   chan error    // a second Shutdown whose context has ended makes the first stop waiting
	outcome error         // the result of Shutdown; set before closed is closed
}

func (c *calls) init() {
	c.closing, c.closed, c.hurry = make(chan struct{}), make(chan struct{}), make(chan error)
}

// begin and end count what Shutdown waits for.
func (e *state) begin() {
	e.lock()
	e.calls.running++
	e.unlock()
}

func (e *state) end() {
	e.lock()
	e.calls.ended()
	e.unlock()
}

// ended is end for callers with the mutex.
func (c *calls) ended() {
	c.running--
	c.check()
}

// owe notes that a request is on its way whose answer Shutdown awaits, and reports if its context ends before. settled
// ends that.
func (c *calls) owe(name string) {
	if c.owing == nil {
		c.owing = make(map[string]int)
	}
	c.owing[name]++
}

func (c *calls) settled(name string) {
	if c.owing[name]--; c.owing[name] <= 0 {
		delete(c.owing, name)
	}
}

// waits returns a channel for Shutdown, which is closed when nothing is held and nothing is running.
func (c *calls) waits() chan struct{} {
	idle := make(chan struct{})
	c.idle = idle
	c.check()
	return idle
}

// check tells Shutdown if nothing is held and nothing is running.
func (c *calls) check() {
	if c.idle != nil && c.held == 0 && c.running == 0 {
		close(c.idle)
		c.idle = nil
	}
}

// Begin is begin, unless Shutdown has begun: it then reports false. End ends what Begin began.
func (e *state) Begin() bool {
	e.lock()
	defer e.unlock()
	if e.calls.shut {
		return false
	}
	e.calls.running++
	return true
}

// Hold is begin, even if Shutdown has begun. End ends what Hold began.
func (e *state) Hold() { e.begin() }

// End ends what Begin or Hold began.
func (e *state) End() { e.end() }

// Shut reports whether Shutdown has begun.
func (e *state) Shut() bool {
	e.lock()
	defer e.unlock()
	return e.calls.shut
}

// errGrantedLate is the error of a grant whose lease is over: the request timed out once, and the time-out is longer
// than the lease. A call that may wait asks again, for a new owner, whose lease counts from later.
var errGrantedLate = errors.New("the store granted the lock after its lease had run out")

// admit returns an error for a grant that comes too late: after the end of its lease, or after Shutdown has begun. A
// call that enters under a hold is admitted until Shutdown ends the leases.
func (c *calls) admit(t *tenure, enters bool, now clock.Instant) error {
	if c.over || c.shut && !enters {
		return fail.Closing
	}
	if t.Deadline.Reached(now) {
		return &backend.Fault{
			Err:       errGrantedLate,
			Remedy:    "take a longer lease, or find out why the store or this process is slow",
			Temporary: true,
		}
	}
	return nil
}
