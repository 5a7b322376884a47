package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

// waitingTests are about waiters, and about waiters that leave.
var waitingTests = []test{
	{"Rule08_AWaiterSendsNothingWhileItWaits", func(e *env) {
		holder, c, f := heldByAnother(e)
		waiting := locking(c, background, "n", mortise.WithWait(patience))
		e.settled(f)
		before := f.Count()
		e.always(time.Second, "nothing is sent", func() bool { return f.Count() == before })
		n := f.Count(OpAcquire)
		e.errorIf(n > 3, "it asked %d times before it slept", n)
		released := time.Now()
		holder.release("n", "a:1", 0)
		got := e.granted("the waiter gets it", waiting)
		atMost(e, "it was woken only %v after the release", got.at.Sub(released), 5*time.Second)
	}},
	{"Rule08_WaitersOfOneClientCostAsMuchAsOne", func(e *env) {
		holder, c, f := heldByAnother(e)
		const n = 100
		ctx, cancel := context.WithCancel(background)
		all := several(n, func() <-chan result { return locking(c, ctx, "n") })
		e.settled(f)
		e.always(500*time.Millisecond, "they ask as one",
			func() bool { return f.Count(OpAcquire) <= 3 && f.Count(OpSubscribe) <= 2 })
		before := f.Count(OpAcquire)
		holder.release("n", "a:1", 0)
		// One after the other gets it; each handoff is one command, or two where the
		// announcement of the client's own release wakes the next once more.
		var mu sync.Mutex
		turns := 0
		for _, ch := range all {
			go func() {
				if got := <-ch; got.err == nil {
					mu.Lock()
					turns++
					mu.Unlock()
					got.lease.Unlock(background)
				}
			}()
		}
		e.until("each had its turn", func() bool { mu.Lock(); defer mu.Unlock(); return turns == n })
		cancel()
		k := f.Count(OpAcquire) - before
		e.errorIf(k > 2*n+10, "%d handoffs took %d acquires", n, k)
	}},
	{"Rule08_ACallBehindTooManyWaitersIsRefusedAtOnce", func(e *env) {
		_, c, f := heldByAnother(e)
		ctx, leave := context.WithCancel(background)
		all := several(3, func() <-chan result { return locking(c, ctx, "n", mortise.WithMaxWaiters(3)) })
		e.settled(f)
		before := f.Count()
		for range 20 {
			_, err := c.Lock(background, "n", mortise.WithMaxWaiters(3))
			e.is("Lock behind three waiters", err, mortise.ErrNotAcquired)
		}
		n := f.Count() - before
		e.errorIf(n > 1, "20 calls that were refused sent %d commands", n) // a waiter may have asked again
		leave()
		for _, ch := range all {
			e.is("a waiter", receive(e, "a waiter leaves", ch).err, context.Canceled)
		}
		last := locking(c, background, "n", mortise.WithMaxWaiters(1), mortise.WithWait(50*time.Millisecond))
		e.is("Lock behind no other", receive(e, "its wait is over", last).err, mortise.ErrNotAcquired)
	}},
	{"Rule08_NoWakeUpIsLostBetweenClients", func(e *env) {
		// The leases are long, so a lost wake-up is a hang.
		const clients, rounds = 3, 40
		var turns atomic.Int32
		all := several(clients, func() *mortise.Client { return e.client() })
		e.turns(clients, rounds, func(g, _ int) error {
			lease, err := all[g].Lock(background, "n", mortise.WithWait(patience), mortise.WithLease(long))
			if err != nil {
				return err
			}
			turns.Add(1)
			return lease.Unlock(background)
		})
		n := turns.Load()
		e.errorIf(n != clients*rounds, "%d turns of %d", n, clients*rounds)
	}},
	{"Rule08_AReleaseBeforeTheWatchIsInPlaceIsNotMissed", func(e *env) {
		for i := range 10 {
			name := fmt.Sprintf("n%d", i)
			holder, _ := e.session()
			holder.take(name, "a:1", long)
			c, f := e.tapped()
			var once sync.Once
			f.Hook(func(call Call) Fate {
				if call.Op == OpSubscribe {
					once.Do(func() { holder.release(name, "a:1", 0) })
				}
				return Fate{}
			})
			e.granted("the waiter gets it", locking(c, background, name, mortise.WithWait(patience)))
		}
	}},
	{"Rule08_AWaiterThatLeavesPassesItsWakeUpOn", func(e *env) {
		holder, c, f := heldByAnother(e)
		ctx, leave := context.WithCancel(background)
		head := locking(c, ctx, "n", mortise.WithLease(long)) // a grant by a message is not long enough
		e.settled(f)
		rest := several(3, func() <-chan result {
			return locking(c, background, "n", mortise.WithWait(patience), mortise.WithLease(long))
		})
		// The head is woken by the release, asks, and leaves before it has the answer.
		answer, asked := f.holdsFirst(requestLate, OpAcquire)
		holder.release("n", "a:1", 0)
		receive(e, "the head asks", asked)
		leave()
		e.is("Lock of the head", receive(e, "the head leaves", head).err, context.Canceled)
		close(answer)
		e.servedAll("those behind the waiter that left wake up", rest...)
	}},
	{"Rule08_AWaitThatRunsOutSaysNotAcquired", func(e *env) {
		holder, _ := e.session()
		holder.take("n", "a:1", time.Minute)
		c := e.client()
		begin := time.Now()
		const wait = 3 * time.Second // without an answer by then it would be ErrUnavailable
		_, err := c.Lock(background, "n", mortise.WithWait(wait))
		e.refusedFor("after the wait", err, "lock", time.Minute+time.Second)
		d := time.Since(begin)
		e.errorIf(d < wait || d > wait+5*time.Second, "it took %v, want %v", d, wait)
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		e.named(second(c.Lock(ctx, "n")), "lock", "n", context.DeadlineExceeded)
	}},
	{"Rule09_ALockCancelledWhileItsReplyIsOnItsWayGivesItBack", func(e *env) {
		c, f := e.tapped()
		reply := f.holds(replyLate, OpAcquire)
		e.named(e.abandon(f, background, locks(c, "n", mortise.WithLease(long)), OpAcquire), "lock", "n", context.Canceled)
		equal(e, "%d releases were sent before the acquire was answered", f.Count(OpRelease), 0)
		close(reply)
		f.Hook(nil)
		e.until("a release is confirmed", func() bool {
			releases := f.Calls(OpRelease)
			return len(releases) > 0 && releases[0].Ended > 0
		})
		e.free(c, "n")
		acquire, releases := f.Calls(OpAcquire)[0], f.Calls(OpRelease)
		e.errorIf(len(releases) == 0 || releases[0].Began < acquire.Ended || releases[0].Owner != acquire.Owner,
			"acquire %+v, releases %+v: want a release of its owner after its reply", acquire, releases)
	}},
	{"Rule09_ALockCancelledBeforeItsCommandArrivesLeavesNothing", func(e *env) {
		for what, fate := range map[string]func(<-chan struct{}) Fate{
			"held before it runs":     requestLate,
			"reported lost, runs yet": arrivesLate,
		} {
			c, f := e.tapped()
			arrive := f.holds(fate, OpAcquire)
			err := e.abandon(f, background, locks(c, "n", mortise.WithLease(long)), OpAcquire)
			e.fatalIf(err == nil, "%s: Lock succeeded", what)
			close(arrive)
			f.Hook(nil)
			// It is given back when it is not asked for again.
			e.until(what+": the last attempt has arrived", func() bool {
				return f.Count(OpRelease) > 0 && f.underway(OpAcquire) == 0
			})
			e.until(what+": it took the lock after all, or never will, and gave it back", func() bool {
				return f.answered(OpRelease) > 0 && !e.inspect(c, "n").Held
			})
			e.always(300*time.Millisecond, what+": it stays free", func() bool {
				s := e.inspect(c, "n")
				return !s.Held || time.Duration(s.Remaining) < long/2
			})
		}
	}},
	{"Rule09_AnAcquireThatTakesEffectLateIsCompensated", func(e *env) {
		c, f := e.tapped()
		arrive := f.holds(arrivesLate, OpAcquire)
		e.named(second(c.TryLock(background, "n", mortise.WithLease(long))), "trylock", "n", mortise.ErrUnavailable)
		// The first attempts to give it back find nothing; only then it arrives.
		e.until("it was given back in vain", func() bool { return f.Count(OpRelease) >= 2 })
		close(arrive)
		var once atomic.Bool
		e.until("it took effect and was given back for good", func() bool {
			if e.inspect(c, "n").Held {
				once.Store(true)
				return false
			}
			return once.Load() || f.Count(OpRelease) >= 6
		})
		e.free(c, "n")
	}},
	{"Rule09_AnAcquireWhoseRepliesAreLostIsGivenBack", func(e *env) {
		c, f := e.tapped()
		f.Hook(func(call Call) Fate { return Fate{Lost: call.Op == OpAcquire} })
		_, err := c.Lock(background, "n", mortise.WithWait(patience), mortise.WithLease(long))
		e.named(err, "lock", "n", mortise.ErrUnavailable)
		e.free(c, "n")
		e.errorIf(f.Count(OpRelease) == 0, "no release was sent")
	}},
	{"Rule09_AReentryThatIsCancelledLeavesTheOuterHoldAsItWas", func(e *env) {
		c, f := e.tapped()
		outer := e.lock(c, background, "n", mortise.WithLease(long))
		reply := f.holds(replyLate, OpSetHolds)
		e.named(e.abandon(f, outer.Context(), locks(c, "n"), OpSetHolds), "lock", "n", context.Canceled)
		f.Hook(nil)
		close(reply)
		e.until("the count is that of the outer hold", func() bool { return e.inspect(c, "n").Holds == 1 })
		e.done("the outer hold", outer.Err())
		inner := e.lock(c, outer.Context(), "n")
		e.holds(c, "n", 2)
		e.unlockLast(c, inner, outer)
	}},
	{"Rule09_ACancelledWaiterIsGoneAndItsWatchToo", func(e *env) {
		holder, c, f := heldByAnother(e)
		ctx, cancel := context.WithCancelCause(background)
		waiting := locking(c, ctx, "n")
		e.settled(f)
		why := errors.New("the user went home")
		cancel(why)
		got := receive(e, "Lock returns", waiting)
		e.named(got.err, "lock", "n", context.Canceled)
		e.is("Lock", got.err, why)
		e.until("its watch is ended", func() bool { return f.Count(OpUnsubscribe) == 1 })
		holder.release("n", "a:1", 0)
		e.always(200*time.Millisecond, "no request takes it", func() bool { return !holder.record("n").Held })
	}},
}

// settled waits until a client that waits has nothing more to ask: it watches all that it asked to watch, and
// has asked since for what it waits for.
func (e leases) settled(f *Faults) {
	e.Helper()
	e.until("the waiter sleeps", func() bool {
		asked, watches := false, 0
		for _, c := range f.Calls() {
			switch {
			case c.Ended == 0:
				return false
			case c.Op == OpSubscribe:
				asked, watches = false, watches+1
			case c.Op != OpUnsubscribe:
				asked = asked || watches > 0
			}
		}
		return asked && f.Watching() >= watches
	})
}

// lose loses the replies of the next n calls of op.
func lose(f *Faults, op Op, n int32) {
	var left atomic.Int32
	left.Store(n)
	f.Hook(func(call Call) Fate { return Fate{Lost: call.Op == op && left.Add(-1) >= 0} })
}

// loseEveryOther loses an owner's every other reply to each operation that changes something, from the first
// on. Renewals pass.
func loseEveryOther(f *Faults) {
	var mu sync.Mutex
	seen := make(map[string]int)
	f.Hook(func(c Call) Fate {
		mu.Lock()
		defer mu.Unlock()
		of := string(c.Op) + c.Owner
		seen[of]++
		return Fate{Lost: !slices.Contains([]Op{OpRenew, OpInspect, OpCount}, c.Op) && seen[of]%2 == 1}
	})
}
