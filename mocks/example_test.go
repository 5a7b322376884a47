package mocks_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/mock/gomock"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/mocks"
	"github.com/mortise-go/mortise/semaphore"
)

// Shipping is a service that takes a lock for each order. It takes the interface, so
// that a test can hand it a mock.
type Shipping struct{ Locks mortise.Locker }

var errBusy = errors.New("order is being worked on")

func (s *Shipping) Ship(ctx context.Context, order int) error {
	name := fmt.Sprintf("orders:%d", order)
	err := mortise.Do(ctx, s.Locks, name, func(ctx context.Context) error {
		return ctx.Err() // the work
	}, mortise.WithWait(5*time.Second))
	if errors.Is(err, mortise.ErrNotAcquired) {
		return errBusy
	}
	return err
}

func TestShipWithAMock(t *testing.T) {
	locks := mocks.NewMockLocker(gomock.NewController(t))
	service := Shipping{Locks: locks}

	granted := mortise.NewLease(t.Context(), "orders:42", 0, nil)
	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any()).Return(granted, nil)
	if err := service.Ship(t.Context(), 42); err != nil {
		t.Errorf("granted: %v", err)
	}

	wait := mortise.WithWait(5 * time.Second)
	locks.EXPECT().Lock(gomock.Any(), "orders:42", wait).Return(nil, mortise.ErrNotAcquired)
	if err := service.Ship(t.Context(), 42); !errors.Is(err, errBusy) {
		t.Errorf("refused: %v, want errBusy", err)
	}

	ctx, lose := context.WithCancelCause(t.Context())
	lost := mortise.NewLease(ctx, "orders:42", 0, nil)
	lose(mortise.ErrLost)
	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any()).Return(lost, nil)
	if err := service.Ship(t.Context(), 42); !errors.Is(err, mortise.ErrLost) {
		t.Errorf("lost: %v, want ErrLost", err)
	}
}

// In a test, t takes the place of reporter and t.Context() that of ctx.
func Example() {
	ctx := context.Background()
	locks := mocks.NewMockLocker(gomock.NewController(reporter{}))
	service := Shipping{Locks: locks}

	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any()).Return(mortise.NewLease(ctx, "orders:42", 0, nil), nil)
	fmt.Println("granted:", service.Ship(ctx, 42))

	locks.EXPECT().Lock(gomock.Any(), "orders:42", mortise.WithWait(5*time.Second)).Return(nil, mortise.ErrNotAcquired)
	fmt.Println("refused:", service.Ship(ctx, 42))
	// Output:
	// granted: <nil>
	// refused: order is being worked on
}

// The same service on real locks, without a server.
func Example_memory() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	service := Shipping{Locks: locks}
	fmt.Println("granted:", service.Ship(context.Background(), 42))
	// Output: granted: <nil>
}

// reporter stands for a *testing.T, which examples have not.
type reporter struct{}

func (reporter) Errorf(format string, a ...any) { fmt.Printf(format+"\n", a...) }
func (reporter) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func TestLostLockReachesTheCaller(t *testing.T) {
	locks := mocks.NewMockLocker(gomock.NewController(t))
	ctx, lose := context.WithCancelCause(t.Context())
	lose(fmt.Errorf("the test says so: %w", mortise.ErrLost))
	unlocked := false
	unlock := func(context.Context) error { unlocked = true; return nil }
	locks.EXPECT().Lock(gomock.Any(), "orders:42", gomock.Any()).Return(mortise.NewLease(ctx, "orders:42", 0, unlock), nil)

	if err := (&Shipping{Locks: locks}).Ship(t.Context(), 42); err == nil {
		t.Error("Ship succeeded though the lock was lost")
	}
	if !unlocked {
		t.Error("the lease was not unlocked")
	}
}

// An expectation without a place for options matches calls without options only;
// gomock.Any() in that place matches any number of them.
func TestOptionsMatch(t *testing.T) {
	ctx := t.Context()
	locks := mocks.NewMockLocker(gomock.NewController(t))
	granted := mortise.NewLease(ctx, "x", 0, nil)
	locks.EXPECT().TryLock(ctx, "x", gomock.Any()).Return(granted, nil).Times(2)
	for _, opts := range [][]mortise.Option{nil, {mortise.WithLease(time.Second)}} {
		if got, err := locks.TryLock(ctx, "x", opts...); got != granted || err != nil {
			t.Errorf("TryLock with %d options: %v, %v", len(opts), got, err)
		}
	}
}

// Each thing that users hold has a mock: here code that reads under a read-write lock, asks for a permit, and waits for
// its workers, and what it sees of a store that is full, unavailable or slow.
func TestCodeUnderTestSeesWhatTheMocksSay(t *testing.T) {
	ctrl, ctx := gomock.NewController(t), t.Context()
	read, write := mocks.NewMockLocker(ctrl), mocks.NewMockLocker(ctrl)
	rw := mortise.RWLocker{Read: read, Write: write}
	imports, slots := mocks.NewMockSemaphore(ctrl), mocks.NewMockCountingSemaphore(ctrl)
	done := mocks.NewMockCountDownLatch(ctrl)

	released := 0
	permit := semaphore.NewPermit(ctx, "imports", func(context.Context) error { released++; return nil }, "42")
	read.EXPECT().Lock(gomock.Any(), "catalog").Return(mortise.NewLease(ctx, "catalog", 0, nil), nil).AnyTimes()
	write.EXPECT().TryLock(gomock.Any(), "catalog").Return(nil, mortise.ErrNotAcquired)
	imports.EXPECT().Acquire(gomock.Any(), 1, mortise.WithWait(time.Second)).Return(permit, nil)
	slots.EXPECT().TryAcquire(gomock.Any(), 2).Return(mortise.ErrUnavailable)
	done.EXPECT().Wait(gomock.Any()).Return(context.DeadlineExceeded)

	for _, c := range []struct {
		what string
		call func() error
		want error
	}{
		{"a reader", func() error {
			return mortise.Do(ctx, rw.Read, "catalog", func(ctx context.Context) error { return ctx.Err() })
		}, nil},
		{"a writer that does not wait", func() error { _, err := rw.Write.TryLock(ctx, "catalog"); return err },
			mortise.ErrNotAcquired},
		{"a permit", func() error {
			p, err := imports.Acquire(ctx, 1, mortise.WithWait(time.Second))
			if err != nil || p.IDs()[0] != "42" || p.Name() != "imports" || p.Err() != nil {
				t.Errorf("the permit is %q of %q, %v, %v", p.IDs()[0], p.Name(), p.Err(), err)
			}
			return p.Release(ctx)
		}, nil},
		{"a counting semaphore", func() error { return slots.TryAcquire(ctx, 2) }, mortise.ErrUnavailable},
		{"a latch", func() error { return done.Wait(ctx) }, context.DeadlineExceeded},
	} {
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	if released != 1 || !errors.Is(permit.Err(), mortise.ErrReleased) {
		t.Errorf("the permit was released %d times: %v", released, permit.Err())
	}
}
