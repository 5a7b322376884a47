package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// CountDownLatch is a count that goes down to zero, and calls that wait for that, in any process. It shares its
// record with Redisson's RCountDownLatch.
// Its methods may be called concurrently.
//
// A latch at zero is gone from the store, so one that was never set is open. Set the
// count before a call waits for it.
//
// A count has no owner: that of a worker that died is not counted down by itself. Bound
// the wait. On the wire a latch is an integer, as a counting semaphore is; using one name
// for both is not noticed.
type CountDownLatch struct{ count counters.CountDownLatch }

// CountDownLatch returns the latch of a name. It does no I/O: a bad name, or a backend
// without latches, shows in its methods ([ErrInvalidName], [ErrInvalid]).
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

// CountDown takes one off the count; at zero all waiters go on. On a latch that is
// open, or not set, it does nothing.
//
// It counts once, however often it is sent: a reply that was lost is asked for again.
// A ctx that ends, even beforehand, bounds how long CountDown waits for the answer; it
// is sent all the same. On [ErrUnavailable] the error says whether it is repeated in
// the background, for a minute: then do not call again.
//
// Redisson: countDown. Cost: one command, and a key of some 150 bytes that the store
// keeps for two minutes to recognise the request.
func (l *CountDownLatch) CountDown(ctx context.Context) error { return l.count.CountDown(ctx) }

// Count reads the count; zero if the latch is open, or not set.
//
// Redisson: getCount. Cost: one command.
func (l *CountDownLatch) Count(ctx context.Context) (int64, error) { return l.count.Count(ctx) }

// Wait returns when the count is zero: at once where the latch is open, or was not
// set. It waits until ctx ends, or for as long as [WithWait] says, the only option that
// applies; then it returns [ErrNotAcquired]. The other errors are those of Lock.
//
// Redisson: await. Cost: one command if it is open. Otherwise one more when the client
// listens, and one when it opened, for all waiters of this client together.
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
