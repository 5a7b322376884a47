package mortise

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
)

func fairKind(t *testing.T, c *Client) Locker {
	t.Helper()
	f := need(c.Locker(Fair()))(t)
	return f
}

// queued has a call wait for the fair lock x, and returns when it has its place.
func queued(f Locker, ctx context.Context, opts ...Option) <-chan answered {
	ch := make(chan answered, 1)
	go func() {
		l, err := f.Lock(ctx, "x", opts...)
		ch <- answered{l, err}
	}()
	synctest.Wait()
	return ch
}

type answered struct {
	lease *Lease
	err   error
}

// dead has the store believe that an owner waits that cannot be told.
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
		var waiting []<-chan answered
		for i := range 12 {
			waiting = append(waiting, queued(lockers[i%3], t.Context()))
		}
		done := make(chan struct{})
		for i, w := range waiting {
			go func() {
				a := <-w
				if a.err != nil {
					t.Error(a.err)
				}
				order = append(order, i)
				time.Sleep(20 * time.Minute)
				check(t, a.lease.Unlock(context.Background()))
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
		first := queued(f, t.Context())
		if a := <-first; a.err != nil || time.Since(start) > time.Minute+10*time.Millisecond {
			t.Errorf("%v after %v", a.err, time.Since(start))
		}
	})
}

func TestADeadHolderAndADeadFirstHoldAFairWaiterUpForTwoSecondsMore(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder, f := open(), fairKind(t, open())
		_, err := holder.Lock(t.Context(), "x", WithLease(time.Minute))
		must(t, err)
		start := time.Now()
		dead(t, s, "dead:1")
		dead(t, s, "dead:2")
		w := queued(f, t.Context())
		if a := <-w; a.err != nil || time.Since(start) > time.Minute+2*backend.Absence+10*time.Millisecond {
			t.Errorf("%v after %v", a.err, time.Since(start))
		}
	})
}

func TestFairWithWaitTellsWhatIsLeftAndLeaves(t *testing.T) {
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
		_, err = f.TryLock(t.Context(), "x") // the dead one is before
		wants(t, err, ErrNotAcquired)
		time.Sleep(backend.Absence)
		synctest.Wait()
		l = need(f.TryLock(t.Context(), "x"))(t)
		must(t, l.Unlock(t.Context()))
	})
}

func TestNothingIsKeptOfAFairLockThatNobodyUses(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		for range 40 {
			l, err := fairKind(t, a).Lock(t.Context(), "x")
			must(t, err)
			w := queued(fairKind(t, b), t.Context())
			must(t, l.Unlock(t.Context()))
			got := <-w
			must(t, got.err)
			must(t, got.lease.Unlock(t.Context()))
		}
		if n := b.engine.Probe().Snapshot().Watches; n == 0 || n > 2*16+2 {
			t.Errorf("%d topics are watched", n)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, c := range []*Client{a, b} {
			if s := c.engine.Probe().Snapshot(); s != (engine.Snapshot{}) {
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
			"ForceUnlock": func(*Lease) { c.ForceUnlock(t.Context(), "x") },
		} {
			l, err := c.Lock(t.Context(), "x")
			must(t, err)
			w := queued(f, t.Context())
			start := time.Now()
			release(l)
			a := <-w
			must(t, a.err)
			if d := time.Since(start); d > 0 {
				t.Errorf("%s: served %v after it", name, d)
			}
			plain := make(chan error, 1)
			go func() {
				l, err := c.Lock(t.Context(), "x")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				plain <- err
			}()
			synctest.Wait()
			must(t, a.lease.Unlock(t.Context()))
			must(t, <-plain)
			if d := time.Since(start); d > 0 {
				t.Errorf("%s: the plain waiter was served %v after it", name, d)
			}
		}
	})
}

func TestKindsOfFairLocks(t *testing.T) {
	c := on(t, memory.New())
	for _, k := range [][]LockerOption{{}, {Fenced()}, {NonReentrant()}, {Fenced(), NonReentrant()}} {
		f := need(c.Locker(append(k, Fair())...))(t)
		l := need(f.TryLock(t.Context(), "x"))(t)
		if token, fenced := l.Token(); fenced != slices.Contains(k, Fenced()) || (token > 0) != fenced {
			t.Errorf("%+v: token %d, %v", k, token, fenced)
		}
		_, err := f.TryLock(l.Context(), "x")
		if again := !errors.Is(err, ErrInvalid); again == slices.Contains(k, NonReentrant()) {
			t.Errorf("%+v: entered again: %v", k, err)
		}
		c.ForceUnlock(t.Context(), "x")
	}
	wants(t, errorOf(c.Locker(Fair(), Polling(time.Second))), ErrInvalid)

	without := on(t, spyOn(memory.New(), "", nil))
	wants(t, errorOf(without.Locker(Fair())), ErrInvalid)
}
