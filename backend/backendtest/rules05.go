package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
)

var rules05to07 = []test{
	{"Rule05_ARenewalInFlightCannotOutliveTheRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		late := make(chan struct{})
		f.Hook(on(Fate{Before: late}, OpRenew))
		lease := e.lock(c, context.Background(), "n")
		e.until("a renewal is on its way", func() bool { return f.Count(OpRenew) > 0 })
		e.unlock(lease)
		next := e.brief(c, "n", time.Second)
		close(late)
		e.until("it has arrived", func() bool { return f.Calls(OpRenew)[0].Ended > 0 })
		s := e.inspect(c, "n")
		e.errorIf(s.Held && s.Remaining > time.Second, "the late renewal gave the next holder %v", s.Remaining)
		receive(e, "the next lease runs out by itself", next.Context().Done())
		e.free(c, "n")
	}},
	{"Rule05_NothingIsRenewedAfterTheLastUnlock", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		begin := time.Now()
		for i := range 20 {
			lease := e.lock(c, context.Background(), fmt.Sprintf("n%d", i))
			if i%2 == 0 {
				e.unlock(e.lock(c, lease.Context(), fmt.Sprintf("n%d", i)))
			}
			e.unlock(lease)
		}
		before := f.Count(OpRenew)
		if time.Since(begin) > watchdog/3 {
			before++ // one was due, and may have been on its way to the session when the last was released
		}
		e.always(watchdog/2, "no renewal is sent", func() bool { return f.Count(OpRenew) <= before })
	}},
	{"Rule05_AnAbandonedAcquireLeavesNoRenewalBehind", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		reply := make(chan struct{})
		f.Hook(on(Fate{After: reply}, OpAcquire))
		ctx, cancel := context.WithCancel(context.Background())
		waiting := locking(c, ctx, "n")
		e.until("the acquire is on its way", func() bool { return f.Count(OpAcquire) == 1 })
		cancel()
		e.is("Lock", receive(e, "Lock returns", waiting).err, context.Canceled)
		close(reply)
		e.until("the lock is given back", func() bool { return f.Count(OpRelease) > 0 && !e.inspect(c, "n").Held })
		e.always(watchdog/2, "neither held nor renewed", func() bool {
			return f.Count(OpRenew) == 0 && !e.inspect(c, "n").Held
		})
	}},
	{"Rule05_ALockCancelledAtAnyPointIsNotRenewed", func(e *env) {
		c, f := e.tapped()
		other := e.client()
		for i := range 150 {
			name := fmt.Sprintf("n%d", i%5)
			ctx, cancel := context.WithCancel(context.Background())
			waiting := locking(c, ctx, name)
			time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
			cancel()
			got := receive(e, "Lock returns", waiting)
			if got.err == nil {
				e.unlock(got.lease)
			} else {
				e.is("Lock", got.err, context.Canceled)
			}
		}
		// The watchdog timeout is 30s: what is free within patience was released.
		for i := range 5 {
			lease := e.lock(other, context.Background(), fmt.Sprintf("n%d", i))
			e.unlock(lease)
		}
		equal(e, "%d renewals were sent", f.Count(OpRenew), 0)
	}},

	{"Rule06_UnlockOfALostLockTouchesNobodysLock", func(e *env) {
		a, b := e.client(), e.client()
		lost := e.brief(a, "n", 500*time.Millisecond)
		held := e.lock(b, context.Background(), "n", mortise.WithLease(long))
		err := lost.Unlock(context.Background())
		e.named(err, "unlock", "n", mortise.ErrNotHeld)
		e.is("Unlock", err, mortise.ErrLost)
		s := e.inspect(b, "n")
		e.errorIf(!s.Held || !s.Mine || s.Holds != 1, "the next holder's record is %+v", s)
		e.done("the next holder's lease", held.Err())
		e.unlock(held)
	}},
	{"Rule06_UnlockOfALockThatWasTakenAwayIsNotHeld", func(e *env) {
		a, b := e.client(), e.client()
		ctx := context.Background()
		for how, remove := range map[string]func(){
			"deleted": func() { e.store.Delete("n") },
			"flushed": func() { e.store.Flush() },
			"forced": func() {
				ok, err := b.ForceUnlock(ctx, "n")
				e.errorIf(!ok || err != nil, "ForceUnlock: %v, %v", ok, err)
			},
		} {
			lease := e.lock(a, ctx, "n", mortise.WithLease(long))
			remove()
			next := e.lock(b, ctx, "n", mortise.WithLease(long))
			e.named(lease.Unlock(ctx), "unlock", "n", mortise.ErrNotHeld)
			e.errorIf(lease.Err() == nil, "%s: the lease has no error after Unlock", how)
			s := e.inspect(a, "n")
			e.errorIf(s.Client != b.ID() || s.Holds != 1, "%s: the next holder's record is %+v", how, s)
			e.unlock(next)
		}
	}},
	{"Rule06_ForceUnlockFreesALockAndWakesItsWaiter", func(e *env) {
		a, b := e.client(), e.client()
		ok, err := b.ForceUnlock(context.Background(), "n")
		e.errorIf(ok || err != nil, "ForceUnlock of a free lock: %v, %v", ok, err)
		lease := e.lock(a, context.Background(), "n", mortise.WithLease(long))
		waiting := locking(b, context.Background(), "n", mortise.WithWait(patience))
		e.until("the waiter waits", func() bool { return e.inspect(a, "n").Held })
		ok, err = a.ForceUnlock(context.Background(), "n")
		e.errorIf(!ok || err != nil, "ForceUnlock: %v, %v", ok, err)
		e.granted("the waiter gets it", waiting)
		e.is("Err of the lease of the client that forced it", lease.Err(), mortise.ErrLost)
	}},
	{"Rule06_ALeaseThatEndedHereStillSendsItsRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		// Renewals reach the store and their replies do not reach the holder: the
		// lease ends here while the record lives on.
		f.Hook(func(call Call) Fate { return Fate{Lost: call.Op == OpRenew} })
		lease := e.lock(c, context.Background(), "n")
		receive(e, "the lease ends", lease.Context().Done())
		s := e.inspect(e.client(), "n")
		e.fatalIf(!s.Held || s.Remaining < 100*time.Millisecond, "the record is %+v, want it alive", s)
		e.is("Unlock", lease.Unlock(context.Background()), mortise.ErrNotHeld, mortise.ErrLost)
		if s := e.inspect(c, "n"); s.Held {
			e.Errorf("after Unlock the key is stranded: %+v", s)
		}
	}},

	{"Rule07_HeldNTimesFreedAtTheNthUnlockWithTheCountInTheStore", func(e *env) {
		c, other := e.client(), e.client()
		const n = 5
		var leases []*mortise.Lease
		ctx := context.Background()
		for i := range n {
			l := e.lock(c, ctx, "n", mortise.WithLease(long))
			leases = append(leases, l)
			ctx = l.Context()
			s := e.inspect(other, "n")
			e.errorIf(s.Holds != i+1 || s.Client != c.ID() || s.Mine, "after %d Locks another sees %+v", i+1, s)
		}
		for i := n - 1; i >= 0; i-- {
			_, err := other.TryLock(context.Background(), "n")
			e.errorIf(!errors.Is(err, mortise.ErrNotAcquired), "with %d holds left TryLock: %v", i+1, err)
			e.unlock(leases[i])
			e.is("the lease's Err", leases[i].Err(), mortise.ErrReleased)
			s := e.inspect(other, "n")
			e.errorIf(s.Holds != i || s.Held != (i > 0), "with %d holds left the record is %+v", i, s)
			for j := range i {
				err := leases[j].Err()
				e.errorIf(err != nil, "hold %d ended with hold %d: %v", j+1, i+1, err)
			}
		}
		e.unlock(e.lock(other, context.Background(), "n"))
	}},
	{"Rule07_HoldsMayBeUnlockedInAnyOrder", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		// Contexts of inner leases are children of the outer one's and end with it;
		// the holds do not.
		middle := e.lock(c, outer.Context(), "n", mortise.WithLease(long))
		inner := e.lock(c, middle.Context(), "n", mortise.WithLease(long))
		e.unlock(outer)
		e.holds(c, "n", 2)
		e.done("the inner hold ended", inner.Err())
		e.unlock(inner)
		e.holds(c, "n", 1)
		e.unlock(middle)
		e.free(c, "n")
	}},
	{"Rule07_ASecondUnlockOfOneLeaseReleasesNoOtherHold", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		inner := e.lock(c, outer.Context(), "n")
		e.unlock(inner)
		for range 3 {
			err := inner.Unlock(context.Background())
			e.named(err, "unlock", "n", mortise.ErrNotHeld)
			e.is("second Unlock", err, mortise.ErrReleased)
		}
		if s := e.inspect(c, "n"); s.Holds != 1 || outer.Err() != nil {
			e.Errorf("the outer hold: %+v, %v", s, outer.Err())
		}
		e.unlock(outer)
		err := outer.Unlock(context.Background())
		e.is("second Unlock of the outer lease", err, mortise.ErrNotHeld, mortise.ErrReleased)
	}},
	{"Rule07_ConcurrentUnlocksOfOneLeaseReleaseOnce", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		inner := e.lock(c, outer.Context(), "n")
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = inner.Unlock(context.Background()) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				e.is("Unlock", err, mortise.ErrNotHeld)
			}
		}
		e.errorIf(won != 1, "%d of 8 Unlocks succeeded, want 1", won)
		e.holds(c, "n", 1)
	}},
	{"Rule07_ManyGoroutinesReenterAndTheCountIsRight", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for range 6 {
					err := mortise.Do(outer.Context(), c, "n", func(ctx context.Context) error {
						return mortise.Do(ctx, c, "n", func(ctx context.Context) error { return ctx.Err() })
					}, mortise.WithWait(patience))
					if err != nil {
						e.Errorf("Do: %v", err)
						return
					}
				}
			})
		}
		wg.Wait()
		e.holds(c, "n", 1)
		e.unlock(outer)
		e.free(c, "n")
	}},
	{"Rule07_ThroughDoALockIsReleasedAlsoWhenTheWorkPanics", func(e *env) {
		c := e.client()
		func() {
			defer func() {
				e.errorIf(recover() == nil, "the panic was swallowed")
			}()
			mortise.Do(context.Background(), c, "n", func(context.Context) error { panic("work") }, mortise.WithLease(long))
		}()
		e.free(c, "n")
	}},
}
