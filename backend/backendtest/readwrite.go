package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/mortise-go/mortise"
)

// rwRuleTests hold the read-write lock to the rules that apply to it.
var rwRuleTests = []test{
	{"Rule13_RW_InspectReportsTheFailureOfItsLastCommand", func(e *env) {
		c, f := e.tapped()
		e.lock(e.side(c, true), background, "n", mortise.WithLease(long))
		asked, needs := 0, 2 // without descriptions, the first command finds that the lock is no plain one
		if e.bare().Capabilities().Operator != nil {
			needs = 1
		}
		f.Hook(func(call Call) Fate {
			if call.Op == OpInspect {
				asked++
			}
			return Fate{Refused: asked >= needs}
		})
		info, err := c.Inspect(background, "n")
		e.named(err, "inspect", "n", mortise.ErrUnavailable)
		e.errorIf(errors.Is(err, mortise.ErrWrongKind), "an outage is reported as another kind: %v", err)
		e.errorIf(info.Held, "a failed Inspect returned %+v", info)
		f.Hook(nil)
		e.errorIf(!e.inspect(c, "n").Writing, "the lock is not held for writing afterwards")
	}},
	{"Rule01_RW_ExclusionHoldsAmongReadersAndWriters", func(e *env) {
		var readers, writers atomic.Int32
		value := 0 // guarded by the lock alone: the race detector looks
		const clients, goroutines, rounds = 3, 4, 12
		read := several(clients, func() mortise.Locker { return e.side(e.client(), false) })
		write := several(clients, func() mortise.Locker { return e.side(e.client(), true) })
		e.turns(clients*goroutines, rounds, func(g, i int) error {
			l, writes := read[g%clients], (g/clients+i)%4 == 0
			if writes {
				l = write[g%clients]
			}
			return e.inside(l, background, "n", func(lease *mortise.Lease) {
				if writes {
					w, r := writers.Add(1), readers.Load()
					e.errorIf(w != 1 || r != 0, "%d writers, %d readers are inside", w, r)
					value++
					writers.Add(-1)
				} else {
					w, r := writers.Load(), readers.Add(1)
					e.errorIf(w != 0, "%d writers, %d readers are inside", w, r)
					_ = value
					time.Sleep(time.Millisecond)
					readers.Add(-1)
				}
				e.done("while it is held", lease.Err())
			})
		})
		want := clients * goroutines * rounds / 4
		e.errorIf(value != want, "%d writes, want %d", value, want)
		a, _ := e.sides(e.client())
		b, _ := e.sides(e.client())
		together := []*mortise.Lease{e.lock(a, background, "n"), e.lock(a, background, "n"), e.lock(b, background, "n")}
		e.unlock(together...)
	}},
	{"Rule01_RW_TryLockIsRefusedWithWhatIsLeft", func(e *env) {
		a := e.client()
		read, write := e.sides(a)
		other, otherWrite := e.sides(e.client())
		refused := func(what string, l mortise.Locker) {
			e.Helper()
			e.refusedFor(what, second(l.TryLock(background, "n")), "trylock", 30*time.Second)
		}
		r := e.lock(read, background, "n", mortise.WithLease(30*time.Second))
		refused("a writer of the reader's client", write)
		refused("a writer of another client", otherWrite)
		e.unlock(e.lock(read, background, "n", mortise.WithLease(30*time.Second)))
		e.unlock(e.lock(other, background, "n", mortise.WithLease(30*time.Second)))
		e.unlock(r)
		w := e.lock(otherWrite, background, "n", mortise.WithLease(30*time.Second))
		for _, l := range []mortise.Locker{read, write, other, otherWrite} {
			refused("beside a writer", l)
		}
		e.unlock(w)
	}},
	{"Rule01_RW_AReaderIsRefusedAtOnceAsAWriter", func(e *env) {
		read, write := e.sides(e.client())
		r := e.lock(read, background, "n", mortise.WithLease(long))
		e.named(second(write.Lock(r.Context(), "n")), "lock", "n", mortise.ErrInvalid)
		e.named(second(write.TryLock(r.Context(), "n")), "trylock", "n", mortise.ErrInvalid)
		again := e.lock(read, r.Context(), "n", mortise.WithLease(long))
		e.named(second(write.Lock(again.Context(), "n")), "lock", "n", mortise.ErrInvalid)
		e.unlock(again, r)
		// A downgraded writer is a reader.
		w := e.lock(write, background, "n", mortise.WithLease(long))
		r = e.lock(read, w.Context(), "n", mortise.WithLease(long))
		e.unlock(w)
		e.named(second(write.Lock(r.Context(), "n")), "lock", "n", mortise.ErrInvalid)
		e.unlock(r)
		// One that ended confers nothing, so it forbids nothing.
		e.unlock(e.lock(write, context.WithoutCancel(r.Context()), "n"))
	}},
	{"Rule01_RW_EachKindIsTheWrongOneForTheOthers", func(e *env) {
		c := e.client()
		read, write := e.sides(c)
		for name, l := range map[string]mortise.Locker{"read": read, "write": write, "plain": c} {
			e.lock(l, background, name, mortise.WithLease(long))
		}
		other := e.client()
		oread, owrite := e.sides(other)
		e.store.Occupy("data")
		for _, x := range []struct {
			l    mortise.Locker
			name string
		}{
			{other, "read"}, {other, "write"}, {c, "read"},
			{oread, "plain"}, {oread, "data"}, {read, "plain"},
			{owrite, "plain"}, {owrite, "data"}, {write, "plain"},
		} {
			e.named(second(x.l.Lock(background, x.name, mortise.WithWait(patience))), "lock", x.name, mortise.ErrWrongKind)
			e.named(second(x.l.TryLock(background, x.name)), "trylock", x.name, mortise.ErrWrongKind)
		}
		e.named(second(c.Inspect(background, "data")), "inspect", "data", mortise.ErrWrongKind)
		e.named(second(c.ForceUnlock(background, "data", "")), "forceunlock", "data", mortise.ErrWrongKind)
	}},
	{"Rule13_RW_AWrongKindNamesTheCallsOfTheRightOne", func(e *env) {
		c := e.client()
		names := func(what string, err error, call string) {
			e.Helper()
			switch {
			case !errors.Is(err, mortise.ErrWrongKind):
				e.Errorf("%s: %v, want ErrWrongKind", what, err)
			case !slices.Contains(strings.FieldsFunc(err.Error(), func(r rune) bool { return !unicode.IsLetter(r) }), call):
				e.Errorf("%s: %v; want it to name %s", what, err, call)
			case strings.Contains(err.Error(), "leftover") || strings.Contains(err.Error(), "delete the data"):
				e.Errorf("%s: %v; deleting a lock that is held breaks exclusion", what, err)
			}
		}
		read, write := e.sides(c)
		for _, side := range []mortise.Locker{read, write} {
			l := e.lock(side, background, "n", mortise.WithLease(long))
			names("Lock of a read-write lock", second(c.Lock(background, "n", mortise.WithWait(patience))), "RW")
			names("TryLock of a read-write lock", second(c.TryLock(background, "n")), "RW")
			s, err := c.Inspect(background, "n")
			e.errorIf(err != nil || !s.Held || s.Writing == (s.Readers > 0), "Inspect of a read-write lock: %+v, %v", s, err)
			e.unlock(l)
		}
		l := e.lock(c, background, "n", mortise.WithLease(long))
		names("a reader of a plain lock", second(read.TryLock(background, "n")), "ForceUnlock")
		names("a writer of a plain lock", second(write.TryLock(background, "n")), "ForceUnlock")
		e.unlock(l)
	}},
	{"Rule01_RW_GoroutinesUnderAWritersLeaseTakeTurns", func(e *env) {
		read, write := e.sides(e.client())
		w := e.lock(write, background, "n", mortise.WithLease(long))
		r := e.lock(read, w.Context(), "n", mortise.WithLease(long))
		e.unlock(e.lock(read, w.Context(), "n")) // readers do not mind each other
		e.is("a writer of the same context beside a reader", second(write.TryLock(w.Context(), "n")), mortise.ErrNotAcquired)
		again := e.lock(write, r.Context(), "n", mortise.WithLease(long)) // which comes from the reader itself
		e.is("a reader beside a writer that comes from another",
			second(read.TryLock(w.Context(), "n")), mortise.ErrNotAcquired)
		waiting := locking(read, w.Context(), "n", mortise.WithWait(patience))
		e.unlock(again)
		got := e.granted("the reader's turn", waiting)
		e.unlockLastRW(got.lease, r, w)
	}},
	{"Rule02_RW_AReadersLeaseEndsBeforeAWriterGetsIn", func(e *env) {
		read, write := e.side(e.client(), false), e.side(e.client(), true)
		r := e.brief(read, "n", 400*time.Millisecond)
		got := e.granted("the writer", locking(write, background, "n", mortise.WithWait(patience), mortise.WithLease(long)))
		e.is("the reader's lease", r.Err(), mortise.ErrLost)
		receive(e, "its context ends", r.Context().Done())
		e.is("its unlock", r.Unlock(background), mortise.ErrLost)
		e.done("the writer's lease", got.lease.Err())
	}},
	{"Rule03_RW_TheWatchdogKeepsReadersAndWriters", func(e *env) {
		read, write := e.sides(e.client(mortise.WithWatchdogTimeout(watchdog)))
		other, _ := e.sides(e.client(mortise.WithWatchdogTimeout(watchdog)))
		_, rival := e.sides(e.client())
		leases := []*mortise.Lease{
			e.lock(read, background, "n"), e.lock(other, background, "n"),
			e.brief(read, "n", watchdog/2),
			e.lock(write, background, "m"),
		}
		e.always(watchdog*3/2, "they are held", func() bool {
			for i, l := range leases {
				if l.Err() != nil && i != 2 {
					return false
				}
			}
			_, err := rival.TryLock(background, "n")
			_, errm := rival.TryLock(background, "m")
			return errors.Is(err, mortise.ErrNotAcquired) && errors.Is(errm, mortise.ErrNotAcquired)
		})
		e.is("the one with a lease time", leases[2].Err(), mortise.ErrLost)
		for i, l := range leases {
			if i != 2 {
				e.unlock(l)
			}
		}
		e.unlock(e.lock(rival, background, "n"))
		e.unlock(e.lock(rival, background, "m"))
	}},
	{"Rule04_RW_OneDeadReaderHoldsAWriterUpForItsLeaseOnly", func(e *env) {
		s := e.rw()
		s.read("dead:1", 400*time.Millisecond)
		read, write := e.side(e.client(), false), e.side(e.client(), true)
		r := e.lock(read, background, "n", mortise.WithLease(long))
		waiting := locking(write, background, "n", mortise.WithWait(patience))
		e.until("the dead one is over", func() bool { return s.rec().Readers == 1 })
		e.done("the other reader", r.Err())
		e.unlock(r)
		e.unlock(e.granted("the writer", waiting).lease)
		s.writeFor("dead:2", 400*time.Millisecond)
		e.unlock(e.lock(read, background, "n"))
	}},
	{"Rule06_RW_UnlockAfterLossTouchesNoOtherLock", func(e *env) {
		c := e.client()
		read, write := e.sides(c)
		other := e.client()
		oread, _ := e.sides(other)
		w := e.lock(write, background, "n", mortise.WithLease(long))
		if did, err := other.ForceUnlock(background, "n", ""); !did || err != nil {
			e.Fatal(did, err)
		}
		r := e.lock(oread, background, "n", mortise.WithLease(long))
		e.is("the unlock", w.Unlock(background), mortise.ErrLost)
		lost := e.lock(read, background, "n", mortise.WithLease(long))
		if did, err := c.ForceUnlock(background, "n", ""); !did || err != nil {
			e.Fatal(did, err)
		}
		e.is("the lease of the client that did it", lost.Err(), mortise.ErrLost)
		mine := e.lock(oread, background, "n", mortise.WithLease(long))
		e.is("its unlock", lost.Unlock(background), mortise.ErrLost)
		e.is("the other's", r.Unlock(background), mortise.ErrLost)
		s := e.inspectRW(other)
		e.errorIf(s.Readers != 1 || !s.Mine, "the reader that came afterwards: %+v", s)
		e.unlock(mine)
	}},
	{"Rule06_RW_ForceUnlockFindsTheKindAndEndsTheSideOfAnOwner", func(e *env) {
		c, other := e.client(), e.client()
		read, write := e.sides(c)
		oread, _ := e.sides(other)
		first := e.lock(read, background, "n", mortise.WithLease(long))
		mine := e.inspectRW(c).Owner
		stays := e.lock(oread, background, "n", mortise.WithLease(long))
		did, err := c.ForceUnlock(background, "n", mine)
		e.errorIf(!did || err != nil, "ForceUnlock of a reader: %v, %v", did, err)
		e.is("the lease of the reader that was removed", first.Err(), mortise.ErrLost)
		e.errorIf(stays.Err() != nil || e.inspectRW(c).Readers != 1, "the other reader: %v", stays.Err())
		did, err = c.ForceUnlock(background, "n", mine)
		e.errorIf(did || err != nil, "once more: %v, %v", did, err)
		e.unlock(stays)
		w := e.lock(write, background, "n", mortise.WithLease(long))
		did, err = c.ForceUnlock(background, "n", "")
		e.errorIf(!did || err != nil, "ForceUnlock of a writer: %v, %v", did, err)
		e.is("the writer's lease", w.Err(), mortise.ErrLost)
		e.store.Occupy("data")
		_, err = c.ForceUnlock(background, "data", "")
		e.named(err, "forceunlock", "data", mortise.ErrWrongKind)
	}},
	{"Rule07_RW_EachSideIsEnteredAgainAndFreeAfterAsManyUnlocks", func(e *env) {
		c := e.client()
		read, write := e.sides(c)
		r1 := e.lock(read, background, "n", mortise.WithLease(long))
		r2 := e.lock(read, r1.Context(), "n", mortise.WithLease(long))
		s := e.inspectRW(c)
		e.errorIf(s.Readers != 2 || s.Writing, "%+v", s)
		e.unlock(r1)
		e.is("a second unlock", r1.Unlock(background), mortise.ErrReleased)
		if s := e.inspectRW(c); s.Readers != 1 || r2.Err() != nil {
			e.Errorf("%+v, %v", s, r2.Err())
		}
		e.unlockLastRW(r2)

		w1 := e.lock(write, background, "n", mortise.WithLease(long))
		w2 := e.lock(write, w1.Context(), "n", mortise.WithLease(long))
		r3 := e.lock(read, w2.Context(), "n", mortise.WithLease(long))
		s = e.inspectRW(c)
		e.errorIf(s.Holds != 2 || !s.Writing || s.Readers != 1 || !s.Mine, "%+v", s)
		e.unlock(r3, w2)
		s = e.inspectRW(c)
		e.errorIf(s.Holds != 1 || !s.Writing, "%+v", s)
		e.unlockLastRW(w1)
	}},
	{"Rule07_RW_AWriterThatReadsGoesOnReading", func(e *env) {
		a, b := e.client(), e.client()
		read, write := e.sides(a)
		other, rival := e.sides(b)
		for _, twice := range []bool{false, true} {
			base, cancel := context.WithCancel(background)
			w := e.lock(write, base, "n", mortise.WithLease(long))
			outer := []*mortise.Lease{w}
			if twice {
				w = e.lock(write, w.Context(), "n", mortise.WithLease(long))
				outer = append(outer, w)
			}
			r := e.lock(read, w.Context(), "n", mortise.WithLease(long))
			waiting := locking(other, background, "n", mortise.WithWait(patience), mortise.WithLease(long))
			e.unlock(outer...)
			if err := r.Err(); err != nil || r.Context().Err() != nil {
				e.Errorf("after the write lock was unlocked: %v, %v", err, context.Cause(r.Context()))
			}
			got := e.granted("another reader, woken by the downgrade", waiting)
			e.is("a writer beside it", second(rival.TryLock(background, "n")), mortise.ErrNotAcquired)
			e.unlock(e.lock(read, r.Context(), "n", mortise.WithLease(long)))
			cancel() // where all of it comes from
			receive(e, "its context ends with the one that write was locked with", r.Context().Done())
			e.unlockLastRW(r, got.lease)
		}
	}},
	{"Rule08_RW_WaitersAreWokenByReleasesNotByExpiry", func(e *env) {
		a, b := e.client(), e.client()
		read, write := e.sides(a)
		oread, owrite := e.sides(b)
		for _, x := range []struct {
			what string
			held []mortise.Locker
			wait mortise.Locker
		}{
			{"a writer by readers", []mortise.Locker{read, read}, owrite},
			{"a writer by a writer", []mortise.Locker{write}, owrite},
			{"a reader by a writer", []mortise.Locker{write}, oread},
			{"a writer by readers of its own client", []mortise.Locker{read, oread, read}, write},
			{"a reader by a writer of its own client", []mortise.Locker{write}, read},
		} {
			var held []*mortise.Lease
			for _, l := range x.held {
				held = append(held, e.lock(l, background, "n", mortise.WithLease(long)))
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(background, patience)
			waiting := locking(x.wait, ctx, "n", mortise.WithLease(long))
			e.always(50*time.Millisecond, x.what+" waits", func() bool { return len(waiting) == 0 })
			e.unlock(held...)
			got := receive(e, x.what, waiting)
			e.fatalIf(got.err != nil, "%s: %v", x.what, got.err)
			e.tookAtMost(x.what+": woken after %v", began, 5*time.Second)
			e.unlock(got.lease)
			cancel()
		}
		e.freeRW()
	}},
	{"Rule08_RW_AWriterIsNotStarvedByAStreamOfReaders", func(e *env) {
		ctx, stop := context.WithCancel(background)
		defer stop()
		var wg sync.WaitGroup
		var rounds atomic.Int64
		for range 3 {
			read, _ := e.sides(e.client())
			for range 3 {
				wg.Go(func() {
					for ctx.Err() == nil {
						l, err := read.Lock(ctx, "n", mortise.WithLease(long))
						if err != nil {
							return
						}
						time.Sleep(3 * time.Millisecond) // so that they overlap
						rounds.Add(1)
						l.Unlock(background)
					}
				})
			}
		}
		_, write := e.sides(e.client())
		for range 10 {
			before := rounds.Load()
			e.until("the readers go on", func() bool { return rounds.Load() > before+10 })
			e.unlock(e.lock(write, background, "n", mortise.WithLease(long)))
		}
		stop()
		wg.Wait()
		e.freeRW()
	}},
	{"Rule08_RW_AWriterThatGivesUpLetsReadersIn", func(e *env) {
		a := e.client()
		read, _ := e.sides(a)
		oread, owrite := e.sides(e.client())
		fresh, _ := e.sides(e.client())
		r := e.lock(read, background, "n", mortise.WithLease(long))
		ctx, cancel := context.WithCancel(background)
		writer := locking(owrite, ctx, "n")
		e.refuses("fresh readers are refused", fresh, "n", mortise.ErrNotAcquired)
		e.unlock(e.lock(read, r.Context(), "n", mortise.WithLease(long))) // a reader enters
		began := time.Now()
		readers := []<-chan result{
			locking(fresh, background, "n", mortise.WithWait(patience), mortise.WithLease(long)),
			locking(oread, background, "n", mortise.WithWait(patience), mortise.WithLease(long)),
		}
		e.always(50*time.Millisecond, "they wait", func() bool { return len(readers[0])+len(readers[1]) == 0 })
		cancel()
		got := receive(e, "the writer gives up", writer)
		e.errorIf(!errors.Is(got.err, context.Canceled), "the writer: %v", got.err)
		for _, ch := range readers {
			e.unlock(e.granted("a reader", ch).lease)
		}
		e.tookAtMost("they waited %v: for the claim to end", began, 5*time.Second)
		e.unlockLastRW(r)
	}},
	{"Rule08_RW_WhatNeedNotWaitIsOneCommandAndWaitingIsNone", func(e *env) {
		c, f := e.tapped()
		read, write := e.sides(c)
		cost := func(what string, want int, do func()) {
			e.Helper()
			before := f.Count()
			do()
			if n := f.Count() - before; n != want {
				e.Errorf("%s: %d operations, want %d: %+v", what, n, want, f.Calls()[before:])
			}
		}
		var r, inner, w *mortise.Lease
		cost("read", 1, func() { r = e.lock(read, background, "n", mortise.WithLease(long)) })
		cost("read again", 1, func() { inner = e.lock(read, r.Context(), "n", mortise.WithLease(long)) })
		cost("a writer is refused", 0, func() { write.TryLock(background, "n") })
		cost("an upgrade is refused", 0, func() { write.Lock(r.Context(), "n") })
		cost("unlock", 1, func() { e.unlock(inner) })
		cost("unlock", 1, func() { e.unlock(r) })
		cost("write", 1, func() { w = e.lock(write, background, "n", mortise.WithLease(long)) })
		cost("a reader is refused", 0, func() { read.TryLock(background, "n") })
		waiting := locking(read, background, "n", mortise.WithWait(patience), mortise.WithLease(long))
		cost("waiting for a writer of the same client", 0, func() {
			e.always(100*time.Millisecond, "it waits", func() bool { return len(waiting) == 0 })
		})
		cost("unlock, and the one that waits", 2, func() {
			e.unlock(w)
			r = receive(e, "the reader", waiting).lease
		})
		e.unlock(r)
	}},
	{"Rule08_RW_LocalWaitersAreServedInOrder", func(e *env) {
		var stand atomic.Int32
		read, write := e.sides(
			e.client(mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { stand.Add(1) }})))
		w := e.lock(write, background, "n", mortise.WithLease(long))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, l := range []mortise.Locker{read, read, write, read, write} {
			wg.Go(func() {
				lease, err := l.Lock(background, "n", mortise.WithWait(patience), mortise.WithLease(long))
				if err != nil {
					e.Errorf("%d: %v", i, err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond) // long enough for one behind to overtake
				lease.Unlock(background)
			})
			e.until("it stands in line", func() bool { return int(stand.Load()) > i })
		}
		e.unlock(w)
		wg.Wait()
		if len(order) == 5 && order[0] > order[1] { // the two readers may be noted either way
			order[0], order[1] = order[1], order[0]
		}
		for i, x := range order {
			if i != x {
				e.Errorf("served in the order %v", order)
				break
			}
		}
	}},
	{"Rule09_RW_AnAbandonedLockLeavesNothing", func(e *env) {
		for _, writes := range []bool{false, true} {
			c, f := e.tapped()
			l := e.side(c, writes)
			hold := f.holds(replyLate, OpAcquire)
			e.is("Lock", e.abandon(f, background, locks(l, "n", mortise.WithLease(long)), OpAcquire), context.Canceled)
			close(hold)
			e.freeRW()
		}
	}},
	{"Rule09_RW_AWriteRequestThatArrivesLateLeavesNoClaim", func(e *env) {
		c, f := e.tapped()
		_, write := e.sides(c)
		read, _ := e.sides(e.client())
		r := e.lock(read, background, "n", mortise.WithLease(long))
		arrive, _ := f.holdsFirst(arrivesLate, OpAcquire)
		ctx, leave := context.WithCancel(background)
		defer leave()
		writer := locking(write, ctx, "n", mortise.WithLease(long))
		e.until("its second request claims", func() bool { return f.answered(OpAcquire) > 0 })
		leave()
		e.is("the writer", receive(e, "the writer leaves", writer).err, context.Canceled)
		e.until("its claim is withdrawn", func() bool { return f.answered(OpWithdraw) > 0 })
		e.unlock(e.lock(read, background, "n", mortise.WithLease(long)))
		close(arrive)
		e.until("its first request arrives", func() bool { return f.underway(OpAcquire) == 0 })
		began := time.Now()
		e.unlock(e.lock(read, background, "n", mortise.WithLease(long), mortise.WithWait(patience)))
		e.tookAtMost("a reader waited for %v, though no writer waits", began, 5*time.Second)
		e.unlockLastRW(r)
	}},
	{"Rule11_RW_LostRepliesCountOnce", func(e *env) {
		c, f := e.tapped()
		read, write := e.sides(c)
		loseEveryOther(f)
		w := e.lock(write, background, "n", mortise.WithLease(long))
		w2 := e.lock(write, w.Context(), "n", mortise.WithLease(long))
		r := e.lock(read, w2.Context(), "n", mortise.WithLease(long))
		plain := e.client()
		s := e.inspectRW(plain)
		e.errorIf(s.Holds != 2 || s.Readers != 1 || !s.Writing, "%+v", s)
		e.unlock(w2, w)
		s = e.inspectRW(plain)
		e.errorIf(s.Readers != 1 || s.Writing, "%+v", s)
		e.unlockLastRW(r)
	}},
	{"Rule11_RW_AnAcquireThatArrivesLateIsTakenBack", func(e *env) {
		for _, writes := range []bool{false, true} {
			c, f := e.tapped()
			l := e.side(c, writes)
			late := f.holds(arrivesLate, OpAcquire)
			e.is("trylock", second(l.TryLock(background, "n", mortise.WithLease(long))), mortise.ErrUnavailable)
			close(late)
			e.until("its release finds it", func() bool { return f.answered(OpRelease) > 0 })
			f.Hook(nil)
			e.freeRW()
			e.unlock(e.lock(l, background, "n"))
		}
	}},
	{"Rule12_RW_WaitersAndHoldersSurviveACut", func(e *env) {
		read, write := e.side(e.client(mortise.WithWatchdogTimeout(watchdog)), false), e.side(e.client(), true)
		r := e.lock(read, background, "n")
		waiting := locking(write, background, "n", mortise.WithLease(long))
		e.always(50*time.Millisecond, "it waits", func() bool { return len(waiting) == 0 })
		e.store.Cut()
		e.always(watchdog*3/2, "it waits, and the reader holds", func() bool { return len(waiting) == 0 && r.Err() == nil })
		e.unlock(r)
		e.unlock(e.granted("the writer", waiting).lease)
	}},
	{"Rule14_RW_ShutdownWakesWaitersAndEndsWhatIsLeft", func(e *env) {
		c := e.client()
		read, write := e.sides(c)
		r := e.lock(read, background, "n", mortise.WithLease(long))
		waiting := locking(write, background, "n")
		e.always(20*time.Millisecond, "it waits", func() bool { return len(waiting) == 0 })
		ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
		defer cancel()
		e.errorIf(c.Shutdown(ctx) == nil, "it does not tell of the reader")
		e.is("the waiter", receive(e, "the waiter", waiting).err, mortise.ErrClosed)
		e.is("the reader", r.Err(), mortise.ErrClosed)
		s := e.inspectRW(e.client())
		e.errorIf(s.Readers != 1, "the reader's hold was released: %+v", s)
	}},
}

// sides is RW, where the backend has it.
func (e *env) sides(c *mortise.Client) (read, write mortise.Locker) {
	e.Helper()
	s := e.bare()
	if s.Capabilities().ReadWrite == nil {
		e.lacks("read-write locks")
	}
	return c.RW().Read, c.RW().Write
}

func (e *env) side(c *mortise.Client, writes bool) mortise.Locker {
	e.Helper()
	read, write := e.sides(c)
	if writes {
		return write
	}
	return read
}

func (e leases) inspectRW(c *mortise.Client) mortise.LockInfo {
	e.Helper()
	return value(c.Inspect(background, "n")).in(e)
}

// unlockLastRW unlocks leases of n, of which the last frees it.
func (e *env) unlockLastRW(all ...*mortise.Lease) {
	e.Helper()
	e.unlock(all...)
	e.freeRW()
}

// freeRW waits until n has no holder, and then that neither side is kept out.
func (e *env) freeRW() {
	e.Helper()
	c := e.client()
	e.until("the lock is free", func() bool {
		s, err := c.Inspect(background, "n")
		return err == nil && !s.Held
	})
	read := c.RW().Read
	e.until("no claim is left", func() bool {
		l, err := read.TryLock(background, "n")
		if err == nil {
			e.unlock(l)
		}
		return err == nil
	})
}
