package clienttest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/semaphore"
)

// See rule 3 of package backendtest.
func TestPermitsAreRenewedTogetherAndEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var renewed int
		c := on(t, store, WithObserver(Observer{Renewed: func(Event) { renewed++ }}))
		ctx := context.Background()
		p := semaphore.New(c, "n", 0)
		if _, err := p.TrySetPermits(ctx, 2); err != nil {
			t.Fatal(err)
		}
		a := need(p.Acquire(ctx, 1))(t)
		bounded := need(p.Acquire(ctx, 1, WithMaxHold(time.Minute)))(t)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if a.Err() != nil || renewed < 10 {
			t.Errorf("after 2 minutes: %v, %d renewals", a.Err(), renewed)
		}
		if err := bounded.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("one held for as long as WithMaxHold allows: %v", err)
		}
		store.SetDown(errors.New("away"))
		<-a.Context().Done()
		if err := a.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("with the store away for longer than the lease: %v", err)
		}
		store.SetDown(nil)
	})
}

// See rule 4 of package backendtest.
func TestWaitersGetPermitsThatExpireWithoutAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		dead, c := on(t, store), on(t, store)
		ctx := context.Background()
		if _, err := semaphore.New(c, "n", 0).TrySetPermits(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if _, err := semaphore.New(dead, "n", 0).Acquire(ctx, 1, WithLease(lease)); err != nil {
				t.Fatal(err)
			}
		}
		dead.Shutdown(ended())
		start := time.Now()
		got := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				if _, err := semaphore.New(c, "n", 0).Acquire(ctx, 1); err != nil {
					t.Error(err)
				}
				got <- time.Since(start)
			}()
		}
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if d := <-got; d < want || d > want+100*time.Millisecond {
				t.Errorf("one got it after %v, want %v", d, want)
			}
		}
	})
}

// See rule 12 of package backendtest.
func TestPermitsEndAtOnceWhenTheStoreIsFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := on(t, store)
		ctx := context.Background()
		if _, err := semaphore.New(c, "n", 0).TrySetPermits(ctx, 1); err != nil {
			t.Fatal(err)
		}
		p := need(semaphore.New(c, "n", 0).Acquire(ctx, 1))(t)
		start := time.Now()
		store.Flush()
		<-p.Context().Done()
		if d := time.Since(start); d > time.Second || !errors.Is(p.Err(), ErrLost) {
			t.Errorf("after %v: %v", d, p.Err())
		}
	})
}

func TestAPermitIsReleasedByItsIDWithANilContext(t *testing.T) {
	c := on(t, memory.New())
	p := semaphore.New(c, "x", 0)
	must(t, errorOf(p.TrySetPermits(t.Context(), 1)))
	permit := need(p.TryAcquire(t.Context(), 1))(t)
	must(t, p.Release(nil, permit.IDs()[0])) //nolint:staticcheck // a nil context is the subject
	must(t, c.Close())
}

// See rule 8 of package backendtest.
func TestAWaiterWakesWhenAPermitOfItsClientExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		other, c := semaphore.New(on(t, st), "p", 0), semaphore.New(on(t, st), "p", 0)
		must(t, errorOf(other.TrySetPermits(t.Context(), 1)))
		long, err := other.Acquire(t.Context(), 1, WithLease(time.Hour))
		must(t, err)
		go c.Acquire(t.Context(), 1, WithLease(100*time.Millisecond)) // and never released
		synctest.Wait()
		second := later(func() error { return errorOf(c.Acquire(t.Context(), 1)) })
		synctest.Wait()
		must(t, long.Release(t.Context()))
		select {
		case err := <-second:
			must(t, err)
		case <-time.After(5 * time.Second):
			t.Error("a permit is free, and the one who wants it sleeps")
		}
	})
}

// late delays requests for permits: before they reach the store, or their replies.
type late struct {
	*memory.Store
	gate atomic.Pointer[func() (before, after time.Duration)]
}

type lateSession struct {
	backend.Store
	by *late
}

type lateStore struct {
	backend.SemaphoreStore
	by *late
}

func (s *late) Open(h backend.Handler) (backend.Store, error) {
	x, err := s.Store.Open(h)
	return lateSession{x, s}, err
}

func (s lateSession) Capabilities() backend.Capabilities {
	c := s.Store.Capabilities()
	c.Semaphores, c.Grants = lateStore{c.Semaphores, s.by}, false // a release tells the client to ask
	return c
}

func (s lateStore) Acquire(ctx context.Context, q backend.PermitRequest) (backend.PermitReply, error) {
	var before, after time.Duration
	if f := s.by.gate.Load(); f != nil {
		before, after = (*f)()
	}
	time.Sleep(before)
	defer time.Sleep(after)
	return s.SemaphoreStore.Acquire(ctx, q)
}

// Two calls of a client wait. A permit becomes free; the first asks, and its caller leaves. The second asks, and gets
// the permit, before the first's request reaches the store, which puts the client's entry back into the queue. Another
// permit becomes free before the second's reply is there: the store keeps it for the entry, under which nothing waits
// any more.
func TestAnEntryThatALateRequestPutsBackIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		gated := &late{Store: s}
		holder, a, b := semaphore.New(on(t, s), "x", 2), semaphore.New(on(t, gated), "x", 0), semaphore.New(on(t, s), "x", 0)
		ctx := t.Context()
		one, two := need(holder.Acquire(ctx, 1))(t), need(holder.Acquire(ctx, 1))(t)
		leaving, leave := context.WithCancel(ctx)
		w1 := later(func() error { return errorOf(a.Acquire(leaving, 1)) })
		synctest.Wait()
		time.Sleep(6 * time.Second) // it is in the queue
		w2 := later(func() error { return errorOf(a.Acquire(ctx, 1)) })
		synctest.Wait()
		var asked atomic.Int32
		f := func() (before, after time.Duration) {
			if asked.Add(1) == 1 {
				return 3 * time.Millisecond, 0 // its request takes 3 ms
			}
			return 0, 10 * time.Millisecond // its reply takes 10 ms
		}
		gated.gate.Store(&f)
		must(t, one.Release(ctx))
		synctest.Wait() // the first asks
		leave()
		wants(t, <-w1, context.Canceled)
		synctest.Wait() // the second has asked, and has the permit
		time.Sleep(5 * time.Millisecond)
		must(t, two.Release(ctx)) // the other is free
		must(t, <-w2)             // it does not ask for another
		gated.gate.Store(nil)
		start := time.Now()
		p := need(b.Acquire(ctx, 1))(t)
		if took := time.Since(start); took > 100*time.Millisecond {
			t.Errorf("a permit is free, and nothing waits; another client gets it after %v", took)
		}
		must(t, p.Release(ctx))
	})
}

func TestPermitsThatWereSetAreNotReplacedByTheSemaphoresOwnLimit(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		p := semaphore.New(open(), "n", 3)
		must(t, p.SetPermits(t.Context(), 5))
		permit, err := p.Acquire(t.Context(), 1)
		must(t, err)
		free, err := p.Available(t.Context())
		must(t, err)
		if free != 4 {
			t.Errorf("%d permits are free of 5 that were set, and one in use", free)
		}
		must(t, permit.Release(t.Context()))
	})
}

// The number that was set is the limit of the semaphore from then on: for the size of a request, and for a
// store that lost its data.
func TestPermitsThatWereSetAreTheSemaphoresLimit(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		p := semaphore.New(open(), "n", 3)
		wants(t, errorOf(p.Acquire(t.Context(), 4)), ErrInvalid)
		must(t, p.SetPermits(t.Context(), 5))
		permit := need(p.Acquire(t.Context(), 4))(t)
		must(t, permit.Release(t.Context()))
		wants(t, errorOf(p.Acquire(t.Context(), 6)), ErrInvalid)
		need(p.Delete(t.Context()))(t)
		must(t, need(p.Acquire(t.Context(), 1))(t).Release(t.Context()))
		if i := need(p.Inspect(t.Context()))(t); i.Limit != 5 {
			t.Errorf("the limit is %d after the data was lost, and 5 were set", i.Limit)
		}
	})
}

// Nor are permits whose SetPermits did not wait for the store's answer.
func TestPermitsThatWereSetBehindTheirCallerAreNotReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		p := semaphore.New(on(t, spyOn(s, "Semaphores", hooks{"SetLimit": delayed(time.Second)})), "n", 3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		wants(t, p.SetPermits(ctx, 5), context.DeadlineExceeded)
		time.Sleep(2 * time.Second)
		must(t, errorOf(p.Acquire(t.Context(), 1)))
		if i := need(p.Inspect(t.Context()))(t); i.Limit != 5 {
			t.Errorf("the limit is %d, and 5 were set", i.Limit)
		}
	})
}

// Nor are they if a call that declares a limit is under way: the store may get the two requests in either order.
func TestACallThatDeclaresALimitDoesNotUndoSetPermits(t *testing.T) {
	late := func(c *call) error {
		err := c.run(c.ctx)
		time.Sleep(time.Second)
		return err
	}
	var lost atomic.Bool
	again := func(c *call) error {
		if lost.Swap(true) {
			return c.run(c.ctx)
		}
		time.Sleep(time.Second)
		return &backend.Fault{Err: errGone, Temporary: true}
	}
	calls := map[string]func(p *semaphore.Semaphore) error{
		"Acquire":    func(p *semaphore.Semaphore) error { return errorOf(p.Acquire(context.Background(), 1)) },
		"SetPermits": func(p *semaphore.Semaphore) error { return p.SetPermits(context.Background(), 5) },
	}
	for name, x := range map[string]struct {
		slow  string // the request that takes a second
		first string
		then  string
		hook  func(*call) error
	}{
		"SetPermits has been executed":    {"SetLimit", "SetPermits", "Acquire", late},
		"SetPermits is on its way":        {"SetLimit", "SetPermits", "Acquire", delayed(time.Second)},
		"a declaration has been executed": {"Permits.Acquire", "Acquire", "SetPermits", late},
		"a declaration is on its way":     {"Permits.Acquire", "Acquire", "SetPermits", delayed(time.Second)},
		"a declaration is sent again":     {"Permits.Acquire", "Acquire", "SetPermits", again},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				c := on(t, spyOn(s, "Semaphores", hooks{x.slow: x.hook}))
				p := semaphore.New(c, "n", 3)
				first := later(func() error { return calls[x.first](p) })
				synctest.Wait()
				must(t, calls[x.then](p))
				must(t, <-first)
				if i := need(p.Inspect(t.Context()))(t); i.Limit != 5 || i.Out != 1 {
					t.Errorf("%d of %d permits are in use, want 1 of 5, which were set", i.Out, i.Limit)
				}
			})
		})
	}
}

// A call that declares a limit waits behind no call of its client that declares another, or none: that one may wait for
// the limit.
func TestALimitIsDeclaredThoughACallOfTheClientWaitsAlready(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		first := later(func() error { return errorOf(semaphore.New(c, "n", 0).Acquire(ctx, 1)) })
		synctest.Wait() // there is no limit: it waits
		start := time.Now()
		must(t, errorOf(semaphore.New(c, "n", 2).Acquire(ctx, 1)))
		must(t, <-first)
		third := later(func() error { return errorOf(semaphore.New(c, "n", 2).Acquire(ctx, 1)) })
		synctest.Wait() // none is free: it waits
		must(t, errorOf(semaphore.New(c, "n", 4).Acquire(ctx, 1)))
		must(t, <-third)
		if took := time.Since(start); took > 0 {
			t.Errorf("after %v", took)
		}
		fifth := later(func() error { return errorOf(semaphore.New(c, "n", 4).Acquire(ctx, 1)) })
		synctest.Wait()
		last := later(func() error { return errorOf(semaphore.New(c, "n", 3).Acquire(ctx, 1, WithWait(time.Second))) })
		wants(t, <-last, ErrNotAcquired)
		if s := need(semaphore.New(c, "n", 0).Inspect(ctx))(t); s.Limit != 3 {
			t.Errorf("the limit is %d, and 3 was declared last", s.Limit)
		}
		cancel()
		wants(t, <-fifth, context.Canceled)
	})
}

// The store loses its data. A call that declares a limit then sets it again, though a call of its client that declares
// none waits before it, and waited when the data was lost.
// The first call declares a limit, but wants more than are free, and so lets the second ask, which declares none: the
// second is not put back for that.
func TestACallThatWantsLessGoesBeforeOneThatDeclaresALimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		asked := 0
		c := on(t, spyOn(s, "Semaphores Enrolments", hooks{"Permits.Acquire": func(x *call) error {
			if asked++; asked == 1000 {
				cancel()
			}
			return x.run(context.Background())
		}}))
		declares := semaphore.New(c, "n", 5)
		must(t, need(declares.Acquire(ctx, 5))(t).Release(ctx))
		must(t, semaphore.New(c, "n", 0).SetPermits(ctx, 1))
		first := later(func() error { return errorOf(declares.Acquire(ctx, 3)) })
		synctest.Wait()
		must(t, errorOf(semaphore.New(c, "n", 0).Acquire(ctx, 1, WithWait(10*time.Second))))
		cancel()
		wants(t, <-first, context.Canceled)
	})
}

func TestALimitIsDeclaredAgainThoughACallWithoutOneIsFirst(t *testing.T) {
	for name, joinsFirst := range map[string]bool{"before the loss": true, "after the loss": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c, holder := open(), open()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				all := need(semaphore.New(holder, "n", 2).Acquire(ctx, 2))(t)
				limited := semaphore.New(c, "n", 2)
				wants(t, errorOf(limited.TryAcquire(ctx, 1)), ErrNotAcquired)
				acquire := func(s *semaphore.Semaphore) <-chan error {
					defer synctest.Wait()
					return later(func() error { return errorOf(s.Acquire(ctx, 1)) })
				}
				first := acquire(semaphore.New(c, "n", 0))
				var second <-chan error
				if joinsFirst {
					second = acquire(limited)
				}
				s.Flush()
				time.Sleep(10 * time.Second)
				if !joinsFirst {
					second = acquire(limited)
				}
				must(t, <-second)
				must(t, <-first)
				_ = all.Release(ctx)
			})
		})
	}
}

// Without permits there is no lease whose end could be waited for. The first waiter's answer tells the others, too.
func TestRemainingIsNegativeForEachWaiterIfThereAreNoPermits(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		s := semaphore.New(open(), "n", 0)
		acquire := func(wait time.Duration) <-chan error {
			defer synctest.Wait()
			return later(func() error { return errorOf(s.Acquire(t.Context(), 1, WithWait(wait))) })
		}
		first, second := acquire(10*time.Second), acquire(2*time.Second)
		for _, err := range []error{<-second, <-first} {
			var e *Error
			if wants(t, err, ErrNotAcquired); !errors.As(err, &e) || e.Remaining >= 0 {
				t.Errorf("%v, want a negative Remaining", err)
			}
		}
	})
}

// The error of Permit.Release has the operation release. The error that an observer has of the same release, or that a
// fake returns, does not change afterwards.
func TestTheErrorOfAReleaseIsItsCallersOwn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var reported error
		p := semaphore.New(open(WithObserver(Observer{Released: func(e Event) { reported = e.Err }})), "n", 1)
		permit := need(p.Acquire(t.Context(), 1))(t)
		need(p.Delete(t.Context()))(t)
		var of, told *Error
		if err := permit.Release(t.Context()); !errors.As(err, &of) || of.Op != "release" {
			t.Errorf("the error of Release: %v", err)
		}
		if !errors.As(reported, &told) || told == of || told.Op != "unlock" {
			t.Errorf("the observer has %v", reported)
		}
		shared := &Error{Op: "acquire", Err: ErrUnavailable}
		for _, err := range []error{shared, fmt.Errorf("a fake: %w", &Error{Op: "unlock", Err: ErrLost})} {
			fake := semaphore.NewPermit(t.Context(), "n", func(context.Context) error { return err })
			if got := fake.Release(t.Context()); got.Error() != err.Error() {
				t.Errorf("the error of a fake is %v, want %v", got, err)
			}
		}
	})
}

// Calls of one client want two, two and one. The request of the first names the last as the waiter with the smallest
// wish, and arrives after both have left: the store keeps what is free for the last.
func TestALeasedPermitIsNotKeptForAWaiterThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := spyOn(memory.New(), "Semaphores Enrolments", nil)
		sem, theirs := semaphore.New(on(t, b), "n", 0), semaphore.New(on(t, b.Store), "n", 0)
		must(t, errorOf(theirs.TrySetPermits(t.Context(), 2)))
		one, other := need(theirs.Acquire(t.Context(), 1))(t), need(theirs.Acquire(t.Context(), 1))(t)
		ctx, cancel := context.WithCancel(t.Context())
		wait := func(ctx context.Context, n int) <-chan error {
			defer synctest.Wait()
			return later(func() error { return errorOf(sem.Acquire(ctx, n)) })
		}
		first, second, last := wait(ctx, 2), wait(t.Context(), 2), wait(ctx, 1)
		var late atomic.Bool
		arrives := make(chan struct{})
		b.hook("Permits.Acquire", func(k *call) error {
			if late.CompareAndSwap(false, true) {
				<-arrives
			}
			return k.run(k.ctx)
		})
		must(t, one.Release(t.Context()))
		synctest.Wait() // the first asks
		cancel()
		wants(t, <-first, context.Canceled)
		wants(t, <-last, context.Canceled)
		synctest.Wait() // the second has asked, and was refused
		close(arrives)
		synctest.Wait()
		must(t, need(theirs.TryAcquire(t.Context(), 1))(t).Release(t.Context()))
		must(t, other.Release(t.Context()))
		must(t, <-second)
	})
}
