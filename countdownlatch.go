package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// CountDownLatch is a count down to zero, and calls that wait for zero, in any process. It shares
// its record with Redisson's RCountDownLatch. Its methods may be called concurrently.
//
// A latch at zero is gone from the store, so a latch without a count is open. Set the count before
// a call waits.
//
// A count has no owner: the part of a dead worker is not counted down by itself. Bound the wait. On
// the wire a latch is an integer, as a counting semaphore is; a name in use for both is not
// noticed.
type CountDownLatch struct{ count counters.CountDownLatch }

// CountDownLatch returns the latch of a name, without I/O: a bad name, or a backend without
// latches, is an error of its methods ([ErrInvalidName], [ErrInvalid]).
func (c *Client) CountDownLatch(name string) *CountDownLatch {
	return &CountDownLatch{counters.NewCountDownLatch(c.inner(), engine.FullName(c.inner(), name))}
}

// TrySet sets the count, if the latch is not set, and reports whether it did.
// n is between one and 1<<53.
//
// Redisson: trySetCount. Cost: one command.
func (l *CountDownLatch) TrySet(ctx context.Context, n int64) (bool, error) {
	return l.count.TrySet(ctx, n)
}

// CountDown takes one off the count; at zero all waiters go on, unless TrySet sets the latch again
// before they look. On an open latch it does nothing.
//
// A call counts once, however often its request is sent: a lost reply is asked for again. A ctx
// that ends, even beforehand, bounds how long CountDown waits for the answer; the request is sent
// all the same. The text of [ErrUnavailable] says whether the request is retried in the background,
// for a minute: then do not call again.
//
// Redisson: countDown. Cost: one command, and a key of some 150 bytes for two minutes, to recognise
// the request.
func (l *CountDownLatch) CountDown(ctx context.Context) error { return l.count.CountDown(ctx) }

// Count reads the count; zero if the latch is open, or not set.
//
// Redisson: getCount. Cost: one command.
func (l *CountDownLatch) Count(ctx context.Context) (int64, error) { return l.count.Count(ctx) }

// Wait returns when the count is zero: at once for an open latch. It waits until ctx ends, or for
// as long as [WithWait] says, the only option that applies; then it returns [ErrNotAcquired]. The
// other errors are those of Lock.
//
// Redisson: await. Cost: one command for an open latch. Otherwise another when the client listens,
// and another when the latch opened, for all waiters of this client together.
func (l *CountDownLatch) Wait(ctx context.Context, opts ...Option) error {
	r, err := l.count.With(with(engine.Request{Name: l.count.Topic.Name, Family: backend.KindCountDownLatch}, opts))
	if err != nil {
		return err
	}
	return l.count.Wait(ctx, r)
}

// Delete removes the latch, and reports whether it was set. Waiters go on, as the
// count is zero then; Redisson's go on waiting.
//
// Redisson: delete. Cost: one command.
func (l *CountDownLatch) Delete(ctx context.Context) (bool, error) { return l.count.Delete(ctx) }
