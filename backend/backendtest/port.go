package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// afterwards is what a call under a context that has ended came to: its reply may have been there before it was left.
func afterwards[R any](e *env, reply R, err error) R {
	e.Helper()
	if left, is := errors.AsType[*backend.Left[R]](err); is {
		reply, err = left.Wait()
	}
	e.must("a call that may have been left", err)
	return reply
}

// portTests hold a backend to the obligations of backend.Store.
var portTests = []test{
	{"Port_AcquireGrantsAFreeLockAndRefusesAHeldOneWithWhatIsLeft", func(e *env) {
		a, b := e.bare(), e.bare()
		a.take("n", "a:1", 5*time.Second)
		r := b.acquire("n", "b:1", long)
		e.errorIf(r.Granted || r.Remaining <= 0 || r.Remaining > 5*time.Second,
			"refused with %+v, want what is left of 5s", r)
		b.heldBy("n", "a:1", 1)
	}},
	{"Port_OneOwnerOfASessionExcludesAnother", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long)
		e.errorIf(s.acquire("n", "a:2", long).Granted, "two owners of one session hold the lock")
	}},
	{"Port_AcquireTwiceByOneOwnerCountsOnceAndLeavesTheTimeAlone", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", 30*time.Second)
		s.take("n", "a:1", long)
		s.heldBy("n", "a:1", 1)
		s.remains("n", 0, 30*time.Second)
		s.release("n", "a:1", 0)
		s.isFree("n")
	}},
	{"Port_ConcurrentAcquiresAreGrantedOnce", func(e *env) {
		var granted atomic.Int32
		all := several(4, func() *raw { return e.bare() })
		e.turns(32, 1, func(g, _ int) error {
			owner := fmt.Sprintf("%d:%d", g%4, g)
			r, err := all[g%4].Acquire(background, anykind.AcquireRequest{Name: "n", Owner: owner, Lease: long})
			if r.Granted {
				granted.Add(1)
			}
			return err
		})
		equal(e, "%d owners were granted the lock", granted.Load(), 1)
	}},
	{"Port_ACachedAcquireNeverGrantsWhatIsHeldAndSoonGrantsWhatIsFree", func(e *env) {
		a, b := e.bare(), e.bare()
		try := func() bool {
			return call(e, b.Acquire, anykind.AcquireRequest{Name: "n", Owner: "b:1", Lease: long, Unasked: true}).Granted
		}
		for range 20 {
			a.take("n", "a:1", long)
			for range 3 {
				e.fatalIf(try(), "granted while another held it")
			}
			a.release("n", "a:1", 0)
			e.until("granted after the release", try)
			b.release("n", "b:1", 0)
		}
		a.take("n", "a:1", long)
		try()
		e.store.Delete("n")
		e.until("granted after the record was deleted", try)
	}},
	{"Port_ARecordExpiresWithItsLease", func(e *env) {
		a, b := e.bare(), e.bare()
		before := time.Now()
		a.take("n", "a:1", 300*time.Millisecond)
		taken := time.Now()
		e.until("granted to another", func() bool { return b.acquire("n", "b:1", long).Granted })
		atLeast(e, "it was granted to another after %v of a lease of 300ms", time.Since(before), 290*time.Millisecond)
		e.tookAtMost("it was not granted to another until %v after a lease of 300ms began", taken, 5*time.Second)
		e.errorIf(a.release("n", "a:1", 0), "an owner whose lease ran out released the lock")
	}},
	{"Port_ALeaseThatIsOverIsOverForItsOwnerToo", func(e *env) {
		s := e.bare()
		const lease = 200 * time.Millisecond
		for _, name := range []string{"kept", "released", "reentered", "renewed", "asked", "forced", "taken"} {
			s.take(name, "a:1", lease)
		}
		time.Sleep(2 * lease)
		e.errorIf(s.release("kept", "a:1", 1), "Release with Keep 1: held")
		e.errorIf(s.release("released", "a:1", 0), "Release: held")
		e.errorIf(s.reenter("reentered", "a:1", 2, long), "SetHolds: held")
		e.errorIf(s.renew("renewed", "a:1", long), "Renew: held")
		e.errorIf(s.renew("asked", "a:1", 0), "Renew with lease 0: held")
		was, err := s.ForceRelease(background, topic("forced"))
		e.errorIf(was || err != nil, "ForceRelease: %v, %v", was, err)
		for _, name := range []string{"kept", "released", "reentered", "renewed", "asked", "forced"} {
			equal(e, name+": the record is %+v", s.record(name), (backend.Record{}))
		}
		s.take("taken", "a:1", long)
		s.remains("taken", long/2, long)
	}},
	{"Port_ReenterSetsTheCountAndTheLongerTime", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", 30*time.Second)
		for _, step := range []struct {
			holds    int
			lease    time.Duration
			min, max time.Duration
		}{
			{2, time.Second, 15 * time.Second, 30 * time.Second},
			{3, 60 * time.Second, 45 * time.Second, 60 * time.Second},
			{3, 60 * time.Second, 45 * time.Second, 60 * time.Second},
			{2, time.Second, 30 * time.Second, 60 * time.Second},
		} {
			e.fatalIf(!s.reenter("n", "a:1", step.holds, step.lease), "the owner does not hold it")
			s.heldBy("n", "a:1", step.holds)
			s.remains("n", step.min, step.max)
		}
	}},
	{"Port_ReenterWithoutAHoldChangesNothing", func(e *env) {
		s := e.bare()
		e.errorIf(s.reenter("n", "a:1", 2, long), "entered a lock without a holder")
		s.isFree("n")
		s.take("n", "b:1", 30*time.Second)
		e.errorIf(s.reenter("n", "a:1", 2, long), "entered a lock that another holds")
		s.heldBy("n", "b:1", 1)
		s.remains("n", 0, 30*time.Second)
	}},
	{"Port_ReleaseSetsTheCountLeavesTheTimeAloneAndFreesAtZero", func(e *env) {
		s, h := e.session()
		s.watch(h, "n")
		s.take("n", "a:1", 60*time.Second)
		s.reenter("n", "a:1", 3, time.Second)
		for _, keep := range []int{2, 2, 1} {
			e.errorIf(!s.release("n", "a:1", keep), "the owner does not hold it")
			s.heldBy("n", "a:1", keep)
			s.remains("n", 30*time.Second, 60*time.Second)
		}
		equal(e, "a partial release was announced %d times", h.count("released n"), 0)
		e.errorIf(!s.release("n", "a:1", 0), "the owner does not hold it")
		equal(e, "the record is %+v", s.record("n"), (backend.Record{}))
		e.until("the release is announced", func() bool { return h.count("released n") > 0 })
		e.errorIf(s.release("n", "a:1", 0), "released twice")
	}},
	{"Port_AStrangersReleaseChangesNothingAndIsNotAnnounced", func(e *env) {
		a, h := e.session()
		b := e.bare()
		a.watch(h, "n")
		a.watch(h, "last")
		a.take("n", "a:1", long)
		for _, keep := range []int{0, 1, 5} {
			e.errorIf(b.release("n", "b:1", keep), "a stranger released it")
		}
		a.heldBy("n", "a:1", 1)
		// Announcements of one session arrive in order, so after this one nothing is on its way.
		b.takeAndRelease("last", "b:1")
		e.until("the last release is announced", func() bool { return h.count("released last") > 0 })
		equal(e, "it was announced %d times", h.count("released n"), 0)
	}},
	{"Port_RenewSetsTheLongerTimeForHoldersOnly", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", 30*time.Second)
		e.errorIf(!s.renew("n", "a:1", time.Second), "not held")
		s.remains("n", 15*time.Second, long)
		e.errorIf(!s.renew("n", "a:1", 0), "asked with lease 0: not held")
		s.remains("n", 15*time.Second, 30*time.Second)
		e.errorIf(!s.renew("n", "a:1", 60*time.Second), "not held")
		s.heldBy("n", "a:1", 1)
		s.remains("n", 45*time.Second, 60*time.Second)
		e.errorIf(s.renew("n", "b:1", long) || s.renew("absent", "a:1", long),
			"a lock that the owner does not hold was renewed")
		s.remains("n", 0, 60*time.Second)
		s.isFree("absent")
	}},
	{"Port_AnExactRenewalShortensTheLease", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", 60*time.Second)
		renewsExactly(e, s.Store, anykind.RenewRequest{Name: "n", Owner: "a:1"}, 60*time.Second)
		s.remains("n", 5*time.Second, 10*time.Second)
	}},
	{"Port_RenewalsOfABatchAreIndependentAndAnsweredInPlace", func(e *env) {
		s := e.bare()
		const n = 700
		in := make([]anykind.RenewRequest, n)
		out := make([]backend.RenewResult, n)
		want := make([]bool, n)
		for i := range in {
			name := fmt.Sprintf("n%d", i)
			in[i] = anykind.RenewRequest{Name: name, Owner: "a:1", Lease: long}
			switch i % 7 {
			case 0:
				s.take(name, "b:1", long)
			case 1: // absent
			case 2:
				if i < 70 { // a few are no locks at all
					e.store.Occupy(name)
				}
			default:
				if i%2 == 0 {
					s.take(name, "a:1", 30*time.Second)
					want[i] = true
				}
			}
		}
		s.Renew(background, in, out)
		for i := range out {
			if out[i].Held != want[i] || out[i].Err != nil && !errors.Is(out[i].Err, backend.ErrWrongKind) {
				e.Fatalf("the answer to %s is %+v, want held %v", in[i].Name, out[i], want[i])
			}
			if out[i].Held && i%50 == 4 {
				if rec := s.record(in[i].Name); rec.Remaining < time.Minute {
					e.Errorf("%s was not renewed: %+v", in[i].Name, rec)
				}
			}
		}
		s.Renew(background, nil, nil)
	}},
	{"Port_BatchesInOppositeOrdersDoNotBlockEachOther", func(e *env) {
		const n, rounds = 300, 20
		there := make([]anykind.RenewRequest, n)
		back := make([]anykind.RenewRequest, n)
		s := e.bare()
		for i := range there {
			there[i] = anykind.RenewRequest{Name: fmt.Sprintf("n%d", i), Owner: "a:1", Lease: long}
			back[n-1-i] = there[i]
			s.take(there[i].Name, "a:1", long)
		}
		var wg sync.WaitGroup
		for _, in := range [][]anykind.RenewRequest{there, back} {
			s := e.bare()
			wg.Go(func() {
				out := make([]backend.RenewResult, n)
				for range rounds {
					s.Renew(background, in, out)
					for i, r := range out {
						if !r.Held || r.Err != nil {
							e.Errorf("Renew of %s: %+v, want held; lock the records of a batch in one order", in[i].Name, r)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	}},
	{"Port_InspectReadsTheRecord", func(e *env) {
		s := e.bare()
		equal(e, "without a record: %+v", s.record("n"), (backend.Record{}))
		s.take("n", "some/host/12:7", 30*time.Second)
		s.reenter("n", "some/host/12:7", 4, time.Second)
		s.heldBy("n", "some/host/12:7", 4)
		s.remains("n", 1, 30*time.Second)
	}},
	{"Port_ForceReleaseRemovesTheLockOfAnyOwnerAndAnnouncesIt", func(e *env) {
		a, h := e.session()
		b := e.bare()
		a.watch(h, "n")
		ok, err := b.ForceRelease(background, topic("n"))
		e.errorIf(ok || err != nil, "without a record: %v, %v", ok, err)
		a.take("n", "a:1", long)
		ok, err = b.ForceRelease(background, topic("n"))
		e.errorIf(!ok || err != nil, "of a record: %v, %v", ok, err)
		a.isFree("n")
		e.until("the release is announced", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_ForceReleaseOfAnOwnerRemovesNoOtherOwnersLock", func(e *env) {
		a, h := e.session()
		b := e.bare()
		a.watch(h, "n")
		force := func(owner string) bool {
			e.Helper()
			return value(b.ForceRelease(background, owned("n", owner))).in(e)
		}
		a.take("n", "a:1", long)
		e.errorIf(force("a:2"), "an owner that does not hold the lock: removed")
		a.heldBy("n", "a:1", 1)
		e.errorIf(!force("a:1"), "the lock's owner: not removed")
		a.isFree("n")
		e.until("the release is announced", func() bool { return h.count("released n") > 0 })
		a.take("n", "a:2", long)
		e.errorIf(force("a:1"), "the owner before: removed")
		a.release("n", "a:2", 0)
		// The owner is released, and the next one takes the lock, while the former is removed.
		for i := range 1000 {
			first, second := fmt.Sprintf("a:r%d", i), fmt.Sprintf("a:s%d", i)
			a.take("n", first, long)
			released := make(chan bool, 1)
			go func() {
				r, err := a.Release(background, anykind.ReleaseRequest{Name: "n", Owner: first})
				for granted := false; err == nil && !granted; {
					var next anykind.AcquireReply
					next, err = a.Acquire(background, anykind.AcquireRequest{Name: "n", Owner: second, Lease: long})
					granted = next.Granted
				}
				released <- err == nil && r.Held
			}()
			removed := force(first)
			if held := receive(e, "the next owner", released); held == removed {
				e.Fatalf("race %d: released: %v, removed: %v, want one of them", i, held, removed)
			}
			e.fatalIf(!a.release("n", second, 0), "race %d: the next owner's lock was removed", i)
		}
	}},
	{"Port_FencingTokensRiseWithEachOwnerAndReentry", func(e *env) {
		a, b := e.bare(), e.bare()
		last := int64(0)
		for i := range 20 {
			s, owner := a, fmt.Sprintf("a:%d", i)
			if i%2 == 1 {
				s, owner = b, fmt.Sprintf("b:%d", i)
			}
			token := s.fenced("n", owner)
			e.fatalIf(token <= last, "token %d after %d", token, last)
			again := s.fenced("n", owner)
			e.fatalIf(again < token, "the same request again drew %d after %d", again, token)
			s.release("n", owner, 0)
			s.take("n", owner+"plain", long)
			r, err := s.SetHolds(background,
				anykind.HoldsRequest{Name: "n", Owner: owner + "plain", Holds: 2, Lease: long, Fenced: true})
			e.fatalIf(err != nil || !r.Held || r.Token <= token,
				"a fenced re-entry of a plain hold: %+v, %v after token %d", r, err, token)
			last = r.Token
			s.release("n", owner+"plain", 0)
		}
		s := e.bare()
		r := s.acquire("n", "c:1", long)
		e.errorIf(r.Token != 0, "a plain acquisition drew the token %d", r.Token)
	}},
	{"Port_DataOfAnotherKindIsNamedAndLeftAlone", func(e *env) {
		s := e.bare()
		e.store.Occupy("n")
		all := operations(s.Store, background)
		delete(all, "Ping")
		all["Acquire fenced"] = func() error {
			return second(s.Acquire(background, anykind.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Fenced: true}))
		}
		delete(all, "Renew") // which answers that the lock is not held
		for op, run := range all {
			err := run()
			f := backend.FaultOf(err)
			// A fenced request meets two records, and may have touched one before the other.
			ran := f.MayHaveRun && op != "Acquire fenced"
			e.errorIf(!errors.Is(err, backend.ErrWrongKind) || ran || f.Temporary || f.Remedy == "",
				"%s: %v (%+v); want ErrWrongKind with a remedy, for good, not having run", op, err, f)
		}
		e.errorIf(s.renew("n", "a:1", long), "Renew: held")
		e.store.Delete("n")
		s.take("n", "a:1", long)
	}},
	{"Port_EveryNameThatMortiseAllowsIsItself", func(e *env) {
		a := e.bare()
		b, h := e.session()
		for _, name := range []string{
			"a", "A", "a ", " a", "a:b", "{tenant}:7", "7:{tenant}", "über/straße", "鎖", "a\nb", "a\r\n$1", "a\x00b", "*",
			"a?[b]", `"quoted"`,
			strings.Repeat("long", 16384),
		} {
			b.watch(h, name)
			before := h.count("released " + name)
			a.take(name, "a:1", long)
			rec := b.record(name)
			e.errorIf(rec.Owner != "a:1", "%.40q: the record is %+v", name, rec)
			e.errorIf(b.acquire(name, "b:1", long).Granted, "%.40q: granted twice", name)
			b.fenced(name+"x", "b:1")
			a.release(name, "a:1", 0)
			e.until("the release is announced", func() bool { return h.count("released "+name) > before })
			b.Unsubscribe(topic(name))
		}
	}},
	{"Port_EachReleaseAfterWatchingIsTold", func(e *env) {
		a, ha := e.session()
		b, hb := e.session()
		a.watch(ha, "n")
		b.watch(hb, "n")
		for i := range 20 {
			owner := fmt.Sprintf("a:%d", i)
			na, nb := ha.count("released n"), hb.count("released n")
			a.take("n", owner, long)
			a.release("n", owner, 0)
			e.until("both are told", func() bool { return ha.count("released n") > na && hb.count("released n") > nb })
		}
		e.errorIf(ha.count("released other") != 0, "told of what is not watched")
	}},
	{"Port_WatchIsConfirmedEachTimeAndUnwatchEndsIt", func(e *env) {
		a, h := e.session()
		b, hb := e.session()
		b.watch(hb, "n")
		for range 3 {
			a.watch(h, "n")
		}
		a.Unsubscribe(topic("n"))
		// Subscribing anew after Unsubscribe works, in quick succession too.
		for range 50 {
			a.Subscribe(topic("n"))
			a.Unsubscribe(topic("n"))
		}
		a.watch(h, "n")
		b.takeAndRelease("n", "b:1")
		e.until("the release is told", func() bool { return h.count("released n") > 0 })

		a.Unsubscribe(topic("n"))
		a.watch(h, "last") // requests of one session take effect in order
		before := h.count("released n")
		b.takeAndRelease("n", "b:2")
		b.takeAndRelease("last", "b:1")
		e.until("the last release is told", func() bool { return h.count("released last") > 0 })
		n := h.count("released n")
		e.errorIf(n != before, "told %d times after Unsubscribe", n-before)
	}},
	{"Port_AThousandTopicsAreWatchedAtOnce", func(e *env) {
		a, h := e.session()
		b := e.bare()
		const n = 1000
		name := func(i int) string { return fmt.Sprintf("n%d", i) }
		for i := range n {
			a.Subscribe(topic(name(i)))
		}
		for i := range n {
			e.until("each is confirmed", func() bool { return h.count("watching "+name(i)) > 0 })
		}
		for i := range n {
			if i%10 == 0 {
				b.takeAndRelease(name(i), "b:1")
				e.until("its release is told", func() bool { return h.count("released "+name(i)) > 0 })
			}
		}
	}},
	{"Port_WatchesAreConfirmedAgainAfterAnInterruption", func(e *env) {
		a, h := e.session()
		b := e.bare()
		a.watch(h, "n")
		a.watch(h, "m")
		for i := range 3 {
			n, m := h.count("watching n"), h.count("watching m")
			e.store.Cut()
			e.until("both are confirmed again", func() bool { return h.count("watching n") > n && h.count("watching m") > m })
			told := h.count("released n")
			owner := fmt.Sprintf("b:%d", i)
			e.until("another works again", func() bool {
				return b.tries(anykind.AcquireRequest{Name: "n", Owner: owner, Lease: long})
			})
			e.eventually("it releases", func() error {
				return second(b.Release(background, anykind.ReleaseRequest{Name: "n", Owner: owner}))
			})
			e.until("the release is told", func() bool { return h.count("released n") > told })
		}
	}},
	{"Port_AWatchBegunWhileTheStoreIsAwayIsConfirmedWhenItIsBack", func(e *env) {
		a, h := e.session()
		e.store.Down()
		a.Subscribe(topic("n"))
		a.Subscribe(topic("gone"))
		a.Unsubscribe(topic("gone"))
		e.always(200*time.Millisecond, "not confirmed while the store is away",
			func() bool { return h.count("watching n") == 0 })
		e.store.Up()
		e.until("confirmed", func() bool { return h.count("watching n") > 0 })
		b := e.bare()
		b.takeAndRelease("n", "b:1")
		e.until("the release is told", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_WhileTheStoreIsAwayOperationsFailSoonWithARemedy", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long)
		e.store.Down()
		for op, run := range operations(s.Store, background) {
			begin := time.Now()
			err := receive(e, op+" returns", async(run))
			f := backend.FaultOf(err)
			e.errorIf(err == nil || !f.Temporary || f.Remedy == "",
				"%s: %v (%+v), want a temporary fault with a remedy", op, err, f)
			e.tookAtMost(op+" failed only after %v", begin, 10*time.Second)
		}
		e.store.Up()
		e.until("the same session works again", func() bool {
			return s.tries(anykind.AcquireRequest{Name: "m", Owner: "a:2", Lease: long})
		})
	}},
	{"Port_WhatAFaultSaysHasNotRunHasNot", func(e *env) {
		const callers, cuts = 8, 40
		var over atomic.Bool
		var wg sync.WaitGroup
		notRun := make([][]string, callers)
		for c := range callers {
			s := e.bare()
			wg.Go(func() {
				for i := 0; i < 10000 && !over.Load(); i++ {
					name := fmt.Sprintf("n%d-%d", c, i)
					_, err := s.Acquire(background, anykind.AcquireRequest{Name: name, Owner: "a:1", Lease: long})
					if err != nil && !backend.FaultOf(err).MayHaveRun {
						notRun[c] = append(notRun[c], name)
						time.Sleep(time.Millisecond) // thousands that could not be sent tell no more
					} else if i%4 == 0 && e.machine == nil {
						time.Sleep(time.Millisecond) // in a bubble no cut would come
					}
				}
			})
		}
		for range cuts {
			time.Sleep(25 * time.Millisecond) // as long as new connections may take
			e.store.Cut()
		}
		over.Store(true)
		wg.Wait()
		s := e.bare()
		for _, name := range slices.Concat(notRun...) {
			rec := backend.Record{}
			e.until("the store answers again", func() (answers bool) {
				var err error
				rec, err = s.Inspect(background, topic(name))
				return err == nil
			})
			e.errorIf(rec.Held, "Acquire of %s failed with MayHaveRun false, and the record is %+v", name, rec)
		}
	}},
	{"Port_AfterAFlushTheSameSessionGoesOn", func(e *env) {
		s := e.bare()
		s.take("n", "a:1", long)
		e.store.Flush()
		e.errorIf(s.renew("n", "a:1", long) || s.release("n", "a:1", 0) || s.record("n").Held,
			"it is held though the store was flushed")
		s.take("n", "a:2", long)
	}},
	{"Port_ACancelledContextEndsTheCallAndTellsWhetherItRan", func(e *env) {
		s := e.bare()
		ctx := ended()
		_, err := s.Acquire(ctx, anykind.AcquireRequest{Name: "n", Owner: "a:1", Lease: long})
		e.fatalIf(err == nil, "Acquire succeeded under a context that was cancelled before")
		e.errorIf(!backend.FaultOf(err).MayHaveRun && s.record("n").Held,
			"it took the lock, yet said that it did not run: %v", err)
		out := make([]backend.RenewResult, 2)
		s.Renew(ctx, make([]anykind.RenewRequest, 2), out)
		for i := range out {
			e.errorIf(out[i].Err == nil, "Renew answered %+v under a context that was cancelled before", out[i])
		}
	}},
	{"Port_AnOperationThatIsLeftGoesOn", func(e *env) {
		s := e.bare()
		s.take("warm", "a:0", long) // what is not connected yet need not let its callers leave
		if l := s.Capabilities().Leaver; l == nil || !l.Leaves(backend.KindLock) {
			return // an obligation of those only that say so
		}
		ended := ended()
		reply, err := s.Store.Store.Acquire(ended, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long})
		got := afterwards(e, reply, err)
		e.errorIf(!got.Granted, "the acquisition that was left came to %+v", got)
		e.errorIf(s.acquire("n", "b:1", long).Granted, "what was granted to a call that left is granted to another")
		gone, err := s.Release(ended, anykind.ReleaseRequest{Name: "n", Owner: "a:1"})
		gone = afterwards(e, gone, err)
		e.errorIf(!gone.Held, "the release that was left came to %+v", gone)
		s.isFree("n")
	}},
	{"Port_OperationsOnAClosedSessionSaySo", func(e *env) {
		s, h := e.session()
		s.take("n", "a:1", long)
		s.watch(h, "n")
		e.must("Close", s.Close())
		for op, run := range operations(s.Store, background) {
			err := receive(e, op+" returns", async(run))
			f := backend.FaultOf(err)
			e.errorIf(!errors.Is(err, backend.ErrSessionClosed) || f.MayHaveRun || f.Temporary,
				"%s: %v (%+v), want ErrSessionClosed, for good, not having run", op, err, f)
		}
		s.Subscribe(topic("m"))
		s.Unsubscribe(topic("n"))
		e.done("second Close", s.Close())
		other, _ := e.session()
		e.errorIf(!other.record("n").Held, "Close removed a record")
		before := h.count("released n")
		other.release("n", "a:1", 0)
		e.always(100*time.Millisecond, "a closed session's handler is left alone",
			func() bool { return h.count("released n") == before })
	}},
	{"Port_ASessionThatDidNothingCloses", func(e *env) {
		s := e.bare()
		e.done("Close", receive(e, "Close returns", async(s.Close)))
	}},
	{"Port_ASessionClosesWhileTheStoreIsAway", func(e *env) {
		s, h := e.session()
		s.watch(h, "n")
		e.store.Down()
		s.Subscribe(topic("m"))
		e.done("Close", receive(e, "Close returns", async(s.Close)))
	}},
	{"Port_PingTellsWhetherTheStoreIsThere", func(e *env) {
		s := e.bare()
		e.done("Ping", s.Ping(background))
		e.store.Down()
		err := receive(e, "Ping returns", async(func() error { return s.Ping(background) }))
		e.errorIf(err == nil, "Ping succeeded though the store is down")
		e.store.Up()
		e.until("Ping succeeds again", func() bool { return s.Ping(background) == nil })
	}},
	{"Port_OneBackendOpensSeveralSessionsOnOneStore", func(e *env) {
		b := e.store.Backend()
		all := several(2, func() *raw { return openSession(e, b, new(ears)) })
		all[0].take("n", "a:1", long)
		e.errorIf(all[1].acquire("n", "b:1", long).Granted, "they do not share the store")
		all[0].Close()
		rec := all[1].record("n")
		e.errorIf(rec.Owner != "a:1", "after the other session closed the record is %+v", rec)
	}},
}

// operations is every operation of a session that can fail.
func operations(s anykind.Store, ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"Acquire": func() error {
			return second(s.Acquire(ctx, anykind.AcquireRequest{Name: "n", Owner: "z:1", Lease: long}))
		},
		"Reenter": func() error {
			return second(s.SetHolds(ctx, anykind.HoldsRequest{Name: "n", Owner: "z:1", Holds: 2, Lease: long}))
		},
		"Release": func() error { return second(s.Release(ctx, anykind.ReleaseRequest{Name: "n", Owner: "z:1"})) },
		"Renew": func() error {
			out := make([]backend.RenewResult, 1)
			s.Renew(ctx, []anykind.RenewRequest{{Name: "n", Owner: "z:1", Lease: long}}, out)
			return out[0].Err
		},
		"Inspect":      func() error { return second(s.Inspect(ctx, topic("n"))) },
		"ForceRelease": func() error { return second(s.ForceRelease(ctx, topic("n"))) },
		"Ping":         func() error { return s.Ping(ctx) },
	}
}
