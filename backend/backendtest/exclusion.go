package backendtest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
)

// exclusionTests are about one owner at a time, and about releases by other owners.
var exclusionTests = []test{
	{"Rule01_ExclusionHoldsAmongGoroutinesAndClients", func(e *env) {
		names := []string{"n", "m"}
		inside := make([]atomic.Int32, len(names))
		count := make([]int, len(names)) // guarded by the locks alone: the race detector looks
		const clients, goroutines, rounds = 3, 4, 8
		all := several(clients, func() *mortise.Client { return e.client() })
		e.turns(clients*goroutines, rounds, func(g, i int) error {
			k := (g/clients + i) % len(names)
			return e.inside(all[g%clients], background, names[k], func(lease *mortise.Lease) {
				equal(e, "%d are inside", inside[k].Add(1), 1)
				count[k]++
				e.done("while it is held", lease.Err())
				inside[k].Add(-1)
			})
		})
		got, want := count[0]+count[1], clients*goroutines*rounds
		e.errorIf(got != want, "%d turns, want %d", got, want)
	}},
	{"Rule01_AFreeLockIsAcquiredWithAWaitShorterThanARoundTrip", func(e *env) {
		c, f := e.tapped()
		read, write := e.sides(c)
		semaphore := semaphore.NewCounting(c, "counting semaphore")
		e.must("TrySetPermits", second(semaphore.TrySetPermits(background, 1)))
		f.Hook(func(Call) Fate {
			return Fate{After: elapsed(20 * time.Millisecond)}
		})
		wait := mortise.WithWait(5 * time.Millisecond)
		for name, l := range map[string]mortise.Locker{
			"plain": c, "fenced": e.kind(c, mortise.Fenced()), "fair": e.kind(c, mortise.Fair()),
			"read": read, "write": write,
		} {
			lease, err := l.Lock(background, name, wait, mortise.WithLease(long))
			if err != nil {
				e.Errorf("%s: %v", name, err)
				continue
			}
			if _, err := l.Lock(background, name, wait); name != "read" {
				e.named(err, "lock", name, mortise.ErrNotAcquired)
			}
			e.unlock(lease)
		}
		all := value(c.LockAll(background, []string{"a{t}", "b{t}"}, wait)).in(e)
		e.unlock(all)
		e.done("the semaphore", semaphore.Acquire(background, 1, wait))
	}},
	{"Rule01_TryLockOfAHeldLockIsRefusedWithWhatIsLeft", func(e *env) {
		a, b := e.client(), e.client()
		lease := e.lock(a, background, "n", mortise.WithLease(30*time.Second))
		for who, c := range map[string]*mortise.Client{"another client": b, "the holder's client": a} {
			e.refusedFor(who, second(c.TryLock(background, "n")), "trylock", 30*time.Second)
		}
		e.unlock(lease)
		e.until("it is free for another", func() bool {
			got, err := b.TryLock(background, "n")
			return err == nil && got != nil
		})
	}},
	{"Rule01_TwoGoroutinesThatShareALeasesContextTakeTurns", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, "n", mortise.WithLease(long))
		var inside atomic.Int32
		e.turns(4, 5, func(int, int) error {
			return e.inside(c, outer.Context(), "n", func(*mortise.Lease) {
				equal(e, "%d are inside", inside.Add(1), 1)
				time.Sleep(time.Millisecond)
				inside.Add(-1)
			})
		})
		e.holds(c, "n", 1)
		e.unlock(outer)
	}},
	{"Rule01_OnlyTheInnermostHoldIsEnteredAgain", func(e *env) {
		c := e.client()
		outer, inner := e.lockTwice(c)
		e.is("TryLock under the outer lease while the inner one lives",
			second(c.TryLock(outer.Context(), "n")), mortise.ErrNotAcquired)
		waiting := locking(c, outer.Context(), "n", mortise.WithWait(patience))
		e.unlock(inner)
		e.granted("the outer lease is entered once it is the innermost", waiting)
		e.holds(c, "n", 2)
	}},
	{"Rule01_AContextOfAnotherNameOrClientDoesNotReenter", func(e *env) {
		a, b := e.client(), e.client()
		lease := e.lock(a, background, "n", mortise.WithLease(long))
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
		lease := e.lock(a, background, "n", mortise.WithLease(long))
		kept := context.WithoutCancel(lease.Context())
		e.unlock(lease)
		other := e.lock(b, background, "n", mortise.WithLease(long))
		e.is("TryLock while another client holds it", second(a.TryLock(kept, "n")), mortise.ErrNotAcquired)
		e.unlock(other)

		mine := e.lock(a, background, "n", mortise.WithLease(long))
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
		e.named(second(c.Lock(background, "n", mortise.WithWait(patience))), "lock", "n", mortise.ErrWrongKind)
		e.named(second(c.TryLock(background, "n")), "trylock", "n", mortise.ErrWrongKind)
		e.named(second(c.TryLock(background, "n", mortise.Fenced())), "trylock", "n", mortise.ErrWrongKind)
	}},
	{"Rule06_UnlockOfALostLockTouchesNoOtherLock", func(e *env) {
		a, b := e.client(), e.client()
		lost := e.brief(a, "n", 500*time.Millisecond)
		held := e.lock(b, background, "n", mortise.WithLease(long))
		err := lost.Unlock(background)
		e.named(err, "unlock", "n", mortise.ErrLost)
		e.is("Unlock", err, mortise.ErrLost)
		s := e.inspect(b, "n")
		e.errorIf(!s.Held || !s.Mine || s.Holds != 1, "the next holder's record is %+v", s)
		e.done("the next holder's lease", held.Err())
		e.unlock(held)
	}},
	{"Rule06_UnlockOfALockThatWasTakenAwayIsNotHeld", func(e *env) {
		a, b := e.client(), e.client()
		for how, remove := range map[string]func(){
			"deleted": func() { e.store.Delete("n") },
			"flushed": func() { e.store.Flush() },
			"forced": func() {
				ok, err := b.ForceUnlock(background, "n", "")
				e.errorIf(!ok || err != nil, "ForceUnlock: %v, %v", ok, err)
			},
		} {
			lease := e.lock(a, background, "n", mortise.WithLease(long))
			remove()
			next := e.lock(b, background, "n", mortise.WithLease(long))
			e.named(lease.Unlock(background), "unlock", "n", mortise.ErrLost)
			e.errorIf(lease.Err() == nil, "%s: the lease has no error after Unlock", how)
			s := e.inspect(a, "n")
			e.errorIf(s.Client != b.ID() || s.Holds != 1, "%s: the next holder's record is %+v", how, s)
			e.unlock(next)
		}
	}},
	{"Rule06_ForceUnlockFreesALockAndWakesItsWaiter", func(e *env) {
		a, b := e.client(), e.client()
		ok, err := b.ForceUnlock(background, "n", "")
		e.errorIf(ok || err != nil, "ForceUnlock of a free lock: %v, %v", ok, err)
		lease := e.lock(a, background, "n", mortise.WithLease(long))
		waiting := locking(b, background, "n", mortise.WithWait(patience))
		e.until("the waiter waits", func() bool { return e.inspect(a, "n").Held })
		ok, err = a.ForceUnlock(background, "n", "")
		e.errorIf(!ok || err != nil, "ForceUnlock: %v, %v", ok, err)
		e.granted("the waiter gets it", waiting)
		e.is("Err of the lease of the client that forced it", lease.Err(), mortise.ErrLost)
	}},
	{"Rule06_ForceUnlockOfAnOwnerRemovesNoOtherOwnersLock", func(e *env) {
		a, b := e.client(), e.client()
		last := e.lock(a, background, "n", mortise.WithLease(long))
		seen := e.inspect(b, "n").Owner
		e.unlock(last)
		lease := e.lock(a, background, "n", mortise.WithLease(long))
		ok, err := b.ForceUnlock(background, "n", seen)
		e.errorIf(ok || err != nil, "ForceUnlock of the owner before: %v, %v", ok, err)
		ok, err = a.ForceUnlock(background, "n", seen)
		e.errorIf(ok || err != nil || lease.Err() != nil,
			"ForceUnlock by the holder's client: %v, %v; lease: %v", ok, err, lease.Err())
		ok, err = a.ForceUnlock(background, "n", e.inspect(b, "n").Owner)
		e.errorIf(!ok || err != nil, "ForceUnlock of the owner: %v, %v", ok, err)
		e.is("Err of the lease of the client that forced it", lease.Err(), mortise.ErrLost)
	}},
	{"Rule06_ALeaseThatEndedHereStillSendsItsRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		// Renewals reach the store and their replies do not reach the holder: the
		// lease ends here while the record lives on.
		f.Hook(func(call Call) Fate { return Fate{Lost: call.Op == OpRenew} })
		lease := e.lock(c, background, "n")
		receive(e, "the lease ends", lease.Context().Done())
		s := e.inspect(e.client(), "n")
		e.fatalIf(!s.Held || s.Remaining < 100*time.Millisecond, "the record is %+v, want it alive", s)
		e.is("Unlock", lease.Unlock(background), mortise.ErrLost)
		if s := e.inspect(c, "n"); s.Held {
			e.Errorf("after Unlock the key is stranded: %+v", s)
		}
	}},
}
