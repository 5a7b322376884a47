package clienttest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

func TestShutdownWaitsForUnlocksThenLeavesTheRestToExpire(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(), open()
		short := need(c.Lock(t.Context(), "short"))(t)
		long, err := c.Lock(t.Context(), "long")
		must(t, err)
		waiting := later(func() error { return errorOf(c.Lock(t.Context(), "long")) })
		go func() { time.Sleep(time.Minute); short.Unlock(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		start := time.Now()
		err = c.Shutdown(ctx)
		if d := time.Since(start); d != 2*time.Minute {
			t.Errorf("shutdown took %v", d)
		}
		wants(t, err, context.DeadlineExceeded)
		wants(t, <-waiting, ErrClosed)
		wants(t, short.Err(), ErrReleased)
		wants(t, long.Err(), ErrClosed)
		wants(t, context.Cause(long.Context()), ErrClosed)
		wants(t, long.Unlock(t.Context()), ErrClosed)
		wants(t, errorOf(c.Lock(t.Context(), "y")), ErrClosed)
		st, err := other.Inspect(t.Context(), "long")
		must(t, err)
		if !st.Held || st.Client != c.ID() || st.Remaining > 30*time.Second {
			t.Errorf("%+v, want it held and running out", st)
		}
		if c.Close() != err && c.Close() == nil {
			t.Error("a second Close reports nothing")
		}
	})
}

// Shutdown delivers all events, and names a handler that does not return.
func TestShutdownWaitsForHandlers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var mu sync.Mutex
		told := 0
		c := open(WithObserver(Observer{Lost: func(Event) {
			time.Sleep(2 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			told++
		}}))
		must(t, errorOf(c.Lock(t.Context(), "x", WithLease(MinLease))))
		time.Sleep(time.Second)
		must(t, c.Shutdown(t.Context()))
		if told != 1 {
			t.Errorf("%d events were told before Shutdown returned", told)
		}

		free := make(chan struct{})
		c = open(WithObserver(Observer{Lost: func(Event) { <-free }}))
		for _, name := range []string{"x", "y"} {
			must(t, errorOf(c.Lock(t.Context(), name, WithLease(MinLease))))
		}
		time.Sleep(time.Second)
		start := time.Now()
		err := c.Close()
		wants(t, err, context.DeadlineExceeded)
		if d := time.Since(start); d != 5*time.Second {
			t.Errorf("Close took %v", d)
		}
		if !contains(err.Error(), "1 events wait") {
			t.Error(err)
		}
		close(free)
		synctest.Wait()
	})
}

// A second Shutdown also ends the first Shutdown's wait for handlers.
func TestASecondShutdownEndsTheFirstsWaitForHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		c := on(t, memory.New(), WithObserver(Observer{Lost: func(Event) { <-free }}))
		must(t, errorOf(c.Lock(t.Context(), "x", WithLease(time.Hour))))
		first := later(func() error { return c.Shutdown(context.Background()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go c.Shutdown(ctx)
		select {
		case <-first:
		case <-time.After(time.Minute):
			t.Error("Shutdown waits on after the second's ctx ended")
		}
		close(free)
		synctest.Wait()
	})
}

// Shutdown waits a second for compensation, even if that is repeated rarely by then.
func TestShutdownWaitsASecondForWhatIsCompensatedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, spyOn(memory.New(), "", hooks{"Acquire": failed}))
		wants(t, errorOf(c.Lock(t.Context(), "x", WithLease(10*time.Hour))), ErrUnavailable)
		time.Sleep(time.Hour)
		start := time.Now()
		must(t, c.Shutdown(t.Context()))
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
	})
}

// See rule 14 of package backendtest.
func TestShutdownReleasesNoLockThatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, first := memory.New(), true
		c := on(t, spyOn(st, "", hooks{"Acquire": func(c *call) error {
			if first {
				first = false
				return replyLost(c)
			}
			return c.run(context.Background())
		}}), WithObserver(Observer{Lost: func(Event) { time.Sleep(time.Millisecond) }}))
		must(t, errorOf(c.Lock(t.Context(), "x")))
		c.Shutdown(ended())
		state := need(on(t, st).Inspect(t.Context(), "x"))(t)
		if !state.Held {
			t.Error("the lock was released while its holder worked")
		}
	})
}

// A waiter that has been handed the lock, and does not know it yet, releases it when its client is closed.
func TestShutdownReleasesALockHandedOffToAWaiter(t *testing.T) {
	store := memory.New()
	in, goOn := make(chan struct{}), make(chan struct{})
	a := on(t, store, WithObserver(Observer{Waiting: func(Event) { close(in); <-goOn }}))
	b := on(t, store)
	ctx := context.Background()
	lease, err := a.Lock(ctx, "n")
	must(t, err)
	waiter := later(func() error { return errorOf(a.Lock(ctx, "n")) })
	<-in
	must(t, lease.Unlock(ctx))
	closed := later(func() error { return a.Shutdown(ctx) })
	<-engineOf(a).Probe().Closing()
	close(goOn)
	if err := <-waiter; !errors.Is(err, ErrClosed) {
		t.Errorf("the waiter: %v, want ErrClosed", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if lease, err = b.TryLock(ctx, "n"); err != nil {
		t.Fatalf("what was handed over is left behind: %v", err)
	}
	noError(t, lease.Unlock(ctx))
}

// Shutdown once returned before a writer had withdrawn its claim: new readers were kept out for the watchdog
// timeout.
// See rule 14 of package backendtest.
func TestShutdownWithdrawsTheClaimsOfWaitingWriters(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a, b := on(t, s), on(t, s)
			read := a.RW().Read
			write := b.RW().Write
			held := need(read.Lock(t.Context(), "x"))(t)
			w := later(func() error { return errorOf(write.Lock(context.Background(), "x")) })
			synctest.Wait()
			must(t, b.Shutdown(t.Context()))
			wants(t, <-w, ErrClosed)
			l := need(read.TryLock(t.Context(), "x"))(t)
			must(t, errors.Join(l.Unlock(t.Context()), held.Unlock(t.Context())))
		})
	}
}

// Shutdown once returned before a waiting call had left the store's queue: a release then told a client that was gone.
func TestShutdownLeavesTheStoresQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		b := spyOn(s, "Queue", nil)
		goOn := make(chan struct{})
		c := on(t, b, WithObserver(Observer{Waiting: func(Event) { <-goOn }}))
		l := need(on(t, s).Lock(t.Context(), "x"))(t)
		w := queued(context.Background(), c.With(Polling(10*time.Millisecond)), "x") // enrols at once
		down := later(func() error { return c.Shutdown(context.Background()) })
		synctest.Wait()
		close(goOn)
		must(t, <-down)
		if n := b.take("Leave"); n != 1 {
			t.Errorf("Shutdown has returned, and the call has left the queue %d times", n)
		}
		wants(t, (<-w).err, ErrClosed)
		must(t, l.Unlock(t.Context()))
	})
}

// A grant whose reply arrived late in a Shutdown was once not released at all.
// See rule 14 of package backendtest.
func TestShutdownReleasesWhatALateReplyGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		other, c := on(t, b), on(t, b)
		must(t, errorOf(semaphore.NewCounting(other, "s").TrySetPermits(t.Context(), 3)))
		slow := make(chan struct{})
		late := func(c *call) error {
			err := c.run(context.Background())
			<-slow
			return err
		}
		b.hook("TakeCount", late)
		b.hook("Acquire", late)
		took := later(func() error { return semaphore.NewCounting(c, "s").Acquire(context.Background(), 3) })
		locked := later(func() error { return errorOf(c.Lock(context.Background(), "l")) })
		synctest.Wait()
		down := later(func() error { return c.Shutdown(context.Background()) })
		time.Sleep(3 * time.Second)
		close(slow)
		wants(t, <-took, ErrClosed)
		wants(t, <-locked, ErrClosed)
		must(t, <-down)
		n, err := semaphore.NewCounting(other, "s").Available(t.Context())
		if err != nil || n != 3 {
			t.Errorf("%d permits are free, %v", n, err)
		}
		if s, err := other.Inspect(t.Context(), "l"); err != nil || s.Held {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Holders may re-enter their lock while the client shuts down, so that they can finish; readers once could not.
// See rule 14 of package backendtest.
func TestAReaderReentersDuringShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		read, write := c.RW().Read, c.RW().Write
		r := need(read.Lock(t.Context(), "x"))(t)
		w := need(write.Lock(t.Context(), "y"))(t)
		down := later(func() error { return c.Shutdown(context.Background()) })
		synctest.Wait()
		for _, h := range []struct {
			l    Locker
			name string
			from *Lease
		}{{read, "x", r}, {read, "y", w}, {write, "y", w}} {
			must(t, thenUnlock(h.l.Lock(h.from.Context(), h.name)))
		}
		wants(t, errorOf(read.Lock(t.Context(), "x")), ErrClosed)
		must(t, errors.Join(r.Unlock(t.Context()), w.Unlock(t.Context()), <-down))
	})
}

func TestAHolderReentersDuringShutdownWhileItsReleaseIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := spyOn(memory.New(), "", nil)
		c := on(t, b)
		outer := lock(t, c, context.Background(), "x")
		inner := lock(t, c, outer.Context(), "x")
		b.hook("Release", func(c *call) error { time.Sleep(time.Second); return c.run(c.ctx) })
		down := later(func() error { return c.Shutdown(context.Background()) })
		unlocked := later(func() error { return inner.Unlock(context.Background()) })
		synctest.Wait() // the release of the inner lease is under way
		again, err := c.Lock(outer.Context(), "x")
		must(t, err)
		waiting := later(func() error { return errorOf(c.Lock(outer.Context(), "x")) }) // behind a live hold: refused
		wants(t, <-waiting, ErrClosed)
		must(t, errors.Join(<-unlocked, again.Unlock(t.Context()), outer.Unlock(t.Context()), <-down))
	})
}

func TestAHolderReentersDuringShutdownThoughItsTurnCameBeforeItLooked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 { // a select takes one of two ready channels at random
			b := spyOn(memory.New(), "", nil)
			slow := Observer{Waiting: func(Event) { time.Sleep(time.Minute) }}
			c := on(t, b, WithObserver(slow))
			outer := lock(t, c, context.Background(), "x")
			inner := lock(t, c, outer.Context(), "x")
			b.hook("Release", func(c *call) error { time.Sleep(time.Second); return c.run(c.ctx) })
			down := later(func() error { return c.Shutdown(context.Background()) })
			unlocked := later(func() error { return inner.Unlock(context.Background()) })
			synctest.Wait()
			must(t, errors.Join(thenUnlock(c.Lock(outer.Context(), "x")), <-unlocked, outer.Unlock(t.Context()), <-down))
		}
	})
}

// A call with a context that cannot end, when Shutdown ended it, once reported a failure of the store.
// See rule 14 of package backendtest.
func TestWaitersThatShutdownEndsReportErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		c := on(t, b)
		b.hook("Latch.Count", unanswered)
		b.hook("AddCount", unanswered)
		errs := make(chan error, 4)
		go func() { errs <- latch.New(c, "l").Wait(context.Background()) }()
		go func() { errs <- errorOf(latch.New(c, "l").Count(context.Background())) }()
		go func() { errs <- semaphore.NewCounting(c, "s").AddPermits(context.Background(), 1) }()
		go func() { errs <- semaphore.NewCounting(c, "s").Release(context.Background(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		err := c.Shutdown(ctx)
		if wants(t, err, context.DeadlineExceeded); !contains(err.Error(), `release of 1 locks ("s")`) {
			t.Errorf("%v", err)
		}
		for range 4 {
			err := <-errs
			if !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, want ErrClosed", err)
			}
		}
	})
}

// An Unlock that Shutdown ended once promised a retry.
// See rule 14 of package backendtest.
func TestAnUnlockThatShutdownEndsReportsErrClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		c := on(t, b)
		l := need(c.Lock(t.Context(), "x"))(t)
		b.hook("Release", unanswered)
		unlocked := later(func() error { return l.Unlock(context.Background()) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		wants(t, c.Shutdown(ctx), context.DeadlineExceeded)
		if err := <-unlocked; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// A lease that Shutdown ended is reported when it is unlocked, by itself or with others: so each lease is reported,
// even if a Lost event was dropped.
func TestAnUnlockAfterShutdownIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		var reported []Event
		c := open(WithObserver(Observer{Released: func(e Event) { reported = append(reported, e) }}))
		alone := need(c.Lock(t.Context(), "alone"))(t)
		several := need(c.LockAll(t.Context(), []string{"a", "b"}))(t)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		wants(t, c.Shutdown(ended), context.Canceled)
		for _, want := range []error{ErrClosed, ErrReleased} { // the second Unlock of a lease is not reported
			wants(t, alone.Unlock(t.Context()), want)
			wants(t, several.Unlock(t.Context()), want)
		}
		names := make(map[string]int)
		for _, e := range reported {
			names[e.Name]++
			wants(t, e.Err, ErrClosed)
		}
		if len(reported) != 3 || names["alone"] != 1 || names["a"] != 1 || names["b"] != 1 {
			t.Errorf("reported %v", names)
		}
	})
}

// The error wraps the error of the context and its cause: for leases that are left, for a handler that does not return,
// and where a second Shutdown hurries the first.
func TestTheErrorOfShutdownWrapsTheContextsErrorAndItsCause(t *testing.T) {
	why := errors.New("the deadline of the deployment")
	bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
		ended, end := context.WithCancelCause(t.Context())
		end(why)
		first := open()
		need(first.Lock(t.Context(), "n"))(t)
		err := first.Shutdown(ended)
		wants(t, err, context.Canceled)
		wants(t, err, why)

		hurried := open()
		need(hurried.Lock(t.Context(), "m"))(t)
		waits := later(func() error { return hurried.Shutdown(context.Background()) })
		synctest.Wait()
		_ = hurried.Shutdown(ended)
		err = <-waits
		wants(t, err, context.Canceled)
		wants(t, err, why)

		goOn := make(chan struct{})
		stuck := open(WithObserver(Observer{Lost: func(Event) { <-goOn }}))
		need(stuck.Lock(t.Context(), "k", WithLease(MinLease)))(t)
		time.Sleep(time.Second)
		err = stuck.Shutdown(ended)
		close(goOn)
		wants(t, err, context.Canceled)
		wants(t, err, why)
	})
}

// away returns a spy whose calls fail, with an unknown outcome, until the time in until.
func away(s *memory.Store, can string) (b *spy, until *atomic.Pointer[time.Time]) {
	until = new(atomic.Pointer[time.Time])
	return spyOn(s, can, hooks{anyCall: func(c *call) error {
		if at := until.Load(); at != nil && time.Now().Before(*at) {
			return unknownOutcome()
		}
		return c.run(c.ctx)
	}}), until
}

// The store is away while a process stops. Shutdown gave a release up after a second, and returned nil.
func TestShutdownRepeatsReleasesUntilItsContextEnds(t *testing.T) {
	for what, owe := range map[string]func(t *testing.T, c *Client, goAway func()){
		"a release": func(t *testing.T, c *Client, goAway func()) {
			l := need(c.Lock(t.Context(), "x"))(t)
			goAway()
			wants(t, l.Unlock(t.Context()), ErrUnavailable)
		},
		"an acquisition of unknown outcome": func(t *testing.T, c *Client, goAway func()) {
			goAway()
			wants(t, errorOf(c.Lock(t.Context(), "x")), ErrUnavailable)
		},
		"permits of a counting semaphore": func(t *testing.T, c *Client, goAway func()) {
			s := semaphore.NewCounting(c, "x")
			must(t, errorOf(s.TrySetPermits(t.Context(), 1)))
			must(t, s.Acquire(t.Context(), 1))
			goAway()
			wants(t, s.Release(t.Context(), 1), ErrUnavailable)
		},
	} {
		for _, x := range []struct {
			away, patience time.Duration
			ends           bool
		}{{3 * time.Second, 20 * time.Second, true}, {time.Hour, 20 * time.Second, false}} {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				b, until := away(s, "CountingSemaphores")
				c := on(t, b)
				owe(t, c, func() { at := time.Now().Add(x.away); until.Store(&at) })
				ctx, cancel := context.WithTimeout(t.Context(), x.patience)
				defer cancel()
				began := time.Now()
				err := c.Shutdown(ctx)
				took := time.Since(began)
				switch {
				case x.ends && (err != nil || took > x.away+2*time.Second):
					t.Errorf("%s, away for %v: %v after %v", what, x.away, err, took)
				case !x.ends && (!errors.Is(err, context.DeadlineExceeded) || took != x.patience ||
					!contains(err.Error(), `release of 1 locks ("x")`) || !contains(err.Error(), "gone")):
					t.Errorf("%s, away for %v: %v after %v", what, x.away, err, took)
				}
				if at := time.Now(); x.ends && what != "permits of a counting semaphore" {
					until.Store(&at)
					if need(open().Inspect(t.Context(), "x"))(t).Held {
						t.Errorf("%s: the lock is left", what)
					}
				}
			})
		}
	}
}

// A request whose first answer is still to come when the context of Shutdown ends is owed as later ones are. Shutdown
// returned nil, and permits that such a request took were lost for good.
func TestShutdownReportsWhatHasNoFirstAnswer(t *testing.T) {
	for what, x := range map[string]struct {
		op  string
		owe func(t *testing.T, c *Client) error
	}{
		"a release of permits": {"AddCount", func(t *testing.T, c *Client) error {
			return semaphore.NewCounting(c, "x").Release(t.Context(), 1)
		}},
		"permits": {"TakeCount", func(t *testing.T, c *Client) error {
			return semaphore.NewCounting(c, "x").TryAcquire(t.Context(), 1)
		}},
		"permits whose caller left": {"TakeCount", func(t *testing.T, c *Client) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return semaphore.NewCounting(c, "x").Acquire(ctx, 1)
		}},
		"a release of a lost lease": {"Release", func(t *testing.T, c *Client) error {
			l := need(c.Lock(t.Context(), "x", WithLease(time.Second)))(t)
			<-l.Context().Done()
			return l.Unlock(t.Context())
		}},
		"a release of lost leases": {"ReleaseAll", func(t *testing.T, c *Client) error {
			l := need(c.LockAll(t.Context(), []string{"x", "y"}, WithLease(time.Second)))(t)
			<-l.Context().Done()
			return l.Unlock(t.Context())
		}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				b := spyOn(s, "CountingSemaphores Batch", nil)
				c := on(t, b)
				if !contains(what, "lost") {
					must(t, errorOf(semaphore.NewCounting(c, "x").TrySetPermits(t.Context(), 1)))
				}
				answer := make(chan struct{})
				b.hook(x.op, func(k *call) error { <-answer; return k.run(k.ctx) })
				done := make(chan error, 1)
				go func() { done <- x.owe(t, c) }()
				time.Sleep(2 * time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.Shutdown(ctx)
				close(answer)
				<-done
				if wants(t, err, context.DeadlineExceeded); !contains(err.Error(), `"x"`) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// A failure that stays, as that of a closed Redis client, does not hold Shutdown up.
func TestShutdownReportsAReleaseThatCannotSucceedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		b := spyOn(s, "", nil)
		c := on(t, b)
		l := need(c.Lock(t.Context(), "x"))(t)
		b.hook("Release", func(*call) error { return &backend.Fault{Err: errGone} })
		wants(t, l.Unlock(t.Context()), ErrUnavailable)
		began := time.Now()
		err := c.Close()
		if wants(t, err, ErrUnavailable); time.Since(began) > time.Second || !contains(err.Error(), `("x")`) {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// The lease ends, and the call that holds it unlocks it at once: the Unlock begins as Shutdown finds nothing held.
func TestShutdownAwaitsAnUnlockThatBeginsAsTheLastLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		for range 500 {
			c := on(t, s)
			l := need(c.Lock(t.Context(), "x", WithLease(time.Second/4)))(t)
			unlocked := make(chan error, 1)
			go func() {
				<-l.Context().Done()
				unlocked <- l.Unlock(context.Background())
			}()
			must(t, c.Shutdown(t.Context()))
			wants(t, <-unlocked, ErrLost)
		}
	})
}

// Replies come once Shutdown is over: to a waiter that has left, and to a call that is granted its lock. Shutdown has
// reported both requests; nothing begins any more.
func TestNothingBeginsOnceShutdownIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		c := on(t, b)
		need(open().Lock(t.Context(), "x"))(t)
		ctx, leave := context.WithCancel(t.Context())
		waits := queued(ctx, c, "x")
		slow := make(chan struct{})
		b.hook("Acquire", func(c *call) error {
			err := c.run(context.Background())
			<-slow
			return err
		})
		asks := queued(ctx, c, "y")
		time.Sleep(6 * time.Second) // the waiter asks, too
		leave()
		wants(t, (<-waits).err, context.Canceled)
		wants(t, (<-asks).err, context.Canceled)
		synctest.Wait()
		wants(t, c.Shutdown(ended()), context.Canceled)
		close(slow)
		time.Sleep(time.Minute)
		if s := engineOf(c).Probe().Snapshot(); s.Running != 0 {
			t.Errorf("after Shutdown: %+v", s)
		}
	})
}

// Shutdown gives up a change of a count while a repetition of it is on its way: the log has the last failure that was
// known then. The race detector saw both use it.
func TestShutdownLogsTheFailureOfARequestThatIsStillOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		log, lines := recorder()
		b := counted()
		c := on(t, b, WithLogger(log))
		b.hook("AddCount", func(*call) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			return &backend.Fault{Err: errGone, Temporary: true, MayHaveRun: true}
		})
		wants(t, semaphore.NewCounting(c, "s").Release(t.Context(), 1), ErrUnavailable)
		slow.Store(true)
		time.Sleep(3 * time.Second) // a second later at most it is repeated
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		wants(t, c.Shutdown(gone), context.Canceled)
		time.Sleep(time.Minute)
		s := strings.Join(lines(), "\n")
		if !contains(s, "could not be confirmed and is given up") || contains(s, "err=<nil>") {
			t.Errorf("the log has %s", s)
		}
	})
}
