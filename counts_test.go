package mortise

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

func TestRule03PermitsAreRenewedTogetherAndEndWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var renewed int
		c := on(t, store, WithObserver(Observer{Renewed: func(RenewedEvent) { renewed++ }}))
		ctx := context.Background()
		p := c.Semaphore("n")
		if _, err := p.TrySetPermits(ctx, 2); err != nil {
			t.Fatal(err)
		}
		a := need(p.Acquire(ctx))(t)
		bounded := need(p.Acquire(ctx, WithMaxHold(time.Minute)))(t)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if a.Err() != nil || renewed < 10 {
			t.Errorf("after 2 minutes: %v, %d renewals", a.Err(), renewed)
		}
		if err := bounded.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("one held for as long as WithMaxHold allows: %v", err)
		}
		store.SetDown(errors.New("away"))
		<-a.Context().Done()
		if err := a.Err(); !errors.Is(err, ErrLost) {
			t.Errorf("with the store away for longer than the lease: %v", err)
		}
		store.SetDown(nil)
	})
}

func TestRule04APermitEndsForThoseWhoWaitWithoutAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		dead, c := on(t, store), on(t, store)
		ctx := context.Background()
		if _, err := c.Semaphore("n").TrySetPermits(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for _, lease := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if _, err := dead.Semaphore("n").Acquire(ctx, WithLease(lease)); err != nil {
				t.Fatal(err)
			}
		}
		dead.Shutdown(ended())
		start := time.Now()
		got := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				if _, err := c.Semaphore("n").Acquire(ctx); err != nil {
					t.Error(err)
				}
				got <- time.Since(start)
			}()
		}
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second} {
			if d := <-got; d < want || d > want+100*time.Millisecond {
				t.Errorf("one got it after %v, want %v", d, want)
			}
		}
	})
}

func TestRule12AFlushIsNoticedByPermitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		c := on(t, store)
		ctx := context.Background()
		if _, err := c.Semaphore("n").TrySetPermits(ctx, 1); err != nil {
			t.Fatal(err)
		}
		p := need(c.Semaphore("n").Acquire(ctx))(t)
		start := time.Now()
		store.Flush()
		<-p.Context().Done()
		if d := time.Since(start); d > time.Second || !errors.Is(p.Err(), ErrLost) {
			t.Errorf("after %v: %v", d, p.Err())
		}
	})
}

func TestRule09AnAcquireOfUnknownOutcomeIsCancelledOnceTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		b := spyOn(store, "CountingSemaphores", nil)
		c := on(t, b)
		ctx := context.Background()
		if _, err := c.CountingSemaphore("n").TrySetPermits(ctx, 3); err != nil {
			t.Fatal(err)
		}
		b.hook("TakeCount", func(c *call) error {
			defer store.SetDown(errGone)
			return replyLost(c)
		})
		if err := c.CountingSemaphore("n").Acquire(ctx, 2); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Acquire: %v", err)
		}
		b.hook("TakeCount", nil)
		time.Sleep(30 * time.Second)
		store.SetDown(nil)
		time.Sleep(2 * time.Second)
		if n, err := c.CountingSemaphore("n").Available(ctx); n != 3 || err != nil {
			t.Errorf("%d, %v are free, want 3", n, err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestWhatCouldNotBeConfirmedIsToldInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		var log strings.Builder
		c := on(t, store, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		store.SetDown(errors.New("away"))
		if err := c.CountingSemaphore("n").Release(context.Background(), 1); !errors.Is(err, ErrUnavailable) {
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

func TestNothingIsRememberedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, memory.New())
		ctx := context.Background()
		s := c.CountingSemaphore("n")
		q := s.count.Change(1)
		for i, want := range []int{1, 1, 2} {
			if i == 2 {
				time.Sleep(backend.Remembered + time.Second)
			}
			if _, err := c.engine.Capabilities().Semaphores.AddCount(ctx, q); err != nil {
				t.Fatal(err)
			}
			if n, err := s.Available(ctx); n != want || err != nil {
				t.Errorf("after request %d: %d, %v, want %d", i+1, n, err, want)
			}
		}
	})
}

func TestABackendWithoutCountsIsNamed(t *testing.T) {
	c := on(t, spyOn(memory.New(), "", nil))
	ctx := context.Background()
	_, set := c.CountDownLatch("n").TrySet(ctx, 1)
	_, permit := c.Semaphore("n").Acquire(ctx)
	for op, err := range map[string]error{
		"set":       set,
		"wait":      c.CountDownLatch("n").Wait(ctx),
		"countdown": c.CountDownLatch("n").CountDown(ctx),
		"acquire":   permit,
		"release":   c.CountingSemaphore("n").Release(ctx, 1),
	} {
		var e *Error
		if !errors.Is(err, ErrInvalid) || !errors.As(err, &e) || e.Op != op || !strings.Contains(err.Error(), "mortise.spySession") {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := c.Semaphore("n").Release(ctx, strings.Repeat("0", 32)); !errors.Is(err, ErrInvalid) {
		t.Errorf("release: %v", err)
	}
	var none *Permit
	if err := none.Release(ctx); !errors.Is(err, ErrNotHeld) || none.ID() != "" || none.Name() != "" || none.Context().Err() == nil || none.Err() == nil {
		t.Errorf("a nil permit: %v", err)
	}
}

func TestContextsOfCounts(t *testing.T) {
	c := on(t, memory.New())
	for what, err := range map[string]error{
		"Wait":    c.CountDownLatch("n").Wait(nil),
		"Acquire": c.CountingSemaphore("n").Acquire(nil, 1),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%s with a nil context: %v", what, err)
		}
	}
	if _, err := c.Semaphore("n").Acquire(nil); !errors.Is(err, ErrInvalid) {
		t.Errorf("Acquire with a nil context: %v", err)
	}
	if err := c.CountingSemaphore("n").Release(nil, 1); err != nil {
		t.Errorf("Release with a nil context: %v", err)
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := c.CountingSemaphore("n").Acquire(over, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire with a context that has ended: %v", err)
	}
	if n, err := c.CountingSemaphore("n").Available(context.Background()); n != 1 || err != nil {
		t.Errorf("%d, %v are free", n, err)
	}
}
