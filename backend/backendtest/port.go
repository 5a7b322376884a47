package backendtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// portTests hold a backend to the obligations of backend.Session.
var portTests = []test{
	{"Port_AcquireGrantsAFreeLockAndRefusesAHeldOneWithWhatIsLeft", func(e *env) {
		a, _ := e.session()
		b, _ := e.session()
		a.take("n", "a:1", 5*time.Second)
		r := b.acquire("n", "b:1", long)
		if r.Granted || r.Remaining <= 0 || r.Remaining > 5*time.Second {
			e.Errorf("refused with %+v, want what is left of 5s", r)
		}
		if rec := b.record("n"); !rec.Held || rec.Owner != "a:1" || rec.Holds != 1 {
			e.Errorf("after a refusal the record is %+v", rec)
		}
	}},
	{"Port_OneOwnerOfASessionExcludesAnother", func(e *env) {
		s, _ := e.session()
		s.take("n", "a:1", long)
		if r := s.acquire("n", "a:2", long); r.Granted {
			e.Error("two owners of one session hold the lock")
		}
	}},
	{"Port_AcquireTwiceByOneOwnerCountsOnceAndLeavesTheTimeAlone", func(e *env) {
		s, _ := e.session()
		s.take("n", "a:1", 30*time.Second)
		s.take("n", "a:1", long)
		if rec := s.record("n"); rec.Holds != 1 || rec.Remaining > 30*time.Second {
			e.Errorf("the record is %+v, want one hold and no more than 30s", rec)
		}
		s.release("n", "a:1", 0)
		if rec := s.record("n"); rec.Held {
			e.Errorf("after one release the record is %+v", rec)
		}
	}},
	{"Port_ConcurrentAcquiresAreGrantedOnce", func(e *env) {
		var granted atomic.Int32
		var wg sync.WaitGroup
		for i := range 4 {
			s, _ := e.session()
			for j := range 8 {
				wg.Go(func() {
					r, err := s.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: fmt.Sprintf("%d:%d", i, j), Lease: long})
					if err != nil {
						e.Errorf("Acquire: %v", err)
					}
					if r.Granted {
						granted.Add(1)
					}
				})
			}
		}
		wg.Wait()
		if n := granted.Load(); n != 1 {
			e.Errorf("%d owners were granted the lock", n)
		}
	}},
	{"Port_ACachedAcquireNeverGrantsWhatIsHeldAndSoonGrantsWhatIsFree", func(e *env) {
		a, _ := e.session()
		b, _ := e.session()
		try := func() bool {
			r, err := b.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: "b:1", Lease: long, Cached: true})
			if err != nil {
				e.Fatalf("Acquire: %v", err)
			}
			return r.Granted
		}
		for range 20 {
			a.take("n", "a:1", long)
			for range 3 {
				if try() {
					e.Fatal("granted while another held it")
				}
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
		a, _ := e.session()
		b, _ := e.session()
		before := time.Now()
		a.take("n", "a:1", 300*time.Millisecond)
		taken := time.Now()
		e.until("granted to another", func() bool { return b.acquire("n", "b:1", long).Granted })
		if d := time.Since(before); d < 290*time.Millisecond {
			e.Errorf("it was granted to another after %v of a lease of 300ms", d)
		}
		if d := time.Since(taken); d > 5*time.Second {
			e.Errorf("it was not granted to another until %v after a lease of 300ms began", d)
		}
		if a.release("n", "a:1", 0) {
			e.Error("an owner whose lease ran out released the lock")
		}
	}},
	{"Port_ReenterSetsTheCountAndTheLongerTime", func(e *env) {
		s, _ := e.session()
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
			if !s.reenter("n", "a:1", step.holds, step.lease) {
				e.Fatal("the owner does not hold it")
			}
			if rec := s.record("n"); rec.Holds != step.holds || rec.Remaining < step.min || rec.Remaining > step.max {
				e.Errorf("after Reenter(%d, %v) the record is %+v, want between %v and %v", step.holds, step.lease, rec, step.min, step.max)
			}
		}
	}},
	{"Port_ReenterWithoutAHoldChangesNothing", func(e *env) {
		s, _ := e.session()
		if s.reenter("n", "a:1", 2, long) {
			e.Error("entered a lock that nobody holds")
		}
		if rec := s.record("n"); rec.Held {
			e.Errorf("it made a record: %+v", rec)
		}
		s.take("n", "b:1", 30*time.Second)
		if s.reenter("n", "a:1", 2, long) {
			e.Error("entered a lock that another holds")
		}
		if rec := s.record("n"); rec.Owner != "b:1" || rec.Holds != 1 || rec.Remaining > 30*time.Second {
			e.Errorf("it changed the record to %+v", rec)
		}
	}},
	{"Port_ReleaseSetsTheCountLeavesTheTimeAloneAndFreesAtZero", func(e *env) {
		s, h := e.session()
		s.watch(h, "n")
		s.take("n", "a:1", 60*time.Second)
		s.reenter("n", "a:1", 3, time.Second)
		for _, keep := range []int{2, 2, 1} {
			if !s.release("n", "a:1", keep) {
				e.Error("the owner does not hold it")
			}
			if rec := s.record("n"); rec.Holds != keep || rec.Remaining < 30*time.Second || rec.Remaining > 60*time.Second {
				e.Errorf("after Release(%d) the record is %+v", keep, rec)
			}
		}
		if n := h.count("released n"); n != 0 {
			e.Errorf("a partial release was announced %d times", n)
		}
		if !s.release("n", "a:1", 0) {
			e.Error("the owner does not hold it")
		}
		if rec := s.record("n"); rec != (backend.Record{}) {
			e.Errorf("the record is %+v, want none", rec)
		}
		e.until("the release is announced", func() bool { return h.count("released n") > 0 })
		if s.release("n", "a:1", 0) {
			e.Error("released twice")
		}
	}},
	{"Port_AStrangersReleaseChangesNothingAndIsNotAnnounced", func(e *env) {
		a, h := e.session()
		b, _ := e.session()
		a.watch(h, "n")
		a.watch(h, "last")
		a.take("n", "a:1", long)
		for _, keep := range []int{0, 1, 5} {
			if b.release("n", "b:1", keep) {
				e.Error("a stranger released it")
			}
		}
		if rec := a.record("n"); rec.Owner != "a:1" || rec.Holds != 1 {
			e.Errorf("the record is %+v", rec)
		}
		// Announcements of one session arrive in order, so after this one nothing is on its way.
		b.take("last", "b:1", long)
		b.release("last", "b:1", 0)
		e.until("the last release is announced", func() bool { return h.count("released last") > 0 })
		if n := h.count("released n"); n != 0 {
			e.Errorf("it was announced %d times", n)
		}
	}},
	{"Port_RenewSetsTheLongerTimeForHoldersOnly", func(e *env) {
		s, _ := e.session()
		s.take("n", "a:1", 30*time.Second)
		if !s.renew("n", "a:1", time.Second) {
			e.Error("not held")
		}
		if rec := s.record("n"); rec.Remaining < 15*time.Second {
			e.Errorf("a shorter renewal cut the time to %v", rec.Remaining)
		}
		if !s.renew("n", "a:1", 0) {
			e.Error("asked with lease 0: not held")
		}
		if rec := s.record("n"); rec.Remaining < 15*time.Second || rec.Remaining > 30*time.Second {
			e.Errorf("asking changed the time to %v", rec.Remaining)
		}
		if !s.renew("n", "a:1", 60*time.Second) {
			e.Error("not held")
		}
		if rec := s.record("n"); rec.Remaining < 45*time.Second || rec.Remaining > 60*time.Second || rec.Holds != 1 {
			e.Errorf("after a renewal to 60s the record is %+v", rec)
		}
		if s.renew("n", "b:1", long) || s.renew("absent", "a:1", long) {
			e.Error("a lock that the owner does not hold was renewed")
		}
		if rec := s.record("n"); rec.Remaining > 60*time.Second {
			e.Errorf("a stranger's renewal set the time to %v", rec.Remaining)
		}
		if rec := s.record("absent"); rec.Held {
			e.Errorf("a renewal made a record: %+v", rec)
		}
	}},
	{"Port_RenewalsOfABatchAreIndependentAndAnsweredInPlace", func(e *env) {
		s, _ := e.session()
		const n = 700
		in := make([]backend.RenewRequest, n)
		out := make([]backend.RenewResult, n)
		want := make([]bool, n)
		for i := range in {
			name := fmt.Sprintf("n%d", i)
			in[i] = backend.RenewRequest{Name: name, Owner: "a:1", Lease: long}
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
		s.Renew(context.Background(), in, out)
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
		s.Renew(context.Background(), nil, nil)
	}},
	{"Port_InspectReadsTheRecord", func(e *env) {
		s, _ := e.session()
		if rec := s.record("n"); rec != (backend.Record{}) {
			e.Errorf("without a record: %+v", rec)
		}
		s.take("n", "some/host/12:7", 30*time.Second)
		s.reenter("n", "some/host/12:7", 4, time.Second)
		rec := s.record("n")
		if !rec.Held || rec.Owner != "some/host/12:7" || rec.Holds != 4 || rec.Remaining <= 0 || rec.Remaining > 30*time.Second {
			e.Errorf("the record is %+v", rec)
		}
	}},
	{"Port_ForceReleaseRemovesAnyonesLockAndAnnouncesIt", func(e *env) {
		a, h := e.session()
		b, _ := e.session()
		a.watch(h, "n")
		if ok, err := b.ForceRelease(context.Background(), topic("n")); ok || err != nil {
			e.Errorf("without a record: %v, %v", ok, err)
		}
		a.take("n", "a:1", long)
		if ok, err := b.ForceRelease(context.Background(), topic("n")); !ok || err != nil {
			e.Errorf("of a record: %v, %v", ok, err)
		}
		if rec := a.record("n"); rec.Held {
			e.Errorf("the record is %+v", rec)
		}
		e.until("the release is announced", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_FencingTokensRiseWithEachOwnerAndReentry", func(e *env) {
		a, _ := e.session()
		b, _ := e.session()
		last := int64(0)
		for i := range 20 {
			s, owner := a, fmt.Sprintf("a:%d", i)
			if i%2 == 1 {
				s, owner = b, fmt.Sprintf("b:%d", i)
			}
			token := s.fenced("n", owner)
			if token <= last {
				e.Fatalf("token %d after %d", token, last)
			}
			if again := s.fenced("n", owner); again < token {
				e.Fatalf("the same request again drew %d after %d", again, token)
			}
			s.release("n", owner, 0)
			s.take("n", owner+"plain", long)
			r, err := s.Reenter(context.Background(), backend.ReenterRequest{Name: "n", Owner: owner + "plain", Holds: 2, Lease: long, Fenced: true})
			if err != nil || !r.Held || r.Token <= token {
				e.Fatalf("a fenced re-entry of a plain hold: %+v, %v after token %d", r, err, token)
			}
			last = r.Token
			s.release("n", owner+"plain", 0)
		}
		s, _ := e.session()
		if r := s.acquire("n", "c:1", long); r.Token != 0 {
			e.Errorf("a plain acquisition drew the token %d", r.Token)
		}
	}},
	{"Port_DataOfAnotherKindIsNamedAndLeftAlone", func(e *env) {
		s, _ := e.session()
		e.store.Occupy("n")
		ctx := context.Background()
		for op, run := range map[string]func() error{
			"Acquire": func() error {
				_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long})
				return err
			},
			"Acquire fenced": func() error {
				_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long, Fenced: true})
				return err
			},
			"Reenter": func() error {
				_, err := s.Reenter(ctx, backend.ReenterRequest{Name: "n", Owner: "a:1", Holds: 2, Lease: long})
				return err
			},
			"Release": func() error {
				_, err := s.Release(ctx, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
				return err
			},
			"Inspect": func() error { _, err := s.Inspect(ctx, topic("n")); return err },
			"ForceRelease": func() error {
				_, err := s.ForceRelease(ctx, topic("n"))
				return err
			},
		} {
			err := run()
			f := backend.FaultOf(err)
			// A fenced request meets two records, and may have touched one before the other.
			ran := f.MayHaveRun && op != "Acquire fenced"
			if !errors.Is(err, backend.ErrWrongKind) || ran || f.Temporary || f.Remedy == "" {
				e.Errorf("%s: %v (%+v); want ErrWrongKind with a remedy, for good, not having run", op, err, f)
			}
		}
		if s.renew("n", "a:1", long) {
			e.Error("Renew: held")
		}
		e.store.Delete("n")
		s.take("n", "a:1", long)
	}},
	{"Port_EveryNameThatMortiseAllowsIsItself", func(e *env) {
		a, _ := e.session()
		b, h := e.session()
		for _, name := range []string{
			"a", "A", "a ", " a", "a:b", "{tenant}:7", "7:{tenant}", "über/straße", "鎖", "a\nb", "a\r\n$1", "a\x00b", "*", "a?[b]", `"quoted"`,
			strings.Repeat("long", 16384),
		} {
			b.watch(h, name)
			before := h.count("released " + name)
			a.take(name, "a:1", long)
			if rec := b.record(name); rec.Owner != "a:1" {
				e.Errorf("%.40q: the record is %+v", name, rec)
			}
			if b.acquire(name, "b:1", long).Granted {
				e.Errorf("%.40q: granted twice", name)
			}
			b.fenced(name+"x", "b:1")
			a.release(name, "a:1", 0)
			e.until("the release is announced", func() bool { return h.count("released "+name) > before })
			b.Unwatch(topic(name))
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
		if n := ha.count("released other"); n != 0 {
			e.Error("told of what nobody watches")
		}
	}},
	{"Port_WatchIsConfirmedEachTimeAndUnwatchEndsIt", func(e *env) {
		a, h := e.session()
		b, hb := e.session()
		b.watch(hb, "n")
		for range 3 {
			a.watch(h, "n")
		}
		a.Unwatch(topic("n"))
		// Watching anew after Unwatch works, in quick succession too.
		for range 50 {
			a.Watch(topic("n"))
			a.Unwatch(topic("n"))
		}
		a.watch(h, "n")
		b.take("n", "b:1", long)
		b.release("n", "b:1", 0)
		e.until("the release is told", func() bool { return h.count("released n") > 0 })

		a.Unwatch(topic("n"))
		a.watch(h, "last") // requests of one session take effect in order
		before := h.count("released n")
		b.take("n", "b:2", long)
		b.release("n", "b:2", 0)
		b.take("last", "b:1", long)
		b.release("last", "b:1", 0)
		e.until("the last release is told", func() bool { return h.count("released last") > 0 })
		if n := h.count("released n"); n != before {
			e.Errorf("told %d times after Unwatch", n-before)
		}
	}},
	{"Port_AThousandTopicsAreWatchedAtOnce", func(e *env) {
		a, h := e.session()
		b, _ := e.session()
		const n = 1000
		name := func(i int) string { return fmt.Sprintf("n%d", i) }
		for i := range n {
			a.Watch(topic(name(i)))
		}
		for i := range n {
			e.until("each is confirmed", func() bool { return h.count("watching "+name(i)) > 0 })
		}
		for i := range n {
			if i%10 == 0 {
				b.take(name(i), "b:1", long)
				b.release(name(i), "b:1", 0)
				e.until("its release is told", func() bool { return h.count("released "+name(i)) > 0 })
			}
		}
	}},
	{"Port_WatchesAreConfirmedAgainAfterAnInterruption", func(e *env) {
		a, h := e.session()
		b, _ := e.session()
		a.watch(h, "n")
		a.watch(h, "m")
		for i := range 3 {
			n, m := h.count("watching n"), h.count("watching m")
			e.store.Cut()
			e.until("both are confirmed again", func() bool {
				return h.count("watching n") > n && h.count("watching m") > m
			})
			told := h.count("released n")
			owner := fmt.Sprintf("b:%d", i)
			e.until("another works again", func() bool {
				r, err := b.Acquire(context.Background(), backend.AcquireRequest{Name: "n", Owner: owner, Lease: long})
				return err == nil && r.Granted
			})
			e.until("it releases", func() bool {
				_, err := b.Release(context.Background(), backend.ReleaseRequest{Name: "n", Owner: owner})
				return err == nil
			})
			e.until("the release is told", func() bool { return h.count("released n") > told })
		}
	}},
	{"Port_AWatchBegunWhileTheStoreIsAwayIsConfirmedWhenItIsBack", func(e *env) {
		a, h := e.session()
		e.store.Down()
		a.Watch(topic("n"))
		a.Watch(topic("gone"))
		a.Unwatch(topic("gone"))
		e.always(200*time.Millisecond, "not confirmed while the store is away", func() bool { return h.count("watching n") == 0 })
		e.store.Up()
		e.until("confirmed", func() bool { return h.count("watching n") > 0 })
		b, _ := e.session()
		b.take("n", "b:1", long)
		b.release("n", "b:1", 0)
		e.until("the release is told", func() bool { return h.count("released n") > 0 })
	}},
	{"Port_WhileTheStoreIsAwayOperationsFailSoonWithARemedy", func(e *env) {
		s, _ := e.session()
		s.take("n", "a:1", long)
		e.store.Down()
		for op, run := range operations(s.Session, context.Background()) {
			begin := time.Now()
			err := receive(e, op+" returns", async(run))
			f := backend.FaultOf(err)
			if err == nil || !f.Temporary || f.Remedy == "" {
				e.Errorf("%s: %v (%+v), want a temporary fault with a remedy", op, err, f)
			}
			if d := time.Since(begin); d > 10*time.Second {
				e.Errorf("%s failed only after %v", op, d)
			}
		}
		e.store.Up()
		e.until("the same session works again", func() bool {
			r, err := s.Acquire(context.Background(), backend.AcquireRequest{Name: "m", Owner: "a:2", Lease: long})
			return err == nil && r.Granted
		})
	}},
	{"Port_AfterAFlushTheSameSessionGoesOn", func(e *env) {
		s, _ := e.session()
		s.take("n", "a:1", long)
		e.store.Flush()
		if s.renew("n", "a:1", long) || s.release("n", "a:1", 0) || s.record("n").Held {
			e.Error("it is held though the store was flushed")
		}
		s.take("n", "a:2", long)
	}},
	{"Port_ACancelledContextEndsTheCallAndTellsWhetherItRan", func(e *env) {
		s, _ := e.session()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long})
		if err == nil {
			e.Fatal("Acquire succeeded under a context that was cancelled before")
		}
		if !backend.FaultOf(err).MayHaveRun && s.record("n").Held {
			e.Errorf("it took the lock, yet said that it did not run: %v", err)
		}
		out := make([]backend.RenewResult, 2)
		s.Renew(ctx, make([]backend.RenewRequest, 2), out)
		for i := range out {
			if out[i].Err == nil {
				e.Errorf("Renew answered %+v under a context that was cancelled before", out[i])
			}
		}
	}},
	{"Port_AnOperationThatIsLeftGoesOn", func(e *env) {
		s, _ := e.session()
		s.take("warm", "a:0", long) // what is not connected yet need not let its callers leave
		l, is := s.Session.(backend.Leaver)
		if !is || !l.Leaves(backend.KindLock) {
			return // an obligation of those only that say so
		}
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := s.Acquire(ended, backend.AcquireRequest{Name: "n", Owner: "a:1", Lease: long})
		left, is := errors.AsType[*backend.Left[backend.AcquireReply]](err)
		if !is {
			e.Fatalf("Acquire under a context that has ended: %v, want a *backend.Left", err)
		}
		if reply, err := left.Wait(); err != nil || !reply.Granted {
			e.Errorf("the acquisition that was left came to %+v, %v", reply, err)
		}
		if r := s.acquire("n", "b:1", long); r.Granted {
			e.Error("what was granted to one who left is granted to another")
		}
		_, err = s.Release(ended, backend.ReleaseRequest{Name: "n", Owner: "a:1"})
		gone, is := errors.AsType[*backend.Left[backend.ReleaseReply]](err)
		if !is {
			e.Fatalf("Release under a context that has ended: %v, want a *backend.Left", err)
		}
		if reply, err := gone.Wait(); err != nil || !reply.Held {
			e.Errorf("the release that was left came to %+v, %v", reply, err)
		}
		if rec := s.record("n"); rec.Held {
			e.Errorf("after it the record is %+v", rec)
		}
	}},
	{"Port_OperationsOnAClosedSessionSaySo", func(e *env) {
		b := e.store.Backend()
		h := new(ears)
		s, err := b.Open(h)
		if err != nil {
			e.Fatal(err)
		}
		used := &raw{Session: s, e: e}
		used.take("n", "a:1", long)
		used.watch(h, "n")
		if err := s.Close(); err != nil {
			e.Fatalf("Close: %v", err)
		}
		for op, run := range operations(s, context.Background()) {
			err := receive(e, op+" returns", async(run))
			if f := backend.FaultOf(err); !errors.Is(err, backend.ErrSessionClosed) || f.MayHaveRun || f.Temporary {
				e.Errorf("%s: %v (%+v), want ErrSessionClosed, for good, not having run", op, err, f)
			}
		}
		s.Watch(topic("m"))
		s.Unwatch(topic("n"))
		if err := s.Close(); err != nil {
			e.Errorf("second Close: %v", err)
		}
		other, _ := e.session()
		if rec := other.record("n"); !rec.Held {
			e.Error("Close removed a record")
		}
		before := h.count("released n")
		other.release("n", "a:1", 0)
		e.always(100*time.Millisecond, "a closed session's handler is left alone", func() bool { return h.count("released n") == before })
	}},
	{"Port_ASessionThatDidNothingCloses", func(e *env) {
		s, _ := e.session()
		if err := receive(e, "Close returns", async(s.Close)); err != nil {
			e.Errorf("Close: %v", err)
		}
	}},
	{"Port_ASessionClosesWhileTheStoreIsAway", func(e *env) {
		s, h := e.session()
		s.watch(h, "n")
		e.store.Down()
		s.Watch(topic("m"))
		if err := receive(e, "Close returns", async(s.Close)); err != nil {
			e.Errorf("Close: %v", err)
		}
	}},
	{"Port_PingTellsWhetherTheStoreIsThere", func(e *env) {
		s, _ := e.session()
		if err := s.Ping(context.Background()); err != nil {
			e.Errorf("Ping: %v", err)
		}
		e.store.Down()
		if err := receive(e, "Ping returns", async(func() error { return s.Ping(context.Background()) })); err == nil {
			e.Error("Ping succeeded though the store is down")
		}
		e.store.Up()
		e.until("Ping succeeds again", func() bool { return s.Ping(context.Background()) == nil })
	}},
	{"Port_OneBackendOpensSeveralSessionsOnOneStore", func(e *env) {
		b := e.store.Backend()
		var all []*raw
		for range 2 {
			s, err := b.Open(new(ears))
			if err != nil {
				e.Fatalf("Open: %v", err)
			}
			e.Cleanup(func() { s.Close() })
			all = append(all, &raw{Session: s, e: e})
		}
		all[0].take("n", "a:1", long)
		if all[1].acquire("n", "b:1", long).Granted {
			e.Error("they do not share the store")
		}
		all[0].Close()
		if rec := all[1].record("n"); rec.Owner != "a:1" {
			e.Errorf("after the other session closed the record is %+v", rec)
		}
	}},
}

// operations is every operation of a session that can fail.
func operations(s backend.Session, ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"Acquire": func() error {
			_, err := s.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "z:1", Lease: long})
			return err
		},
		"Reenter": func() error {
			_, err := s.Reenter(ctx, backend.ReenterRequest{Name: "n", Owner: "z:1", Holds: 2, Lease: long})
			return err
		},
		"Release": func() error {
			_, err := s.Release(ctx, backend.ReleaseRequest{Name: "n", Owner: "z:1"})
			return err
		},
		"Renew": func() error {
			out := make([]backend.RenewResult, 1)
			s.Renew(ctx, []backend.RenewRequest{{Name: "n", Owner: "z:1", Lease: long}}, out)
			return out[0].Err
		},
		"Inspect":      func() error { _, err := s.Inspect(ctx, topic("n")); return err },
		"ForceRelease": func() error { _, err := s.ForceRelease(ctx, topic("n")); return err },
		"Ping":         func() error { return s.Ping(ctx) },
	}
}
