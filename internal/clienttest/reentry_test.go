package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/quorum"
)

func TestReentryNeverShortensTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		outer := need(c.Lock(t.Context(), "x", WithLease(time.Minute)))(t)
		inner := need(c.Lock(outer.Context(), "x", WithLease(time.Second)))(t)
		time.Sleep(30 * time.Second)
		must(t, inner.Err())
		must(t, inner.Unlock(t.Context()))
		st := need(c.Inspect(t.Context(), "x"))(t)
		if st.Remaining != 30*time.Second {
			t.Errorf("remaining %v, want 30s: a partial unlock leaves the time alone", st.Remaining)
		}
		must(t, outer.Unlock(t.Context()))
	})
}

// See rule 6 of package backendtest.
func TestTwoHoldsUnlockedAtOnceAreBothUnlocked(t *testing.T) {
	c := newClient(t)
	for range 2000 {
		a := need(c.Lock(t.Context(), "x"))(t)
		b := need(c.Lock(a.Context(), "x"))(t)
		var wg sync.WaitGroup
		var ea, eb error
		wg.Go(func() { ea = a.Unlock(context.Background()) })
		wg.Go(func() { eb = b.Unlock(context.Background()) })
		wg.Wait()
		must(t, errors.Join(ea, eb))
	}
}

// The second of two Unlocks at once finds nothing in the store, since the first's release has run, or runs again in the
// background. That is no loss.
func TestAnUnlockAfterAReleaseOfUnknownOutcomeReportsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "Batch", hooks{"ReleaseAll": replyLost}))
		l := need(c.LockAll(t.Context(), []string{"x", "x"}))(t)
		err := l.Unlock(t.Context())
		if wants(t, err, ErrUnavailable); errors.Is(err, ErrLost) {
			t.Errorf("Unlock of a live lease: %v", err)
		}
	})
}

// The release of an inner hold is on its way when WithMaxHold ends the outer one, and so arrives after the client has
// released the lock. The inner hold was not lost.
func TestAnUnlockThatTheEndOfTheOuterHoldOvertakesReportsNoLoss(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "", hooks{"Release": func(c *call) error {
			if c.request.(backend.ReleaseRequest).Keep > 0 {
				time.Sleep(200 * time.Millisecond)
			}
			return c.run(context.Background())
		}}))
		outer := need(c.Lock(t.Context(), "x", WithMaxHold(time.Second)))(t)
		inner := need(c.Lock(outer.Context(), "x"))(t)
		time.Sleep(900 * time.Millisecond)
		must(t, inner.Unlock(t.Context()))
		wants(t, outer.Err(), ErrLost)
	})
}

func TestAnUnlockThatTakesLongerThanTheLeaseSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "", hooks{"Release": func(c *call) error {
			time.Sleep(2 * time.Second)
			return c.run(context.Background())
		}}))
		l := need(c.Lock(t.Context(), "x", WithLease(time.Second)))(t)
		err := l.Unlock(t.Context())
		if wants(t, err, ErrLost); !strings.Contains(err.Error(), "took longer than the lease") {
			t.Errorf("Unlock: %v", err)
		}
	})
}

func TestNonReentrantRefusesItsOwnerAtOnce(t *testing.T) {
	c := newClient(t)
	strict := c.With(NonReentrant())
	l := need(strict.Lock(t.Context(), "x"))(t)
	wants(t, errorOf(strict.Lock(l.Context(), "x")), ErrInvalid)
	wants(t, errorOf(strict.TryLock(t.Context(), "x")), ErrNotAcquired)
	must(t, l.Unlock(t.Context()))
}

// The store has not said that the lock is held by another, so the error does not say so.
func TestAReentryThatIsNotAnsweredIsUnavailable(t *testing.T) {
	plain := func(c *Client) Locker { return c }
	read, write := func(c *Client) Locker { return c.RW().Read }, func(c *Client) Locker { return c.RW().Write }
	for what, kinds := range map[string][2]func(*Client) Locker{
		"a plain lock": {plain, plain}, "a writer": {write, write},
		"a writer that reads": {write, read}, "a reader": {read, read},
	} {
		for _, granted := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, granted too late %v", what, granted), func(t *testing.T) {
				bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
					b := spyOn(s, "ReadWrite", nil)
					c := on(t, b)
					outer := need(kinds[0](c).Lock(t.Context(), "x"))(t)
					b.hook(anyCall, func(c *call) error {
						time.Sleep(3 * time.Second)
						if granted {
							return c.run(context.Background())
						}
						return unknownOutcome()
					})
					err := errorOf(kinds[1](c).Lock(outer.Context(), "x", WithWait(2*time.Second)))
					if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotAcquired) {
						t.Error(err)
					}
					b.hook(anyCall, nil)
					time.Sleep(time.Minute) // the reply, and what undoes it
					must(t, outer.Unlock(t.Context()))
				})
			})
		}
	}
}

// The store grants a re-entry, or does not answer, and then it hangs, so the re-entry cannot be undone.
func TestACallerLeavesWhileItsReentryIsUndone(t *testing.T) {
	for what, setHolds := range map[string]func(*call) error{
		"unanswered":          func(*call) error { time.Sleep(3 * time.Second); return unknownOutcome() },
		"delegated meanwhile": delayed(time.Second),
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				hangs := delayed(10 * time.Second)
				c := on(t, spyOn(s, "Delegation", hooks{"SetHolds": setHolds, "Release": hangs, "Delegation.Release": hangs}))
				l := need(c.Lock(t.Context(), "x"))(t)
				start := time.Now()
				w := begin(l.Context(), c, "x", WithWait(4*time.Second))
				synctest.Wait()
				if what == "delegated meanwhile" {
					delegation.FromContext(l.Context())
				}
				wants(t, (<-w).err, ErrUnavailable)
				if d := time.Since(start); d > 4*time.Second {
					t.Errorf("a call with a wait of 4s returned after %v", d)
				}
				must(t, l.Unlock(t.Context()))
			})
		})
	}
}

// A lease counts from when its request was sent, not from when Lock was called.
func TestAReentryThatWaitedHasItsFullLease(t *testing.T) {
	for what, end := range map[string]func(a *Client, outer, inner *Lease) error{
		"lent meanwhile": func(_ *Client, outer, inner *Lease) error {
			delegation.FromContext(outer.Context())
			return inner.Unlock(context.Background())
		},
		"lost meanwhile": func(a *Client, _, _ *Lease) error {
			_, err := a.ForceUnlock(context.Background(), "n", "")
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := on(t, spyOn(memory.New(), "Delegation", hooks{"Enter": delayed(time.Millisecond)}))
				ctx := context.Background()
				outer := need(a.Lock(ctx, "n"))(t)
				inner := need(a.Lock(outer.Context(), "n"))(t)
				done := make(chan error)
				go func() {
					l, err := a.Lock(context.WithoutCancel(outer.Context()), "n", WithLease(time.Second))
					if err == nil {
						time.Sleep(900 * time.Millisecond)
						err = errors.Join(l.Err(), l.Unlock(ctx))
					}
					done <- err
				}()
				synctest.Wait()
				time.Sleep(2 * time.Second)
				must(t, end(a, outer, inner))
				if err := <-done; err != nil {
					t.Error("it waited two seconds for its turn:", err)
				}
				_ = outer.Unlock(ctx)
			})
		})
	}
}

// Findings U11: a context without its cancellation carries the lease, as the rest of its values; one without leases
// competes. The work of a goroutine that outlives its request is the case.
func TestBackgroundWorkWithAContextOfARequest(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		type user struct{}
		request, over := context.WithCancel(context.WithValue(t.Context(), user{}, "ada"))
		held := need(c.Lock(request, "x"))(t)

		carries := context.WithoutCancel(held.Context())
		inner := need(c.TryLock(carries, "x"))(t) // beside the handler: Locker says so
		must(t, inner.Unlock(t.Context()))

		ctx := WithoutLeases(context.WithoutCancel(held.Context()))
		wants(t, errorOf(c.TryLock(ctx, "x")), ErrNotAcquired)
		if ctx.Value(user{}) != "ada" || len(delegation.FromContext(ctx)) != 0 || len(delegation.FromContext(carries)) != 1 {
			t.Errorf("user %v, %d delegations, %d without WithoutLeases", ctx.Value(user{}), len(delegation.FromContext(ctx)),
				len(delegation.FromContext(carries)))
		}
		over() // the request is over, and its handler has not unlocked yet
		background := queued(ctx, c, "x")
		wants(t, errorOf(c.TryLock(ctx, "x")), ErrNotAcquired)
		must(t, held.Unlock(t.Context()))
		lease := background.lease(t)
		wants(t, errorOf(other.TryLock(t.Context(), "x")), ErrNotAcquired)
		must(t, thenUnlock(c.TryLock(lease.Context(), "x"))) // its own lease is entered again
		must(t, lease.Unlock(t.Context()))

		// A context whose lease has ended confers nothing, with its cancellation or without.
		next := need(other.Lock(t.Context(), "x"))(t)
		wants(t, errorOf(c.TryLock(carries, "x")), ErrNotAcquired)
		must(t, next.Unlock(t.Context()))
	})
}

func TestWithoutLeasesOfEachKind(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		ctx, c := t.Context(), open()
		fair := c.With(Fair())
		node := func() *Client { return on(t, memory.New(), quorum.WithRejoinDelay(0)) }
		most := need(quorum.New(node(), node(), node()))(t)
		for kind, l := range map[string]Locker{"plain": c, "fair": fair, "write": c.RW().Write, "quorum": most} {
			held := need(l.Lock(ctx, kind))(t)
			noError(t, errorOf(l.TryLock(held.Context(), kind)))
			if err := errorOf(l.TryLock(WithoutLeases(held.Context()), kind)); !errors.Is(err, ErrNotAcquired) {
				t.Errorf("%s: %v, want ErrNotAcquired", kind, err)
			}
		}
		all := need(c.LockAll(ctx, []string{"a", "b"}))(t)
		wants(t, errorOf(c.TryLock(WithoutLeases(all.Context()), "a")), ErrNotAcquired)
		delegated := need(delegation.NewContext(ctx, open(), delegation.FromContext(all.Context())...))(t)
		if len(delegation.FromContext(delegated)) != 2 || len(delegation.FromContext(WithoutLeases(delegated))) != 0 {
			t.Errorf("%d and %d delegations", len(delegation.FromContext(delegated)),
				len(delegation.FromContext(WithoutLeases(delegated))))
		}
	})
}

// A re-entry has the record last for the watchdog timeout, or longer: the end of WithMaxHold releases it.
func TestAMaxHoldFreesALockThatWasEnteredAgain(t *testing.T) {
	for _, kind := range []string{"plain", "write"} {
		for name, inner := range map[string][]Option{"WithLease(10m)": {WithLease(10 * time.Minute)}, "no option": nil} {
			t.Run(kind+", re-entry with "+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
					ca, cb := open(), open()
					var a, b Locker = ca, cb
					if kind == "write" {
						a, b = ca.RW().Write, cb.RW().Write
					}
					ctx := t.Context()
					start := time.Now()
					w := need(a.Lock(ctx, "x", WithMaxHold(time.Second)))(t)
					r := need(a.Lock(w.Context(), "x", inner...))(t)
					must(t, r.Unlock(ctx))
					<-w.Context().Done()
					lost := time.Since(start)
					w2 := need(b.Lock(ctx, "x"))(t)
					if took := time.Since(start); took > 3*time.Second {
						t.Errorf("the lease ended after %v (%v); the next got the lock after %v", lost, w.Err(), took)
					}
					must(t, w2.Unlock(ctx))
				})
			})
		}
	}
}

// A lease of a second runs out while a re-entry is on its way: the store grants that, for longer than the lease. The
// call fails, and the record goes.
func TestAReentryThatCrossesTheEndOfItsLeaseLeavesNothingBehind(t *testing.T) {
	for _, detached := range []bool{false, true} {
		t.Run(fmt.Sprint("detached ", detached), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				spy := counted()
				a, b, ctx := on(t, spy), on(t, spy), t.Context()
				start := time.Now()
				w := need(a.Lock(ctx, "x", WithLease(time.Second)))(t)
				spy.hook("SetHolds", func(c *call) error {
					time.Sleep(985*time.Millisecond - time.Since(start)) // before the client gives the lease up
					err := c.run(context.Background())
					time.Sleep(20 * time.Millisecond) // the reply takes 20 ms
					return err
				})
				under := w.Context()
				if detached {
					under = context.WithoutCancel(under)
				}
				again, err := a.Lock(under, "x", WithLease(10*time.Minute))
				t.Log("the re-entry:", again != nil, err, "after", time.Since(start))
				t.Log("the outer lease:", w.Err())
				next := need(b.Lock(ctx, "x"))(t)
				if took := time.Since(start); took > 3*time.Second {
					t.Errorf("the lock was free from 1.005s on; the next got it after %v", took)
				}
				must(t, next.Unlock(ctx))
				time.Sleep(time.Second) // the reply
			})
		})
	}
}

// Background work locks again while its request unlocks: a lease that has ended confers nothing, so the call competes.
func TestAReentryOnItsWayWhileTheOuterIsUnlockedCompetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := spyOn(memory.New(), "", nil)
		c := on(t, s)
		outer := need(c.Lock(t.Context(), "x"))(t)
		s.hook("SetHolds", func(c *call) error {
			err := c.run(c.ctx)
			time.Sleep(100 * time.Millisecond)
			return err
		})
		in := begin(context.WithoutCancel(outer.Context()), c, "x", WithWait(5*time.Second))
		time.Sleep(10 * time.Millisecond)
		must(t, outer.Unlock(t.Context()))
		a := <-in
		must(t, a.err)
		must(t, a.Unlock(t.Context()))
	})
}

// follow returns a function that returns the last text of the lock's owner that a loop over Proclamations has seen.
func follow(t *testing.T, c *Client, name string) func() string {
	var last atomic.Value
	last.Store("")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for p := range leader.Observe(ctx, c, name) {
			last.Store(p.Identity)
		}
	}()
	t.Cleanup(func() { stop(); <-ended })
	synctest.Wait()
	return func() string { return last.Load().(string) }
}

// When both are called, a re-entry is on its way, and the tenure has two holds more.
func TestTheLastOfTwoUnlocksBehindAReentryRemovesTheText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := spyOn(memory.New(), "Batch Queue Enrolments Proclamations", nil)
		c, text := on(t, b), follow(t, on(t, b), "a")
		outer := need(c.Lock(t.Context(), "a"))(t)
		must(t, leader.Proclaim(t.Context(), outer, "me"))
		inner := need(c.Lock(outer.Context(), "a"))(t)
		arrive := make(chan struct{})
		b.hook("SetHolds", onceClosed(arrive))
		entered := later(func() error { return thenUnlock(c.TryLock(inner.Context(), "a")) })
		synctest.Wait()
		first := later(func() error { return inner.Unlock(t.Context()) })
		last := later(func() error { return outer.Unlock(t.Context()) })
		synctest.Wait()
		close(arrive)
		must(t, <-first)
		must(t, <-last)
		<-entered
		synctest.Wait()
		if got := text(); got != "" {
			t.Errorf("after the last Unlock the text is %q", got)
		}
	})
}

func TestWithoutLeasesOfNoContext(t *testing.T) {
	wants(t, errorOf(on(t, memory.New()).Lock(WithoutLeases(nil), "a")), ErrInvalid)
}
