package semaphore

import (
	"context"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/internal/engine"
)

// Counting is a number of permits without owners, shared by all clients of a store. It
// shares its record with Redisson's RSemaphore. Its methods may be called concurrently.
//
// A permit has no owner: any process may release a permit, and permits of a dead process are gone
// until AddPermits adds them. [Semaphore] has permits that expire. On the wire a counting semaphore
// is an integer, as a latch is; the use of a name for both is not noticed.
//
// Each change counts once, even if its request is sent again after a lost reply. For this the store
// keeps a key of some 150 bytes for two minutes for each change: a thousand changes a second take
// some 18 MB.
type Counting struct{ count counters.CountingSemaphore }

// NewCounting returns the counting semaphore of a name, without I/O: a bad name, or a backend
// without counting semaphores, is an error of its methods ([mortise.ErrInvalidName], [mortise.ErrInvalid]).
func NewCounting(c *mortise.Client, name string) *Counting {
	e := engineOf(c)
	return &Counting{counters.NewCountingSemaphore(e, engine.FullName(e, name))}
}

// made returns s, or for nil a zero semaphore, whose methods return [mortise.ErrInvalid].
func (s *Counting) made() *Counting {
	if s == nil {
		return new(Counting)
	}
	return s
}

// TrySetPermits gives the semaphore n permits, zero or more, if it is not set, and reports whether
// it did. A semaphore that is not set has no permits.
//
// Redisson: trySetPermits. Cost: one command.
func (s *Counting) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.made().count.TrySet(ctx, n)
}

// Acquire takes n permits, one or more, waiting while fewer are free: until ctx ends, or for as
// long as [mortise.WithWait] says. WithWait and [mortise.WithMaxWaiters] are the only options that apply. All or none
// are taken. A waiter of this client is served as soon as enough permits are free for it. Waiters for the same number
// are served in order; a waiter for fewer may overtake a waiter for more. So a steady stream of calls for few permits
// can keep a call for many waiting, as in Redisson. A release wakes clients in the order in which they began to wait. A
// call that ends without permits keeps none: a grant whose caller has left is released.
//
// Errors are those of Lock: [mortise.ErrNotAcquired] when WithWait ran out, [mortise.ErrUnavailable], ...
//
// Redisson: acquire(n), and tryAcquire(n, wait) with WithWait. Cost: one command if n are free.
// Otherwise another once the client has subscribed, another each time that a release wakes the
// client, for all its waiters together, and another for each waiter that then overtakes the first.
func (s *Counting) Acquire(ctx context.Context, n int, opts ...mortise.Option) error {
	return s.acquire(ctx, n, engine.Request{}, opts)
}

// TryAcquire takes n permits, one or more, or returns [mortise.ErrNotAcquired] if fewer are free. It does
// not queue behind waiters. The other errors are those of Lock.
//
// Redisson: tryAcquire(n). Cost: one command.
func (s *Counting) TryAcquire(ctx context.Context, n int) error {
	return s.acquire(ctx, n, engine.Request{Try: true}, nil)
}

func (s *Counting) acquire(ctx context.Context, n int, r engine.Request, opts []mortise.Option) error {
	s = s.made()
	r.Name, r.Family, r.Wants = s.count.Topic.Name, backend.KindCountingSemaphore, int32(n)
	if err := s.count.Made(); err != nil {
		return r.Fail(err)
	}
	r, err := s.count.With(with(r, opts))
	if err != nil {
		return err
	}
	return s.count.Acquire(ctx, n, r)
}

// Release releases n permits, one or more, whichever client acquired them, and wakes waiters. The
// store does not check that n permits are in use. A semaphore that is not set has n permits then.
//
// A call counts once, even if its request is sent again. A ctx that ends, even before the call,
// bounds how long Release waits for the answer; the request is sent all the same. The text of
// [mortise.ErrUnavailable] says whether the request is retried in the background, for a minute: then do not
// call again.
//
// Redisson: release(n). Cost: one command.
func (s *Counting) Release(ctx context.Context, n int) error {
	return s.made().count.Release(ctx, n)
}

// Available returns the number of free permits, which may be negative after AddPermits.
//
// Redisson: availablePermits. Cost: one command.
func (s *Counting) Available(ctx context.Context) (int, error) {
	return s.made().count.Available(ctx)
}

// AddPermits adds delta permits; a negative delta removes permits. Permits in use stay in use, so the
// number of free permits may be negative then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (s *Counting) AddPermits(ctx context.Context, delta int) error {
	return s.made().count.Add(ctx, delta)
}

// Drain takes all free permits, and returns their number. A negative number is returned, and
// becomes zero.
//
// Redisson: drainPermits. Cost: one command.
func (s *Counting) Drain(ctx context.Context) (int, error) { return s.made().count.Drain(ctx) }

// Delete removes the semaphore from the store, and reports whether there was one. Waiters go on
// waiting until there are permits again. If the semaphore is set again, a release of permits that
// were taken before adds to the new count, by Release or in the background for an Acquire whose
// caller has left: use another name for other permits.
//
// Redisson: delete. Cost: one command.
func (s *Counting) Delete(ctx context.Context) (bool, error) {
	return s.made().count.Delete(ctx)
}
