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
)

// nesting opens a session that has locks of several owners; nil where the backend has none, whose
// clients then say so.
func (e *env) nesting() (*raw, *ears) {
	e.Helper()
	s, h := e.session()
	if n, is := s.Session.(backend.NestSession); is && n.Nests() {
		return s, h
	}
	c := e.client()
	_, err := c.Adopt(context.Background(), mortise.Claim{Name: "n", Owner: "a:1", Hold: 1})
	e.named(err, "adopt", "n", mortise.ErrInvalid)
	return nil, nil
}

// enterUnder asks to enter under an owner.
func (s *raw) enterUnder(name, owner, under string, holds int, lease time.Duration) backend.AcquireReply {
	s.e.Helper()
	r, err := s.Acquire(context.Background(), backend.AcquireRequest{Kind: backend.KindNested, Name: name, Owner: owner, Lease: lease, Under: under, UnderHolds: holds})
	if err != nil {
		s.e.Fatalf("Acquire(%q, %s) under %s: %v", name, owner, under, err)
	}
	return r
}

// takeUnder enters, and must.
func (s *raw) takeUnder(name, owner, under string, lease time.Duration) {
	s.e.Helper()
	if r := s.enterUnder(name, owner, under, 1, lease); !r.Granted {
		s.e.Fatalf("Acquire(%q, %s) under %s: %+v, want it granted", name, owner, under, r)
	}
}

// refusedUnder asks to enter, and must be refused for at most so long.
func (s *raw) refusedUnder(name, owner, under string, most time.Duration) {
	s.e.Helper()
	if r := s.enterUnder(name, owner, under, 1, long); r.Granted || r.Absent || r.Remaining <= 0 || r.Remaining > most {
		s.e.Errorf("Acquire(%q, %s) under %s: %+v, want it refused for up to %v", name, owner, under, r, most)
	}
}

// absentUnder asks to enter, and must hear that there is nothing to enter under.
func (s *raw) absentUnder(name, owner, under string, holds int) {
	s.e.Helper()
	if r := s.enterUnder(name, owner, under, holds, long); r.Granted || !r.Absent {
		s.e.Errorf("Acquire(%q, %s) under %d of %s: %+v, want it absent", name, owner, holds, under, r)
	}
}

func (s *raw) releaseNested(name, owner string, keep int) bool {
	s.e.Helper()
	r, err := s.Release(context.Background(), backend.ReleaseRequest{Kind: backend.KindNested, Name: name, Owner: owner, Keep: keep})
	if err != nil {
		s.e.Fatalf("Release(%q, %s): %v", name, owner, err)
	}
	return r.Held
}

func (s *raw) renewNested(name, owner string, lease time.Duration) bool {
	s.e.Helper()
	out := make([]backend.RenewResult, 1)
	s.Renew(context.Background(), []backend.RenewRequest{{Kind: backend.KindNested, Name: name, Owner: owner, Lease: lease}}, out)
	if out[0].Err != nil {
		s.e.Fatalf("Renew(%q, %s): %v", name, owner, out[0].Err)
	}
	return out[0].Held
}

// watchUnder has the session watch who may enter under an owner.
func (s *raw) watchUnder(h *ears, name, owner string) {
	s.e.Helper()
	t := backend.Topic{Kind: backend.KindNested, Name: name, Owner: owner}
	before := h.count("watching " + said(t))
	s.Watch(t)
	s.e.until("watching "+said(t), func() bool { return h.count("watching "+said(t)) > before })
}

// grain is what a store's clock that counts in milliseconds may take off a lease; a holder deducts more.
const grain = 5 * time.Millisecond

// nestTests are about locks that are entered from another process. They do nothing on a backend that has none.
var nestTests = []test{
	{"Port_OneEntersUnderTheOwnerThatCameLast", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		s.absentUnder("n", "b:1", "a:1", 1)
		s.take("n", "a:1", long)
		s.absentUnder("n", "b:1", "a:1", 2) // a hold that has ended
		s.absentUnder("n", "b:1", "a:2", 1)
		s.takeUnder("n", "b:1", "a:1", long)
		s.refusedUnder("n", "c:1", "a:1", long)
		s.takeUnder("n", "c:1", "b:1", long)
		s.refusedUnder("n", "d:1", "a:1", long)
		s.refusedUnder("n", "d:1", "b:1", long)
		if r := s.acquire("n", "x:1", long); r.Granted {
			e.Error("a competitor was let in")
		}
		if !s.releaseNested("n", "b:1", 0) { // before the one that entered under it
			e.Error("b:1 does not hold it")
		}
		s.refusedUnder("n", "d:1", "a:1", long)
		s.absentUnder("n", "d:1", "b:1", 1)
		s.releaseNested("n", "c:1", 0)
		s.takeUnder("n", "d:1", "a:1", long)
		s.releaseNested("n", "a:1", 0)
		if r := s.acquire("n", "x:1", long); r.Granted {
			e.Error("a competitor was let in while one who entered holds it")
		}
		s.takeUnder("n", "e:1", "d:1", long)
		s.releaseNested("n", "e:1", 0)
		s.releaseNested("n", "d:1", 0)
		if rec := s.record("n"); rec.Held {
			e.Errorf("when all have gone the record is %+v", rec)
		}
		s.take("n", "x:1", long)
	}},
	{"Port_ARequestToEnterCountsOnce", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		s.take("n", "a:1", long)
		for range 3 {
			s.takeUnder("n", "b:1", "a:1", long)
		}
		if !s.releaseNested("n", "b:1", 0) || s.releaseNested("n", "b:1", 0) {
			e.Error("one release is not enough, or too much")
		}
		s.takeUnder("n", "c:1", "a:1", long)
	}},
	{"Port_OnlyTheInnermostHoldIsEnteredUnder", func(e *env) {
		s, h := e.nesting()
		if s == nil {
			return
		}
		s.take("n", "a:1", long)
		s.reenter("n", "a:1", 2, long)
		if r := s.enterUnder("n", "b:1", "a:1", 1, long); r.Granted || r.Absent || r.Look <= 0 || r.Look > backend.HoldsLook {
			e.Errorf("under the outer hold: %+v, want it refused with a time to look", r)
		}
		s.watchUnder(h, "n", "a:1")
		s.releaseNested("n", "a:1", 1)
		e.until("who waits is told that the count was set", func() bool { return h.count("released n a:1") > 0 })
		s.takeUnder("n", "b:1", "a:1", long)
		if rec := s.record("n"); rec.Owner != "a:1" || rec.Holds != 1 {
			e.Errorf("the record is %+v, want the first owner, once", rec)
		}
	}},
	{"Port_EachOwnersLeaseEndsByItself", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		const lease = 2 * time.Second
		// The one that entered dies.
		s.take("n", "a:1", long)
		began := time.Now()
		s.takeUnder("n", "b:1", "a:1", lease)
		s.refusedUnder("n", "c:1", "a:1", lease)
		e.until("the lease of one that died is over", func() bool { return s.enterUnder("n", "c:1", "a:1", 1, lease).Granted })
		if d := time.Since(began); d < lease-grain {
			e.Errorf("entered after %v, before a lease of %v was over", d, lease)
		}
		if s.renewNested("n", "b:1", long) || s.releaseNested("n", "b:1", 0) {
			e.Error("one whose lease is over still holds it")
		}
		s.releaseNested("n", "c:1", 0)
		s.releaseNested("n", "a:1", 0)

		// The one that it entered under dies: it is gone when its lease is over, and the lock then with the other.
		began = time.Now()
		s.take("m", "a:1", lease)
		s.takeUnder("m", "b:1", "a:1", long)
		e.until("the lease of the first is over", func() bool { return s.enterUnder("m", "c:1", "a:1", 1, long).Absent })
		if d := time.Since(began); d < lease-grain {
			e.Errorf("gone after %v, before its lease of %v was over", d, lease)
		}
		if !s.renewNested("m", "b:1", long) {
			e.Error("the first one's death took the other's hold")
		}
		s.releaseNested("m", "b:1", 0)
		if rec := s.record("m"); rec.Held {
			e.Errorf("it is held for a dead owner: %+v", rec)
		}
	}},
	{"Port_ADeadOwnerIsNotKeptAliveByOthers", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		const lease = 4 * time.Second
		began := time.Now()
		s.take("n", "a:1", lease)
		s.takeUnder("n", "b:1", "a:1", lease)
		if !s.renewNested("n", "b:1", long) {
			e.Fatal("b:1 does not hold it")
		}
		if rec := s.record("n"); rec.Remaining < long/2 {
			e.Errorf("the record is %+v, want the time of the longest lease", rec)
		}
		s.releaseNested("n", "b:1", 0)
		if rec := s.record("n"); !rec.Held && time.Since(began) < lease || rec.Remaining > lease {
			e.Errorf("the record is %+v, want what is left of %v", rec, lease)
		}
		e.until("the lock is free", func() bool { return s.acquire("n", "x:1", long).Granted })
		if d := time.Since(began); d < lease-grain {
			e.Errorf("free after %v, before the lease of %v was over", d, lease)
		}
	}},
	{"Port_ARenewalOfOneOfSeveralIsItsOwn", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		s.take("n", "a:1", long/4)
		s.takeUnder("n", "b:1", "a:1", long)
		if !s.renewNested("n", "a:1", long/3) || !s.renewNested("n", "a:1", 0) || !s.renewNested("n", "b:1", time.Second) {
			e.Fatal("a holder is told that it holds nothing")
		}
		s.releaseNested("n", "b:1", 0)
		if rec := s.record("n"); rec.Remaining > long/3 || rec.Remaining < long/4 {
			e.Errorf("the record is %+v, want what is left of %v", rec, long/3)
		}
		// Alone again it is like any other, by either kind.
		if !s.renew("n", "a:1", long) || !s.renewNested("n", "a:1", long) {
			e.Error("the one that is left does not hold it")
		}
		if rec := s.record("n"); rec.Remaining < long/2 || rec.Owner != "a:1" || rec.Holds != 1 {
			e.Errorf("the record is %+v, want a lease of %v", rec, long)
		}
		s.takeUnder("n", "c:1", "a:1", time.Second)
		if rec := s.record("n"); rec.Remaining < long/2 {
			e.Errorf("a short lease cut the record to %+v", rec)
		}
		s.releaseNested("n", "c:1", 0)
		if !s.releaseNested("n", "a:1", 0) || s.record("n").Held {
			e.Error("it is held though all have gone")
		}
	}},
	{"Port_EnteringAndLeavingIsAnnouncedToThoseItConcerns", func(e *env) {
		s, h := e.nesting()
		if s == nil {
			return
		}
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
		if h.count("released n") > 0 {
			e.Error("a release was announced while the lock is held")
		}
		s.releaseNested("n", "d:1", 0)
		e.until("the last has gone", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_ForceReleaseAndDeletionTakeAllOwners", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		for _, remove := range []func(){
			func() {
				if was, err := s.ForceRelease(context.Background(), topic("n")); !was || err != nil {
					e.Errorf("ForceRelease: %v, %v", was, err)
				}
			},
			func() { e.store.Delete("n") },
			func() { e.store.Flush() },
		} {
			s.take("n", "a:1", long)
			s.takeUnder("n", "b:1", "a:1", long)
			remove()
			if s.renewNested("n", "a:1", long) || s.renewNested("n", "b:1", long) || s.releaseNested("n", "b:1", 0) {
				e.Error("an owner outlived the record")
			}
			s.absentUnder("n", "c:1", "a:1", 1)
			// What is left of them concerns nobody.
			s.take("n", "x:1", long)
			s.absentUnder("n", "c:1", "a:1", 1)
			s.takeUnder("n", "y:1", "x:1", long)
			s.releaseNested("n", "x:1", 0)
			s.releaseNested("n", "y:1", 0)
			if s.record("n").Held {
				e.Error("it is held though all have gone")
			}
		}
	}},
	{"Port_WhatIsEnteredDrawsATokenIfAsked", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		first := s.fenced("n", "a:1")
		r, err := s.Acquire(context.Background(), backend.AcquireRequest{Kind: backend.KindNested, Name: "n", Owner: "b:1", Lease: long, Fenced: true, Under: "a:1", UnderHolds: 1})
		if err != nil || !r.Granted || r.Token <= first {
			e.Fatalf("%+v, %v, want a token above %d", r, err, first)
		}
		if r := s.enterUnder("n", "c:1", "b:1", 1, long); !r.Granted || r.Token != 0 {
			e.Errorf("%+v, want no token that was not asked for", r)
		}
	}},
	{"Port_EnteringUnderWhatIsNoLockIsAnError", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		e.store.Occupy("n")
		_, err := s.Acquire(context.Background(), backend.AcquireRequest{Kind: backend.KindNested, Name: "n", Owner: "b:1", Lease: long, Under: "a:1", UnderHolds: 1})
		e.is("Acquire", err, backend.ErrWrongKind)
		if s.renewNested("n", "b:1", long) {
			e.Error("what is no lock is held")
		}
		s.take("m", "a:1", long)
		out := make([]backend.RenewResult, 2)
		s.Renew(context.Background(), []backend.RenewRequest{{Kind: backend.KindNested, Name: "n", Owner: "a:1", Lease: long}, {Kind: backend.KindNested, Name: "m", Owner: "a:1", Lease: long}}, out)
		if out[0].Held || !out[1].Held || out[1].Err != nil {
			e.Errorf("%+v, want what is no lock to spoil no other", out)
		}
	}},
	{"Port_ManyOwnersAreRenewedTogether", func(e *env) {
		s, _ := e.nesting()
		if s == nil {
			return
		}
		const n = 20
		in, out := make([]backend.RenewRequest, n), make([]backend.RenewResult, n)
		for i := range in {
			name, owner := fmt.Sprintf("n%d", i), fmt.Sprintf("b:%d", i)
			s.take(name, "a:1", long/4)
			s.takeUnder(name, owner, "a:1", long/4)
			in[i] = backend.RenewRequest{Kind: backend.KindNested, Name: name, Owner: owner, Lease: long}
			if i%3 == 0 {
				in[i].Owner = "c:1"
			}
		}
		s.Renew(context.Background(), in, out)
		for i, r := range out {
			if r.Err != nil || r.Held != (i%3 != 0) {
				e.Errorf("%d: %+v", i, r)
			}
			if left := s.record(in[i].Name).Remaining; (left > long/2) != r.Held {
				e.Errorf("%d: %v left", i, left)
			}
		}
	}},

	{"Rule01_ParallelCalleesNeverBothGetIn", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a := e.client()
		callees := []*mortise.Client{a, e.client(), e.client(), e.client()}
		outer := e.lock(a, context.Background(), "n")
		claims := mortise.ClaimsOf(outer.Context())
		if len(claims) != 1 {
			e.Fatalf("%v, want a claim", claims)
		}
		var inside, turns atomic.Int32
		var wg sync.WaitGroup
		for i, c := range callees {
			for range 3 {
				wg.Go(func() {
					ctx := outer.Context() // the caller itself
					if i > 0 {
						var err error
						if ctx, err = c.Adopt(context.Background(), claims...); err != nil {
							e.Errorf("Adopt: %v", err)
							return
						}
					}
					for range 4 {
						l, err := c.Lock(ctx, "n", mortise.WithWait(patience))
						if err != nil {
							e.Errorf("Lock: %v", err)
							return
						}
						if n := inside.Add(1); n != 1 {
							e.Errorf("%d are inside", n)
						}
						turns.Add(1)
						inside.Add(-1)
						if err := l.Unlock(context.Background()); err != nil {
							e.Errorf("Unlock: %v", err)
						}
					}
				})
			}
		}
		wg.Wait()
		if got := turns.Load(); got != 48 {
			e.Errorf("%d turns, want 48", got)
		}
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule02_ALossOfTheLockReachesCallerAndCallee", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(mortise.WithWatchdogTimeout(watchdog)), e.client(mortise.WithWatchdogTimeout(watchdog))
		outer := e.lock(a, context.Background(), "n")
		inner := e.lock(b, e.adopted(b, outer), "n")
		e.store.Flush()
		receive(e, "the callee hears of the loss", inner.Context().Done())
		receive(e, "the caller hears of the loss", outer.Context().Done())
		e.is("callee", inner.Err(), mortise.ErrLost)
		e.is("caller", outer.Err(), mortise.ErrLost)
		e.is("Unlock", inner.Unlock(context.Background()), mortise.ErrNotHeld, mortise.ErrLost)
	}},
	{"Rule03_CallerAndCalleeAreRenewed", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(mortise.WithWatchdogTimeout(watchdog)), e.client(mortise.WithWatchdogTimeout(watchdog))
		outer := e.lock(a, context.Background(), "n")
		inner := e.lock(b, e.adopted(b, outer), "n")
		e.always(watchdog*3/2, "both hold the lock beyond the watchdog timeout", func() bool { return outer.Err() == nil && inner.Err() == nil })
		if _, err := b.TryLock(context.Background(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			e.Errorf("a competitor: %v", err)
		}
		e.unlock(inner)
		e.always(watchdog*3/2, "the caller holds it after its callee has left", func() bool { return outer.Err() == nil })
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule04_ADeadCalleeFreesItsHoldAndNoMore", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		fb := NewFaults(e.store.Backend())
		const timeout = 3 * time.Second
		dead := e.clientOn(fb, mortise.WithWatchdogTimeout(timeout))
		outer := e.lock(a, context.Background(), "n")
		began := time.Now()
		e.lock(dead, e.adopted(dead, outer), "n")
		fb.Hook(func(Call) Fate { return Fate{Refused: true} }) // from here on nothing of it arrives
		inner := e.lock(b, e.adopted(b, outer), "n")
		if d := time.Since(began); d < timeout-grain {
			e.Errorf("entered %v after a callee that died, whose lease is %v", d, timeout)
		}
		if err := outer.Err(); err != nil {
			e.Errorf("the caller: %v", err)
		}
		e.unlock(inner)
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule04_ADeadCallersLockIsItsCalleesAndThenFree", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		fa := NewFaults(e.store.Backend())
		dead := e.clientOn(fa, mortise.WithWatchdogTimeout(3*time.Second))
		b := e.client()
		outer := e.lock(dead, context.Background(), "n")
		inner := e.lock(b, e.adopted(b, outer), "n")
		fa.Hook(func(Call) Fate { return Fate{Refused: true} })
		receive(e, "the caller hears that it could not renew", outer.Context().Done())
		e.always(time.Second, "the callee holds the lock", func() bool { return inner.Err() == nil })
		if _, err := b.TryLock(context.Background(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			e.Errorf("a competitor: %v", err)
		}
		e.unlock(inner)
		e.unlock(e.lock(b, context.Background(), "n", mortise.WithWait(patience)))
	}},
	{"Rule05_NothingRenewsAfterACalleeHasLeft", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client(mortise.WithWatchdogTimeout(time.Second))
		outer := e.lock(a, context.Background(), "n", mortise.WithLease(8*time.Second))
		for range 5 {
			e.unlock(e.lock(b, e.adopted(b, outer), "n"))
		}
		if left := e.inspect(b, "n").Remaining; left > 8*time.Second {
			e.Errorf("%v left of a lease of 8s", left)
		}
		e.until("the lease is over", func() bool { return !e.inspect(b, "n").Held })
	}},
	{"Rule06_AReplayedClaimConfersNothing", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		outer := e.lock(a, context.Background(), "n")
		again := e.lock(a, outer.Context(), "n")
		stale := mortise.ClaimsOf(again.Context())
		e.unlock(again)
		replay := func() error {
			ctx, err := b.Adopt(context.Background(), stale...)
			if err != nil {
				e.Fatalf("Adopt: %v", err)
			}
			l, err := b.Lock(ctx, "n", mortise.WithWait(patience))
			if err == nil {
				e.unlock(l)
			}
			return err
		}
		e.named(replay(), "lock", "n", mortise.ErrClaimEnded)
		again = e.lock(a, outer.Context(), "n") // a hold of the same depth
		e.named(replay(), "lock", "n", mortise.ErrClaimEnded)
		e.unlock(again)
		e.unlock(outer)
		e.named(replay(), "lock", "n", mortise.ErrClaimEnded)
		other := e.lock(a, context.Background(), "n")
		e.named(replay(), "lock", "n", mortise.ErrClaimEnded)
		e.unlock(other)
	}},
	{"Rule07_AChainOfCallersAndCallees", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b, c := e.client(), e.client(), e.client()
		ctx := context.Background()
		l1 := e.lock(a, ctx, "n")
		l2 := e.lock(b, e.adopted(b, l1), "n")
		l3 := e.lock(a, e.adopted(a, l2), "n")
		l4 := e.lock(c, e.adopted(c, l3), "n")
		l5 := e.lock(c, l4.Context(), "n")
		for _, l := range []*mortise.Lease{l5, l4, l3, l2} {
			if _, err := b.TryLock(ctx, "n"); !errors.Is(err, mortise.ErrNotAcquired) {
				e.Errorf("a competitor: %v", err)
			}
			e.unlock(l)
			e.is("a second Unlock", l.Unlock(ctx), mortise.ErrNotHeld)
		}
		if s := e.inspect(b, "n"); !s.Held || s.Client != a.ID() || s.Holds != 1 {
			e.Errorf("%+v, want one hold of the first", s)
		}
		e.unlock(l1)
		e.unlock(e.lock(b, ctx, "n"))
	}},
	{"Rule07_NamesThatDifferInTheirBracesOnlyAreEnteredEachByItself", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b, c := e.client(), e.client(), e.client()
		ctx := context.Background()
		names := []string{"n", "{n}", "{n}:", ":{n}"}
		var leases []*mortise.Lease
		callees := make([]*mortise.Lease, len(names))
		for i, n := range names {
			outer := e.lock(a, ctx, n)
			callees[i] = e.lock(b, e.adopted(b, outer), n)
			leases = append(leases, outer, callees[i])
		}
		for i, n := range names { // each callee's callee enters, while the other names are entered, too
			got, err := c.TryLock(e.adopted(c, callees[i]), n)
			if err != nil {
				e.Fatalf("TryLock of %q, beneath the callee that holds it: %v", n, err)
			}
			e.unlock(got)
		}
		for _, l := range slices.Backward(leases) {
			e.unlock(l)
		}
		for _, n := range names {
			e.free(a, n)
		}
	}},
	{"Rule08_WaitingForATurnUnderACallerCostsNothing", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a := e.client()
		b, fb := e.tapped()
		c := e.client()
		outer := e.lock(a, context.Background(), "n")
		first := e.lock(c, e.adopted(c, outer), "n")
		got := locking(b, e.adopted(b, outer), "n", mortise.WithWait(patience))
		e.until("it waits", func() bool { return fb.Watching() > 0 && fb.underway(OpAcquire) == 0 && fb.Count(OpAcquire) >= 2 })
		asked := fb.Count(OpAcquire)
		e.always(500*time.Millisecond, "nothing is asked", func() bool { return fb.Count(OpAcquire) == asked })
		e.unlock(first)
		r := receive(e, "it is its turn", got)
		if r.err != nil {
			e.Fatalf("Lock: %v", r.err)
		}
		self := locking(a, outer.Context(), "n", mortise.WithWait(patience)) // the caller waits likewise
		e.unlock(r.lease)
		if r = receive(e, "it is the caller's turn", self); r.err != nil {
			e.Fatalf("Lock: %v", r.err)
		}
		e.unlock(r.lease)
		e.unlock(outer)
	}},
	{"Rule08_WhoWaitsUnderACallerThatLeavesHearsIt", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b, c := e.client(), e.client(), e.client()
		outer := e.lock(a, context.Background(), "n")
		first := e.lock(c, e.adopted(c, outer), "n")
		ctx := e.adopted(b, outer)
		got := locking(b, ctx, "n", mortise.WithWait(patience))
		fresh := locking(b, context.Background(), "n", mortise.WithWait(patience))
		e.unlock(outer)
		e.named(receive(e, "it hears that the claim has ended", got).err, "lock", "n", mortise.ErrClaimEnded)
		_, err := b.TryLock(ctx, "n")
		e.named(err, "trylock", "n", mortise.ErrClaimEnded)
		if e.inspect(b, "n").Client != c.ID() {
			e.Error("it is not the callee's")
		}
		e.unlock(first)
		r := receive(e, "a competitor gets the lock", fresh)
		if r.err != nil {
			e.Fatalf("Lock: %v", r.err)
		}
		e.unlock(r.lease)
	}},
	{"Rule09_AnAbandonedEntryLeavesNothing", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a := e.client()
		b, fb := e.tapped()
		outer := e.lock(a, context.Background(), "n")
		for _, fate := range []func(held chan struct{}) Fate{
			func(held chan struct{}) Fate { return Fate{Before: held} },
			func(held chan struct{}) Fate { return Fate{After: held} },
			func(held chan struct{}) Fate { return Fate{Later: held} },
		} {
			held := make(chan struct{})
			var once sync.Once
			started := make(chan struct{})
			fb.Hook(func(c Call) Fate {
				f := Fate{}
				if c.Op == OpAcquire {
					once.Do(func() { f = fate(held); close(started) })
				}
				return f
			})
			ctx, cancel := context.WithCancel(e.adopted(b, outer))
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
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule11_ALostReplyOfAnEntryOrItsReleaseCountsOnce", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a := e.client()
		b, fb := e.tapped()
		outer := e.lock(a, context.Background(), "n")
		for _, op := range []Op{OpAcquire, OpRelease} {
			var once sync.Once
			fb.Hook(func(c Call) (f Fate) {
				if c.Op == op {
					once.Do(func() { f = Fate{Lost: true} })
				}
				return f
			})
			e.unlock(e.lock(b, e.adopted(b, outer), "n"))
			e.unlock(e.lock(a, outer.Context(), "n"))
		}
		fb.Hook(nil)
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule12_CallerAndCalleeOutliveARestart", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		outer := e.lock(a, context.Background(), "n")
		ctx := e.adopted(b, outer)
		inner := e.lock(b, ctx, "n")
		e.store.Down()
		e.store.Up()
		for _, lease := range []*mortise.Lease{inner, outer} {
			// With its data or without: a release says which, and touches nobody's lock.
			if err := lease.Unlock(context.Background()); err != nil && !errors.Is(err, mortise.ErrNotHeld) {
				e.Errorf("Unlock: %v", err)
			}
		}
		e.free(a, "n")
		_, err := b.TryLock(ctx, "n")
		e.is("the claim, afterwards", err, mortise.ErrClaimEnded)
		e.unlock(e.lock(b, context.Background(), "n"))
	}},
	{"Rule12_WhoWaitsForATurnOutlivesBrokenConnections", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b, c := e.client(mortise.WithWatchdogTimeout(10*time.Second)), e.client(mortise.WithWatchdogTimeout(10*time.Second)), e.client()
		outer := e.lock(a, context.Background(), "n")
		inner := e.lock(b, e.adopted(b, outer), "n")
		waits := locking(c, e.adopted(c, outer), "n", mortise.WithWait(patience))
		e.store.Cut()
		e.unlock(inner)
		r := receive(e, "one who waited for its turn gets it though connections broke", waits)
		if r.err != nil {
			e.Fatalf("Lock: %v", r.err)
		}
		e.unlock(r.lease)
		e.unlock(outer)
		e.free(a, "n")
	}},
	{"Rule07_AReentryThatWasOnItsWayWhenAClaimWasGivenOutDoesNotMeetACallee", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		for name, fate := range map[string]func(<-chan struct{}) Fate{
			"asked before": func(held <-chan struct{}) Fate { return Fate{After: held} },
			"asked after":  func(held <-chan struct{}) Fate { return Fate{Before: held} },
		} {
			a, fa := e.tapped()
			b := e.client()
			outer := e.lock(a, context.Background(), name)
			held, asks := make(chan struct{}), make(chan struct{})
			var once sync.Once
			fa.Hook(func(c Call) (f Fate) {
				if c.Op == OpReenter {
					once.Do(func() { f = fate(held); close(asks) })
				}
				return f
			})
			self := locking(a, outer.Context(), name, mortise.WithWait(patience))
			receive(e, "it asks", asks)
			if name == "asked before" {
				e.until("the store has set the count", func() bool { return e.inspect(b, name).Holds == 2 })
			}
			callee := locking(b, e.adopted(b, outer), name, mortise.WithWait(patience))
			if name == "asked after" {
				r := receive(e, "the callee is in", callee)
				if r.err != nil {
					e.Fatalf("Lock: %v", r.err)
				}
				close(held)
				e.always(300*time.Millisecond, "the caller is out", func() bool { return len(self) == 0 })
				e.unlock(r.lease)
				r = receive(e, "the caller is in", self)
				if r.err != nil {
					e.Fatalf("Lock: %v", r.err)
				}
				e.unlock(r.lease)
			} else {
				e.always(300*time.Millisecond, "the callee is out", func() bool { return len(callee) == 0 })
				close(held)
				both := 0
				for both < 2 {
					var r result
					select {
					case r = <-callee:
					case r = <-self:
					case <-time.After(patience):
						e.Fatalf("%s: neither got in", name)
					}
					if r.err != nil {
						e.Fatalf("Lock: %v", r.err)
					}
					if both++; both == 1 {
						e.always(100*time.Millisecond, "the other is out", func() bool { return len(callee)+len(self) == 0 })
					}
					e.unlock(r.lease)
				}
			}
			e.unlock(outer)
			e.free(a, name)
		}
	}},
	{"Rule02_ARenewalThatWasOnItsWayWhenAClaimWasGivenOutDoesNotCount", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		// The store knows the caller's time as it was when the callee entered: what the renewal adds to the lock's time goes
		// when the callee leaves. So the caller must not count on it, if nothing of it arrives from then on.
		a, fa := e.tapped(mortise.WithWatchdogTimeout(6 * time.Second))
		b := e.client()
		outer := e.lock(a, context.Background(), "n")
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
		inner := e.lock(b, e.adopted(b, outer), "n")
		close(held)
		e.until("the renewal has come", func() bool { return fa.Calls(OpRenew)[0].Ended > 0 })
		e.unlock(inner)
		l := e.lock(b, context.Background(), "n")
		e.is("the caller, when another has got the lock", outer.Err(), mortise.ErrLost)
		e.unlock(l)
	}},
	{"Rule03_CallerAndCalleeDoNotMakeEachOtherAsk", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		// Where the store tells of changes, each one's renewal is one of the other's record.
		const timeout = 3 * time.Second
		a, fa := e.tapped(mortise.WithWatchdogTimeout(timeout))
		b, fb := e.tapped(mortise.WithWatchdogTimeout(timeout))
		outer := e.lock(a, context.Background(), "n")
		inner := e.lock(b, e.adopted(b, outer), "n")
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
			if n := f.Count(OpRenew); n < 4 || n > 3*periods {
				e.Errorf("%d renewals and questions in %d periods, want one of each", n, periods)
			}
		}
		e.unlock(inner)
		e.unlock(outer)
	}},
	{"Rule14_ShutdownWaitsForThoseWhoEntered", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		outer := e.lock(a, context.Background(), "n")
		ctx := e.adopted(b, outer)
		inner := e.lock(b, ctx, "n")
		down := async(func() error { return b.Shutdown(context.Background()) })
		e.until("it is shutting down", func() bool {
			l, err := b.TryLock(context.Background(), "m")
			if err == nil {
				e.unlock(l)
			}
			return errors.Is(err, mortise.ErrClosed)
		})
		again := e.lock(b, inner.Context(), "n") // its holders may finish
		_, err := b.Lock(ctx, "n")
		e.is("a new entry", err, mortise.ErrClosed)
		e.unlock(again)
		e.unlock(inner)
		if err := receive(e, "Shutdown", down); err != nil {
			e.Errorf("Shutdown: %v", err)
		}
		e.unlock(outer)
	}},
	{"Kinds_AreEnteredFromElsewhere", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		fenced := e.kind(a, mortise.Kind{Fenced: true})
		bFenced := e.kind(b, mortise.Kind{Fenced: true})
		outer := e.lock(fenced, context.Background(), "n")
		token, _ := outer.Token()
		inner := e.lock(bFenced, e.adopted(b, outer), "n")
		if got, is := inner.Token(); !is || got != token {
			e.Errorf("a callee's token is %d, want its caller's, %d", got, token)
		}
		_, err := e.kind(b, mortise.Kind{NonReentrant: true}).Lock(inner.Context(), "n")
		e.is("NonReentrant, in the callee", err, mortise.ErrInvalid)
		e.unlock(inner)
		claim := mortise.ClaimsOf(outer.Context())[0]
		claim.Token++ // one that nobody has drawn would shut out all who come after
		forged, err := b.Adopt(context.Background(), claim)
		if err != nil {
			e.Fatalf("Adopt: %v", err)
		}
		_, err = b.TryLock(forged, "n")
		e.named(err, "trylock", "n", mortise.ErrClaimEnded)
		_, err = e.kind(b, mortise.Kind{NonReentrant: true}).Lock(e.adopted(b, outer), "n")
		e.is("NonReentrant", err, mortise.ErrInvalid)
		e.unlock(outer)

		outer = e.lock(a, context.Background(), "n")
		inner = e.lock(bFenced, e.adopted(b, outer), "n") // the caller has none
		if got, is := inner.Token(); !is || got <= token {
			e.Errorf("a token of %d is not larger than %d", got, token)
		}
		e.unlock(inner)
		e.unlock(e.lock(e.kind(b, mortise.Kind{Spin: 5 * time.Millisecond}), e.adopted(b, outer), "n"))
		e.unlock(outer)

		fair, err := a.Kind(mortise.Kind{Fair: true})
		if err != nil {
			return
		}
		bFair := e.kind(b, mortise.Kind{Fair: true})
		outer = e.lock(fair, context.Background(), "n")
		inner = e.lock(bFair, e.adopted(b, outer), "n")
		next := locking(bFair, context.Background(), "n", mortise.WithWait(patience))
		e.unlock(outer)
		e.unlock(inner)
		r := receive(e, "the next in the queue", next)
		if r.err != nil {
			e.Fatalf("Lock: %v", r.err)
		}
		e.unlock(r.lease)
	}},
	{"Kinds_LockAllEntersWhatItsCallerHolds", func(e *env) {
		if s, _ := e.nesting(); s == nil {
			return
		}
		a, b := e.client(), e.client()
		ctx := context.Background()
		all, err := mortise.LockAll(ctx, []mortise.Part{{Locker: a, Name: "x{t}"}, {Locker: a, Name: "y{t}"}})
		if err != nil {
			e.Fatal(err)
		}
		inner, err := mortise.LockAll(e.adopted(b, all), []mortise.Part{{Locker: b, Name: "y{t}"}, {Locker: b, Name: "z{t}"}, {Locker: b, Name: "x{t}"}}, mortise.WithWait(patience))
		if err != nil {
			e.Fatal(err)
		}
		e.unlock(all)
		for _, n := range []string{"x{t}", "y{t}", "z{t}"} {
			if s := e.inspect(a, n); s.Client != b.ID() {
				e.Errorf("%s: %+v, want it to be the callee's", n, s)
			}
		}
		e.unlock(inner)
		for _, n := range []string{"x{t}", "y{t}", "z{t}"} {
			e.free(a, n)
		}
	}}, {"Rule10_APartialUnlockThatFailedIsRepeated", func(e *env) {
		c, f := e.tapped()
		outer := e.lock(c, context.Background(), "n", mortise.WithLease(long))
		inner := e.lock(c, outer.Context(), "n", mortise.WithLease(long))
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRelease} })
		e.named(inner.Unlock(context.Background()), "unlock", "n", mortise.ErrUnavailable)
		f.Hook(nil)
		e.until("the store's count is right", func() bool { return e.inspect(c, "n").Holds == 1 })
		e.unlock(outer)
		e.free(c, "n")
	}},
	{"Rule10_ACalleeGetsInThoughAHoldOfItsCallerRanOutDuringAPartialUnlock", func(e *env) {
		a, f := e.tapped()
		b := e.client()
		outer := e.lock(a, context.Background(), "n")
		mid := e.lock(a, outer.Context(), "n", mortise.WithMaxHold(time.Second))
		inner := e.lock(a, mid.Context(), "n")
		called := e.adopted(b, outer)
		reply := make(chan struct{})
		f.Hook(func(call Call) Fate {
			if call.Op == OpRelease {
				return Fate{After: reply}
			}
			return Fate{}
		})
		unlocked := async(func() error { return inner.Unlock(context.Background()) })
		e.until("the release is sent", func() bool { return f.Count(OpRelease) == 1 })
		e.within("the hold between runs out", mid.Context().Done())
		f.Hook(nil)
		close(reply)
		if err := <-unlocked; err != nil {
			e.Fatal(err)
		}
		callee := e.lock(b, called, "n", mortise.WithLease(long), mortise.WithWait(patience))
		e.unlock(callee)
		e.unlock(outer)
		e.free(b, "n")
	}},
	{"Rule10_ACalleeGetsInAfterAPartialUnlockOfItsCallerFailed", func(e *env) {
		a, f := e.tapped()
		b := e.client()
		outer := e.lock(a, context.Background(), "n", mortise.WithLease(long))
		inner := e.lock(a, outer.Context(), "n", mortise.WithLease(long))
		called := e.adopted(b, outer)
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRelease} })
		e.named(inner.Unlock(context.Background()), "unlock", "n", mortise.ErrUnavailable)
		f.Hook(nil)
		callee := e.lock(b, called, "n", mortise.WithLease(long))
		e.unlock(callee)
		e.unlock(outer)
		e.free(b, "n")
	}},
}

// adopted is the context of a call made under lease, where it arrives at c.
func (e *env) adopted(c *mortise.Client, lease *mortise.Lease) context.Context {
	e.Helper()
	claims := mortise.ClaimsOf(lease.Context())
	if len(claims) == 0 {
		e.Fatalf("no claim of a lease on %q", lease.Name())
	}
	ctx, err := c.Adopt(context.Background(), claims...)
	if err != nil {
		e.Fatalf("Adopt: %v", err)
	}
	return ctx
}
