package engine

import (
	"errors"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
)

// calls is what Shutdown waits for. Guarded by the engine's mutex, but for the channels.
type calls struct {
	held    int           // live tenures
	running int           // commands whose end must be awaited
	idle    chan struct{} // non-nil once Shutdown waits for held and running to be zero
	shut    bool          // Shutdown has begun, at shutAt
	over    bool          // and has ended the leases that were left
	shutAt  clock.Instant
	closing chan struct{} // closed when Shutdown begins
	closed  chan struct{} // closed when Shutdown is over
	hurry   chan error    // a second Shutdown ends the waiting of the first
	outcome error         // what Shutdown came to; set before closed is closed
}

func (c *calls) init() {
	c.closing, c.closed, c.hurry = make(chan struct{}), make(chan struct{}), make(chan error)
}

// begin and end bracket what Shutdown waits for.
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

// ended is end with the mutex.
func (c *calls) ended() {
	c.running--
	c.check()
}

// check tells Shutdown that nothing is held and nothing is on its way.
func (c *calls) check() {
	if c.idle != nil && c.held == 0 && c.running == 0 {
		close(c.idle)
		c.idle = nil
	}
}

// Begin is begin for what is not begun any more once Shutdown has; End ends it.
func (e *state) Begin() bool {
	e.lock()
	defer e.unlock()
	if e.calls.shut {
		return false
	}
	e.calls.running++
	return true
}

// Hold is Begin though Shutdown may have begun; End ends it.
func (e *state) Hold() { e.begin() }

// End ends what Begin or Hold began.
func (e *state) End() { e.end() }

// Shut reports whether Shutdown has begun.
func (e *state) Shut() bool {
	e.lock()
	defer e.unlock()
	return e.calls.shut
}

// admit refuses a grant that comes too late.
func (c *calls) admit(t *tenure, enters bool, now clock.Instant) error {
	if c.over || c.shut && !enters {
		return fail.Closing
	}
	if t.Deadline.Reached(now) {
		return &backend.Fault{
			Err:       errors.New("the store granted the lock after its lease had run out"),
			Remedy:    "take a longer lease, or find out why the store or this process is slow",
			Temporary: true,
		}
	}
	return nil
}
