package engine

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// tryOnce acquires the lock without waiting for it.
func (c *call) tryOnce() (*lease.Handle, error) {
	e := c.engine
	now := c.now()
	e.lock()
	if e.calls.shut && c.outer == nil {
		e.unlock()
		return nil, c.Fail(fail.Closed)
	}
	if n := e.names.records[c.topic()]; n != nil {
		if left := n.Blocks(c.Family != backend.KindWrite, now); left > 0 {
			e.unlock()
			return nil, c.Refused(left)
		}
	}
	e.calls.running++
	e.unlock()
	defer e.end()
	h, err := c.attempt.run()
	g := &c.attempt.grant
	switch {
	case err != nil:
		return nil, c.Fail(err)
	case h != nil:
		return &h.Handle, nil
	case g.err != nil:
		return nil, c.Fail(e.Explain(g.err))
	case g.reply.Young:
		return nil, fail.Public(&fail.Error{Op: c.Op(), Name: c.Name, Remaining: g.reply.Remaining, Err: fail.Barred})
	case g.reply.Absent:
		return nil, c.Fail(c.delegationEnded())
	}
	if g.reply.Rest {
		sitOut(c.wait)
	}
	return nil, c.Refused(g.reply.Remaining)
}

// sitOut waits for backend.Rest, or until ctx ends: the call has no slot of the in-flight limiter then.
func sitOut(ctx context.Context) {
	t := time.NewTimer(backend.Rest)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
