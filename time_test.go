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
		f(t, s, func(opts ...ClientOption) *Client { return on(t, s, opts...) })
	})
}

// must ends the test if err is an error.
func must(t testing.TB, err error) {
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
		l := need(c.Lock(t.Context(), "x"))(t)
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
		l := need(a.Lock(t.Context(), "x", WithLease(10*time.Second)))(t)
		told := make(chan time.Duration, 1)
		context.AfterFunc(l.Context(), func() { told <- time.Since(start) })
		m := need(b.Lock(t.Context(), "x"))(t)
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
		l := need(a.Lock(t.Context(), "x", WithMaxHold(75*time.Second)))(t)
		<-l.Context().Done()
		if d := time.Since(start); d != 75*time.Second {
			t.Errorf("ended after %v, want 75s", d)
		}
		wants(t, l.Err(), ErrLost)
		must(t, errorOf(b.Lock(t.Context(), "x", WithWait(2*time.Second))))
		if d := time.Since(start); d > 76*time.Second {
			t.Errorf("free after %v", d)
		}
	})
}

func TestInnerMaxHoldEndsTheInnerLeaseOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer := need(c.Lock(t.Context(), "x"))(t)
		inner := need(c.Lock(outer.Context(), "x", WithMaxHold(time.Second)))(t)
		<-inner.Context().Done()
		wants(t, inner.Err(), ErrLost)
		must(t, outer.Err())
		wants(t, inner.Unlock(t.Context()), ErrNotHeld)
		st := need(c.Inspect(t.Context(), "x"))(t)
		if st.Holds != 1 {
			t.Errorf("holds %d, want the outer one", st.Holds)
		}
		must(t, outer.Unlock(t.Context()))
	})
}

func TestReentryNeverShortensTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer := need(c.Lock(t.Context(), "x", WithLease(time.Minute)))(t)
		inner := need(c.Lock(outer.Context(), "x", WithLease(time.Second)))(t)
		time.Sleep(30 * time.Second)
		must(t, inner.Err())
		must(t, inner.Unlock(t.Context()))
		st := need(c.Inspect(t.Context(), "x"))(t)
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
		l := need(c.Lock(t.Context(), "x"))(t)
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
		l := need(c.Lock(t.Context(), "x"))(t)
		sleepMachine(c, time.Hour)
		wants(t, l.Err(), ErrLost)
	})
}

func TestLocalWaitersAreServedInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		l := need(c.Lock(t.Context(), "x"))(t)
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
		must(t, errorOf(c.Lock(t.Context(), "x")))
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(time.Minute))), ErrNotAcquired)
		if got := lines(); len(got) != 1 {
			t.Errorf("logged %q, want one line", got)
		}
	})
}

func TestShutdownWaitsForUnlocksThenLeavesTheRestToExpire(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		short := need(c.Lock(t.Context(), "short"))(t)
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
		wants(t, errorOf(c.Lock(t.Context(), "y")), ErrClosed)
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

// check reports an error, and the test goes on.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// need is the result of a call that must succeed: need(c.Lock(ctx, name))(t).
func need[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// errorOf is the error of a call whose result is of no interest.
func errorOf[T any](_ T, err error) error { return err }
