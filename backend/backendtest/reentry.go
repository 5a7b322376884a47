package backendtest

import (
	"context"
	"errors"
	"sync"

	"github.com/mortise-go/mortise"
)

// reentryTests are about re-entry by the context of a lease.
var reentryTests = []test{
	{"Rule07_HeldNTimesFreedAtTheNthUnlockWithTheCountInTheStore", func(e *env) {
		c, other := e.client(), e.client()
		const n = 5
		var leases []*mortise.Lease
		ctx := background
		for i := range n {
			l := e.lock(c, ctx, "n", mortise.WithLease(long))
			leases = append(leases, l)
			ctx = l.Context()
			s := e.inspect(other, "n")
			e.errorIf(s.Holds != i+1 || s.Client != c.ID() || s.Mine, "after %d Locks another sees %+v", i+1, s)
		}
		for i := n - 1; i >= 0; i-- {
			_, err := other.TryLock(background, "n")
			e.errorIf(!errors.Is(err, mortise.ErrNotAcquired), "with %d holds left TryLock: %v", i+1, err)
			e.unlock(leases[i])
			e.is("the lease's Err", leases[i].Err(), mortise.ErrReleased)
			s := e.inspect(other, "n")
			e.errorIf(s.Holds != i || s.Held != (i > 0), "with %d holds left the record is %+v", i, s)
			for j := range i {
				err := leases[j].Err()
				e.errorIf(err != nil, "hold %d ended with hold %d: %v", j+1, i+1, err)
			}
		}
		e.unlock(e.lock(other, background, "n"))
	}},
	{"Rule07_HoldsMayBeUnlockedInAnyOrder", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, "n", mortise.WithLease(long))
		// Contexts of inner leases are children of the outer one's and end with it;
		// the holds do not.
		middle := e.lock(c, outer.Context(), "n", mortise.WithLease(long))
		inner := e.lock(c, middle.Context(), "n", mortise.WithLease(long))
		e.unlock(outer)
		e.holds(c, "n", 2)
		e.done("the inner hold ended", inner.Err())
		e.unlock(inner)
		e.holds(c, "n", 1)
		e.unlockLast(c, middle)
	}},
	{"Rule07_ASecondUnlockOfOneLeaseReleasesNoOtherHold", func(e *env) {
		c := e.client()
		outer, inner := e.lockTwice(c)
		e.unlock(inner)
		for range 3 {
			err := inner.Unlock(background)
			e.named(err, "unlock", "n", mortise.ErrReleased)
			e.is("second Unlock", err, mortise.ErrReleased)
		}
		if s := e.inspect(c, "n"); s.Holds != 1 || outer.Err() != nil {
			e.Errorf("the outer hold: %+v, %v", s, outer.Err())
		}
		e.unlock(outer)
		e.is("second Unlock of the outer lease", outer.Unlock(background), mortise.ErrReleased)
	}},
	{"Rule07_ConcurrentUnlocksOfOneLeaseReleaseOnce", func(e *env) {
		c := e.client()
		_, inner := e.lockTwice(c)
		errs := make([]error, 8)
		var wg sync.WaitGroup
		for i := range errs {
			wg.Go(func() { errs[i] = inner.Unlock(background) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				e.is("Unlock", err, mortise.ErrReleased)
			}
		}
		e.errorIf(won != 1, "%d of 8 Unlocks succeeded, want 1", won)
		e.holds(c, "n", 1)
	}},
	{"Rule07_ManyGoroutinesReenterAndTheCountIsRight", func(e *env) {
		c := e.client()
		outer := e.lock(c, background, "n", mortise.WithLease(long))
		e.turns(6, 6, func(int, int) error {
			return mortise.Do(outer.Context(), c, "n", func(ctx context.Context) error {
				return mortise.Do(ctx, c, "n", func(ctx context.Context) error { return ctx.Err() })
			}, mortise.WithWait(patience))
		})
		e.holds(c, "n", 1)
		e.unlockLast(c, outer)
	}},
	{"Rule07_ThroughDoALockIsReleasedAlsoWhenTheWorkPanics", func(e *env) {
		c := e.client()
		func() {
			defer func() {
				e.errorIf(recover() == nil, "the panic was swallowed")
			}()
			mortise.Do(background, c, "n", func(context.Context) error { panic("work") }, mortise.WithLease(long))
		}()
		e.free(c, "n")
	}},
}
