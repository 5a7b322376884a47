package mortise

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// Semaphore is a number of permits that a fleet shares. It shares its record with
// Redisson's RSemaphore. Its methods may be called concurrently.
//
// Nobody owns a permit: any process may release what another acquired, and those of
// a process that died are gone until somebody adds them. Where that matters use
// [Permits], which expire. On the wire a semaphore is an integer, as a latch is; using one
// name for both is not noticed.
//
// Each change counts once, however often it is sent: a reply that was lost is asked
// for again. For that the store keeps a key of some 150 bytes for two minutes for each
// change that was made, so a thousand a second take some 18 MB.
type Semaphore struct {
	counted[backend.SemaphoreSession]
}

// Semaphore returns the semaphore of a name. It does no I/O: a bad name, or a backend
// without semaphores, shows in its methods ([ErrBadName], [ErrInvalid]).
func (c *Client) Semaphore(name string) *Semaphore {
	return &Semaphore{counted[backend.SemaphoreSession]{c, backend.Topic{Kind: backend.KindSemaphore, Name: name}, "semaphores"}}
}

// TrySetPermits gives the semaphore n permits, zero or more, if it is not set, and
// reports whether it did. A semaphore that is not set has none.
//
// Redisson: trySetPermits. Cost: one command.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return trySetPermits(&s.counted, ctx, n)
}

func trySetPermits[S permitSetter](n *counted[S], ctx context.Context, permits int) (bool, error) {
	if permits < 0 || permits > backend.MaxCount {
		return false, n.fail("setpermits", fmt.Errorf("%w: %d permits; between 0 and %d", ErrInvalid, permits, backend.MaxCount))
	}
	set, q := new(bool), n.request(int64(permits))
	err := n.manage(ctx, "setpermits", func(s S) (err error) {
		*set, err = s.SetCount(n.client.base, q)
		return err
	})
	return err == nil && *set, err
}

// permitSetter is what semaphores of either kind can do.
type permitSetter interface {
	SetCount(ctx context.Context, r backend.CountRequest) (bool, error)
	AddCount(ctx context.Context, r backend.CountRequest) (int64, error)
	Count(ctx context.Context, t backend.Topic) (int64, error)
}

// Acquire takes n permits, one or more, waiting while there are fewer: until ctx ends,
// or for as long as [WithWait] says, the only option that applies. All or none are taken.
// A waiter of this client is served as soon as there are as many as it wants. Waiters that want
// the same number are served in the order in which they came; one that wants fewer may overtake
// one that wants more. So a steady stream of calls for few permits can keep a call for many
// waiting, as in Redisson. Between clients there is no order. A call that ends without permits leaves none behind: what it may have taken is
// given back.
//
// Errors are those of Lock: [ErrNotAcquired] when WithWait ran out, [ErrUnavailable], ...
//
// Redisson: acquire(n), and tryAcquire(n, wait) with WithWait. Cost: one command if
// they are there. Otherwise one more when the client listens, and one for each message
// of a release, for all who wait in this client together, and one for each waiter that then overtakes the first.
func (s *Semaphore) Acquire(ctx context.Context, n int, opts ...Option) error {
	return s.acquire(ctx, "acquire", n, false, opts)
}

// TryAcquire takes n permits, one or more, or returns [ErrNotAcquired] if there are
// fewer. It does not wait its turn behind those who wait. The other errors are those of Lock.
//
// Redisson: tryAcquire(n). Cost: one command.
func (s *Semaphore) TryAcquire(ctx context.Context, n int) error {
	return s.acquire(ctx, "tryacquire", n, true, nil)
}

func (s *Semaphore) acquire(ctx context.Context, verb string, n int, try bool, opts []Option) error {
	r, wait, cancel, err := s.waiting(ctx, verb, fmt.Sprintf("fewer than %d permits were free", n), try, opts)
	if err != nil {
		return err
	}
	defer cancel()
	if n < 1 || n > backend.MaxCount {
		return r.fail(errPermits(n))
	}
	session, err := capable[backend.SemaphoreSession](s.client, s.things)
	if err != nil {
		return r.fail(err)
	}
	if try {
		return s.client.answered(r, s.tryOnce(wait, session, r, n))
	}
	c := s.client
	c.begin() // Shutdown waits until what it does not need is being given back
	defer c.end()
	r.waiter.permits = int64(n)
	err = c.stand(wait, s.topic, r, func() (answer, error) { return s.ask(wait, session, n) })
	c.mu.Lock()
	if err != nil && r.waiter.served {
		c.giveBackLocked(session, *r.waiter.taken)
	}
	c.mu.Unlock()
	return c.answered(r, err)
}

func errPermits(n int) error {
	return fmt.Errorf("%w: %d permits; between 1 and %d", ErrInvalid, n, backend.MaxCount)
}

func (s *Semaphore) tryOnce(ctx context.Context, session backend.SemaphoreSession, r *request, n int) error {
	c := s.client
	c.mu.Lock()
	shut := c.shut
	c.mu.Unlock()
	if shut {
		return r.fail(ErrClosed)
	}
	a, err := s.ask(ctx, session, n)
	switch {
	case err != nil:
		return r.fail(err)
	case a.failure != nil:
		return r.fail(c.explain(a.failure))
	case !a.got:
		return r.refused(0)
	}
	return nil
}

// taking is what asking for permits came to.
type taking struct {
	backend.TakeReply
	late bool // a request whose outcome is unknown may have taken them, or may yet
	err  error
}

// ask asks for n permits once, and settles what becomes of it.
func (s *Semaphore) ask(wait context.Context, session backend.SemaphoreSession, n int) (answer, error) {
	c, q, t := s.client, s.request(int64(n)), new(taking)
	c.begin()
	defer c.end()
	err := await(c, wait, func() error {
		*t = c.takeCount(session, q)
		if !t.Granted && t.err == nil {
			s.offer(session, t.Available)
		}
		return nil
	}, func() { c.giveBack(session, q, t) })
	switch {
	case err != nil:
		return answer{}, err
	case !t.Granted:
		c.giveBack(session, q, t)
		return answer{left: -1, failure: t.err}, nil
	case wait.Err() != nil:
		c.giveBack(session, q, t)
		return answer{}, gone(wait)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		c.giveBackLocked(session, q)
		return answer{failure: errClosing}, nil
	}
	return answer{got: true, more: t.Available > 0}, nil
}

// offer takes what there is, which is not enough for the head of the queue, for the first waiter that wants no more than that,
// and goes on with what is left. Nothing is asked where there is no such waiter.
func (s *Semaphore) offer(session backend.SemaphoreSession, there int64) {
	c := s.client
	for {
		c.mu.Lock()
		q := c.queues[s.topic]
		w := q.taker(there)
		c.mu.Unlock()
		if w == nil {
			return
		}
		r := s.request(w.permits)
		t := c.takeCount(session, r)
		c.mu.Lock()
		switch {
		case !t.Granted:
		case w.left || w.served || q.first() == w: // it has left, has them, or asks for itself
			c.giveBackLocked(session, r)
		default:
			w.taken, w.served = &r, true
			select {
			case w.ready <- struct{}{}:
			default:
			}
		}
		if t.err != nil {
			q.stir() // the head asks again: it knows what to do about a store that fails
		}
		c.mu.Unlock()
		if t.err != nil {
			c.giveBack(session, r, &t)
			return
		}
		there = t.Available
	}
}

// taker is the first waiter behind the head that wants no more permits than there are; nil if there is none.
func (q *queue) taker(there int64) *waiter {
	if q == nil || q.first() == nil {
		return nil
	}
	q.free = there
	if there <= 0 {
		return nil
	}
	for w := q.head.next; w != nil; w = w.next {
		if !w.served && w.permits > 0 && w.permits <= there {
			return w
		}
	}
	return nil
}

// takeCount asks for permits, again if it fails for a reason that may pass.
func (c *Client) takeCount(session backend.SemaphoreSession, q backend.CountRequest) (t taking) {
	t.err = c.insist(func() (err error) {
		t.TakeReply, err = session.TakeCount(c.base, q)
		if err != nil && backend.FaultOf(err).MayHaveRun {
			t.late, q.Again = true, true
		}
		return err
	})
	return t
}

// giveBack gives back, in the background, what an acquisition took, or may yet take,
// that nobody wants.
func (c *Client) giveBack(session backend.SemaphoreSession, q backend.CountRequest, t *taking) {
	if t.Granted || t.late {
		c.mu.Lock()
		c.giveBackLocked(session, q)
		c.mu.Unlock()
	}
}

func (c *Client) giveBackLocked(session backend.SemaphoreSession, q backend.CountRequest) {
	c.goOnLocked("acquire", q.Topic.Name, c.now(), func() error { return session.CancelTake(c.base, q) })
}

// Release gives n permits back, one or more, whoever acquired them, and wakes those
// who wait. Nothing checks that so many were acquired. On a semaphore that is not set it sets n.
//
// It counts once, however often it is sent. A ctx that ends, even beforehand, bounds how
// long Release waits for the answer; it is sent all the same. On [ErrUnavailable]
// the error says whether it is repeated in the background, for a minute: then do not
// call again.
//
// Redisson: release(n). Cost: one command.
func (s *Semaphore) Release(ctx context.Context, n int) error {
	if n < 1 || n > backend.MaxCount {
		return s.fail("release", errPermits(n))
	}
	q := s.request(int64(n))
	return s.finish(ctx, "release", func(session backend.SemaphoreSession) error {
		_, err := session.AddCount(s.client.base, q)
		return err
	})
}

// Available reads how many permits are free. It may be negative after AddPermits.
//
// Redisson: availablePermits. Cost: one command.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	return available(&s.counted, ctx)
}

func available[S permitSetter](n *counted[S], ctx context.Context) (int, error) {
	free := new(int64)
	err := n.manage(ctx, "available", func(s S) (err error) {
		*free, err = s.Count(n.client.base, n.topic)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(*free), nil
}

// AddPermits makes the semaphore larger by delta, or smaller where it is negative:
// permits that are out are not called back, so fewer than none may be free then. delta is not zero.
//
// Redisson: addPermits. Cost: one command.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) error {
	return addPermits(&s.counted, ctx, delta)
}

func addPermits[S permitSetter](n *counted[S], ctx context.Context, delta int) error {
	if delta == 0 || delta > backend.MaxCount || delta < -backend.MaxCount {
		return n.fail("addpermits", fmt.Errorf("%w: to add %d permits; at most %d, and not 0", ErrInvalid, delta, backend.MaxCount))
	}
	q := n.request(int64(delta))
	return n.manage(ctx, "addpermits", func(s S) error {
		_, err := s.AddCount(n.client.base, q)
		return err
	})
}

// Drain takes all permits that are free, and returns how many those were. Where fewer
// than none were, it returns that and leaves none.
//
// Redisson: drainPermits. Cost: one command.
func (s *Semaphore) Drain(ctx context.Context) (int, error) {
	took, q := new(int64), s.request(0)
	err := s.manage(ctx, "drain", func(session backend.SemaphoreSession) (err error) {
		*took, err = session.DrainCount(s.client.base, q)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(*took), nil
}
