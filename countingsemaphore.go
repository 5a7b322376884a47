package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// CountingSemaphore is a number of permits without owners, shared by all clients of a store. It
// shares its record with Redisson's RSemaphore. Its methods may be called concurrently.
//
// A permit has no owner: any process may release a permit, and permits of a dead process are gone
// until AddPermits adds them. [Semaphore] has permits that expire. On the wire a counting semaphore
// is an integer, as a latch is; a name in use for both is not noticed.
//
// Each change counts once, however often its request is sent: a lost reply is asked for again. For
// this the store keeps a key of some 150 bytes for two minutes for each change: a thousand changes
// a second take some 18 MB.
type CountingSemaphore struct{ count counters.CountingSemaphore }

// CountingSemaphore returns the counting semaphore of a name, without I/O: a bad name, or a backend
// without counting semaphores, is an error of its methods ([ErrInvalidName], [ErrInvalid]).
func (c *Client) CountingSemaphore(name string) *CountingSemaphore {
	return &CountingSemaphore{counters.NewCountingSemaphore(c.inner(), engine.FullName(c.inner(), name))}
}

// TrySetPermits gives the semaphore n permits, zero or more, if it is not set, and reports whether
// it did. A semaphore without a number has no permits.
//
// Redisson: trySetPermits. Cost: one command.
func (s *CountingSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.count.TrySet(ctx, n)
}

// Acquire takes n permits, one or more, waiting while fewer are free: until ctx ends, or for as
// long as [WithWait] says, the only option that applies. All or none are taken. A waiter of this
// client is served as soon as enough permits are free for it. Waiters for the same number are
// served in order; a waiter for fewer may overtake a waiter for more. So a steady stream of calls
// for few permits can keep a call for many waiting, as in Redisson. Between clients there is no
// order. A call that ends without permits leaves none behind: an abandoned grant is released.
//
// Errors are those of Lock: [ErrNotAcquired] when WithWait ran out, [ErrUnavailable], ...
//
// Redisson: acquire(n), and tryAcquire(n, wait) with WithWait. Cost: one command if n are free.
// Otherwise another when the client listens, another for each message of a release, for all waiters
// of this client together, and another for each waiter that then overtakes the first.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int, opts ...Option) error {
	return s.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, one or more, or returns [ErrNotAcquired] if fewer are free. It does
// not queue behind waiters. The other errors are those of Lock.
//
// Redisson: tryAcquire(n). Cost: one command.
func (s *CountingSemaphore) TryAcquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, engine.Request{Try: true}, nil)
}

func (s *CountingSemaphore) acquire(ctx context.Context, n int, r engine.Request, opts []Option) error {
	r.Name, r.Family, r.Wants = s.count.Topic.Name, backend.KindCountingSemaphore, int64(n)
	r, err := s.count.With(with(r, opts))
	if err != nil {
		return err
	}
	return s.count.Acquire(ctx, n, r)
}

// Release releases n permits, one or more, whichever client acquired them, and wakes waiters. The
// number is not checked against acquisitions. A semaphore without a number gets n.
//
// A call counts once, however often its request is sent. A ctx that ends, even beforehand, bounds
// how long Release waits for the answer; the request is sent all the same. The text of
// [ErrUnavailable] says whether the request is retried in the background, for a minute: then do not
// call again.
//
// Redisson: release(n). Cost: one command.
func (s *CountingSemaphore) Release(ctx context.Context, n int) error { return s.count.Release(ctx, n) }

// Available reads how many permits are free; a negative number is possible after AddPermits.
//
// Redisson: availablePermits. Cost: one command.
func (s *CountingSemaphore) Available(ctx context.Context) (int, error) {
	return s.count.Available(ctx)
}

// AddPermits makes the semaphore larger by delta, or smaller with a negative delta: permits in use
// are not called back, so the number of free permits may be negative then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (s *CountingSemaphore) AddPermits(ctx context.Context, delta int) error {
	return s.count.Add(ctx, delta)
}

// Drain takes all free permits, and returns their number. A negative number is returned, and
// becomes zero.
//
// Redisson: drainPermits. Cost: one command.
func (s *CountingSemaphore) Drain(ctx context.Context) (int, error) { return s.count.Drain(ctx) }

// Delete removes the semaphore from the store, and reports whether there was one. Waiters go on
// waiting until permits are made again.
//
// Redisson: delete. Cost: one command.
func (s *CountingSemaphore) Delete(ctx context.Context) (bool, error) { return s.count.Delete(ctx) }
