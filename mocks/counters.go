package mocks

import (
	"context"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// Semaphore has the methods of [*semaphore.Semaphore]. Code with permits declares an interface of its
// own, with the methods in use; [MockSemaphore] satisfies such an interface too.
// [semaphore.NewPermit] makes the permit.
type Semaphore interface {
	Acquire(ctx context.Context, n int, opts ...mortise.Option) (*semaphore.Permit, error)
	TryAcquire(ctx context.Context, n int, opts ...mortise.Option) (*semaphore.Permit, error)
	Release(ctx context.Context, ids ...string) error
	Inspect(ctx context.Context) (semaphore.Info, error)
	Available(ctx context.Context) (int, error)
	SetPermits(ctx context.Context, n int) error
	AddPermits(ctx context.Context, delta int) error
	TrySetPermits(ctx context.Context, n int) (bool, error)
	Delete(ctx context.Context) (bool, error)
}

// CountingSemaphore has the methods of [*semaphore.Counting].
type CountingSemaphore interface {
	Acquire(ctx context.Context, n int, opts ...mortise.Option) error
	TryAcquire(ctx context.Context, n int) error
	Release(ctx context.Context, n int) error
	Available(ctx context.Context) (int, error)
	AddPermits(ctx context.Context, delta int) error
	TrySetPermits(ctx context.Context, n int) (bool, error)
	Drain(ctx context.Context) (int, error)
	Delete(ctx context.Context) (bool, error)
}

// CountDownLatch has the methods of [*latch.Latch].
type CountDownLatch interface {
	TrySet(ctx context.Context, n int64) (bool, error)
	CountDown(ctx context.Context) error
	Count(ctx context.Context) (int64, error)
	Wait(ctx context.Context, opts ...mortise.Option) error
	Delete(ctx context.Context) (bool, error)
}

var (
	_ Semaphore         = (*semaphore.Semaphore)(nil)
	_ CountingSemaphore = (*semaphore.Counting)(nil)
	_ CountDownLatch    = (*latch.Latch)(nil)
)
