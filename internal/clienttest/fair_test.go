package clienttest

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
)

func fairKind(t *testing.T, c *Client) Locker {
	t.Helper()
	f := c.With(Fair())
	return f
}

// dead enrols an owner that does not answer.
func dead(t *testing.T, s *memory.Store, owner string) {
	t.Helper()
	x := need(s.Open(new(engine.Engine).Handler()))(t)
	defer x.Close()
	r, err := x.Capabilities().Fair.Acquire(t.Context(), backend.FairRequest{
		AcquireRequest: backend.AcquireRequest{Name: "x", Owner: owner, Lease: time.Hour}, Wait: time.Hour})
	must(t, err)
	if r.Granted {
		t.Fatal("granted")
	}
}

func TestAPlaceInAFairQueueIsKeptForHours(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var lockers []Locker
		for range 3 {
			lockers = append(lockers, fairKind(t, open()))
		}
		first, err := lockers[0].Lock(t.Context(), "x")
		must(t, err)
		var order []int
		var waiting []waiter
		for i := range 12 {
			waiting = append(waiting, queued(t.Context(), lockers[i%3], "x"))
		}
		done := make(chan struct{})
		for i, w := range waiting {
			go func() {
				lease := w.lease(t)
				order = append(order, i)
				time.Sleep(20 * time.Minute)
				noError(t, lease.Unlock(context.Background()))
				done <- struct{}{}
			}()
		}
		time.Sleep(time.Hour)
		if len(order) != 0 {
			t.Fatal("served while it is held")
		}
		start := time.Now()
		must(t, first.Unlock(t.Context()))
		for range waiting {
			<-done
		}
		if !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
		if d := time.Since(start); d > 12*20*time.Minute+time.Second {
			t.Errorf("took %v", d)
		}
	})
}

func TestAFairWaiterTakesTheLockWhenADeadHoldersLeaseIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, f := open(), fairKind(t, open())
		_, err := holder.Lock(t.Context(), "x", WithLease(time.Minute))
		must(t, err)
		start := time.Now()
		first := queued(t.Context(), f, "x")
		if a := <-first; a.err != nil || time.Since(start) > time.Minute+10*time.Millisecond {
			t.Errorf("%v after %v", a.err, time.Since(start))
		}
	})
}

func TestDeadWaitersDelayAFairWaiterBySecondsOnly(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, f := open(), fairKind(t, open())
		_, err := holder.Lock(t.Context(), "x", WithLease(time.Minute))
		must(t, err)
		start := time.Now()
		dead(t, s, "dead:1")
		dead(t, s, "dead:2")
		w := queued(t.Context(), f, "x")
		if a := <-w; a.err != nil || time.Since(start) > time.Minute+2*backend.Absence+10*time.Millisecond {
			t.Errorf("%v after %v", a.err, time.Since(start))
		}
	})
}

func TestAFairWaitersBoundedWaitEndsWithTheRemainingLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, f := open(), fairKind(t, open())
		l := need(holder.Lock(t.Context(), "x", WithLease(time.Minute)))(t)
		dead(t, s, "dead:1")
		_, err := f.Lock(t.Context(), "x", WithWait(20*time.Second))
		wants(t, err, ErrNotAcquired)
		var e *Error
		if errors.As(err, &e); e.Remaining != 40*time.Second {
			t.Errorf("remaining %v, want 40s: %v", e.Remaining, err)
		}
		wants(t, errorOf(f.TryLock(t.Context(), "x")), ErrNotAcquired)
		must(t, l.Unlock(t.Context()))
		_, err = f.TryLock(t.Context(), "x") // the dead owner is first
		wants(t, err, ErrNotAcquired)
		time.Sleep(backend.Absence)
		synctest.Wait()
		must(t, thenUnlock(f.TryLock(t.Context(), "x")))
	})
}

func TestNothingIsKeptOfAnUnusedFairLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		for range 40 {
			l, err := fairKind(t, a).Lock(t.Context(), "x")
			must(t, err)
			w := queued(t.Context(), fairKind(t, b), "x")
			must(t, l.Unlock(t.Context()))
			must(t, w.lease(t).Unlock(t.Context()))
		}
		if n := engineOf(b).Probe().Snapshot().Watches; n == 0 || n > 2*16+2 {
			t.Errorf("%d topics are watched", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, c := range []*Client{a, b} {
			if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
				t.Errorf("left: %+v", s)
			}
		}
	})
}

func TestAFairWaiterIsServedByItsOwnClientsPlainHolder(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		f := fairKind(t, c)
		for name, release := range map[string]func(*Lease){
			"Unlock":      func(l *Lease) { must(t, l.Unlock(t.Context())) },
			"ForceUnlock": func(*Lease) { c.ForceUnlock(t.Context(), "x", "") },
		} {
			l, err := c.Lock(t.Context(), "x")
			must(t, err)
			w := queued(t.Context(), f, "x")
			start := time.Now()
			release(l)
			lease := w.lease(t)
			if d := time.Since(start); d > 0 {
				t.Errorf("%s: served %v after it", name, d)
			}
			plain := later(func() error { return thenUnlock(c.Lock(t.Context(), "x")) })
			synctest.Wait()
			must(t, lease.Unlock(t.Context()))
			must(t, <-plain)
			if d := time.Since(start); d > 0 {
				t.Errorf("%s: the plain waiter was served %v after it", name, d)
			}
		}
	})
}

func TestKindsOfFairLocks(t *testing.T) {
	c := on(t, memory.New())
	for _, k := range [][]Option{{}, {Fenced()}, {NonReentrant()}, {Fenced(), NonReentrant()}} {
		f := c.With(append(k, Fair())...)
		l := need(f.TryLock(t.Context(), "x"))(t)
		if token := l.Token(); (token > 0) != slices.Contains(k, Fenced()) {
			t.Errorf("%+v: token %d", k, token)
		}
		_, err := f.TryLock(l.Context(), "x")
		if again := !errors.Is(err, ErrInvalid); again == slices.Contains(k, NonReentrant()) {
			t.Errorf("%+v: entered again: %v", k, err)
		}
		c.ForceUnlock(t.Context(), "x", "")
	}
	wants(t, errorOf(c.Lock(t.Context(), "x", Fair(), Polling(time.Second))), ErrInvalid)

	without := on(t, spyOn(memory.New(), "", nil))
	wants(t, errorOf(without.Lock(t.Context(), "x", Fair())), ErrInvalid)
}

// Waiters of a fair lock leave at the same cost, however many there are.
func TestManyWaitersOfAFairLockLeaveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, memory.New())
		fair := c.With(Fair())
		l := need(fair.Lock(t.Context(), "n"))(t)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				wants(t, errorOf(fair.Lock(ctx, "n")), context.Canceled)
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		must(t, l.Unlock(t.Context()))
		time.Sleep(time.Minute)
		if s := engineOf(c).Probe().Snapshot(); s.Lines+s.Names != 0 {
			t.Errorf("left: %+v", s)
		}
	})
}

// The lease of a fair lock once counted from the request that was answered, though an earlier one, which took
// longer than a lease, had acquired it: the holder kept its lease longer than the store did.
// See rule 2 of package backendtest.
func TestAFairLeaseCountsFromBeforeTheRequestThatMayHaveAcquiredIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		holder, c := on(t, b), on(t, b)
		_, err := holder.Lock(t.Context(), "x", WithLease(11500*time.Millisecond))
		must(t, err)
		start := time.Now()
		w := queued(t.Context(), fairKind(t, c), "x", WithLease(10*time.Second))

		// The request of 1 s is delayed; it arrives at 10.9 s.
		arrives := make(chan struct{})
		lost := false
		b.hook("Fair.Acquire", func(c *call) error {
			if lost {
				return c.run(context.Background())
			}
			lost = true
			go func() {
				<-arrives
				c.run(context.Background())
			}()
			return unknownOutcome()
		})
		time.Sleep(time.Second)
		engineOf(c).Handler().Released(backend.Topic{Kind: backend.KindLock, Name: "x"})
		synctest.Wait()
		if !lost {
			t.Fatal("it did not ask")
		}
		time.Sleep(9900*time.Millisecond - time.Since(start.Add(time.Second)))
		b.Delete("x") // without a message
		close(arrives)
		seen := make(chan struct{})
		b.hook("Fair.Leave", func(c *call) error { // its own leaving, once the lease is over, comes after the look
			<-seen
			return c.run(context.Background())
		})
		<-w.lease(t).Context().Done()
		defer close(seen)
		if s, err := holder.Inspect(t.Context(), "x"); err != nil || !s.Held {
			t.Errorf("it was believed in until %v, when the store had let it go: %+v, %v", time.Since(start), s, err)
		}
	})
}

// After an unknown outcome a long time ago, a waiter once did not leave the queue: its client still subscribes, so
// releases went to it for minutes.
// See rule 9 of package backendtest.
func TestAFairWaiterLeavesTheQueueThoughAnOldOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		holder, c := on(t, b), on(t, b)
		l, err := holder.Lock(t.Context(), "x", WithLease(time.Hour))
		must(t, err)
		ctx, leave := context.WithCancel(t.Context())
		w := queued(ctx, fairKind(t, c), "x")
		lost := false
		b.hook("Fair.Acquire", func(c *call) error {
			if !lost {
				lost = true
				return unknownOutcome()
			}
			return c.run(context.Background())
		})
		engineOf(c).Handler().Released(backend.Topic{Kind: backend.KindLock, Name: "x"})
		synctest.Wait()
		time.Sleep(time.Minute)
		leave()
		wants(t, (<-w).err, context.Canceled)
		next := queued(t.Context(), fairKind(t, on(t, b)), "x")
		start := time.Now()
		must(t, l.Unlock(t.Context()))
		next.lease(t)
		if d := time.Since(start); d > 0 {
			t.Errorf("the next was served after %v", d)
		}
	})
}

// A wait near the largest duration once overflowed to none: the waiter was not in the queue.
func TestAFairWaiterWithoutABoundIsInTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder := open()
		l, err := holder.Lock(t.Context(), "x")
		must(t, err)
		first := queued(t.Context(), fairKind(t, open()), "x", WithWait(math.MaxInt64))
		second := queued(t.Context(), fairKind(t, open()), "x", WithWait(math.MaxInt64))
		time.Sleep(50 * time.Hour)
		third := queued(t.Context(), fairKind(t, open()), "x")
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		for i, w := range []waiter{first, second, third} {
			synctest.Wait()
			if len(w) == 0 {
				t.Fatalf("waiter %d is not the next", i)
			}
			must(t, w.lease(t).Unlock(t.Context()))
		}
	})
}

// With a dead waiter alone in the fair queue, a release once woke no plain waiter.
// See rule 8 of package backendtest.
func TestAPlainWaiterIsServedWhenAllFairWaitersAreDead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		f := fairKind(t, open())
		l, err := f.Lock(t.Context(), "x", WithLease(time.Hour))
		must(t, err)
		dead(t, s, "dead:1")
		plain := queued(t.Context(), open(), "x")
		start := time.Now()
		must(t, l.Unlock(t.Context()))
		plain.lease(t)
		if d := time.Since(start); d > 0 {
			t.Errorf("served %v after the release", d)
		}
	})
}

// A waiter whose question is on its way when Shutdown begins may be refused when the client has forgotten the queue.
func TestShutdownWhileAFairWaiterAsksForLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var asked atomic.Int32
		c := on(t, spyOn(s, "Fair", hooks{"Fair.Acquire": func(c *call) error {
			if asked.Add(1) > 1 {
				time.Sleep(2 * time.Second)
			}
			return c.run(context.Background())
		}}))
		need(open().Lock(t.Context(), "x"))(t)
		waiter := queued(t.Context(), c.With(Fair()), "x")
		if asked.Load() != 2 {
			t.Fatalf("the waiter asked %d times, and is not asking", asked.Load())
		}
		must(t, c.Shutdown(t.Context()))
		wants(t, (<-waiter).err, ErrClosed)
		if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
			t.Errorf("left: %+v", s)
		}
	})
}
