// Package latch has counts down to zero, for which calls in any process wait.
package latch

import (
	"context"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// Latch is a count down to zero; calls in any process wait for zero. It shares its record
// with Redisson's RCountDownLatch. Its methods may be called concurrently.
//
// The store removes a latch at zero, so a latch without a count is open. Set the count before a call
// waits.
//
// A count has no owner: if a worker dies, its share is not counted down. Bound the wait. On the wire
// a latch is an integer, as a counting semaphore is; the use of a name for both is not noticed.
type Latch struct{ count counters.CountDownLatch }

// New returns the latch of a name, without I/O: a bad name, or a backend without
// latches, is an error of its methods ([mortise.ErrInvalidName], [mortise.ErrInvalid]).
func New(c *mortise.Client, name string) *Latch {
	e := engineOf(c)
	return &Latch{counters.NewCountDownLatch(e, engine.FullName(e, name))}
}

// The way to the engine of a client.
var (
	engineOf = bridge.Engine.(func(*mortise.Client) *engine.Engine)
	with     = bridge.Request.(func(engine.Request, []mortise.Option) (engine.Request, error))
)

// made returns l, or for nil a zero latch, whose methods return [mortise.ErrInvalid].
func (l *Latch) made() *Latch {
	if l == nil {
		return new(Latch)
	}
	return l
}

// TrySet sets the count, if the latch is not set, and reports whether it did.
// n is between one and 1<<53.
//
// Redisson: trySetCount. Cost: one command.
func (l *Latch) TrySet(ctx context.Context, n int64) (bool, error) {
	return l.made().count.TrySet(ctx, n)
}

// CountDown subtracts one from the count. At zero all waiters return, unless TrySet sets the latch
// again before their clients read the count. On an open latch CountDown does nothing.
//
// A call counts once, even if its request is sent again after a lost reply. A ctx that ends, even
// before the call, bounds how long CountDown waits for the answer; the request is sent all the same.
// The text of [mortise.ErrUnavailable] says whether the request is retried in the background, for a minute:
// then do not call again.
//
// Redisson: countDown. Cost: one command, and a key of some 150 bytes for two minutes, to recognise
// the request.
func (l *Latch) CountDown(ctx context.Context) error { return l.made().count.CountDown(ctx) }

// Count returns the count; zero if the latch is open, or not set.
//
// Redisson: getCount. Cost: one command.
func (l *Latch) Count(ctx context.Context) (int64, error) { return l.made().count.Count(ctx) }

// Wait returns when the count is zero: at once for an open latch. It waits until ctx ends, or for
// as long as [mortise.WithWait] says; then it returns [mortise.ErrNotAcquired]. WithWait and
// [mortise.WithMaxWaiters] are the only options that apply. The other errors are those of Lock.
//
// Redisson: await. Cost: one command for an open latch. Otherwise another once the client has
// subscribed, and another when the latch opens, for all waiters of this client together.
func (l *Latch) Wait(ctx context.Context, opts ...mortise.Option) error {
	l = l.made()
	r := engine.Request{Name: l.count.Topic.Name, Family: backend.KindCountDownLatch}
	if err := l.count.Made(); err != nil {
		return r.Fail(err)
	}
	r, err := l.count.With(with(r, opts))
	if err != nil {
		return err
	}
	return l.count.Wait(ctx, r)
}

// Delete removes the latch, and reports whether it was set. Waiters return, because the count is
// zero then; Redisson's waiters go on waiting. If the latch is set again, a CountDown that is still
// retried in the background counts down the new count.
//
// Redisson: delete. Cost: one command.
func (l *Latch) Delete(ctx context.Context) (bool, error) { return l.made().count.Delete(ctx) }
