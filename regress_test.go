package mortise

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// on opens clients of b and ends them with the test, without waiting for Unlocks.
func on(t testing.TB, b backend.Backend, opts ...ClientOption) *Client {
	t.Helper()
	c := need(New(b, opts...))(t)
	t.Cleanup(func() { c.Shutdown(ended()) })
	return c
}

func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestRule06_TwoHoldsUnlockedAtOnceAreBothUnlocked(t *testing.T) {
	c := newClient(t)
	for range 2000 {
		a := need(c.Lock(t.Context(), "x"))(t)
		b := need(c.Lock(a.Context(), "x"))(t)
		var wg sync.WaitGroup
		var ea, eb error
		wg.Go(func() { ea = a.Unlock(context.Background()) })
		wg.Go(func() { eb = b.Unlock(context.Background()) })
		wg.Wait()
		must(t, errors.Join(ea, eb))
	}
}

func TestRule13_ASpinnerWhoseWaitIsOverWasRefusedNotUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other := on(t, st)
		c := on(t, spyOn(st, "", hooks{"Acquire": delayed(5 * time.Millisecond)}))
		must(t, errorOf(other.Lock(t.Context(), "x")))
		polling := need(c.Locker(Polling(time.Millisecond)))(t)
		for i := range 50 {
			wants(t, errorOf(polling.Lock(t.Context(), "x", WithWait(100*time.Millisecond+time.Duration(i)*time.Millisecond/7))), ErrNotAcquired)
		}
		time.Sleep(time.Second) // the last command's answer comes to no caller
		synctest.Wait()
	})
}

func TestRule08_AWaiterForAPermitWakesWhenTheOneThatAnotherGotHereRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other, c := on(t, st).Semaphore("p"), on(t, st).Semaphore("p")
		must(t, errorOf(other.TrySetPermits(t.Context(), 1)))
		long, err := other.Acquire(t.Context(), WithLease(time.Hour))
		must(t, err)
		go c.Acquire(t.Context(), WithLease(100*time.Millisecond)) // and never released
		synctest.Wait()
		second := make(chan error, 1)
		go func() { _, err := c.Acquire(t.Context()); second <- err }()
		synctest.Wait()
		must(t, long.Release(t.Context()))
		select {
		case err := <-second:
			must(t, err)
		case <-time.After(5 * time.Second):
			t.Error("a permit is free, and the one who wants it sleeps")
		}
	})
}

func TestRule13_AStoreThatIsAwayFailsAllWhoWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other, c := on(t, st), on(t, st)
		must(t, errorOf(other.Lock(t.Context(), "x")))
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				wants(t, errorOf(c.Lock(t.Context(), "x")), ErrUnavailable)
			})
		}
		synctest.Wait()
		start := time.Now()
		st.SetDown(errors.New("gone"))
		wg.Wait()
		if d := time.Since(start); d > 65*time.Second {
			t.Errorf("the last was told after %v", d)
		}
	})
}

func TestRule01_AClientWithTheIDOfOneThatWasDoesNotHoldItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		before := on(t, st, WithID("pod-3"))
		must(t, errorOf(before.Lock(t.Context(), "x")))
		before.Shutdown(ended())
		time.Sleep(15 * time.Second)
		start := time.Now()
		after := on(t, st, WithID("pod-3"))
		must(t, errorOf(after.Lock(t.Context(), "x")))
		if d := time.Since(start); d < 14*time.Second {
			t.Errorf("locked after %v, while the lock of the one before was running out", d)
		}
	})
}

func TestRule11_AClientWithTheIDOfOneThatWasIsNotAnsweredInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		before := on(t, st, WithID("pod-3"))
		must(t, errorOf(before.CountingSemaphore("s").TrySetPermits(t.Context(), 1)))
		must(t, before.CountingSemaphore("s").Acquire(t.Context(), 1))
		must(t, before.Close())
		after := on(t, st, WithID("pod-3")).CountingSemaphore("s")
		if set, err := after.TrySetPermits(t.Context(), 1); set || err != nil {
			t.Errorf("set again: %v, %v", set, err)
		}
		wants(t, after.TryAcquire(t.Context(), 1), ErrNotAcquired)
	})
}

func TestRule14_ShutdownTakesNothingBackFromUnderRunningWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, first := memory.New(), true
		c := on(t, spyOn(st, "", hooks{"Acquire": func(c *call) error {
			if first {
				first = false
				return replyLost(c)
			}
			return c.run(context.Background())
		}}), WithObserver(Observer{Lost: func(LostEvent) { time.Sleep(time.Millisecond) }}))
		must(t, errorOf(c.Lock(t.Context(), "x")))
		c.Shutdown(ended())
		state := need(on(t, st).Inspect(t.Context(), "x"))(t)
		if !state.Held {
			t.Error("the lock was released while its holder worked")
		}
	})
}

func TestRule09_AnAbandonedGrantIsTakenBackHoweverLongTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		c := on(t, spyOn(st, "", hooks{"Acquire": func(c *call) error {
			err := c.run(context.Background())
			time.Sleep(100 * time.Millisecond)
			st.SetDown(errGone)
			return err
		}}))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "x", WithLease(10*time.Minute))), context.DeadlineExceeded)
		time.Sleep(2 * DefaultWatchdogTimeout)
		st.SetDown(nil)
		time.Sleep(10 * time.Second)
		state := need(on(t, st).Inspect(t.Context(), "x"))(t)
		if state.Held {
			t.Errorf("held by nobody for another %v", state.Remaining)
		}
	})
}

func TestForceUnlockLeavesAloneWhoCameAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		c := on(t, spyOn(st, "", hooks{"ForceRelease": func(c *call) error {
			err := c.run(context.Background())
			time.Sleep(time.Millisecond) // meanwhile the waiter has it
			return err
		}}))
		must(t, errorOf(on(t, st).Lock(t.Context(), "x")))
		got := make(chan *Lease, 1)
		go func() {
			l, err := c.Lock(t.Context(), "x")
			check(t, err)
			got <- l
		}()
		synctest.Wait()
		must(t, errorOf(c.ForceUnlock(t.Context(), "x")))
		l := <-got
		time.Sleep(time.Second)
		must(t, l.Err())
	})
}

func TestQuorumEndsAtItsMaxHoldAlsoAfterHealing(t *testing.T) {
	fleet(t, func(t *testing.T, stores []*memory.Store, open func(...ClientOption) (Locker, []*Client)) {
		quorum, _ := open()
		start := time.Now()
		l := need(quorum.Lock(t.Context(), "x", WithMaxHold(time.Minute)))(t)
		for i := range 3 {
			time.Sleep(15 * time.Second)
			stores[i].Flush()
		}
		select {
		case <-l.Context().Done():
		case <-time.After(time.Hour):
		}
		if d := time.Since(start); d > 61*time.Second {
			t.Errorf("ended after %v, want a minute", d)
		}
		wants(t, l.Err(), ErrLost)
	})
}

// A backend that panics, and whose caller recovers, leaves no place at the gate taken.
func TestABackendThatPanicsTakesNoPlaceAtTheGate(t *testing.T) {
	c := on(t, spyOn(memory.New(), "", hooks{"Acquire": func(*call) error { panic("a hook of the client library") }}))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			c.TryLock(context.Background(), "n")
		}()
	}
	if n := c.engine.Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d places are taken", n)
	}
}
