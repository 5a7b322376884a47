package clienttest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

func TestStandInLease(t *testing.T) {
	calls := 0
	l := NewLease(t.Context(), "x", 7, func(context.Context) error { calls++; return nil })
	must(t, l.Err())
	if l.Token() != 7 || l.Name() != "x" {
		t.Error("token or name")
	}
	must(t, l.Unlock(t.Context()))
	wants(t, l.Err(), ErrReleased)
	wants(t, context.Cause(l.Context()), ErrReleased)
	wants(t, l.Unlock(t.Context()), ErrReleased)
	if calls != 1 {
		t.Errorf("unlock called %d times", calls)
	}

	ctx, lose := context.WithCancelCause(t.Context())
	l = NewLease(ctx, "x", 0, nil)
	lose(ErrLost)
	wants(t, l.Err(), ErrLost)
	wants(t, l.Unlock(t.Context()), ErrLost)
}

// A fake's context may be made under that of another lease. The end of that one is not
// the fake's, and does not hide what its own release came to.
func TestAStandInLeaseOutlivesTheLeaseItWasMadeUnder(t *testing.T) {
	c := on(t, memory.New())
	outer := need(c.Lock(t.Context(), "n"))(t)
	failure := errors.New("no release")
	l := NewLease(outer.Context(), "f", 0, func(context.Context) error { return failure })
	must(t, outer.Unlock(t.Context()))
	if err := l.Err(); err != nil {
		t.Errorf("Err: %v", err)
	}
	if err := l.Unlock(t.Context()); !errors.Is(err, failure) || errors.Is(err, ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if err := l.Err(); !errors.Is(err, ErrReleased) {
		t.Errorf("Err after Unlock: %v", err)
	}
}

func TestTheLeasesContextIsAChildAndItsParentsEndDoesNotEndTheLease(t *testing.T) {
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	l := need(c.Lock(ctx, "x"))(t)
	cancel()
	<-l.Context().Done()
	must(t, l.Err())
	wants(t, errorOf(c.TryLock(t.Context(), "x")), ErrNotAcquired)
	if err := l.Unlock(ctx); err != nil { // released all the same, whether its answer was waited for or not
		wants(t, err, context.Canceled)
	}
	must(t, thenUnlock(c.Lock(t.Context(), "x")))
}

func TestAContextMadeAfterTheLeaseEndedHasTheCauseOfItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := on(t, memory.New())
		ctx, cancel := context.WithCancel(context.Background())
		l := need(a.Lock(ctx, "n", WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		cancel()
		wants(t, context.Cause(l.Context()), ErrLost)
	})
}

// A mock may return a nil or a zero Lease.
func TestANilOrZeroLeaseHoldsNothing(t *testing.T) {
	for _, l := range []*Lease{nil, new(Lease)} {
		if l.Name() != "" || l.Token() != 0 || l.Context().Err() == nil {
			t.Error("it holds something")
		}
		wants(t, l.Err(), ErrInvalid)
		wants(t, l.Unlock(context.Background()), ErrInvalid)
	}
}

// The end of a lease that its options ask for is no warning.
func TestALeaseThatEndsAsAskedIsNotLoggedAsAWarning(t *testing.T) {
	for name, opt := range map[string]Option{
		"WithLease": WithLease(time.Second), "WithMaxHold": WithMaxHold(time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				log, lines := recorder()
				c := open(WithLogger(log))
				l := need(c.Lock(t.Context(), "x", opt))(t)
				<-l.Context().Done()
				wants(t, l.Err(), ErrLost)
				if err := l.Err(); !contains(err.Error(), name) || contains(err.Error(), "paused") {
					t.Error(err)
				}
				synctest.Wait()
				if got := lines(); len(got) != 0 {
					t.Errorf("the log, above DEBUG, says %q", got)
				}
			})
		})
	}
}

// An observer may be told of an Unlock before it is told of the end.
func TestReleasedReportsWhetherTheLeaseEndedAsAsked(t *testing.T) {
	for name, x := range map[string]struct {
		opt   Option
		end   func(*memory.Store)
		asked bool
	}{
		"unlocked":    {WithLease(time.Second), func(*memory.Store) {}, false},
		"WithLease":   {WithLease(time.Second), func(*memory.Store) { time.Sleep(time.Second) }, true},
		"WithMaxHold": {WithMaxHold(time.Minute), func(*memory.Store) { time.Sleep(time.Minute) }, true},
		"lost":        {WithLease(time.Minute), func(s *memory.Store) { s.Delete("x"); time.Sleep(time.Second) }, false},
		"unavailable": {WithMaxHold(time.Hour), func(s *memory.Store) {
			s.SetDown(ErrUnavailable)
			time.Sleep(time.Minute)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				told := make(chan Event, 1)
				c := open(WithObserver(Observer{Released: func(e Event) { told <- e }}))
				l := need(c.Lock(t.Context(), "x", x.opt))(t)
				x.end(s)
				err := l.Unlock(t.Context())
				if e := <-told; e.Asked != x.asked || !errors.Is(err, e.Err) {
					t.Errorf("asked: %v, want %v; Unlock: %v", e.Asked, x.asked, err)
				}
			})
		})
	}
}

func TestWithLeaseEndsTheLeaseBeforeTheStoreGrantsItToAnother(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		start := time.Now()
		l := need(a.Lock(t.Context(), "x", WithLease(10*time.Second)))(t)
		told := make(chan time.Duration, 1)
		context.AfterFunc(l.Context(), func() { told <- time.Since(start) })
		m := need(b.Lock(t.Context(), "x"))(t)
		in := time.Since(start)
		wants(t, l.Err(), ErrLost)
		wants(t, context.Cause(l.Context()), ErrLost)
		if d := <-told; d != 10*time.Second-100*time.Millisecond {
			t.Errorf("told after %v, want the lease less 1%%", d)
		}
		if in < 10*time.Second || in > 10*time.Second+10*time.Millisecond {
			t.Errorf("the waiter was in after %v, want when the lease ended", in)
		}
		wants(t, l.Unlock(t.Context()), ErrLost)
		must(t, m.Err())
		must(t, m.Unlock(t.Context()))
	})
}

func TestMaxHoldEndsRenewal(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		start := time.Now()
		l := need(a.Lock(t.Context(), "x", WithMaxHold(75*time.Second)))(t)
		<-l.Context().Done()
		if d := time.Since(start); d != 75*time.Second {
			t.Errorf("ended after %v, want 75s", d)
		}
		wants(t, l.Err(), ErrLost)
		must(t, errorOf(b.Lock(t.Context(), "x", WithWait(2*time.Second))))
		if d := time.Since(start); d > 76*time.Second {
			t.Errorf("free after %v", d)
		}
	})
}

// Unlock of a lost lease with a context that has ended says that the lease was lost, and so does its event: the hold
// ended once, without Unlock.
func TestAnUnlockThatDoesNotWaitSaysThatTheLeaseWasLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var told []error
		c := open(WithObserver(Observer{Released: func(e Event) { told = append(told, e.Err) }}))
		for range 20 { // the answer may be there before the end of the context is seen
			l := need(c.Lock(t.Context(), "x", WithMaxHold(time.Second)))(t)
			both := need(Parts{}.And(c, "y", "z").Lock(t.Context(), WithMaxHold(time.Second)))(t)
			<-l.Context().Done()
			<-both.Context().Done()
			for _, l := range []*Lease{l, both} {
				err := l.Unlock(ended())
				wants(t, err, ErrLost)
				wants(t, err, ErrLost)
			}
			synctest.Wait()
		}
		for _, err := range told {
			wants(t, err, ErrLost)
		}
		if len(told) != 60 {
			t.Errorf("told of %d releases, want 60", len(told))
		}
	})
}

func TestInnerMaxHoldEndsTheInnerLeaseOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer := need(c.Lock(t.Context(), "x"))(t)
		inner := need(c.Lock(outer.Context(), "x", WithMaxHold(time.Second)))(t)
		<-inner.Context().Done()
		wants(t, inner.Err(), ErrLost)
		must(t, outer.Err())
		wants(t, inner.Unlock(t.Context()), ErrLost)
		st := need(c.Inspect(t.Context(), "x"))(t)
		if st.Holds != 1 {
			t.Errorf("holds %d, want the outer one", st.Holds)
		}
		must(t, outer.Unlock(t.Context()))
	})
}

// An operator who finds a lease in a log finds its lock in the store, and the other way round.
func TestALeaseTellsWhatIsLeftOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open(WithWatchdogTimeout(30 * time.Second))
		l := need(c.Lock(t.Context(), "n"))(t)
		if d := l.Remaining(); d < 29*time.Second || d > 30*time.Second {
			t.Errorf("after Lock: %v", d)
		}
		time.Sleep(9 * time.Second)
		if d := l.Remaining(); d < 20*time.Second || d > 21*time.Second {
			t.Errorf("before the renewal: %v", d)
		}
		time.Sleep(2 * time.Second)
		if d := l.Remaining(); d < 28*time.Second || d > 30*time.Second {
			t.Errorf("after the renewal: %v", d)
		}
		must(t, l.Unlock(t.Context()))
		short := need(c.Lock(t.Context(), "n", WithLease(time.Second)))(t)
		time.Sleep(2 * time.Second)
		all := need(c.LockAll(t.Context(), []string{"a", "b"}))(t)
		for what, l := range map[string]*Lease{
			"released": l, "over": short, "of several": all, "nil": nil, "a stand-in": NewLease(t.Context(), "x", 1, nil),
		} {
			if d := l.Remaining(); d != 0 {
				t.Errorf("%s: %v", what, d)
			}
		}
		must(t, all.Unlock(t.Context()))
	})
}

func TestALeaseNamesItsOwnerAsTheStoreDoes(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		for name, l := range map[string]Locker{
			"plain": c, "fair": c.With(Fair()), "fenced": c.With(Fenced()), "written": c.RW().Write, "read": c.RW().Read,
		} {
			held := need(l.Lock(t.Context(), name))(t)
			again := need(l.Lock(held.Context(), name))(t)
			if info := need(c.Inspect(t.Context(), name))(t); held.Owner() == "" || held.Owner() != info.Owner {
				t.Errorf("%s: the lease is of %q, the lock of %q", name, held.Owner(), info.Owner)
			}
			if again.Owner() != held.Owner() && name != "read" { // each reader has a lease of its own
				t.Errorf("%s: the re-entry is of %q, not of %q", name, again.Owner(), held.Owner())
			}
			must(t, again.Unlock(t.Context()))
			must(t, held.Unlock(t.Context()))
		}
		all := need(c.LockAll(t.Context(), []string{"a", "b"}))(t)
		fake := NewLease(t.Context(), "x", 1, nil)
		if all.Owner() != "" || fake.Owner() != "" || (*Lease)(nil).Owner() != "" {
			t.Errorf("owners: %q, %q", all.Owner(), fake.Owner())
		}
		must(t, all.Unlock(t.Context()))
	})
}
