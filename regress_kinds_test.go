package mortise

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Bugs of the kinds besides the plain lock that were, as in regress_test.go.

// counted is a spy with the kinds that count, fair and read-write locks.
func counted() *spy {
	return spyOn(memory.New(), "ReadWrite Fair Semaphores CountDownLatches CountingSemaphores", nil)
}

// Shutdown did not wait for the withdrawal of a writer that it had sent away: fresh readers
// were kept out for the watchdog timeout.
func TestRule14_ShutdownWithdrawsTheClaimsOfWritersThatWait(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := memory.New()
			a, b := on(t, s), on(t, s)
			read := a.RW().Read
			write := b.RW().Write
			held := need(read.Lock(t.Context(), "x"))(t)
			w := make(chan error, 1)
			go func() {
				_, err := write.Lock(context.Background(), "x")
				w <- err
			}()
			synctest.Wait()
			must(t, b.Shutdown(t.Context()))
			wants(t, <-w, ErrClosed)
			l := need(read.TryLock(t.Context(), "x"))(t)
			must(t, errors.Join(l.Unlock(t.Context()), held.Unlock(t.Context())))
		})
	}
}

// What an acquisition took whose reply came late in a Shutdown was given up
// without one attempt to give it back.
func TestRule14_WhatAReplyBringsLateInAShutdownIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		other, c := on(t, b), on(t, b)
		must(t, errorOf(other.CountingSemaphore("s").TrySetPermits(t.Context(), 3)))
		slow := make(chan struct{})
		late := func(c *call) error {
			err := c.run(context.Background())
			<-slow
			return err
		}
		b.hook("TakeCount", late)
		b.hook("Acquire", late)
		took, locked := make(chan error, 1), make(chan error, 1)
		go func() { took <- c.CountingSemaphore("s").Acquire(context.Background(), 3) }()
		go func() {
			_, err := c.Lock(context.Background(), "l")
			locked <- err
		}()
		synctest.Wait()
		down := make(chan error, 1)
		go func() { down <- c.Shutdown(context.Background()) }()
		time.Sleep(3 * time.Second)
		close(slow)
		wants(t, <-took, ErrClosed)
		wants(t, <-locked, ErrClosed)
		must(t, <-down)
		n, err := other.CountingSemaphore("s").Available(t.Context())
		if err != nil || n != 3 {
			t.Errorf("%d permits are free, %v", n, err)
		}
		if s, err := other.Inspect(t.Context(), "l"); err != nil || s.Held {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

// Holders of a lock may enter it again while the client shuts down, so that they can
// finish; readers could not.
func TestRule14_AReaderEntersAgainWhileTheClientShutsDown(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open()
		read, write := c.RW().Read, c.RW().Write
		r := need(read.Lock(t.Context(), "x"))(t)
		w := need(write.Lock(t.Context(), "y"))(t)
		down := make(chan error, 1)
		go func() { down <- c.Shutdown(context.Background()) }()
		synctest.Wait()
		for _, h := range []struct {
			l    Locker
			name string
			from *Lease
		}{{read, "x", r}, {read, "y", w}, {write, "y", w}} {
			l := need(h.l.Lock(h.from.Context(), h.name))(t)
			must(t, l.Unlock(t.Context()))
		}
		wants(t, errorOf(read.Lock(t.Context(), "x")), ErrClosed)
		must(t, errors.Join(r.Unlock(t.Context()), w.Unlock(t.Context()), <-down))
	})
}

// A waiter's answer was cut off by Shutdown where its context cannot end, and called the
// store's failure.
func TestRule14_WhatShutdownCutsOffSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		c := on(t, b)
		b.hook("Latch.Count", unanswered)
		b.hook("AddCount", unanswered)
		errs := make(chan error, 4)
		go func() { errs <- c.CountDownLatch("l").Wait(context.Background()) }()
		go func() { _, err := c.CountDownLatch("l").Count(context.Background()); errs <- err }()
		go func() { errs <- c.CountingSemaphore("s").AddPermits(context.Background(), 1) }()
		go func() { errs <- c.CountingSemaphore("s").Release(context.Background(), 1) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		must(t, c.Shutdown(ctx))
		for range 4 {
			err := <-errs
			if !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable) {
				t.Errorf("%v, want ErrClosed", err)
			}
		}
	})
}

// A release that Shutdown cut off was promised to be retried.
func TestRule14_AnUnlockThatShutdownCutsOffSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		c := on(t, b)
		l := need(c.Lock(t.Context(), "x"))(t)
		b.hook("Release", unanswered)
		unlocked := make(chan error, 1)
		go func() { unlocked <- l.Unlock(context.Background()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Shutdown(ctx)
		if err := <-unlocked; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnavailable) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// The lease of a fair lock counted from the request that was answered, though one sent earlier,
// which took longer than a lease, had got it: the holder believed in it for longer than the store.
func TestRule02_AFairLeaseCountsFromBeforeTheRequestThatMayHaveGotIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		holder, c := on(t, b), on(t, b)
		_, err := holder.Lock(t.Context(), "x", WithLease(11500*time.Millisecond))
		must(t, err)
		start := time.Now()
		w := queued(fairKind(t, c), t.Context(), WithLease(10*time.Second))

		// At 1 s one request is lost sight of; it arrives at 10.9 s.
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
		c.engine.Handler().Released(backend.Topic{Kind: backend.KindLock, Name: "x"})
		synctest.Wait()
		if !lost {
			t.Fatal("it did not ask")
		}
		time.Sleep(9900*time.Millisecond - time.Since(start.Add(time.Second)))
		b.Delete("x") // no client is told
		close(arrives)
		got := <-w
		must(t, got.err)
		<-got.lease.Context().Done()
		if s, err := holder.Inspect(t.Context(), "x"); err != nil || !s.Held {
			t.Errorf("it was believed in until %v, when the store had let it go: %+v, %v", time.Since(start), s, err)
		}
	})
}

// Where an outcome was unknown, and a long time had passed since, a place was not given up: its
// channel is still listened for, so it is told of each release, for minutes.
func TestRule09_AFairPlaceIsGivenUpThoughAnOldOutcomeIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := counted()
		holder, c := on(t, b), on(t, b)
		l, err := holder.Lock(t.Context(), "x", WithLease(time.Hour))
		must(t, err)
		ctx, leave := context.WithCancel(t.Context())
		w := queued(fairKind(t, c), ctx)
		lost := false
		b.hook("Fair.Acquire", func(c *call) error {
			if !lost {
				lost = true
				return unknownOutcome()
			}
			return c.run(context.Background())
		})
		c.engine.Handler().Released(backend.Topic{Kind: backend.KindLock, Name: "x"})
		synctest.Wait()
		time.Sleep(time.Minute)
		leave()
		wants(t, (<-w).err, context.Canceled)
		next := queued(fairKind(t, on(t, b)), t.Context())
		start := time.Now()
		must(t, l.Unlock(t.Context()))
		a := <-next
		must(t, a.err)
		if d := time.Since(start); d > 0 {
			t.Errorf("the next was served after %v", d)
		}
	})
}

// A wait that no duration can be rounded up from was none: the waiter had no place.
func TestAFairWaiterWhoWaitsForEverHasAPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		holder := open()
		l, err := holder.Lock(t.Context(), "x")
		must(t, err)
		first := queued(fairKind(t, open()), t.Context(), WithWait(math.MaxInt64))
		second := queued(fairKind(t, open()), t.Context(), WithWait(math.MaxInt64))
		time.Sleep(50 * time.Hour)
		third := queued(fairKind(t, open()), t.Context())
		must(t, l.Unlock(t.Context()))
		synctest.Wait()
		for i, w := range []<-chan answered{first, second, third} {
			synctest.Wait()
			if len(w) == 0 {
				t.Fatalf("waiter %d is not the next", i)
			}
			a := <-w
			must(t, a.err)
			must(t, a.lease.Unlock(t.Context()))
		}
	})
}

// The first of a fair queue being dead, and no waiter behind it, waiters for the plain
// lock were not told of a release.
func TestRule08_APlainWaiterIsToldWhereAllInTheFairQueueAreDead(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		f := fairKind(t, open())
		l, err := f.Lock(t.Context(), "x", WithLease(time.Hour))
		must(t, err)
		dead(t, s, "dead:1")
		plain := queued(open(), t.Context())
		start := time.Now()
		must(t, l.Unlock(t.Context()))
		a := <-plain
		must(t, a.err)
		if d := time.Since(start); d > 0 {
			t.Errorf("served %v after the release", d)
		}
	})
}

// A writer whose lease was over went on keeping readers out where one that had entered under it
// lived on.
func TestRule04_AWritersLeaseEndsThoughAReaderUnderItLivesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		rw := open().RW()
		read, write := rw.Read, rw.Write
		w := need(write.Lock(t.Context(), "x", WithLease(10*time.Second)))(t)
		r := need(read.Lock(w.Context(), "x"))(t)
		start := time.Now()
		fresh := open().RW().Read
		l := need(fresh.Lock(t.Context(), "x", WithWait(time.Hour)))(t)
		if d := time.Since(start); d > 11*time.Second {
			t.Errorf("the next reader waited %v", d)
		}
		wants(t, w.Err(), ErrLost)
		must(t, r.Err())
		must(t, errors.Join(l.Unlock(t.Context()), r.Unlock(t.Context())))
		wants(t, w.Unlock(t.Context()), ErrLost)
	})
}

// Redis counts in doubles inside of scripts: a count near the end of int64 came back negative,
// which is an open latch.
func TestALatchsCountIsBounded(t *testing.T) {
	c := on(t, memory.New())
	wants(t, errorOf(c.CountDownLatch("l").TrySet(t.Context(), math.MaxInt64)), ErrInvalid)
	set, err := c.CountDownLatch("l").TrySet(t.Context(), 1<<53)
	if err != nil || !set {
		t.Error(set, err)
	}
}
