package backendtest

import (
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
)

// interruptionTests are about connections that break and stores that restart.
var interruptionTests = []test{
	{"Rule12_AWaiterGetsTheLockThoughItsConnectionBroke", func(e *env) {
		a := e.client()
		b, f := e.tapped()
		for i := range 3 {
			name := fmt.Sprintf("n%d", i)
			lease := e.lock(a, background, name, mortise.WithLease(long))
			watching := f.Watching()
			waiting := locking(b, background, name, mortise.WithWait(patience))
			e.until("the waiter watches", func() bool { return f.Watching() > watching })
			e.store.Cut()
			lease.Unlock(background) // it may take a repetition in the background
			e.granted("the waiter gets it", waiting)
		}
	}},
	{"Rule12_APingOutlivesABrokenConnection", func(e *env) {
		c, f := e.tapped()
		hook, _ := first(Fate{Lost: true}, OpPing)
		f.Hook(hook)
		e.done("Ping", c.Ping(background))
		equal(e, "%d pings were sent", f.Count(OpPing), 2)
	}},
	{"Rule12_RenewalsGoOnAfterAReconnect", func(e *env) {
		c, renewed := renewing(e)
		lease := e.lock(c, background, "n")
		for range 2 {
			e.store.Cut()
			before := renewed.Load()
			e.until("it is renewed twice more", func() bool { return renewed.Load() >= before+2 || lease.Err() != nil })
			e.must("the lease ended", lease.Err())
		}
		e.unlock(lease)
	}},
	{"Rule12_AfterARestartLocksOfTheSameNameAreTakenAndRenewed", func(e *env) {
		c, renewed := renewing(e)
		e.unlock(e.lock(c, background, "n"))
		e.store.Down()
		e.store.Up()
		var lease *mortise.Lease
		e.until("it is taken again", func() (ok bool) {
			var err error
			lease, err = c.TryLock(background, "n")
			return err == nil
		})
		before := renewed.Load()
		e.until("it is renewed three times", func() bool { return renewed.Load() >= before+3 || lease.Err() != nil })
		e.done("the lease ended", lease.Err())
		e.unlock(lease)
	}},
	{"Rule12_AHolderSurvivesAnOutageShorterThanItsLease", func(e *env) {
		c, f := e.tapped(mortise.WithWatchdogTimeout(2 * watchdog))
		lease := e.lock(c, background, "n")
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRenew} })
		e.until("two renewals failed", func() bool { return f.Count(OpRenew) >= 2 })
		f.Hook(nil)
		e.until("one succeeded", func() bool {
			calls := f.Calls(OpRenew)
			last := calls[len(calls)-1]
			return last.Ended > 0 && last.Err == nil
		})
		e.done("the lease ended", lease.Err())
		e.unlock(lease)
	}},
	{"Rule12_AWaiterOutlastsAnOutage", func(e *env) {
		holder, _ := e.session()
		holder.take("n", "a:1", 4*time.Second) // it is not over before the store goes away
		c, f := e.tapped()
		waiting := locking(c, background, "n", mortise.WithWait(patience))
		e.settled(f)
		e.store.Down()
		select {
		case got := <-waiting:
			e.Fatalf("the wait ended with the store: %v", got.err)
		case <-time.After(500 * time.Millisecond):
		}
		e.store.Up()
		e.granted("the waiter gets it", waiting)
	}},
	{"Rule12_WaitersOfManyNamesAllWakeAfterAnInterruption", func(e *env) {
		holder, _ := e.session()
		c, f := e.tapped()
		const n = 50
		var all []<-chan result
		for i := range n {
			name := fmt.Sprintf("n%d", i)
			holder.take(name, "a:1", long)
			all = append(all, locking(c, background, name, mortise.WithWait(patience)))
		}
		e.until("all watch", func() bool { return f.Watching() >= n })
		e.store.Cut()
		for i := range n {
			name := fmt.Sprintf("n%d", i)
			e.eventually("the holder's session works again",
				func() error { return second(holder.ForceRelease(background, topic(name))) })
		}
		for i, ch := range all {
			e.granted(fmt.Sprintf("waiter %d gets it", i), ch)
		}
	}},
}
