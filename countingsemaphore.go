package mortise

import (
	"context"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// CountingSemaphore is a number of permits without owners that all clients of a store share. It shares its
// record with Redisson's RSemaphore. Its methods may be called concurrently.
//
// A permit has no owner: any process may release what another acquired, and those of
// a process that died are gone until they are added again. Where that matters use
// [Semaphore], whose permits expire. On the wire a counting semaphore is an integer, as a latch is; using
// one name for both is not noticed.
//
// Each change counts once, however often it is sent: a reply that was lost is asked
// for again. For that the store keeps a key of some 150 bytes for two minutes for each
// change that was made, so a thousand a second take some 18 MB.
type CountingSemaphore struct{ count counters.CountingSemaphore }

// CountingSemaphore returns the counting semaphore of a name. It does no I/O: a bad name, or a backend
// without counting semaphores, shows in its methods ([ErrInvalidName], [ErrInvalid]).
func (c *Client) CountingSemaphore(name string) *CountingSemaphore {
	return &CountingSemaphore{counters.NewCountingSemaphore(c.inner(), engine.FullName(c.inner(), name))}
}

// TrySetPermits gives the semaphore n permits, zero or more, if it is not set, and
// reports whether it did. A semaphore that is not set has none.
//
// Redisson: trySetPermits. Cost: one command.
func (s *CountingSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.count.TrySet(ctx, n)
}

// Acquire takes n permits, one or more, waiting while there are fewer: until ctx ends, or for as long as
// [WithWait] says, the only option that applies. All or none are taken. A waiter of this client is served as
// soon as there are as many as it wants. Waiters that want the same number are served in the order in which they
// came; one that wants fewer may overtake one that wants more. So a steady stream of calls for few permits can
// keep a call for many waiting, as in Redisson. Between clients there is no order. A call that ends without
// permits leaves none behind: what it may have taken is given back.
//
// Errors are those of Lock: [ErrNotAcquired] when WithWait ran out, [ErrUnavailable], ...
//
// Redisson: acquire(n), and tryAcquire(n, wait) with WithWait. Cost: one command if
// they are there. Otherwise one more when the client listens, and one for each message
// of a release, for all waiters of this client together, and one for each waiter that then overtakes the first.
func (s *CountingSemaphore) Acquire(ctx context.Context, n int, opts ...Option) error {
	return s.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, one or more, or returns [ErrNotAcquired] if there are
// fewer. It does not wait its turn behind waiters. The other errors are those of Lock.
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

// Release gives n permits back, one or more, whichever client acquired them, and wakes waiters.
// Nothing checks that so many were acquired. On a semaphore that is not set it sets n.
//
// It counts once, however often it is sent. A ctx that ends, even beforehand, bounds how
// long Release waits for the answer; it is sent all the same. On [ErrUnavailable]
// the error says whether it is repeated in the background, for a minute: then do not
// call again.
//
// Redisson: release(n). Cost: one command.
func (s *CountingSemaphore) Release(ctx context.Context, n int) error { return s.count.Release(ctx, n) }

// Available reads how many permits are free. It may be negative after AddPermits.
//
// Redisson: availablePermits. Cost: one command.
func (s *CountingSemaphore) Available(ctx context.Context) (int, error) {
	return s.count.Available(ctx)
}

// AddPermits makes the semaphore larger by delta, or smaller where it is negative:
// permits that are out are not called back, so fewer than none may be free then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (s *CountingSemaphore) AddPermits(ctx context.Context, delta int) error {
	return s.count.Add(ctx, delta)
}

// Drain takes all permits that are free, and returns how many those were. Where fewer
// than none were, it returns that and leaves none.
//
// Redisson: drainPermits. Cost: one command.
func (s *CountingSemaphore) Drain(ctx context.Context) (int, error) { return s.count.Drain(ctx) }

// Delete removes the semaphore from the store, and reports whether there was one. Then it is not set. Waiters go on
// waiting until permits are made again.
//
// Redisson: delete. Cost: one command.
func (s *CountingSemaphore) Delete(ctx context.Context) (bool, error) { return s.count.Delete(ctx) }
