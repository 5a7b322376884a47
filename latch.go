package mortise

import (
	"context"
	"errors"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// Latch is a count that goes down to zero, and those who wait for that: the
// CountDownLatch of a fleet. It shares its record with Redisson's RCountDownLatch.
// Its methods may be called concurrently.
//
// A latch at zero is gone from the store, so one that was never set is open. Set the
// count before anybody waits for it.
//
// Nobody owns a count: that of a worker who died is not counted down by itself. Bound
// the wait. On the wire a latch is an integer, as a semaphore is; using one name
// for both is not noticed.
type Latch struct {
	counted[backend.LatchSession]
}

// Latch returns the latch of a name. It does no I/O: a bad name, or a backend
// without latches, shows in its methods ([ErrBadName], [ErrInvalid]).
func (c *Client) Latch(name string) *Latch {
	return &Latch{counted[backend.LatchSession]{c, backend.Topic{Kind: backend.KindLatch, Name: name}, "latches"}}
}

// TrySet sets the count, if the latch is not set, and reports whether it did.
// n is between one and 1<<53.
//
// Redisson: trySetCount. Cost: one command.
func (l *Latch) TrySet(ctx context.Context, n int64) (bool, error) {
	if n < 1 || n > backend.MaxLatch {
		return false, l.fail("set", fmt.Errorf("%w: a count of %d; it begins between 1 and %d", ErrInvalid, n, int64(backend.MaxLatch)))
	}
	set, q := new(bool), l.request(n)
	err := l.manage(ctx, "set", func(s backend.LatchSession) (err error) {
		*set, err = s.SetCount(l.client.base, q)
		return err
	})
	return err == nil && *set, err
}

// CountDown takes one off the count; at zero all who wait go on. On a latch that is
// open, or not set, it does nothing.
//
// It counts once, however often it is sent: a reply that was lost is asked for again.
// A ctx that ends, even beforehand, bounds how long CountDown waits for the answer; it
// is sent all the same. On [ErrUnavailable] the error says whether it is repeated in
// the background, for a minute: then do not call again.
//
// Redisson: countDown. Cost: one command, and a key of some 150 bytes that the store
// keeps for two minutes to recognise the request.
func (l *Latch) CountDown(ctx context.Context) error {
	q := l.request(1)
	return l.finish(ctx, "countdown", func(s backend.LatchSession) error {
		_, err := s.CountDown(l.client.base, q)
		return err
	})
}

// Count reads the count; zero if the latch is open, or not set.
//
// Redisson: getCount. Cost: one command.
func (l *Latch) Count(ctx context.Context) (int64, error) {
	left := new(int64)
	err := l.manage(ctx, "count", func(s backend.LatchSession) (err error) {
		*left, err = s.Count(l.client.base, l.topic)
		return err
	})
	if err != nil {
		return 0, err
	}
	return *left, nil
}

// Wait returns when the count is zero: at once where the latch is open, or was not
// set. It waits until ctx ends, or for as long as [WithWait] says, the only option that
// applies; then it returns [ErrNotAcquired]. The other errors are those of Lock.
//
// Redisson: await. Cost: one command if it is open. Otherwise one more when the client
// listens, and one when it opened, for all who wait in this client together.
func (l *Latch) Wait(ctx context.Context, opts ...Option) error {
	r, wait, cancel, err := l.waiting(ctx, "wait", "the count was not zero", false, opts)
	if err != nil {
		return err
	}
	defer cancel()
	s, err := capable[backend.LatchSession](l.client, l.things)
	if err != nil {
		return r.fail(err)
	}
	return l.client.answered(r, l.client.stand(wait, l.topic, r, func() (answer, error) { return l.ask(wait, s) }))
}

// ask reads the count for all who wait by now.
func (l *Latch) ask(wait context.Context, s backend.LatchSession) (answer, error) {
	c := l.client
	c.begin()
	defer c.end()
	c.mu.Lock()
	var seat uint64
	if q := c.queues[l.topic]; q != nil {
		seat = q.seats
	}
	c.mu.Unlock()
	left := new(int64)
	err := await(c, wait, func() (err error) {
		*left, err = s.Count(c.base, l.topic)
		return err
	}, nil)
	var caller *callerGone
	switch {
	case errors.As(err, &caller):
		return answer{}, caller
	case err != nil:
		return answer{failure: err}, nil
	case *left > 0:
		return answer{left: -1}, nil
	}
	c.mu.Lock()
	if q := c.queues[l.topic]; q != nil {
		q.serve(seat)
	}
	c.mu.Unlock()
	return answer{got: true, more: true}, nil // who came later asks
}

// Delete removes the latch, and reports whether it was set. Those who wait go on, as the
// count is zero then; Redisson's go on waiting.
//
// Redisson: delete. Cost: one command.
func (l *Latch) Delete(ctx context.Context) (bool, error) {
	deleted, q := new(bool), l.request(0)
	err := l.manage(ctx, "delete", func(s backend.LatchSession) (err error) {
		*deleted, err = s.DeleteCount(l.client.base, q)
		return err
	})
	return err == nil && *deleted, err
}
