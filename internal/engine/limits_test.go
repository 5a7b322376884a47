package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/internal/fail"
)

func enter(t *testing.T, l limiter) {
	t.Helper()
	_, err := l.enter(t.Context(), nil)
	must(t, err)
}

// Callers leave the in-flight limiter in any order, each at the same cost: with a search for each it took minutes.
func TestManyCallersLeaveALimiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(limiter, 1)
		enter(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50_000 {
			wg.Go(func() {
				if _, err := l.enter(ctx, nil); !fail.IsGone(err) {
					t.Errorf("a caller that left: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		l.leave()
		enter(t, l)
	})
}

// A slot that becomes free while a caller leaves goes to the next.
func TestASlotIsNotLostWithACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(limiter, 1)
		enter(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() { _, err := l.enter(ctx, nil); got <- err }()
			synctest.Wait()
		}
		cancel()
		if err := <-got; !fail.IsGone(err) {
			t.Errorf("the caller that left: %v", err)
		}
		l.leave()
		must(t, <-got)
		l.leave()
		if len(l) != 0 {
			t.Errorf("%d slots are taken", len(l))
		}
	})
}

func TestACallerLeavesALimiterWhenTheClientCloses(t *testing.T) {
	l := make(limiter, 1)
	enter(t, l)
	closing := make(chan struct{})
	close(closing)
	if _, err := l.enter(t.Context(), closing); err != fail.Closing {
		t.Errorf("got %v", err)
	}
}
