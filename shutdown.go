package mortise

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Close is [Client.Shutdown] with five seconds to go.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown refuses new locks, wakes those who wait ([ErrClosed]), and waits for
// the Unlocks of leases that are held, which are renewed meanwhile, until ctx ends.
// Leases that remain then end with [ErrClosed] and their locks are left to run out: a
// lock is never released under running work. An error, which wraps ctx's, tells how
// many.
//
// Afterwards no goroutine and no connection of the client is left, and every
// operation answers ErrClosed. Backends that were given a ready-made Redis client
// leave it open. A second call waits for the first and returns the same; when its own
// ctx ends earlier, so does the waiting of the first.
func (c *Client) Shutdown(ctx context.Context) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := c.usable(); err != nil {
		return &Error{Op: "shutdown", Err: err}
	}
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		select {
		case <-c.closed:
		case <-ctx.Done():
			select {
			case c.hurry <- context.Cause(ctx):
			case <-c.closed:
			}
			<-c.closed
		}
		return c.outcome
	}
	c.shut, c.shutAt = true, c.now()
	close(c.closing)
	c.sched.hasten(c.shutAt.add(time.Second).mono)
	idle := make(chan struct{})
	c.idle = idle
	c.checkIdle()
	topics := make([]backend.Topic, 0, len(c.watched))
	for t := range c.watched {
		topics = append(topics, t)
	}
	c.mu.Unlock()
	for _, t := range topics {
		c.syncWatch(t)
	}

	var err, cause error
	select {
	case <-idle:
	case <-ctx.Done():
		cause = context.Cause(ctx)
	case cause = <-c.hurry:
	}

	var fx effects
	now := c.now()
	c.mu.Lock()
	c.over = true
	left := 0
	held := slices.Collect(maps.Values(c.permits))
	for _, q := range c.queues {
		held = slices.AppendSeq(append(held, q.holder), maps.Keys(q.readers))
	}
	for _, o := range held {
		if o != nil && o.state == ownerLive {
			left++
			if o.trouble != nil {
				o.trouble.late = 0 // taking back what may yet arrive would release it under running work
			}
			o.endAll(&Error{Op: "lease", Name: o.queue.topic.Name, Err: fmt.Errorf("%w while the lock was held; it frees itself when its lease runs out", ErrClosed)}, false, now, &fx)
		}
	}
	started := c.sched.started
	c.sched.started = true // and never again
	c.mu.Unlock()
	fx.run()
	if left > 0 {
		err = &Error{Op: "shutdown", Err: fmt.Errorf("%d locks were still held and are left to run out: %w", left, cause)}
	}

	c.cancel()
	if started {
		<-c.sched.stopped
	}
	if cerr := c.session.Close(); cerr != nil && err == nil {
		err = &Error{Op: "shutdown", Err: cerr}
	}
	if terr := c.teller.close(ctx, cause, c.hurry); terr != nil && err == nil {
		err = &Error{Op: "shutdown", Err: terr}
	}
	c.outcome = err
	close(c.closed)
	return err
}

// checkIdle tells Shutdown that nothing is held and nothing is on its way.
func (c *Client) checkIdle() {
	if c.idle != nil && c.held == 0 && c.running == 0 {
		close(c.idle)
		c.idle = nil
	}
}
