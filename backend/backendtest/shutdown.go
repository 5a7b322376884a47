package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
)

// shutdownTests are about Shutdown, and about goroutines and connections that must not grow.
var shutdownTests = []test{
	{"Rule14_ShutdownRefusesNewLocksAndWakesWaiters", func(e *env) {
		holder, c, f := heldByAnother(e)
		waiting := several(5, func() <-chan result { return locking(c, background, "n") })
		e.settled(f)
		e.done("Shutdown", receive(e, "Shutdown returns", async(func() error { return c.Shutdown(background) })))
		for _, ch := range waiting {
			e.named(receive(e, "a waiter wakes", ch).err, "lock", "n", mortise.ErrClosed)
		}
		e.named(second(c.Lock(background, "m")), "lock", "m", mortise.ErrClosed)
		e.named(second(c.TryLock(background, "m")), "trylock", "m", mortise.ErrClosed)
		e.named(second(c.Inspect(background, "m")), "inspect", "m", mortise.ErrClosed)
		e.named(second(c.ForceUnlock(background, "n", "")), "forceunlock", "n", mortise.ErrClosed)
		e.is("Ping", c.Ping(background), mortise.ErrClosed)
		rec := holder.record("n")
		e.errorIf(!rec.Held || rec.Owner != "a:1", "another client's record is %+v", rec)
		e.done("Close after Shutdown", c.Close())
	}},
	{"Rule14_ShutdownWaitsForUnlocksAndRenewsMeanwhile", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(watchdog))
		outer := e.lock(c, background, "n")
		inner := e.lock(c, outer.Context(), "n")
		down := async(func() error { return c.Shutdown(background) })
		e.refuses("it refuses new locks", c, "m", mortise.ErrClosed)
		before := f.Count(OpRenew)
		e.until("it renews what is held", func() bool { return f.Count(OpRenew) >= before+2 || outer.Err() != nil })
		if outer.Err() != nil || inner.Err() != nil || len(down) > 0 {
			e.Errorf("leases %v, %v; Shutdown is over: %v", outer.Err(), inner.Err(), len(down) > 0)
		}
		e.unlock(inner, outer)
		e.done("Shutdown", receive(e, "Shutdown returns", down))
		s := e.inspect(e.client(), "n")
		e.errorIf(s.Held, "the record is %+v", s)
	}},
	{"Rule14_LeasesThatRemainEndAndTheirKeysExpire", func(e *env) {
		const watchdog = 2 * watchdog
		c := e.client(mortise.WithWatchdogTimeout(watchdog))
		other := e.client()
		lease := e.lock(c, background, "n")
		inner := e.lock(c, lease.Context(), "n")
		fixed := e.lock(c, background, "fixed", mortise.WithLease(long))
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		err := receive(e, "Shutdown returns", async(func() error { return c.Shutdown(ctx) }))
		e.is("Shutdown", err, context.DeadlineExceeded)
		for _, l := range []*mortise.Lease{lease, inner, fixed} {
			receive(e, "a lease's context ends", l.Context().Done())
			e.is("Err", l.Err(), mortise.ErrClosed)
			e.is("cause", context.Cause(l.Context()), mortise.ErrClosed)
		}
		e.is("Unlock afterwards", inner.Unlock(background), mortise.ErrNotHeld)
		s := e.inspect(other, "n")
		e.errorIf(!s.Held || s.Holds != 2, "it was released under running work: %+v", s)
		s = e.inspect(other, "fixed")
		e.errorIf(!s.Held, "it was released under running work: %+v", s)
		begin := time.Now()
		e.unlock(e.lock(other, background, "n"))
		e.tookAtMost("the key expired only after %v", begin, watchdog+8*time.Second)
	}},
	{"Rule14_CloseIsBounded", func(e *env) {
		c := e.client()
		lease := e.lock(c, background, "n")
		begin := time.Now()
		e.errorIf(receive(e, "Close returns", async(c.Close)) == nil, "Close does not say that a lock was still held")
		d := time.Since(begin)
		e.errorIf(d < 4*time.Second || d > 15*time.Second, "Close took %v, want 5s", d)
		e.is("Err", lease.Err(), mortise.ErrClosed)
	}},
	{"Rule14_CloseIsBoundedAlsoAfterAShutdownThatIsNot", func(e *env) {
		c := e.client()
		lease := e.lock(c, background, "n")
		down := async(func() error { return c.Shutdown(background) })
		e.until("it is shutting down", func() bool {
			_, err := c.Inspect(background, "n")
			return errors.Is(err, mortise.ErrClosed)
		})
		begin := time.Now()
		receive(e, "Close returns", async(c.Close))
		e.tookAtMost("Close took %v", begin, 15*time.Second)
		lease.Unlock(background)
		receive(e, "Shutdown returns", down)
	}},
	{"Rule14_CloseIsBoundedWhileTheStoreIsAway", func(e *env) {
		c := e.client()
		lease := e.lock(c, background, "n")
		e.store.Down()
		lease.Unlock(background)
		begin := time.Now()
		receive(e, "Close returns", async(c.Close))
		e.tookAtMost("Close took %v", begin, 15*time.Second)
	}},
	{"Rule14_NoGoroutineIsLeft", func(e *env) {
		b := e.store.Backend()
		open := func() *mortise.Client {
			return value(mortise.New(b, mortise.WithWatchdogTimeout(watchdog))).in(e)
		}
		round := 0
		use := func() {
			round++
			n, held := fmt.Sprintf("n%d", round), fmt.Sprintf("held%d", round)
			c, other := open(), open()
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			lease, kept := e.lock(c, ctx, n), e.lock(c, ctx, held)
			waiting := []<-chan result{locking(c, ctx, n), locking(other, ctx, n), locking(other, ctx, held)}
			got := receive(e, "one wait goes on", async(func() error { return lease.Unlock(ctx) }))
			e.errorIf(got != nil, "Unlock: %v", got)
			cancel()
			for _, ch := range waiting {
				if got := receive(e, "Lock returns", ch); got.err == nil {
					got.lease.Unlock(background)
				}
			}
			over := ended()
			c.Shutdown(over)
			other.Close()
			e.is("Err after Shutdown", kept.Err(), mortise.ErrClosed)
		}
		// A library under it may keep a pool warm that belongs to its user: what is
		// looked for is what each further client leaves behind.
		use()
		use()
		before, _ := e.goroutines()
		for range 5 {
			use()
		}
		e.noMoreGoroutines("nothing is left of closed clients", before, before+1)
	}},
	{"Rule15_GoroutinesAndConnectionsDoNotGrowWithLeases", func(e *env) {
		c := e.client()
		hold := func(from, to int) {
			for i := from; i < to; i++ {
				e.lock(c, background, fmt.Sprintf("n%d", i))
			}
		}
		e.turns(50, 1, func(i, _ int) error { // what a client begins with
			return e.inside(c, background, fmt.Sprintf("w%d", i), func(*mortise.Lease) {})
		})
		hold(0, 1)
		one, _ := e.goroutines()
		connections := e.store.Connections()
		hold(1, 1000)
		e.noMoreGoroutines("as many goroutines as with one lease", one, one+4*e.servers())
		k := e.store.Connections()
		e.errorIf(k > connections+8*e.servers(), "%d connections with 1 lease, %d with 1000", connections, k)
	}},
	{"Rule15_GoroutinesAndConnectionsDoNotGrowWithWaiters", func(e *env) {
		holder, _ := e.session()
		c, f := e.tapped()
		ctx, cancel := context.WithCancel(background)
		const names, each = 250, 4
		var all []<-chan result
		wait := func(from, to int) {
			for i := from; i < to; i++ {
				name := fmt.Sprintf("n%d", i)
				holder.take(name, "a:1", long)
				for range each {
					all = append(all, locking(c, ctx, name))
				}
			}
			e.until("all wait", func() bool { return f.Watching() >= to })
		}
		const few = 50
		wait(0, few)
		var first int
		e.until("the first sleep", func() bool {
			n, _ := e.goroutines()
			was := first
			first = n
			return n == was
		})
		connections := e.store.Connections()
		wait(few, names)
		// The callers wait in goroutines of their own.
		e.noMoreGoroutines("no more goroutines than callers", first, first+(names-few)*each+4*e.servers())
		if k := e.store.Connections(); k > connections+40*e.servers() { // a pool's worth
			e.Errorf("%d connections with %d waiters, %d with %d", connections, few*each, k, names*each)
		}
		cancel()
		for _, ch := range all {
			e.is("Lock", receive(e, "a waiter leaves", ch).err, context.Canceled)
		}
		e.until("every watch is ended", func() bool { return f.Count(OpUnsubscribe) == f.Count(OpSubscribe) })
	}},
	{"Rule15_RenewalsAreSentInBatches", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(2 * watchdog))
		const n = 400
		leases := make([]*mortise.Lease, n)
		for i := range leases {
			leases[i] = e.lock(c, background, fmt.Sprintf("n%d", i))
		}
		total := func() (calls, renewals int) {
			for _, call := range f.Calls(OpRenew) {
				calls++
				renewals += call.Requests
			}
			return calls, renewals
		}
		e.until("each is renewed twice", func() bool { _, k := total(); return k >= 2*n })
		calls, renewals := total()
		e.errorIf(calls*4 > renewals, "%d renewals took %d commands", renewals, calls)
		for _, l := range leases {
			e.must("a lease ended", l.Err())
		}
	}},
}
