package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// A Client that New did not make returns ErrInvalid from each call, and does not panic.
func TestAClientThatNewDidNotMakeIsInvalid(t *testing.T) {
	t.Run("zero", func(t *testing.T) { invalidClient(t, new(Client)) })
	t.Run("nil", func(t *testing.T) { invalidClient(t, nil) })
}

func invalidClient(t *testing.T, c *Client) {
	ctx := context.Background()
	read, write := c.RW().Read, c.RW().Write
	calls := map[string]func() error{
		"Lock":               func() error { return errorOf(c.Lock(ctx, "x")) },
		"TryLock":            func() error { return errorOf(c.TryLock(ctx, "x")) },
		"With":               func() error { return errorOf(c.With().Lock(ctx, "x")) },
		"a fair lock":        func() error { return errorOf(c.TryLock(ctx, "x", Fair())) },
		"read":               func() error { return errorOf(read.Lock(ctx, "x")) },
		"write":              func() error { return errorOf(write.TryLock(ctx, "x")) },
		"LockAll":            func() error { return errorOf(c.LockAll(ctx, []string{"x", "y"})) },
		"Quorum":             func() error { return errorOf(quorum.New(c, new(Client), new(Client))) },
		"Inspect":            func() error { return errorOf(c.Inspect(ctx, "x")) },
		"ForceUnlock":        func() error { return errorOf(c.ForceUnlock(ctx, "x", "")) },
		"WithDelegations":    func() error { return errorOf(delegation.NewContext(ctx, c)) },
		"Ping":               func() error { return c.Ping(ctx) },
		"Close":              c.Close,
		"Shutdown":           func() error { return c.Shutdown(ctx) },
		"Do":                 func() error { return Do(ctx, c, "x", func(context.Context) error { return nil }) },
		"counting semaphore": func() error { return semaphore.NewCounting(c, "x").Acquire(ctx, 1) },
		"release":            func() error { return semaphore.NewCounting(c, "x").Release(ctx, 1) },
		"semaphore":          func() error { return errorOf(semaphore.New(c, "x", 0).TryAcquire(ctx, 1)) },
		"available":          func() error { return errorOf(semaphore.New(c, "x", 0).Available(ctx)) },
		"latch":              func() error { return latch.New(c, "x").Wait(ctx) },
		"count down":         func() error { return latch.New(c, "x").CountDown(ctx) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { wants(t, call(), ErrInvalid) })
	}
}

func TestANilLoggerIsInvalid(t *testing.T) {
	_, err := New(memory.New(), WithLogger(nil))
	wants(t, err, ErrInvalid)
	if !contains(fmt.Sprint(err), "WithLogger(nil)") {
		t.Error(err)
	}
}

func TestABackendThatDoesNotOpenFailsNew(t *testing.T) {
	_, err := New(refusing{})
	wants(t, err, ErrInvalid)
	wants(t, err, errRefused)
}

var errRefused = errors.New("the client is nil")

type refusing struct{}

func (refusing) Open(backend.Handler) (backend.Store, error) { return nil, errRefused }

func TestABackendWithoutCountsIsNamed(t *testing.T) {
	c := on(t, spyOn(memory.New(), "", nil))
	ctx := context.Background()
	_, set := latch.New(c, "n").TrySet(ctx, 1)
	_, permit := semaphore.New(c, "n", 0).Acquire(ctx, 1)
	for op, err := range map[string]error{
		"set":       set,
		"wait":      latch.New(c, "n").Wait(ctx),
		"countdown": latch.New(c, "n").CountDown(ctx),
		"acquire":   permit,
		"release":   semaphore.NewCounting(c, "n").Release(ctx, 1),
	} {
		var e *Error
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.Op != op ||
			!contains(err.Error(), "clienttest.spySession") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := semaphore.New(c, "n", 0).Release(ctx, strings.Repeat("0", 32)); !errors.Is(err, ErrInvalid) {
		t.Errorf("release: %v", err)
	}
	var none *semaphore.Permit
	wants(t, none.Release(ctx), ErrInvalid)
	if len(none.IDs()) != 0 || none.Name() != "" || none.Context().Err() == nil || none.Err() == nil {
		t.Error("a nil permit is held")
	}
}

// A backend that panics, and whose caller recovers, leaves no slot of the in-flight limiter taken.
func TestABackendThatPanicsTakesNoSlot(t *testing.T) {
	c := on(t, spyOn(memory.New(), "", hooks{"Acquire": func(*call) error { panic("a hook of the client library") }}))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			c.TryLock(context.Background(), "n")
		}()
	}
	if n := engineOf(c).Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// A backend that panics in a repeated request, of a caller that cannot leave, once freed its slot twice, and hung.
func TestABackendThatPanicsInARepeatedRequestFreesItsSlotOnce(t *testing.T) {
	n := 0
	c := on(t, spyOn(memory.New(), "", hooks{"Acquire": func(*call) error {
		if n++; n == 2 {
			panic("a hook of the client library")
		}
		return &backend.Fault{Err: errGone, Temporary: true}
	}}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		_, _ = c.TryLock(context.Background(), "x")
	}()
	if n := engineOf(c).Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// panics checks that f panics, as an observer does that it calls.
func panics(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("the panic of the observer was swallowed")
		}
	}()
	f()
}

// A panic in the caller's goroutine may be recovered by a server: what the call had, or waited in, is given back.
func TestAPanicOfAcquiredReleasesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		boom := true
		c := open(WithObserver(Observer{Acquired: func(Event) {
			if boom {
				boom = false
				panic("boom")
			}
		}}))
		panics(t, func() { _, _ = c.Lock(t.Context(), "x") })
		synctest.Wait()
		noError(t, thenUnlock(c.TryLock(t.Context(), "x")))
	})
}

// A lease of LockAll unlocks its parts at the same time. A panic of a part reaches the caller, after all parts were
// unlocked.
func TestAPanicInAPartOfLockAllReachesTheCaller(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		boom := Observer{Released: func(Event) { panic("boom") }}
		fake := fakeLocker(func(ctx context.Context, name string) (*Lease, error) {
			return NewLease(ctx, name, 0, func(context.Context) error { panic("boom") }), nil
		})
		other := open()
		for _, parts := range []Parts{
			Parts{}.And(other, "w").And(open(WithObserver(boom)), "x").And(open(), "y"),
			Parts{}.And(open(WithObserver(boom)), "x").And(open(WithObserver(boom)), "y"),
			Parts{}.And(other, "w").And(fake, "f").And(open(), "y"),
		} {
			l := need(parts.Lock(t.Context()))(t)
			panics(t, func() { _ = l.Unlock(context.Background()) })
			must(t, thenUnlock(other.Lock(t.Context(), "x", WithWait(time.Second))))
			must(t, thenUnlock(other.Lock(t.Context(), "y", WithWait(time.Second))))
		}
	})
}

// The observer hears of the release of each lock of a LockAll, even if it panics.
func TestAPanicOfReleasedHidesNoOtherRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var told []string
		c := open(WithObserver(Observer{Released: func(e Event) {
			told = append(told, e.Name)
			panic("boom")
		}}))
		l := need(Parts{}.And(c, "x", "y", "z").Lock(t.Context()))(t)
		panics(t, func() { _ = l.Unlock(context.Background()) })
		if !slices.Equal(told, []string{"x", "y", "z"}) {
			t.Errorf("told of the releases of %q", told)
		}
	})
}

func TestAPanicOfWaitingLeavesTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		boom := true
		c, other := open(WithObserver(Observer{Waiting: func(Event) {
			if boom {
				boom = false
				panic("boom")
			}
		}})), open()
		l := need(other.Lock(t.Context(), "x"))(t)
		panics(t, func() { _, _ = c.Lock(t.Context(), "x") })
		must(t, l.Unlock(t.Context()))
		noError(t, thenUnlock(c.Lock(t.Context(), "x", WithWait(time.Minute))))
	})
}

// Its ticket would stand in the queue for ever, and be told of what is for those behind it.
func TestAPanicOfWaitingLeavesTheQueueOfAFairLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		boom := true
		c, other := open(WithObserver(Observer{Waiting: func(Event) {
			if boom {
				boom = false
				panic("boom")
			}
		}})), open()
		fair := c.With(Fair())
		l := need(other.Lock(t.Context(), "x"))(t)
		panics(t, func() { _, _ = fair.Lock(t.Context(), "x") })
		next := queued(t.Context(), fair, "x")
		must(t, l.Unlock(t.Context()))
		start := time.Now()
		must(t, next.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > 0 {
			t.Errorf("the next got the lock %v after it was released", took)
		}
		time.Sleep(5 * time.Second)
		if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestAPanicOfWaitingInAWriterLetsReadersIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := open(WithObserver(Observer{Waiting: func(Event) { panic("boom") }})), open()
		l := need(other.RW().Read.Lock(t.Context(), "x"))(t)
		panics(t, func() { _, _ = c.RW().Write.Lock(t.Context(), "x") })
		time.Sleep(time.Second)
		must(t, need(open().RW().Read.TryLock(t.Context(), "x"))(t).Unlock(t.Context()))
		must(t, l.Unlock(t.Context()))
	})
}

func TestAPanicOfWaitingInAReentryGivesItsTurnBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := open(WithObserver(Observer{Waiting: func(Event) { panic("boom") }}))
		outer := need(c.Lock(t.Context(), "x"))(t)
		inner := need(c.Lock(outer.Context(), "x"))(t)
		panics(t, func() { _, _ = c.Lock(outer.Context(), "x") }) // it waits for inner
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		noError(t, inner.Unlock(ctx))
		noError(t, outer.Unlock(ctx))
	})
}

func TestAPanicOfAcquiredInAReentryGivesItsTurnBack(t *testing.T) {
	for kind, inner := range map[string]func(*Client) Locker{
		"read under a writer": func(c *Client) Locker { return c.RW().Read },
		"write":               func(c *Client) Locker { return c.RW().Write },
	} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				acquired := 0
				c := open(WithObserver(Observer{Acquired: func(Event) {
					if acquired++; acquired == 2 {
						panic("boom")
					}
				}}))
				outer := need(c.RW().Write.Lock(t.Context(), "x"))(t)
				panics(t, func() { _, _ = inner(c).Lock(outer.Context(), "x") })
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				noError(t, outer.Unlock(ctx))
				noError(t, thenUnlock(c.RW().Write.Lock(t.Context(), "x", WithWait(time.Second))))
			})
		})
	}
}

// A caller that cannot leave has the command in its own goroutine.
func TestABackendThatPanicsInAReentryGivesItsTurnBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "", hooks{"SetHolds": func(*call) error { panic("a hook of the client library") }}))
		outer := need(c.Lock(context.Background(), "x"))(t)
		panics(t, func() { _, _ = c.Lock(context.WithoutCancel(outer.Context()), "x") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		noError(t, outer.Unlock(ctx))
		noError(t, thenUnlock(c.TryLock(t.Context(), "x")))
	})
}

// doneThenPanics is a hook of a call that the store makes, and whose reply is lost by a panic, once.
func doneThenPanics() func(*call) error {
	var boomed atomic.Bool
	return func(c *call) error {
		err := c.run(context.Background())
		if boomed.CompareAndSwap(false, true) {
			panic("a hook of the client library")
		}
		return err
	}
}

// The store may have done what it was asked to before the backend panicked: that is undone in the background.
func TestABackendThatPanicsAfterAGrantFreesTheLock(t *testing.T) {
	for op, lock := range map[string]func(*Client) (*Lease, error){
		"Acquire": func(c *Client) (*Lease, error) {
			return c.Lock(context.Background(), "x", WithLease(time.Hour))
		},
		"AcquireAll": func(c *Client) (*Lease, error) {
			return c.LockAll(context.Background(), []string{"y", "x"}, WithLease(time.Hour))
		},
		"Fair.Acquire": func(c *Client) (*Lease, error) {
			fair := c.With(Fair())
			return fair.Lock(context.Background(), "x", WithLease(time.Hour))
		},
	} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c, other := on(t, spyOn(s, "Queue Batch Fair", hooks{op: doneThenPanics()})), open()
				panics(t, func() { _, _ = lock(c) })
				noError(t, thenUnlock(other.Lock(t.Context(), "x", WithWait(time.Minute))))
				time.Sleep(5 * time.Second)
				if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
					t.Errorf("left: %+v", s)
				}
			})
		})
	}
}

// The store's hold count is too high then, and a callee waits for a lower one: it is set again.
func TestABackendThatPanicsInAReentryLetsACalleeIn(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, callee := on(t, spyOn(s, "Delegation", hooks{"SetHolds": doneThenPanics()})), open()
		outer := need(c.Lock(context.Background(), "x"))(t)
		time.Sleep(time.Second) // a repair at the time 0 is none
		panics(t, func() { _, _ = c.Lock(context.WithoutCancel(outer.Context()), "x") })
		ctx := need(delegation.NewContext(t.Context(), callee, delegation.FromContext(outer.Context())...))(t)
		noError(t, thenUnlock(callee.Lock(ctx, "x", WithWait(time.Minute))))
		noError(t, outer.Unlock(t.Context()))
	})
}

// A re-entry that is acknowledged by too few replicas is undone, on the caller's goroutine if its wait cannot end.
func TestABackendThatPanicsAsAReentryIsUndoneGivesTheTurnBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		boom := true
		c := on(t, spyOn(s, "Replicas", hooks{"Release": func(c *call) error {
			if boom {
				boom = false
				panic("a hook of the client library")
			}
			return c.run(context.Background())
		}}))
		outer := need(c.Lock(context.Background(), "x"))(t)
		inner := context.WithoutCancel(outer.Context())
		panics(t, func() { _, _ = c.Lock(inner, "x", WithReplicas(1, time.Second)) }) // the memory store has none
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		noError(t, outer.Unlock(ctx))
		noError(t, thenUnlock(c.TryLock(t.Context(), "x")))
	})
}

// The release is repeated in the background, and the client's next call gets the lock.
func TestABackendThatPanicsInAReleaseFreesTheLockAllTheSame(t *testing.T) {
	for _, op := range []string{"Release", "Serve"} {
		t.Run(op, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
				boom := true
				c := on(t, spyOn(s, "Queue", hooks{op: func(c *call) error {
					if boom {
						boom = false
						panic("a hook of the client library")
					}
					return c.run(context.Background())
				}}))
				l := need(c.Lock(context.Background(), "x", WithLease(time.Hour)))(t)
				var next waiter
				if op == "Serve" { // the release is for a waiter of the same client
					next = queued(t.Context(), c, "x", WithWait(time.Minute), WithLease(time.Hour))
				}
				panics(t, func() { _ = l.Unlock(context.Background()) })
				if op == "Release" {
					next = begin(t.Context(), c, "x", WithWait(time.Minute))
				}
				must(t, next.lease(t).Unlock(t.Context()))
			})
		})
	}
}

// The store may have granted the lock to the next waiter's owner before the panic: that grant is released.
func TestABackendThatPanicsAfterAHandoffFreesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := on(t, spyOn(s, "Queue", hooks{"Serve": doneThenPanics()}))
		l := need(c.Lock(context.Background(), "x", WithLease(time.Hour)))(t)
		next := queued(t.Context(), c, "x", WithWait(time.Minute), WithLease(time.Hour))
		panics(t, func() { _ = l.Unlock(context.Background()) })
		must(t, next.lease(t).Unlock(t.Context()))
		time.Sleep(5 * time.Second)
		if s := engineOf(c).Probe().Snapshot(); s != (engine.Snapshot{}) {
			t.Errorf("left: %+v", s)
		}
	})
}

func TestABackendThatPanicsInAReleaseOfSeveralLocksFreesThemAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		boom, answer := true, make(chan struct{})
		c := on(t, spyOn(s, "Batch", hooks{"ReleaseAll": func(c *call) error {
			if boom {
				boom = false
				panic("a hook of the client library")
			}
			return c.run(context.Background())
		}, "SetHolds": onceClosed(answer)}))
		all := need(c.LockAll(context.Background(), []string{"x", "y", "z"}, WithLease(time.Hour)))(t)
		again := begin(all.Context(), c, "z", WithLease(time.Hour)) // the release of z waits for it
		synctest.Wait()
		panics(t, func() { _ = all.Unlock(context.Background()) })
		close(answer)
		if a := <-again; a.err == nil {
			must(t, a.Unlock(t.Context()))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, thenUnlock(c.LockAll(ctx, []string{"x", "y", "z"})))
		must(t, c.Shutdown(ctx))
	})
}

// The releases of y and z wait for re-entries, and are sent one by one. The panic ends the first of them.
func TestABackendThatPanicsInAReleaseByItselfSendsTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, _ func(...ClientOption) *Client) {
		var boomed atomic.Bool
		answer := make(chan struct{})
		c := on(t, spyOn(s, "Batch", hooks{"Release": func(c *call) error {
			if boomed.CompareAndSwap(false, true) {
				panic("a hook of the client library")
			}
			return c.run(context.Background())
		}, "SetHolds": onceClosed(answer)}))
		all := need(c.LockAll(context.Background(), []string{"x", "y", "z"}, WithLease(time.Hour)))(t)
		again := []waiter{queued(all.Context(), c, "y"), queued(all.Context(), c, "z")}
		panicked := later(func() (value any) {
			defer func() { value = recover() }()
			_ = all.Unlock(context.Background())
			return nil
		})
		synctest.Wait()
		close(answer)
		if <-panicked == nil {
			t.Error("the panic of the backend was swallowed")
		}
		for _, w := range again {
			if a := <-w; a.err == nil {
				must(t, a.Unlock(t.Context()))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		must(t, thenUnlock(c.LockAll(ctx, []string{"x", "y", "z"})))
		must(t, c.Shutdown(ctx))
	})
}

func TestAPanicInLockAllReleasesWhatItHas(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		acquired := 0
		c, other := open(WithObserver(Observer{Acquired: func(Event) {
			if acquired++; acquired == 2 {
				panic("boom")
			}
		}})), open()
		free := func(what string) {
			synctest.Wait()
			t.Logf("after a panic of %s", what)
			noError(t, thenUnlock(other.LockAll(t.Context(), []string{"x", "y", "z"})))
		}
		panics(t, func() { _, _ = c.LockAll(t.Context(), []string{"x", "y", "z"}) })
		free("the observer, locks taken together")
		acquired = 0
		mixed := Parts{}.And(c, "x").And(c.With(Fair()), "y").And(c, "z")
		panics(t, func() { _, _ = mixed.Lock(t.Context()) })
		free("the observer, locks taken one by one")
		panics(t, func() { _, _ = Parts{}.And(c, "x").And(panicking{}, "y").Lock(t.Context()) })
		free("another Locker")
	})
}

// The lock of the observer's event is unlocked, and may be another call's when the panic ends LockAll.
func TestAPanicOfAcquiredInLockAllLeavesAWaiterItsLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		acquired := 0
		var c *Client
		var next waiter
		c = open(WithObserver(Observer{Acquired: func(Event) {
			if acquired++; acquired == 2 {
				next = queued(context.Background(), c, "y")
				panic("boom")
			}
		}}))
		panics(t, func() { _, _ = c.LockAll(t.Context(), []string{"x", "y"}) })
		synctest.Wait()
		l := next.lease(t)
		noError(t, l.Err())
		other := open()
		wants(t, errorOf(other.TryLock(t.Context(), "y")), ErrNotAcquired)
		noError(t, l.Unlock(t.Context()))
		noError(t, thenUnlock(other.LockAll(t.Context(), []string{"x", "y"})))
	})
}

// panicking is a Locker that panics.
type panicking struct{}

func (panicking) Lock(context.Context, string, ...Option) (*Lease, error) { panic("boom") }

func (panicking) TryLock(context.Context, string, ...Option) (*Lease, error) { panic("boom") }
