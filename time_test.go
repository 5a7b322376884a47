package mortise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// These tests run in a bubble: hours pass in no time, and a step that should
// not wait is seen to take none.

func bubble(t *testing.T, f func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var clients []*Client
		f(t, s, func(opts ...ClientOption) *Client {
			c, err := New(s, opts...)
			if err != nil {
				t.Fatal(err)
			}
			clients = append(clients, c)
			return c
		})
		for _, c := range clients {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			c.Shutdown(ctx)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
}

func TestWatchdogHoldsForHoursAndRenewsEveryThird(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		renewed := 0
		c := open(WithObserver(Observer{Renewed: func(e RenewedEvent) { renewed++ }}))
		l, err := c.Lock(t.Context(), "x")
		must(t, err)
		time.Sleep(3*time.Hour + time.Second)
		must(t, l.Err())
		synctest.Wait()
		if renewed != 3*360 {
			t.Errorf("renewed %d times in 3 h, want one every 10 s", renewed)
		}
		must(t, l.Unlock(t.Context()))
		wants(t, context.Cause(l.Context()), ErrReleased)
		time.Sleep(time.Hour)
		synctest.Wait()
		if renewed != 3*360 {
			t.Errorf("renewed after the release")
		}
	})
}

func TestLeaseIsNotRenewedAndEndsBeforeTheStoreLetsOthersIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		start := time.Now()
		l, err := a.Lock(t.Context(), "x", WithLease(10*time.Second))
		must(t, err)
		told := make(chan time.Duration, 1)
		context.AfterFunc(l.Context(), func() { told <- time.Since(start) })
		m, err := b.Lock(t.Context(), "x")
		must(t, err)
		in := time.Since(start)
		wants(t, l.Err(), ErrLost)
		wants(t, context.Cause(l.Context()), ErrLost)
		if d := <-told; d != 10*time.Second-100*time.Millisecond {
			t.Errorf("told after %v, want the lease less 1%%", d)
		}
		if in < 10*time.Second || in > 10*time.Second+10*time.Millisecond {
			t.Errorf("the waiter was in after %v, want when the lease ended", in)
		}
		wants(t, l.Unlock(t.Context()), ErrNotHeld)
		must(t, m.Err())
		must(t, m.Unlock(t.Context()))
	})
}

func TestMaxHoldEndsRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		start := time.Now()
		l, err := a.Lock(t.Context(), "x", WithMaxHold(75*time.Second))
		must(t, err)
		<-l.Context().Done()
		if d := time.Since(start); d != 75*time.Second {
			t.Errorf("ended after %v, want 75s", d)
		}
		wants(t, l.Err(), ErrLost)
		_, err = b.Lock(t.Context(), "x", WithWait(2*time.Second))
		must(t, err)
		if d := time.Since(start); d > 76*time.Second {
			t.Errorf("free after %v", d)
		}
	})
}

func TestInnerMaxHoldEndsTheInnerLeaseOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer, err := c.Lock(t.Context(), "x")
		must(t, err)
		inner, err := c.Lock(outer.Context(), "x", WithMaxHold(time.Second))
		must(t, err)
		<-inner.Context().Done()
		wants(t, inner.Err(), ErrLost)
		must(t, outer.Err())
		wants(t, inner.Unlock(t.Context()), ErrNotHeld)
		st, err := c.Inspect(t.Context(), "x")
		must(t, err)
		if st.Holds != 1 {
			t.Errorf("holds %d, want the outer one", st.Holds)
		}
		must(t, outer.Unlock(t.Context()))
	})
}

func TestReentryNeverShortensTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer, err := c.Lock(t.Context(), "x", WithLease(time.Minute))
		must(t, err)
		inner, err := c.Lock(outer.Context(), "x", WithLease(time.Second))
		must(t, err)
		time.Sleep(30 * time.Second)
		must(t, inner.Err())
		must(t, inner.Unlock(t.Context()))
		st, err := c.Inspect(t.Context(), "x")
		must(t, err)
		if st.Remaining != 30*time.Second {
			t.Errorf("remaining %v, want 30s: a partial unlock leaves the time alone", st.Remaining)
		}
		must(t, outer.Unlock(t.Context()))
	})
}

func TestStoreAwayRenewalIsRetriedWithinTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		failed := 0
		c := open(WithObserver(Observer{RenewalFailed: func(e RenewalFailedEvent) {
			failed++
			if e.Remaining <= 0 || e.Err == nil {
				t.Errorf("%+v", e)
			}
		}}))
		l, err := c.Lock(t.Context(), "x")
		must(t, err)
		time.Sleep(9 * time.Second)
		s.SetDown(errors.New("gone"))
		time.Sleep(15 * time.Second)
		must(t, l.Err())
		s.SetDown(nil)
		time.Sleep(time.Hour)
		must(t, l.Err())
		synctest.Wait()
		if failed < 5 {
			t.Errorf("renewal was tried %d times in 14 s", failed)
		}

		s.SetDown(errors.New("gone"))
		start := time.Now()
		<-l.Context().Done()
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("lost after %v, want within the lease", d)
		}
		wants(t, l.Err(), ErrLost)
		s.SetDown(nil)
	})
}

func TestWallClockJumpEndsTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l, err := c.Lock(t.Context(), "x")
		must(t, err)
		sleepMachine(c, time.Hour)
		wants(t, l.Err(), ErrLost)
	})
}

func TestLocalWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l, err := c.Lock(t.Context(), "x")
		must(t, err)
		var order []int
		for i := range 20 {
			go func() {
				l, err := c.Lock(t.Context(), "x")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i)
				l.Unlock(t.Context())
			}()
			synctest.Wait()
		}
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served %v", order)
			}
		}
		if left := c.engine.Probe().Snapshot(); len(order) != 20 || left.Names != 0 || left.Watches != 0 {
			t.Fatalf("%d served, left: %+v", len(order), left)
		}
	})
}

func TestWaitsLongOnItsOwnHolderIsLogged(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		log, lines := recorder()
		c := open(WithLogger(log))
		_, err := c.Lock(t.Context(), "x")
		must(t, err)
		_, err = c.Lock(t.Context(), "x", WithWait(time.Minute))
		wants(t, err, ErrNotAcquired)
		if got := lines(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
	})
}

func TestShutdownWaitsForUnlocksThenLeavesTheRestToExpire(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		short, err := c.Lock(t.Context(), "short")
		must(t, err)
		long, err := c.Lock(t.Context(), "long")
		must(t, err)
		waiting := make(chan error, 1)
		go func() { _, err := c.Lock(t.Context(), "long"); waiting <- err }()
		go func() { time.Sleep(time.Minute); short.Unlock(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		start := time.Now()
		err = c.Shutdown(ctx)
		if d := time.Since(start); d != 2*time.Minute {
			t.Errorf("shutdown took %v", d)
		}
		wants(t, err, context.DeadlineExceeded)
		wants(t, <-waiting, ErrClosed)
		wants(t, short.Err(), ErrReleased)
		wants(t, long.Err(), ErrClosed)
		wants(t, context.Cause(long.Context()), ErrClosed)
		wants(t, long.Unlock(t.Context()), ErrNotHeld)
		_, err = c.Lock(t.Context(), "y")
		wants(t, err, ErrClosed)
		st, err := other.Inspect(t.Context(), "long")
		must(t, err)
		if !st.Held || st.Client != c.ID() || st.Remaining > 30*time.Second {
			t.Errorf("%+v, want it held and running out", st)
		}
		if c.Close() != err && c.Close() == nil {
			t.Error("a second Close reports nothing")
		}
	})
}
