package clienttest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// goRedisTimeout is go-redis' ReadTimeout. A call over a connection that a firewall has dropped silently, or to a
// server that hangs, fails after it.
const goRedisTimeout = 3 * time.Second

// timesOut returns a spy on s. The next calls, as many as left says, time out, and do not reach the store.
func timesOut(s *memory.Store, can string) (b *spy, left *atomic.Int32) {
	left = new(atomic.Int32)
	return spyOn(s, can, hooks{anyCall: func(c *call) error {
		if left.Add(-1) >= 0 {
			time.Sleep(goRedisTimeout)
			return unknownOutcome()
		}
		return c.run(c.ctx)
	}}), left
}

// With go-redis' time-outs no request had a second attempt: a repeat was refused once 2.5 s were over.
func TestEachRequestIsRepeatedAfterTimeOuts(t *testing.T) {
	const can = "Fair Batch Queue ReadWrite CountingSemaphores CountDownLatches Semaphores Enrolments Proclamations"
	wait := WithWait(10 * time.Second)
	for what, prepare := range map[string]func(t *testing.T, c *Client) func() error{
		"Lock": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.Lock(t.Context(), "x", wait)) }
		},
		"Lock without a wait": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.Lock(t.Context(), "x")) }
		},
		"TryLock": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.TryLock(t.Context(), "x")) }
		},
		"a lease that ends before the time-out": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.Lock(t.Context(), "x", wait, WithLease(time.Second))) }
		},
		"a re-entry": func(t *testing.T, c *Client) func() error {
			l := need(c.Lock(t.Context(), "x"))(t)
			return func() error { return errorOf(c.Lock(l.Context(), "x", wait)) }
		},
		"Unlock of a re-entry": func(t *testing.T, c *Client) func() error {
			inner := need(c.Lock(need(c.Lock(t.Context(), "x"))(t).Context(), "x"))(t)
			return func() error { return inner.Unlock(t.Context()) }
		},
		"Unlock": func(t *testing.T, c *Client) func() error {
			l := need(c.Lock(t.Context(), "x"))(t)
			return func() error { return l.Unlock(t.Context()) }
		},
		"a fair lock's lease that ends before the time-out": func(t *testing.T, c *Client) func() error {
			fair := c.With(Fair())
			return func() error { return errorOf(fair.Lock(t.Context(), "x", wait, WithLease(time.Second))) }
		},
		"a fair lock": func(t *testing.T, c *Client) func() error {
			fair := c.With(Fair())
			return func() error { return errorOf(fair.Lock(t.Context(), "x", wait)) }
		},
		"a reader": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.RW().Read.Lock(t.Context(), "x", wait)) }
		},
		"a writer": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.RW().Write.Lock(t.Context(), "x", wait)) }
		},
		"LockAll": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(Parts{}.And(c, "x", "y").Lock(t.Context(), wait)) }
		},
		"Unlock of several": func(t *testing.T, c *Client) func() error {
			l := need(c.LockAll(t.Context(), []string{"x", "y"}))(t)
			return func() error { return l.Unlock(t.Context()) }
		},
		"a permit": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(semaphore.New(c, "x", 1).Acquire(t.Context(), 1, wait)) }
		},
		"a counting semaphore": func(t *testing.T, c *Client) func() error {
			s := semaphore.NewCounting(c, "x")
			must(t, errorOf(s.TrySetPermits(t.Context(), 1)))
			return func() error { return s.Acquire(t.Context(), 1, wait) }
		},
		"a release of a counting semaphore": func(t *testing.T, c *Client) func() error {
			s := semaphore.NewCounting(c, "x")
			must(t, errorOf(s.TrySetPermits(t.Context(), 1)))
			return func() error { return s.Release(t.Context(), 1) }
		},
		"a latch": func(t *testing.T, c *Client) func() error {
			return func() error { return latch.New(c, "x").Wait(t.Context(), wait) }
		},
		"Inspect": func(t *testing.T, c *Client) func() error {
			return func() error { return errorOf(c.Inspect(t.Context(), "x")) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				defer time.Sleep(time.Minute) // what goes on in the background ends in the bubble
				b, left := timesOut(s, can)
				call := prepare(t, on(t, b))
				began := time.Now()
				left.Store(2) // a pool has more than one connection
				if err := call(); err != nil {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// A server that hangs answers once it goes on; a call whose time-out is over does not hear it.
func TestACallOutlastsAServerThatHangs(t *testing.T) {
	const repeated = 10 * time.Second // retry.Patience: an attempt that began within it may last longer
	for _, x := range []struct {
		hangs time.Duration
		wait  time.Duration // 0: none
		most  time.Duration // after which the call returns at the latest
		want  error
	}{
		{7 * time.Second, 25 * time.Second, 7 * time.Second, nil},
		{7 * time.Second, 0, 7 * time.Second, nil},
		{7 * time.Second, 5 * time.Second, 5 * time.Second, ErrUnavailable},
		{time.Hour, 25 * time.Second, repeated + goRedisTimeout, ErrUnavailable},
		{time.Hour, 0, repeated + goRedisTimeout, ErrUnavailable},
	} {
		bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
			began := time.Now()
			b := spyOn(s, "Queue", hooks{"Acquire": func(c *call) error {
				if left := x.hangs - time.Since(began); left > goRedisTimeout {
					time.Sleep(goRedisTimeout)
					return unknownOutcome()
				} else if left > 0 {
					time.Sleep(left)
				}
				return c.run(c.ctx)
			}})
			c := on(t, b)
			var opts []Option
			if x.wait > 0 {
				opts = append(opts, WithWait(x.wait))
			}
			_, err := c.Lock(t.Context(), "x", opts...)
			if took := time.Since(began); !errors.Is(err, x.want) || took > x.most {
				t.Errorf("a server that hangs for %v, a wait of %v: %v after %v", x.hangs, x.wait, err, took)
			}
			time.Sleep(time.Minute)
			if err == nil {
				return
			}
			if n := engineOf(c).Probe().Snapshot(); n.Held+n.Running+n.Slots != 0 {
				t.Errorf("left behind: %+v", n)
			}
		})
	}
}

// The in-flight limiter bounds how many requests are on their way, not how many calls wait for a slot.
func TestACrowdOfCallersIsServedThoughEachRequestTakesASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
			time.Sleep(time.Second)
			return c.run(c.ctx)
		}}))
		const callers = 256 * 16
		errs := make(chan error, callers)
		for i := range callers {
			go func() { errs <- errorOf(c.Lock(t.Context(), strconv.Itoa(i))) }()
		}
		failed, last := 0, error(nil)
		for range callers {
			if err := <-errs; err != nil {
				failed, last = failed+1, err
			}
		}
		if failed > 0 {
			t.Errorf("%d of %d calls failed: %v", failed, callers, last)
		}
	})
}

// Only failures that come at once are few. The first one of this Unlock is a time-out.
func TestAnUnlockThatTimedOutIsRepeatedAfterFailuresThatComeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		n := 0
		b := spyOn(s, "", hooks{"Release": func(c *call) error {
			switch n++; {
			case n == 1:
				time.Sleep(3 * time.Second)
				return unknownOutcome()
			case n <= 3:
				return unknownOutcome()
			}
			return c.run(c.ctx)
		}})
		l := need(on(t, b).Lock(t.Context(), "x"))(t)
		if err := l.Unlock(t.Context()); err != nil || n != 4 {
			t.Errorf("%v after %d commands", err, n)
		}
	})
}

// A wait of a second is worth a command that asks who has the lock; a store that hangs delays the error for 250 ms.
func TestTheErrorOfALongWaitNamesTheHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var hangs atomic.Bool
		spied := spyOn(s, "Fair ReadWrite", hooks{"Inspect": func(c *call) error {
			if hangs.Load() {
				<-c.ctx.Done()
				return c.ctx.Err()
			}
			return c.run(c.ctx)
		}})
		c, other := on(t, spied), open()
		for kind, lockers := range map[string][2]Locker{
			"plain": {c, other}, "fair": {c.With(Fair()), other.With(Fair())},
			"polls":   {c.With(Polling(50 * time.Millisecond)), other},
			"readers": {c.RW().Write, other.RW().Read}, "a writer": {c.RW().Read, other.RW().Write},
		} {
			held := need(lockers[1].Lock(t.Context(), kind))(t)
			info := need(other.Inspect(t.Context(), kind))(t)
			if info.Owner == "" {
				t.Fatalf("%s: Inspect knows no owner", kind)
			}
			for _, x := range []struct {
				wait  time.Duration
				hangs bool
				owner string
				took  time.Duration
			}{
				{time.Second, false, info.Owner, time.Second},
				{999 * time.Millisecond, true, "", 999 * time.Millisecond},
				{time.Second, true, "", 1250 * time.Millisecond},
			} {
				if x.hangs && (kind == "readers" || kind == "a writer") { // no hook stops an Inspect of these
					continue
				}
				hangs.Store(x.hangs)
				began := time.Now()
				_, err := lockers[0].Lock(t.Context(), kind, WithWait(x.wait))
				took := time.Since(began)
				e, is := errors.AsType[*Error](err)
				if !is || !errors.Is(err, ErrNotAcquired) || e.Owner != x.owner || took != x.took {
					t.Errorf("%s, %+v: %v, the owner %q, after %v", kind, x, err, e.Owner, took)
				}
				if says := strings.Contains(err.Error(), strconv.Quote(info.Owner)); says != (x.owner != "") {
					t.Errorf("%s, %+v: %v", kind, x, err)
				}
			}
			must(t, held.Unlock(t.Context()))
		}
	})
}

// A request's own context, which the client ends, is not the caller's, which has no end.
func TestAWaitThatEndsWithoutAnAnswerIsNotTheEndOfTheCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		defer time.Sleep(time.Minute)
		var works atomic.Bool
		defer works.Store(true)
		c := on(t, spyOn(s, "", hooks{anyCall: func(c *call) error {
			if works.Load() {
				return c.run(c.ctx)
			}
			time.Sleep(400 * time.Millisecond)
			return &backend.Fault{Err: context.DeadlineExceeded, Remedy: "check the port", Temporary: true}
		}}))
		err := errorOf(c.Lock(context.Background(), "x", WithWait(time.Second)))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// go-redis dials for 0.4 s before it reports a server that refuses connections. So a wait may end while the second
// request fails, and the error then has to say what the first request met.
func TestAWaitThatEndsWithoutAnAnswerNamesTheLastFailure(t *testing.T) {
	for what, lock := range map[string]func(ctx context.Context, c *Client, wait Option) error{
		"Lock": func(ctx context.Context, c *Client, wait Option) error { return errorOf(c.Lock(ctx, "x", wait)) },
		"a fair lock": func(ctx context.Context, c *Client, wait Option) error {
			return errorOf(c.With(Fair()).Lock(ctx, "x", wait))
		},
		"LockAll": func(ctx context.Context, c *Client, wait Option) error {
			return errorOf(c.LockAll(ctx, []string{"x", "y"}, wait))
		},
		"a permit": func(ctx context.Context, c *Client, wait Option) error {
			return errorOf(semaphore.New(c, "x", 1).Acquire(ctx, 1, wait))
		},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				defer time.Sleep(time.Minute) // what goes on in the background ends in the bubble
				var hangs, works atomic.Bool
				defer works.Store(true)
				c := on(t, spyOn(s, "Fair Batch Queue Semaphores", hooks{anyCall: func(c *call) error {
					if works.Load() {
						return c.run(c.ctx)
					}
					if hangs.Load() {
						time.Sleep(goRedisTimeout)
						return unknownOutcome()
					}
					time.Sleep(400 * time.Millisecond)
					return &backend.Fault{Err: errors.New("connection refused"), Remedy: "check the port", Temporary: true}
				}}))
				err := lock(t.Context(), c, WithWait(time.Second))
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "connection refused (check the port)") {
					t.Errorf("while each request fails after 400ms: %v, want the failure in it", err)
				}
				hangs.Store(true)
				time.Sleep(time.Minute)
				err = lock(t.Context(), c, WithWait(time.Second))
				if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "refused") {
					t.Errorf("a minute later, while the store hangs: %v, want no failure from before the call", err)
				}
			})
		})
	}
}
