package clienttest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/counters"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// See rule 8 of package backendtest.
func TestAWaiterForOnePermitIsServedWhenTheWaiterForTwoLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		sem := semaphore.NewCounting(open(), "x")
		must(t, errorOf(sem.TrySetPermits(t.Context(), 0)))
		ctx, cancel := context.WithCancel(t.Context())
		first := later(func() error { return sem.Acquire(ctx, 2) })
		synctest.Wait()
		second := later(func() error { return sem.Acquire(t.Context(), 1) })
		synctest.Wait()
		must(t, sem.Release(t.Context(), 1))
		synctest.Wait() // the first was woken, and refused
		cancel()
		wants(t, <-first, context.Canceled)
		synctest.Wait()
		select {
		case err := <-second:
			must(t, err)
		default:
			t.Error("a permit is free, and the one who wants it sleeps")
		}
	})
}

// See rule 9 of package backendtest.
func TestAnAcquireOfUnknownOutcomeIsCancelledOnceTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		b := spyOn(store, "CountingSemaphores", nil)
		c := on(t, b)
		ctx := context.Background()
		if _, err := semaphore.NewCounting(c, "n").TrySetPermits(ctx, 3); err != nil {
			t.Fatal(err)
		}
		b.hook("TakeCount", func(c *call) error {
			defer store.SetDown(errGone)
			return replyLost(c)
		})
		if err := semaphore.NewCounting(c, "n").Acquire(ctx, 2); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Acquire: %v", err)
		}
		b.hook("TakeCount", nil)
		time.Sleep(30 * time.Second)
		store.SetDown(nil)
		time.Sleep(2 * time.Second)
		if n, err := semaphore.NewCounting(c, "n").Available(ctx); n != 3 || err != nil {
			t.Errorf("%d, %v are free, want 3", n, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestAReleaseThatIsGivenUpIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var log strings.Builder
		c := on(t, store, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		store.SetDown(errors.New("away"))
		if err := semaphore.NewCounting(c, "n").Release(context.Background(), 1); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Release: %v", err)
		}
		time.Sleep(backend.Remembered/2 + time.Second)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "given up") != 1 || !strings.Contains(got, "op=release name=n") {
			t.Errorf("the log: %s", got)
		}
		store.SetDown(nil)
	})
}

func TestARequestIsRememberedForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, memory.New())
		ctx := context.Background()
		s := semaphore.NewCounting(c, "n")
		counted := counters.NewCountingSemaphore(engineOf(c), "n")
		q := counted.Change(1)
		for i, want := range []int{1, 1, 2} {
			if i == 2 {
				time.Sleep(backend.Remembered + time.Second)
			}
			if _, err := engineOf(c).Capabilities().Semaphores.AddCount(ctx, q); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Available(ctx); n != want || err != nil {
				t.Errorf("after request %d: %d, %v, want %d", i+1, n, err, want)
			}
		}
	})
}

func TestCountsRefuseContextsThatAreNilOrOver(t *testing.T) {
	c := on(t, memory.New())
	for what, err := range map[string]error{
		"Wait":    latch.New(c, "n").Wait(nil),
		"Acquire": semaphore.NewCounting(c, "n").Acquire(nil, 1),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s with a nil context: %v", what, err)
		}
	}
	if _, err := semaphore.New(c, "n", 0).Acquire(nil, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("Acquire with a nil context: %v", err)
	}
	if err := semaphore.NewCounting(c, "n").Release(nil, 1); err != nil {
		t.Errorf("Release with a nil context: %v", err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := semaphore.NewCounting(c, "n").Acquire(over, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire with a context that has ended: %v", err)
	}
	if n, err := semaphore.NewCounting(c, "n").Available(context.Background()); n != 1 || err != nil {
		t.Errorf("%d, %v are free", n, err)
	}
}

// See rule 11 of package backendtest.
func TestAClientWithTheIDOfAnEarlierOneDoesNotGetItsReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New()
		before := on(t, st, WithID("pod-3"))
		must(t, errorOf(semaphore.NewCounting(before, "s").TrySetPermits(t.Context(), 1)))
		must(t, semaphore.NewCounting(before, "s").Acquire(t.Context(), 1))
		must(t, before.Close())
		after := semaphore.NewCounting(on(t, st, WithID("pod-3")), "s")
		if set, err := after.TrySetPermits(t.Context(), 1); set || err != nil {
			t.Errorf("set again: %v, %v", set, err)
		}
		wants(t, after.TryAcquire(t.Context(), 1), ErrNotAcquired)
	})
}

// Calls of one client want two and one. The request for the second is lost on its way, is refused when it is repeated,
// and yet arrives.
func TestAPermitThatALateRequestTookForAWaiterBehindTheFirstIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := spyOn(memory.New(), "CountingSemaphores", nil)
		sem, theirs := semaphore.NewCounting(on(t, b), "n"), semaphore.NewCounting(on(t, b.Store), "n")
		must(t, errorOf(theirs.TrySetPermits(t.Context(), 0)))
		ctx, cancel := context.WithCancel(t.Context())
		first := later(func() error { return sem.Acquire(ctx, 2) })
		synctest.Wait()
		second := later(func() error { return sem.Acquire(ctx, 1) })
		synctest.Wait()
		var late func(context.Context) error
		b.hook("TakeCount", func(k *call) error {
			if k.request.(backend.CountRequest).N == 1 && late == nil {
				late = k.run
				must(t, theirs.TryAcquire(t.Context(), 1))
				return unknownOutcome()
			}
			return k.run(k.ctx)
		})
		must(t, theirs.Release(t.Context(), 1))
		synctest.Wait()
		time.Sleep(time.Second)
		cancel()
		wants(t, <-first, context.Canceled)
		wants(t, <-second, context.Canceled)
		must(t, theirs.Release(t.Context(), 1))
		_ = late(t.Context())
		time.Sleep(time.Second)
		if n, err := theirs.Available(t.Context()); n != 1 || err != nil {
			t.Errorf("%d, %v are free, want 1", n, err)
		}
	})
}

// Calls of one client want two, two and one. The first asks, and it and the last give up before the store has its
// question, by which the store keeps what is free for the last.
func TestAPermitIsNotKeptForAWaiterThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := spyOn(memory.New(), "CountingSemaphores Enrolments", nil)
		sem, theirs := semaphore.NewCounting(on(t, b), "n"), semaphore.NewCounting(on(t, b.Store), "n")
		must(t, errorOf(theirs.TrySetPermits(t.Context(), 2)))
		must(t, theirs.Acquire(t.Context(), 2))
		ctx, cancel := context.WithCancel(t.Context())
		first := later(func() error { return sem.Acquire(ctx, 2) })
		synctest.Wait()
		second := later(func() error { return sem.Acquire(t.Context(), 2) })
		synctest.Wait()
		last := later(func() error { return sem.Acquire(ctx, 1) })
		synctest.Wait()
		gate, held := make(chan struct{}), false
		b.hook("TakeCount", func(k *call) error {
			if !held {
				held = true
				<-gate
			}
			return k.run(k.ctx)
		})
		must(t, theirs.Release(t.Context(), 1))
		synctest.Wait() // the first asks
		cancel()
		wants(t, <-first, context.Canceled)
		wants(t, <-last, context.Canceled)
		synctest.Wait() // the second has asked, and was refused
		close(gate)
		synctest.Wait()
		must(t, theirs.TryAcquire(t.Context(), 1))
		must(t, theirs.Release(t.Context(), 2))
		must(t, <-second)
	})
}

// The permits of a call that panics come back: no lease would ever bring them back.
func TestACallForPermitsThatPanicsKeepsNone(t *testing.T) {
	type acquire = func(ctx context.Context, s *semaphore.Counting) error
	one := func(ctx context.Context, s *semaphore.Counting) error { return s.Acquire(ctx, 1) }
	try := func(ctx context.Context, s *semaphore.Counting) error { return s.TryAcquire(ctx, 1) }
	free := func(t *testing.T, s *semaphore.Counting) {
		time.Sleep(time.Second)
		if n := need(s.Available(t.Context()))(t); n != 1 {
			t.Errorf("%d permits are free of one", n)
		}
	}
	boom := func() { panic("boom") }
	for name, take := range map[string]acquire{"Acquire": one, "TryAcquire": try} {
		t.Run("the observer/"+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
				s := semaphore.NewCounting(open(WithObserver(Observer{Acquired: func(Event) { boom() }})), "n")
				need(s.TrySetPermits(t.Context(), 1))(t)
				panics(t, func() { _ = take(t.Context(), s) })
				free(t, s)
			})
		})
		t.Run("the backend/"+name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *memory.Store, _ func(...ClientOption) *Client) {
				s := semaphore.NewCounting(on(t, spyOn(m, "CountingSemaphores", hooks{"TakeCount": doneThenPanics()})), "n")
				need(s.TrySetPermits(t.Context(), 1))(t)
				panics(t, func() { _ = take(context.Background(), s) })
				free(t, s)
			})
		})
	}
	t.Run("a waiter that was served meanwhile", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *memory.Store, open func(...ClientOption) *Client) {
			waiting := 0
			s := semaphore.NewCounting(open(WithObserver(Observer{Waiting: func(Event) {
				if waiting++; waiting == 2 {
					time.Sleep(time.Second)
					boom()
				}
			}})), "n")
			need(s.TrySetPermits(t.Context(), 0))(t)
			ctx, cancel := context.WithCancel(t.Context())
			first := later(func() error { return s.Acquire(ctx, 2) })
			synctest.Wait()
			panicked := later(func() any {
				defer func() { _ = recover() }()
				return s.Acquire(t.Context(), 1)
			})
			synctest.Wait()
			must(t, s.Release(t.Context(), 1)) // the first is refused, and takes the permit for the second
			if err := <-panicked; err != nil {
				t.Errorf("the second returned %v", err)
			}
			cancel()
			wants(t, <-first, context.Canceled)
			free(t, s)
		})
	})
}

// A take without an entry that "stays" puts none at the queue's end: the number 0 is no entry.
func TestMemoryPutsNoEntryZeroIntoAQueue(t *testing.T) {
	s := memory.New()
	topic := backend.Topic{Kind: backend.KindCountingSemaphore, Name: "s"}
	take := func(id string, n int64, e backend.Enrolment) backend.TakeReply {
		x := need(s.Open(quiet{}))(t)
		t.Cleanup(func() { x.Close() })
		x.Subscribe(topic)
		r := backend.CountRequest{Topic: topic, ID: id, N: n, Enrolment: e}
		return need(x.Capabilities().CountingSemaphores.TakeCount(t.Context(), r))(t)
	}
	x := need(s.Open(quiet{}))(t)
	defer x.Close()
	set := backend.CountRequest{Topic: topic, ID: "0", N: 1}
	need(x.Capabilities().CountingSemaphores.SetCount(t.Context(), set))(t)
	take("1", 3, backend.Enrolment{Entry: 7, Least: 3})
	if r := take("2", 1, backend.Enrolment{Stays: true}); !r.Granted || r.Enrolled {
		t.Errorf("a take without an entry: %+v", r)
	}
}

// quiet is a handler that ignores the messages of queues, too.
type quiet struct{ deaf }

func (quiet) Freed(backend.Topic)                        {}
func (quiet) Granted(backend.Topic, backend.Grant)       {}
func (quiet) Reserved(backend.Topic, uint64)             {}
func (quiet) First(backend.Topic, uint64, time.Duration) {}
func (quiet) Wanted(backend.Topic, uint64)               {}
