package backendtest

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// fairTests are about fair locks. They skip a backend that has none.
var fairTests = []test{
	// the port
	{"Port_AFairLockIsGrantedInTheOrderOfAsking", func(e *env) {
		s := heldFair(e)
		s.queues("b:1", "c:1", "d:1")
		r := s.ask("d:1", long)
		e.errorIf(r.Remaining <= 0 || r.AskAfter <= r.Remaining && r.AskAfter < 5*backend.Absence,
			"a waiter that is not first is refused with %+v, want it to look after the first, or now and then", r)
		r = s.ask("b:1", long)
		e.errorIf(r.Remaining <= 0 || r.AskAfter != r.Remaining,
			"the first is refused with %+v, want it to look at the end of the lease", r)
		s.free("a:1")
		for _, o := range []string{"b:1", "c:1", "d:1"} {
			for _, other := range []string{"b:1", "c:1", "d:1", "e:1"} {
				if other > o {
					r := s.ask(other, 0)
					e.errorIf(r.Granted || r.Remaining != 0, "%s is before %s, which got %+v", o, other, r)
				}
			}
			s.want(o, long, "granted")
			s.want(o, long, "granted") // and once only
			s.free(o)
		}
		s.want("e:1", 0, "granted")
	}},
	{"Port_AFairTryTakesNoPlaceAndDoesNotJumpTheQueue", func(e *env) {
		s := heldFair(e)
		s.want("b:1", 0, "refused")
		s.queues("c:1")
		s.free("a:1")
		s.want("b:1", 0, "refused")
		s.want("c:1", long, "granted")
		s.free("c:1")
		s.want("b:1", 0, "granted")
	}},
	{"Port_AFairReleaseTellsTheFirstWaiterOnly", func(e *env) {
		s := e.fair()
		s.raw.watch(s.h, "n")
		s.want("a:1", 0, "granted")
		s.queues("b:1", "c:1")
		s.free("a:1")
		s.heard("b:1")
		s.want("b:1", long, "granted")
		n, m := s.h.count("released n"), s.h.count("released n c:1")
		e.errorIf(n+m != 0, "the release was told %d times to the plain lock's waiters, %d times to the second", n, m)
		s.free("b:1")
		s.heard("c:1")
		s.want("c:1", long, "granted")
		s.free("c:1")
		e.until("without a queue, the waiters for the plain lock are told",
			func() bool { return s.h.count("released n") > 0 })
	}},
	{"Port_LeavingGivesUpThePlaceAndTheLock", func(e *env) {
		s := heldFair(e)
		s.queues("b:1", "c:1", "d:1")
		s.leaves("x:1", backend.LeaveReply{})
		s.leaves("c:1", backend.LeaveReply{Queued: true})
		s.leaves("c:1", backend.LeaveReply{})
		equal(e, "one that left while another holds the lock had the first told %d times", s.h.count("released n b:1"), 0)
		s.leaves("a:1", backend.LeaveReply{Held: true})
		s.heard("b:1")
		s.leaves("b:1", backend.LeaveReply{Queued: true})
		s.heard("d:1") // what the first was told is passed on
		s.want("d:1", long, "granted")
		s.leaves("d:1", backend.LeaveReply{Held: true})
		s.want("e:1", 0, "granted")
	}},
	{"Port_AnAbsentWaiterKeepsItsPlaceForASecondAndNoLonger", func(e *env) {
		s := heldFair(e)
		s.want("b:1", long, "refused") // and cannot be told
		s.want("c:1", long, "refused") // nor can this one
		s.queues("d:1")
		before := time.Now()
		s.free("a:1")
		s.heard("d:1")
		r := s.ask("d:1", long)
		if !r.Granted { // or this process stood still for a second
			e.fatalIf(r.AskAfter <= 0 || r.AskAfter > backend.Absence, "while others may come: %+v", r)
			time.Sleep(r.AskAfter + time.Millisecond) // the time that it is told is the subject
			if r := s.ask("d:1", long); !r.Granted {
				e.Errorf("after the time that it was told: %+v", r)
			}
		}
		// The store's clock counts in milliseconds.
		atLeast(e, "granted %v after the release", time.Since(before), backend.Absence-2*time.Millisecond)
		s.free("d:1")
		s.want("e:1", 0, "granted")
	}},
	{"Port_AnAbsentWaiterThatReturnsInTimeIsServed", func(e *env) {
		s := heldFair(e)
		s.want("b:1", long, "refused")
		s.queues("c:1")
		before := time.Now()
		s.free("a:1")
		s.heard("c:1")
		if s.ask("b:1", long).Granted {
			// It did not cost the other its place.
			s.free("b:1")
		} else if d := time.Since(before); d < backend.Absence { // or this process stood still for a second
			e.Fatalf("a waiter that came in time lost its place within %v", d)
		}
		time.Sleep(backend.Absence + 50*time.Millisecond)
		s.want("d:1", 0, "refused")
		s.want("c:1", long, "granted")
	}},
	{"Port_AClientThatIsGoneHoldsTheOthersUpOnceAndNotForEachOfItsPlaces", func(e *env) {
		s := heldFair(e)
		for _, o := range []string{"gone:1", "c:1", "gone:2", "gone:3", "gone:4", "gone:5", "d:1"} {
			if o == "c:1" || o == "gone:3" || o == "d:1" {
				s.watchTurn(o)
			}
			s.want(o, long, "refused")
		}
		before := time.Now()
		s.free("a:1")
		s.heard("c:1")
		s.want("gone:4", long, "refused")             // is not gone: it asks once more
		late := time.Since(before) >= backend.Absence // or this process stood still for a second
		e.until("the first, which does not come, loses its place", func() bool { return s.ask("c:1", long).Granted })
		s.free("c:1")
		s.heard("gone:3") // is listened for
		s.want("gone:3", long, "granted")
		before = time.Now()
		s.free("gone:3")
		if !s.ask("d:1", long).Granted && s.ask("gone:4", long).Granted {
			s.free("gone:4")
		} else if d := time.Since(before); d < backend.Absence-2*time.Millisecond && !late {
			e.Fatalf("a live waiter lost its place within %v", d)
		}
		s.want("d:1", long, "granted")
		s.free("d:1")
	}},
	{"Port_AFirstWaiterThatIsToldAndDoesNotAskLosesItsPlaceToOneThatAsks", func(e *env) {
		s := heldFair(e)
		s.queues("b:1")
		s.want("c:1", long, "refused")
		s.free("a:1")
		s.heard("b:1")
		before := time.Now()
		r := s.ask("c:1", long)
		e.fatalIf(r.Granted || r.AskAfter <= 0 || r.AskAfter > 5*backend.Absence, "while the first may come: %+v", r)
		time.Sleep(r.AskAfter + time.Millisecond) // the time that it is told is the subject
		if r := s.ask("c:1", long); !r.Granted {
			e.Errorf("after the time that it was told: %+v", r)
		}
		atLeast(e, "granted %v after it asked", time.Since(before), 5*backend.Absence)
		s.free("c:1")
	}},
	{"Port_APlaceIsGivenUpWhenItsWaitIsOver", func(e *env) {
		s := e.fair()
		s.takeFor("a:1", 4*time.Second)
		s.want("b:1", 200*time.Millisecond, "refused")
		e.until("granted to another that asks", func() bool { return s.ask("c:1", 0).Granted })
		s.free("c:1")
	}},
	{"Port_AbandoningShortensNoPlaceBelowItsOwnWait", func(e *env) {
		s := e.fair()
		s.takeFor("a:1", 8*time.Second)
		for i := range 20 {
			s.want(fmt.Sprintf("gone:%d", i), long, "refused")
		}
		s.want("b:1", 10*time.Second, "refused") // does not listen: it is not the telling that keeps its place
		for i := range 20 {
			s.leaves(fmt.Sprintf("gone:%d", i), backend.LeaveReply{Queued: true})
		}
		s.queues("c:1")
		e.until("the lease is over", func() bool { return !s.record("n").Held })
		before := time.Now()
		e.errorIf(s.ask("d:1", 0).Granted, "a request without a place was granted the lock before the first")
		// or this process stood still for a second
		r := s.ask("b:1", 10*time.Second)
		e.errorIf(!r.Granted && time.Since(before) < backend.Absence, "the first asks: %+v, want it granted", r)
	}},
	{"Port_AForcedReleaseTellsTheFirst", func(e *env) {
		s := heldFair(e)
		s.queues("b:1")
		ok, err := s.ForceRelease(background, topic("n"))
		e.fatalIf(!ok || err != nil, "ForceRelease: %v, %v", ok, err)
		s.heard("b:1")
		s.want("b:1", long, "granted")
	}},
	{"Port_APlainReleaseTellsTheFairWaiterBehindADeadOne", func(e *env) {
		s := e.fair()
		s.take("n", "a:1", long)
		s.want("dead:1", long, "refused")
		s.queues("b:1")
		all, _ := plainLine(e, 2)
		s.release("n", "a:1", 0)
		told, turn, owners := 0, 0, []string{"0:1", "1:1"} // those of plainLine
		e.until("it gets the lock, though the plain lock has waiters all the time", func() bool {
			if n := s.h.count("released n b:1"); n > told {
				told = n
				return s.ask("b:1", long).Granted
			}
			turn++
			i := turn % 2
			if all[i].asks("n", owners[i]).Granted {
				all[1-i].waits("n", owners[1-i])
				all[i].release("n", owners[i], 0)
				owners[i] = fmt.Sprint(i, ":", turn)
			}
			return false
		})
	}},
	{"Port_AFairReleaseServesThePlainWaitersInTurn", func(e *env) {
		s := heldFair(e)
		all, ears := plainLine(e, 1)
		plain, owner := func() bool { return ears[0].turns("n") > 0 }, "a:1"
		for i := 0; !plain(); i++ {
			next := fmt.Sprintf("b:%d", i)
			e.fatalIf(i == 20, "%d fair waiters went before a plain one", i)
			s.queues(next)
			s.free(owner)
			e.until("either waiter is told", func() bool { return plain() || s.h.count("released n "+next) > 0 })
			if plain() {
				all[0].claims("n", "0:1")
				owner = "0:1"
				all[0].release("n", owner, 0) // without an entry in the queue it is told under the plain lock's topic
			}
			s.want(next, long, "granted")
			owner = next
		}
	}},
	{"Port_TheRecordOfAFairLockIsThePlainOnes", func(e *env) {
		s := e.fair()
		s.take("n", "p:1", long)
		s.want("a:1", 0, "refused")
		s.release("n", "p:1", 0)
		s.want("a:1", 0, "granted")
		e.errorIf(s.acquire("n", "p:1", long).Granted, "the plain lock is granted while the fair one is held")
		e.errorIf(!s.reenter("n", "a:1", 2, long) || !s.renew("n", "a:1", 2*long), "the holder does not hold it")
		rec := s.record("n")
		e.errorIf(rec.Owner != "a:1" || rec.Holds != 2 || rec.Remaining <= long, "the record is %+v", rec)
		s.queues("b:1")
		for _, keep := range []int{1, 0} {
			r, err := s.Release(background, anykind.ReleaseRequest{Kind: backend.KindFair, Name: "n", Owner: "a:1", Keep: keep})
			e.fatalIf(err != nil || !r.Held, "Release, keep %d: %+v, %v", keep, r, err)
			if keep == 1 && s.record("n").Holds != 1 {
				e.Errorf("the record is %+v", s.record("n"))
			}
		}
		s.heard("b:1")
		e.errorIf(!s.acquire("n", "p:2", long).Granted, "the plain lock looked at the queue")
	}},
	{"Port_FairTokensRiseWithThoseOfOtherKinds", func(e *env) {
		s := e.fair()
		last := int64(0)
		for i := range 4 {
			var token int64
			owner := fmt.Sprintf("a:%d", i)
			if i%2 == 0 {
				token = s.fenced("n", owner)
			} else {
				r, err := s.Acquire(background,
					anykind.AcquireRequest{Kind: backend.KindFair, Name: "n", Owner: owner, Lease: long, Wait: long, Fenced: true})
				e.fatalIf(err != nil || !r.Granted, "%+v, %v", r, err)
				token = r.Token
			}
			e.errorIf(token <= last, "token %d after %d", token, last)
			last = token
			s.free(owner)
		}
	}},
	{"Port_OtherDataIsNoFairLock", func(e *env) {
		s := heldFair(e)
		s.want("b:1", long, "refused")
		e.store.Occupy("n")
		fair := anykind.AcquireRequest{Kind: backend.KindFair, Name: "n", Owner: "c:1", Lease: long, Wait: long}
		e.is("Acquire", second(s.Acquire(background, fair)), backend.ErrWrongKind)
		release := anykind.ReleaseRequest{Kind: backend.KindFair, Name: "n", Owner: "a:1"}
		e.is("Release", second(s.Release(background, release)), backend.ErrWrongKind)
		s.leaves("b:1", backend.LeaveReply{Queued: !e.oneValue()})
		if s.Capabilities().ReadWrite == nil {
			return
		}
		e.store.Delete("n")
		for _, k := range []backend.Kind{backend.KindRead, backend.KindWrite} {
			other := anykind.AcquireRequest{Kind: k, Name: "n", Owner: "a:1", Lease: long}
			e.fatalIf(!call(e, s.Acquire, other).Granted, "kind %d: not granted", k)
			e.is("Acquire of what is a read-write lock", second(s.Acquire(background, fair)), backend.ErrWrongKind)
			e.store.Delete("n")
			s.want("c:1", long, "granted")
			e.is("Acquire of what is a fair lock", second(s.Acquire(background, other)), backend.ErrWrongKind)
			e.store.Delete("n")
		}
	}},

	// the rules
	{"Rule01_FairAndPlainExcludeEachOther", func(e *env) {
		e.fair()
		var inside atomic.Int32
		clients := several(3, func() *mortise.Client { return e.client() })
		fair := make([]mortise.Locker, len(clients))
		for i, c := range clients {
			fair[i] = e.kind(c, mortise.Fair())
		}
		e.turns(12, 5, func(g, n int) error {
			l := fair[g%3]
			if (g+n)%3 == 2 {
				l = clients[g%3]
			}
			return e.inside(l, background, "n", func(*mortise.Lease) {
				equal(e, "%d are inside", inside.Add(1), 1)
				time.Sleep(time.Millisecond)
				inside.Add(-1)
			})
		})
	}},
	{"Rule04_TheFirstTakesADeadHoldersFairLock", func(e *env) {
		s := e.fair()
		line := e.line(2)
		s.takeFor("a:1", 4*time.Second)
		first, second := line.stand(0), line.stand(1)
		e.unlock(e.granted("the first gets it", first).lease)
		e.unlock(line.served(second))
	}},
	{"Rule04_TheSecondOfAClientTakesADeadHoldersFairLockToo", func(e *env) {
		s := e.fair()
		l := e.line(1)
		s.takeFor("a:1", 8*time.Second) // until then the second is not to look, and it is freed long before
		first := l.stand(0)
		s.queues("dead:1")
		second := l.stand(0)
		l.quiet()
		s.free("a:1")
		e.unlock(l.served(first))
		s.heard("dead:1")
		s.takeFor("dead:1", 2*time.Second)
		e.unlock(l.served(second))
	}},
	{"Rule07_AFairLockIsEnteredAgain", func(e *env) {
		e.fair()
		c := e.client()
		fair := e.kind(c, mortise.Fair())
		outer := e.lock(fair, background, "n")
		waiting := e.line(1).stand(0)
		inner := e.lock(fair, outer.Context(), "n")
		plain := e.lock(c, inner.Context(), "n")
		s := e.inspect(c, "n")
		e.errorIf(s.Holds != 3 || !s.Mine, "%+v", s)
		for _, l := range []*mortise.Lease{plain, inner} {
			e.unlock(l)
			s := e.inspect(c, "n")
			e.errorIf(!s.Held || !s.Mine, "%+v", s)
		}
		again := e.kind(c, mortise.Fair(), mortise.NonReentrant())
		e.is("NonReentrant", second(again.Lock(outer.Context(), "n")), mortise.ErrInvalid)
		e.unlock(outer)
		e.done("Lock", receive(e, "the other gets it", waiting).err)
	}},
	{"Rule08_TwentyFairWaitersOfSeveralClientsAreServedInTheOrderInWhichTheyAsked", func(e *env) {
		const n = 20
		s, line := lineForHeld(e, 5)
		var served []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range n {
			got := line.stand(i % 5)
			wg.Go(func() {
				l := line.served(got)
				mu.Lock()
				served = append(served, i)
				mu.Unlock()
				e.unlock(l)
			})
		}
		line.quiet() // a waiter that does not listen yet would have a second to ask
		s.free("a:1")
		wg.Wait()
		for i := range served {
			e.fatalIf(served[i] != i, "served in the order %v", served)
		}
		line.nothingLeft()
	}},
	{"Rule08_AFairWaiterIsWokenByAReleaseOfAnyKind", func(e *env) {
		s := e.fair()
		line := e.line(1)
		for name, release := range map[string]func(){
			"fair":   func() { s.free("a:1") },
			"plain":  func() { s.release("n", "a:1", 0) },
			"forced": func() { s.ForceRelease(background, topic("n")) },
			"leave":  func() { s.leaves("a:1", backend.LeaveReply{Held: true}) },
		} {
			s.want("a:1", 0, "granted")
			got := line.stand(0)
			release()
			l := line.served(got)
			e.errorIf(l == nil, "%s: not woken", name)
			e.unlock(l)
		}
	}},
	{"Rule08_APlainWaiterIsWokenByAFairRelease", func(e *env) {
		s := heldFair(e)
		c, f := e.tapped()
		got := locking(c, background, "n", mortise.WithWait(patience))
		e.settled(f)
		s.free("a:1")
		e.done("Lock", receive(e, "the plain waiter gets it", got).err)
	}},
	{"Rule08_FairWaitersSendNothingWhileTheyWait", func(e *env) {
		s, line := lineForHeld(e, 1)
		waiting := several(8, func() <-chan result { return line.stand(0) })
		line.quiet()
		before := line.faults[0].Count(OpAcquire, OpLeave, OpRelease)
		e.always(time.Second, "nothing is sent",
			func() bool { return line.faults[0].Count(OpAcquire, OpLeave, OpRelease) == before })
		s.free("a:1")
		line.serves(waiting...)
	}},
	{"Rule08_ADeadFirstHoldsTheOthersUpForASecond", func(e *env) {
		s := heldFair(e)
		const dead = 8 // a second for each would be too long
		for i := range dead {
			s.want(fmt.Sprintf("dead:%d", i), long, "refused")
		}
		line := e.line(2)
		first := line.stand(0)
		s.want("dead:last", long, "refused")
		second := line.stand(1)
		line.quiet()
		before := time.Now()
		s.free("a:1")
		line.serves(first, second)
		// The store's clock counts in milliseconds.
		atLeast(e, "dead waiters held the others up for %v", time.Since(before), backend.Absence-2*time.Millisecond)
		e.tookAtMost("two groups of dead waiters held the others up for %v", before, (dead-2)*backend.Absence)
		line.nothingLeft()
	}},
	{"Rule08_FairAndPlainWaitersTakeTurns", func(e *env) {
		e.fair()
		type side struct{ clients, each int }
		for i, many := range []struct{ fair, plain side }{
			{side{1, 8}, side{1, 1}}, {side{1, 1}, side{1, 8}}, {side{8, 1}, side{1, 1}}, {side{4, 1}, side{4, 1}},
		} {
			var fair, plain atomic.Int64
			var all []func()
			for range many.fair.clients {
				all = append(all, e.busy(e.kind(e.client(), mortise.Fair()), fmt.Sprint("n", i), many.fair.each, &fair))
			}
			for range many.plain.clients {
				all = append(all, e.busy(e.client(), fmt.Sprint("n", i), many.plain.each, &plain))
			}
			e.until(fmt.Sprintf("50 tenures of each of %+v", many), func() bool { return min(fair.Load(), plain.Load()) >= 50 })
			for _, stop := range all {
				stop()
			}
			e.Logf("of %+v the fair ones had %d tenures, the plain ones %d", many, fair.Load(), plain.Load())
		}
	}},
	{"Rule09_AFairWaiterThatLeavesLeavesNothing", func(e *env) {
		s, line := lineForHeld(e, 3)
		var waiting []<-chan result
		var cancels []context.CancelFunc
		for i := range 9 {
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			cancels = append(cancels, cancel)
			waiting = append(waiting, line.standWith(i%3, ctx))
		}
		for i := 0; i < 9; i += 2 {
			cancels[i]()
			e.is("Lock", receive(e, "a waiter leaves", waiting[i]).err, context.Canceled)
		}
		for k, left := range []int{2, 1, 2} {
			e.until("they leave the queue", func() bool { return line.faults[k].answered(OpLeave) == left })
			for _, c := range line.faults[k].Calls(OpLeave) {
				s.leaves(c.Owner, backend.LeaveReply{}) // has no place any more
			}
		}
		line.quiet()
		before := time.Now()
		s.free("a:1")
		for i := 1; i < 9; i += 2 {
			e.unlock(line.served(waiting[i]))
		}
		e.tookAtMost("waiters that had left held the others up: %v", before, 4*backend.Absence)
		line.nothingLeft()
	}},
	{"Rule09_AFairLockWithoutWaitersIsLeftWhateverBecameOfTheRequest", func(e *env) {
		fates := maps.Clone(lateFates)
		fates["it is granted, too late"] = fates["the reply is late"]
		for what, fate := range fates {
			s := e.fair()
			if what != "it is granted, too late" {
				s.want("a:1", 0, "granted")
			}
			c, f := e.tapped()
			ch := f.holds(fate, OpAcquire)
			err := e.abandon(f, background, locks(e.kind(c, mortise.Fair()), "n"), OpAcquire)
			e.errorIf(err == nil, "%s: no error", what)
			if what == "it arrives afterward" {
				e.until("it leaves", func() bool { return f.Count(OpLeave) > 0 })
			}
			close(ch)
			e.until(what+": it leaves", func() bool { return f.Count(OpLeave) > 0 && f.underway(OpAcquire) == 0 })
			if what != "it is granted, too late" {
				s.free("a:1")
			}
			e.until(what+": nothing is left", func() bool {
				r := s.ask("last:1", 0)
				if r.Granted {
					s.free("last:1")
				}
				return r.Granted
			})
		}
	}},
	{"Rule11_ALostReplyCostsAFairWaiterNeitherItsPlaceNorTheLock", func(e *env) {
		s, line := lineForHeld(e, 2)
		lose(line.faults[0], OpAcquire, 1)
		first, second := line.stand(0), line.stand(1)
		line.quiet()
		lose(line.faults[0], OpAcquire, 1)
		lose(line.faults[0], OpRelease, 1)
		s.free("a:1")
		l := line.served(first)
		st := e.inspect(line.clients[0], "n")
		e.errorIf(st.Holds != 1 || !st.Mine, "%+v", st)
		if len(second) > 0 {
			e.Fatal("the second was served before the first unlocked")
		}
		e.unlock(l)
		e.unlock(line.served(second))
	}},
	{"Rule12_FairWaitersSurviveCutConnectionsAndAFlush", func(e *env) {
		s, line := lineForHeld(e, 2)
		first := line.stand(0)
		line.quiet()
		later := line.stand(1)
		line.quiet()
		line.cut()
		line.quiet()
		e.eventually("the release is sent", func() error {
			return second(s.Release(background, anykind.ReleaseRequest{Kind: backend.KindFair, Name: "n", Owner: "a:1"}))
		})
		line.serves(first, later)
		line.nothingLeft()
	}},
	{"Rule14_ShutdownTakesFairWaitersOutOfTheQueue", func(e *env) {
		s, line := lineForHeld(e, 2)
		gone := []<-chan result{line.stand(0), line.stand(0), line.stand(0)}
		stays := line.stand(1)
		e.done("Close", line.clients[0].Close())
		for _, w := range gone {
			e.is("Lock", receive(e, "a waiter is told", w).err, mortise.ErrClosed)
		}
		for _, c := range line.faults[0].Calls(OpAcquire) {
			s.leaves(c.Owner, backend.LeaveReply{}) // has no place any more
		}
		s.free("a:1")
		e.unlock(line.served(stays))
	}},
	{"Rule15_FairWaitersNeedNoMoreConnections", func(e *env) {
		s, line := lineForHeld(e, 1)
		waiting := []<-chan result{line.stand(0), line.stand(0)}
		line.quiet()
		before := e.store.Connections()
		for range 30 {
			waiting = append(waiting, line.stand(0))
		}
		line.quiet()
		// A client library's pool may dial some more where commands coincide.
		n := e.store.Connections()
		e.errorIf(n > before+15, "%d connections with 32 waiters, %d with 2", n, before)
		s.free("a:1")
		line.serves(waiting...)
	}},
}

// rawFair is a bare session on the fair lock n.
type rawFair struct {
	*raw
	fair backend.FairStore
	h    *ears
}

// fair opens a bare session on fair locks, or skips the test.
func (e *env) fair() *rawFair {
	e.Helper()
	s, h := e.session()
	f := s.Capabilities().Fair
	if f == nil {
		e.lacks("fair locks")
	}
	return &rawFair{s, f, h}
}

// heldFair is fair, with the lock held by a:1.
func heldFair(e *env) *rawFair {
	e.Helper()
	s := e.fair()
	s.want("a:1", 0, "granted")
	return s
}

// plainLine opens sessions that wait for the plain lock n, which is held, or skips the test.
func plainLine(e *env, sessions int) ([]*raw, []*turnEars) {
	e.Helper()
	if !e.handsOver() {
		e.lacks("a queue of waiting clients")
	}
	all, ears := e.relays(sessions)
	e.inTurn(all, ears, "n")
	return all, ears
}

// lineForHeld is heldFair, and clients whose users will wait for the lock.
func lineForHeld(e *env, clients int) (*rawFair, *fairLine) {
	e.Helper()
	return heldFair(e), e.line(clients)
}

func (e leases) kind(c *mortise.Client, k ...mortise.Option) mortise.Locker {
	e.Helper()
	return c.With(k...)
}

// ask asks for n, and for a place if wait is not zero.
func (s *rawFair) ask(owner string, wait time.Duration) anykind.AcquireReply {
	s.e.Helper()
	return s.askFor(owner, long, wait)
}

func (s *rawFair) askFor(owner string, lease, wait time.Duration) anykind.AcquireReply {
	s.e.Helper()
	return call(s.e, s.Acquire, anykind.AcquireRequest{Kind: backend.KindFair, Name: "n", Owner: owner, Lease: lease,
		Wait: wait})
}

func (s *rawFair) takeFor(owner string, lease time.Duration) {
	s.e.Helper()
	r := s.askFor(owner, lease, 0)
	s.e.fatalIf(!r.Granted, "Acquire(%s): %+v", owner, r)
}

func (s *rawFair) want(owner string, wait time.Duration, what string) {
	s.e.Helper()
	r := s.ask(owner, wait)
	s.e.fatalIf(r.Granted != (what == "granted"), "%s asks: %+v, want it %s", owner, r, what)
}

func (s *rawFair) free(owner string) {
	s.e.Helper()
	r, err := s.Release(background, anykind.ReleaseRequest{Kind: backend.KindFair, Name: "n", Owner: owner})
	s.e.fatalIf(err != nil || !r.Held, "Release(%s): %+v, %v", owner, r, err)
}

func (s *rawFair) leaves(owner string, want backend.LeaveReply) {
	s.e.Helper()
	r, err := s.fair.Leave(background, backend.LeaveRequest{Name: "n", Owner: owner, Wait: long})
	s.e.fatalIf(err != nil || r != want, "Leave(%s): %+v, %v, want %+v", owner, r, err, want)
}

// watchTurn has the session listen for an owner's turn.
func (s *rawFair) watchTurn(owner string) {
	s.e.Helper()
	t := backend.Topic{Kind: backend.KindFair, Name: "n", Owner: owner}
	s.Subscribe(t)
	s.e.until("watching "+owner, func() bool { return s.h.count("watching "+said(t)) > 0 })
}

// queues has owners listen for their turn and take their places, in this order.
func (s *rawFair) queues(owners ...string) {
	s.e.Helper()
	for _, o := range owners {
		s.watchTurn(o)
		s.want(o, long, "refused")
	}
}

// heard waits until an owner was told of its turn.
func (s *rawFair) heard(owner string) {
	s.e.Helper()
	s.e.until(owner+" is told", func() bool { return s.h.count("released n "+owner) > 0 })
}

// fairLine is some clients whose users wait for the fair lock n.
type fairLine struct {
	e       *env
	clients []*mortise.Client
	lockers []mortise.Locker
	faults  []*Faults
	waiting []*atomic.Int32 // how many have begun to wait
	since   []int           // what was confirmed before does not hold any more
}

func (e *env) line(clients int) *fairLine {
	e.Helper()
	l := &fairLine{e: e}
	for range clients {
		waiting := new(atomic.Int32)
		c, f := e.tapped(mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}))
		l.clients, l.faults, l.waiting = append(l.clients, c), append(l.faults, f), append(l.waiting, waiting)
		l.lockers, l.since = append(l.lockers, e.kind(c, mortise.Fair())), append(l.since, 0)
	}
	return l
}

// stand has one more wait, and returns when it has its place.
func (l *fairLine) stand(client int) <-chan result {
	l.e.Helper()
	return l.standWith(client, background)
}

func (l *fairLine) standWith(client int, ctx context.Context) <-chan result {
	l.e.Helper()
	n := l.waiting[client].Load()
	got := locking(l.lockers[client], ctx, "n", mortise.WithWait(2*patience))
	l.e.until("it waits", func() bool { return l.waiting[client].Load() > n })
	return got
}

// quiet waits until all waiters have asked again since they are listened for, and have
// nothing more to ask.
func (l *fairLine) quiet() {
	l.e.Helper()
	for i, f := range l.faults {
		last, since := -1, time.Now()
		l.e.until("they sleep", func() bool {
			if n := f.Count() + f.Watching(); n != last {
				last, since = n, time.Now()
			}
			return time.Since(since) > 500*time.Millisecond && f.turnsHeard(l.since[i])
		})
	}
}

// cut breaks all connections.
func (l *fairLine) cut() {
	l.e.Helper()
	for i, f := range l.faults {
		l.since[i] = f.numbered()
	}
	l.e.store.Cut()
}

// turnsHeard reports whether all waiters of a fair lock have been answered since it was
// confirmed, after since, that they will be told of their turn.
func (f *Faults) turnsHeard(since int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := make(map[backend.Topic]int) // when last
	for _, c := range f.calls {
		t := backend.Topic{Kind: backend.KindFair, Name: c.Name, Owner: c.Owner}
		switch {
		case c.Op == OpAcquire && c.Ended == 0:
			return false
		case c.Op == OpAcquire:
			asked[t] = c.Began
		case c.Op == OpLeave || c.Op == OpRelease:
			delete(asked, t)
		}
	}
	for t, at := range asked {
		if heard := f.confirmed[t]; heard <= since || at < heard {
			return false
		}
	}
	return true
}

// served is the lease of a waiter.
func (l *fairLine) served(w <-chan result) *mortise.Lease {
	l.e.Helper()
	r := receive(l.e, "a waiter is served", w)
	if r.err != nil {
		l.e.Errorf("Lock: %v", r.err)
	}
	return r.lease
}

// serves has waiters served in this order, each when the one before it has unlocked.
func (l *fairLine) serves(waiting ...<-chan result) {
	l.e.Helper()
	for _, w := range waiting {
		l.e.unlock(l.served(w))
	}
}

// nothingLeft checks that the lock has no holder and its queue is empty.
func (l *fairLine) nothingLeft() {
	l.e.Helper()
	s := l.e.fair()
	s.want("last:1", 0, "granted")
	s.free("last:1")
}
