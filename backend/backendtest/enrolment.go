package backendtest

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/semaphore"
)

// queued is a kind whose waiting clients stand in a queue, not that of plain locks.
type queued struct {
	name  string
	topic backend.Topic
	set   func(s *raw)
	// ask asks once, as the owner of a number, which is never used again.
	ask  func(s *raw, owner int, r backend.Enrolment) (granted bool, q backend.QueueReply)
	free func(s *raw, owner int)
	// takes takes it by a client.
	takes func(c *mortise.Client) (free func() error, err error)
}

var queuedKinds = []queued{
	{
		name: "counting semaphore", topic: countN, set: func(s *raw) { setPermits(s, countN, 1) },
		ask: func(s *raw, owner int, r backend.Enrolment) (bool, backend.QueueReply) {
			return takePermits(s, owner, 1, r)
		},
		free: func(s *raw, owner int) { addPermits(s, owner, 1) },
		takes: func(c *mortise.Client) (func() error, error) {
			x := semaphore.NewCounting(c, "n")
			return func() error { return x.Release(background, 1) }, x.Acquire(background, 1)
		},
	},
	{
		name: "semaphore", topic: permits, set: func(s *raw) { setPermits(s, permits, 1) },
		ask: func(s *raw, owner int, r backend.Enrolment) (bool, backend.QueueReply) {
			x := call(s.e, s.Capabilities().Semaphores.Acquire,
				backend.PermitRequest{Name: "n", Owner: id(owner), Lease: long, Enrolment: r})
			return x.Granted, x.QueueReply
		},
		free: func(s *raw, owner int) {
			call(s.e, s.Capabilities().Semaphores.Release, backend.ReleaseRequest{Name: "n", Owner: id(owner)})
		},
		takes: func(c *mortise.Client) (func() error, error) {
			p, err := semaphore.New(c, "n", 0).Acquire(background, 1)
			return func() error { return p.Release(background) }, err
		},
	},
	{
		name: "write lock", topic: writing, set: func(*raw) {},
		ask: func(s *raw, owner int, r backend.Enrolment) (bool, backend.QueueReply) { return writeWith(s, owner, r) },
		free: func(s *raw, owner int) {
			call(s.e, s.Capabilities().ReadWrite.ReleaseWrite, backend.ReleaseRequest{Name: "n", Owner: ownerOf(owner)})
		},
		takes: func(c *mortise.Client) (func() error, error) {
			l, err := c.RW().Write.Lock(background, "n")
			return func() error { return l.Unlock(background) }, err
		},
	},
}

var writing = backend.Topic{Kind: backend.KindWrite, Name: "n"}

func ownerOf(number int) string { return fmt.Sprintf("h:%d", number) }

func setPermits(s *raw, t backend.Topic, n int64) {
	s.e.Helper()
	call(s.e, s.Capabilities().CountingSemaphores.SetCount, backend.CountRequest{Topic: t, ID: "set", N: n})
}

func takePermits(s *raw, owner int, n int64, r backend.Enrolment) (bool, backend.QueueReply) {
	s.e.Helper()
	x := call(s.e, s.Capabilities().CountingSemaphores.TakeCount,
		backend.CountRequest{Topic: countN, ID: fmt.Sprint("take", owner), N: n, Enrolment: r})
	return x.Granted, x.QueueReply
}

func addPermits(s *raw, owner int, n int64) {
	s.e.Helper()
	call(s.e, s.Capabilities().CountingSemaphores.AddCount,
		backend.CountRequest{Topic: countN, ID: fmt.Sprint("add", owner), N: n})
}

func writeWith(s *raw, owner int, r backend.Enrolment) (bool, backend.QueueReply) {
	s.e.Helper()
	x := call(s.e, s.Capabilities().ReadWrite.AcquireWrite,
		backend.WriteRequest{Name: "n", Owner: ownerOf(owner), Lease: long, Enrolment: r})
	return x.Granted, x.QueueReply
}

func readWith(s *raw, owner int, r backend.Enrolment) (bool, backend.QueueReply) {
	s.e.Helper()
	x := call(s.e, s.Capabilities().ReadWrite.AcquireRead,
		backend.ReadRequest{Name: "n", Owner: ownerOf(owner), Lease: long, Enrolment: r})
	return x.Granted, x.QueueReply
}

// hasEnrolments reports whether the backend has queues for semaphores and read-write locks, which is an obligation of
// a backend that says so only.
func hasEnrolments(e *env) bool {
	can := e.bare().Capabilities()
	return can.Enrolments != nil && can.ReadWrite != nil && hasCounts(e)
}

// watching opens sessions that watch a topic.
func watchingAll(e *env, n int, t backend.Topic) (all []*raw, ears []*turnEars) {
	e.Helper()
	all, ears = e.relays(n)
	for i, s := range all {
		s.Subscribe(t)
		e.until("it watches", func() bool { return ears[i].count("watching n") > 0 })
	}
	return all, ears
}

// reserved reports how often the session was told to ask.
func (h *turnEars) reserved() int { return h.count("reserved n") }

// eachQueued runs a test for each of those kinds, with a holder and sessions that wait, in this order, under entry 1.
func eachQueued(waiting int, test func(e *env, k queued, holder *raw, all []*raw, ears []*turnEars)) func(e *env) {
	return func(e *env) {
		for _, k := range queuedKinds {
			e.store.Flush()
			holder := e.bare()
			k.set(holder)
			got, _ := k.ask(holder, 1, backend.Enrolment{})
			e.fatalIf(!got, "%s: a free one is refused", k.name)
			all, ears := watchingAll(e, waiting, k.topic)
			for i, s := range all {
				got, q := k.ask(s, 10+i, backend.Enrolment{Entry: 1})
				want := backend.QueueReply{Enrolled: true, First: i == 0}
				e.fatalIf(got || q != want, "%s: session %d asks: %v, %+v; want it refused, and %+v", k.name, i, got, q, want)
			}
			test(e, k, holder, all, ears)
		}
	}
}

// enrolmentTests are about the clients that a release of a counting semaphore, or of a read-write lock, is told to.
var enrolmentTests = where(hasEnrolments, "queues of clients that wait for semaphores and read-write locks", []test{
	{"Port_Enrolment_AReleaseIsToldToTheFirstAndKeptForItForAWhile", eachQueued(3, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		k.free(holder, 1)
		e.until("the first is told", func() bool { return ears[0].reserved() == 1 })
		told := time.Now()
		got, q := k.ask(holder, 2, backend.Enrolment{})
		e.errorIf(time.Since(told) < 900*time.Millisecond && (got || q != backend.QueueReply{}),
			"%s: what is kept for another is asked for without an entry: %v, %+v", k.name, got, q)
		e.until("the second is told that it is the first that waits", func() bool { return ears[1].count("first n") > 0 })
		got, q = k.ask(all[0], 3, backend.Enrolment{Entry: 1})
		e.errorIf(!got || q.Enrolled, "%s: the first asks: %v, %+v", k.name, got, q)
		e.errorIf(ears[1].reserved()+ears[2].reserved() > 0, "%s: another was told, too", k.name)
		e.errorIf(ears[0].count("released n")+ears[1].count("released n") > 0, "%s: it was announced to all", k.name)
	})},
	{"Port_Enrolment_ARefusedTakeTellsForHowLongPermitsAreKept", func(e *env) {
		all, ears := watchingAll(e, 2, countN)
		holder := e.bare()
		take := func(s *raw, number int, r backend.Enrolment) backend.TakeReply {
			q := backend.CountRequest{Topic: countN, ID: fmt.Sprint("take", number), N: 1, Enrolment: r}
			return call(e, s.Capabilities().CountingSemaphores.TakeCount, q)
		}
		setPermits(holder, countN, 1)
		e.fatalIf(!take(holder, 1, backend.Enrolment{}).Granted, "a free permit is refused")
		r := take(all[0], 2, backend.Enrolment{Entry: 1})
		e.errorIf(r.Granted || r.Remaining != 0, "without a permit, and none is kept: %+v", r)
		addPermits(holder, 1, 1)
		e.until("the first is told", func() bool { return ears[0].reserved() == 1 })
		r = take(all[1], 3, backend.Enrolment{Entry: 1})
		e.errorIf(!r.Granted && (r.Remaining <= 0 || r.Remaining > time.Second), "what is kept for another: %+v", r)
	}},
	{"Port_Enrolment_WhatIsNotAskedForIsTheNextOnes", eachQueued(2, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		k.free(holder, 1)
		e.until("the first is told", func() bool { return ears[0].reserved() == 1 })
		told, owner := time.Now(), 20
		e.until("the second has it", func() bool {
			owner++
			got, _ := k.ask(all[1], owner, backend.Enrolment{Entry: 1})
			return got
		})
		e.tookAtMost(k.name+": the second has it %v later", told, 3*time.Second)
		got, _ := k.ask(all[0], 3, backend.Enrolment{Entry: 1})
		e.errorIf(got, "%s: two hold it", k.name)
	})},
	{"Port_Enrolment_AnEntryThatLeavesPassesOnWhatItWasTold", eachQueued(3, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		leave := func(s *raw, entry uint64) {
			e.must("LeaveQueue", s.Capabilities().Enrolments.LeaveQueue(background, k.topic, entry, ""))
		}
		leave(all[0], 2) // another
		leave(all[1], 1)
		k.free(holder, 1)
		e.until("the first is told", func() bool { return ears[0].reserved() == 1 })
		leave(all[0], 1)
		e.until("the third is told", func() bool { return ears[2].reserved() == 1 })
		got, _ := k.ask(all[2], 3, backend.Enrolment{Entry: 1})
		e.errorIf(!got || ears[1].reserved() > 0, "%s: the third asks: %v; one that left was told %d times", k.name, got,
			ears[1].reserved())
	})},
	{"Port_Enrolment_AnEntryLeavesThoughTheNameIsAnotherKindsByThen", eachQueued(2, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		k.free(holder, 1)
		e.until("the first is told", func() bool { return ears[0].reserved() == 1 })
		e.store.Delete("n")
		holder.take("n", "h:9", long)
		for _, s := range all {
			_ = s.Capabilities().Enrolments.LeaveQueue(background, k.topic, 1, "") // it may say so
		}
		rec := holder.record("n")
		e.errorIf(rec.Owner != "h:9", "%s: the record is %+v, want it left alone", k.name, rec)
	})},
	{"Port_Enrolment_ASessionThatClosesIsPassedOver", eachQueued(3, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		e.must("Close", all[0].Close())
		freed, owner := time.Now(), 20
		k.free(holder, 1)
		e.until("the second has it", func() bool {
			owner++
			got, _ := k.ask(all[1], owner, backend.Enrolment{Entry: 1})
			return got
		})
		e.tookAtMost(k.name+": the second has it %v later", freed, 3*time.Second)
	})},
	{"Port_Enrolment_WithoutAnEntryAllAreTold", func(e *env) {
		for _, k := range queuedKinds {
			e.store.Flush()
			k.set(e.bare())
			all, ears := watchingAll(e, 2, k.topic)
			k.ask(all[0], 1, backend.Enrolment{})
			k.free(all[0], 1)
			for _, h := range ears {
				e.until(k.name+": each hears of it", func() bool { return h.count("released n") == 1 })
			}
		}
	}},
	{"Port_Enrolment_PermitsAreToldToThoseThatCanTakeThem", func(e *env) {
		all, ears := watchingAll(e, 4, countN)
		setPermits(all[0], countN, 0)
		for i, n := range []int64{3, 1, 2, 1} {
			got, q := takePermits(all[i], 10+i, n, backend.Enrolment{Entry: 1, Least: n})
			e.fatalIf(got || !q.Enrolled, "session %d takes %d of none: %v, %+v", i, n, got, q)
		}
		holder := e.bare()
		addPermits(holder, 1, 1)
		e.until("the second is told of one permit", func() bool { return ears[1].reserved() == 1 })
		addPermits(holder, 2, 2)
		e.until("the third is told of two", func() bool { return ears[2].reserved() == 1 })
		got, _ := takePermits(all[3], 20, 1, backend.Enrolment{Entry: 1, Least: 1})
		e.errorIf(got, "what is kept for others is granted")
		for i, n := range []int64{1, 2} {
			got, _ := takePermits(all[i+1], 30+i, n, backend.Enrolment{Entry: 1, Least: n})
			e.errorIf(!got, "session %d, which was told of %d, is refused", i+1, n)
		}
		e.errorIf(ears[0].reserved()+ears[3].reserved() > 0, "a session was told that cannot be served")
	}},
	{"Port_Enrolment_AnEntryThatStaysGoesToTheEnd", func(e *env) {
		all, ears := watchingAll(e, 2, countN)
		setPermits(all[0], countN, 0)
		for i, s := range all {
			takePermits(s, 10+i, 1, backend.Enrolment{Entry: 1})
		}
		for turn := range 6 {
			at := turn % 2
			addPermits(all[0], turn, 1)
			e.until("the next is told", func() bool { return ears[at].reserved() == turn/2+1 })
			got, q := takePermits(all[at], 20+turn, 1, backend.Enrolment{Entry: 1, Stays: true})
			e.fatalIf(!got || !q.Enrolled, "turn %d: session %d asks: %v, %+v; want it granted, and still enrolled", turn, at,
				got, q)
		}
	}},
	{"Port_Enrolment_ReadersAreToldTogetherAndWritersOneByOne", func(e *env) {
		all, ears := watchingAll(e, 5, writing)
		holder := e.bare()
		writeWith(holder, 1, backend.Enrolment{})
		ask := func(i, owner int) bool {
			ask := readWith
			if i == 1 || i == 2 {
				ask = writeWith
			}
			got, q := ask(all[i], owner, backend.Enrolment{Entry: 1})
			e.errorIf(!got && !q.Enrolled, "session %d is refused, and not in the queue", i)
			return got
		}
		for i := range all {
			e.fatalIf(ask(i, 10+i), "session %d got what is held", i)
		}
		write := func(owner int) {
			call(e, holder.Capabilities().ReadWrite.ReleaseWrite, backend.ReleaseRequest{Name: "n", Owner: ownerOf(owner)})
		}
		write(1)
		for _, i := range []int{0, 3, 4} {
			e.until("each reader is told", func() bool { return ears[i].reserved() == 1 })
		}
		e.until("the first writer is to claim", func() bool { return ears[1].count("first n") > 0 })
		for n, i := range []int{0, 3, 4} {
			e.fatalIf(!ask(i, 20+i), "reader %d is refused", n)
		}
		e.errorIf(ears[1].reserved()+ears[2].reserved() > 0, "a writer was told beside readers")
		for _, i := range []int{0, 3, 4} {
			call(e, holder.Capabilities().ReadWrite.ReleaseRead, backend.ReleaseRequest{Name: "n", Owner: ownerOf(20 + i)})
		}
		e.until("the first writer is told", func() bool { return ears[1].reserved() == 1 })
		e.fatalIf(!ask(1, 30), "the first writer is refused")
		e.errorIf(ears[2].reserved() > 0, "both writers were told")
		write(30)
		e.until("the second writer is told", func() bool { return ears[2].reserved() == 1 })
		e.fatalIf(!ask(2, 31), "the second writer is refused")
	}},
	{"Port_Enrolment_AReaderThatWasToldGetsInThoughAnotherHasLeftAndAWriterWaits", func(e *env) {
		for what, claims := range map[string]time.Duration{"a writer that claims": long, "a writer": 0} {
			e.store.Flush()
			all, ears := watchingAll(e, 3, writing)
			holder := e.bare()
			writeWith(holder, 1, backend.Enrolment{})
			write := func(owner int) bool {
				return call(e, all[2].Capabilities().ReadWrite.AcquireWrite, backend.WriteRequest{Name: "n",
					Owner: ownerOf(owner), Lease: long, Claim: claims, Claimant: "w",
					Enrolment: backend.Enrolment{Entry: 1}}).Granted
			}
			read := func(i, owner int) bool {
				got, _ := readWith(all[i], owner, backend.Enrolment{Entry: 1})
				return got
			}
			leave := func(owner int) {
				call(e, holder.Capabilities().ReadWrite.ReleaseRead, backend.ReleaseRequest{Name: "n", Owner: ownerOf(owner)})
			}
			e.fatalIf(read(0, 10) || read(1, 11) || write(12), "what is held is granted")
			call(e, holder.Capabilities().ReadWrite.ReleaseWrite, backend.ReleaseRequest{Name: "n", Owner: ownerOf(1)})
			for i := range 2 {
				e.until("each reader is told", func() bool { return ears[i].reserved() == 1 })
			}
			told := time.Now()
			within := func() bool { return time.Since(told) < 900*time.Millisecond }
			e.fatalIf(!read(0, 20), "%s: the first reader is refused", what)
			e.fatalIf(write(21), "%s: it writes beside a reader", what)
			leave(20)
			got := read(1, 22)
			e.errorIf(!got && within(), "%s: the reader that was told, too, is refused", what)
			e.errorIf(ears[2].reserved() > 0 && within(), "%s: it is told while a reader is to come", what)
			got, _ = readWith(holder, 23, backend.Enrolment{})
			e.errorIf(got == (claims > 0) && within(), "%s: a reader that was not told comes: %v", what, got)
			leave(22)
			leave(23)
			e.until("the writer is told", func() bool { return ears[2].reserved() == 1 })
			e.errorIf(!write(24), "%s: it is refused", what)
		}
	}},
	{"Port_Enrolment_AReaderThatWasToldAndDoesNotComeDelaysAWriterForItsSecond", func(e *env) {
		all, ears := watchingAll(e, 3, writing)
		holder := e.bare()
		writeWith(holder, 1, backend.Enrolment{})
		ask := func(i, owner int) bool {
			ask := readWith
			if i == 2 {
				ask = writeWith
			}
			got, _ := ask(all[i], owner, backend.Enrolment{Entry: 1})
			return got
		}
		e.fatalIf(ask(0, 10) || ask(1, 11) || ask(2, 12), "what is held is granted")
		call(e, holder.Capabilities().ReadWrite.ReleaseWrite, backend.ReleaseRequest{Name: "n", Owner: ownerOf(1)})
		for i := range 2 {
			e.until("each reader is told", func() bool { return ears[i].reserved() == 1 })
		}
		told, owner := time.Now(), 20
		e.fatalIf(!ask(0, owner), "the first reader is refused")
		call(e, holder.Capabilities().ReadWrite.ReleaseRead, backend.ReleaseRequest{Name: "n", Owner: ownerOf(owner)})
		e.until("the writer is told when to ask", func() bool { return ears[2].count("first n") > 0 })
		e.until("the writer has it", func() bool {
			owner++
			return ask(2, owner)
		})
		e.tookAtMost("the writer has it %v later", told, 3*time.Second)
	}},
	{"Port_Enrolment_AWritersClaimMakesItTheNext", func(e *env) {
		all, ears := watchingAll(e, 2, writing)
		holder := e.bare()
		got, _ := readWith(holder, 1, backend.Enrolment{})
		e.fatalIf(!got, "a reader is refused")
		claim := backend.WriteRequest{Name: "n", Owner: "w:1", Lease: long, Claim: long, Claimant: "w",
			Enrolment: backend.Enrolment{Entry: 1}}
		reader := func(owner int) bool {
			got, q := readWith(all[0], owner, backend.Enrolment{Entry: 1})
			e.errorIf(!got && !q.Enrolled, "a reader is refused, and not in the queue")
			return got
		}
		can := all[1].Capabilities().ReadWrite
		r := call(e, can.AcquireWrite, claim)
		e.fatalIf(r.Granted || !r.Claimed || !r.Enrolled, "the writer: %+v", r)
		e.fatalIf(reader(2), "a reader gets in beside a claim")
		call(e, can.ReleaseRead, backend.ReleaseRequest{Name: "n", Owner: ownerOf(1)})
		e.until("the writer is told", func() bool { return ears[1].reserved() == 1 })
		e.errorIf(reader(3) || ears[0].reserved() > 0, "a reader was told, or got in")
		e.must("Withdraw", can.Withdraw(background, "n", "w"))
		e.must("LeaveQueue", all[1].Capabilities().Enrolments.LeaveQueue(background, writing, 1, ""))
		e.until("the reader is told when the claim has gone", func() bool { return ears[0].reserved() >= 1 })
		e.errorIf(!reader(4), "the reader is refused")
	}},
	{"Port_Enrolment_AReaderThatAClaimKeepsOutOfAFreeLockWakesTheWriter", func(e *env) {
		all, ears := watchingAll(e, 2, writing)
		readWith(e.bare(), 1, backend.Enrolment{})
		r := call(e, all[1].Capabilities().ReadWrite.AcquireWrite, backend.WriteRequest{Name: "n", Owner: "w:1",
			Lease: long, Claim: long, Claimant: "w", Enrolment: backend.Enrolment{Entry: 1}})
		e.fatalIf(r.Granted || !r.Claimed || !r.Enrolled, "the writer: %+v", r)
		e.store.Delete("n") // as a release of Redisson's, it tells no entry
		got, q := readWith(all[0], 2, backend.Enrolment{Entry: 1})
		if e.oneValue() {
			e.errorIf(!got, "the claim is left of a name that was deleted")
			return
		}
		e.fatalIf(got || !q.Enrolled, "a reader beside a claim: %v, %+v", got, q)
		e.until("the writer is told", func() bool { return ears[1].reserved() == 1 })
		got, _ = writeWith(all[1], 3, backend.Enrolment{Entry: 1})
		e.errorIf(!got, "the writer is refused")
	}},
	{"Port_Enrolment_AClientThatWasToldAsAWriterAndReadsPassesOnWhatAClaimKeepsFromIt", func(e *env) {
		all, ears := watchingAll(e, 2, writing)
		holder := e.bare()
		readWith(holder, 1, backend.Enrolment{})
		for i, s := range all {
			r := call(e, s.Capabilities().ReadWrite.AcquireWrite, backend.WriteRequest{Name: "n", Owner: ownerOf(2 + i),
				Lease: long, Claim: long, Claimant: fmt.Sprint(i), Enrolment: backend.Enrolment{Entry: 1}})
			e.fatalIf(r.Granted || !r.Claimed || !r.Enrolled, "writer %d: %+v", i, r)
		}
		call(e, holder.Capabilities().ReadWrite.ReleaseRead, backend.ReleaseRequest{Name: "n", Owner: ownerOf(1)})
		e.until("the first writer is told", func() bool { return ears[0].reserved() == 1 })
		got, q := readWith(all[0], 4, backend.Enrolment{Entry: 1}) // its writer has given up
		e.fatalIf(got || !q.Enrolled, "a reader beside a claim: %v, %+v", got, q)
		e.until("the second writer is told", func() bool { return ears[1].reserved() == 1 })
		got, _ = writeWith(all[1], 5, backend.Enrolment{Entry: 1})
		e.errorIf(!got, "the second writer is refused")
	}},
	{"Port_Enrolment_AClientThatWasToldAsAWriterAndReadsTellsTheReaders", func(e *env) {
		all, ears := watchingAll(e, 3, writing)
		holder := e.bare()
		writeWith(holder, 1, backend.Enrolment{})
		writeWith(all[0], 2, backend.Enrolment{Entry: 1})
		for i, s := range all[1:] {
			got, q := readWith(s, 3+i, backend.Enrolment{Entry: 1})
			e.fatalIf(got || !q.Enrolled, "a reader beside a writer: %v, %+v", got, q)
		}
		call(e, holder.Capabilities().ReadWrite.ReleaseWrite, backend.ReleaseRequest{Name: "n", Owner: ownerOf(1)})
		e.until("the writer is told", func() bool { return ears[0].reserved() == 1 })
		got, _ := readWith(all[0], 5, backend.Enrolment{Entry: 1}) // its writer has given up
		e.fatalIf(!got, "a reader is refused where its client's writer was told")
		e.until("the readers are told", func() bool { return ears[1].reserved() == 1 && ears[2].reserved() == 1 })
	}},
	{"Port_Enrolment_ARefusalOfWhatIsKeptEndsWithThatSecond", func(e *env) {
		left := map[string]func(s *raw, owner int, r backend.Enrolment) (time.Duration, bool){
			"read": func(s *raw, owner int, r backend.Enrolment) (time.Duration, bool) {
				x := call(s.e, s.Capabilities().ReadWrite.AcquireRead,
					backend.ReadRequest{Name: "n", Owner: ownerOf(owner), Lease: long, Enrolment: r})
				return x.Remaining, x.Enrolled && !x.Granted
			},
			"write": func(s *raw, owner int, r backend.Enrolment) (time.Duration, bool) {
				x := call(s.e, s.Capabilities().ReadWrite.AcquireWrite,
					backend.WriteRequest{Name: "n", Owner: ownerOf(owner), Lease: long, Enrolment: r})
				return x.Remaining, x.Enrolled && !x.Granted
			},
			"semaphore": func(s *raw, owner int, r backend.Enrolment) (time.Duration, bool) {
				x := call(s.e, s.Capabilities().Semaphores.Acquire,
					backend.PermitRequest{Name: "n", Owner: id(owner), Lease: long, Enrolment: r})
				return x.Remaining, x.Enrolled && !x.Granted
			},
		}
		for first, others := range map[string][]string{
			"read": {"write"}, "write": {"read", "write"}, "semaphore": {"semaphore"},
		} {
			for _, other := range others {
				e.store.Flush()
				k := queuedKinds[2]
				if first == "semaphore" {
					k = queuedKinds[1]
				}
				all, ears := watchingAll(e, 2, k.topic)
				holder := e.bare()
				k.set(holder)
				k.ask(holder, 1, backend.Enrolment{})
				_, waits := left[first](all[0], 2, backend.Enrolment{Entry: 1})
				e.fatalIf(!waits, "%s: it does not wait", first)
				k.free(holder, 1)
				e.until("the first is told, and does not ask", func() bool { return ears[0].reserved() == 1 })
				d, waits := left[other](all[1], 3, backend.Enrolment{Entry: 1})
				e.errorIf(!waits || d <= 0 || d > time.Second, "%s, where it is kept to %s: refused for %v, %v; want at most 1 s",
					other, first, d, waits)
			}
		}
	}},
	{"Rule08_ASilentClientBeforeItDelaysAWaiterByABoundedTime", eachQueued(3, func(
		e *env, k queued, holder *raw, all []*raw, ears []*turnEars,
	) {
		c, f, waits := queueing(e)
		got := async(func() error {
			free, err := k.takes(c)
			if err == nil {
				err = free()
			}
			return err
		})
		e.until("it waits", func() bool { return waits.Load() > 0 && f.Watching() > 0 && f.underway(OpAcquire) == 0 })
		freed := time.Now()
		k.free(holder, 1)
		e.done("the waiter behind sessions that do not ask", receive(e, "it gets it", got))
		e.tookAtMost(k.name+": it got it %v after the release", freed, 8*time.Second)
	})},
	{"Rule08_AWaiterForOneIsToldOfOneThoughAnotherOfItsClientWantsMore", func(e *env) {
		b := e.bare()
		setPermits(b, countN, 0)
		c, f, waits := queueing(e)
		s := semaphore.NewCounting(c, "n")
		d, g, others := queueing(e)
		most := semaphore.NewCounting(d, "n")
		all := make(chan int64, 3)
		wait := func(s *semaphore.Counting, n int) {
			go func() {
				if s.Acquire(background, n) == nil {
					all <- int64(n)
				}
			}()
		}
		wait(s, 4)
		e.until("the first waits", func() bool { return waits.Load() == 1 && f.Watching() > 0 })
		wait(s, 1)
		e.until("the second waits", func() bool { return waits.Load() == 2 })
		wait(most, 3)
		e.until("the third waits", func() bool { return others.Load() == 1 && g.Watching() > 0 })
		e.until("all asks are answered", func() bool { return f.underway(OpTakeCount)+g.underway(OpTakeCount) == 0 })
		begun := time.Now()
		for owner, n := range []int64{1, 3, 4} {
			addPermits(b, owner, n)
			equal(e, "a waiter got %d", receive(e, "what is free is taken", all), n)
		}
		e.tookAtMost("all were served %v after the first release", begun, 3*time.Second)
	}},
	{"Rule08_ABusyClientStarvesNoOther_Enrolment", func(e *env) {
		for _, k := range queuedKinds {
			e.store.Flush()
			k.set(e.bare())
			a, b := e.client(), e.client()
			var turns atomic.Int64
			stop := make(chan struct{})
			done := several(4, func() <-chan error {
				return async(func() error {
					for {
						select {
						case <-stop:
							return nil
						default:
						}
						free, err := k.takes(a)
						if err == nil {
							turns.Add(1)
							work()
							err = free()
						}
						if err != nil {
							return err
						}
					}
				})
			})
			e.until(k.name+": one client is busy", func() bool { return turns.Load() > 20 })
			for range 5 {
				free, err := k.takes(b)
				e.must("of another client", err)
				e.must("release", free())
			}
			close(stop)
			for _, d := range done {
				e.done("the busy client", receive(e, "it ends", d))
			}
		}
	}},
})
