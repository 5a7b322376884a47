package backendtest

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
)

// releaseTests are about releases, and about requests whose outcome is unknown.
var releaseTests = []test{
	{"Rule10_UnlockUnderACancelledContextReleases", func(e *env) {
		c := e.client()
		gone := ended()
		for range 20 {
			lease := e.lock(c, background, "n", mortise.WithLease(long))
			if err := lease.Unlock(gone); err != nil {
				e.is("Unlock", err, context.Canceled)
			}
			e.is("the lease's Err", lease.Err(), mortise.ErrReleased)
			e.free(c, "n")
		}
	}},
	{"Rule10_UnlockReturnsWhenItsContextEndsAndTheReleaseGoesOn", func(e *env) {
		c, f := e.tapped()
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		reach := f.holds(requestLate, OpRelease)
		ctx, cancel := context.WithTimeout(background, 100*time.Millisecond)
		defer cancel()
		err := receive(e, "Unlock returns", async(func() error { return lease.Unlock(ctx) }))
		e.named(err, "unlock", "n", context.DeadlineExceeded)
		receive(e, "the lease's context ended", lease.Context().Done())
		close(reach)
		e.free(c, "n")
	}},
	{"Rule10_AReleaseThatFailsIsRepeatedInTheBackground", func(e *env) {
		c, f := e.tapped()
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		f.Hook(func(call Call) Fate { return Fate{Refused: call.Op == OpRelease} })
		err := receive(e, "Unlock returns", async(func() error { return lease.Unlock(background) }))
		e.named(err, "unlock", "n", mortise.ErrUnavailable)
		f.Hook(nil)
		e.free(c, "n")
	}},
	{"Rule10_AReleaseBegunWhileTheStoreIsAwayIsDoneWhenItIsBack", func(e *env) {
		c := e.client()
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		e.store.Down()
		err := receive(e, "Unlock returns", async(func() error { return lease.Unlock(background) }))
		e.named(err, "unlock", "n", mortise.ErrUnavailable)
		e.store.Up()
		e.free(c, "n")
	}},
	{"Rule11_AnAcquireWhoseReplyWasLostCountsOnce", func(e *env) {
		c, f := e.tapped()
		lose(f, OpAcquire, 1)
		lease := e.lock(c, background, "n", mortise.WithLease(long))
		e.fatalIf(f.Count(OpAcquire) < 2, "no reply was lost")
		e.holds(c, "n", 1)
		e.unlockLast(c, lease)
	}},
	{"Rule11_AReentryWhoseReplyWasLostCountsOnce", func(e *env) {
		c, f := e.tapped()
		outer := e.lock(c, background, "n", mortise.WithLease(long))
		lose(f, OpSetHolds, 1)
		inner := e.lock(c, outer.Context(), "n")
		e.fatalIf(f.Count(OpSetHolds) < 2, "no reply was lost")
		e.holds(c, "n", 2)
		e.unlock(inner)
		e.holds(c, "n", 1)
		e.unlock(outer)
	}},
	{"Rule11_AnUnlockWhoseReplyWasLostSucceeds", func(e *env) {
		c, f := e.tapped()
		outer, inner := e.lockTwice(c)
		for i, l := range []*mortise.Lease{inner, outer} {
			before := f.Count(OpRelease)
			lose(f, OpRelease, 1)
			e.unlock(l)
			e.fatalIf(f.Count(OpRelease) < before+2, "no reply was lost")
			s := e.inspect(c, "n")
			e.errorIf(s.Holds != 1-i, "%d holds, want %d", s.Holds, 1-i)
		}
	}},
	{"Rule11_ManyLostRepliesLeaveTheCountRight", func(e *env) {
		c, f := e.tapped()
		loseEveryOther(f)
		for range 10 {
			ctx := background
			var leases []*mortise.Lease
			for i := range 3 {
				l := e.lock(c, ctx, "n", mortise.WithLease(long))
				leases = append(leases, l)
				ctx = l.Context()
				s := e.inspect(c, "n")
				e.errorIf(s.Holds != i+1, "%d holds, want %d", s.Holds, i+1)
			}
			for i := 2; i >= 0; i-- {
				e.unlock(leases[i])
				e.holds(c, "n", i)
			}
		}
	}},
}
