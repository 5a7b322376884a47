package backendtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// granting is a kind with a queue other than that of plain locks, in which a release grants.
type granting struct {
	name  string
	topic backend.Topic
	set   func(s *raw)
	owner func(number int) string
	ask   func(s *raw, owner string, lease time.Duration, r backend.Enrolment) (bool, backend.QueueReply)
	free  func(s *raw, q backend.ReleaseRequest) bool
	renew func(s *raw, owner string) bool
}

func grantingWrites() granting {
	return granting{
		"write lock", writing, func(*raw) {}, ownerOf,
		func(s *raw, owner string, lease time.Duration, r backend.Enrolment) (bool, backend.QueueReply) {
			x := call(s.e, s.Capabilities().ReadWrite.AcquireWrite,
				backend.WriteRequest{Name: "n", Owner: owner, Lease: lease, Enrolment: r})
			return x.Granted, x.QueueReply
		},
		func(s *raw, q backend.ReleaseRequest) bool {
			return call(s.e, s.Capabilities().ReadWrite.ReleaseWrite, q).Held
		},
		func(s *raw, owner string) bool { return renewedBy(s, s.Capabilities().ReadWrite.RenewWrites, owner) },
	}
}

func grantingReads() granting {
	k := grantingWrites()
	k.name = "read lock"
	k.ask = func(s *raw, owner string, lease time.Duration, r backend.Enrolment) (bool, backend.QueueReply) {
		x := call(s.e, s.Capabilities().ReadWrite.AcquireRead,
			backend.ReadRequest{Name: "n", Owner: owner, Lease: lease, Enrolment: r})
		return x.Granted, x.QueueReply
	}
	k.free = func(s *raw, q backend.ReleaseRequest) bool {
		return call(s.e, s.Capabilities().ReadWrite.ReleaseRead, q).Held
	}
	k.renew = func(s *raw, owner string) bool { return renewedBy(s, s.Capabilities().ReadWrite.RenewReads, owner) }
	return k
}

func grantingPermits() granting {
	return granting{
		"semaphore", permits, func(s *raw) { setPermits(s, permits, 1) }, func(n int) string { return id(n) },
		func(s *raw, owner string, lease time.Duration, r backend.Enrolment) (bool, backend.QueueReply) {
			r.Least = int64(1 + strings.Count(owner, ","))
			x := call(s.e, s.Capabilities().Semaphores.Acquire,
				backend.PermitRequest{Name: "n", Owner: owner, Lease: lease, Enrolment: r})
			return x.Granted, x.QueueReply
		},
		func(s *raw, q backend.ReleaseRequest) bool {
			return call(s.e, s.Capabilities().Semaphores.Release, q).Held
		},
		func(s *raw, owner string) bool { return renewedBy(s, s.Capabilities().Semaphores.Renew, owner) },
	}
}

func renewedBy(s *raw, renew func(context.Context, []backend.RenewRequest, []backend.RenewResult), owner string) bool {
	out := make([]backend.RenewResult, 1)
	renew(background, []backend.RenewRequest{{Name: "n", Owner: owner, Lease: long}}, out)
	s.e.must("Renew", out[0].Err)
	return out[0].Held
}

// waits has a session ask as an owner that a release is to grant, and be refused.
func (k granting) waits(s *raw, number int, r backend.Enrolment) {
	s.e.Helper()
	r.Entry, r.Grants = 1, true
	got, q := k.ask(s, k.owner(number), long, r)
	s.e.fatalIf(got || !q.Enrolled, "%s: a waiter asks: %v, %+v", k.name, got, q)
}

// releases releases what an owner has.
func (k granting) releases(s *raw, number int) bool {
	s.e.Helper()
	return k.free(s, backend.ReleaseRequest{Name: "n", Owner: k.owner(number)})
}

// isGranted awaits the message that an owner was granted.
func (k granting) isGranted(e *env, h *turnEars, number int) {
	e.Helper()
	what := fmt.Sprintf("granted n to %s", k.owner(number))
	e.until(k.name+": "+what, func() bool { return h.count(what) == 1 })
}

// taken has a holder take what there is in an empty store, as owner 1: readers wait behind a writer. It returns the
// kind that the holder has.
func (k granting) taken(e *env) (first granting, holder *raw) {
	e.Helper()
	e.store.Flush()
	if first, holder = k, e.bare(); k.topic == writing {
		first = grantingWrites()
	}
	first.set(holder)
	got, _ := first.ask(holder, first.owner(1), long, backend.Enrolment{})
	e.fatalIf(!got, "%s: a free one is refused", k.name)
	return first, holder
}

// eachGranting runs a test for each of those kinds: the holder has what there is as owner 1, and the sessions wait as
// owners 10, 11 and so on.
func eachGranting(waiting int, test func(e *env, k granting, holder *raw, all []*raw, ears []*turnEars)) func(e *env) {
	return func(e *env) {
		for _, k := range []granting{grantingWrites(), grantingPermits()} {
			_, holder := k.taken(e)
			all, ears := watchingAll(e, waiting, k.topic)
			for i, s := range all {
				k.waits(s, 10+i, backend.Enrolment{})
			}
			test(e, k, holder, all, ears)
		}
	}
}

// hasEnrolmentGrants reports whether a release grants in the queues of semaphores and read-write locks.
func hasEnrolmentGrants(e *env) bool { return hasEnrolments(e) && e.grants() }

// enrolmentGrantTests are about the owners whom a release of a semaphore, or of a read-write lock, grants.
var enrolmentGrantTests = where(hasEnrolmentGrants, "grants by a release of semaphores and read-write locks", []test{
	{"Port_EnrolmentGrants_AReleaseGrantsTheFirstOwner", eachGranting(3, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		owner := 1
		for i, s := range all {
			e.errorIf(!k.releases(holder, owner), "%s: owner %d holds nothing", k.name, owner)
			owner = 10 + i
			k.isGranted(e, ears[i], owner)
			got, _ := k.ask(holder, k.owner(20+i), long, backend.Enrolment{})
			e.errorIf(got, "%s: two hold it", k.name)
			e.errorIf(!k.renew(s, k.owner(owner)), "%s: the owner that was granted it does not hold it", k.name)
			e.errorIf(ears[i].reserved()+ears[i].count("released n") > 0, "%s: it was told to ask, too", k.name)
			e.errorIf(i+1 < len(all) && ears[min(i+1, len(all)-1)].turns("n") > 0, "%s: the next was told, too", k.name)
		}
	})},
	{"Port_EnrolmentGrants_AGrantThatIsNotConfirmedEndsAfterTheFirstLease", eachGranting(2, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		k.releases(holder, 1)
		k.isGranted(e, ears[0], 10)
		granted := time.Now()
		e.until(k.name+": the second asks, and has it", func() bool {
			got, _ := k.ask(all[1], k.owner(11), long, backend.Enrolment{Entry: 1, Grants: true})
			return got
		})
		e.tookAtMost(k.name+": it has it %v later", granted, 3*time.Second)
		e.errorIf(k.renew(all[0], k.owner(10)), "%s: two hold it", k.name)
	})},
	{"Port_EnrolmentGrants_AnOwnerThatAsksFindsItsGrantAndHasItsWholeLease", func(e *env) {
		for _, k := range []granting{grantingWrites(), grantingReads(), grantingPermits()} {
			first, holder := k.taken(e)
			all, ears := watchingAll(e, 1, k.topic)
			k.waits(all[0], 10, backend.Enrolment{})
			first.releases(holder, 1)
			k.isGranted(e, ears[0], 10)
			got, q := k.ask(all[0], k.owner(10), long, backend.Enrolment{Entry: 1, Grants: true})
			e.errorIf(!got || q.Enrolled, "%s: the owner asks: %v, %+v", k.name, got, q)
			held := func() bool {
				got, _ := first.ask(holder, first.owner(2), long, backend.Enrolment{})
				return !got
			}
			e.always(backend.FirstLease+time.Second/2, k.name+": it is held for the lease that was asked for", held)
			e.errorIf(!k.releases(all[0], 10), "%s: it holds nothing", k.name)
		}
	}},
	{"Port_EnrolmentGrants_AGrantLastsForAShorterLeaseThatWasAskedFor", func(e *env) {
		for _, k := range []granting{grantingWrites(), grantingReads(), grantingPermits()} {
			first, holder := k.taken(e)
			all, ears := watchingAll(e, 1, k.topic)
			const lease = 100 * time.Millisecond
			got, q := k.ask(all[0], k.owner(10), lease, backend.Enrolment{Entry: 1, Grants: true})
			e.fatalIf(got || !q.Enrolled, "%s: a waiter asks: %v, %+v", k.name, got, q)
			first.releases(holder, 1)
			k.isGranted(e, ears[0], 10)
			granted := time.Now()
			e.until(k.name+": it is over", func() bool {
				got, _ := first.ask(holder, first.owner(2), long, backend.Enrolment{})
				return got
			})
			e.tookAtMost(k.name+": it was over %v later", granted, 700*time.Millisecond)
		}
	}},
	{"Port_EnrolmentGrants_AnOwnerThatLeavesGivesBackWhatItWasGranted", eachGranting(3, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		leave := func(i, number int) {
			can := all[i].Capabilities().Enrolments
			e.must("LeaveQueue", can.LeaveQueue(background, k.topic, 1, k.owner(number)))
		}
		leave(1, 11) // it waits
		leave(0, 99) // another
		k.releases(holder, 1)
		k.isGranted(e, ears[0], 10)
		leave(1, 11)
		leave(0, 10)
		k.isGranted(e, ears[2], 12)
		leave(0, 10) // again
		e.errorIf(!k.renew(all[2], k.owner(12)), "%s: it is not the third's", k.name)
		e.errorIf(ears[1].turns("n") > 0, "%s: one that left was told", k.name)
	})},
	{"Port_EnrolmentGrants_ACompensationTakesTheEntryOutOrReleases", eachGranting(2, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		undo := func(i, number int) bool {
			return k.free(all[i], backend.ReleaseRequest{Name: "n", Owner: k.owner(number), Undo: true})
		}
		e.errorIf(!undo(0, 10), "%s: the entry was not found", k.name)
		e.errorIf(undo(0, 10), "%s: the entry was found again", k.name)
		k.releases(holder, 1)
		k.isGranted(e, ears[1], 11)
		e.errorIf(!undo(1, 11), "%s: what it was granted was not found", k.name)
		got, _ := k.ask(holder, k.owner(2), long, backend.Enrolment{})
		e.errorIf(!got, "%s: it is not free", k.name)
		e.errorIf(ears[0].turns("n") > 0, "%s: one that left was told", k.name)
	})},
	{"Port_EnrolmentGrants_AnotherOwnerTakesThePlaceOfOneThatIsAskedForNoMore", eachGranting(2, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		k.waits(all[0], 30, backend.Enrolment{Instead: k.owner(10)})
		k.releases(holder, 1)
		k.isGranted(e, ears[0], 30)
		k.releases(all[0], 30)
		k.isGranted(e, ears[1], 11)
		k.releases(all[1], 11)
		got, _ := k.ask(holder, k.owner(2), long, backend.Enrolment{})
		e.errorIf(!got || ears[0].turns("n") > 1, "%s: the first is served twice", k.name)
	})},
	{"Port_EnrolmentGrants_ASessionThatClosesIsPassedOver", eachGranting(2, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		e.must("Close", all[0].Close())
		freed := time.Now()
		k.releases(holder, 1)
		e.until(k.name+": the second has it", func() bool {
			if ears[1].count("granted n") > 0 {
				return true
			}
			got, _ := k.ask(all[1], k.owner(11), long, backend.Enrolment{Entry: 1, Grants: true})
			return got
		})
		e.tookAtMost(k.name+": the second has it %v later", freed, 3*time.Second)
	})},
	{"Port_EnrolmentGrants_AnOwnerIsNotGrantedWhatIsAnotherKindsByThen", eachGranting(3, func(
		e *env, k granting, holder *raw, all []*raw, ears []*turnEars,
	) {
		e.store.Delete("n")
		holder.take("n", "h:9", long)
		for i, s := range all {
			_ = s.Capabilities().Enrolments.LeaveQueue(background, k.topic, 1, k.owner(10+i)) // it may say so
			rec := holder.record("n")
			e.errorIf(rec.Owner != "h:9", "%s: the record is %+v, want it left alone", k.name, rec)
			e.errorIf(ears[i].count("granted n") > 0, "%s: it was granted a plain lock", k.name)
		}
	})},
	{"Port_EnrolmentGrants_AnEntryWithoutAnOwnerIsToldToAsk", eachGranting(0, func(
		e *env, k granting, holder *raw, _ []*raw, _ []*turnEars,
	) {
		all, ears := watchingAll(e, 2, k.topic)
		got, q := k.ask(all[0], k.owner(10), long, backend.Enrolment{Entry: 1})
		e.fatalIf(got || !q.Enrolled, "%s: a waiter asks: %v, %+v", k.name, got, q)
		k.waits(all[1], 11, backend.Enrolment{})
		k.releases(holder, 1)
		e.until(k.name+": the first is told to ask", func() bool { return ears[0].reserved() == 1 })
		got, _ = k.ask(all[0], k.owner(20), long, backend.Enrolment{Entry: 1})
		e.errorIf(!got, "%s: it asks, and is refused", k.name)
		k.releases(all[0], 20)
		k.isGranted(e, ears[1], 11)
	})},
	{"Port_EnrolmentGrants_ReadersAreGrantedTogetherAndWritersOneByOne", func(e *env) {
		writes, reads := grantingWrites(), grantingReads()
		all, ears := watchingAll(e, 5, writing)
		holder := e.bare()
		writes.ask(holder, writes.owner(1), long, backend.Enrolment{})
		for i, k := range []granting{reads, writes, writes, reads, reads} {
			k.waits(all[i], 10+i, backend.Enrolment{})
		}
		writes.releases(holder, 1)
		for _, i := range []int{0, 3, 4} {
			reads.isGranted(e, ears[i], 10+i)
		}
		e.errorIf(ears[1].turns("n")+ears[2].turns("n") > 0, "a writer was granted it beside readers")
		for _, i := range []int{0, 3, 4} {
			e.errorIf(!reads.renew(all[i], reads.owner(10+i)), "reader %d does not hold it", i)
			e.errorIf(ears[1].turns("n") > 0, "a writer was granted it beside a reader")
			e.errorIf(!reads.releases(all[i], 10+i), "reader %d holds nothing", i)
		}
		writes.isGranted(e, ears[1], 11)
		got, _ := reads.ask(holder, reads.owner(40), long, backend.Enrolment{})
		e.errorIf(got || ears[2].turns("n") > 0, "another beside a writer: %v", got)
		writes.releases(all[1], 11)
		writes.isGranted(e, ears[2], 12)
	}},
	{"Port_EnrolmentGrants_AReaderThatComesHasTheOthersGranted", func(e *env) {
		writes, reads := grantingWrites(), grantingReads()
		all, ears := watchingAll(e, 2, writing)
		holder := e.bare()
		writes.ask(holder, writes.owner(1), long, backend.Enrolment{})
		for i := range all {
			reads.waits(all[i], 10+i, backend.Enrolment{})
		}
		e.store.Delete("n") // no entry is served
		got, _ := reads.ask(holder, reads.owner(2), 50*time.Millisecond, backend.Enrolment{})
		e.fatalIf(!got, "a reader of a free lock is refused")
		if e.oneValue() {
			return // nobody waits for a name that was deleted
		}
		for i := range all {
			reads.isGranted(e, ears[i], 10+i)
		}
		e.always(100*time.Millisecond, "the lease of the one that came ends, and theirs do not", func() bool {
			got, _ := writes.ask(holder, writes.owner(3), long, backend.Enrolment{})
			return !got
		})
	}},
	{"Port_EnrolmentGrants_AWritersGrantEndsItsClaim", func(e *env) {
		all, ears := watchingAll(e, 1, writing)
		writes, reads, holder := grantingWrites(), grantingReads(), e.bare()
		reads.ask(holder, reads.owner(1), long, backend.Enrolment{})
		r := call(e, all[0].Capabilities().ReadWrite.AcquireWrite, backend.WriteRequest{Name: "n", Owner: ownerOf(10),
			Lease: long, Claim: long, Claimant: "h", Enrolment: backend.Enrolment{Entry: 1, Grants: true}})
		e.fatalIf(r.Granted || !r.Claimed || !r.Enrolled, "the writer: %+v", r)
		got, _ := reads.ask(holder, reads.owner(2), long, backend.Enrolment{})
		e.errorIf(got, "a reader beside a claim")
		reads.releases(holder, 1)
		writes.isGranted(e, ears[0], 10)
		writes.releases(all[0], 10)
		got, _ = reads.ask(holder, reads.owner(3), long, backend.Enrolment{})
		e.errorIf(!got, "the claim of a writer that has come and gone keeps a reader out")
	}},
	{"Port_EnrolmentGrants_PermitsAreGrantedInTheOrderOfArrivalAsFarAsTheyFit", func(e *env) {
		k, holder := grantingPermits(), e.bare()
		setPermits(holder, permits, 4)
		join := func(from, n int) string {
			ids := make([]string, n)
			for i := range ids {
				ids[i] = id(from + i)
			}
			return strings.Join(ids, ",")
		}
		k.ask(holder, join(1, 4), long, backend.Enrolment{})
		all, ears := watchingAll(e, 4, permits)
		for i, n := range []int{2, 3, 1, 1} {
			k.owner = func(number int) string { return join(100*number, n) }
			k.waits(all[i], 10+i, backend.Enrolment{})
		}
		k.free(holder, backend.ReleaseRequest{Name: "n", Owner: join(1, 4)})
		for i, n := range []int{2, 3, 1, 1} {
			if i == 1 {
				continue
			}
			k.owner = func(number int) string { return join(100*number, n) }
			k.isGranted(e, ears[i], 10+i)
		}
		e.errorIf(ears[1].turns("n") > 0, "three permits are granted where fewer are free")
		got, err := holder.Capabilities().Semaphores.InspectPermits(background, "n", 1)
		e.must("InspectPermits", err)
		e.errorIf(got.Free != 0 || got.Out != 4, "%d are free, %d in use; want 0 and 4", got.Free, got.Out)
	}},
})
