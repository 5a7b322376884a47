package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// nests reports whether the backend has locks of several owners; where it has none, its clients say so.
func (e *env) nests() bool {
	e.Helper()
	if e.bare().Store.Capabilities().Delegation != nil {
		return true
	}
	_, err := delegation.NewContext(background, e.client(), delegation.Delegation{Name: "n", Owner: "a:1", Hold: 1})
	e.named(err, "withdelegations", "", mortise.ErrInvalid)
	return false
}

// enterUnder asks to enter under an owner.
func (s *raw) enterUnder(name, owner, under string, holds int, lease time.Duration) anykind.AcquireReply {
	s.e.Helper()
	return call(s.e, s.Enter, backend.EnterRequest{Name: name, Owner: owner, Lease: lease, Under: under, Holds: holds})
}

// takeUnder enters, and must.
func (s *raw) takeUnder(name, owner, under string, lease time.Duration) {
	s.e.Helper()
	r := s.enterUnder(name, owner, under, 1, lease)
	s.e.fatalIf(!r.Granted, "Acquire(%q, %s) under %s: %+v, want it granted", name, owner, under, r)
}

// refusedUnder asks to enter, and must be refused for at most so long.
func (s *raw) refusedUnder(name, owner, under string, most time.Duration) {
	s.e.Helper()
	r := s.enterUnder(name, owner, under, 1, long)
	s.e.errorIf(r.Granted || r.Absent || r.Remaining <= 0 || r.Remaining > most,
		"Acquire(%q, %s) under %s: %+v, want it refused for up to %v", name, owner, under, r, most)
}

// absentUnder asks to enter, and must hear that there is nothing to enter under.
func (s *raw) absentUnder(name, owner, under string, holds int) {
	s.e.Helper()
	r := s.enterUnder(name, owner, under, holds, long)
	s.e.errorIf(r.Granted || !r.Absent,
		"Acquire(%q, %s) under %d of %s: %+v, want it absent", name, owner, holds, under, r)
}

func (s *raw) releaseNested(name, owner string, keep int) bool {
	s.e.Helper()
	return call(s.e, s.Release, anykind.ReleaseRequest{Kind: backend.KindDelegated, Name: name, Owner: owner,
		Keep: keep}).Held
}

func (s *raw) renewNested(name, owner string, lease time.Duration) bool {
	s.e.Helper()
	return renewed(s.e, s.Store, anykind.RenewRequest{Kind: backend.KindDelegated, Name: name, Owner: owner, Lease: lease})
}

// watchUnder has the session watch for the turn to enter under an owner.
func (s *raw) watchUnder(h *ears, name, owner string) {
	s.e.Helper()
	t := backend.Topic{Kind: backend.KindDelegated, Name: name, Owner: owner}
	before := h.count("watching " + said(t))
	s.Subscribe(t)
	s.e.until("watching "+said(t), func() bool { return h.count("watching "+said(t)) > before })
}

// grain is what a store's clock that counts in milliseconds may take off a lease; a holder deducts more.
const grain = 5 * time.Millisecond

// nestTests are about locks that are entered from another process. They do nothing on a backend that has none.
var nestTests = where((*env).nests, "delegation", []test{
	{"Port_OneEntersUnderTheOwnerThatCameLast", func(e *env) {
		s := e.bare()
		s.absentUnder("n", "b:1", "a:1", 1)
		s.take("n", "a:1", long)
		s.absentUnder("n", "b:1", "a:1", 2) // a hold that has ended
		s.absentUnder("n", "b:1", "a:2", 1)
		s.takeUnder("n", "b:1", "a:1", long)
		s.refusedUnder("n", "c:1", "a:1", long)
		s.takeUnder("n", "c:1", "b:1", long)
		s.refusedUnder("n", "d:1", "a:1", long)
		s.refusedUnder("n", "d:1", "b:1", long)
		e.errorIf(s.acquire("n", "x:1", long).Granted, "a competitor was let in")
		if !s.releaseNested("n", "b:1", 0) { // before the one that entered under it
			e.Error("b:1 does not hold it")
		}
		s.refusedUnder("n", "d:1", "a:1", long)
		s.absentUnder("n", "d:1", "b:1", 1)
		s.releaseNested("n", "c:1", 0)
		s.takeUnder("n", "d:1", "a:1", long)
		s.releaseNested("n", "a:1", 0)
		e.errorIf(s.acquire("n", "x:1", long).Granted, "a competitor was let in while the lock is entered")
		s.takeUnder("n", "e:1", "d:1", long)
		s.releaseNested("n", "e:1", 0)
		s.releaseNested("n", "d:1", 0)
		s.isFree("n")
		s.take("n", "x:1", long)
	}},
	{"Port_AReleaseOfADelegatedHoldThatArrivesLateMakesNoDelegationGoodAgain", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long)
		s.reenter("n", "a:1", 3, long)
		e.fatalIf(!s.enterUnder("n", "b:1", "a:1", 3, long).Granted, "b:1 is not let in")
		s.releaseNested("n", "b:1", 0)
		for _, keep := range []int{2, 1, 2} { // the last is the first once more, and late
			e.errorIf(!s.releaseNested("n", "a:1", keep), "a:1 does not hold it")
		}
		s.absentUnder("n", "c:1", "a:1", 2)
		s.takeUnder("n", "c:1", "a:1", long)
	}},
	{"Port_ARequestToEnterCountsOnce", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long)
		for range 3 {
			s.takeUnder("n", "b:1", "a:1", long)
		}
		e.errorIf(!s.releaseNested("n", "b:1", 0) || s.releaseNested("n", "b:1", 0), "one release is not enough, or too much")
		s.takeUnder("n", "c:1", "a:1", long)
	}},
	{"Port_OnlyTheInnermostHoldIsEnteredUnder", func(e *env) {
		s, h := e.session()
		s.take("n", "a:1", long)
		s.reenter("n", "a:1", 2, long)
		r := s.enterUnder("n", "b:1", "a:1", 1, long)
		e.errorIf(r.Granted || r.Absent || r.AskAfter <= 0 || r.AskAfter > backend.HoldsLook,
			"under the outer hold: %+v, want it refused with a time to look", r)
		s.watchUnder(h, "n", "a:1")
		s.releaseNested("n", "a:1", 1)
		e.until("the waiter is told that the count was set", func() bool { return h.count("released n a:1") > 0 })
		s.takeUnder("n", "b:1", "a:1", long)
		s.heldBy("n", "a:1", 1)
	}},
	{"Port_EachOwnersLeaseEndsByItself", func(e *env) {
		s := e.bare()
		const lease = 2 * time.Second
		// The one that entered dies.
		s.take("n", "a:1", long)
		began := time.Now()
		s.takeUnder("n", "b:1", "a:1", lease)
		s.refusedUnder("n", "c:1", "a:1", lease)
		e.until("the lease of one that died is over",
			func() bool { return s.enterUnder("n", "c:1", "a:1", 1, lease).Granted })
		atLeast(e, "entered after %v, before the lease was over", time.Since(began), lease-grain)
		e.errorIf(s.renewNested("n", "b:1", long) || s.releaseNested("n", "b:1", 0), "one whose lease is over still holds it")
		s.releaseNested("n", "c:1", 0)
		s.releaseNested("n", "a:1", 0)

		// The one that it entered under dies: it is gone when its lease is over, and the lock then with the other.
		began = time.Now()
		s.take("m", "a:1", lease)
		s.takeUnder("m", "b:1", "a:1", long)
		e.until("the lease of the first is over", func() bool { return s.enterUnder("m", "c:1", "a:1", 1, long).Absent })
		atLeast(e, "gone after %v, before its lease was over", time.Since(began), lease-grain)
		e.errorIf(!s.renewNested("m", "b:1", long), "the first one's death took the other's hold")
		s.releaseNested("m", "b:1", 0)
		s.isFree("m")
	}},
	{"Port_ADeadOwnerIsNotKeptAliveByOthers", func(e *env) {
		s := e.bare()
		const lease = 4 * time.Second
		began := time.Now()
		s.take("n", "a:1", lease)
		s.takeUnder("n", "b:1", "a:1", lease)
		e.fatalIf(!s.renewNested("n", "b:1", long), "b:1 does not hold it")
		s.remains("n", long/2, long)
		s.releaseNested("n", "b:1", 0)
		rec := s.record("n")
		e.errorIf(!rec.Held && time.Since(began) < lease || rec.Remaining > lease,
			"the record is %+v, want what is left of %v", rec, lease)
		e.until("the lock is free", func() bool { return s.acquire("n", "x:1", long).Granted })
		atLeast(e, "free after %v, before the lease was over", time.Since(began), lease-grain)
	}},
	{"Port_ARenewalOfOneOfSeveralIsItsOwn", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long/4)
		s.takeUnder("n", "b:1", "a:1", long)
		e.fatalIf(!s.renewNested("n", "a:1", long/3) || !s.renewNested("n", "a:1", 0) ||
			!s.renewNested("n", "b:1", time.Second),
			"a holder is told that it holds nothing")
		s.releaseNested("n", "b:1", 0)
		s.remains("n", long/4, long/3)
		// Alone again it is like any other, by either kind.
		e.errorIf(!s.renew("n", "a:1", long) || !s.renewNested("n", "a:1", long), "the one that is left does not hold it")
		rec := s.record("n")
		e.errorIf(rec.Remaining < long/2 || rec.Owner != "a:1" || rec.Holds != 1,
			"the record is %+v, want a lease of %v", rec, long)
		s.takeUnder("n", "c:1", "a:1", time.Second)
		s.remains("n", long/2, long)
		s.releaseNested("n", "c:1", 0)
		e.errorIf(!s.releaseNested("n", "a:1", 0) || s.record("n").Held, "it is held though all have gone")
	}},
	{"Port_EnteringAndLeavingIsAnnouncedToTheOwnersItConcerns", func(e *env) {
		s, h := e.session()
		s.take("n", "a:1", long)
		s.takeUnder("n", "b:1", "a:1", long)
		s.takeUnder("n", "c:1", "b:1", long)
		s.watch(h, "n")
		s.watchUnder(h, "n", "a:1")
		s.watchUnder(h, "n", "b:1")
		s.releaseNested("n", "b:1", 0)
		e.until("b:1 has gone", func() bool { return h.count("released n b:1") > 0 })
		s.releaseNested("n", "c:1", 0)
		e.until("a:1 may be entered under", func() bool { return h.count("released n a:1") > 0 })
		h.reset()
		s.takeUnder("n", "d:1", "a:1", long)
		s.releaseNested("n", "a:1", 0)
		e.until("a:1 has gone", func() bool { return h.count("released n a:1") > 0 })
		e.errorIf(h.count("released n") > 0, "a release was announced while the lock is held")
		s.releaseNested("n", "d:1", 0)
		e.until("the last has gone", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_ForceReleaseAndDeletionTakeAllOwners", func(e *env) {
		s := e.bare()
		for _, remove := range []func(){
			func() {
				was, err := s.ForceRelease(background, topic("n"))
				e.errorIf(!was || err != nil, "ForceRelease: %v, %v", was, err)
			},
			func() { e.store.Delete("n") },
			func() { e.store.Flush() },
		} {
			s.take("n", "a:1", long)
			s.takeUnder("n", "b:1", "a:1", long)
			remove()
			e.errorIf(s.renewNested("n", "a:1", long) || s.renewNested("n", "b:1", long) || s.releaseNested("n", "b:1", 0),
				"an owner outlived the record")
			s.absentUnder("n", "c:1", "a:1", 1)
			// What is left of them affects no other owner.
			s.take("n", "x:1", long)
			s.absentUnder("n", "c:1", "a:1", 1)
			s.takeUnder("n", "y:1", "x:1", long)
			s.releaseNested("n", "x:1", 0)
			s.releaseNested("n", "y:1", 0)
			e.errorIf(s.record("n").Held, "it is held though all have gone")
		}
	}},
	{"Port_ForceReleaseOfOneOfSeveralOwnersTakesAll", func(e *env) {
		s := e.bare()
		force := func(owner string) bool {
			e.Helper()
			return value(s.ForceRelease(background, owned("n", owner))).in(e)
		}
		for _, owner := range []string{"a:1", "b:1"} {
			s.take("n", "a:1", long)
			s.takeUnder("n", "b:1", "a:1", long)
			e.errorIf(force("c:1"), "an owner that holds nothing: removed")
			e.errorIf(!force(owner), "%s: not removed", owner)
			s.isFree("n")
		}
		s.take("n", "a:1", long)
		s.takeUnder("n", "b:1", "a:1", 200*time.Millisecond)
		e.until("the lease of b:1 is over", func() bool { return !s.renewNested("n", "b:1", 0) })
		e.errorIf(force("b:1"), "an owner whose lease is over: removed")
		s.heldBy("n", "a:1", 1)
	}},
	{"Port_WhatIsEnteredDrawsATokenIfAsked", func(e *env) {
		s := e.bare()
		first := s.fenced("n", "a:1")
		r, err := s.Enter(background,
			backend.EnterRequest{Name: "n", Owner: "b:1", Lease: long, Fenced: true, Under: "a:1", Holds: 1})
		e.fatalIf(err != nil || !r.Granted || r.Token <= first, "%+v, %v, want a token above %d", r, err, first)
		if r := s.enterUnder("n", "c:1", "b:1", 1, long); !r.Granted || r.Token != 0 {
			e.Errorf("%+v, want no token that was not asked for", r)
		}
	}},
	{"Port_EnteringUnderWhatIsNoLockIsAnError", func(e *env) {
		s := e.bare()
		e.store.Occupy("n")
		_, err := s.Enter(background,
			backend.EnterRequest{Name: "n", Owner: "b:1", Lease: long, Under: "a:1", Holds: 1})
		e.is("Enter", err, backend.ErrWrongKind)
		e.errorIf(s.renewNested("n", "b:1", long), "what is no lock is held")
		s.take("m", "a:1", long)
		out := make([]backend.RenewResult, 2)
		s.Renew(background, []anykind.RenewRequest{
			{Kind: backend.KindDelegated, Name: "n", Owner: "a:1", Lease: long},
			{Kind: backend.KindDelegated, Name: "m", Owner: "a:1", Lease: long},
		}, out)
		e.errorIf(out[0].Held || !out[1].Held || out[1].Err != nil, "%+v, want what is no lock to spoil no other", out)
	}},
	{"Port_AnExactRenewalShortensTheLeaseOfOneOfSeveralOwners", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", 60*time.Second)
		s.takeUnder("n", "b:1", "a:1", 20*time.Second)
		renewsExactly(e, s.Store, anykind.RenewRequest{Kind: backend.KindDelegated, Name: "n", Owner: "a:1"}, 60*time.Second)
		s.remains("n", 15*time.Second, 20*time.Second)
	}},
	{"Port_ManyOwnersAreRenewedTogether", func(e *env) {
		s := e.bare()
		const n = 20
		in, out := make([]anykind.RenewRequest, n), make([]backend.RenewResult, n)
		for i := range in {
			name, owner := fmt.Sprintf("n%d", i), fmt.Sprintf("b:%d", i)
			s.take(name, "a:1", long/4)
			s.takeUnder(name, owner, "a:1", long/4)
			in[i] = anykind.RenewRequest{Kind: backend.KindDelegated, Name: name, Owner: owner, Lease: long}
			if i%3 == 0 {
				in[i].Owner = "c:1"
			}
		}
		s.Renew(background, in, out)
		for i, r := range out {
			e.errorIf(r.Err != nil || r.Held != (i%3 != 0), "%d: %+v", i, r)
			left := s.record(in[i].Name).Remaining
			e.errorIf((left > long/2) != r.Held, "%d: %v left", i, left)
		}
	}},

	{"Rule01_ParallelCalleesNeverBothGetIn", func(e *env) {
		a := e.client()
		callees := []*mortise.Client{a, e.client(), e.client(), e.client()}
		outer := e.lock(a, background, "n")
		claims := delegation.FromContext(outer.Context())
		e.fatalIf(len(claims) != 1, "%v, want a claim", claims)
		var inside, turns atomic.Int32
		e.turns(12, 4, func(g, _ int) (err error) {
			c, ctx := callees[g%4], outer.Context() // the caller itself
			if g%4 > 0 {
				if ctx, err = delegation.NewContext(background, c, claims...); err != nil {
					return err
				}
			}
			return e.inside(c, ctx, "n", func(*mortise.Lease) {
				equal(e, "%d are inside", inside.Add(1), 1)
				turns.Add(1)
				inside.Add(-1)
			})
		})
		equal(e, "%d turns", turns.Load(), 48)
		e.unlockLast(a, outer)
	}},
	{"Rule02_ALossOfTheLockReachesCallerAndCallee", func(e *env) {
		_, _, outer, inner := callerAndCallee(e, mortise.WithWatchdogTimeout(watchdog))
		e.store.Flush()
		receive(e, "the callee hears of the loss", inner.Context().Done())
		receive(e, "the caller hears of the loss", outer.Context().Done())
		e.is("callee", inner.Err(), mortise.ErrLost)
		e.is("caller", outer.Err(), mortise.ErrLost)
		e.is("Unlock", inner.Unlock(background), mortise.ErrLost)
	}},
	{"Rule03_CallerAndCalleeAreRenewed", func(e *env) {
		a, b, outer, inner := callerAndCallee(e, mortise.WithWatchdogTimeout(watchdog))
		e.always(watchdog*3/2, "both hold the lock beyond the watchdog timeout",
			func() bool { return outer.Err() == nil && inner.Err() == nil })
		e.is("a competitor", second(b.TryLock(background, "n")), mortise.ErrNotAcquired)
		e.unlock(inner)
		e.always(watchdog*3/2, "the caller holds it after its callee has left", func() bool { return outer.Err() == nil })
		e.unlockLast(a, outer)
	}},
	{"Rule04_ADeadCalleeFreesItsHoldAndNoMore", func(e *env) {
		a, b := e.client(), e.client()
		fb := NewFaults(e.store.Backend())
		const timeout = 3 * time.Second
		dead := e.clientOn(fb, mortise.WithWatchdogTimeout(timeout))
		outer := e.lock(a, background, "n")
		began := time.Now()
		e.lock(dead, e.called(dead, outer), "n")
		fb.Hook(func(Call) Fate { return Fate{Refused: true} }) // from here on nothing of it arrives
		inner := e.lock(b, e.called(b, outer), "n")
		atLeast(e, "entered %v after the lease of a dead callee began", time.Since(began), timeout-grain)
		e.done("the caller", outer.Err())
		e.unlockLast(a, inner, outer)
	}},
	{"Rule04_ADeadCallersLockIsItsCalleesAndThenFree", func(e *env) {
		fa := NewFaults(e.store.Backend())
		dead := e.clientOn(fa, mortise.WithWatchdogTimeout(3*time.Second))
		b := e.client()
		outer := e.lock(dead, background, "n")
		inner := e.lock(b, e.called(b, outer), "n")
		fa.Hook(func(Call) Fate { return Fate{Refused: true} })
		receive(e, "the caller hears that it could not renew", outer.Context().Done())
		e.always(time.Second, "the callee holds the lock", func() bool { return inner.Err() == nil })
		e.is("a competitor", second(b.TryLock(background, "n")), mortise.ErrNotAcquired)
		e.unlock(inner)
		e.unlock(e.lock(b, background, "n", mortise.WithWait(patience)))
	}},
	{"Rule05_NothingRenewsAfterACalleeHasLeft", func(e *env) {
		a, b := e.client(), e.client(mortise.WithWatchdogTimeout(3*time.Second))
		outer := e.lock(a, background, "n", mortise.WithLease(8*time.Second))
		for range 5 {
			e.unlock(e.lock(b, e.called(b, outer), "n"))
		}
		atMost(e, "%v left of a lease of 8s", e.inspect(b, "n").Remaining, 8*time.Second)
		e.until("the lease is over", func() bool { return !e.inspect(b, "n").Held })
	}},
	{"Rule06_AReplayedClaimConfersNothing", func(e *env) {
		a, b := e.client(), e.client()
		outer := e.lock(a, background, "n")
		again := e.lock(a, outer.Context(), "n")
		stale := delegation.FromContext(again.Context())
		e.unlock(again)
		replay := func() error {
			ctx := value(delegation.NewContext(background, b, stale...)).in(e)
			l, err := b.Lock(ctx, "n", mortise.WithWait(patience))
			if err == nil {
				e.unlock(l)
			}
			return err
		}
		e.named(replay(), "lock", "n", delegation.ErrEnded)
		again = e.lock(a, outer.Context(), "n") // a hold of the same depth
		e.named(replay(), "lock", "n", delegation.ErrEnded)
		e.unlock(again, outer)
		e.named(replay(), "lock", "n", delegation.ErrEnded)
		other := e.lock(a, background, "n")
		e.named(replay(), "lock", "n", delegation.ErrEnded)
		e.unlock(other)
	}},
	{"Rule07_AChainOfCallersAndCallees", func(e *env) {
		a, b, c := e.client(), e.client(), e.client()
		l1 := e.lock(a, background, "n")
		l2 := e.lock(b, e.called(b, l1), "n")
		l3 := e.lock(a, e.called(a, l2), "n")
		l4 := e.lock(c, e.called(c, l3), "n")
		l5 := e.lock(c, l4.Context(), "n")
		for _, l := range []*mortise.Lease{l5, l4, l3, l2} {
			e.is("a competitor", second(b.TryLock(background, "n")), mortise.ErrNotAcquired)
			e.unlock(l)
			e.is("a second Unlock", l.Unlock(background), mortise.ErrReleased)
		}
		s := e.inspect(b, "n")
		e.errorIf(!s.Held || s.Client != a.ID() || s.Holds != 1, "%+v, want one hold of the first", s)
		e.unlock(l1)
		e.unlock(e.lock(b, background, "n"))
	}},
	{"Rule07_NamesThatDifferInTheirBracesOnlyAreEnteredEachByItself", func(e *env) {
		a, b, c := e.client(), e.client(), e.client()
		names := []string{"n", "{n}", "{n}:", ":{n}"}
		var leases []*mortise.Lease
		callees := make([]*mortise.Lease, len(names))
		for i, n := range names {
			outer := e.lock(a, background, n)
			callees[i] = e.lock(b, e.called(b, outer), n)
			leases = append(leases, outer, callees[i])
		}
		for i, n := range names { // each callee's callee enters, while the other names are entered, too
			got := value(c.TryLock(e.called(c, callees[i]), n)).in(e)
			e.unlock(got)
		}
		for _, l := range slices.Backward(leases) {
			e.unlock(l)
		}
		e.free(a, names...)
	}},
	{"Rule08_WaitingForATurnUnderACallerCostsNothing", func(e *env) {
		a := e.client()
		b, fb := e.tapped()
		c := e.client()
		outer := e.lock(a, background, "n")
		first := e.lock(c, e.called(c, outer), "n")
		got := locking(b, e.called(b, outer), "n", mortise.WithWait(patience))
		e.until("it waits", func() bool {
			return fb.Watching() > 0 && fb.underway(OpAcquire) == 0 &&
				fb.Count(OpAcquire) >= 2
		})
		asked := fb.Count(OpAcquire)
		e.always(500*time.Millisecond, "nothing is asked", func() bool { return fb.Count(OpAcquire) == asked })
		e.unlock(first)
		r := e.granted("it is its turn", got)
		self := locking(a, outer.Context(), "n", mortise.WithWait(patience)) // the caller waits likewise
		e.unlock(r.lease)
		e.unlock(e.granted("it is the caller's turn", self).lease)
		e.unlock(outer)
	}},
	{"Rule08_AWaiterUnderACallerThatLeavesIsTold", func(e *env) {
		a, b, c := e.client(), e.client(), e.client()
		outer := e.lock(a, background, "n")
		first := e.lock(c, e.called(c, outer), "n")
		ctx := e.called(b, outer)
		got := locking(b, ctx, "n", mortise.WithWait(patience))
		fresh := locking(b, background, "n", mortise.WithWait(patience))
		e.unlock(outer)
		e.named(receive(e, "it hears that the claim has ended", got).err, "lock", "n", delegation.ErrEnded)
		e.named(second(b.TryLock(ctx, "n")), "trylock", "n", delegation.ErrEnded)
		e.errorIf(e.inspect(b, "n").Client != c.ID(), "it is not the callee's")
		e.unlock(first)
		e.unlock(e.granted("a competitor gets the lock", fresh).lease)
	}},
	{"Rule09_AnAbandonedEntryLeavesNothing", func(e *env) {
		a := e.client()
		b, fb := e.tapped()
		outer := e.lock(a, background, "n")
		for _, fate := range []func(<-chan struct{}) Fate{requestLate, replyLate, arrivesLate} {
			held, started := fb.holdsFirst(fate, OpAcquire)
			ctx, cancel := context.WithCancel(e.called(b, outer))
			got := locking(b, ctx, "n")
			receive(e, "it asks", started)
			cancel()
			if r := receive(e, "Lock returns", got); r.err == nil {
				e.unlock(r.lease)
			}
			close(held)
			fb.Hook(nil)
			e.unlock(e.lock(a, outer.Context(), "n"))
		}
		e.until("nothing is under way", func() bool { return fb.underway(OpAcquire, OpRelease) == 0 })
		e.unlock(e.lock(a, outer.Context(), "n"))
		e.unlockLast(a, outer)
	}},
	{"Rule11_ALostReplyOfAnEntryOrItsReleaseCountsOnce", func(e *env) {
		a := e.client()
		b, fb := e.tapped()
		outer := e.lock(a, background, "n")
		for _, op := range []Op{OpAcquire, OpRelease} {
			hook, _ := first(Fate{Lost: true}, op)
			fb.Hook(hook)
			e.unlock(e.lock(b, e.called(b, outer), "n"))
			e.unlock(e.lock(a, outer.Context(), "n"))
		}
		fb.Hook(nil)
		e.unlockLast(a, outer)
	}},
	{"Rule12_CallerAndCalleeOutliveARestart", func(e *env) {
		a, b := e.client(), e.client()
		outer := e.lock(a, background, "n")
		ctx := e.called(b, outer)
		inner := e.lock(b, ctx, "n")
		e.store.Down()
		e.store.Up()
		for _, lease := range []*mortise.Lease{inner, outer} {
			// With its data or without: a release says which, and touches no other lock.
			err := lease.Unlock(background)
			e.errorIf(err != nil && !errors.Is(err, mortise.ErrLost), "Unlock: %v", err)
		}
		e.free(a, "n")
		e.is("the claim, afterwards", second(b.TryLock(ctx, "n")), delegation.ErrEnded)
		e.unlock(e.lock(b, background, "n"))
	}},
	{"Rule12_AWaiterForATurnOutlivesBrokenConnections", func(e *env) {
		a, b, c := e.client(mortise.WithWatchdogTimeout(10*time.Second)),
			e.client(mortise.WithWatchdogTimeout(10*time.Second)), e.client()
		outer := e.lock(a, background, "n")
		inner := e.lock(b, e.called(b, outer), "n")
		waits := locking(c, e.called(c, outer), "n", mortise.WithWait(patience))
		e.store.Cut()
		e.unlock(inner)
		e.unlock(e.granted("a waiter for its turn gets it though connections broke", waits).lease)
		e.unlockLast(a, outer)
	}},
	{"Rule07_AReentryThatWasOnItsWayWhenAClaimWasGivenOutDoesNotMeetACallee", func(e *env) {
		for name, fate := range map[string]func(<-chan struct{}) Fate{
			"asked before": replyLate,
			"asked after":  requestLate,
		} {
			a, fa := e.tapped()
			b := e.client()
			outer := e.lock(a, background, name)
			held, asks := fa.holdsFirst(fate, OpSetHolds)
			self := locking(a, outer.Context(), name, mortise.WithWait(patience))
			receive(e, "it asks", asks)
			if name == "asked before" {
				e.until("the store has set the count", func() bool { return e.inspect(b, name).Holds == 2 })
			}
			callee := locking(b, e.called(b, outer), name, mortise.WithWait(patience))
			if name == "asked after" {
				r := e.granted("the callee is in", callee)
				close(held)
				e.always(300*time.Millisecond, "the caller is out", func() bool { return len(self) == 0 })
				e.unlock(r.lease)
				e.unlock(e.granted("the caller is in", self).lease)
			} else {
				e.always(300*time.Millisecond, "the callee is out", func() bool { return len(callee) == 0 })
				close(held)
				both := merged(callee, self)
				one := e.granted(name+": one gets in", both)
				e.always(100*time.Millisecond, "the other is out", func() bool { return len(both) == 0 })
				e.unlock(one.lease)
				e.unlock(e.granted(name+": the other gets in", both).lease)
			}
			e.unlockLast(a, outer)
		}
	}},
	{"Rule02_ARenewalThatWasOnItsWayWhenAClaimWasGivenOutDoesNotCount", func(e *env) {
		// The store knows the caller's time as it was when the callee entered: what the renewal adds to the lock's time goes
		// when the callee leaves. So the caller must not count on it, if nothing of it arrives from then on.
		a, fa := e.tapped(mortise.WithWatchdogTimeout(6 * time.Second))
		b := e.client()
		outer := e.lock(a, background, "n")
		held, asks := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fa.Hook(func(c Call) (f Fate) {
			if c.Op == OpRenew {
				f.Refused = true
				once.Do(func() { f = Fate{Before: held}; close(asks) })
			}
			return f
		})
		receive(e, "it is renewed", asks)
		inner := e.lock(b, e.called(b, outer), "n")
		close(held)
		e.until("the renewal has come", func() bool { return fa.Calls(OpRenew)[0].Ended > 0 })
		e.unlock(inner)
		l := e.lock(b, background, "n")
		e.is("the caller, when another has got the lock", outer.Err(), mortise.ErrLost)
		e.unlock(l)
	}},
	{"Rule03_CallerAndCalleeDoNotMakeEachOtherAsk", func(e *env) {
		// Where the store tells of changes, each one's renewal is one of the other's record.
		const timeout = 3 * time.Second
		a, fa := e.tapped(mortise.WithWatchdogTimeout(timeout))
		b, fb := e.tapped(mortise.WithWatchdogTimeout(timeout))
		outer := e.lock(a, background, "n")
		inner := e.lock(b, e.called(b, outer), "n")
		for _, f := range []*Faults{fa, fb} {
			f.Hook(func(c Call) Fate {
				if c.Op == OpRenew {
					time.Sleep(5 * time.Millisecond) // the network's: within a millisecond a renewal changes nothing
				}
				return Fate{}
			})
		}
		began := time.Now()
		e.always(2*timeout, "both hold", func() bool { return outer.Err() == nil && inner.Err() == nil })
		periods := int(time.Since(began)/(timeout/3)) + 1
		for _, f := range []*Faults{fa, fb} {
			n := f.Count(OpRenew)
			e.errorIf(n < 4 || n > 3*periods, "%d renewals and questions in %d periods, want one of each", n, periods)
			f.Hook(nil)
		}
		e.unlock(inner, outer)
	}},
	{"Rule14_ShutdownWaitsForCalleesThatEntered", func(e *env) {
		a, b := e.client(), e.client()
		outer := e.lock(a, background, "n")
		ctx := e.called(b, outer)
		inner := e.lock(b, ctx, "n")
		down := async(func() error { return b.Shutdown(background) })
		e.refuses("it is shutting down", b, "m", mortise.ErrClosed)
		again := e.lock(b, inner.Context(), "n") // its holders may finish
		e.is("a new entry", second(b.Lock(ctx, "n")), mortise.ErrClosed)
		e.unlock(again, inner)
		e.done("Shutdown", receive(e, "Shutdown", down))
		e.unlock(outer)
	}},
	{"Kinds_AreEnteredFromElsewhere", func(e *env) {
		a, b := e.client(), e.client()
		fenced := e.kind(a, mortise.Fenced())
		bFenced := e.kind(b, mortise.Fenced())
		outer := e.lock(fenced, background, "n")
		token := outer.Token()
		inner := e.lock(bFenced, e.called(b, outer), "n")
		got := inner.Token()
		e.errorIf(got != token, "a callee's token is %d, want its caller's, %d", got, token)
		_, err := e.kind(b, mortise.NonReentrant()).Lock(inner.Context(), "n")
		e.is("NonReentrant, in the callee", err, mortise.ErrInvalid)
		e.unlock(inner)
		claim := delegation.FromContext(outer.Context())[0]
		claim.Token++ // a token that was never drawn would shut out all later owners
		forged := value(delegation.NewContext(background, b, claim)).in(e)
		e.named(second(b.TryLock(forged, "n")), "trylock", "n", delegation.ErrEnded)
		e.is("NonReentrant", second(e.kind(b, mortise.NonReentrant()).Lock(e.called(b, outer), "n")), mortise.ErrInvalid)
		e.unlock(outer)

		outer = e.lock(a, background, "n")
		inner = e.lock(bFenced, e.called(b, outer), "n") // the caller has none
		got = inner.Token()
		e.errorIf(got <= token, "a token of %d is not larger than %d", got, token)
		e.unlock(inner)
		e.unlock(e.lock(e.kind(b, mortise.Polling(5*time.Millisecond)), e.called(b, outer), "n"))
		e.unlock(outer)

		fair := a.With(mortise.Fair())
		bFair := e.kind(b, mortise.Fair())
		outer = e.lock(fair, background, "n")
		inner = e.lock(bFair, e.called(b, outer), "n")
		next := locking(bFair, background, "n", mortise.WithWait(patience))
		e.unlock(outer, inner)
		e.unlock(e.granted("the next in the queue", next).lease)
	}},
	{"Kinds_LockAllEntersWhatItsCallerHolds", func(e *env) {
		a, b := e.client(), e.client()
		all := value(a.LockAll(background, []string{"x{t}", "y{t}"})).in(e)
		inner, err := b.LockAll(e.called(b, all), []string{"y{t}", "z{t}", "x{t}"}, mortise.WithWait(patience))
		e.fatalIf(err != nil, "%v", err)
		e.unlock(all)
		for _, n := range []string{"x{t}", "y{t}", "z{t}"} {
			s := e.inspect(a, n)
			e.errorIf(s.Client != b.ID(), "%s: %+v, want it to be the callee's", n, s)
		}
		e.unlock(inner)
		e.free(a, "x{t}", "y{t}", "z{t}")
	}},
	{"Rule10_APartialUnlockThatFailedIsRepeated", func(e *env) {
		c, f := e.tapped()
		outer, inner := e.lockTwice(c)
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRelease} })
		e.named(inner.Unlock(background), "unlock", "n", mortise.ErrUnavailable)
		f.Hook(nil)
		e.until("the store's count is right", func() bool { return e.inspect(c, "n").Holds == 1 })
		e.unlockLast(c, outer)
	}},
	{"Rule10_ACalleeGetsInThoughAHoldOfItsCallerRanOutDuringAPartialUnlock", func(e *env) {
		a, f := e.tapped()
		b := e.client()
		outer := e.lock(a, background, "n")
		mid := e.lock(a, outer.Context(), "n", mortise.WithMaxHold(time.Second))
		inner := e.lock(a, mid.Context(), "n")
		called := e.called(b, outer)
		reply := f.holds(replyLate, OpRelease)
		unlocked := async(func() error { return inner.Unlock(background) })
		e.until("the release is sent", func() bool { return f.Count(OpRelease) == 1 })
		e.within("the hold between runs out", mid.Context().Done())
		f.Hook(nil)
		close(reply)
		e.must("Unlock", <-unlocked)
		e.unlock(e.lock(b, called, "n", mortise.WithLease(long), mortise.WithWait(patience)))
		e.unlockLast(b, outer)
	}},
	{"Rule10_ACalleeGetsInAfterAPartialUnlockOfItsCallerFailed", func(e *env) {
		a, f := e.tapped()
		b := e.client()
		outer := e.lock(a, background, "n", mortise.WithLease(long))
		inner := e.lock(a, outer.Context(), "n", mortise.WithLease(long))
		called := e.called(b, outer)
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRelease} })
		e.named(inner.Unlock(background), "unlock", "n", mortise.ErrUnavailable)
		f.Hook(nil)
		e.unlock(e.lock(b, called, "n", mortise.WithLease(long)))
		e.unlockLast(b, outer)
	}},
})

// callerAndCallee has a client lock n, and another enter it under that lease.
func callerAndCallee(e *env, opts ...mortise.ClientOption) (a, b *mortise.Client, outer, inner *mortise.Lease) {
	e.Helper()
	a, b = e.client(opts...), e.client(opts...)
	outer = e.lock(a, background, "n")
	return a, b, outer, e.lock(b, e.called(b, outer), "n")
}

// called is the context of a call made under lease, where it arrives at c.
func (e leases) called(c *mortise.Client, lease *mortise.Lease) context.Context {
	e.Helper()
	claims := delegation.FromContext(lease.Context())
	if len(claims) == 0 {
		e.Fatalf("no claim of a lease on %q", lease.Name())
	}
	return value(delegation.NewContext(background, c, claims...)).in(e)
}
