package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/internal/fail"
)

// Callers leave the in-flight limiter in any order, each at the same cost: with a search for each it took minutes.
func TestManyCallersLeaveALimiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(limiter, 1)
		must(t, l.enter(t.Context(), nil))
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 50_000 {
			wg.Go(func() {
				if err := l.enter(ctx, nil); !fail.IsGone(err) {
					t.Errorf("a caller that left: %v", err)
				}
			})
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		l.leave()
		must(t, l.enter(t.Context(), nil))
	})
}

// A slot that becomes free while a caller leaves goes to the next.
func TestASlotIsNotLostWithACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := make(limiter, 1)
		must(t, l.enter(t.Context(), nil))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() { got <- l.enter(ctx, nil) }()
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
	must(t, l.enter(t.Context(), nil))
	closing := make(chan struct{})
	close(closing)
	if err := l.enter(t.Context(), closing); err != fail.Closing {
		t.Errorf("got %v", err)
	}
}
