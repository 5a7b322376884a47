package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

var rules01to04 = []test{
	{"Rule01_ExclusionHoldsAmongGoroutinesAndClients", func(e *env) {
		names := []string{"n", "m"}
		inside := make([]atomic.Int32, len(names))
		count := make([]int, len(names)) // guarded by the locks alone: the race detector looks
		const clients, goroutines, rounds = 3, 4, 8
		var wg sync.WaitGroup
		for range clients {
			c := e.client()
			for g := range goroutines {
				wg.Go(func() {
					for i := range rounds {
						k := (g + i) % len(names)
						lease, err := c.Lock(context.Background(), names[k], mortise.WithWait(patience))
						if err != nil {
							e.Errorf("Lock: %v", err)
							return
						}
						equal(e, "%d are inside", inside[k].Add(1), 1)
						count[k]++
						e.done("while it is held", lease.Err())
						inside[k].Add(-1)
						e.done("Unlock", lease.Unlock(context.Background()))
					}
				})
			}
		}
		wg.Wait()
		got, want := count[0]+count[1], clients*goroutines*rounds
		e.errorIf(got != want, "%d turns, want %d", got, want)
	}},
	{"Rule01_AFreeLockIsAcquiredWithAWaitShorterThanARoundTrip", func(e *env) {
		c, f := e.tapped()
		read, write := e.sides(c)
		semaphore := c.Semaphore("semaphore")
		e.must("TrySetPermits", second(semaphore.TrySetPermits(context.Background(), 1)))
		f.Hook(func(Call) Fate {
			return Fate{After: elapsed(20 * time.Millisecond)}
		})
		wait := mortise.WithWait(5 * time.Millisecond)
		for name, l := range map[string]mortise.Locker{
			"plain": c, "fenced": e.kind(c, mortise.Kind{Fenced: true}), "fair": e.kind(c, mortise.Kind{Fair: true}),
			"read": read, "write": write,
		} {
			lease, err := l.Lock(context.Background(), name, wait, mortise.WithLease(long))
			if err != nil {
				e.Errorf("%s: %v", name, err)
				continue
			}
			if _, err := l.Lock(context.Background(), name, wait); name != "read" {
				e.named(err, "lock", name, mortise.ErrNotAcquired)
			}
			e.unlock(lease)
		}
		all, err := mortise.LockAll(context.Background(),
			[]mortise.Part{{Locker: c, Name: "a{t}"}, {Locker: c, Name: "b{t}"}}, wait)
		e.fatalIf(err != nil, "%v", err)
		e.unlock(all)
		e.done("the semaphore", semaphore.Acquire(context.Background(), 1, wait))
	}},
	{"Rule01_TryLockOfAHeldLockIsRefusedWithWhatIsLeft", func(e *env) {
		a, b := e.client(), e.client()
		lease := e.lock(a, context.Background(), "n", mortise.WithLease(30*time.Second))
		for who, c := range map[string]*mortise.Client{"another client": b, "the holder's client": a} {
			_, err := c.TryLock(context.Background(), "n")
			e.named(err, "trylock", "n", mortise.ErrNotAcquired)
			var x *mortise.Error
			if errors.As(err, &x) && (x.Remaining <= 0 || x.Remaining > 30*time.Second) {
				e.Errorf("%s: Remaining is %v, want what is left of 30s", who, x.Remaining)
			}
		}
		e.unlock(lease)
		e.until("it is free for another", func() bool {
			got, err := b.TryLock(context.Background(), "n")
			return err == nil && got != nil
		})
	}},
	{"Rule01_TwoGoroutinesThatShareALeasesContextTakeTurns", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		var inside atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5 {
					inner, err := c.Lock(outer.Context(), "n", mortise.WithWait(patience))
					if err != nil {
						e.Errorf("Lock: %v", err)
						return
					}
					equal(e, "%d are inside", inside.Add(1), 1)
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					e.done("Unlock", inner.Unlock(context.Background()))
				}
			})
		}
		wg.Wait()
		e.holds(c, "n", 1)
		e.unlock(outer)
	}},
	{"Rule01_OnlyTheInnermostHoldIsEnteredAgain", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		inner := e.lock(c, outer.Context(), "n", mortise.WithLease(long))
		_, err := c.TryLock(outer.Context(), "n")
		e.errorIf(!errors.Is(err, mortise.ErrNotAcquired), "TryLock under the outer lease while the inner one lives: %v", err)
		waiting := locking(c, outer.Context(), "n", mortise.WithWait(patience))
		e.unlock(inner)
		e.granted("the outer lease is entered once it is the innermost", waiting)
		e.holds(c, "n", 2)
	}},
	{"Rule01_AContextOfAnotherNameOrClientDoesNotReenter", func(e *env) {
		a, b := e.client(), e.client()
		lease := e.lock(a, context.Background(), "n", mortise.WithLease(long))
		e.is("another client under the lease's context", second(b.TryLock(lease.Context(), "n")), mortise.ErrNotAcquired)
		other := e.lock(a, lease.Context(), "m", mortise.WithLease(long))
		n, m := e.inspect(a, "n"), e.inspect(a, "m")
		e.errorIf(n.Owner == m.Owner || n.Holds != 1 || m.Holds != 1,
			"n is %+v, m is %+v; want two owners with one hold each", n, m)
		// Through the context of m, n is entered again: ctx descends from its hold.
		again := e.lock(a, other.Context(), "n")
		e.holds(a, "n", 2)
		e.unlock(again)
	}},
	{"Rule01_AContextKeptPastItsLeaseConfersNothing", func(e *env) {
		a, b := e.client(), e.client()
		lease := e.lock(a, context.Background(), "n", mortise.WithLease(long))
		kept := context.WithoutCancel(lease.Context())
		e.unlock(lease)
		other := e.lock(b, context.Background(), "n", mortise.WithLease(long))
		e.is("TryLock while another client holds it", second(a.TryLock(kept, "n")), mortise.ErrNotAcquired)
		e.unlock(other)

		mine := e.lock(a, context.Background(), "n", mortise.WithLease(long))
		e.is("TryLock while a later owner of the same client holds it", second(a.TryLock(kept, "n")), mortise.ErrNotAcquired)
		e.holds(a, "n", 1)
		e.unlock(mine)
		fresh := e.lock(a, kept, "n", mortise.WithLease(long))
		e.holds(a, "n", 1)
		e.unlock(fresh)
		e.errorIf(lease.Context().Err() == nil, "the context of a lease that ended lives")
	}},
	{"Rule01_AKeyOfAnotherKindIsRefusedNotGranted", func(e *env) {
		c := e.client()
		e.store.Occupy("n")
		e.named(second(c.Lock(context.Background(), "n", mortise.WithWait(patience))), "lock", "n", mortise.ErrWrongKind)
		e.named(second(c.TryLock(context.Background(), "n")), "trylock", "n", mortise.ErrWrongKind)
		fenced, _ := c.Kind(mortise.Kind{Fenced: true})
		e.named(second(fenced.TryLock(context.Background(), "n")), "trylock", "n", mortise.ErrWrongKind)
	}},
	{"Rule01_FencedAndPlainLocksOfOneNameExcludeEachOther", func(e *env) {
		c := e.client()
		fenced, err := e.client().Kind(mortise.Kind{Fenced: true})
		e.fatalIf(err != nil, "%v", err)
		plain := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		e.is("fenced over plain", second(fenced.TryLock(context.Background(), "n")), mortise.ErrNotAcquired)
		token, has := plain.Token()
		e.errorIf(has, "a plain lease has the token %d", token)
		e.unlock(plain)
		f := e.lock(fenced, context.Background(), "n", mortise.WithLease(long))
		e.is("plain over fenced", second(c.TryLock(context.Background(), "n")), mortise.ErrNotAcquired)
		e.unlock(f)
	}},
	{"Rule01_FencingTokensRiseAcrossOwnersClientsAndAFlush", func(e *env) {
		var last int64
		var lockers []mortise.Locker
		for range 2 {
			l, err := e.client().Kind(mortise.Kind{Fenced: true})
			e.fatalIf(err != nil, "%v", err)
			lockers = append(lockers, l)
		}
		for i := range 12 {
			lease := e.lock(lockers[i%2], context.Background(), "n", mortise.WithLease(long))
			token, has := lease.Token()
			e.fatalIf(!has || token <= last, "token %d, %v after %d", token, has, last)
			inner := e.lock(lockers[i%2], lease.Context(), "n")
			if again, has := inner.Token(); !has || again != token {
				e.Errorf("a re-entry has the token %d, %v, want that of its owner, %d", again, has, token)
			}
			e.unlock(inner)
			e.unlock(lease)
			last = token
			if i%4 == 3 {
				// A counter that is gone starts at the clock in milliseconds.
				e.until("the clock is past the last token", func() bool { return time.Now().UnixMilli() > last })
				e.store.Flush()
			}
		}
	}},

	{"Rule02_TheHolderIsToldBeforeAnotherCanAcquire", func(e *env) {
		a, b := e.client(), e.client()
		for i := range 5 {
			name := fmt.Sprintf("n%d", i)
			lease := e.brief(a, name, 200*time.Millisecond)
			got := e.lock(b, context.Background(), name, mortise.WithLease(long))
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
		lease := e.lock(c, context.Background(), "n", mortise.WithLease(lasts))
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
		lease, err := c.TryLock(context.Background(), "n", mortise.WithLease(100*time.Millisecond))
		if err == nil {
			e.Errorf("TryLock succeeded with a lease that was over; its Err is %v", lease.Err())
		} else {
			e.named(err, "trylock", "n", mortise.ErrUnavailable)
		}
	}},
	{"Rule02_AHolderThatIsCutOffIsToldBeforeAWaiterGetsIt", func(e *env) {
		a, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		b := e.client()
		lease := e.lock(a, context.Background(), "n")
		f.Hook(func(Call) Fate { return Fate{Refused: true} })
		e.granted("the waiter gets it", locking(b, context.Background(), "n", mortise.WithWait(patience)))
		e.is("Err of the holder that was cut off", lease.Err(), mortise.ErrLost)
		receive(e, "its context ends", lease.Context().Done())
	}},
	{"Rule02_ARenewalConfirmedTooLateRevivesNothing", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(2 * watchdog))
		late := make(chan struct{})
		f.Hook(on(Fate{After: late}, OpRenew))
		lease := e.lock(c, context.Background(), "n")
		receive(e, "the lease ends", lease.Context().Done())
		e.is("Err", lease.Err(), mortise.ErrLost)
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
		lease := e.lock(c, context.Background(), "n")
		e.store.Down()
		down := time.Now()
		receive(e, "the lease ends", lease.Context().Done())
		e.is("Err", lease.Err(), mortise.ErrLost)
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
			Lost: func(ev mortise.LostEvent) {
				if ev.Name == "n" && errors.Is(ev.Err, mortise.ErrLost) {
					lost.Add(1)
				}
			},
		}))
		for _, remove := range []func(){func() { e.store.Delete("n") }, e.store.Flush, func() { e.store.Occupy("n") }} {
			before := lost.Load()
			lease := e.lock(c, context.Background(), "n")
			remove()
			begin := time.Now()
			receive(e, "the lease ends", lease.Context().Done())
			e.is("Err", lease.Err(), mortise.ErrLost)
			e.is("cause", context.Cause(lease.Context()), mortise.ErrLost)
			// A third of the timeout; the lease itself would run out after all of it.
			d := time.Since(begin)
			e.errorIf(d > watchdog*7/8, "it was told after %v, want by the next renewal", d)
			e.until("the observer is told", func() bool { return lost.Load() > before })
		}
	}},

	{"Rule03_TheWatchdogKeepsTheLockBeyondItsLease", func(e *env) {
		var renewed atomic.Int32
		a := e.client(mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Renewed: func(mortise.RenewedEvent) { renewed.Add(1) },
		}))
		b := e.client()
		lease := e.lock(a, context.Background(), "n")
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
		ctx, cancel := context.WithCancel(context.Background())
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
		e.atMost("it lived for %v", time.Since(taken), 5*time.Second)
		e.atLeast("it ended after %v of 1.5s", time.Since(begin), 1400*time.Millisecond)
		e.is("Err", lease.Err(), mortise.ErrLost)
		for _, call := range f.Calls(OpRenew) {
			e.errorIf(!call.Asks, "it was renewed: %+v", call)
		}
		e.free(c, "n")
	}},
	{"Rule03_AReentryKeepsTheLongerTime", func(e *env) {
		c := e.client()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(60*time.Second))
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
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(60*time.Second))
		inner := e.lock(c, outer.Context(), "n", mortise.WithLease(time.Second))
		e.unlock(inner)
		s := e.inspect(c, "n")
		e.errorIf(s.Remaining < 30*time.Second || s.Remaining > 60*time.Second || s.Holds != 1,
			"after the inner Unlock the record is %+v", s)
		e.done("the outer lease ended", outer.Err())
		e.unlock(outer)
	}},
	{"Rule03_AWatchedReentryRenewsALeaseOfFixedTime", func(e *env) {
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(watchdog))
		inner := e.lock(c, outer.Context(), "n")
		e.always(watchdog*5/4, "both hold", func() bool { return outer.Err() == nil && inner.Err() == nil })
		e.unlock(inner)
		// From here on nothing renews it.
		receive(e, "the outer lease runs out", outer.Context().Done())
		e.is("Err", outer.Err(), mortise.ErrLost)
	}},
	{"Rule03_WithMaxHoldEndsTheLeaseOfAHolderThatHangs", func(e *env) {
		const most = watchdog * 3 / 2
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		begin := time.Now()
		lease := e.lock(c, context.Background(), "n", mortise.WithMaxHold(most))
		taken := time.Now()
		got := e.granted("another gets it", locking(e.client(), context.Background(), "n", mortise.WithWait(patience)))
		e.is("Err", lease.Err(), mortise.ErrLost)
		d := got.at.Sub(begin)
		e.errorIf(d < most-100*time.Millisecond, "it ended after %v of %v", d, most)
		d = got.at.Sub(taken)
		e.errorIf(d > most+5*time.Second, "another got it only after %v", d)
	}},

	{"Rule04_ADeadHoldersLockFreesItselfAndAWaiterTakesItThen", func(e *env) {
		dead, _ := e.session() // it takes the lock and never comes back
		c, f := e.tapped()
		begin := time.Now()
		dead.take("n", "dead:1", 700*time.Millisecond)
		taken := time.Now()
		got := e.granted("the waiter gets it", locking(c, context.Background(), "n"))
		d := got.at.Sub(begin)
		e.errorIf(d < 690*time.Millisecond, "it was granted %v into a lease of 700ms", d)
		d = got.at.Sub(taken)
		e.errorIf(d > 4*time.Second, "it was granted only %v after the lease of 700ms began", d)
		n := f.Count(OpAcquire)
		e.errorIf(n > 6, "the waiter asked %d times: it polls", n)
	}},
	{"Rule04_TheLockOfAClientThatWasAbandonedFreesItself", func(e *env) {
		dead, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		e.lock(dead, context.Background(), "n")
		// As if the process were gone: nothing of it reaches the store any more.
		f.Hook(func(Call) Fate { return Fate{Refused: true} })
		c := e.client()
		first := locking(c, context.Background(), "n", mortise.WithWait(patience))
		second := locking(c, context.Background(), "n", mortise.WithWait(patience))
		for range 2 {
			select {
			case got := <-first:
				e.fatalIf(got.err != nil, "Lock: %v", got.err)
				e.unlock(got.lease)
				first = nil
			case got := <-second:
				e.fatalIf(got.err != nil, "Lock: %v", got.err)
				e.unlock(got.lease)
				second = nil
			case <-time.After(patience):
				e.Fatal("a waiter never got the lock of a dead holder")
			}
		}
	}},
	{"Rule04_AWaiterOutlastsRenewalsAndThenTakesADeadHoldersLock", func(e *env) {
		holder, _ := e.session()
		holder.take("n", "dead:1", 500*time.Millisecond)
		waiting := locking(e.client(), context.Background(), "n", mortise.WithWait(patience))
		for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(50 * time.Millisecond) {
			if !holder.renew("n", "dead:1", 500*time.Millisecond) {
				break // starved for a whole lease; it has died a little early
			}
			e.fatalIf(len(waiting) > 0 && holder.record("n").Owner == "dead:1",
				"the waiter returned while another holds the lock")
		}
		e.granted("the waiter gets it", waiting)
	}},
}
