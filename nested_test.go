package mortise_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
)

// pair is a caller's client and a callee's on one store.
func pair(t *testing.T) (store *memory.Store, a, b *mortise.Client) {
	t.Helper()
	store = memory.New()
	return store, newOn(t, store), newOn(t, store)
}

func newOn(t *testing.T, store *memory.Store, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	c, err := mortise.New(store, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		c.Shutdown(ctx)
	})
	return c
}

// called is the context of a call made under ctx, where it arrives at c.
func called(t *testing.T, c *mortise.Client, ctx context.Context) context.Context {
	t.Helper()
	got, err := c.Adopt(context.Background(), mortise.ClaimsOf(ctx)...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func lock(t *testing.T, l mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) *mortise.Lease {
	t.Helper()
	lease, err := l.Lock(ctx, name, append([]mortise.Option{mortise.WithWait(5 * time.Second)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func unlock(t *testing.T, l *mortise.Lease) {
	t.Helper()
	if err := l.Unlock(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestACalleeEntersItsCallersLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := pair(t)
		ctx := context.Background()
		outer := lock(t, a, ctx, "n")
		inner := lock(t, b, called(t, b, outer.Context()), "n")
		if _, err := b.TryLock(ctx, "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Errorf("a competitor: %v", err)
		}
		if _, err := b.TryLock(called(t, b, outer.Context()), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Errorf("a second callee: %v", err)
		}
		if _, err := a.TryLock(outer.Context(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Errorf("the caller itself: %v", err)
		}
		back := lock(t, a, called(t, a, inner.Context()), "n") // A -> B -> A
		again := lock(t, a, back.Context(), "n")
		unlock(t, again)
		unlock(t, back)
		unlock(t, inner)
		self := lock(t, a, outer.Context(), "n")
		unlock(t, self)
		unlock(t, outer)
		unlock(t, lock(t, b, ctx, "n"))
	})
}
