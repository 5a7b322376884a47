package mortise

import (
	"container/list"
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// gateWidth bounds how many acquisitions are on their way at once. It fills any
// connection, and a burst of callers does not push the renewals of held leases to
// the end of a long queue in the client library.
const gateWidth = 256

// gate has a place for each acquisition on its way. Guarded by Client.mu.
type gate struct {
	width  int
	inside int
	line   list.List // of chan struct{}: closed when there is a place for the caller that waits
}

func (g *gate) enter() bool {
	if g.inside == g.width {
		return false
	}
	g.inside++
	return true
}

// leave gives a place back, or to the first in line.
func (g *gate) leave() {
	first := g.line.Front()
	if first == nil {
		g.inside--
		return
	}
	close(g.line.Remove(first).(chan struct{}))
}

// quit takes a caller out of the line that does not stay in it, whatever the length of the line.
func (g *gate) quit(place *list.Element) {
	select {
	case <-place.Value.(chan struct{}): // it has just been let in
		g.leave()
	default:
		g.line.Remove(place)
	}
}

// pass takes a place at the gate; passed gives it back.
func (c *Client) pass(wait context.Context, g *gate) error {
	if wait.Err() != nil {
		return gone(wait)
	}
	c.mu.Lock()
	if g.enter() {
		c.mu.Unlock()
		return nil
	}
	let := make(chan struct{})
	place := g.line.PushBack(let)
	c.mu.Unlock()
	t := time.NewTimer(patience)
	defer t.Stop()
	var err error
	select {
	case <-let:
		return nil
	case <-wait.Done():
		err = gone(wait)
	case <-c.closing:
		err = errClosing
	case <-t.C:
		err = &backend.Fault{
			Err:       fmt.Errorf("%d acquisitions of this client are waiting for the store's answer already, since %v", g.width, patience),
			Remedy:    "look why the store is so slow, or ask for fewer locks at once",
			Temporary: true,
		}
	}
	c.mu.Lock()
	g.quit(place)
	c.mu.Unlock()
	return err
}

func (c *Client) passed(g *gate) {
	c.mu.Lock()
	g.leave()
	c.mu.Unlock()
}

// place takes a place at the gate for r, which may have one.
func (c *Client) place(wait context.Context, r *request) error {
	if r.placed {
		if wait.Err() != nil {
			return gone(wait)
		}
		return nil
	}
	r.fresh = false
	err := c.pass(wait, c.gateOf(r))
	r.placed = err == nil
	return err
}

// setOff counts r's question among what Shutdown waits for, and takes a place at the gate
// if one is free. It is called with the mutex, and so is arrived, afterwards. Who leaves the
// question to others leaves them the place, too, and takes it from r.
func (c *Client) setOff(r *request) {
	c.running++
	r.placed = r.family != backend.KindLatch && r.family != backend.KindSemaphore && c.gateOf(r).enter()
}

func (c *Client) settled(r *request) {
	c.mu.Lock()
	c.arrived(r)
	c.mu.Unlock()
}

func (c *Client) arrived(r *request) {
	c.running--
	if r.placed {
		r.placed = false
		c.gateOf(r).leave()
	}
	c.checkIdle()
}
