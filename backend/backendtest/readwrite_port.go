package backendtest

import (
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// rwPortTests hold a backend to the obligations of backend.ReadWriteStore. They skip one that
// is none, and so do rwRuleTests.
var rwPortTests = []test{
	{"Port_RW_ReadersShareAndAWriterExcludes", func(e *env) {
		s := e.rw()
		s.read("a:1", 30*time.Second)
		s.read("a:2", 60*time.Second)
		r := s.tryWrite("a:3")
		e.errorIf(r.Granted || r.Remaining <= 30*time.Second || r.Remaining > 60*time.Second,
			"a writer beside readers: %+v, want what is left of the longest lease, 60s", r)
		e.errorIf(s.tryWrite("a:1").Granted, "a reader became a writer")
		rec := s.rec()
		e.errorIf(rec.Kind != backend.KindRead || rec.Readers != 2 || rec.Owner != "a:1" || rec.Holds != 1,
			"the record is %+v", rec)
		s.gone(backend.KindRead, "a:1")
		s.gone(backend.KindRead, "a:2")
		equal(e, "after the last reader the record is %+v", s.rec(), (backend.Record{}))
		s.write("a:4")
		r = s.tryRead("a:5")
		e.errorIf(r.Granted || r.Remaining <= 0, "a reader beside a writer: %+v", r)
		e.errorIf(s.tryWrite("a:6").Granted, "a second writer")
		rec = s.rec()
		e.errorIf(rec.Kind != backend.KindWrite || rec.Readers != 0 || rec.Owner != "a:4" || rec.Holds != 1,
			"the record is %+v", rec)
	}},
	{"Port_RW_AcquireTwiceCountsOnceAndLeavesTheTimeAlone", func(e *env) {
		s := e.rw()
		for range 2 {
			s.read("a:1", 30*time.Second)
			s.enter("a:2", backend.KindRead, "a:1", 30*time.Second)
		}
		s.read("a:1", long)
		s.enter("a:2", backend.KindRead, "a:1", long)
		rec := s.rec()
		e.errorIf(rec.Readers != 2 || rec.Holds != 1 || rec.Remaining > 30*time.Second,
			"the record is %+v, want two readers and no more than 30s", rec)
		s.gone(backend.KindRead, "a:1")
		s.gone(backend.KindRead, "a:2")
		s.write("b:1")
		s.write("b:1")
		s.gone(backend.KindWrite, "b:1")
		rec = s.rec()
		e.errorIf(rec.Held, "the record is %+v, want none", rec)
	}},
	{"Port_RW_EachReaderHasATimeOfItsOwn", func(e *env) {
		s := e.rw()
		s.read("a:1", 200*time.Millisecond)
		s.read("a:2", 30*time.Second)
		e.until("the short lease is over", func() bool { return s.rec().Readers == 1 })
		rec := s.rec()
		e.errorIf(rec.Owner != "a:2" || rec.Remaining < 15*time.Second, "the record is %+v, want the other reader's", rec)
		e.errorIf(s.renewRW(backend.KindRead, "a:1", long), "a lease that was over was renewed")
		e.errorIf(s.releaseRW(backend.KindRead, "a:1", 0), "a lease that was over was released")
		e.errorIf(s.tryWrite("b:1").Granted, "a writer got in beside a reader")
		e.errorIf(!s.renewRW(backend.KindRead, "a:2", 60*time.Second), "the other reader does not hold it")
		rec = s.rec()
		e.errorIf(rec.Remaining < 45*time.Second, "after its renewal the record is %+v", rec)
	}},
	{"Port_RW_TheRecordLivesAsLongAsTheLongestLease", func(e *env) {
		s := e.rw()
		s.read("a:1", 300*time.Millisecond)
		s.read("a:2", long)
		s.gone(backend.KindRead, "a:2")
		rec := s.rec()
		e.errorIf(rec.Remaining > 300*time.Millisecond, "with the longest lease gone the record is %+v", rec)
		e.until("a writer gets in when the last lease is over", func() bool { return s.tryWrite("b:1").Granted })
	}},
	{"Port_RW_ADowngradeLeavesTheReaderAndIsAnnounced", func(e *env) {
		s := e.rw()
		s.listen()
		s.write("a:1")
		s.enter("a:2", backend.KindWrite, "a:1", 30*time.Second)
		s.enter("a:3", backend.KindRead, "a:2", 30*time.Second)
		s.gone(backend.KindRead, "a:3")
		rec := s.rec()
		e.errorIf(rec.Kind != backend.KindWrite || rec.Owner != "a:1" || rec.Readers != 1, "the record is %+v", rec)
		equal(e, "a reader's release under a writer was announced %d times", s.h.count("released n"), 0)
		s.gone(backend.KindWrite, "a:1")
		e.until("the downgrade is announced", func() bool { return s.h.count("released n") == 1 })
		rec = s.rec()
		e.errorIf(rec.Kind != backend.KindRead || rec.Owner != "a:2" || rec.Readers != 1 ||
			rec.Remaining > 30*time.Second, "after the downgrade the record is %+v", rec)
		e.errorIf(s.tryWrite("b:1").Granted, "a writer got in beside the reader")
		s.read("b:2", long)
		s.gone(backend.KindRead, "a:2")
		s.gone(backend.KindRead, "b:2")
		e.until("the last reader's release is announced", func() bool { return s.h.count("released n") == 2 })
	}},
	{"Port_RW_NoOwnerEntersUnderAHoldThatIsGone", func(e *env) {
		s := e.rw()
		for _, under := range []backend.Kind{backend.KindRead, backend.KindWrite} {
			r := s.ask(anykind.AcquireRequest{Kind: backend.KindRead, Owner: "a:1", Under: "a:0", UnderKind: under,
				Lease: long})
			e.errorIf(r.Granted || !r.Absent, "under nothing: %+v", r)
		}
		rec := s.rec()
		e.errorIf(rec.Held, "it made a record: %+v", rec)
		s.write("w:1")
		r := s.ask(anykind.AcquireRequest{Kind: backend.KindRead, Owner: "a:1", Under: "w:1",
			UnderKind: backend.KindRead, Lease: long})
		e.errorIf(r.Granted || !r.Absent, "under a writer, as a reader: %+v", r)
	}},
	{"Port_RW_AClaimKeepsFreshReadersOut", func(e *env) {
		s := e.rw()
		s.listen()
		claiming := anykind.AcquireRequest{Kind: backend.KindWrite, Owner: "w:1", Lease: long, Claim: 30 * time.Second,
			Claimant: "w"}
		s.read("a:1", long)
		s.tryWrite("w:0")
		s.read("a:2", long) // one that only tried left no claim
		e.fatalIf(s.ask(claiming).Granted, "a writer beside readers")
		r := s.tryRead("a:3")
		e.errorIf(r.Granted || r.Remaining <= 0 || r.Remaining > 30*time.Second,
			"a fresh reader: %+v, want refused for as long as the claim", r)
		s.read("a:2", long) // which it is already
		s.enter("a:4", backend.KindRead, "a:1", long)
		s.withdraw("x") // another's
		e.errorIf(s.tryRead("a:3").Granted, "a stranger withdrew the claim")
		s.withdraw("w")
		e.until("the withdrawal is announced", func() bool { return s.h.count("released n") == 1 })
		s.read("a:3", long)
		s.ask(claiming)
		for _, r := range []string{"a:1", "a:2", "a:3", "a:4"} {
			s.gone(backend.KindRead, r)
		}
		e.errorIf(s.tryRead("a:5").Granted, "a fresh reader got in before the writer that waits")
		claiming.Owner = "w:2"
		e.errorIf(!s.ask(claiming).Granted, "the writer did not get the free lock")
		s.gone(backend.KindWrite, "w:2")
		s.read("a:6", long)
		claiming.Claim = 100 * time.Millisecond
		s.ask(claiming)
		e.until("a claim ends by itself", func() bool { return s.tryRead("a:7").Granted })
	}},
	{"Port_RW_AWriterEntersAgain", func(e *env) {
		s := e.rw()
		reenter := func(kind backend.Kind, owner string, holds int, lease time.Duration) (bool, error) {
			r, err := s.SetHolds(background,
				anykind.HoldsRequest{Kind: kind, Name: "n", Owner: owner, Holds: holds, Lease: lease})
			return r.Held, err
		}
		held, err := reenter(backend.KindWrite, "a:1", 2, long)
		e.errorIf(held || err != nil, "a lock without an owner: %v, %v", held, err)
		s.writeFor("a:1", 30*time.Second)
		for range 2 {
			held, err := reenter(backend.KindWrite, "a:1", 2, 60*time.Second)
			e.errorIf(!held || err != nil, "%v, %v", held, err)
		}
		rec := s.rec()
		e.errorIf(rec.Holds != 2 || rec.Owner != "a:1" || rec.Remaining < 45*time.Second, "the record is %+v", rec)
		e.errorIf(!s.releaseRW(backend.KindWrite, "a:1", 1) || !s.releaseRW(backend.KindWrite, "a:1", 1),
			"it does not hold it")
		rec = s.rec()
		e.errorIf(rec.Holds != 1 || rec.Remaining < 45*time.Second, "after a partial release the record is %+v", rec)
		e.errorIf(!s.renewRW(backend.KindWrite, "a:1", 90*time.Second) || s.renewRW(backend.KindWrite, "a:2", long) ||
			s.renewRW(backend.KindRead, "a:1", long),
			"others than the writer hold it, or it does not")
		rec = s.rec()
		e.errorIf(rec.Remaining < 75*time.Second || rec.Remaining > 90*time.Second, "after a renewal the record is %+v", rec)
		_, err = reenter(backend.KindRead, "a:1", 2, long)
		e.errorIf(err == nil, "a reader has a hold count")
	}},
	{"Port_RW_AnExactRenewalShortensTheLeaseOfOneOwner", func(e *env) {
		s := e.rw()
		exact := func(kind backend.Kind, owner string, least, most time.Duration) {
			e.Helper()
			renewsExactly(e, s.Store, anykind.RenewRequest{Kind: kind, Name: "n", Owner: owner}, 60*time.Second)
			left := s.rec().Remaining
			e.errorIf(left < least || left > most, "the lock lasts for %v, want %v to %v", left, least, most)
		}
		s.read("a:1", 60*time.Second)
		s.read("a:2", 20*time.Second)
		exact(backend.KindRead, "a:1", 15*time.Second, 20*time.Second)
		s.gone(backend.KindRead, "a:1")
		s.gone(backend.KindRead, "a:2")
		r := s.ask(anykind.AcquireRequest{Kind: backend.KindWrite, Owner: "a:3", Lease: 60 * time.Second})
		e.fatalIf(!r.Granted, "write: %+v", r)
		exact(backend.KindWrite, "a:3", 5*time.Second, 10*time.Second)
	}},
	{"Port_RW_RenewalsOfAllKindsAreIndependent", func(e *env) {
		s := e.rw()
		s.raw.take("plain", "a:0", long)
		s.read("a:1", long)
		s.read("a:2", long)
		e.store.Occupy("data")
		in := []anykind.RenewRequest{
			{Kind: backend.KindRead, Name: "n", Owner: "a:1", Lease: long},
			{Kind: backend.KindLock, Name: "plain", Owner: "a:0", Lease: long},
			{Kind: backend.KindWrite, Name: "n", Owner: "a:1", Lease: long},
			{Kind: backend.KindRead, Name: "data", Owner: "a:1", Lease: long},
			{Kind: backend.KindRead, Name: "plain", Owner: "a:0", Lease: long},
			{Kind: backend.KindLock, Name: "n", Owner: "a:0", Lease: long},
			{Kind: backend.KindRead, Name: "n", Owner: "a:2"},
			{Kind: backend.KindRead, Name: "n", Owner: "a:3"},
		}
		out := make([]backend.RenewResult, len(in))
		s.Renew(background, in, out)
		for i, want := range []bool{true, true, false, false, false, false, true, false} {
			if out[i].Err != nil || out[i].Held != want {
				e.Errorf("%+v: %+v, want %v", in[i], out[i], want)
			}
		}
	}},
	{"Port_RW_EachKindIsTheWrongOneForTheOthers", func(e *env) {
		s := e.rw()
		acquire := func(k backend.Kind, name string) error {
			r, err := s.Acquire(background, anykind.AcquireRequest{Kind: k, Name: name, Owner: "b:1", Lease: long})
			e.errorIf(r.Granted, "kind %d was granted %s", k, name)
			return err
		}
		s.raw.take("plain", "a:1", long)
		s.read("a:1", long) // n
		r, err := s.Acquire(background,
			anykind.AcquireRequest{Kind: backend.KindWrite, Name: "written", Owner: "a:1", Lease: long})
		e.fatalIf(!r.Granted, "%v", err)
		e.store.Occupy("data")
		for _, x := range []struct {
			kind  backend.Kind
			wrong []string
		}{
			{backend.KindLock, []string{"n", "written", "data"}},
			{backend.KindRead, []string{"plain", "data"}},
			{backend.KindWrite, []string{"plain", "data"}},
		} {
			for _, name := range x.wrong {
				e.is("acquire "+name, acquire(x.kind, name), backend.ErrWrongKind)
				e.is("inspect "+name, second(s.Inspect(background, backend.Topic{Kind: x.kind, Name: name})), backend.ErrWrongKind)
				_, err := s.ForceRelease(background, backend.Topic{Kind: x.kind, Name: name})
				e.is("force "+name, err, backend.ErrWrongKind)
				r, err := s.Release(background, anykind.ReleaseRequest{Kind: x.kind, Name: name, Owner: "c:1"})
				e.errorIf(r.Held || err != nil && !errors.Is(err, backend.ErrWrongKind),
					"release %s as kind %d: %+v, %v", name, x.kind, r, err)
			}
		}
		rec := s.rec()
		e.errorIf(rec.Readers != 1, "the record is %+v", rec)
	}},
	{"Port_RW_ForceReleaseRemovesAllAndIsAnnounced", func(e *env) {
		s := e.rw()
		s.listen()
		force := func() bool {
			return value(s.ForceRelease(background, rwTopic)).in(e)
		}
		e.errorIf(force(), "there was nothing")
		s.read("a:1", long)
		s.read("a:2", long)
		e.errorIf(!force() || s.rec().Held, "the readers are not gone")
		s.write("a:3")
		s.enter("a:4", backend.KindWrite, "a:3", long)
		e.errorIf(!force() || s.rec().Held, "the writer is not gone")
		e.errorIf(s.releaseRW(backend.KindWrite, "a:3", 0) || s.releaseRW(backend.KindRead, "a:4", 0), "they hold it yet")
		e.until("both are announced", func() bool { return s.h.count("released n") == 2 })
	}},
	{"Port_RW_ForceReleaseOfAnOwnerRemovesItsSideOnly", func(e *env) {
		s := e.rw()
		s.listen()
		force := func(owner string) bool {
			return value(s.ForceRelease(background, backend.Topic{Kind: backend.KindWrite, Name: "n", Owner: owner})).in(e)
		}
		s.read("a:1", long)
		s.read("a:2", long)
		e.errorIf(force("a:3"), "an owner that holds nothing")
		e.errorIf(!force("a:1") || s.rec().Readers != 1, "not one reader is left")
		e.errorIf(force("a:1"), "the reader that is gone")
		e.errorIf(s.h.count("released n") > 0, "a release was announced while there is a reader")
		e.errorIf(!force("a:2") || s.rec().Held, "the last reader is not gone")
		s.write("a:3")
		s.enter("a:4", backend.KindWrite, "a:3", long)
		e.errorIf(force("a:1") || s.rec().Kind != backend.KindWrite, "the writer is gone")
		e.errorIf(!force("a:3") || s.rec().Readers != 1, "the reader below the writer is not the only owner")
		e.errorIf(!force("a:4") || s.rec().Held, "the reader that is left is not gone")
		e.until("each end of a side is announced", func() bool { return s.h.count("released n") == 3 })
		s.take("plain", "p:1", long)
		e.is("the owner of a plain lock", second(s.ForceRelease(background,
			backend.Topic{Kind: backend.KindWrite, Name: "plain", Owner: "p:1"})), backend.ErrWrongKind)
		s.heldBy("plain", "p:1", 1)
	}},
}

var rwTopic = backend.Topic{Kind: backend.KindWrite, Name: "n"}

// rwSession is a session without its errors, for the read-write lock n.
type rwSession struct {
	*raw
	can backend.ReadWriteStore
	h   *ears
}

// rw opens a session that has read-write locks.
func (e *env) rw() *rwSession {
	e.Helper()
	s, h := e.session()
	x := s.Capabilities().ReadWrite
	if x == nil {
		e.lacks("read-write locks")
	}
	return &rwSession{s, x, h}
}

func (s *rwSession) ask(r anykind.AcquireRequest) anykind.AcquireReply {
	s.e.Helper()
	r.Name = "n"
	return call(s.e, s.Acquire, r)
}

func (s *rwSession) tryRead(owner string) anykind.AcquireReply {
	s.e.Helper()
	return s.ask(anykind.AcquireRequest{Kind: backend.KindRead, Owner: owner, Lease: long})
}

func (s *rwSession) tryWrite(owner string) anykind.AcquireReply {
	s.e.Helper()
	return s.ask(anykind.AcquireRequest{Kind: backend.KindWrite, Owner: owner, Lease: long})
}

func (s *rwSession) read(owner string, lease time.Duration) {
	s.e.Helper()
	r := s.ask(anykind.AcquireRequest{Kind: backend.KindRead, Owner: owner, Lease: lease})
	s.e.fatalIf(!r.Granted, "read by %s: %+v, want it granted", owner, r)
}

func (s *rwSession) enter(owner string, kind backend.Kind, under string, lease time.Duration) {
	s.e.Helper()
	r := s.ask(anykind.AcquireRequest{Kind: backend.KindRead, Owner: owner, Lease: lease, Under: under,
		UnderKind: kind})
	s.e.fatalIf(!r.Granted, "read by %s under %s: %+v, want it granted", owner, under, r)
}

func (s *rwSession) write(owner string) {
	s.e.Helper()
	s.writeFor(owner, long)
}

func (s *rwSession) writeFor(owner string, lease time.Duration) {
	s.e.Helper()
	r := s.ask(anykind.AcquireRequest{Kind: backend.KindWrite, Owner: owner, Lease: lease})
	s.e.fatalIf(!r.Granted, "write by %s: %+v, want it granted", owner, r)
}

func (s *rwSession) releaseRW(kind backend.Kind, owner string, keep int) bool {
	s.e.Helper()
	return call(s.e, s.Release, anykind.ReleaseRequest{Kind: kind, Name: "n", Owner: owner, Keep: keep}).Held
}

// gone releases what must be held.
func (s *rwSession) gone(kind backend.Kind, owner string) {
	s.e.Helper()
	s.e.fatalIf(!s.releaseRW(kind, owner, 0), "%s did not hold it", owner)
	s.e.fatalIf(s.releaseRW(kind, owner, 0), "%s was released twice", owner)
}

func (s *rwSession) renewRW(kind backend.Kind, owner string, lease time.Duration) bool {
	s.e.Helper()
	return renewed(s.e, s.Store, anykind.RenewRequest{Kind: kind, Name: "n", Owner: owner, Lease: lease})
}

func (s *rwSession) withdraw(claimant string) {
	s.e.Helper()
	s.e.must("Withdraw", s.can.Withdraw(background, "n", claimant))
}

func (s *rwSession) rec() backend.Record {
	s.e.Helper()
	return value(s.Inspect(background, rwTopic)).in(s.e)
}

// listen has the session watch n, and waits until it does.
func (s *rwSession) listen() {
	s.e.Helper()
	s.Subscribe(rwTopic)
	s.e.until("watching", func() bool { return s.h.count("watching n") > 0 })
}
