package backendtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// turnEars is ears that tell a turn of its own from another's.
type turnEars struct{ ears }

var _ backend.QueueHandler = (*turnEars)(nil)

func (h *turnEars) Granted(t backend.Topic, g backend.Grant) {
	h.add("granted " + said(t))
	h.add(fmt.Sprintf("granted %s to %s", said(t), g.Owner))
}

func (h *turnEars) Reserved(t backend.Topic, entry uint64) {
	h.add("reserved " + said(t))
	h.add(fmt.Sprintf("reserved %s for %d", said(t), entry))
}

func (h *turnEars) First(t backend.Topic, _ uint64, after time.Duration) {
	h.add("first " + said(t))
	h.add(fmt.Sprintf("first %s after %v", said(t), after))
}

func (h *turnEars) Wanted(t backend.Topic, entry uint64) {
	h.add(fmt.Sprintf("wanted %s by another than %d", said(t), entry))
}

func (h *turnEars) Freed(t backend.Topic) { h.Released(t) }

// told reports whether the session was told that it may have the lock.
func (h *turnEars) told() bool { return h.count("released n")+h.turns("n") > 0 }

// turns returns how often the session was told that it has the lock, or that it is reserved for it.
func (h *turnEars) turns(name string) int {
	return h.count("reserved "+name) + h.count("granted "+name)
}

// handsOver reports whether the backend hands locks over, which is an obligation of a backend that says so only.
func (e *env) handsOver() bool {
	return e.bare().Capabilities().Queue != nil
}

// grants reports whether the backend grants the lock by a message, instead of reserving it.
func (e *env) grants() bool { return e.bare().Capabilities().Grants }

// relays opens sessions that hear of turns.
func (e *env) relays(n int) (all []*raw, ears []*turnEars) {
	e.Helper()
	for range n {
		h := new(turnEars)
		all, ears = append(all, openSession(e, e.store.Backend(), h)), append(ears, h)
	}
	return all, ears
}

func (s *raw) handOver(r backend.ServeRequest) backend.ServeReply {
	s.e.Helper()
	return call(s.e, s.Capabilities().Queue.Serve, r)
}

// waits asks for name as a waiter, and is refused. It reports whether the session is told of releases in turn.
func (s *raw) waits(name, owner string) bool {
	s.e.Helper()
	r, err := s.Acquire(background, anykind.AcquireRequest{Name: name, Owner: owner, Lease: long, Enrols: true})
	s.e.fatalIf(err != nil || r.Granted, "Acquire(%q, %s) of a waiter: %+v, %v; want it refused", name, owner, r, err)
	return r.Enrolled
}

// asks asks for name as a waiter.
func (s *raw) asks(name, owner string) anykind.AcquireReply {
	s.e.Helper()
	r, err := s.Acquire(background, anykind.AcquireRequest{Name: name, Owner: owner, Lease: long, Enrols: true})
	s.e.must("Enrol", err)
	return r
}

// claims asks for name, and gets it.
func (s *raw) claims(name, owner string) {
	s.e.Helper()
	r := s.asks(name, owner)
	s.e.fatalIf(!r.Granted, "a session that was told asks for %q: %+v", name, r)
}

// leaves takes an entry out of the queue.
func (s *raw) leaves(name, owner string, entry uint64) error {
	return s.Capabilities().Queue.Leave(background, backend.LeaveEntryRequest{Name: name, Entry: entry, Owner: owner})
}

// enrols asks for name as a waiter, under an entry of this number.
func (s *raw) enrols(name, owner string, entry uint64) backend.EnrolReply {
	s.e.Helper()
	q := backend.AcquireRequest{Name: name, Owner: owner, Lease: long}
	return call(s.e, s.Capabilities().Queue.Enrol, backend.EnrolRequest{AcquireRequest: q, Entry: entry})
}

// inTurn has each session watch name and wait for it, in this order.
func (e *env) inTurn(all []*raw, ears []*turnEars, name string) {
	e.Helper()
	for i, s := range all {
		s.watch(&ears[i].ears, name)
		e.fatalIf(!s.waits(name, fmt.Sprintf("%d:1", i)), "session %d, which watches the lock, is not in its queue", i)
	}
}

// reserving has a lock of some name reserved for the first of two sessions that wait for it, and checks that test,
// which returns what is wrong, finds all as it is to be. A test that the reservation did not outlive is repeated.
func reserving(e *env, test func(holder *raw, all []*raw, ears []*turnEars, name string) (wrong string)) {
	e.Helper()
	if e.grants() {
		e.lacks("reservations, since a release grants")
	}
	all, ears := e.relays(3)
	for i := range 20 {
		name := fmt.Sprintf("n%d", i)
		all[0].take(name, "h:1", long)
		e.inTurn(all[1:], ears[1:], name)
		before := time.Now()
		all[0].release(name, "h:1", 0)
		e.until("the first is told", func() bool { return ears[1].turns(name) == 1 })
		wrong := test(all[0], all[1:], ears[1:], name)
		if time.Since(before) < 900*time.Millisecond {
			e.errorIf(wrong != "", "%s", wrong)
			return
		}
	}
	e.Fatal("no reservation lasted as long as the test")
}

// work is what a holder does with the lock. It takes time: in a bubble no time passes while a goroutine can run.
func work() { time.Sleep(100 * time.Microsecond) }

// busy has n goroutines lock name again and again until the test ends.
func (e leases) busy(c mortise.Locker, name string, n int, turns *atomic.Int64) (stop func()) {
	ctx, cancel := context.WithCancel(background)
	e.Cleanup(cancel) // a test that fails does not stop them
	done := make(chan struct{}, n)
	for range n {
		go func() {
			defer func() { done <- struct{}{} }()
			for ctx.Err() == nil {
				l, err := c.Lock(ctx, name)
				if err != nil {
					continue
				}
				turns.Add(1)
				work()
				e.done("Unlock", l.Unlock(background))
			}
		}()
	}
	return func() {
		cancel()
		for range n {
			receive(e, "the busy goroutine ends", done)
		}
	}
}

// relayTests are about locks that are handed over, and releases that are told to one.
var relayTests = where((*env).handsOver, "a queue of waiting clients", []test{
	{"Port_AHandOverReleasesAndGrantsInOneStep", func(e *env) {
		all, _ := e.relays(2)
		a, b := all[0], all[1]
		a.take("n", "a:1", 5*time.Second)
		r := a.handOver(backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: long})
		e.fatalIf(!r.Held || !r.Granted || r.Enrolled, "HandOver by the holder: %+v, want it granted", r)
		rec := b.record("n")
		e.errorIf(rec.Owner != "a:2" || rec.Holds != 1 || rec.Remaining < long/2,
			"the record is %+v, want one hold of the successor for %v", rec, long)
		e.errorIf(a.release("n", "a:1", 0), "the owner that handed its lock over still holds it")
		if r := b.acquire("n", "b:1", long); r.Granted {
			e.Error("what was handed over is granted to another")
		}
		e.errorIf(!a.release("n", "a:2", 0), "the successor does not hold it")
		b.isFree("n")
	}},
	{"Port_OnlyAHolderHandsOver", func(e *env) {
		all, _ := e.relays(1)
		a := all[0]
		r := a.handOver(backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: long})
		e.errorIf(r.Held || r.Granted, "HandOver of a free lock: %+v", r)
		a.take("n", "b:1", long)
		r = a.handOver(backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: long})
		e.errorIf(r.Held || r.Granted, "HandOver by an owner that does not hold it: %+v", r)
		rec := a.record("n")
		e.errorIf(rec.Owner != "b:1", "the record is %+v, want it left alone", rec)
	}},
	{"Port_AHandOverDrawsATokenIfAsked", func(e *env) {
		all, _ := e.relays(1)
		a := all[0]
		last := a.fenced("n", "a:1")
		for i := 2; i < 5; i++ {
			r := a.handOver(backend.ServeRequest{Name: "n", Owner: fmt.Sprintf("a:%d", i-1),
				Next: fmt.Sprintf("a:%d", i), Lease: long, Fenced: true})
			e.fatalIf(!r.Granted || r.Token <= last, "HandOver: %+v, want a token above %d", r, last)
			last = r.Token
		}
		a.release("n", "a:4", 0)
		token := a.fenced("n", "a:5")
		e.errorIf(token <= last, "the token after it is %d, want above %d", token, last)
	}},
	{"Port_AHandOverYieldsIfOthersWait", func(e *env) {
		all, ears := e.relays(2)
		a, b := all[0], all[1]
		a.take("n", "a:1", long)
		r := a.handOver(backend.ServeRequest{Name: "n", Owner: "a:1", Next: "a:2", Lease: long, Yield: true})
		e.fatalIf(!r.Granted, "HandOver that yields, and no other session waits: %+v", r)
		b.watch(&ears[1].ears, "n")
		b.waits("n", "b:1")
		r = a.handOver(backend.ServeRequest{Name: "n", Owner: "a:2", Next: "a:3", Lease: long, Yield: true})
		e.fatalIf(!r.Held || r.Granted, "HandOver that yields to a session that waits: %+v, want it released", r)
		e.until("the other is told", ears[1].told)
		b.claims("n", "b:1")
	}},
	{"Port_ATurnThatWentOnWhileNothingElseWaitedIsOverWhenSomethingDoes", func(e *env) {
		all, ears := e.relays(3)
		holder, b, c := all[0], all[1], all[2]
		for i, s := range all {
			s.watch(&ears[i].ears, "n")
		}
		wanted := func() int { return ears[0].count("wanted n by another than 7") }
		holder.take("n", "h:1", long)
		b.waits("n", "b:1")
		e.must("Leave", b.leaves("n", "b:1", 1))
		serve := backend.ServeRequest{Name: "n", Owner: "h:1", Next: "h:2", Lease: long, Yield: true, Entry: 7}
		e.fatalIf(!holder.handOver(serve).Granted, "HandOver that yields, and nothing waits: not granted")
		e.errorIf(wanted() > 0, "a session was told of an entry that came before")
		b.waits("n", "b:2")
		e.until("the session is told", func() bool { return wanted() == 1 })
		c.waits("n", "c:1")
		serve.Owner, serve.Next = "h:2", "h:3"
		e.errorIf(holder.handOver(serve).Granted, "HandOver that yields, and others wait: granted")
		e.until("the first is told", ears[1].told)
		e.errorIf(wanted() > 1, "it was told again")
	}},
	{"Port_AReleaseTellsTheSessionsInTurnOneAfterTheOther", func(e *env) {
		all, ears := e.relays(4)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		for turn, s := range all {
			holder.release("n", "h:1", 0)
			e.until(fmt.Sprintf("of release %d session %d hears", turn, turn),
				func() bool { return ears[turn].turns("n") == 1 })
			if turn+1 < len(all) && !e.grants() {
				e.until("the next is told that it is the first now", func() bool { return ears[turn+1].count("first n") == 1 })
			}
			for i, h := range ears {
				e.errorIf(i != turn && h.told(), "of release %d session %d was told, too", turn, i)
				h.reset()
			}
			r := holder.acquire("n", "h:2", long)
			e.errorIf(r.Granted, "what is reserved was granted to another")
			owner := fmt.Sprintf("%d:1", turn)
			s.claims("n", owner)
			s.release("n", owner, 1) // no release
			holder.handOver(backend.ServeRequest{Name: "n", Owner: owner, Next: "h:1", Lease: long})
		}
	}},
	{"Port_AReservationThatIsNotClaimedIsTheNextOnes", func(e *env) {
		all, ears := e.relays(3)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		holder.release("n", "h:1", 0)
		e.until("the first is told", ears[0].told)
		e.until("the second may have it", func() bool { return all[1].asks("n", "1:2").Granted })
		e.errorIf(all[0].asks("n", "0:2").Granted, "two hold it")
	}},
	{"Port_AnEntryThatHasLeftIsNotServedAndALaterOneIs", func(e *env) {
		all, ears := e.relays(2)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		e.must("Leave", all[0].leaves("n", "0:1", 1))
		all[0].waits("n", "0:2")
		e.must("Leave of an earlier entry", all[0].leaves("n", "0:3", 2))
		holder.release("n", "h:1", 0)
		e.until("the entry is served", ears[0].told)
	}},
	{"Port_TheEntryBehindOneThatLeavesIsToldThatItIsTheFirst", func(e *env) {
		all, ears := e.relays(3)
		all[0].take("n", "h:1", long)
		e.inTurn(all[1:], ears[1:], "n")
		e.must("Leave", all[1].leaves("n", "0:1", 1))
		e.until("the second is told", func() bool { return ears[2].count("first n") == 1 })
		e.errorIf(ears[1].told() || ears[2].told(), "a session was told that it may have a lock that is held")
	}},
	{"Port_TheReplyTellsTheFirstEntryThatItIs", func(e *env) {
		all, ears := e.relays(3)
		all[0].take("n", "h:1", long)
		for i, s := range all[1:] {
			s.watch(&ears[i+1].ears, "n")
			r := s.enrols("n", fmt.Sprintf("%d:1", i+1), 1)
			e.errorIf(!r.Enrolled || r.First != (i == 0), "Enrol of session %d in turn: %+v", i, r)
		}
	}},
	{"Port_WithNoSessionInTurnAllAreTold", func(e *env) {
		all, ears := e.relays(3)
		all[0].take("n", "h:1", long)
		for i, s := range all[1:] {
			s.watch(&ears[i+1].ears, "n")
		}
		all[0].release("n", "h:1", 0)
		for _, h := range ears[1:] {
			e.until("each hears of the release", func() bool { return h.count("released n") == 1 })
		}
	}},
	{"Port_ASessionThatStepsBackPassesItsTurnOn", func(e *env) {
		all, ears := e.relays(3)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		holder.release("n", "h:1", 0)
		e.until("the first is told", ears[0].told)
		e.must("Leave", all[0].leaves("n", "0:1", 1))
		e.until("the second is told", ears[1].told)
		all[1].claims("n", "1:1")
	}},
	{"Port_AReservedLockHasNoOwner", func(e *env) {
		reserving(e, func(holder *raw, all []*raw, ears []*turnEars, name string) string {
			try, rec := holder.acquire(name, "h:2", long), holder.record(name)
			behind := all[1].enrols(name, "1:2", 1)
			switch {
			case try.Granted || try.Remaining > time.Second:
				return fmt.Sprintf("Acquire of a reserved lock: %+v, want it refused for a second at most", try)
			case rec != (backend.Record{Reserved: true}):
				return fmt.Sprintf("the record is %+v, want it reserved", rec)
			case behind.Granted || !behind.Enrolled || !behind.First:
				return fmt.Sprintf("Enrol of the session behind: %+v, want it refused as the first in the queue", behind)
			case holder.release(name, "h:1", 0) || holder.reenter(name, "h:1", 2, long) || holder.renew(name, "h:1", long):
				return "the owner that released the lock holds it"
			}
			claim := all[0].enrols(name, "0:2", 1)
			rec = holder.record(name)
			if !claim.Granted || rec.Owner != "0:2" || rec.Holds != 1 || rec.Remaining < long/2 {
				return fmt.Sprintf("the claim: %+v, the record then: %+v, want its owner to have it for %v", claim, rec, long)
			}
			return ""
		})
	}},
	{"Port_AForcedReleaseOfAReservedLockServesTheNext", func(e *env) {
		reserving(e, func(holder *raw, all []*raw, ears []*turnEars, name string) string {
			forced, err := holder.ForceRelease(background, topic(name))
			e.must("ForceRelease", err)
			next := func() bool { return ears[1].count("reserved "+name+" for 1") == 1 }
			for end := time.Now().Add(time.Second); !next() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			late, claim := all[0].enrols(name, "0:2", 2), all[1].enrols(name, "1:2", 1)
			if !forced || !next() || late.Granted || !claim.Granted {
				return fmt.Sprintf("ForceRelease: %v; the next is told: %v, granted: %v, the first granted: %v",
					forced, next(), claim.Granted, late.Granted)
			}
			return ""
		})
	}},
	{"Port_ASessionThatClosesLetsTheNextHaveWhatIsReservedForIt", func(e *env) {
		all, ears := e.relays(3)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		released := time.Now()
		holder.release("n", "h:1", 0)
		e.until("the first is told", ears[0].told)
		e.must("Close", all[0].Close())
		e.until("the second has it", func() bool { return all[1].asks("n", "1:1").Granted })
		e.tookAtMost("the second has it %v after the release", released, 3*time.Second)
	}},
	{"Port_ASessionThatDoesNotWatchTheLockIsPassedOver", func(e *env) {
		all, ears := e.relays(3)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		all[0].waits("n", "a:1")
		e.inTurn(all[1:], ears[1:], "n")
		released := time.Now()
		holder.release("n", "h:1", 0)
		e.until("the session that watches has it", func() bool { return all[1].asks("n", "0:1").Granted })
		e.tookAtMost("it has it %v after the release", released, 3*time.Second)
		e.errorIf(ears[0].told(), "a session that does not watch the lock was told")
	}},
	{"Port_TheEntryBehindAPollingSessionAsksWhenItsTimeIsOver", func(e *env) {
		all, ears := e.relays(3)
		holder, polls, behind := all[0], all[1], all[2]
		holder.take("n", "h:1", long)
		r := call(e, polls.Capabilities().Queue.Enrol, backend.EnrolRequest{Entry: 1, Polls: 20 * time.Millisecond,
			AcquireRequest: backend.AcquireRequest{Name: "n", Owner: "p:1", Lease: long}})
		e.fatalIf(r.Granted || !r.Enrolled, "Enrol of a session that polls: %+v, want it enrolled", r)
		behind.watch(&ears[2].ears, "n")
		behind.waits("n", "b:1")
		holder.release("n", "h:1", 0)
		e.until("the next is told of two pauses, or is served after them", func() bool {
			return ears[2].count("first n after 40ms")+ears[2].count("granted n") == 1
		})
	}},
	{"Port_SessionsAreServedInRotation", func(e *env) {
		const rounds = 10
		all, ears := e.relays(4)
		holder, all, ears := all[0], all[1:], ears[1:]
		holder.take("n", "h:1", long)
		e.inTurn(all, ears, "n")
		holder.release("n", "h:1", 0)
		for turn := range rounds * len(all) {
			at, entry := turn%len(all), uint64(turn/len(all)+1)
			s, owner := all[at], fmt.Sprintf("%d:%d", at, entry)
			e.until(fmt.Sprintf("turn %d is session %d's", turn, at), func() bool {
				return ears[at].count(fmt.Sprintf("reserved n for %d", entry))+ears[at].count("granted n to "+owner) == 1
			})
			r := s.enrols("n", owner, entry)
			e.fatalIf(!r.Granted, "turn %d: the claim of session %d: %+v", turn, at, r)
			s.release("n", owner, 0)
			r = s.enrols("n", fmt.Sprintf("%d:%d", at, entry+1), entry+1)
			e.fatalIf(r.Granted || !r.Enrolled, "turn %d: session %d asks again: %+v, want it enrolled", turn, at, r)
		}
		for i, h := range ears {
			most := rounds
			if i == 0 {
				most++ // its next turn has come
			}
			atMost(e, fmt.Sprintf("session %d had %%d turns", i), h.turns("n"), most)
		}
	}},
	{"Rule08_AHandOverIsOneCommand", func(e *env) {
		c, f := e.tapped()
		lease := e.lock(c, background, "n")
		const n = 20
		waiting := several(n, func() <-chan result { return locking(c, background, "n") })
		got := merged(waiting...)
		time.Sleep(50 * time.Millisecond) // most of them wait by now; the others ask for themselves
		for range n {
			e.unlock(lease)
			r := e.granted("the next gets it", got)
			lease = r.lease
		}
		e.unlock(lease)
		all := f.Count(OpAcquire, OpRelease)
		e.errorIf(all > n+1+1+5, "%d hand-overs took %d commands, want one each, and a few for late waiters", n, all)
	}},
	{"Rule08_ASilentClientIsPassedOver", func(e *env) {
		all, ears := e.relays(4)
		holder := e.client()
		lease := e.lock(holder, background, "n", mortise.WithLease(long))
		// The sessions that were told of the next releases, and those behind them, are dead.
		e.inTurn(all, ears, "n")
		c, f := e.tapped()
		waiter := locking(c, background, "n")
		e.until("it waits", func() bool { return f.Watching() > 0 && f.Count(OpAcquire) >= 2 && f.underway(OpAcquire) == 0 })
		e.unlock(lease)
		e.unlock(e.granted("it gets the lock, though the holder's lease is long", waiter).lease)
	}},
})

// handOverTests hold whether the backend hands locks over or not.
var handOverTests = []test{
	{"Rule02_WhatIsHandedOverCountsFromBeforeTheReleaseWasSent", func(e *env) {
		c, f := e.tapped()
		const lasts, held = 7 * time.Second, 4 * time.Second
		first := e.lock(c, background, "n", mortise.WithLease(lasts))
		waiter := locking(c, background, "n", mortise.WithLease(lasts))
		time.Sleep(20 * time.Millisecond) // or it asks for itself, which is another test's subject
		slow := make(chan struct{})
		f.Hook(func(call Call) Fate {
			if call.Op == OpRelease {
				time.AfterFunc(held, func() { close(slow) })
				return Fate{After: slow}
			}
			return Fate{}
		})
		sent := time.Now()
		go first.Unlock(background)
		got := e.granted("the waiter gets it", waiter)
		f.Hook(nil)
		receive(e, "the lease ends", got.lease.Context().Done())
		d := time.Since(sent)
		e.errorIf(f.Count(OpAcquire) == 1 && d > lasts+held-lasts/50,
			"what was handed over ended only %v after the release was sent, want within the lease of %v", d, lasts)
	}},
	{"Rule08_HandingOverStarvesNoOtherClient", func(e *env) {
		a, b := e.client(), e.client()
		var turns atomic.Int64
		stop := e.busy(a, "n", 8, &turns)
		defer stop()
		e.until("one client is busy", func() bool { return turns.Load() > 20 })
		for range 5 {
			e.unlock(e.lock(b, background, "n"))
		}
	}},
	{"Rule08_ABusyClientStarvesNoPoller", func(e *env) {
		a, b := e.client(), e.client()
		var turns atomic.Int64
		defer e.busy(a, "n", 8, &turns)()
		e.until("one client is busy", func() bool { return turns.Load() > 20 })
		polls := b.With(mortise.Polling(5 * time.Millisecond))
		for range 5 {
			l, err := polls.Lock(background, "n", mortise.WithWait(patience))
			e.must("Lock of a poller", err)
			e.unlock(l)
		}
	}},
	{"Rule08_ABusyClientStarvesNoLockAll", func(e *env) {
		a, b := e.client(), e.client()
		var turns atomic.Int64
		for _, name := range []string{"n", "m"} {
			defer e.busy(a, name, 8, &turns)()
		}
		e.until("one client is busy", func() bool { return turns.Load() > 40 })
		for range 5 {
			l, err := b.LockAll(background, []string{"n", "m"})
			e.must("LockAll", err)
			e.unlock(l)
		}
	}},
	{"Rule08_AHintIsEnoughWhereARecordExpires", func(e *env) {
		dead := e.client()
		c, f := e.tapped()
		e.must("Lock", second(dead.Lock(background, "n", mortise.WithLease(3*time.Second))))
		waiter := locking(c, background, "n")
		e.granted("it gets what ran out", waiter)
		atMost(e, "it asked %d times", f.Count(OpAcquire), 12)
	}},
	{"Rule09_AWaiterThatLeavesDuringAHandOverLeavesNothing", func(e *env) {
		c, f := e.tapped()
		other := e.client()
		for i := range 10 {
			name := fmt.Sprintf("n%d", i)
			lease := e.lock(c, background, name, mortise.WithLease(long))
			ctx, cancel := context.WithCancel(background)
			leaver := locking(c, ctx, name, mortise.WithLease(long))
			time.Sleep(time.Duration(i) * time.Millisecond)
			answer, sent := f.holdsFirst(replyLate, OpRelease)
			unlocked := async(func() error { return lease.Unlock(background) })
			receive(e, "the release is on its way", sent)
			f.Hook(nil)
			cancel()
			// It may have got the lock by a request of its own.
			if r := receive(e, "the leaving call is not held up", leaver); r.err == nil {
				defer e.unlock(r.lease)
			}
			close(answer)
			e.done("Unlock", receive(e, "Unlock returns", unlocked))
			if f.Count(OpAcquire) > 0 {
				e.unlock(e.lock(other, background, name))
			}
		}
	}},
	{"Rule11_AHandOverWhoseReplyIsLostIsSettled", func(e *env) {
		c, f := e.tapped()
		other := e.client()
		for i := range 5 {
			name := fmt.Sprintf("n%d", i)
			lease := e.lock(c, background, name, mortise.WithLease(long))
			waiting := several(3, func() <-chan result { return locking(c, background, name, mortise.WithLease(long)) })
			time.Sleep(5 * time.Millisecond)
			var once atomic.Bool
			f.Hook(func(call Call) Fate {
				return Fate{Lost: call.Op == OpRelease && call.Name == name && once.CompareAndSwap(false, true)}
			})
			e.done("Unlock whose reply was lost", lease.Unlock(background))
			e.servedAll("each gets the lock", waiting...)
			e.unlock(e.lock(other, background, name))
		}
	}},
	{"Rule14_ShutdownDuringAHandOverLeavesNoLock", func(e *env) {
		c, f := e.tapped()
		other := e.client()
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		waiter := locking(c, background, "n", mortise.WithLease(long))
		time.Sleep(20 * time.Millisecond)
		answer, sent := f.holdsFirst(replyLate, OpRelease)
		unlocked := async(func() error { return lease.Unlock(background) })
		receive(e, "the release is on its way", sent)
		f.Hook(nil)
		shut := async(func() error { return c.Shutdown(background) })
		if r := receive(e, "the waiter is woken", waiter); r.err == nil {
			e.unlock(r.lease) // it had asked for itself
		}
		close(answer)
		e.done("Unlock", receive(e, "Unlock returns", unlocked))
		e.done("Shutdown", receive(e, "Shutdown returns", shut))
		e.unlock(e.lock(other, background, "n"))
	}},
}
