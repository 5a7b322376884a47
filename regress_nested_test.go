package mortise

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// What a review of delegations, of contexts that are made late, and of requests that had to wait found.

func TestADelegationOnAHoldThatHasEndedFitsNoOtherHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		ctx := context.Background()
		outer := need(a.Lock(ctx, "n"))(t)
		inner := need(a.Lock(context.WithoutCancel(outer.Context()), "n"))(t)
		ofOuter, ofInner := Delegations(outer.Context()), Delegations(inner.Context())
		must(t, outer.Unlock(ctx)) // the outer hold first
		under := need(b.WithDelegations(ctx, ofOuter...))(t)
		if l, err := b.TryLock(under, "n"); err == nil {
			t.Error("entered under a hold that has ended, beside one that lives")
			must(t, l.Unlock(ctx))
		}
		under = need(b.WithDelegations(ctx, ofInner...))(t)
		l := need(b.TryLock(under, "n"))(t)
		must(t, l.Unlock(ctx))
		must(t, inner.Unlock(ctx))
		wants(t, errorOf(b.Lock(under, "n")), ErrDelegationEnded)
		free := need(b.TryLock(ctx, "n"))(t)
		must(t, free.Unlock(ctx))
	})
}

func TestAHoldThatEndedByWithMaxHoldKeepsNobodyFromEntering(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("lent "+when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, a, b := pair(t)
				ctx := context.Background()
				outer := need(a.Lock(ctx, "n"))(t)
				inner := need(a.Lock(outer.Context(), "n", WithMaxHold(time.Second)))(t)
				if when == "before" {
					Delegations(inner.Context())
				}
				time.Sleep(2 * time.Second)
				wants(t, inner.Err(), ErrLost)
				under := need(b.WithDelegations(ctx, Delegations(outer.Context())...))(t)
				l := need(b.Lock(under, "n", WithWait(time.Minute)))(t)
				must(t, l.Unlock(ctx))
				l = need(a.Lock(outer.Context(), "n", WithWait(time.Minute)))(t)
				must(t, l.Unlock(ctx))
				must(t, outer.Unlock(ctx))
			})
		})
	}
}

func TestForceUnlockIsToldToThoseWhoWaitToEnter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, a, b := pair(t)
		c := on(t, s)
		ctx := context.Background()
		l := need(a.Lock(ctx, "n"))(t)
		delegations := Delegations(l.Context())
		entered := need(b.WithDelegations(ctx, delegations...))(t)
		callee := need(b.Lock(entered, "n"))(t)
		waits := need(c.WithDelegations(ctx, delegations...))(t)
		done := make(chan error, 1)
		go func() {
			_, err := c.Lock(waits, "n")
			done <- err
		}()
		synctest.Wait()
		began := time.Now()
		must(t, errorOf(b.ForceUnlock(ctx, "n")))
		wants(t, <-done, ErrDelegationEnded)
		if d := time.Since(began); d > 0 {
			t.Errorf("it heard of it after %v", d)
		}
		wants(t, callee.Err(), ErrLost) // being of the client that removed it
	})
}

// A lease counts from when its request was sent, not from when Lock was called.
func TestALeaseThatHadToWaitForItsTurnIsNoShorter(t *testing.T) {
	for what, end := range map[string]func(a *Client, outer, inner *Lease) error{
		"lent meanwhile": func(_ *Client, outer, inner *Lease) error {
			Delegations(outer.Context())
			return inner.Unlock(context.Background())
		},
		"lost meanwhile": func(a *Client, _, _ *Lease) error {
			_, err := a.ForceUnlock(context.Background(), "n")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := on(t, spyOn(memory.New(), "Delegation", hooks{"Enter": delayed(time.Millisecond)}))
				ctx := context.Background()
				outer := need(a.Lock(ctx, "n"))(t)
				inner := need(a.Lock(outer.Context(), "n"))(t)
				done := make(chan error)
				go func() {
					l, err := a.Lock(context.WithoutCancel(outer.Context()), "n", WithLease(time.Second))
					if err == nil {
						time.Sleep(900 * time.Millisecond)
						err = errors.Join(l.Err(), l.Unlock(ctx))
					}
					done <- err
				}()
				synctest.Wait()
				time.Sleep(2 * time.Second)
				must(t, end(a, outer, inner))
				if err := <-done; err != nil {
					t.Error("it waited two seconds for its turn:", err)
				}
				_ = outer.Unlock(ctx)
			})
		})
	}
}

func TestAContextThatIsAskedForLateHasTheCauseOfItsLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := on(t, memory.New())
		ctx, cancel := context.WithCancel(context.Background())
		l := need(a.Lock(ctx, "n", WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		cancel()
		wants(t, context.Cause(l.Context()), ErrLost)
	})
}

// A mock may return one.
func TestALeaseOfNothing(t *testing.T) {
	var l Lease
	if _, fenced := l.Token(); l.Name() != "" || fenced || l.Context().Err() == nil {
		t.Error("it holds something")
	}
	wants(t, l.Err(), ErrNotHeld)
	wants(t, l.Unlock(context.Background()), ErrNotHeld)
}
