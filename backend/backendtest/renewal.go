package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

// renewalTests are about leases: their renewal, their end and their loss.
var renewalTests = []test{
	{"Rule02_TheHolderIsToldBeforeAnotherCanAcquire", func(e *env) {
		a, b := e.client(), e.client()
		for i := range 5 {
			name := fmt.Sprintf("n%d", i)
			lease := e.brief(a, name, 200*time.Millisecond)
			got := e.lock(b, background, name, mortise.WithLease(long))
			e.is("at the moment another has it, Err", lease.Err(), mortise.ErrLost)
			receive(e, "the holder's context ends", lease.Context().Done())
			e.is("its cause", context.Cause(lease.Context()), mortise.ErrLost)
			e.unlock(got)
		}
	}},
	{"Rule02_TheDeadlineCountsFromBeforeTheRequestWasSent", func(e *env) {
		c, f := e.tapped()
		// What the reply is held for is also what a lease that counted from it would be longer.
		const lasts, held = 7 * time.Second, 4 * time.Second
		var sent time.Time
		f.Hook(func(call Call) Fate {
			if call.Op != OpAcquire {
				return Fate{}
			}
			sent = time.Now()
			return Fate{After: elapsed(held)}
		})
		lease := e.lock(c, background, "n", mortise.WithLease(lasts))
		d := time.Since(sent)
		e.fatalIf(d < held, "the reply was not held: %v", d)
		receive(e, "the lease ends", lease.Context().Done())
		ended := time.Now()
		time.Sleep(time.Until(sent.Add(lasts - 10*time.Millisecond)))
		e.is("10 ms before the store's record can end, Err", lease.Err(), mortise.ErrLost)
		d = ended.Sub(sent)
		e.errorIf(d > lasts+held-lasts/50, "it ended only %v after it was asked for, want within the lease of %v", d, lasts)
	}},
	{"Rule02_AGrantThatArrivesAfterItsLeaseIsNoLease", func(e *env) {
		c, f := e.tapped()
		f.Hook(func(call Call) Fate {
			if call.Op != OpAcquire {
				return Fate{}
			}
			return Fate{After: elapsed(250 * time.Millisecond)}
		})
		lease, err := c.TryLock(background, "n", mortise.WithLease(100*time.Millisecond))
		if err == nil {
			e.Errorf("TryLock succeeded with a lease that was over; its Err is %v", lease.Err())
		} else {
			e.named(err, "trylock", "n", mortise.ErrUnavailable)
		}
	}},
	{"Rule02_AHolderThatIsCutOffIsToldBeforeAWaiterGetsIt", func(e *env) {
		a, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		b := e.client()
		lease := e.lock(a, background, "n")
		f.Hook(func(Call) Fate { return Fate{Refused: true} })
		e.granted("the waiter gets it", locking(b, background, "n", mortise.WithWait(patience)))
		e.is("Err of the holder that was cut off", lease.Err(), mortise.ErrLost)
		receive(e, "its context ends", lease.Context().Done())
	}},
	{"Rule02_ARenewalConfirmedTooLateRevivesNothing", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(2 * watchdog))
		late := f.holds(replyLate, OpRenew)
		lease := e.lock(c, background, "n")
		e.lost(lease)
		close(late)
		e.until("the confirmation arrived", func() bool {
			for _, call := range f.Calls(OpRenew) {
				if call.Ended == 0 {
					return false
				}
			}
			return f.Count(OpRenew) > 0
		})
		e.always(100*time.Millisecond, "the lease stays lost", func() bool { return errors.Is(lease.Err(), mortise.ErrLost) })
	}},
	{"Rule02_ALeaseEndsWhenTheStoreGoesAway", func(e *env) {
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		begin := time.Now()
		lease := e.lock(c, background, "n")
		e.store.Down()
		down := time.Now()
		e.lost(lease)
		d := time.Since(down)
		e.errorIf(d > watchdog+5*time.Second,
			"it ended %v after the store went away, want within the watchdog timeout of %v", d, watchdog)
		d = time.Since(begin)
		e.errorIf(d < watchdog/2, "it ended %v after it began, though %v were confirmed", d, watchdog)
	}},
	{"Rule02_AHolderWhoseRecordIsRemovedIsTold", func(e *env) {
		var lost atomic.Int32
		const watchdog = 2 * watchdog
		c := e.client(mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Lost: func(ev mortise.Event) {
				if ev.Name == "n" && errors.Is(ev.Err, mortise.ErrLost) {
					lost.Add(1)
				}
			},
		}))
		for _, remove := range []func(){func() { e.store.Delete("n") }, e.store.Flush, func() { e.store.Occupy("n") }} {
			before := lost.Load()
			lease := e.lock(c, background, "n")
			remove()
			begin := time.Now()
			e.lost(lease)
			e.is("cause", context.Cause(lease.Context()), mortise.ErrLost)
			// A third of the timeout; the lease itself would run out after all of it.
			e.tookAtMost("it was told after %v", begin, watchdog*7/8)
			e.until("the observer is told", func() bool { return lost.Load() > before })
		}
	}},
	{"Rule03_TheWatchdogKeepsTheLockBeyondItsLease", func(e *env) {
		a, renewed := renewing(e)
		b := e.client()
		lease := e.lock(a, background, "n")
		begin := time.Now()
		for time.Since(begin) < watchdog*3/2 {
			err := lease.Err()
			e.fatalIf(err != nil, "after %v: %v", time.Since(begin), err)
			s := e.inspect(b, "n")
			e.fatalIf(!s.Held || s.Client != a.ID() || s.Remaining > watchdog,
				"after %v the record is %+v", time.Since(begin), s)
			time.Sleep(20 * time.Millisecond)
		}
		// Every third of the timeout: four times by now, and not all the time.
		e.until("it is renewed three times", func() bool { return renewed.Load() >= 3 || lease.Err() != nil })
		n := renewed.Load()
		e.errorIf(time.Duration(n) > 6*time.Since(begin)/watchdog,
			"renewed %d times in %v with a timeout of %v", n, time.Since(begin), watchdog)
		e.unlock(lease)
	}},
	{"Rule03_TheCallersContextEndsNeitherLeaseNorRenewal", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		ctx, cancel := context.WithCancel(background)
		lease := e.lock(c, ctx, "n")
		cancel()
		receive(e, "the lease's context ends with its parent", lease.Context().Done())
		err := lease.Err()
		e.errorIf(err != nil, "Err: %v, want none: the lock is held", err)
		e.until("it is renewed twice", func() bool { return f.Count(OpRenew) >= 2 })
		s := e.inspect(c, "n")
		e.errorIf(!s.Held || !s.Mine, "the record is %+v", s)
		e.unlock(lease)
	}},
	{"Rule03_WithLeaseIsNeverRenewed", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(time.Second))
		begin := time.Now()
		lease := e.brief(c, "n", 1500*time.Millisecond)
		taken := time.Now()
		receive(e, "the lease ends", lease.Context().Done())
		e.tookAtMost("it lived for %v", taken, 5*time.Second)
		atLeast(e, "it ended after %v of 1.5s", time.Since(begin), 1400*time.Millisecond)
		e.is("Err", lease.Err(), mortise.ErrLost)
		for _, call := range f.Calls(OpRenew) {
			e.errorIf(!call.Asks, "it was renewed: %+v", call)
		}
		e.free(c, "n")
	}},
	{"Rule03_AReentryKeepsTheLongerTime", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, "n", mortise.WithLease(60*time.Second))
		inner := e.lock(c, outer.Context(), "n", mortise.WithLease(500*time.Millisecond))
		s := e.inspect(c, "n")
		e.errorIf(s.Remaining < 30*time.Second || s.Holds != 2, "a short re-entry made the record %+v", s)
		longer := e.lock(c, inner.Context(), "n", mortise.WithLease(long))
		s = e.inspect(c, "n")
		e.errorIf(s.Remaining < 2*time.Minute || s.Holds != 3, "a long re-entry made the record %+v", s)
		time.Sleep(600 * time.Millisecond)
		for i, l := range []*mortise.Lease{outer, inner, longer} {
			err := l.Err()
			e.errorIf(err != nil, "hold %d ended: %v; the lock is held for the longest of their leases", i+1, err)
		}
	}},
	{"Rule03_APartialUnlockLeavesTheTimeAlone", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, "n", mortise.WithLease(60*time.Second))
		e.unlock(e.lock(c, outer.Context(), "n", mortise.WithLease(time.Second)))
		s := e.inspect(c, "n")
		e.errorIf(s.Remaining < 30*time.Second || s.Remaining > 60*time.Second || s.Holds != 1,
			"after the inner Unlock the record is %+v", s)
		e.done("the outer lease ended", outer.Err())
		e.unlock(outer)
	}},
	{"Rule03_AWatchedReentryRenewsALeaseOfFixedTime", func(e *env) {
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		outer := e.lock(c, background, "n", mortise.WithLease(watchdog))
		inner := e.lock(c, outer.Context(), "n")
		e.always(watchdog*5/4, "both hold", func() bool { return outer.Err() == nil && inner.Err() == nil })
		e.unlock(inner)
		// From here on nothing renews it.
		e.lost(outer)
	}},
	{"Rule03_WithMaxHoldEndsTheLeaseOfAHolderThatHangs", func(e *env) {
		const most = watchdog * 3 / 2
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		begin := time.Now()
		lease := e.lock(c, background, "n", mortise.WithMaxHold(most))
		taken := time.Now()
		got := e.granted("another gets it", locking(e.client(), background, "n", mortise.WithWait(patience)))
		e.is("Err", lease.Err(), mortise.ErrLost)
		d := got.at.Sub(begin)
		e.errorIf(d < most-100*time.Millisecond, "it ended after %v of %v", d, most)
		atMost(e, "another got it only after %v", got.at.Sub(taken), most+5*time.Second)
	}},
	{"Rule04_ADeadHoldersLockFreesItselfAndAWaiterTakesItThen", func(e *env) {
		dead, _ := e.session() // it takes the lock and never comes back
		c, f := e.tapped()
		begin := time.Now()
		dead.take("n", "dead:1", 700*time.Millisecond)
		taken := time.Now()
		got := e.granted("the waiter gets it", locking(c, background, "n"))
		atLeast(e, "it was granted %v into a lease of 700ms", got.at.Sub(begin), 690*time.Millisecond)
		d := got.at.Sub(taken)
		e.errorIf(d > 4*time.Second, "it was granted only %v after the lease of 700ms began", d)
		atMost(e, "the waiter asked %d times: it polls", f.Count(OpAcquire), 6)
	}},
	{"Rule04_TheLockOfAClientThatWasAbandonedFreesItself", func(e *env) {
		dead, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		e.lock(dead, background, "n")
		// As if the process were gone: nothing of it reaches the store any more.
		f.Hook(func(Call) Fate { return Fate{Refused: true} })
		c := e.client()
		e.servedAll("a waiter gets the lock of a dead holder",
			several(2, func() <-chan result { return locking(c, background, "n", mortise.WithWait(patience)) })...)
	}},
	{"Rule04_AWaiterOutlastsRenewalsAndThenTakesADeadHoldersLock", func(e *env) {
		holder, _ := e.session()
		holder.take("n", "dead:1", 500*time.Millisecond)
		waiting := locking(e.client(), background, "n", mortise.WithWait(patience))
		for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(50 * time.Millisecond) {
			if !holder.renew("n", "dead:1", 500*time.Millisecond) {
				break // starved for a whole lease; it has died a little early
			}
			e.fatalIf(len(waiting) > 0 && holder.record("n").Owner == "dead:1",
				"the waiter returned while another holds the lock")
		}
		e.granted("the waiter gets it", waiting)
	}},
	{"Rule05_ARenewalInFlightCannotOutliveTheRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		late := f.holds(requestLate, OpRenew)
		lease := e.lock(c, background, "n")
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
			lease := e.lock(c, background, fmt.Sprintf("n%d", i))
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
		reply := f.holds(replyLate, OpAcquire)
		e.is("Lock", e.abandon(f, background, locks(c, "n"), OpAcquire), context.Canceled)
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
			ctx, cancel := context.WithCancel(background)
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
			e.unlock(e.lock(other, background, fmt.Sprintf("n%d", i)))
		}
		renewals := slices.DeleteFunc(f.Calls(OpRenew), func(r Call) bool { return r.Asks })
		equal(e, "%d renewals were sent", len(renewals), 0)
	}},
}
