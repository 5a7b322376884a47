package backendtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/leader"
)

// proclamationTests are about what the owner of a lock says of itself.
var proclamationTests = where(
	func(e *env) bool { return e.bare().Capabilities().Proclamations != nil }, "proclamations", []test{
		{"Port_Proclaim_TheTextIsThatOfTheOwnerThatHoldsTheLock", func(e *env) {
			s := &proclaimer{e.bare()}
			for _, name := range []string{"n", "n{x}", "{n}"} {
				equal(e, "of a free lock: %+v", s.proclaimed(name), backend.Proclamation{})
				e.errorIf(s.proclaim(name, "a:1", 7, "x"), "an owner without the lock proclaims")
				s.take(name, "a:1", long)
				equal(e, "before it is proclaimed: %+v", s.proclaimed(name), backend.Proclamation{})
				e.errorIf(s.proclaim(name, "b:1", 7, "x"), "an owner without the lock proclaims")
				e.errorIf(!s.proclaim(name, "a:1", 7, "one"), "the holder does not proclaim")
				e.errorIf(!s.proclaim(name, "a:1", 8, "two"), "the holder does not proclaim again")
				p := s.proclaimed(name)
				e.errorIf(p.Remaining <= 0 || p.Remaining > long, "%v are left of the lease", p.Remaining)
				p.Remaining = 0
				equal(e, "the proclamation is %+v", p, backend.Proclamation{Owner: "a:1", Token: 8, Text: "two"})
				s.release(name, "a:1", 0)
				equal(e, "once it is released: %+v", s.proclaimed(name), backend.Proclamation{})
				s.take(name, "b:1", long)
				equal(e, "while another owner holds it: %+v", s.proclaimed(name), backend.Proclamation{})
			}
		}},
		{"Port_Proclaim_AnEmptyTextRemovesIt", func(e *env) {
			s := &proclaimer{e.bare()}
			s.take("n", "a:1", long)
			s.proclaim("n", "a:1", 1, "x")
			e.errorIf(!s.proclaim("n", "a:1", 1, ""), "the holder does not remove it")
			equal(e, "once it is removed: %+v", s.proclaimed("n"), backend.Proclamation{})
			e.errorIf(!s.proclaim("n", "a:1", 1, ""), "the holder does not remove it again")
			s.heldBy("n", "a:1", 1)
		}},
		{"Port_Proclaim_ASmallerNumberOfTheSameOwnerChangesNothing", func(e *env) {
			s := &proclaimer{e.bare()}
			send := func(owner, text string, number int64) {
				e.Helper()
				q := backend.ProclaimRequest{Name: "n", Owner: owner, Text: text, Number: number, Keep: long}
				e.errorIf(!call(e, s.Capabilities().Proclamations.Proclaim, q), "%s, the holder, does not proclaim", owner)
			}
			s.take("n", "a:1", long)
			for _, x := range []struct {
				text   string
				number int64
				want   string
			}{{"y", 9, "y"}, {"x", 8, "y"}, {"", 8, "y"}, {"y", 9, "y"}, {"", 11, ""}, {"z", 10, ""}, {"z", 12, "z"}} {
				send("a:1", x.text, x.number)
				equal(e, "the text is %q", s.proclaimed("n").Text, x.want)
			}
			s.release("n", "a:1", 0)
			s.take("n", "b:1", long)
			send("b:1", "first", 1) // the numbers are those of an owner
			equal(e, "the text is %q", s.proclaimed("n").Text, "first")
		}},
		{"Port_Proclaim_ItEndsWithTheLease", func(e *env) {
			s := &proclaimer{e.bare()}
			s.take("n", "a:1", 300*time.Millisecond)
			s.proclaim("n", "a:1", 1, "x")
			e.until("it is gone", func() bool { return s.proclaimed("n") == backend.Proclamation{} })
		}},
		{"Port_Proclaim_ItEndsWithTheOwnersLeaseWhileOthersHoldTheLock", func(e *env) {
			if !e.nests() {
				return
			}
			s := &proclaimer{e.bare()}
			const lease = time.Second
			for _, name := range []string{"n", "{n}"} {
				e.until("b:1 enters within the lease", func() bool {
					s.acquire(name, "a:1", lease)
					s.proclaim(name, "a:1", 1, "x")
					return s.enterUnder(name, "b:1", "a:1", 1, long).Granted
				})
				left := s.proclaimed(name).Remaining // zero if the lease is over
				e.errorIf(left > lease, "%v are left of the owner's lease of %v", left, lease)
				e.until("it is gone", func() bool { return s.proclaimed(name) == backend.Proclamation{} })
				s.heldBy(name, "b:1", 1)
				e.errorIf(s.proclaim(name, "a:1", 2, "y"), "an owner whose lease is over proclaims")
				e.errorIf(!s.proclaim(name, "b:1", 1, "z"), "the owner that is left does not proclaim")
				equal(e, "the proclamation is of %q", s.proclaimed(name).Owner, "b:1")
			}
		}},
		{"Port_Proclaim_ChangesAreAnnounced", func(e *env) {
			s, h := e.session()
			other := &proclaimer{e.bare()}
			s.Subscribe(backend.Topic{Kind: backend.KindProclamation, Name: "n"})
			e.until("it listens", func() bool { return h.count("watching n") > 0 })
			other.take("n", "a:1", long)
			for i, text := range []string{"x", "x", "y", "", ""} {
				other.proclaim("n", "a:1", 1, text)
				want := []int{1, 1, 2, 3, 3}[i]
				e.until(fmt.Sprintf("change %d is told", want), func() bool { return h.count("released n") >= want })
			}
			other.take("m", "a:1", long)
			s.Subscribe(backend.Topic{Kind: backend.KindProclamation, Name: "m"})
			e.until("it listens", func() bool { return h.count("watching m") > 0 })
			other.proclaim("m", "a:1", 1, "last")
			e.until("the last is told", func() bool { return h.count("released m") == 1 })
			equal(e, "%d changes were told", h.count("released n"), 3)
		}},
		{"Port_Proclaim_DataOfAnotherKindIsNamedAndLeftAlone", func(e *env) {
			s := e.bare()
			s.take("n", "a:1", long)
			e.store.Occupy("mortise:1:proclaim:{n}")
			p := s.Capabilities().Proclamations
			_, err := p.Proclaimed(background, "n")
			e.is("Proclaimed", err, backend.ErrWrongKind)
			_, err = p.Proclaim(background, backend.ProclaimRequest{Name: "n", Owner: "a:1", Text: "x", Keep: long})
			e.is("Proclaim", err, backend.ErrWrongKind)
			e.store.Occupy("o")
			_, err = p.Proclaim(background, backend.ProclaimRequest{Name: "o", Owner: "a:1", Text: "x", Keep: long})
			e.is("Proclaim", err, backend.ErrWrongKind)
		}},
		{"Rule02_AProclamationIsFollowedThroughOwnersThatReleaseAndThatDie", func(e *env) {
			a, b, follower := e.client(), e.client(), e.client()
			seen := follow(e, follower, "n")
			seen.next("")
			first := e.lock(a.With(mortise.Fenced()), background, "n")
			token := first.Token()
			e.done("Proclaim", leader.Proclaim(background, first, "a"))
			equal(e, "the proclamation is %+v", seen.next("a"), leader.Leader{Identity: "a", Client: a.ID(), Term: token})
			e.unlock(first)
			seen.next("") // long before the lease would have ended
			dying := e.brief(b, "n", 2*time.Second)
			e.done("Proclaim", leader.Proclaim(background, dying, "b"))
			equal(e, "the proclamation is %+v", seen.next("b"), leader.Leader{Identity: "b", Client: b.ID()})
			ends := time.Now()
			seen.next("")
			e.tookAtMost("the end of a lease of 2s was seen after %v", ends, 10*time.Second)
			e.is("Proclaim after its lease", leader.Proclaim(background, dying, "b"), mortise.ErrLost)
		}},
		{"Rule02_AProclamationEndsWithItsOwnerThoughACalleeHoldsTheLock", func(e *env) {
			if !e.nests() {
				return
			}
			fa := NewFaults(e.store.Backend())
			dead := e.clientOn(fa, mortise.WithWatchdogTimeout(watchdog))
			b, follower := e.client(), e.client()
			seen := follow(e, follower, "n")
			outer := e.lock(dead, background, "n")
			e.done("Proclaim", leader.Proclaim(background, outer, "x"))
			inner := e.lock(b, e.called(b, outer), "n")
			seen.next("x")
			fa.Hook(func(Call) Fate { return Fate{Refused: true} }) // from here on nothing of it arrives
			seen.next("")
			equal(e, "the lock is held by %q", e.inspect(follower, "n").Client, b.ID())
			e.done("the callee", inner.Err())
			e.unlock(inner)
		}},
		{"Rule08_AFollowerThatWaitsSendsNothing", func(e *env) {
			c := e.client()
			lease := e.lock(c, background, "n", mortise.WithLease(long))
			e.done("Proclaim", leader.Proclaim(background, lease, "x"))
			follower, f := e.tapped()
			seen := follow(e, follower, "n")
			seen.next("x")
			e.until("it listens", func() bool { return f.Watching() == 1 })
			e.until("it has looked since", func() bool { return f.Count(OpProclaimed) >= 3 })
			before := f.Count()
			e.always(time.Second, "silent", func() bool { return f.Count() == before })
			e.done("Proclaim", leader.Proclaim(background, lease, "y"))
			seen.next("y")
			e.always(200*time.Millisecond, "cheap", func() bool { return f.Count()-before <= 2 })
		}},
		{"Rule08_AFollowerThatIsSlowSeesWhatAnotherOfItsClientHasSeenBefore", func(e *env) {
			lease := e.lock(e.client(), background, "n", mortise.WithLease(long))
			e.done("Proclaim", leader.Proclaim(background, lease, "x"))
			follower, f := e.tapped()
			quick := follow(e, follower, "n")
			quick.next("x")
			e.until("it listens", func() bool { return f.Watching() == 1 })
			// Answered: a look that is still under way could see y, and would not be counted below.
			e.until("it has looked since", func() bool { return f.answered(OpProclaimed) >= 3 })
			busy := make(chan struct{})
			slow := follow(e, follower, "n", busy)
			slow.next("x")
			before := f.Count(OpProclaimed)
			e.done("Proclaim", leader.Proclaim(background, lease, "y"))
			quick.next("y")
			e.until("the quick one waits again", func() bool { return f.Count(OpProclaimed) >= before+2 })
			close(busy)
			slow.next("y")
		}},
		{"Rule09_AFollowerThatLeavesWhileItAsksLeavesNothing", func(e *env) {
			c, f := e.tapped()
			before, _ := e.goroutines()
			for range 20 {
				end, began := f.holdsFirst(replyLate, OpProclaimed)
				ctx, leave := context.WithCancel(background)
				done := async(func() error {
					for range leader.Observe(ctx, c, "n") {
					}
					return nil
				})
				e.until("it asks", func() bool {
					select {
					case <-began:
						return true
					default:
						return false
					}
				})
				leave()
				<-done
				close(end)
			}
			for range 20 { // once it follows, and asks again
				f.Hook(nil)
				ctx, leave := context.WithCancel(background)
				asked := f.Count(OpProclaimed)
				end := make(chan struct{})
				done := async(func() error {
					for range leader.Observe(ctx, c, "n") {
						f.Hook(on(Fate{After: end}, OpProclaimed))
					}
					return nil
				})
				e.until("it asks again", func() bool { return f.Count(OpProclaimed) >= asked+2 })
				leave()
				<-done
				close(end)
			}
			f.Hook(nil)
			// Of 40 questions; the client's connections have some of their own.
			e.noMoreGoroutines("the questions come to their end", before, before+12)
		}},
		{"Rule11_AProclamationThatArrivesLateDoesNotReplaceALaterOne", func(e *env) {
			c, f := e.tapped()
			reader := e.bare().Capabilities().Proclamations
			for _, text := range []string{"y", "", "x"} { // the later text is another, none, or the same again
				lease := e.lock(c, background, "n", mortise.WithLease(long))
				arrives, _ := f.holdsFirst(arrivesLate, OpProclaim)
				e.done("Proclaim", leader.Proclaim(background, lease, "x"))
				e.done("Proclaim", leader.Proclaim(background, lease, text))
				close(arrives)
				e.until("the request of the first Proclaim has arrived", func() bool { return f.underway() == 0 })
				equal(e, "the text is %q", call(e, reader.Proclaimed, "n").Text, text)
				f.Hook(nil)
				e.done("Proclaim", leader.Proclaim(background, lease, "z"))
				equal(e, "the next text is %q", call(e, reader.Proclaimed, "n").Text, "z")
				e.unlock(lease)
			}
		}},
		{"Rule12_AFollowerSurvivesALostConnectionAndAStoreThatIsDown", func(e *env) {
			c := e.client()
			lease := e.lock(c, background, "n", mortise.WithLease(long))
			e.done("Proclaim", leader.Proclaim(background, lease, "x"))
			follower, f := e.tapped()
			seen := follow(e, follower, "n")
			seen.next("x")
			e.until("it listens", func() bool { return f.Watching() == 1 })
			e.store.Cut()
			e.eventually("Proclaim", func() error { return leader.Proclaim(background, lease, "y") })
			seen.next("y")
		}},
		{"Rule13_ProclaimRefusesNonsense", func(e *env) {
			c := e.client()
			lease := e.lock(c, background, "n")
			e.is("a control character", leader.Proclaim(background, lease, "a\nb"), mortise.ErrInvalid)
			e.is("too long", leader.Proclaim(background, lease, string(slices.Repeat([]byte("x"), backend.MaxProclamation+1))),
				mortise.ErrInvalid)
			e.unlock(lease)
			e.is("after Unlock", leader.Proclaim(background, lease, "x"), mortise.ErrReleased)
			e.is("after Unlock", leader.Proclaim(background, lease, "x"), mortise.ErrReleased)
			for p, err := range leader.Observe(background, c, "}") {
				e.is("a bad name", err, mortise.ErrInvalidName)
				equal(e, "with an error: %+v", p, leader.Leader{})
			}
			all, err := mortise.Parts{}.And(c, "a", "b").Lock(background)
			e.must("LockAll", err)
			e.is("of several", leader.Proclaim(background, all, "x"), mortise.ErrInvalid)
			e.unlock(all)
		}},
	})

// proclaimer is a session, and what it proclaims.
type proclaimer struct{ *raw }

func (s *proclaimer) proclaim(name, owner string, token int64, text string) bool {
	s.e.Helper()
	return call(s.e, s.Capabilities().Proclamations.Proclaim,
		backend.ProclaimRequest{Name: name, Owner: owner, Token: token, Text: text, Keep: long})
}

func (s *proclaimer) proclaimed(name string) backend.Proclamation {
	s.e.Helper()
	return call(s.e, s.Capabilities().Proclamations.Proclaimed, name)
}

// followed is what a loop over proclamations has seen.
type followed struct {
	e     *env
	mu    sync.Mutex
	all   []leader.Leader
	taken int
}

// follow follows the proclamations of a lock until the test ends. Errors are left out. After each it waits until all of
// busy are closed.
func follow(e *env, c *mortise.Client, name string, busy ...<-chan struct{}) *followed {
	f := &followed{e: e}
	ctx, over := context.WithCancel(background)
	done := async(func() error {
		for p, err := range leader.Observe(ctx, c, name) {
			f.mu.Lock()
			if err == nil {
				f.all = append(f.all, p)
			}
			f.mu.Unlock()
			for _, until := range busy {
				select {
				case <-until:
				case <-ctx.Done():
				}
			}
		}
		return nil
	})
	e.Cleanup(func() { over(); <-done })
	return f
}

// next awaits a proclamation of a text, and leaves out those before it.
func (f *followed) next(text string) (p leader.Leader) {
	f.e.Helper()
	f.e.until(fmt.Sprintf("%q is proclaimed", text), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		i := slices.IndexFunc(f.all[f.taken:], func(p leader.Leader) bool { return p.Identity == text })
		if i < 0 {
			return false
		}
		p = f.all[f.taken+i]
		f.taken += i + 1
		return true
	})
	return p
}
