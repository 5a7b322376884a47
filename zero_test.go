package mortise

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

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

// Do tells of a loss beside what fn returned.
func TestDoTellsOfALossBesideTheErrorOfTheFunction(t *testing.T) {
	errMine := errors.New("mine")
	for name, of := range map[string]func(ctx context.Context) error{
		"ctx.Err":  func(ctx context.Context) error { return ctx.Err() },
		"own":      func(context.Context) error { return errMine },
		"cause":    func(ctx context.Context) error { return context.Cause(ctx) },
		"wrapping": func(ctx context.Context) error { return fmt.Errorf("work: %w", context.Cause(ctx)) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				var fns error
				err := Do(t.Context(), open(), "x", func(ctx context.Context) error {
					<-ctx.Done()
					fns = of(ctx)
					return fns
				}, WithLease(time.Second))
				wants(t, err, ErrLost)
				wants(t, err, fns)
				if name == "cause" || name == "wrapping" {
					if err.Error() != fns.Error() {
						t.Errorf("the loss is told twice: %v", err)
					}
				}
			})
		})
	}
	c := newClient(t)
	if err := Do(t.Context(), c, "x", func(context.Context) error { return errMine }); err != errMine {
		t.Errorf("got %v, want fn's own error", err)
	}
}

// Do tells of a loss that only Unlock finds out.
func TestDoTellsOfALossThatUnlockFindsOut(t *testing.T) {
	errMine := errors.New("mine")
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		l := fakeLocker(func(ctx context.Context, name string) (*Lease, error) {
			return NewLease(ctx, name, func(context.Context) error {
				return &Error{Op: "unlock", Name: name, Err: fmt.Errorf("%w: %w", ErrNotHeld, ErrLost)}
			}), nil
		})
		err := Do(t.Context(), l, "x", func(context.Context) error { return errMine })
		wants(t, err, errMine)
		wants(t, err, ErrLost)
	})
}

type fakeLocker func(ctx context.Context, name string) (*Lease, error)

func (f fakeLocker) Lock(ctx context.Context, name string, _ ...Option) (*Lease, error) {
	return f(ctx, name)
}

func (f fakeLocker) TryLock(ctx context.Context, name string, _ ...Option) (*Lease, error) {
	return f(ctx, name)
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
