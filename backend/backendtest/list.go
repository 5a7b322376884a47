package backendtest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
)

// listTests are about lists of locks.
var listTests = append(where(
	func(e *env) bool { return e.bare().Capabilities().List != nil }, "lists of locks", []test{
		{"Port_List_HasTheLocksWithAPrefix", func(e *env) {
			s := lister{e.bare()}
			s.lists("")
			can := s.Capabilities()
			for _, prefix := range []string{"a:", `a*[b]?\c^:`, "a{x}", "\u00e4\n:", strings.Repeat("a", 300)} {
				want := map[string]string{}
				take := func(name, owner string) {
					s.take(name, owner, long)
					want[name] = "lock of " + owner
				}
				take(prefix+"plain", "some/host/12:7")
				take(prefix+"plain{y}", "a:2")
				take(prefix+"java", "9e5ba8a8-5b6d-4ef2-9c1e-8d1f1f0b4a10:+7")
				if prefix != "a{x}" {
					take(prefix, "a:1")
				}
				if can.ReadWrite != nil {
					for name, k := range map[string]backend.Kind{"read": backend.KindRead, "written": backend.KindWrite} {
						r := anykind.AcquireRequest{Name: prefix + name, Kind: k, Owner: "a:3", Lease: long}
						e.fatalIf(!call(e, s.Acquire, r).Granted, "%s is not granted", prefix+name)
						want[prefix+name] = map[string]string{"read": "readers, a:3", "written": "writer a:3"}[name]
					}
				}
				if can.Semaphores != nil {
					for _, n := range []string{"permits", "permits{y}", "free"} {
						topic := backend.Topic{Kind: backend.KindSemaphore, Name: prefix + n}
						call(e, can.Semaphores.SetLimit, backend.CountRequest{Topic: topic, ID: "id" + n, N: 2})
						if n != "free" {
							r := backend.PermitRequest{Name: prefix + n, Owner: id(1), Lease: long}
							e.fatalIf(!call(e, can.Semaphores.Acquire, r).Granted, "no permit of %s", prefix+n)
							want[prefix+n] = "semaphore, 1 in use"
						}
					}
				}
				for _, other := range []string{"aXbYc:", "b" + prefix, "A:"} { // what patterns would match
					if name := other + "plain"; s.acquire(name, "b:1", long).Granted {
						e.errorIf(strings.HasPrefix(name, prefix), "%q begins with %q", name, prefix)
					}
				}
				s.takeAndRelease(prefix+"gone", "a:1")
				e.store.Occupy(prefix + "data")
				got := s.list(prefix)
				e.errorIf(!maps.Equal(got, want), "with %q: %q, want %q", prefix, got, want)
				all := s.list("")
				maps.DeleteFunc(all, func(name, _ string) bool { return want[name] == "" })
				e.errorIf(len(all) != len(want), "of all: %q, want %q", all, want)
				s.lists(prefix + "plainer")
			}
		}},
		{"Port_List_HasEachLockOfManyPages", func(e *env) {
			s := lister{e.bare()}
			const many = 1100
			want := map[string]string{}
			for i := range many {
				name := fmt.Sprintf("n%04d", i)
				s.take(name, "a:1", long)
				if i%3 == 0 {
					s.release(name, "a:1", 0)
					continue
				}
				want[name] = "lock of a:1"
			}
			if got := s.list("n"); !maps.Equal(got, want) {
				e.Errorf("%d of %d locks: %q", len(got), len(want), slices.Sorted(maps.Keys(got)))
			}
		}},
		{"Rule13_LocksListsWhatIsHeld", func(e *env) {
			a, b := e.client(mortise.WithPrefix("a:")), e.client()
			e.lock(a, background, "1", mortise.WithLease(long))
			e.lock(b, background, "a:2", mortise.WithLease(long))
			e.lock(b, background, "b:1", mortise.WithLease(long))
			waiting := locking(b, background, "a:1", mortise.WithWait(patience))
			e.until("it waits", func() bool { return e.inspect(a, "1").Waiters == 1 })
			found := map[string]mortise.LockInfo{}
			for info, err := range a.Locks(background, "") {
				e.fatalIf(err != nil, "Locks: %v", err)
				found[info.Name] = info
			}
			one, two := found["a:1"], found["a:2"]
			e.errorIf(len(found) != 2, "found %+v", found)
			e.errorIf(!one.Held || !one.Mine || one.Client != a.ID() || one.PID == 0 || one.Waiters != 1 || one.Kind != "lock" ||
				one.Remaining <= 0 || one.Queue != nil, "a:1 is %+v", one)
			e.errorIf(!two.Held || two.Mine || two.Client != b.ID() || two.Waiters != 0, "a:2 is %+v", two)
			n := 0
			for range b.Locks(background, "") {
				n++
				break
			}
			e.errorIf(n != 1, "a loop that ends at the first lock saw %d", n)
			e.fatalIf(!value(a.ForceUnlock(background, "1", one.Owner)).in(e), "not removed")
			e.unlock(e.granted("the waiter", waiting).lease)
		}},
	}), test{"Rule13_LocksEndsWithItsError", func(e *env) {
	can := e.bare().Capabilities().List != nil
	e.bare().take("n", "a:1", long)
	c, f := e.tapped()
	errs := func(locks int) error {
		e.Helper()
		var all []error
		for info, err := range c.Locks(background, "n") {
			if err != nil {
				e.errorIf(info.Name != "", "it listed %+v, %v", info, err)
				all = append(all, err)
			} else if locks--; info.Name != "n" {
				e.Errorf("it listed %+v", info)
			}
		}
		e.fatalIf(len(all) > 1 || locks != 0, "%d locks are missing; errors: %v", locks, all)
		return errors.Join(all...)
	}
	if !can {
		e.named(errs(0), "locks", "n", mortise.ErrInvalid)
		return
	}
	e.ok(true, errs(1))
	f.Hook(func(Call) Fate { return Fate{Refused: true} })
	e.named(errs(0), "locks", "n", mortise.ErrUnavailable)
	f.Hook(nil)
	e.ok(true, c.Close())
	e.named(errs(0), "locks", "n", mortise.ErrClosed)
	for _, err := range (*mortise.Client)(nil).Locks(background, "") {
		e.is("of a nil client", err, mortise.ErrInvalid)
	}
}})

// lister lists by a session.
type lister struct{ *raw }

// list returns what a listing says of each lock.
func (s lister) list(prefix string) map[string]string {
	s.e.Helper()
	found, r := map[string]string{}, backend.ListRequest{Prefix: prefix}
	for range 1000 { // each page is bounded, and so are the pages of a store of a test
		page := call(s.e, s.Capabilities().List.List, r)
		for _, x := range page.Locks {
			what := fmt.Sprintf("%+v", x)
			switch {
			case !x.Exists || !x.Held || len(x.Queue) != 0 || x.Remaining <= 0 || x.Remaining > long:
			case x.Kind == backend.KindLock && x.Holds == 1:
				what = "lock of " + x.Owner
			case x.Kind == backend.KindRead && x.Readers == 1:
				what = "readers, " + x.Owner
			case x.Kind == backend.KindWrite:
				what = "writer " + x.Owner
			case x.Kind == backend.KindSemaphore:
				what = fmt.Sprintf("semaphore, %d in use", x.Holds)
			}
			found[x.Name] = what
		}
		if r.Cursor = page.Next; r.Cursor == "" {
			return found
		}
	}
	s.e.Fatalf("the listing of %q does not end", prefix)
	return nil
}

// lists checks that a listing is empty.
func (s lister) lists(prefix string) {
	s.e.Helper()
	got := s.list(prefix)
	s.e.errorIf(len(got) > 0, "with %q: %q, want nothing", prefix, got)
}
