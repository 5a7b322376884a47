package mocks

import (
	"context"

	"github.com/mortise-go/mortise"
)

// Semaphore has the methods of [*mortise.Semaphore]. Code with permits declares an interface of its
// own, with the methods in use; [MockSemaphore] satisfies such an interface too.
// [mortise.NewPermit] makes the permit.
type Semaphore interface {
	Acquire(ctx context.Context, n int, opts ...mortise.Option) (*mortise.Permit, error)
	TryAcquire(ctx context.Context, n int, opts ...mortise.Option) (*mortise.Permit, error)
	Release(ctx context.Context, ids ...string) error
	Inspect(ctx context.Context) (mortise.SemaphoreInfo, error)
	Available(ctx context.Context) (int, error)
	SetPermits(ctx context.Context, n int) error
	AddPermits(ctx context.Context, delta int) error
	TrySetPermits(ctx context.Context, n int) (bool, error)
	Delete(ctx context.Context) (bool, error)
}

// CountingSemaphore has the methods of [*mortise.CountingSemaphore].
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

// CountDownLatch has the methods of [*mortise.CountDownLatch].
type CountDownLatch interface {
	TrySet(ctx context.Context, n int64) (bool, error)
	CountDown(ctx context.Context) error
	Count(ctx context.Context) (int64, error)
	Wait(ctx context.Context, opts ...mortise.Option) error
	Delete(ctx context.Context) (bool, error)
}

var (
	_ Semaphore         = (*mortise.Semaphore)(nil)
	_ CountingSemaphore = (*mortise.CountingSemaphore)(nil)
	_ CountDownLatch    = (*mortise.CountDownLatch)(nil)
)
