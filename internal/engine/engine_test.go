package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/fifo"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/retry"
	"github.com/mortise-go/mortise/internal/timerq"
)

func open(t *testing.T, b backend.Backend) *Engine {
	t.Helper()
	e, err := New(b, Config{Watchdog: 30 * time.Second, RejoinDelay: -1})
	must(t, err)
	return e
}

// shut ends an engine, though it holds locks.
func shut(e *Engine) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = e.Shutdown(ctx)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func lock(t *testing.T, e *Engine) (*lease.Hold, error) {
	h, err := e.Acquire(t.Context(), t.Context(), Request{Name: "n"})
	if err != nil {
		return nil, err
	}
	return h.Holding().(*lease.Hold), nil
}

// acquired is what became of a lock that was waited for.
type acquired struct {
	*lease.Hold
	error
}

func behind(t *testing.T, e *Engine) <-chan acquired {
	next := make(chan acquired, 1)
	go func() {
		h, err := lock(t, e)
		next <- acquired{h, err}
	}()
	synctest.Wait()
	return next
}

func TestARepetitionIsSentOnceThoughTheProcessStoodStillInShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memory.New())
		p := &repetition{
			engine: e, name: "x", send: func() (bool, error) { return false, nil }, began: e.Now(), until: clock.Never,
			pauses: retry.Backoff{Every: 50 * time.Millisecond, Most: time.Second},
		}
		time.Sleep(2 * time.Second)
		e.lock()
		e.calls.shut, e.calls.shutAt, e.calls.running = true, p.began, 1
		for n, want := range []struct{ jobs, running int }{{1, 1}, {1, 0}} {
			p.Fire(e.Now())
			if jobs := e.renewer.lane("x").jobs.Len(); jobs != want.jobs || e.calls.running != want.running {
				t.Errorf("due for the %d. time: %d to be sent, %d running; want %+v", n+1, jobs, e.calls.running, want)
			}
		}
		e.renewer.lane("x").jobs, e.calls.shut, e.calls.running = fifo.Queue[func()]{}, false, 0
		e.unlock()
		must(t, e.Shutdown(t.Context()))
	})
}

// Its question may have been answered, and not yet taken note of, before the place ahead of it was left.
func TestAPlaceThatBecomesTheFirstInLineWhileItAsksLooksAgain(t *testing.T) {
	e := open(t, memory.New())
	defer shut(e)
	first, second := e.names.fair.newPlace("n"), e.names.fair.newPlace("n")
	e.lock()
	l := &fairQueue{engine: e, name: "n"}
	for _, p := range []*fairTicket{first, second} {
		p.at = l.standing.PushBack(p)
	}
	e.names.fair.all["n"] = l
	n := e.names.of(second.topic)
	e.names.expect(n)
	w := new(waiter)
	w.Waiter = w
	told := w.Ready()
	n.Join(&w.Ticket)
	n.Asks()
	second.askAt = e.Now().Mono + int64(time.Hour)
	e.unlock()
	e.names.fair.leave("n", first)
	e.lock()
	defer e.unlock()
	if asks, _ := n.Next(e.Now().Mono); asks != &w.Ticket || len(told) != 1 {
		t.Error("it does not ask again")
	}
	n.Leave(&w.Ticket)
	e.names.tidy(n)
	delete(e.names.fair.all, "n")
}

// unlockBegun is unlocking.begin as far as it is done before anything is sent.
func unlockBegun(e *Engine, h *lease.Hold) (*unlocking, *releasing) {
	u, x := &unlocking{hold: h}, &releasing{tenure: of(h), live: true}
	e.lock()
	defer e.unlock()
	u.begin()
	x.begin()
	return u, x
}

// The record is removed after Unlock has begun and before the record is passed on, and that is told: the successor
// does not believe in a record that is gone.
func TestAChangeHeardDuringALocalHandoffIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		e, other := open(t, b), open(t, b)
		defer shut(e)
		defer shut(other)
		h, err := lock(t, e)
		must(t, err)
		next := behind(t, e)

		u, x := unlockBegun(e, h)
		u.endContext()
		_, err = other.ForceUnlock(t.Context(), backend.KindLock, "n", "")
		must(t, err)
		stolen, err := lock(t, other)
		must(t, err)
		e.Handler().Changed(lockTopic("n"))
		u.result = x.run(t.Context())
		_ = u.finish()

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		select {
		case got := <-next:
			must(t, got.error)
			select {
			case <-got.Context().Done():
			case <-ctx.Done():
				t.Errorf("two hold it, two seconds after the change was told: %v, %v", got.Err(), stolen.Err())
			}
			_ = got.Unlock(t.Context())
		case <-ctx.Done():
		}
		must(t, stolen.Unlock(t.Context()))
		synctest.Wait()
	})
}

// So it is where that is told after the record was passed on, and before the successor has taken it up.
func TestAChangeHeardBeforeASuccessorTakesItUpIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New()
		e := open(t, b)
		defer shut(e)
		h, err := lock(t, e)
		must(t, err)
		next := behind(t, e)
		tn := of(h)
		e.lock() // as in Unlock, with no chance for the successor
		u, x := unlocking{hold: h}, &releasing{tenure: tn, live: true}
		u.begin()
		x.begin()
		x.handoff.to.handoffGrant = &grant{
			granted: true, byHandoff: true, owner: tn.Owner, asked: e.Now(), changes: x.handoff.changes,
			sent: tn.Deadline.Add(clock.Margin(tn.TTL) - tn.TTL),
		}
		e.calls.running++
		tn.State, tn.handedOver = lease.Over, true
		tn.name.Changes++ // and the record is gone
		tn.vacate(true)
		tn.Leave()
		e.unlock()
		_, err = e.store.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"})
		must(t, err)
		got := <-next
		must(t, got.error)
		time.Sleep(time.Second)
		if err := got.Err(); !errors.Is(err, fail.Lost) {
			t.Errorf("a second later its lease says %v", err)
		}
		_ = got.Unlock(t.Context())
		synctest.Wait()
	})
}

// A waiter that was handed a record and has not run since is handed no other: its record was removed, and another call
// of this client had the lock in between.
func TestAWaiterIsHandedOneRecordAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memory.New())
		defer shut(e)
		h, err := lock(t, e)
		must(t, err)
		next := behind(t, e)
		u, x := unlockBegun(e, h)
		e.lock()
		w, first := x.handoff.to, &grant{granted: true, byHandoff: true, owner: "first"}
		w.handoffGrant = first
		if again := newHandoff(of(h)); again != nil {
			t.Errorf("a second handoff to it begins: %+v", again)
		}
		e.unlock()
		if x.handoff.local() {
			t.Error("it is handed a second record without a command")
		}
		e.lock()
		x.handoff.reply.Granted = true
		x.handoff.settle(false)
		if w.handoffGrant != first {
			t.Errorf("the first record that it was handed is replaced by %+v", w.handoffGrant)
		}
		w.handoffGrant, x.handoff.reply.Granted = nil, false
		e.unlock()
		u.endContext()
		u.result = x.run(t.Context())
		must(t, u.finish())
		got := <-next
		must(t, got.error)
		must(t, got.Unlock(t.Context()))
		synctest.Wait()
	})
}

// Contexts of many leases that end at once end in batches as they are found, and not after the last was found.
func TestContextsOfManyLeasesEndAsTheyAreFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memory.New())
		defer shut(e)
		const due = 10 * 256
		fired, first := 0, 0
		e.lock()
		for range due {
			e.renewer.timers.Put(new(timerq.Timer), e.Now().Mono, timerq.Func(func(clock.Instant) {
				fired++
				e.after(func() {
					if first == 0 {
						first = fired
					}
				})
			}))
		}
		e.unlock()
		synctest.Wait()
		if fired != due || first > 256 {
			t.Errorf("the first of %d took effect after %d were found", fired, first)
		}
	})
}

func TestAChangeIsRepeatedForLessTimeThanTheStoreRemembersIt(t *testing.T) {
	if retryFor >= backend.Remembered {
		t.Errorf("it is repeated for %v and remembered for %v", retryFor, backend.Remembered)
	}
}

// A release of Redisson's has the client of the first entry ask, and say so. One that found no entry in the queue does
// not: the entry came later, or is lost. Then its client asks a little later.
func TestAReleaseThatFoundNoEntryIsNotRedissons(t *testing.T) {
	for how, want := range map[string]struct{ asks, heard bool }{"Released": {true, true}, "Freed": {false, false}} {
		e := open(t, memory.New())
		h := (*handler)(e)
		topic := backend.Topic{Name: "n"}
		e.lock()
		n := e.names.of(topic)
		e.names.expect(n)
		w := new(waiter)
		w.Waiter = w
		n.Join(&w.Ticket)
		n.Asks()
		n.Heard(n.Events())
		now := e.Now().Mono
		n.Refused(clock.Never, clock.Never-1)
		n.enrolled, n.firstInStore = true, true
		e.unlock()
		if how == "Freed" {
			h.Freed(topic)
		} else {
			h.Released(topic)
		}
		e.lock()
		asks, _ := n.Next(now)
		if (asks != nil) != want.asks || n.heard != want.heard {
			t.Errorf("%s: it asks: %v, and says that it heard: %v; want %+v", how, asks != nil, n.heard, want)
		}
		if later, _ := n.Next(now + int64(4*silence+time.Second)); later == nil {
			t.Errorf("%s: it does not ask a little later", how)
		}
		e.unlock()
		shut(e)
	}
}
