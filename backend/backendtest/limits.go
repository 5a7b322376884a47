package backendtest

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/semaphore"
)

// limitTests are about semaphores with several permits to an owner, and with limits that are declared and changed.
var limitTests = where(hasCounts, "latches and semaphores of both kinds", []test{
	// the port
	{"Port_ThePermitsOfAnOwnerAreTakenAllOrNone", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 3)
		r := s.permit(ids(1, 2), long)
		e.errorIf(!r.Granted || r.Available != 1, "2 of 3: %+v", r)
		r = s.permit(ids(1, 2), long)
		e.errorIf(!r.Granted || r.Available != 1, "the same request again: %+v", r)
		r = s.permit(ids(3, 4), long)
		e.errorIf(r.Granted || r.Available != 1 || r.Remaining <= 0, "2 of 1: %+v", r)
		e.errorIf(!s.putBack(ids(1, 2)) || s.putBack(ids(1, 2)), "a release of both is not told from none")
		equal(e, "%d are free", s.count(permits), 3)
	}},
	{"Port_AnOwnerHoldsAllItsPermitsOrNone", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 3)
		s.permit(ids(1, 2), long)
		e.errorIf(!s.renewPermit(ids(1, 2), long), "both are out, and are not renewed")
		e.errorIf(!s.putBack(id(1)), "one of two is not released by its id")
		e.errorIf(s.renewPermit(ids(1, 2), long), "one is out, and both are renewed")
		e.errorIf(s.permit(ids(1, 2), long).Available != 2, "a request that comes again takes what was released")
		e.errorIf(s.putBack(ids(1, 2)), "a release tells that both were out")
		equal(e, "%d are free", s.count(permits), 3)
	}},
	{"Port_ALimitCountsWhatIsOut", func(e *env) {
		s := e.counter()
		equal(e, "a limit of a new semaphore leaves %d free", s.limit("1", 3), 3)
		s.permit(ids(1, 2), long)
		equal(e, "raised, it leaves %d free", s.limit("2", 5), 3)
		equal(e, "lowered, it leaves %d free", s.limit("3", 1), -1)
		equal(e, "an earlier request, that comes again, leaves %d free", s.limit("2", 5), -1)
		s.permit(id(3), long)
		s.putBack(ids(1, 2))
		equal(e, "%d are free", s.count(permits), 1)
	}},
	{"Port_ALimitThatIsRaisedIsAnnounced", func(e *env) {
		s := e.counter()
		o, h := e.session()
		s.limit("1", 1)
		s.permit(id(1), long)
		o.Subscribe(permits)
		e.until("watching", func() bool { return h.count("watching n") > 0 })
		h.reset()
		s.limit("2", 2)
		e.until("a limit that is raised is announced", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_AnAcquireDeclaresALimit", func(e *env) {
		s := e.counter()
		r := s.declare(id(1), 2, false)
		e.errorIf(!r.Granted || r.Available != 1, "where there is no count: %+v", r)
		r = s.declare(id(2), 5, false)
		e.errorIf(!r.Granted || r.Available != 0, "where there is one: %+v", r)
		r = s.declare(id(3), 5, true)
		e.errorIf(!r.Granted || r.Available != 2, "to replace it: %+v", r)
		r = s.declare(id(3), 9, true)
		e.errorIf(!r.Granted || r.Available != 2, "a request that was granted, again: %+v", r)
		r = s.declare(id(4), 1, true)
		e.errorIf(r.Granted || r.Available != -2, "lower than what is out: %+v", r)
	}},
	{"Port_ASemaphoreListsThePermitsThatAreOut", func(e *env) {
		s := e.counter()
		e.errorIf(s.inspect(9).Free != 0, "a semaphore that is not set has permits")
		s.set(permits, "1", 5)
		s.permit(id(1), long)
		s.permit(ids(2, 3), 10*time.Second)
		r := s.inspect(2)
		e.errorIf(r.Free != 2 || r.Out != 3 || len(r.List) != 2, "%+v", r)
		for i, x := range r.List {
			e.errorIf(x.ID != id(2+i) || x.Remaining <= 5*time.Second || x.Remaining > 10*time.Second, "permit %d: %+v", i, x)
		}
	}},
	{"Port_ASemaphoreThatIsDeletedIsGone", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 2)
		s.permit(id(1), long)
		e.errorIf(!s.deletePermits("2") || !s.deletePermits("2") || s.deletePermits("3"), "a delete is not told from none")
		e.errorIf(s.renewPermit(id(1), long), "a permit is out")
		e.errorIf(!s.set(permits, "4", 1), "it is not gone")
		equal(e, "%d are free", s.count(permits), 1)
		s.set(countN, "5", 2)
		c := semaphore.NewCounting(e.client(), "n")
		e.ok(c.Delete(background))
		e.available(c, 0)
	}},

	// the rules
	{"Rule01_SeveralPermitsAtOnceAreNoMoreThanThereAre", func(e *env) {
		const size, clients, turns = 5, 3, 8
		var out atomic.Int64
		all := several(clients, func() *semaphore.Semaphore { return semaphore.New(e.client(), "n", size) })
		e.turns(clients*3, turns, func(g, turn int) error {
			n := 1 + (g+turn)%3
			p, err := all[g%clients].Acquire(background, n, mortise.WithWait(patience))
			if err != nil {
				return err
			}
			atMost(e, "%d are out", out.Add(int64(n)), size)
			time.Sleep(time.Millisecond)
			out.Add(-int64(n))
			return p.Release(background)
		})
		e.freed(all[0], size)
	}},
	{"Rule02_PermitsThatWereAcquiredTogetherAreLostTogether", func(e *env) {
		a, b := e.client(mortise.WithWatchdogTimeout(watchdog)), e.client()
		p := value(semaphore.New(a, "n", 3).Acquire(background, 3)).in(e)
		e.done("Release of one of three", semaphore.New(b, "n", 0).Release(background, p.IDs()[1]))
		receive(e, "the holder's context ends", p.Context().Done())
		e.is("Err", p.Err(), mortise.ErrLost)
		e.until("the two others are free", func() bool {
			n, err := semaphore.New(b, "n", 0).Available(background)
			return n == 3 && err == nil
		})
	}},
	{"Rule03_PermitsThatWereAcquiredTogetherAreRenewedTogether", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		p := value(semaphore.New(c, "n", 3).Acquire(background, 3)).in(e)
		e.until("two renewals", func() bool { return f.Count(OpRenew) >= 2 })
		time.Sleep(watchdog)
		e.errorIf(p.Err() != nil, "after a watchdog timeout: %v", p.Err())
		e.available(semaphore.New(e.client(), "n", 0), 0)
		e.done("Release", p.Release(background))
	}},
	{"Rule06_PermitsThatWereAcquiredTogetherAreReleasedTogether", func(e *env) {
		a, b := e.client(), e.client()
		s := semaphore.New(a, "n", 4)
		p, q := value(s.Acquire(background, 2)).in(e), value(s.Acquire(background, 2)).in(e)
		e.named(s.Release(background, p.IDs()[0], q.IDs()[0], q.IDs()[1]), "release", "n", mortise.ErrInvalid)
		e.named(s.Release(background), "release", "n", mortise.ErrInvalid)
		e.available(s, 0)
		e.done("Release of several by their ids", s.Release(background, append(p.IDs(), q.IDs()...)...))
		e.is("Err", p.Err(), mortise.ErrReleased)
		e.is("Err", q.Err(), mortise.ErrReleased)
		p, q = value(s.Acquire(background, 1)).in(e), value(s.Acquire(background, 3)).in(e)
		e.done("Release by another process", semaphore.New(b, "n", 0).Release(background, append(p.IDs(), q.IDs()...)...))
		e.available(s, 4)
	}},
	{"Rule08_Redisson_testConcurrencyMultiPermits", func(e *env) {
		s := semaphore.New(e.client(), "n", 0)
		e.ok(s.TrySetPermits(background, 2))
		bothServed(e, s, 2, 2)
		e.available(s, 2)
	}},
	{"Rule08_Redisson_testConcurrencyMultiPermits2", func(e *env) {
		s := semaphore.New(e.client(), "n", 0)
		e.ok(s.TrySetPermits(background, 2))
		bothServed(e, s, 1, 2)
		e.available(s, 2)
	}},
	{"Rule08_Redisson_testAcquireAfterAddPermits", func(e *env) {
		s := semaphore.NewCounting(e.client(), "n")
		acquired := async(func() error {
			if err := s.AddPermits(background, 1); err != nil {
				return err
			}
			return s.Acquire(background, 2)
		})
		e.always(2*time.Second, "Acquire(2) of one permit waits", func() bool { return len(acquired) == 0 })
		e.done("Acquire(1)", s.Acquire(background, 1, mortise.WithWait(patience)))
		time.Sleep(time.Second) // as Redisson's test holds it
		e.done("Release", s.Release(background, 1))
		e.always(time.Second, "Acquire(2) of one permit waits", func() bool { return len(acquired) == 0 })
		e.done("AddPermits", s.AddPermits(background, 1))
		e.done("Acquire(2)", receive(e, "two are served", acquired))
	}},
	{"Rule08_APermitIsServedWhileTwoAreWantedInOneClient", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 0)
		c, f := e.tapped()
		one, two := semaphore.New(c, "n", 0), semaphore.New(c, "n", 0)
		oneBeforeTwo(e, one, two, f, func(id string, n int64) { s.add(permits, id, n) })
	}},
	{"Rule08_APermitIsServedWhileAnotherClientWantsTwo", func(e *env) {
		s := e.counter()
		s.set(permits, "1", 0)
		c, f := e.tapped()
		oneBeforeTwo(e, semaphore.New(c, "n", 0), semaphore.New(e.client(), "n", 0), f,
			func(id string, n int64) { s.add(permits, id, n) })
	}},
	{"Rule08_WaitersForManyPermitsAreAllServedInTheEnd", func(e *env) {
		const size = 3
		all := several(3, func() *semaphore.Semaphore { return semaphore.New(e.client(), "n", size) })
		e.turns(9, 4, func(g, _ int) error {
			p, err := all[g%3].Acquire(background, 1+g/3, mortise.WithWait(patience))
			if err != nil {
				return err
			}
			return p.Release(background)
		})
		e.freed(all[0], size)
	}},
	{"Rule01_ALimitIsDeclaredByTheFirstCall", func(e *env) {
		c := e.client()
		s := semaphore.New(c, "n", 2)
		e.available(s, 0) // nothing was acquired, so nothing is declared
		p := value(s.Acquire(background, 1)).in(e)
		e.available(s, 1)
		e.named(second(s.TryAcquire(background, 3)), "tryacquire", "n", mortise.ErrInvalid)
		e.named(second(semaphore.New(c, "n", -1).TryAcquire(background, 1)), "tryacquire", "n", mortise.ErrInvalid)
		for _, n := range []int{0, -1, 129} {
			e.named(second(semaphore.New(c, "n", 0).TryAcquire(background, n)), "tryacquire", "n", mortise.ErrInvalid)
		}
		e.named(s.SetPermits(background, -1), "setpermits", "n", mortise.ErrInvalid)
		e.done("Release", p.Release(background))
	}},
	{"Rule01_ALimitIsRaisedAndLoweredWhilePermitsAreOut", func(e *env) {
		c, f := e.tapped()
		s := semaphore.New(c, "n", 3)
		p := value(s.Acquire(background, 3)).in(e)
		waiting := async(func() error { return second(s.Acquire(background, 2, mortise.WithWait(patience))) })
		e.settled(f)
		e.done("SetPermits", semaphore.New(e.client(), "n", 0).SetPermits(background, 5))
		e.done("a waiter, after the limit was raised from 3 to 5,", receive(e, "it is served", waiting))
		e.done("SetPermits", s.SetPermits(background, 1))
		e.errorIf(p.Err() != nil, "a limit that was lowered took a permit back: %v", p.Err())
		info := value(s.Inspect(background)).in(e)
		e.errorIf(info.Limit != 1 || info.Free != -4 || info.Out != 5, "lowered to 1 while 5 are out: %+v", info)
		e.named(second(s.TryAcquire(background, 1)), "tryacquire", "n", mortise.ErrNotAcquired)
	}},
	{"Rule01_OfTwoVersionsTheLastThatDeclaresDecides", func(e *env) {
		older, newer := semaphore.New(e.client(), "n", 3), semaphore.New(e.client(), "n", 5)
		clerk := semaphore.New(e.client(), "n", 0)
		limit := func(want int) {
			e.Helper()
			info := value(clerk.Inspect(background)).in(e)
			e.errorIf(info.Limit != want, "the limit is %d, want %d", info.Limit, want)
		}
		use := func(s *semaphore.Semaphore) {
			e.Helper()
			e.done("Release", value(s.Acquire(background, 1)).in(e).Release(background))
		}
		use(older)
		limit(3)
		use(newer)
		limit(5)
		use(older) // which has declared before
		limit(5)
		use(clerk) // which declares none
		limit(5)
		use(semaphore.New(e.client(), "n", 3)) // one of the older version that starts again
		limit(3)
		e.done("SetPermits", clerk.SetPermits(background, 4))
		use(newer)
		limit(4)
		e.store.Flush()
		use(older)
		limit(3)
	}},
	{"Rule01_AWaiterDeclaresOnceAndLeavesALaterLimitAlone", func(e *env) {
		clerk := semaphore.New(e.client(), "n", 0)
		e.done("SetPermits", clerk.SetPermits(background, 1))
		p := value(clerk.Acquire(background, 1)).in(e)
		c, f := e.tapped()
		s := semaphore.New(c, "n", 1)
		acquire := func() error { return second(s.Acquire(background, 1, mortise.WithWait(patience))) }
		first := async(acquire)
		e.settled(f)
		behind := async(acquire)
		e.settled(f)
		e.done("SetPermits", clerk.SetPermits(background, 3))
		e.done("a waiter, after the limit was raised from 1 to 3,", receive(e, "it is served", first))
		e.done("the waiter behind it", receive(e, "it is served", behind))
		info := value(clerk.Inspect(background)).in(e)
		e.errorIf(info.Limit != 3, "the limit is %d after SetPermits(3): a waiter declared its own again", info.Limit)
		e.done("Release", p.Release(background))
	}},
	{"Rule01_InspectTellsWhichClientHolds", func(e *env) {
		a, b := e.client(mortise.WithID("a/1")), e.client(mortise.WithID("b/2"))
		p := value(semaphore.New(a, "n", 4).Acquire(background, 2, mortise.WithLease(10*time.Second))).in(e)
		q := value(semaphore.New(b, "n", 4).Acquire(background, 1)).in(e)
		e.counter().permit(id(9), 20*time.Second) // as Redisson's are
		info := value(semaphore.New(b, "n", 0).Inspect(background)).in(e)
		e.errorIf(info.Name != "n" || info.Limit != 4 || info.Free != 0 || info.Out != 4 || len(info.Permits) != 4,
			"%+v", info)
		clients := map[string]string{p.IDs()[0]: "a/1", p.IDs()[1]: "a/1", q.IDs()[0]: "b/2", id(9): ""}
		for _, x := range info.Permits {
			client, known := clients[x.ID]
			e.errorIf(!known || x.Client != client || x.Mine != (client == "b/2") || x.Remaining <= 0, "%+v", x)
		}
		e.errorIf(info.Permits[0].Client != "a/1", "the first to end is %+v", info.Permits[0])
	}},
	{"Rule01_ADeletedSemaphoreIsLostAndMadeAnew", func(e *env) {
		a, b := e.client(mortise.WithWatchdogTimeout(watchdog)), e.client()
		s := semaphore.New(a, "n", 2)
		p := value(s.Acquire(background, 1)).in(e)
		e.errorIf(!value(semaphore.New(b, "n", 0).Delete(background)).in(e), "there was none")
		receive(e, "the holder's context ends", p.Context().Done())
		e.is("Err", p.Err(), mortise.ErrLost)
		e.done("Release", value(s.Acquire(background, 2)).in(e).Release(background))
	}},
})

// ids is an owner with two permits.
func ids(a, b int) string { return strings.Join([]string{id(a), id(b)}, ",") }

// bothServed has two callers acquire so many permits each, hold them for half a second and release them: both are
// served within two seconds, as Redisson's test has it, and more where the machine is slow.
func bothServed(e *env, s *semaphore.Semaphore, first, second int) {
	e.Helper()
	hold := func(n int) func() error {
		return func() error {
			p, err := s.Acquire(background, n, mortise.WithWait(patience))
			if err != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond)
			return p.Release(background)
		}
	}
	a := async(hold(first))
	time.Sleep(100 * time.Millisecond)
	b := async(hold(second))
	e.done("the first", receive(e, "the first is served", a))
	e.done("the second", receive(e, "the second is served", b))
}

// oneBeforeTwo has a caller wait for two permits and then another for one: that one is served as soon as one is free.
func oneBeforeTwo(e *env, x, y *semaphore.Semaphore, f *Faults, add func(id string, n int64)) {
	e.Helper()
	wait := func(ctx context.Context, s *semaphore.Semaphore, n int) <-chan error {
		return async(func() error { return second(s.Acquire(ctx, n, mortise.WithWait(patience))) })
	}
	two := wait(background, x, 2)
	e.settled(f)
	one := wait(background, y, 1)
	e.settled(f)
	add("a", 1)
	e.done("Acquire(1)", receive(e, "one is served while two are wanted", one))
	e.errorIf(len(two) > 0, "Acquire(2) of 1 returned")
	add("b", 2)
	e.done("Acquire(2)", receive(e, "two are served", two))
}

func (s *counts) limit(id string, n int64) int64 {
	s.e.Helper()
	return call(s.e, s.can.Semaphores.SetLimit, backend.CountRequest{Topic: permits, ID: id, N: n})
}

func (s *counts) declare(owner string, limit int64, declare bool) backend.PermitReply {
	s.e.Helper()
	return call(s.e, s.can.Semaphores.Acquire,
		backend.PermitRequest{Name: "n", Owner: owner, Lease: long, Limit: limit, Declare: declare})
}

func (s *counts) inspect(most int) backend.PermitsRecord {
	s.e.Helper()
	r, err := s.can.Semaphores.InspectPermits(background, "n", most)
	s.e.fatalIf(err != nil, "InspectPermits: %v", err)
	return r
}

func (s *counts) deletePermits(id string) bool {
	s.e.Helper()
	return call(s.e, s.can.Semaphores.DeleteCount, backend.CountRequest{Topic: permits, ID: id})
}
