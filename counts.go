package mortise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/mortise-go/mortise/backend"
)

// capable finds a capability of the backend.
func capable[S any](c *Client, things string) (S, error) {
	if err := c.usable(); err != nil {
		return *new(S), err
	}
	s, ok := c.session.(S)
	if !ok {
		return s, fmt.Errorf("%w: the backend (%T) has no %s; those of redisgo, rueidis and memory have", ErrInvalid, c.session, things)
	}
	return s, nil
}

// counted is a name with a count in the store: what a latch and semaphores share. S is
// what the backend must be able to do.
type counted[S any] struct {
	client *Client
	topic  backend.Topic
	things string // in errors
}

func (n *counted[S]) fail(op string, err error) error {
	return &Error{Op: op, Name: n.topic.Name, Err: err}
}

// request makes a request that counts once however often it is sent.
func (n *counted[S]) request(count int64) backend.CountRequest {
	return backend.CountRequest{Topic: n.topic, ID: n.client.newOwnerID(), N: count}
}

// manage asks or changes something, on behalf of a caller who may leave.
func (n *counted[S]) manage(ctx context.Context, op string, send func(S) error) error {
	s, err := capable[S](n.client, n.things)
	if err != nil {
		return n.fail(op, err)
	}
	return n.client.manage(ctx, op, n.topic.Name, func() error {
		return n.client.insist(func() error { return send(s) })
	})
}

// finish sends what must be sent though the caller leaves, and though the store is
// away for a while.
func (n *counted[S]) finish(ctx context.Context, op string, send func(S) error) error {
	c := n.client
	if err := checkName(n.topic.Name); err != nil {
		return n.fail(op, err)
	}
	s, err := capable[S](c, n.things)
	if err != nil {
		return n.fail(op, err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	c.begin()
	defer c.end()
	err = dispatch(c, ctx, func() error { return c.seeThrough(op, n.topic.Name, func() error { return send(s) }) }, nil)
	var caller *callerGone
	switch {
	case err == nil:
		return nil
	case errors.As(err, &caller):
		err = fmt.Errorf("%w: it is sent all the same, its outcome is not known here; do not send it again", caller)
	}
	return n.fail(op, err)
}

// stubbornly is how long a command that counts once is repeated. The store remembers it
// from when it first arrived, so half of that time leaves as much for the way.
const stubbornly = backend.Remembered / 2

// seeThrough is insist, and goes on in the background.
func (c *Client) seeThrough(op, name string, send func() error) error {
	first := c.now()
	err := c.insist(send)
	if err == nil {
		return nil
	}
	if !backend.FaultOf(err).Temporary {
		return c.explain(err)
	}
	c.mu.Lock()
	over := c.over
	if !over {
		c.goOnLocked(op, name, first, send)
	}
	c.mu.Unlock()
	if over {
		return fmt.Errorf("%w before it was confirmed; whether it counted is not known: %w", ErrClosed, notCallers(err))
	}
	return fmt.Errorf("%w: it is not confirmed and is repeated in the background for %v; do not send it again: %w", ErrUnavailable, stubbornly, err)
}

// goOnLocked repeats in the background what must arrive. What is given up, permits
// perhaps that nobody has, is told in the log.
func (c *Client) goOnLocked(op, name string, first instant, send func() error) {
	var last error
	gaveUp := func() {
		c.teller.line(slog.LevelError, "mortise: could not be confirmed and is given up; look whether the count is right", "op", op, "name", shorten(name), "err", last)
	}
	c.repeatLocked(name, first.add(stubbornly).mono, func() bool {
		last = send()
		if last != nil && !backend.FaultOf(last).Temporary {
			gaveUp()
		}
		return last == nil || !backend.FaultOf(last).Temporary
	}, gaveUp)
}

// waiting makes the request of one who waits, and the context that ends its wait.
func (n *counted[S]) waiting(ctx context.Context, verb, short string, try bool, opts []Option) (r *request, wait context.Context, cancel func(), err error) {
	r, err = (&request{name: n.topic.Name, verb: verb, short: short, family: n.topic.Kind, try: try}).with(opts)
	switch {
	case err != nil:
		return r, nil, nil, err
	case n.client.usable() != nil:
		return r, nil, nil, r.fail(errZero)
	case ctx == nil:
		return r, nil, nil, r.fail(fmt.Errorf("%w: the context is nil; use context.Background()", ErrInvalid))
	case r.lease > 0:
		return r, nil, nil, r.fail(fmt.Errorf("%w: WithLease does not apply: %s have no lease", ErrInvalid, n.things))
	case r.maxHold > 0:
		return r, nil, nil, r.fail(fmt.Errorf("%w: WithMaxHold does not apply: %s have no lease", ErrInvalid, n.things))
	}
	r.since, r.under = n.client.now(), ctx
	wait, cancel = ctx, func() {}
	if r.wait > 0 {
		wait, cancel = boundWait(ctx, r.wait)
	}
	return r, wait, cancel, nil
}

// answered tells the observer what became of one who waited.
func (c *Client) answered(r *request, err error) error {
	switch {
	case err != nil && c.observer.NotAcquired != nil:
		c.observer.NotAcquired(NotAcquiredEvent{Subject: r.subject(), Waited: c.since(r.since), Contended: r.contended, Err: err})
	case err == nil && c.observer.Acquired != nil:
		c.observer.Acquired(AcquiredEvent{Subject: r.subject(), Waited: c.since(r.since), Contended: r.contended})
	}
	return err
}
