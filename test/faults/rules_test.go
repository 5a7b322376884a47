package faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// A command's timeout in tests of faults, and a lease that outlives them by far: a
// key that is gone within soon was released, it did not expire.
const (
	brief = time.Second
	ample = 30 * time.Second
	soon  = 8 * time.Second
)

// wired is a server, a wire before it, and a client behind that.
func wired(t *testing.T, s stack, c config, opts ...mortise.ClientOption) (*redistest.Server, *wire, *mortise.Client) {
	srv := redistest.Start(t)
	w := newWire(t, srv.Addr())
	return srv, w, s.client(t, w.Addr(), c, opts...)
}

// live checks how many holds of n the store has.
func live(t *testing.T, srv *redistest.Server, want int, when string) {
	t.Helper()
	n, _ := holds(t, srv, "n")
	harness.ErrorIf(t, n != want, "%d holds in the store%s, %d are live", n, when, want)
}

// point runs f for each fault at each point of an operation, on each client.
func point(t *testing.T, f func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client)) {
	eachDeed(t, func(t *testing.T, s stack, d deed) {
		srv, w, c := wired(t, s, config{Timeout: brief})
		f(t, s, d, srv, w, c)
	})
}

// eachDeed runs f for each fault on each client, side by side.
func eachDeed(t *testing.T, f func(t *testing.T, s stack, d deed)) {
	eachParallel(t, func(t *testing.T, s stack) {
		for _, d := range deeds {
			harness.Beside(t, d.String(), func(t *testing.T) { f(t, s, d) })
		}
	})
}

// runsDown checks for d that a record's time only runs down: nothing renews it, nothing removes it.
func runsDown(t *testing.T, srv *redistest.Server, name string, d time.Duration) {
	t.Helper()
	last := ample
	stays(t, d, "the lease only runs down", func() bool {
		left := pttl(srv, name)
		ok := left > 0 && left <= last
		last = left
		return ok
	})
}

// released checks that nothing of a lock is left, long before its lease would have
// run out, and that another gets it and is left alone.
func released(t *testing.T, srv *redistest.Server, name string) {
	t.Helper()
	await(t, soon, "the key is gone", func() bool { return !exists(srv, name) })
	other := lock(t, direct(t, srv.Addr()), within(t, patience), name, mortise.WithWait(soon), mortise.WithLease(ample))
	runsDown(t, srv, name, 300*time.Millisecond)
	unlock(t, other)
}

// The reply of an acquire is lost, or the acquire itself: Lock succeeds with one
// hold, or fails; in the end nothing is left.
func TestRule09And11_AnAcquireThatMetAFaultHoldsOnceOrLeavesNothing(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client) {
		f := w.arm(d, 1, script("acquire"))
		begun := time.Now()
		l, err := c.Lock(within(t, patience), "n", mortise.WithLease(ample))
		quick(t, "Lock", time.Since(begun), soon)
		closed(t, 0, "the fault struck", f.struck)
		f.let()
		if err != nil {
			check(t, err, mortise.ErrUnavailable)
		} else {
			n, owners := holds(t, srv, "n")
			harness.ErrorIf(t, n != 1 || owners != 1, "the store has %d holds of %d owners", n, owners)
			harness.Check(t, l.Err())
			unlock(t, l)
		}
		released(t, srv, "n")
	})
}

// The caller gives up while its acquire, or the reply, is on its way. It leaves at
// once; what the acquire gets later is released, and the release does not overtake it.
func TestRule09_AnAcquireThatTakesEffectAfterItsCallerGaveUpIsReleased(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client) {
		f := w.arm(d, 1, script("acquire"))
		ctx, cancel := context.WithCancel(context.Background())
		done := locking(c, ctx, "n", mortise.WithLease(ample))
		closed(t, soon, "the fault struck", f.struck)
		cancel()
		at := time.Now()
		r := receive(t, soon, "Lock returned", done)
		took := r.at.Sub(at)
		quick(t, "Lock, after its context ended,", took, soon/2)
		if r.err == nil {
			unlock(t, r.lease) // it was quicker
		} else if cut := d == cutBefore || d == loseAndCut; !errors.Is(r.err, context.Canceled) &&
			!(cut && errors.Is(r.err, mortise.ErrUnavailable)) { // the end of the connection was quicker
			t.Errorf("Lock: %v", r.err)
		}
		// The library gives the connection up meanwhile; the server still gets what
		// was sent, and after what was sent later.
		if d == holdRequest {
			time.Sleep(2 * brief)
		}
		f.arrive(t, srv)
		released(t, srv, "n")
	})
}

// The first of two attempts is held back until the lock, which the second got, was
// unlocked: it takes the lock for no caller, and is found.
func TestRule09_AnAttemptThatArrivesAfterTheUnlockIsReleased(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, w, c := wired(t, s, config{Timeout: brief})
		f := w.arm(holdRequest, 1, script("acquire"))
		l, err := c.Lock(within(t, patience), "n", mortise.WithLease(ample))
		closed(t, 0, "the fault struck", f.struck)
		if err != nil { // a machine so busy that its second attempt timed out as well
			check(t, err, mortise.ErrUnavailable)
			l = lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		}
		unlock(t, l)
		f.arrive(t, srv)
		released(t, srv, "n")
	})
}

// The same with a caller that waits only so long.
func TestRule09_WithWaitRunsOutWhileTheAcquireIsOnItsWay(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		// The wait is long enough for the acquire to be sent, and over before the library's.
		srv, w, c := wired(t, s, config{Timeout: patience})
		f := w.arm(holdRequest, 1, script("acquire"))
		begun := time.Now()
		_, err := c.Lock(within(t, patience), "n", mortise.WithLease(ample), mortise.WithWait(3*time.Second))
		check(t, err, mortise.ErrUnavailable)
		quick(t, "it", time.Since(begun), soon)
		f.let()
		closed(t, soon, "what was held went on", f.passed)
		released(t, srv, "n")
	})
}

// A lost re-entry leaves the count what it should be, at the latest after the next
// operation, and never above the holds that are live.
func TestRule11_AReentryThatMetAFaultLeavesTheCountRight(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client) {
		outer := lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		f := w.arm(d, 1, script("reenter"))
		held := 1
		inner, err := c.Lock(outer.Context(), "n", mortise.WithLease(ample))
		closed(t, 0, "the fault struck", f.struck)
		f.arrive(t, srv)
		parent := outer
		if err == nil {
			held, parent = 2, inner
		} else {
			check(t, err, mortise.ErrUnavailable)
		}
		next := lock(t, c, parent.Context(), "n")
		live(t, srv, held+1, " after the next Lock")
		unlock(t, next)
		live(t, srv, held, " after the next Unlock")
		if inner != nil {
			unlock(t, inner)
		}
		live(t, srv, 1, "")
		harness.Check(t, outer.Err())
		unlock(t, outer)
		released(t, srv, "n")
	})
}

// A re-entry whose caller gives up is taken back.
func TestRule09_AReentryWhoseCallerGaveUpIsTakenBack(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, _ *mortise.Client) {
		// What is held goes on before its client sends it again: after what that took back,
		// it would set the count once more, until the next operation.
		c := s.client(t, w.Addr(), config{Timeout: 4 * time.Second})
		outer := lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		f := w.arm(d, 1, script("reenter"))
		ctx, cancel := context.WithCancel(outer.Context())
		done := locking(c, ctx, "n")
		closed(t, soon, "the fault struck", f.struck)
		cancel()
		r := receive(t, soon, "Lock returned", done)
		if r.err == nil {
			unlock(t, r.lease) // it was quicker
		}
		f.arrive(t, srv)
		await(t, 2*soon, "the count is taken back", func() bool { n, _ := holds(t, srv, "n"); return n == 1 })
		next := lock(t, c, outer.Context(), "n")
		unlock(t, next)
		live(t, srv, 1, "")
		unlock(t, outer)
		released(t, srv, "n")
	})
}

// A renewal that meets a fault is repeated within the lease.
func TestRule12_ARenewalThatMetAFaultIsRepeatedWithinTheLease(t *testing.T) {
	eachDeed(t, func(t *testing.T, s stack, d deed) {
		const watchdog = 9 * time.Second
		srv, w, c := wired(t, s, config{Timeout: brief}, mortise.WithWatchdogTimeout(watchdog))
		l := lock(t, c, within(t, patience), "n")
		f := w.arm(d, 1, script("renew"))
		closed(t, watchdog, "the fault struck", f.struck)
		first := time.Now()
		await(t, watchdog, "the renewal was repeated", func() bool { return pttl(srv, "n") > watchdog*5/6 })
		took := time.Since(first)
		quick(t, "the repetition", took, watchdog*3/4)
		f.let()
		stays(t, watchdog/2, "it is held", func() bool { return l.Err() == nil && exists(srv, "n") })
		unlock(t, l)
		released(t, srv, "n")
	})
}

// A renewal that was held back arrives after the release: it revives nothing, and
// does not touch the next holder's lease.
func TestRule05_ARenewalThatArrivesAfterTheReleaseRevivesNothing(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, w, c := wired(t, s, config{Timeout: brief}, mortise.WithWatchdogTimeout(9*time.Second))
		l := lock(t, c, within(t, patience), "n")
		f := w.arm(holdRequest, 1, script("renew"))
		closed(t, patience, "the renewal is on its way", f.struck)
		// On rueidis the release stands behind the renewal until the connection is
		// given up, and then goes over the next one.
		unlock(t, l)
		await(t, soon, "the key is gone", func() bool { return !exists(srv, "n") })
		const shorter = 6 * time.Second // than the watchdog's, so that a renewal would show
		next := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(shorter))
		f.let()
		closed(t, soon, "the renewal arrived", f.passed)
		harness.ErrorIf(t, pttl(srv, "n") > shorter, "the next lease was renewed")
		runsDown(t, srv, "n", 500*time.Millisecond)
		unlock(t, next)
		stays(t, 500*time.Millisecond, "the key stays away", func() bool { return !exists(srv, "n") })
	})
}

// A lost reply of an unlock, retried, is a success; one that arrives late releases
// no other lock.
func TestRule11_AReleaseThatMetAFaultIsASuccess(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client) {
		l := lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		f := w.arm(d, 1, script("release"))
		unlock(t, l)
		closed(t, 0, "the fault struck", f.struck)
		harness.ErrorIf(t, exists(srv, "n"), "Unlock succeeded and the lock is held")
		next := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(ample))
		f.arrive(t, srv)
		stays(t, 300*time.Millisecond, "the next holder holds", func() bool { return exists(srv, "n") && next.Err() == nil })
		unlock(t, next)
		released(t, srv, "n")
	})
}

// A partial unlock whose reply was lost neither fails nor counts twice.
func TestRule11_APartialReleaseThatMetAFaultCountsOnce(t *testing.T) {
	point(t, func(t *testing.T, s stack, d deed, srv *redistest.Server, w *wire, c *mortise.Client) {
		outer := lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		middle := lock(t, c, outer.Context(), "n")
		inner := lock(t, c, middle.Context(), "n")
		f := w.arm(d, 1, script("release"))
		unlock(t, inner)
		closed(t, 0, "the fault struck", f.struck)
		live(t, srv, 2, "")
		unlock(t, middle)
		f.arrive(t, srv)
		// It set the count to 2 again: absolute counts are right after the next one.
		unlock(t, lock(t, c, outer.Context(), "n"))
		live(t, srv, 1, "")
		unlock(t, outer)
		released(t, srv, "n")
	})
}

// Every reply on the way of a release is lost, for longer than Unlock retries: it
// says that the outcome is unknown, and goes on in the background.
func TestRule10_AReleaseIsRetriedInTheBackgroundUntilItIsConfirmed(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, w, c := wired(t, s, config{Timeout: brief})
		l := lock(t, c, within(t, patience), "n", mortise.WithLease(ample))
		var last *fault
		for range 5 {
			last = w.arm(cutBefore, 1, script("release"))
		}
		err := l.Unlock(within(t, patience))
		check(t, err, mortise.ErrUnavailable)
		closed(t, soon, "the last fault struck", last.struck)
		released(t, srv, "n")
	})
}
