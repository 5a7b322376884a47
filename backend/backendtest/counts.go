package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// countTests are about latches and semaphores of both kinds. They skip a backend
// that has none.
var countTests = where(hasCounts, "latches and semaphores of both kinds", []test{
	// the port
	{"Port_ACountIsSetOnce", func(e *env) {
		s := e.counter()
		for _, k := range countKinds {
			t := backend.Topic{Kind: k, Name: fmt.Sprint("n", k)}
			e.errorIf(!s.set(t, "1", 3) || s.set(t, "2", 4), "kind %d: the first is not the one that sets it", k)
			n := s.count(t)
			e.errorIf(n != 3, "kind %d: the count is %d, want 3", k, n)
		}
	}},
	{"Port_ALatchCountsDownToZeroAndIsGone", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 2)
		equal(e, "after one: %d", s.countDown("2"), 1)
		equal(e, "after two: %d", s.countDown("3"), 0)
		equal(e, "after three: %d", s.countDown("4"), 0)
		e.errorIf(!s.set(latchN, "5", 1), "a latch at zero was not gone")
	}},
	{"Port_ASemaphoreGivesAllOrNothing", func(e *env) {
		s := e.counter()
		r := s.take("0", 1, false)
		e.errorIf(r.Granted || r.Available != 0, "one that is not set: %+v", r)
		s.set(countN, "1", 3)
		r = s.take("2", 4, false)
		e.errorIf(r.Granted || r.Available != 3, "4 of 3: %+v", r)
		r = s.take("3", 2, false)
		e.errorIf(!r.Granted || r.Available != 1, "2 of 3: %+v", r)
		equal(e, "less 4: %d", s.add(countN, "4", -4), -3)
		equal(e, "drained %d", s.drain("5"), -3)
		equal(e, "after drain and 2 more: %d", s.add(countN, "6", 2), 2)
		equal(e, "drained %d", s.drain("7"), 2)
	}},
	{"Port_ARequestThatArrivesTwiceCountsOnce", func(e *env) {
		s := e.counter()
		e.errorIf(!s.set(latchN, "1", 3) || !s.set(latchN, "1", 3), "set twice is not answered alike")
		s.countDown("2")
		equal(e, "counted down to %d", s.countDown("2"), 2)
		e.errorIf(!s.deleteCount("3") || !s.deleteCount("3"), "deleted twice is not answered alike")
		s.set(latchN, "1", 3)
		equal(e, "a request that was remembered set it to %d again", s.count(latchN), 0)
		s.set(countN, "4", 5)
		r := s.take("5", 2, false)
		e.errorIf(!r.Granted || r.Available != 3, "take: %+v", r)
		equal(e, "add: %d", s.add(countN, "6", 4), 7)
		r = s.take("5", 2, true)
		e.errorIf(!r.Granted || r.Available != 7, "take again: %+v", r)
		equal(e, "add again: %d", s.add(countN, "6", 4), 7)
		a, b := s.drain("9"), s.drain("9")
		e.errorIf(a != 7 || b != 7, "drained %d and %d", a, b)
	}},
	{"Port_ARefusalIsRememberedToo", func(e *env) {
		s := e.counter()
		e.errorIf(s.deleteCount("1"), "there was nothing to delete")
		s.set(latchN, "2", 1)
		e.errorIf(s.set(latchN, "3", 5) || s.deleteCount("1"), "a request that was refused is not refused again")
		s.countDown("4")
		e.errorIf(s.set(latchN, "3", 5) || s.count(latchN) != 0, "one that was refused came back and was carried out")
		equal(e, "drained %d of none", s.drain("5"), 0)
		s.add(countN, "6", 2)
		n := s.drain("5")
		e.errorIf(n != 0 || s.count(countN) != 2, "one that found none came back and drained %d", n)
	}},
	{"Port_ATakeThatIsCancelledIsUndoneOnceOrRefusedIfItStillArrives", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 5)
		s.take("2", 2, false)
		s.cancel("2", 2)
		s.cancel("2", 2)
		equal(e, "%d are free after a cancel", s.count(countN), 5)
		r := s.take("2", 2, true)
		e.errorIf(r.Granted, "a cancelled one is granted: %+v", r)
		s.cancel("3", 2)
		r = s.take("3", 2, false)
		e.errorIf(r.Granted || s.count(countN) != 5, "one that arrives after its cancel: %+v", r)
	}},
	{"Port_ChangesOfCountsAreAnnouncedByKind", func(e *env) {
		s := e.counter()
		o, h := e.session()
		for _, k := range countKinds {
			t := backend.Topic{Kind: k, Name: "n"}
			o.Subscribe(t)
			e.until("watching", func() bool { return h.count("watching n") > 0 })
			h.reset()
			s.set(t, fmt.Sprint("set", k), 2)
			e.until(fmt.Sprintf("kind %d: a new count is announced", k), func() bool { return h.count("released n") > 0 })
			h.reset()
			switch k {
			case backend.KindCountDownLatch:
				s.countDown("d1")
				s.countDown("d2")
			case backend.KindCountingSemaphore:
				s.take("t", 2, false)
				s.add(t, "a", 2)
			case backend.KindSemaphore:
				s.permit(id(1), long)
				s.putBack(id(1))
			}
			e.until(fmt.Sprintf("kind %d: a release is announced", k), func() bool { return h.count("released n") > 0 })
			o.Unsubscribe(t)
			e.store.Delete("n")
			h.reset()
		}
	}},
	{"Port_PermitsAreGrantedByIDAndRefusedWithTheFirstEnd", func(e *env) {
		s := e.counter()
		r := s.permit(id(0), long)
		e.errorIf(r.Granted || r.Remaining >= 0, "of none: %+v", r)
		s.set(permits, "1", 2)
		r = s.permit(id(1), long)
		e.errorIf(!r.Granted || r.Available != 1, "first: %+v", r)
		r = s.permit(id(1), long)
		e.errorIf(!r.Granted || r.Available != 1, "first again: %+v", r)
		r = s.permit(id(2), 10*time.Second)
		e.errorIf(!r.Granted || r.Available != 0, "second: %+v", r)
		r = s.permit(id(3), long)
		e.errorIf(r.Granted || r.Remaining <= 0 || r.Remaining > 10*time.Second, "third: %+v", r)
		e.errorIf(!s.putBack(id(1)) || s.putBack(id(1)) || s.putBack(id(7)), "a release is not told from none")
		equal(e, "%d are free", s.count(permits), 1)
	}},
	{"Port_APermitThatEndsComesBackAndIsNotRevived", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 1)
		s.permit(id(1), 60*time.Millisecond)
		e.until("it ends", func() bool { return s.count(permits) == 1 })
		e.errorIf(s.renewPermit(id(1), long) || s.putBack(id(1)), "it is still out")
		s.permit(id(2), 60*time.Millisecond)
		e.until("it ends, and another gets it", func() bool { return s.permit(id(3), long).Granted })
		e.errorIf(s.renewPermit(id(2), long), "it was renewed after its end")
	}},
	{"Port_SomeThousandPermitsThatEndAtOnceComeBackAtOnce", func(e *env) {
		s := e.counter()
		can := s.can.Semaphores
		var owners []string
		for i := range 9 { // more than a script passes to one command
			var ids []string
			for k := range backend.MaxPermits {
				ids = append(ids, id(1+i*backend.MaxPermits+k))
			}
			owners = append(owners, strings.Join(ids, ","))
		}
		all := int64(len(owners) * backend.MaxPermits)
		end := func() {
			for _, owner := range owners {
				e.errorIf(!s.permit(owner, time.Second).Granted, "as many are free, and not granted")
			}
			e.until("all have ended", func() bool { return !s.renewPermit(owners[len(owners)-1], 0) })
		}
		s.set(permits, "1", all)
		end()
		r, err := can.InspectPermits(background, "n", 1)
		e.must("InspectPermits", err)
		equal(e, "%d are free", r.Free, all)
		equal(e, "%d are in use", r.Out, 0)
		equal(e, "%d are free", s.count(permits), all)
		end()
		equal(e, "%d are free", call(e, can.SetLimit, backend.CountRequest{Topic: permits, ID: "2", N: all + 5}), all+5)
		end()
		s.add(permits, "3", 10-all-5) // less than in use
		a := s.permit(id(0), long)
		e.errorIf(!a.Granted || a.Available != 9, "of ten that are free: %+v", a)
	}},
	{"Port_RenewingAPermitNeverShortensItAndZeroOnlyAsks", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 1)
		s.permit(id(1), 10*time.Second)
		for _, lease := range []time.Duration{time.Second, 0} {
			e.errorIf(!s.renewPermit(id(1), lease), "renewal with %v: not out", lease)
			r := s.permit(id(2), long)
			e.errorIf(r.Remaining < 5*time.Second || r.Remaining > 10*time.Second,
				"after a renewal with %v: %v left", lease, r.Remaining)
		}
		s.renewPermit(id(1), time.Minute)
		r := s.permit(id(2), long)
		e.errorIf(r.Remaining < 50*time.Second, "after a renewal with a minute: %v left", r.Remaining)
	}},
	{"Port_AnExactRenewalShortensThePermitsLease", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 1)
		s.permit(id(1), 60*time.Second)
		renewsExactly(e, s.Store, anykind.RenewRequest{Kind: backend.KindSemaphore, Name: "n", Owner: id(1)}, 60*time.Second)
		r := s.permit(id(2), long)
		e.errorIf(r.Remaining < 5*time.Second || r.Remaining > 10*time.Second, "%v are left", r.Remaining)
	}},
	{"Port_ABatchRenewsLocksAndPermitsEachForItself", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 2)
		s.permit(id(1), long)
		e.must("Acquire", second(s.Acquire(background, anykind.AcquireRequest{Name: "l", Owner: "a:1", Lease: long})))
		in := []anykind.RenewRequest{
			{Name: "l", Owner: "a:1", Lease: long},
			{Kind: backend.KindSemaphore, Name: "n", Owner: id(1), Lease: long},
			{Kind: backend.KindSemaphore, Name: "n", Owner: id(2), Lease: long},
			{Name: "l", Owner: "a:2", Lease: long},
			{Kind: backend.KindSemaphore, Name: "other", Owner: id(1), Lease: long},
		}
		out := make([]backend.RenewResult, len(in))
		s.Renew(background, in, out)
		for i, want := range []bool{true, true, false, false, false} {
			e.errorIf(out[i].Held != want || out[i].Err != nil, "result %d is %+v, want %v", i, out[i], want)
		}
	}},

	// the rules
	{"Rule01_NoMorePermitsAreOutThanThereAre", func(e *env) {
		const size, clients, each, turns = 3, 3, 4, 5
		var out atomic.Int64
		c := e.client()
		e.must("TrySetPermits", second(semaphore.NewCounting(c, "s").TrySetPermits(background, size)))
		e.must("TrySetPermits", second(semaphore.New(c, "p", 0).TrySetPermits(background, size)))
		all := several(clients, func() *mortise.Client { return e.client() })
		hold := func() {
			atMost(e, "%d are out", out.Add(1), size)
			time.Sleep(time.Millisecond)
			out.Add(-1)
		}
		e.turns(clients*each, turns, func(g, _ int) error {
			s := semaphore.NewCounting(all[g%clients], "s")
			if err := s.Acquire(background, 1, mortise.WithWait(patience)); err != nil {
				return err
			}
			hold()
			return s.Release(background, 1)
		})
		e.turns(clients*each, turns, func(g, _ int) error {
			p, err := semaphore.New(all[g%clients], "p", 0).Acquire(background, 1, mortise.WithWait(patience))
			if err != nil {
				return err
			}
			hold()
			return p.Release(background)
		})
		e.done("all at once", semaphore.NewCounting(c, "s").TryAcquire(background, size))
		e.done("Release", semaphore.NewCounting(c, "s").Release(background, size))
		var taken []*semaphore.Permit
		for range size {
			p, err := semaphore.New(c, "p", 0).TryAcquire(background, 1)
			e.fatalIf(err != nil, "while %d are out: %v", len(taken), err)
			taken = append(taken, p)
		}
		for _, p := range taken {
			e.done("Release", p.Release(background))
		}
		e.available(semaphore.NewCounting(c, "s"), size)
		e.available(semaphore.New(c, "p", 0), size)
	}},
	{"Rule01_AKeyOfAnotherKindIsNoCountAndTheReverse", func(e *env) {
		s := e.counter()
		c := e.client()
		held := e.lock(c, background, "held")
		defer e.unlock(held)
		e.store.Occupy("data")
		for _, n := range []string{"held", "data"} {
			e.allNamed(n, mortise.ErrWrongKind, map[string]error{
				"set":        second(latch.New(c, n).TrySet(background, 1)),
				"countdown":  latch.New(c, n).CountDown(background),
				"count":      second(latch.New(c, n).Count(background)),
				"wait":       latch.New(c, n).Wait(background),
				"delete":     second(latch.New(c, n).Delete(background)),
				"acquire":    semaphore.NewCounting(c, n).Acquire(background, 1),
				"tryacquire": second(semaphore.New(c, n, 0).TryAcquire(background, 1)),
				"release":    semaphore.NewCounting(c, n).Release(background, 1),
				"available":  second(semaphore.New(c, n, 0).Available(background)),
				"drain":      second(semaphore.NewCounting(c, n).Drain(background)),
				"addpermits": semaphore.New(c, n, 0).AddPermits(background, 1),
			})
		}
		if !e.permitsWithin() {
			permitsBesideALock(e, c)
		}
		s.set(countN, "1", 2)
		e.named(second(c.TryLock(background, "n")), "trylock", "n", mortise.ErrWrongKind)
		equal(e, "a lock's operation made the count %d", s.count(countN), 2)
	}},
	{"Rule02_APermitIsLostBeforeAnotherGetsIt", func(e *env) {
		a, b := e.client(), e.client()
		e.ok(semaphore.New(a, "n", 0).TrySetPermits(background, 1))
		p := e.acquire(a, mortise.WithLease(2500*time.Millisecond))
		q := e.acquire(b)
		e.is("at the moment another has it, Err", p.Err(), mortise.ErrLost)
		receive(e, "the holder's context ends", p.Context().Done())
		e.named(p.Release(background), "release", "n", mortise.ErrLost)
		e.errorIf(q.Err() != nil, "a release of the lost one ended the other: %v", q.Err())
	}},
	{"Rule03_TheWatchdogKeepsAPermitAndALeaseEnds", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		other := e.client()
		e.ok(semaphore.New(c, "n", 0).TrySetPermits(background, 3))
		var kept []*semaphore.Permit
		for range 3 {
			kept = append(kept, e.acquire(c))
		}
		e.until("two renewals", func() bool { return f.Count(OpRenew) >= 2 })
		time.Sleep(watchdog)
		for _, p := range kept {
			e.errorIf(p.Err() != nil, "a permit of the watchdog's: %v", p.Err())
		}
		e.available(semaphore.New(other, "n", 0), 0)
		for _, p := range kept {
			e.done("Release", p.Release(background))
		}
		// A renewal of the three may still be on its way to the session, so it is
		// asked whose each one was: no other permit is left to share a batch with p.
		p := e.acquire(c, mortise.WithLease(watchdog))
		receive(e, "the lease ends", p.Context().Done())
		for _, call := range f.Calls(OpRenew) {
			e.errorIf(call.Owner == p.IDs()[0], "a lease was renewed: %+v", call)
		}
	}},
	{"Rule04_APermitOfADeadProcessComesBackAndAWaiterTakesIt", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 1)
		begin := time.Now()
		s.permit(id(1), time.Second)
		taken := time.Now()
		c := e.client()
		e.acquire(c)
		d, late := time.Since(begin), time.Since(taken)
		e.errorIf(d < 900*time.Millisecond || late > 5*time.Second, "it was had after %v", d)
	}},
	{"Rule05_NothingRenewsAPermitAfterItsRelease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		e.ok(semaphore.New(c, "n", 0).TrySetPermits(background, 1))
		hold := f.holds(arrivesLate, OpRenew)
		p := e.acquire(c)
		e.until("a renewal is on its way", func() bool { return f.Count(OpRenew) > 0 })
		e.done("Release", p.Release(background))
		close(hold)
		e.always(500*time.Millisecond, "it is free", func() bool {
			n, err := semaphore.New(c, "n", 0).Available(background)
			return n == 1 && err == nil
		})
	}},
	{"Rule06_APermitIsReleasedByItsIDAndOnce", func(e *env) {
		a, b := e.client(), e.client()
		e.ok(semaphore.New(a, "n", 0).TrySetPermits(background, 2))
		p, q := e.acquire(a), e.acquire(a)
		e.named(semaphore.New(b, "n", 0).Release(background, id(9)), "release", "n", semaphore.ErrNotHeld)
		e.named(semaphore.New(b, "n", 0).Release(background, "no id"), "release", "n", mortise.ErrInvalid)
		e.done("Release", p.Release(background))
		e.named(p.Release(background), "release", "n", mortise.ErrReleased)
		e.named(semaphore.New(a, "n", 0).Release(background, p.IDs()[0]), "release", "n", semaphore.ErrNotHeld)
		e.errorIf(q.Err() != nil, "the other: %v", q.Err())
		e.done("Release by another process", semaphore.New(b, "n", 0).Release(background, strings.ToUpper(q.IDs()[0])))
		e.available(semaphore.New(a, "n", 0), 2)
		r := e.acquire(a)
		e.done("Release by its own client", semaphore.New(a, "n", 0).Release(background, r.IDs()[0]))
		e.is("Err", r.Err(), mortise.ErrReleased)
	}},
	{"Rule06_APermitThatWasReleasedByAnotherIsLostAtItsRenewal", func(e *env) {
		a, b := e.client(mortise.WithWatchdogTimeout(watchdog)), e.client()
		e.ok(semaphore.New(a, "n", 0).TrySetPermits(background, 1))
		p := e.acquire(a)
		e.done("Release", semaphore.New(b, "n", 0).Release(background, p.IDs()[0]))
		e.lost(p)
		e.named(p.Release(background), "release", "n", mortise.ErrLost)
		e.available(semaphore.New(b, "n", 0), 1)
	}},
	{"Rule07_APermitIsNotEnteredAgainAndConfersNothing", func(e *env) {
		c := e.client()
		e.ok(semaphore.New(c, "n", 0).TrySetPermits(background, 1))
		p := e.acquire(c)
		e.named(second(semaphore.New(c, "n", 0).TryAcquire(p.Context(), 1)), "tryacquire", "n", mortise.ErrNotAcquired)
		e.named(second(c.TryLock(p.Context(), "n")), "trylock", "n", mortise.ErrWrongKind)
	}},
	{"Rule08_AWaiterForACountSendsNothingAndIsWoken", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 1)
		s.set(countingSemaphore("s"), "1", 1)
		s.set(permitsP, "1", 0)
		for what, x := range map[string]struct {
			wait func(*mortise.Client) error
			free func()
		}{
			"latch": {func(c *mortise.Client) error { return latch.New(c, "n").Wait(background) },
				func() { s.countDown("2") }},
			"counting semaphore": {func(c *mortise.Client) error { return semaphore.NewCounting(c, "s").Acquire(background, 3) },
				func() { s.add(countingSemaphore("s"), "2", 2) }},
			"semaphore": {func(c *mortise.Client) error { return second(semaphore.New(c, "p", 0).Acquire(background, 1)) },
				func() { s.add(permitsP, "2", 1) }},
		} {
			c, f := e.tapped()
			waiting := async(func() error { return x.wait(c) })
			e.settled(f)
			before := f.Count()
			e.always(500*time.Millisecond, what+": nothing is sent", func() bool { return f.Count() == before })
			if before > 4 {
				e.Errorf("%s: %d calls before it slept: %v", what, before, f.Calls())
			}
			freed := time.Now()
			x.free()
			e.done(what, receive(e, what+" is woken", waiting))
			e.tookAtMost(what+": woken only after %v", freed, 5*time.Second)
		}
	}},
	{"Rule08_AllWaitersOfALatchGoOnAfterOneRequest", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 1)
		c, f, stand := queueing(e)
		all := several(50, func() <-chan error {
			return async(func() error { return latch.New(c, "n").Wait(background) })
		})
		e.until("all wait", func() bool { return stand.Load() == 50 }) // a later waiter asks for itself
		e.settled(f)
		e.always(200*time.Millisecond, "they ask as one", func() bool { return f.Count(OpCount) <= 3 })
		before := f.Count(OpCount)
		s.countDown("2")
		for _, w := range all {
			e.done("Wait", receive(e, "they go on", w))
		}
		atMost(e, "they asked %d times", f.Count(OpCount)-before, 2)
	}},
	{"Rule08_WaitersOfACountingSemaphoreAreServedInTheirOrderAsSoonAsTheyCanBe", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 2)
		c, f, stand := queueing(e)
		served := make(chan int, 8)
		wait := func(i, n int) {
			go func() {
				err := semaphore.NewCounting(c, "n").Acquire(background, n, mortise.WithWait(patience))
				e.errorIf(err != nil, "Acquire(%d): %v", n, err)
				served <- i
			}()
		}
		sleeps := func(n int) {
			e.Helper()
			e.until("it stands in line", func() bool { return int(stand.Load()) >= n })
			e.settled(f)
		}
		next := func(want int) {
			e.Helper()
			got := receive(e, "a waiter is served", served)
			e.errorIf(got != want, "waiter %d was served, want %d", got, want)
		}
		wait(0, 3)
		sleeps(1)
		wait(1, 1) // there are as many, though the first wants more
		next(1)
		wait(2, 1)
		next(2)
		stood := int(stand.Load()) // a waiter that is served at once may have slept for a moment
		wait(3, 2)
		sleeps(stood + 1)
		wait(4, 2)
		sleeps(stood + 2)
		before := f.Count(OpTakeCount)
		e.always(200*time.Millisecond, "nothing is asked while nothing happens",
			func() bool { return f.Count(OpTakeCount) == before })
		wait(5, 1) // that one permit is enough now is told to the store, unless it knows
		sleeps(stood + 3)
		wait(6, 1) // nothing new
		sleeps(stood + 4)
		e.always(200*time.Millisecond, "what the waiters want at the least is told once, and nothing is asked",
			func() bool { return f.Count(OpTakeCount) <= before+1 })
		for i := range 2 {
			s.add(countN, fmt.Sprint("a", i), 1)
			next(5 + i)
		}
		for i := range 2 { // two that want the same number keep their order
			s.add(countN, fmt.Sprint("b", i), 2)
			next(3 + i)
		}
		s.add(countN, "c", 3)
		next(0)
		equal(e, "%d are left", s.count(countN), 0)
	}},
	{"Rule08_AnAcquireOfOneIsServedWhileAnAcquireOfTwoWaits", func(e *env) { // Redisson's testAcquireAfterAddPermits
		s := e.counter()
		s.set(countN, "1", 0)
		c, f := e.tapped()
		two := async(func() error { return semaphore.NewCounting(c, "n").Acquire(background, 2, mortise.WithWait(patience)) })
		e.settled(f)
		one := async(func() error { return semaphore.NewCounting(c, "n").Acquire(background, 1, mortise.WithWait(patience)) })
		e.settled(f)
		s.add(countN, "a", 1)
		e.done("Acquire(1)", receive(e, "one is served while two are wanted", one))
		if len(two) > 0 {
			e.Errorf("Acquire(2) of 1 returned %v", <-two)
		}
		s.add(countN, "b", 2)
		e.done("Acquire(2)", receive(e, "two are served", two))
	}},
	{"Rule08_ALimitIsDeclaredThoughACallOfTheClientWaitsAlready", func(e *env) {
		c, f := e.tapped()
		acquire := func(limit int) <-chan error {
			return async(func() error {
				_, err := semaphore.New(c, "n", limit).Acquire(background, 1, mortise.WithWait(patience))
				return err
			})
		}
		none := acquire(0)
		e.settled(f)
		e.done("Acquire with a limit", receive(e, "the limit is declared", acquire(2)))
		e.done("Acquire without one", receive(e, "the other is served", none))
	}},
	{"Rule09_AWaiterThatLeavesWhenItIsServedKeepsNoPermit", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 0)
		c, f := e.tapped()
		n := semaphore.NewCounting(c, "n")
		leave, stop := context.WithCancel(background)
		two := async(func() error { return n.Acquire(leave, 2) })
		e.settled(f)
		for i := range 20 {
			ctx, cancel := context.WithCancel(background)
			one := async(func() error { return n.Acquire(ctx, 1) })
			if i%2 == 0 {
				e.settled(f)
			}
			asked := f.Count(OpTakeCount)
			s.add(countN, fmt.Sprint("a", i), 1)
			if i%3 == 0 { // while it is being taken for it
				e.until("it is asked for", func() bool { return f.Count(OpTakeCount) > asked })
			}
			cancel()
			if err := receive(e, "it leaves, or is served", one); err == nil {
				e.done("Release", n.Release(background, 1))
			}
			e.until("the permit is free", func() bool { return s.count(countN) == 1 })
			s.add(countN, fmt.Sprint("b", i), -1)
		}
		stop()
		e.is("Acquire(2)", receive(e, "it leaves", two), context.Canceled)
		e.until("what was taken is back", func() bool { return s.count(countN) == 0 && f.underway(OpTakeCount) == 0 })
	}},
	{"Rule08_WhatIsLeftGoesToTheNextWithoutAMessage", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 0)
		s.set(permitsP, "1", 0)
		c, f := e.tapped()
		var all []<-chan error
		for range 5 {
			all = append(all, async(func() error {
				return semaphore.NewCounting(c, "n").Acquire(background, 1, mortise.WithWait(patience))
			}),
				async(func() error {
					return second(semaphore.New(c, "p", 0).Acquire(background, 1, mortise.WithWait(patience)))
				}))
		}
		e.settled(f)
		s.add(countN, "2", 5)
		s.add(permitsP, "2", 5)
		for _, w := range all {
			e.done("Acquire", receive(e, "all are served by one message", w))
		}
	}},
	{"Rule09_AnAbandonedAcquireLeavesNothing", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 2)
		s.set(permitsP, "1", 2)
		for what, fate := range lateFates {
			for kind, acquire := range map[string]func(context.Context, *mortise.Client) error{
				"counting semaphore": func(ctx context.Context, c *mortise.Client) error {
					return semaphore.NewCounting(c, "n").Acquire(ctx, 2)
				},
				"try": func(ctx context.Context, c *mortise.Client) error {
					return semaphore.NewCounting(c, "n").TryAcquire(ctx, 2)
				},
				"semaphore": func(ctx context.Context, c *mortise.Client) error {
					return second(semaphore.New(c, "p", 0).Acquire(ctx, 1))
				},
			} {
				c, f := e.tapped()
				ch := f.holds(fate, OpTakeCount, OpAcquire)
				err := e.abandon(f, background, func(ctx context.Context) error { return acquire(ctx, c) }, OpTakeCount, OpAcquire)
				e.errorIf(err == nil, "%s, %s: no error", kind, what)
				if what == "it arrives afterward" {
					e.until("it is taken back", func() bool { return f.Count(OpCancelTake, OpRelease) > 0 })
				}
				close(ch)
				e.until(kind+", "+what+": what arrives late has arrived",
					func() bool { return f.underway(OpTakeCount, OpAcquire) == 0 })
				e.until(kind+", "+what+": all are free", func() bool { return s.count(countN) == 2 && s.count(permitsP) == 2 })
				e.done("Close", c.Close()) // nothing is on its way any more
				a, b := s.count(countN), s.count(permitsP)
				e.errorIf(a != 2 || b != 2, "%s, %s: %d and %d are free in the end, want 2", kind, what, a, b)
			}
		}
	}},
	{"Rule09_AWaiterThatLeavesLosesNoWakeUp", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 0)
		c, f := e.tapped()
		ctx, cancel := context.WithCancel(background)
		first := async(func() error { return semaphore.NewCounting(c, "n").Acquire(ctx, 2) })
		e.settled(f)
		second := async(func() error {
			return semaphore.NewCounting(c, "n").Acquire(background, 1, mortise.WithWait(patience))
		})
		s.add(countN, "2", 1)
		cancel()
		e.is("the first", receive(e, "the first leaves", first), context.Canceled)
		e.done("the second", receive(e, "the second is served", second))
	}},
	{"Rule10_AReleaseIsSentThoughTheCallerHasLeft", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 1)
		s.set(countingSemaphore("s"), "1", 0)
		s.set(permitsP, "1", 1)
		c := e.client()
		permit, err := semaphore.New(c, "p", 0).Acquire(background, 1)
		e.done("Acquire", err)
		over := ended()
		for op, err := range map[string]error{
			"countdown": latch.New(c, "n").CountDown(over),
			"release":   semaphore.NewCounting(c, "s").Release(over, 2),
			"":          permit.Release(over),
		} {
			e.errorIf(err != nil && !errors.Is(err, context.Canceled), "%s: %v", op, err)
		}
		e.until("all are sent", func() bool {
			return s.count(latchN) == 0 && s.count(countingSemaphore("s")) == 2 && s.count(permitsP) == 1
		})
	}},
	{"Rule10_AReleaseThatFailedIsRepeatedInTheBackground", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 5)
		s.set(countingSemaphore("s"), "1", 0)
		c, f := e.tapped()
		var bad atomic.Bool
		bad.Store(true)
		f.Hook(func(c Call) Fate {
			if bad.Load() && (c.Op == OpCountDown || c.Op == OpAddCount) {
				return Fate{Lost: c.Began%2 == 0, Refused: c.Began%2 != 0}
			}
			return Fate{}
		})
		e.named(latch.New(c, "n").CountDown(background), "countdown", "n", mortise.ErrUnavailable)
		e.named(semaphore.NewCounting(c, "s").Release(background, 3), "release", "s", mortise.ErrUnavailable)
		before := f.Count(OpCountDown, OpAddCount)
		bad.Store(false)
		e.until("they are repeated", func() bool { return f.Count(OpCountDown, OpAddCount) >= before+2 })
		e.until("and count once", func() bool {
			return s.count(latchN) == 4 && s.count(countingSemaphore("s")) == 3
		})
		e.always(300*time.Millisecond, "once", func() bool {
			return s.count(latchN) == 4 && s.count(countingSemaphore("s")) == 3
		})
	}},
	{"Rule11_ALostReplyOfACountCountsOnce", func(e *env) {
		c, f := e.tapped()
		loseEveryOther(f)
		l, s, p := latch.New(c, "l"), semaphore.NewCounting(c, "s"), semaphore.New(c, "p", 0)
		e.ok(l.TrySet(background, 3))
		e.done("CountDown", l.CountDown(background))
		equal(e, "the latch is at %d", value(l.Count(background)).in(e), 2)
		e.ok(l.Delete(background))
		e.ok(s.TrySetPermits(background, 5))
		e.done("Acquire", s.Acquire(background, 5))
		e.done("Release", s.Release(background, 2))
		e.done("AddPermits", s.AddPermits(background, 4))
		e.available(s, 6)
		equal(e, "drained %d", value(s.Drain(background)).in(e), 6)
		e.ok(p.TrySetPermits(background, 2))
		a, b := value(p.Acquire(background, 1)).in(e), value(p.TryAcquire(background, 1)).in(e)
		e.available(p, 0)
		e.done("Release", a.Release(background))
		e.done("Release", p.Release(background, b.IDs()[0]))
		e.available(p, 2)
	}},
	{"Rule11_ARefusalAfterALostReplyIsNone", func(e *env) {
		s := e.counter()
		s.set(countN, "1", 1)
		c, f := e.tapped()
		lose(f, OpTakeCount, 1)
		// It took the last one; the second request finds none left, and that
		// the first was granted.
		e.done("TryAcquire", semaphore.NewCounting(c, "n").TryAcquire(background, 1))
		equal(e, "%d are free", s.count(countN), 0)
	}},
	{"Rule12_AWaiterForACountSurvivesALostConnection", func(e *env) {
		s := e.counter()
		sem := countingSemaphore("s")
		s.set(latchN, "1", 1)
		s.set(sem, "1", 0)
		s.set(permitsP, "1", 0)
		c, f := e.tapped()
		all := []<-chan error{
			async(func() error { return latch.New(c, "n").Wait(background, mortise.WithWait(patience)) }),
			async(func() error { return semaphore.NewCounting(c, "s").Acquire(background, 1, mortise.WithWait(patience)) }),
			async(func() error {
				return second(semaphore.New(c, "p", 0).Acquire(background, 1, mortise.WithWait(patience)))
			}),
		}
		e.until("they listen", func() bool { return f.Watching() >= 3 })
		e.store.Cut()
		e.eventually("a change", func() error {
			return second(s.can.CountDownLatches.CountDown(background, backend.CountRequest{Topic: latchN, ID: "2"}))
		})
		e.eventually("a change", func() error {
			return second(s.can.CountingSemaphores.AddCount(background, backend.CountRequest{Topic: sem, ID: "2", N: 1}))
		})
		e.eventually("a change", func() error {
			return second(s.can.Semaphores.AddCount(background, backend.CountRequest{Topic: permitsP, ID: "2", N: 1}))
		})
		for _, w := range all {
			e.done("it", receive(e, "it goes on", w))
		}
	}},
	{"Rule13_ErrorsOfCountsSayWhat", func(e *env) {
		c := e.client()
		e.store.Down()
		e.allNamed("n", mortise.ErrUnavailable, map[string]error{
			"set":        second(latch.New(c, "n").TrySet(background, 1)),
			"count":      second(latch.New(c, "n").Count(background)),
			"wait":       latch.New(c, "n").Wait(background),
			"acquire":    semaphore.NewCounting(c, "n").Acquire(background, 1),
			"tryacquire": second(semaphore.New(c, "n", 0).TryAcquire(background, 1)),
			"setpermits": second(semaphore.New(c, "n", 0).TrySetPermits(background, 1)),
			"available":  second(semaphore.NewCounting(c, "n").Available(background)),
			"addpermits": semaphore.NewCounting(c, "n").AddPermits(background, 1),
			"drain":      second(semaphore.NewCounting(c, "n").Drain(background)),
		})
		e.store.Up()
		e.eventually("the store is up", func() error { return c.Ping(background) })
		e.allNamed("n", mortise.ErrInvalid, map[string]error{
			"set":        second(latch.New(c, "n").TrySet(background, 0)),
			"wait":       latch.New(c, "n").Wait(background, mortise.WithLease(time.Second)),
			"acquire":    semaphore.NewCounting(c, "n").Acquire(background, 0),
			"tryacquire": semaphore.NewCounting(c, "n").TryAcquire(background, -1),
			"release":    semaphore.NewCounting(c, "n").Release(background, 0),
			"setpermits": second(semaphore.New(c, "n", 0).TrySetPermits(background, -1)),
			"addpermits": semaphore.NewCounting(c, "n").AddPermits(background, 0),
		})
		e.named(second(semaphore.New(c, "n", 0).TryAcquire(background, 1, mortise.WithWait(time.Second))), "tryacquire", "n",
			mortise.ErrInvalid)
		e.named(semaphore.NewCounting(c, "n").Acquire(background, 1, mortise.WithMaxHold(time.Second)), "acquire", "n",
			mortise.ErrInvalid)
		e.allNamed("a}", mortise.ErrInvalidName, map[string]error{
			"set":        second(latch.New(c, "a}").TrySet(background, 1)),
			"countdown":  latch.New(c, "a}").CountDown(background),
			"wait":       latch.New(c, "a}").Wait(background),
			"acquire":    second(semaphore.New(c, "a}", 0).Acquire(background, 1)),
			"release":    semaphore.New(c, "a}", 0).Release(background, id(1)),
			"tryacquire": semaphore.NewCounting(c, "a}").TryAcquire(background, 1),
		})
		e.named(semaphore.NewCounting(c, "n").TryAcquire(background, 1), "tryacquire", "n", mortise.ErrNotAcquired)
		e.named(semaphore.NewCounting(c, "n").Acquire(background, 1, mortise.WithWait(3*time.Second)), "acquire", "n",
			mortise.ErrNotAcquired)
		e.ok(latch.New(c, "n").TrySet(background, 1))
		e.named(latch.New(c, "n").Wait(background, mortise.WithWait(3*time.Second)), "wait", "n", mortise.ErrNotAcquired)
	}},
	{"Rule14_ShutdownWakesWaitersForCountsAndEndsPermits", func(e *env) {
		s := e.counter()
		s.set(latchN, "1", 1)
		c, f := e.tapped()
		e.ok(semaphore.New(c, "p", 0).TrySetPermits(background, 1))
		p, err := semaphore.New(c, "p", 0).Acquire(background, 1)
		e.done("Acquire", err)
		all := []<-chan error{
			async(func() error { return latch.New(c, "n").Wait(background) }),
			async(func() error { return semaphore.NewCounting(c, "s").Acquire(background, 1) }),
			async(func() error { return second(semaphore.New(c, "p", 0).Acquire(background, 1)) }),
		}
		e.until("they listen", func() bool { return f.Watching() >= 3 })
		over, cancel := context.WithCancel(background)
		defer cancel()
		down := async(func() error { return c.Shutdown(over) })
		for _, w := range all {
			e.is("a waiter", receive(e, "a waiter is woken", w), mortise.ErrClosed)
		}
		e.errorIf(p.Err() != nil, "a permit ended before Shutdown's time: %v", p.Err())
		cancel()
		e.is("Shutdown", receive(e, "Shutdown returns", down), context.Canceled)
		e.is("the permit", p.Err(), mortise.ErrClosed)
		e.is("Acquire", semaphore.NewCounting(c, "s").Acquire(background, 1), mortise.ErrClosed)
		e.is("TryAcquire", semaphore.NewCounting(c, "s").TryAcquire(background, 1), mortise.ErrClosed)
		e.is("Release", semaphore.NewCounting(c, "s").Release(background, 1), mortise.ErrClosed)
		e.is("CountDown", latch.New(c, "n").CountDown(background), mortise.ErrClosed)
		e.is("Wait", latch.New(c, "n").Wait(background), mortise.ErrClosed)
		equal(e, "%d are free: Shutdown released under running work", s.count(permitsP), 0)
	}},
})

var (
	countKinds = []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore}
	latchN     = backend.Topic{Kind: backend.KindCountDownLatch, Name: "n"}
	countN     = countingSemaphore("n")
	permitsP   = backend.Topic{Kind: backend.KindSemaphore, Name: "p"}
	permits    = backend.Topic{Kind: backend.KindSemaphore, Name: "n"}
)

// id is a permit's.
func id(n int) string { return fmt.Sprintf("%032x", n) }

func second[T any](_ T, err error) error { return err }

// eventually repeats what may fail for a while.
func (e checks) eventually(what string, f func() error) {
	e.Helper()
	e.until(what, func() bool { return f() == nil })
}

// acquire takes a permit of n within patience.
func (e leases) acquire(c *mortise.Client, opts ...mortise.Option) *semaphore.Permit {
	e.Helper()
	opts = append([]mortise.Option{mortise.WithWait(patience)}, opts...)
	p, err := semaphore.New(c, "n", 0).Acquire(background, 1, opts...)
	e.fatalIf(err != nil, "Acquire: %v", err)
	return p
}

func countingSemaphore(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindCountingSemaphore, Name: name}
}

// counts is a bare session whose operations must succeed.
type counts struct {
	anykind.Store
	can backend.Capabilities
	e   *env
}

// hasCounts reports whether the backend has latches and semaphores of both kinds.
func hasCounts(e *env) bool {
	can := e.bare().Capabilities()
	return can.CountDownLatches != nil && can.CountingSemaphores != nil && can.Semaphores != nil
}

// permitsBesideALock has a lock where the permits of a semaphore in use are kept.
func permitsBesideALock(e *env, c *mortise.Client) {
	beside := e.lock(c, background, "{s}:timeout")
	p := semaphore.New(c, "s", 2)
	e.allNamed("s", mortise.ErrWrongKind, map[string]error{
		"tryacquire": second(p.TryAcquire(background, 1)),
		"release":    p.Release(background, id(1)),
		"available":  second(p.Available(background)),
		"inspect":    second(p.Inspect(background)),
		"setpermits": p.SetPermits(background, 1),
		"delete":     second(semaphore.NewCounting(c, "s").Delete(background)),
	})
	st := e.inspect(c, "{s}:timeout")
	e.errorIf(!st.Held || !st.Mine, "operations of a semaphore left of the lock %+v", st)
	e.unlock(beside)
}

// counter opens a bare session on counts.
func (e *env) counter() *counts {
	e.Helper()
	s := e.bare()
	return &counts{s.Store, s.Capabilities(), e}
}

func (s *counts) set(t backend.Topic, id string, n int64) bool {
	s.e.Helper()
	return call(s.e, s.SetCount, backend.CountRequest{Topic: t, ID: id, N: n})
}

func (s *counts) count(t backend.Topic) int64 {
	s.e.Helper()
	return call(s.e, s.Count, t)
}

func (s *counts) countDown(id string) int64 {
	s.e.Helper()
	return call(s.e, s.can.CountDownLatches.CountDown, backend.CountRequest{Topic: latchN, ID: id})
}

func (s *counts) deleteCount(id string) bool {
	s.e.Helper()
	return call(s.e, s.can.CountDownLatches.DeleteCount, backend.CountRequest{Topic: latchN, ID: id})
}

func (s *counts) add(t backend.Topic, id string, n int64) int64 {
	s.e.Helper()
	return call(s.e, s.AddCount, backend.CountRequest{Topic: t, ID: id, N: n})
}

func (s *counts) take(id string, n int64, again bool) backend.TakeReply {
	s.e.Helper()
	return call(s.e, s.can.CountingSemaphores.TakeCount,
		backend.CountRequest{Topic: countN, ID: id, N: n, Again: again})
}

func (s *counts) cancel(id string, n int64) {
	s.e.Helper()
	s.e.done("CancelTake",
		s.can.CountingSemaphores.CancelTake(background, backend.CountRequest{Topic: countN, ID: id, N: n}))
}

func (s *counts) drain(id string) int64 {
	s.e.Helper()
	return call(s.e, s.can.CountingSemaphores.DrainCount, backend.CountRequest{Topic: countN, ID: id})
}

func (s *counts) permit(id string, lease time.Duration) anykind.AcquireReply {
	s.e.Helper()
	return call(s.e, s.Acquire, anykind.AcquireRequest{Kind: backend.KindSemaphore, Name: "n", Owner: id, Lease: lease})
}

func (s *counts) putBack(id string) bool {
	s.e.Helper()
	return call(s.e, s.Release, anykind.ReleaseRequest{Kind: backend.KindSemaphore, Name: "n", Owner: id}).Held
}

func (s *counts) renewPermit(id string, lease time.Duration) bool {
	s.e.Helper()
	return renewed(s.e, s.Store, anykind.RenewRequest{Kind: backend.KindSemaphore, Name: "n", Owner: id, Lease: lease})
}
