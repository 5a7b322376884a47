package backendtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// multiTests are about locks that are taken together. They skip a backend that
// cannot.
var multiTests = []test{
	// the port
	{"Port_All_AreTakenOrNone", func(e *env) {
		s := e.multi()
		if r := s.all("o:1", long, three...); !granted(r) {
			e.Fatalf("%+v, want all granted", r)
		}
		for _, n := range three {
			rec := s.record(n)
			e.errorIf(rec.Owner != "o:1" || rec.Holds != 1 || rec.Remaining <= long/2 || rec.Remaining > long,
				"%s: the record is %+v", n, rec)
			e.errorIf(s.acquire(n, "p:1", long).Granted, "%s was granted twice", n)
		}
		s.free("o:1", three...)
		s.take(three[1], "p:1", 30*time.Second)
		r := s.all("o:2", long, three...)
		e.errorIf(slices.ContainsFunc(r, func(r backend.AcquireReply) bool { return r.Granted }) || r[0].Remaining != 0 ||
			r[2].Remaining != 0 || r[1].Remaining <= 15*time.Second || r[1].Remaining > 30*time.Second,
			"%+v, want the second refused for what is left of 30s, the others not the reason", r)
		for _, n := range []string{three[0], three[2]} {
			s.isFree(n)
		}
	}},
	{"Port_All_TwiceCountOnceAndLeaveTheTimeAlone", func(e *env) {
		s := e.multi()
		for _, lease := range []time.Duration{30 * time.Second, long} {
			r := s.all("o:1", lease, three...)
			e.fatalIf(!granted(r), "%+v, want all granted", r)
		}
		for _, n := range three {
			rec := s.record(n)
			e.errorIf(rec.Holds != 1 || rec.Remaining > 30*time.Second, "%s: the record is %+v, want one hold for 30s", n, rec)
		}
		// One went meanwhile: it is taken again, the others are as they were.
		e.store.Delete(three[1])
		e.until("all are held", func() bool { return granted(s.all("o:1", long, three...)) })
		s.remains(three[0], 0, 30*time.Second)
		// One went to another: none is granted, the others are as they were.
		e.store.Delete(three[1])
		s.take(three[1], "p:1", long)
		r := s.all("o:1", long, three...)
		e.errorIf(granted(r) || r[1].Remaining == 0 || r[0].Remaining != 0, "%+v, want the second refused", r)
		rec := s.record(three[0])
		e.errorIf(rec.Owner != "o:1", "the record is %+v", rec)
	}},
	{"Port_All_AKeyOfAnotherKindIsNamedAndNothingTaken", func(e *env) {
		s := e.multi()
		s.take(three[0], "p:1", long) // a wrong kind goes before a refusal
		e.store.Occupy(three[2])
		_, err := s.AcquireAll(background, requests("o:1", long, three...))
		var about *backend.RequestError
		if e.is("AcquireAll", err, backend.ErrWrongKind); !errors.As(err, &about) || about.Index != 2 {
			e.Errorf("%v, want it about the third", err)
		}
		e.errorIf(backend.FaultOf(err).MayHaveRun, "%v may have run", err)
		s.isFree(three[1])
		if s.Capabilities().ReadWrite == nil {
			return
		}
		if _, err := s.Acquire(background,
			anykind.AcquireRequest{Kind: backend.KindWrite, Name: three[1], Owner: "p:2", Lease: long}); err != nil {
			e.Fatal(err)
		}
		_, err = s.AcquireAll(background, requests("o:1", long, three[1], "{t}:d"))
		if e.is("AcquireAll", err, backend.ErrWrongKind); !errors.As(err, &about) || about.Index != 0 {
			e.Errorf("%v, want it about the first", err)
		}
	}},
	{"Port_All_FencedOnesDrawTokensThatRise", func(e *env) {
		s := e.multi()
		last := s.fenced(three[0], "p:1")
		s.release(three[0], "p:1", 0)
		in := requests("o:1", long, three...)
		in[0].Fenced, in[2].Fenced = true, true
		for range 2 {
			out, err := s.AcquireAll(background, in)
			e.fatalIf(err != nil || !granted(out), "%+v, %v", out, err)
			e.errorIf(out[0].Token <= last || out[1].Token != 0 || out[2].Token <= 0,
				"%+v, want tokens for the first and the third, the first above %d", out, last)
			last = out[0].Token
		}
		s.free("o:1", three...)
		n := s.fenced(three[0], "p:2")
		e.errorIf(n <= last, "a token of %d after %d", n, last)
	}},
	{"Port_All_ReleasesAreIndependentAndAnnounced", func(e *env) {
		s := e.multi()
		other, h := e.session()
		for _, n := range three {
			other.watch(h, n)
		}
		s.all("o:1", long, three[:2]...)
		s.take(three[2], "p:1", long)
		e.store.Occupy("{t}:d")
		in := []backend.ReleaseRequest{
			{Name: three[0], Owner: "o:1"}, {Name: "{t}:d", Owner: "o:1"}, {Name: three[2], Owner: "o:1"},
			{Name: three[1], Owner: "o:1", Keep: 2},
		}
		out := make([]backend.ReleaseResult, len(in))
		s.ReleaseAll(background, in, out)
		e.errorIf(!out[0].Held || out[0].Err != nil || out[2].Held || out[2].Err != nil || !out[3].Held || out[3].Err != nil,
			"%+v", out)
		e.is("the second", out[1].Err, backend.ErrWrongKind)
		e.until("the first's release is heard of", func() bool { return h.count("released "+three[0]) == 1 })
		s.isFree(three[0])
		rec := s.record(three[1])
		e.errorIf(rec.Holds != 2, "the one that was kept: %+v, want 2 holds", rec)
		rec = s.record(three[2])
		e.errorIf(rec.Owner != "p:1", "another's: %+v", rec)
		s.free("o:1", three[1])
		e.until("the kept one's release is heard of", func() bool { return h.count("released "+three[1]) == 1 })
		equal(e, "%d releases of another's lock were announced", h.count("released "+three[2]), 0)
	}},
	{"Port_All_GroupsHaveEachNameOnce", func(e *env) {
		s := e.multi()
		names := []string{"a", "b", "{t}:a", "c", "{t}:b", "d", "t"}
		seen := make(map[int]bool)
		for _, g := range s.Groups(names) {
			for _, i := range g {
				e.errorIf(seen[i], "%d is there twice", i)
				seen[i] = true
			}
		}
		e.errorIf(len(seen) != len(names), "%v of %d names", seen, len(names))
		g := s.Groups(three)
		e.errorIf(len(g) != 1 || !slices.Equal(g[0], []int{0, 1, 2}), "names of one tag are the groups %v", g)
		g = s.Groups(nil)
		e.errorIf(len(g) != 0, "no name is the groups %v", g)
	}},
	{"Port_All_ANameTwiceIsRefused", func(e *env) {
		s := e.multi()
		in := requests("o:1", long, three[0], three[1], three[0])
		in[2].Owner = "o:2"
		_, err := s.AcquireAll(background, in)
		e.errorIf(err == nil || backend.FaultOf(err).MayHaveRun, "%v, want an error, and nothing done", err)
		s.isFree(three[0])
	}},
	{"Port_All_WhatIsKnownToBeHeldIsCorrected", func(e *env) {
		a := e.multi()
		b := e.multi()
		cached := func(s *rawMulti, owner string, names ...string) []backend.AcquireReply {
			in := requests(owner, long, names...)
			for i := range in {
				in[i].Unasked = true
			}
			return value(s.AcquireAll(background, in)).in(e)
		}
		a.all("o:1", long, three...)
		for range 3 { // from the second on it may be known
			r := cached(b, "p:1", three...)
			e.errorIf(granted(r) || !slices.ContainsFunc(r, func(r backend.AcquireReply) bool { return r.Remaining != 0 }),
				"%+v, want it refused", r)
			if r, err := b.Acquire(background,
				anykind.AcquireRequest{Name: three[1], Owner: "p:2", Lease: long, Unasked: true}); err != nil || r.Granted {
				e.Errorf("%+v, %v, want it refused", r, err)
			}
		}
		a.free("o:1", three...)
		e.until("the release of all is known", func() bool { return granted(cached(b, "p:1", three...)) })
		r := cached(a, "o:2", three...)
		e.errorIf(granted(r), "%+v, want it refused", r)
		// What a session releases or takes itself it is not told of.
		b.free("p:1", three...)
		r = cached(b, "p:3", three...)
		e.errorIf(!granted(r), "%+v, want its own release known at once", r)
		b.free("p:3", three...)
		e.until("one by one too", func() bool {
			return a.tries(anykind.AcquireRequest{Name: three[2], Owner: "o:3", Lease: long, Unasked: true})
		})
	}},

	// the rules
	{"Rule01_LockAll_ExcludesInAnyOrderAndAllFinish", func(e *env) {
		names := []string{"{t}:a", "{t}:b", "{t}:c", "{u}:d", "e"}
		in := make([]atomic.Int32, len(names))
		value := make([]int, len(names)) // guarded by the locks alone: the race detector looks
		all := several(3, func() *mortise.Client { return e.client() })
		e.turns(12, 12, func(g, _ int) error {
			order := rand.Perm(len(names))[:1+rand.IntN(len(names))]
			var p mortise.Parts
			for _, i := range order {
				p = p.And(all[g%3], names[i])
			}
			l, err := p.Lock(background, mortise.WithWait(10*patience))
			if err != nil {
				return err
			}
			for _, i := range order {
				equal(e, names[i]+" has %d inside", in[i].Add(1), 1)
				value[i]++
			}
			for _, i := range order {
				in[i].Add(-1)
			}
			return l.Unlock(background)
		})
	}},
	{"Rule01_LockAll_AKeyOfAnotherKindIsNamed", func(e *env) {
		c := e.client()
		e.store.Occupy(three[1])
		for range 2 {
			_, err := c.LockAll(background, three, mortise.WithWait(patience))
			e.named(err, "lock", three[1], mortise.ErrWrongKind)
		}
		for _, n := range []string{three[0], three[2]} {
			s := e.inspect(c, n)
			e.errorIf(s.Held, "%s is held: %+v", n, s)
		}
	}},
	{"Rule02_LockAll_EndsWithItsFirstLostPart", func(e *env) {
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		l := e.lockAll(c, three...)
		e.store.Delete(three[1])
		receive(e, "the lease's context ends", l.Context().Done())
		e.is("the cause", context.Cause(l.Context()), mortise.ErrLost)
		e.is("Err", l.Err(), mortise.ErrLost)
		e.is("Unlock", l.Unlock(background), mortise.ErrLost)
		e.free(c, three...)
	}},
	{"Rule03_LockAll_IsRenewedInOneBatch", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(2 * watchdog))
		l := e.lockAll(c, three...)
		e.until("it is renewed", func() bool { return f.Count(OpRenew) >= 2 || l.Err() != nil })
		e.must("the lease ended", l.Err())
		most := 0
		for _, call := range f.Calls(OpRenew) {
			most = max(most, call.Requests)
		}
		least := len(three)
		if e.machine != nil && e.bare().Capabilities().Batch == nil {
			least-- // the leases began one after the other, perhaps long before one another on a busy machine
		}
		e.errorIf(most < least || most > len(three), "%d leases were renewed at once, want %d", most, len(three))
		e.unlock(l)
	}},
	{"Rule04_LockAll_TakesOverFromADeadHolder", func(e *env) {
		s := e.bare()
		c := e.client()
		s.take(three[0], "dead:1", 300*time.Millisecond)
		s.take(three[2], "dead:2", 600*time.Millisecond)
		e.unlock(e.lockAll(c, three...))
	}},
	{"Rule05_LockAll_NothingIsRenewedAfterItsRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		begin := time.Now()
		l := e.lockAll(c, three...)
		e.until("it is renewed", func() bool { return f.Count(OpRenew) > 0 || l.Err() != nil })
		e.unlock(l)
		released := f.Calls(OpReleaseAll, OpRelease)[0]
		most := 0
		if time.Since(begin) > watchdog*2/3 {
			most = 1 // the next was due before the release, and may have been on its way to the session
		}
		e.always(watchdog/2, "nothing is renewed", func() bool {
			after := 0
			for _, r := range f.Calls(OpRenew) {
				if r.Began > released.Ended {
					after++
				}
			}
			return after <= most
		})
	}},
	{"Rule06_LockAll_UnlockAfterALossTouchesNoOtherLock", func(e *env) {
		c := e.client()
		s := e.bare()
		l := e.lockAll(c, three...)
		e.store.Delete(three[1])
		e.until("another has it", func() bool { return s.acquire(three[1], "p:1", long).Granted })
		e.is("Unlock", l.Unlock(background), mortise.ErrLost)
		rec := s.record(three[1])
		e.errorIf(rec.Owner != "p:1", "another's record is %+v", rec)
		e.free(c, three[0], three[2])
	}},
	{"Rule07_LockAll_EntersAgainAndIsEnteredAgain", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, three[1])
		all, err := c.LockAll(outer.Context(), append(slices.Clone(three), three[0]), mortise.WithWait(patience))
		e.fatalIf(err != nil, "LockAll: %v", err)
		for i, want := range []int{2, 2, 1} {
			if s := e.inspect(c, three[i]); s.Holds != want {
				e.Errorf("%s is held %d times, want %d", three[i], s.Holds, want)
			}
		}
		for _, n := range three {
			e.unlock(e.lock(c, all.Context(), n))
		}
		e.unlock(all)
		e.is("Unlock again", all.Unlock(background), mortise.ErrReleased)
		if s := e.inspect(c, three[1]); s.Holds != 1 || outer.Err() != nil {
			e.Errorf("the outer hold: %+v, %v", s, outer.Err())
		}
		e.unlock(outer)
		e.free(c, three...)
	}},
	{"Rule08_LockAll_WaitsWithoutAskingAndIsWokenByEachRelease", func(e *env) {
		holder := e.multi()
		holder.all("o:1", long, three...)
		c, f := e.tapped()
		waiting := lockingAll(c, mortise.WithWait(10*patience))
		e.until("it watches", func() bool { return f.Watching() > 0 })
		e.settled(f)
		asked := f.Count()
		e.always(500*time.Millisecond, "it sleeps", func() bool { return f.Count() == asked })
		// One after the other: it moves on to wait for what is still held.
		for i, n := range three {
			holder.free("o:1", n)
			if i == len(three)-1 {
				break
			}
			e.until("it moved on", func() bool { return len(f.Calls(OpSubscribe)) >= i+2 && len(f.Calls(OpUnsubscribe)) >= i+1 })
			e.settled(f)
		}
		got := e.granted("it gets all", waiting)
		// After each release it takes one by one, and gives back what it has when one is held for long: each is asked for,
		// and once more when it is watched.
		if all, one := f.Count(OpAcquireAll), f.Count(OpAcquire); all != 1 || one > 2*len(three)*len(three) {
			e.Errorf("it asked %d times for all and %d times for one, want once, and a few times for each release", all, one)
		}
		e.unlock(got.lease)
	}},
	{"Rule08_LockAll_WakesTheWaitersOfEachName", func(e *env) {
		a, b := e.client(), e.client()
		for range 5 {
			l := e.lockAll(a, three...)
			var waiting []<-chan error
			for _, c := range []*mortise.Client{a, b} {
				for _, n := range three {
					waiting = append(waiting, async(func() error {
						return e.inside(c, background, n, func(*mortise.Lease) {})
					}))
				}
				waiting = append(waiting, async(func() error {
					l, err := c.LockAll(background, []string{three[2], three[0]}, mortise.WithWait(patience))
					if err == nil {
						err = l.Unlock(background)
					}
					return err
				}))
			}
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) // any time is right
			e.unlock(l)
			for _, w := range waiting {
				e.must("a waiter", receive(e, "a waiter is woken", w))
			}
		}
	}},
	{"Rule09_LockAll_CancelledWhileItsReplyIsOnItsWayGivesAllBack", func(e *env) {
		e.multi()
		c, f := e.tapped()
		reply := f.holds(replyLate, OpAcquireAll)
		e.is("LockAll", e.abandon(f, background, func(ctx context.Context) error {
			return second(c.LockAll(ctx, three, mortise.WithLease(long)))
		}, OpAcquireAll), context.Canceled)
		equal(e, "%d releases overtook the acquire", f.Count(OpRelease, OpReleaseAll), 0)
		close(reply)
		f.Hook(nil)
		plain := e.client()
		for _, n := range three {
			e.until("it was given back", func() bool { return f.Count(OpRelease, OpReleaseAll) > 0 })
			e.free(plain, n)
		}
		e.unlock(e.lockAll(plain, three...))
	}},
	{"Rule09_LockAll_OneThatTakesEffectLateIsCompensated", func(e *env) {
		e.multi()
		c, f := e.tapped()
		arrive := f.holds(arrivesLate, OpAcquireAll)
		_, err := c.LockAll(background, three, mortise.WithLease(long))
		e.is("LockAll", err, mortise.ErrUnavailable)
		e.until("it was given back in vain", func() bool { return f.Count(OpRelease) >= 2*len(three) })
		close(arrive)
		f.Hook(nil)
		for _, n := range three {
			e.until("it was found and given back", func() bool {
				found := slices.DeleteFunc(f.Calls(OpRelease), func(r Call) bool {
					return r.Name != n || r.Ended == 0 || r.Err != nil
				})
				return len(found) > 2 && !e.inspect(c, n).Held
			})
		}
	}},
	{"Rule09_LockAll_GivesBackWhatItHadWhereAPartIsHeld", func(e *env) {
		c := e.client()
		s := e.bare()
		s.take("{u}:x", "o:1", long)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		other := e.client(mortise.WithObserver(mortise.Observer{Waiting: func(w mortise.Event) {
			if w.Name == "{u}:x" { // it waits for that, and holds nothing
				cancel()
			}
		}}))
		got := receive(e, "LockAll returns", async(func() error {
			return second(mortise.Parts{}.And(c, three...).And(other, "{u}:x").Lock(ctx))
		}))
		op := "lock"
		if about, is := errors.AsType[*mortise.Error](got); is && about.Op == "lockall" {
			op = about.Op // between two rounds: the parts are kept for a quarter of a second in each
		}
		e.named(got, op, "{u}:x", context.Canceled)
		e.free(c, three...)
	}},
	{"Rule10_LockAll_UnlockUnderACancelledContextReleasesAll", func(e *env) {
		c := e.client()
		l := e.lockAll(c, three...)
		ctx := ended()
		if err := l.Unlock(ctx); err != nil { // it may be quicker than the context
			e.is("Unlock", err, context.Canceled)
		}
		e.free(c, three...)
	}},
	{"Rule11_LockAll_LostRepliesCountOnce", func(e *env) {
		c, f := e.tapped()
		loseEveryOther(f)
		all, err := c.LockAll(background, three, mortise.WithWait(patience), mortise.WithLease(long))
		e.fatalIf(err != nil, "LockAll: %v", err)
		again, err := c.LockAll(all.Context(), three, mortise.WithWait(patience), mortise.WithLease(long))
		e.fatalIf(err != nil, "LockAll again: %v", err)
		plain := e.client()
		for _, n := range three {
			e.holds(plain, n, 2)
		}
		e.unlock(again)
		for _, n := range three {
			e.holds(plain, n, 1)
		}
		e.unlock(all)
		e.free(plain, three...)
	}},
	{"Rule11_LockAll_AReleaseThatIsNotConfirmedIsRetriedInTheBackground", func(e *env) {
		c, f := e.tapped()
		all, err := c.LockAll(background, three, mortise.WithWait(patience), mortise.WithLease(long))
		e.fatalIf(err != nil, "LockAll: %v", err)
		f.Hook(func(c Call) Fate { return Fate{Refused: c.Op == OpRelease || c.Op == OpReleaseAll} })
		e.is("Unlock", all.Unlock(background), mortise.ErrUnavailable)
		f.Hook(nil)
		e.free(c, three...)
	}},
	{"Rule12_LockAll_GetsItThoughItsConnectionBroke", func(e *env) {
		a := e.client()
		b, f := e.tapped()
		l := e.lockAll(a, three...)
		waiting := lockingAll(b, mortise.WithWait(10*patience))
		e.until("it watches", func() bool { return f.Watching() > 0 })
		e.store.Cut()
		l.Unlock(background) // it may take a repetition in the background
		e.unlock(e.granted("the waiter gets all", waiting).lease)
	}},
	{"Rule13_LockAll_AStoreThatIsDownIsTold", func(e *env) {
		c := e.client()
		e.unlock(e.lockAll(c, three...))
		e.store.Down()
		defer e.store.Up()
		got := receive(e, "LockAll returns",
			async(func() error { return second(c.LockAll(background, three)) }))
		e.named(got, "lock", three[0], mortise.ErrUnavailable)
	}},
	{"Rule14_LockAll_ShutdownWakesItAndWaitsForItsUnlock", func(e *env) {
		a := e.client()
		b, f := e.tapped()
		l := e.lockAll(a, three...)
		waiting := lockingAll(b)
		e.until("it watches", func() bool { return f.Watching() > 0 })
		e.done("Shutdown", receive(e, "Shutdown returns", async(func() error { return b.Shutdown(background) })))
		e.is("LockAll", receive(e, "the waiter wakes", waiting).err, mortise.ErrClosed)
		down := async(func() error { return a.Shutdown(background) })
		e.until("it refuses new locks", func() bool {
			l, err := a.LockAll(background, []string{"{t}:y", "{t}:z"})
			if err == nil { // it was not yet shutting down
				e.unlock(l)
			}
			return errors.Is(err, mortise.ErrClosed)
		})
		if len(down) > 0 || l.Err() != nil {
			e.Errorf("Shutdown is over: %v; the lease: %v", len(down) > 0, l.Err())
		}
		e.unlock(l)
		e.done("Shutdown", receive(e, "Shutdown returns", down))
	}},
}

// three are names of one slot of a cluster.
var three = []string{"{t}:a", "{t}:b", "{t}:c"}

// rawMulti is raw with several locks at once.
type rawMulti struct {
	*raw
	backend.BatchStore
}

func (e *env) multi() *rawMulti {
	e.Helper()
	s := e.bare()
	m := s.Capabilities().Batch
	if m == nil {
		e.lacks("several locks in one step")
	}
	return &rawMulti{s, m}
}

func requests(owner string, lease time.Duration, names ...string) []backend.AcquireRequest {
	in := make([]backend.AcquireRequest, len(names))
	for i, n := range names {
		in[i] = backend.AcquireRequest{Name: n, Owner: owner, Lease: lease}
	}
	return in
}

func (s *rawMulti) all(owner string, lease time.Duration, names ...string) []backend.AcquireReply {
	s.e.Helper()
	out, err := s.AcquireAll(background, requests(owner, lease, names...))
	s.e.fatalIf(err != nil || len(out) != len(names), "AcquireAll(%q, %s): %+v, %v", names, owner, out, err)
	return out
}

// free is ReleaseAll of what its owner must hold.
func (s *rawMulti) free(owner string, names ...string) {
	s.e.Helper()
	var in []backend.ReleaseRequest
	for _, n := range names {
		in = append(in, backend.ReleaseRequest{Name: n, Owner: owner})
	}
	out := make([]backend.ReleaseResult, len(in))
	s.ReleaseAll(background, in, out)
	for i, r := range out {
		if r.Err != nil || !r.Held {
			s.e.Fatalf("ReleaseAll(%q, %s): %s: %+v", names, owner, names[i], r)
		}
	}
}

// granted tells that all are.
func granted(out []backend.AcquireReply) bool {
	return !slices.ContainsFunc(out, func(r backend.AcquireReply) bool { return !r.Granted })
}

// lockAll is LockAll that must succeed within patience.
func (e leases) lockAll(c *mortise.Client, names ...string) *mortise.Lease {
	e.Helper()
	return value(c.LockAll(background, names, mortise.WithWait(patience))).in(e)
}

// lockingAll runs LockAll of the three in a goroutine.
func lockingAll(c *mortise.Client, opts ...mortise.Option) <-chan result {
	return async(func() result {
		l, err := c.LockAll(background, three, opts...)
		return result{lease: l, err: err, at: time.Now()}
	})
}
