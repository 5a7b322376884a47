package clienttest

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// crowd is a kind of call that waits, for the tests of WithMaxWaiters.
type crowd struct {
	kind string
	// occupy makes calls of wait have to wait.
	occupy func(t *testing.T, other *Client)
	wait   func(ctx context.Context, c *Client, opts ...Option) error
	// asks is the number of commands of a call that is refused, and tries that of the other refusals of all calls of
	// which the observer is told.
	asks, tries int32
}

// crowds are all kinds of calls that wait in the local queue of a client.
func crowds() (all []crowd) {
	taken := func(t *testing.T, other *Client) { must(t, errorOf(other.Lock(t.Context(), "x"))) }
	kind := func(name string, opts ...Option) {
		all = append(all, crowd{name, taken, func(ctx context.Context, c *Client, opts2 ...Option) error {
			l := c.With(opts...)
			return errorOf(l.Lock(ctx, "x", opts2...))
		}, 0, 0})
	}
	kind("plain")
	kind("fenced", Fenced())
	kind("non-reentrant", NonReentrant())
	kind("polling", Polling(time.Second))
	kind("polling in the queue", Polling(10*time.Millisecond))
	kind("fair", Fair())
	kind("fair and fenced", Fair(), Fenced())
	written := func(t *testing.T, other *Client) { must(t, errorOf(other.RW().Write.Lock(t.Context(), "x"))) }
	return append(all,
		crowd{"read", written, func(ctx context.Context, c *Client, opts ...Option) error {
			return errorOf(c.RW().Read.Lock(ctx, "x", opts...))
		}, 0, 0},
		crowd{"write", written, func(ctx context.Context, c *Client, opts ...Option) error {
			return errorOf(c.RW().Write.Lock(ctx, "x", opts...))
		}, 0, 0},
		crowd{"semaphore", func(t *testing.T, other *Client) {
			must(t, errorOf(semaphore.New(other, "x", 2).Acquire(t.Context(), 2)))
		}, func(ctx context.Context, c *Client, opts ...Option) error {
			return errorOf(semaphore.New(c, "x", 0).Acquire(ctx, 1, opts...))
		}, 0, 0},
		crowd{"counting semaphore", func(*testing.T, *Client) {},
			func(ctx context.Context, c *Client, opts ...Option) error {
				return semaphore.NewCounting(c, "x").Acquire(ctx, 1, opts...)
			}, 0, 0},
		crowd{"latch", func(t *testing.T, other *Client) {
			must(t, errorOf(latch.New(other, "x").TrySet(t.Context(), 1)))
		}, func(ctx context.Context, c *Client, opts ...Option) error {
			return latch.New(c, "x").Wait(ctx, opts...)
		}, 0, 0},
		crowd{"LockAll", taken, func(ctx context.Context, c *Client, opts ...Option) error {
			return errorOf(c.LockAll(ctx, []string{"x", "y"}, opts...))
		}, 1, 0},
		crowd{"LockAll of another Locker", taken, func(ctx context.Context, c *Client, opts ...Option) error {
			return errorOf(Parts{}.And(struct{ Locker }{c}, "x", "y").Lock(ctx, opts...))
		}, 1, 4},
	)
}

// A call behind as many waiters as WithMaxWaiters says is refused at once, and sends nothing. A call behind fewer
// waits. Waiters that have left do not count.
func TestMaxWaitersRefusesACallBehindAsManyWaiters(t *testing.T) {
	for _, x := range crowds() {
		t.Run(x.kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent, waiting, crowded, others atomic.Int32
				b := spyOn(memory.New(), "ReadWrite Fair Semaphores CountDownLatches CountingSemaphores Queue", hooks{
					anyCall: func(c *call) error { sent.Add(1); return c.run(c.ctx) },
				})
				c := on(t, b, WithObserver(Observer{
					Waiting: func(Event) { waiting.Add(1) },
					NotAcquired: func(e Event) {
						if e.Crowded {
							crowded.Add(1)
						} else {
							others.Add(1)
						}
					},
				}))
				x.occupy(t, on(t, b.Store))
				ctx, leave := context.WithCancel(t.Context())
				all := make([]<-chan error, 3)
				for i := range all {
					all[i] = later(func() error { return x.wait(ctx, c, WithMaxWaiters(i+1)) })
					synctest.Wait()
				}
				if waiting.Load() != 3 {
					t.Fatalf("%d of 3 calls wait", waiting.Load())
				}
				before, start := sent.Load(), time.Now()
				err := x.wait(t.Context(), c, WithMaxWaiters(3))
				wants(t, err, ErrNotAcquired)
				if n, d := sent.Load()-before, time.Since(start); n != x.asks || d != 0 {
					t.Errorf("refused after %d commands and %v, want %d and at once", n, d, x.asks)
				}
				text := err.Error()
				if !strings.Contains(text, "3 calls of this process wait already, and WithMaxWaiters(3)") ||
					strings.Contains(text, "held by another owner") {
					t.Errorf("the text is %q", text)
				}
				if n, m := crowded.Load(), others.Load(); n != 1 || m != x.tries {
					t.Errorf("the observer was told of %d calls that WithMaxWaiters refused and %d others; want 1 and %d",
						n, m, x.tries)
				}
				fourth := later(func() error { return x.wait(ctx, c, WithMaxWaiters(4)) })
				synctest.Wait()
				leave()
				for _, w := range append(all, fourth) {
					wants(t, <-w, context.Canceled)
				}
				wants(t, x.wait(t.Context(), c, WithMaxWaiters(1), WithWait(time.Minute)), ErrNotAcquired)
				if n := crowded.Load(); n != 1 {
					t.Errorf("a call without others before it was refused: %d calls were", n)
				}
			})
		})
	}
}

// The refusal says what is left of the holder's lease, for Retry-After.
func TestMaxWaitersSaysWhatIsLeftOfTheHoldersLease(t *testing.T) {
	for _, fair := range []bool{false, true} {
		bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
			c := open()
			l := Locker(c)
			if fair {
				l = c.With(Fair())
			}
			must(t, errorOf(l.Lock(t.Context(), "x", WithLease(time.Minute))))
			queued(t.Context(), l, "x")
			err := errorOf(l.Lock(t.Context(), "x", WithMaxWaiters(1)))
			var x *Error
			if !errors.As(err, &x) || x.Remaining < 55*time.Second || x.Remaining > time.Minute {
				t.Errorf("fair %v: got %v, want a minute of the lease left", fair, err)
			}
		})
	}
}

// Holders do not count, a call that enters again is not refused, and a burst for a free lock has no more than n
// waiters.
func TestMaxWaitersCountsOnlyCallsThatWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := on(t, far(s))
		lease := need(c.Lock(t.Context(), "x", WithMaxWaiters(1)))(t)
		w := queued(t.Context(), c, "x", WithMaxWaiters(1))
		must(t, thenUnlock(c.Lock(lease.Context(), "x", WithMaxWaiters(1))))
		must(t, lease.Unlock(t.Context()))
		must(t, w.lease(t).Unlock(t.Context()))

		const n, calls = 5, 40
		var refused, got atomic.Int32
		for range calls {
			go func() {
				lease, err := c.Lock(t.Context(), "y", WithMaxWaiters(n))
				if errors.Is(err, ErrNotAcquired) {
					refused.Add(1)
					return
				}
				noError(t, err)
				got.Add(1)
				noError(t, lease.Unlock(t.Context()))
			}()
		}
		time.Sleep(time.Minute)
		if refused.Load() != calls-n || got.Load() != n {
			t.Errorf("of %d calls at once %d got the lock and %d were refused, want %d and %d",
				calls, got.Load(), refused.Load(), n, calls-n)
		}
	})
}

// A Quorum counts the calls that wait in it, in whichever store they do.
func TestMaxWaitersOfAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mine, others []*Client
		for range 3 {
			s := memory.New()
			mine, others = append(mine, on(t, s, quorum.WithRejoinDelay(0))), append(others, on(t, s, quorum.WithRejoinDelay(0)))
		}
		q, other := need(quorum.New(mine...))(t), need(quorum.New(others...))(t)
		held := need(other.Lock(t.Context(), "x"))(t)
		ctx, leave := context.WithCancel(t.Context())
		all := []waiter{queued(ctx, q, "x", WithMaxWaiters(2)), queued(ctx, q, "x", WithMaxWaiters(2))}
		for range 10 { // the waiters go from store to store meanwhile
			err := errorOf(q.Lock(t.Context(), "x", WithMaxWaiters(2)))
			if !fail.IsCrowded(err) || !errors.Is(err, ErrNotAcquired) {
				t.Fatalf("got %v, want a refusal by WithMaxWaiters", err)
			}
			time.Sleep(time.Second)
		}
		leave()
		for _, w := range all {
			wants(t, (<-w).err, context.Canceled)
		}
		w := queued(t.Context(), q, "x", WithMaxWaiters(1))
		must(t, held.Unlock(t.Context()))
		must(t, w.lease(t).Unlock(t.Context()))
	})
}

func TestMaxWaitersWhereItDoesNotApply(t *testing.T) {
	c := newClient(t)
	ctx, rw, parts := t.Context(), c.RW(), Parts{}.And(c, "a", "b")
	fair := c.With(Fair())
	q := need(quorum.New(newClient(t), newClient(t), newClient(t)))(t)
	for name, err := range map[string]error{
		"TryLock":                       errorOf(c.TryLock(ctx, "x", WithMaxWaiters(1))),
		"TryLock, fair":                 errorOf(fair.TryLock(ctx, "x", WithMaxWaiters(1))),
		"TryLock, read":                 errorOf(rw.Read.TryLock(ctx, "x", WithMaxWaiters(1))),
		"TryLock of Quorum":             errorOf(q.TryLock(ctx, "x", WithMaxWaiters(1))),
		"TryLockAll":                    errorOf(parts.TryLock(ctx, WithMaxWaiters(1))),
		"TryAcquire":                    errorOf(semaphore.New(c, "s", 1).TryAcquire(ctx, 1, WithMaxWaiters(1))),
		"none":                          errorOf(c.Lock(ctx, "x", WithMaxWaiters(0))),
		"fewer than none":               errorOf(c.Lock(ctx, "x", WithMaxWaiters(-1))),
		"fewer than none, by far":       errorOf(c.Lock(ctx, "x", WithMaxWaiters(math.MinInt))),
		"none, LockAll":                 errorOf(parts.Lock(ctx, WithMaxWaiters(0))),
		"none, of Quorum":               errorOf(q.Lock(ctx, "x", WithMaxWaiters(0))),
		"none, of a latch":              latch.New(c, "l").Wait(ctx, WithMaxWaiters(0)),
		"none, of a semaphore":          errorOf(semaphore.New(c, "s", 1).Acquire(ctx, 1, WithMaxWaiters(0))),
		"none, of a counting semaphore": semaphore.NewCounting(c, "s").Acquire(ctx, 1, WithMaxWaiters(0)),
	} {
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "WithMaxWaiters") {
			t.Errorf("%s: got %v, want ErrInvalid that names WithMaxWaiters", name, err)
		}
	}
	must(t, thenUnlock(c.Lock(ctx, "x", WithMaxWaiters(math.MaxInt))))
	if WithMaxWaiters(3) != WithMaxWaiters(3) || WithMaxWaiters(3) == WithMaxWaiters(4) {
		t.Error("options are not comparable values")
	}
}

// A call that declares the limit is the one that the others wait for.
func TestMaxWaitersRefusesNoCallThatDeclaresTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, spyOn(memory.New(), "Semaphores CountingSemaphores Enrolments", nil))
		waiter := later(func() error { return errorOf(semaphore.New(c, "x", 0).Acquire(t.Context(), 1)) })
		synctest.Wait()
		need(semaphore.New(c, "x", 4).Acquire(t.Context(), 1, WithMaxWaiters(1)))(t)
		must(t, <-waiter)
	})
}
