package mortise

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// A Client that New did not make says so, and does not panic.
func TestAZeroClientIsInvalid(t *testing.T) {
	ctx := context.Background()
	c := new(Client)
	read, write := c.RW().Read, c.RW().Write
	calls := map[string]func() error{
		"Lock":               func() error { _, err := c.Lock(ctx, "x"); return err },
		"TryLock":            func() error { _, err := c.TryLock(ctx, "x"); return err },
		"nil Lock":           func() error { _, err := (*Client)(nil).Lock(ctx, "x"); return err },
		"Locker":             func() error { _, err := c.Locker(); return err },
		"a fair Locker":      func() error { _, err := c.Locker(Fair()); return err },
		"read":               func() error { _, err := read.Lock(ctx, "x"); return err },
		"write":              func() error { _, err := write.TryLock(ctx, "x"); return err },
		"LockAll":            func() error { _, err := c.LockAll(ctx, "x", "y"); return err },
		"Quorum":             func() error { _, err := Quorum(c, new(Client), new(Client)); return err },
		"Inspect":            func() error { _, err := c.Inspect(ctx, "x"); return err },
		"RW().Inspect":       func() error { _, err := c.RW().Inspect(ctx, "x"); return err },
		"ForceUnlock":        func() error { _, err := c.ForceUnlock(ctx, "x"); return err },
		"WithDelegations":    func() error { _, err := c.WithDelegations(ctx); return err },
		"Ping":               func() error { return c.Ping(ctx) },
		"Close":              c.Close,
		"Shutdown":           func() error { return c.Shutdown(ctx) },
		"Do":                 func() error { return Do(ctx, c, "x", func(context.Context) error { return nil }) },
		"counting semaphore": func() error { return c.CountingSemaphore("x").Acquire(ctx, 1) },
		"release":            func() error { return c.CountingSemaphore("x").Release(ctx, 1) },
		"semaphore":          func() error { _, err := c.Semaphore("x").TryAcquire(ctx); return err },
		"available":          func() error { _, err := c.Semaphore("x").Available(ctx); return err },
		"latch":              func() error { return c.CountDownLatch("x").Wait(ctx) },
		"count down":         func() error { return c.CountDownLatch("x").CountDown(ctx) },
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) { wants(t, call(), ErrInvalid) })
	}
}

func TestANilClientIsInvalid(t *testing.T) {
	ctx := t.Context()
	var c *Client
	for name, call := range map[string]func() error{
		"counting semaphore": func() error { return c.CountingSemaphore("x").Acquire(ctx, 1) },
		"latch":              func() error { return c.CountDownLatch("x").Wait(ctx) },
		"semaphore":          func() error { _, err := c.Semaphore("x").TryAcquire(ctx); return err },
		"inspect":            func() error { _, err := c.Inspect(ctx, "x"); return err },
		"close":              func() error { return c.Close() },
		"rw":                 func() error { r := c.RW().Read; _, err := r.Lock(ctx, "x"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("panic: %v", p)
				}
			}()
			wants(t, call(), ErrInvalid)
		})
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

// A backend that panics, and whose caller recovers, leaves no place at the gate taken.
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
	if n := c.engine.Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// A backend that panics in a repeated question, on a caller that cannot leave, left its slot twice: it hung.
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
	if n := c.engine.Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}
