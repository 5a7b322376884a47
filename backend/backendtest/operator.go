package backendtest

import (
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// operatorTests are about what an operator asks.
var operatorTests = where(
	func(e *env) bool { return e.bare().Capabilities().Operator != nil }, "descriptions of names", []test{
		{"Port_Describe_TellsTheRecordOfALock", func(e *env) {
			s := describer{e.bare()}
			for _, name := range []string{"n", "n{x}", "{n}"} {
				equal(e, "the name has %s", s.what(name), "nothing")
				s.take(name, "some/host/12:7", long)
				s.reenter(name, "some/host/12:7", 3, long)
				d := s.describe(name)
				equal(e, "the name has %s", s.what(name), "a lock of some/host/12:7, 3 holds, token 0")
				e.errorIf(d.Remaining <= 0 || d.Remaining > long, "%v are left of the lease", d.Remaining)
				s.release(name, "some/host/12:7", 0)
				equal(e, "the name has %s", s.what(name), "nothing")
			}
			e.store.Occupy("data")
			_, err := s.Capabilities().Operator.Describe(background, backend.DescribeRequest{Name: "data"})
			e.is("of other data", err, backend.ErrWrongKind)
		}},
		{"Port_Describe_NoEntriesAreReadUnlessAskedFor", func(e *env) {
			s := e.bare()
			e.lock(e.client(), background, "n", mortise.WithLease(long))
			waiting := locking(e.client(), background, "n", mortise.WithWait(patience))
			e.until("an entry waits", func() bool { return describer{s}.describe("n").Waiting == 1 })
			d := call(e, s.Capabilities().Operator.Describe, backend.DescribeRequest{Name: "n"})
			e.errorIf(d.Waiting != 1 || len(d.Queue) != 0, "no entries were asked for: %+v", d)
			e.fatalIf(!value(s.ForceRelease(background, topic("n"))).in(e), "not removed")
			e.unlock(e.granted("the waiter", waiting).lease)
		}},
		{"Port_Describe_ARenewalTellsSinceWhen", func(e *env) {
			s := describer{e.bare()}
			const had, clocks = 10 * time.Second, time.Second // clocks: how far the store's may be from the client's
			for _, name := range []string{"n", "n{x}", "{n}"} {
				taken := time.Now()
				s.take(name, "a:1", long)
				// A store that noted the grant itself knows better than what the client says here.
				q := anykind.RenewRequest{Name: name, Owner: "a:1", Lease: long, Had: had}
				e.errorIf(!renewed(e, s.Store, q), "%s is not held", name)
				since, now := s.describe(name).Since, time.Now()
				e.errorIf(since.Before(taken.Add(-had-clocks)) || since.After(now.Add(clocks)),
					"%s: taken after %v, or %v before, known as %v, at %v", name, taken, had, since, now)
				s.release(name, "a:1", 0)
				equal(e, "the name has %s", s.what(name), "nothing")
				taken = time.Now()
				s.take(name, "b:1", long)
				since = s.describe(name).Since
				e.errorIf(!since.IsZero() && since.Before(taken.Add(-clocks)),
					"%s: the next owner has had it since %v, it took it at %v", name, since, taken)
				s.release(name, "b:1", 0)
			}
		}},
		{"Rule13_InspectTellsSinceWhenOnceALeaseWasRenewed", func(e *env) {
			a, b := e.client(), e.client()
			held := e.lock(a, background, "n")
			waiting := locking(b, background, "n", mortise.WithWait(patience))
			e.until("an entry waits", func() bool { return e.inspect(a, "n").Waiters == 1 })
			before := time.Now()
			e.unlock(held)
			next := e.granted("the waiter", waiting).lease
			var since time.Time
			e.until("it is known since when", func() bool { since = e.inspect(a, "n").Since; return !since.IsZero() })
			// What a renewal notes is late by the time that the request takes, and the store's clock is not ours.
			e.errorIf(since.Before(before.Add(-time.Second)) || since.After(time.Now().Add(time.Second)),
				"held since %v, released before at %v", since, before)
			e.unlock(next)
		}},
		{"Port_Describe_TheTokenIsTheOwners", func(e *env) {
			s := describer{e.bare()}
			first := s.fenced("n", "a:1")
			equal(e, "the token is %d", s.describe("n").Token, first)
			r := call(e, s.SetHolds, anykind.HoldsRequest{Name: "n", Owner: "a:1", Holds: 2, Lease: long, Fenced: true})
			equal(e, "the token is %d", s.describe("n").Token, r.Token)
			s.release("n", "a:1", 0)
			equal(e, "the token of a free lock is %d", s.describe("n").Token, 0)
			equal(e, "the next token is %d", s.fenced("n", "b:1"), s.describe("n").Token)
		}},
		{"Port_Describe_TellsTheSidesOfAReadWriteLock", func(e *env) {
			rw := e.rw()
			s := describer{rw.raw}
			rw.read("a:2", long)
			rw.read("a:1", long)
			d := s.describe("n")
			e.errorIf(!d.Exists || d.Kind != backend.KindRead || d.Owner != "a:1" || d.Readers != 2, "two readers: %+v", d)
			rw.releaseRW(backend.KindRead, "a:1", 0)
			rw.releaseRW(backend.KindRead, "a:2", 0)
			rw.write("a:3")
			rw.enter("a:4", backend.KindWrite, "a:3", long)
			d = s.describe("n")
			e.errorIf(d.Kind != backend.KindWrite || d.Owner != "a:3" || d.Holds != 1 || d.Readers != 1, "a writer: %+v", d)
		}},
		{"Port_Describe_TellsTheOwnersOfAnEnteredLock", func(e *env) {
			s := describer{e.bare()}
			if s.Capabilities().Delegation == nil {
				e.lacks("delegated locks")
			}
			s.take("n", "a:1", long)
			s.takeUnder("n", "b:1", "a:1", long)
			equal(e, "the name has %s", s.what("n"), "a lock of a:1, 1 holds, token 0")
			s.releaseNested("n", "a:1", 0)
			equal(e, "the name has %s", s.what("n"), "a lock of b:1, 1 holds, token 0")
		}},
		{"Rule13_InspectFindsEachKind", func(e *env) {
			c, other := e.client(), e.client()
			is := func(name string, want mortise.LockInfo) {
				e.Helper()
				got := e.inspect(c, name)
				e.errorIf(got.Kind != want.Kind || got.Held != want.Held || got.Holds != want.Holds || got.Mine != want.Mine,
					"%s: %+v, want %+v", name, got, want)
			}
			is("free", mortise.LockInfo{})
			e.lock(c, background, "plain")
			is("plain", mortise.LockInfo{Kind: "lock", Held: true, Holds: 1, Mine: true})
			e.lock(e.side(other, true), background, "written")
			is("written", mortise.LockInfo{Kind: "read-write", Held: true, Holds: 1})
			permits := semaphore.New(c, "permits", 0)
			e.ok(permits.TrySetPermits(background, 5))
			is("permits", mortise.LockInfo{Kind: "count", Holds: 5})
			p, err := permits.TryAcquire(background, 2)
			e.fatalIf(err != nil, "TryAcquire: %v", err)
			is("permits", mortise.LockInfo{Kind: "semaphore", Held: true, Holds: 2, Mine: true})
			e.fatalIf(p.Release(background) != nil, "Release")
			is("permits", mortise.LockInfo{Kind: "count", Holds: 5})
			e.ok(semaphore.NewCounting(c, "slots").TrySetPermits(background, 3))
			is("slots", mortise.LockInfo{Kind: "count", Holds: 3})
			e.ok(latch.New(c, "latch").TrySet(background, 2))
			is("latch", mortise.LockInfo{Kind: "count", Holds: 2})
			e.store.Occupy("data")
			e.named(second(c.Inspect(background, "data")), "inspect", "data", mortise.ErrWrongKind)
		}},
		{"Rule13_InspectTellsWhoWaits", func(e *env) {
			a, b, c := e.client(), e.client(), e.client()
			began := time.Now()
			for name, locker := range map[string]func(*mortise.Client) mortise.Locker{
				"plain": func(c *mortise.Client) mortise.Locker { return c },
				"fair":  func(c *mortise.Client) mortise.Locker { return c.With(mortise.Fair()) },
				"rw":    func(c *mortise.Client) mortise.Locker { return c.RW().Write },
			} {
				held := e.lock(locker(a), background, name, mortise.WithLease(long))
				first := locking(locker(b), background, name, mortise.WithWait(patience))
				waits := func(n int) {
					e.Helper()
					e.until(name+": it waits", func() bool { return e.inspect(a, name).Waiters == n })
				}
				waits(1)
				next := locking(locker(c), background, name, mortise.WithWait(patience))
				waits(2)
				info := e.inspect(a, name)
				e.fatalIf(len(info.Queue) != 2, "%s: the queue is %+v", name, info.Queue)
				for i, w := range []*mortise.Client{b, c} {
					got := info.Queue[i]
					e.errorIf(got.Owner != "" && (got.Client != w.ID() || got.PID == 0 || got.Host == "") ||
						got.Owner == "" && got.Tag == "", "%s: entry %d is %+v, want that of %s", name, i, got, w.ID())
					e.errorIf(!got.Since.IsZero() && (got.Since.Before(began.Add(-skew)) || got.Since.After(time.Now().Add(skew))),
						"%s: entry %d came at %v", name, i, got.Since)
				}
				e.unlock(held)
				got := e.granted(name, first).lease
				info = e.inspect(a, name)
				e.errorIf(info.Client != b.ID() || !info.Held || info.Holds != 1 || info.Waiters != 1,
					"%s, granted to %s: %+v", name, b.ID(), info)
				e.unlock(got)
				e.unlock(e.granted(name, next).lease)
				waits(0)
			}
		}},
		{"Rule13_InspectTellsWhoWaitsForPermits", func(e *env) {
			a, b := e.client(), e.client()
			e.ok(semaphore.New(a, "n", 0).TrySetPermits(background, 3))
			held := value(semaphore.New(a, "n", 0).TryAcquire(background, 2)).in(e)
			waiter := async(func() *semaphore.Permit { return value(semaphore.New(b, "n", 0).Acquire(background, 2)).in(e) })
			e.until("it waits", func() bool { return e.inspect(a, "n").Waiters == 1 })
			w := e.inspect(a, "n").Queue[0]
			e.errorIf(w.Owner != "" && w.Client != b.ID() || w.Owner == "" && w.Tag == "", "the entry is %+v", w)
			e.must("Release", held.Release(background))
			got := <-waiter
			info := e.inspect(a, "n")
			e.errorIf(!info.Held || info.Holds != 2 || info.Client != b.ID() || info.Waiters != 0, "granted: %+v", info)
			e.must("Release", got.Release(background))
		}},
	})

// skew is by how much the clocks of the store and of the test may differ.
const skew = 5 * time.Second

// describer is a session without its errors.
type describer struct{ *raw }

func (s describer) describe(name string) backend.Description {
	s.e.Helper()
	return call(s.e, s.Capabilities().Operator.Describe, backend.DescribeRequest{Name: name, Entries: 10})
}

// what says what has a name that has a lock or nothing.
func (s describer) what(name string) string {
	s.e.Helper()
	d := s.describe(name)
	if !d.Exists {
		s.e.errorIf(d.Held || d.Owner != "" || d.Holds != 0 || d.Token != 0 || !d.Since.IsZero(), "of a free name: %+v", d)
		return "nothing"
	}
	s.e.errorIf(!d.Held || d.Kind != backend.KindLock, "of a lock: %+v", d)
	return fmt.Sprintf("a lock of %s, %d holds, token %d", d.Owner, d.Holds, d.Token)
}
