package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

func enter(t *testing.T, l *limiter) {
	t.Helper()
	_, err := l.enter(t.Context(), nil)
	must(t, err)
}

// Callers leave the in-flight limiter in any order, each at the same cost: with a search for each it took minutes.
func TestManyCallersLeaveALimiterAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1)
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
		l.leave(nil)
		enter(t, l)
	})
}

// A slot that becomes free while a caller leaves goes to the next.
func TestASlotIsNotLostWithACallerThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1)
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
		l.leave(nil)
		must(t, <-got)
		l.leave(nil)
		if len(l.slots) != 0 {
			t.Errorf("%d slots are taken", len(l.slots))
		}
	})
}

func TestACallerLeavesALimiterWhenTheClientCloses(t *testing.T) {
	l := newLimiter(1)
	enter(t, l)
	closing := make(chan struct{})
	close(closing)
	if _, err := l.enter(t.Context(), closing); err != fail.Closing {
		t.Errorf("got %v", err)
	}
}

// A caller that waits for a slot is refused for a store that does not answer, and not because many others wait.
func TestALimiterRefusesOnlyIfNothingIsAnswered(t *testing.T) {
	errDown := errors.New("the server is down")
	for _, answer := range []error{nil, errDown} {
		synctest.Test(t, func(t *testing.T) {
			l := newLimiter(1)
			enter(t, l)
			got := make(chan error)
			for range 20 {
				go func() { _, err := l.enter(t.Context(), nil); got <- err }()
			}
			served := 0
			for range 20 { // each acquisition takes 4 s, so the last one waits for 80 s
				time.Sleep(4 * time.Second)
				synctest.Wait()
				l.leave(answer)
				err := <-got
				if err == nil {
					served++
				} else if answer == nil || !errors.Is(err, errDown) {
					t.Errorf("acquisitions end with %v: %v", answer, err)
				}
				if err != nil {
					enter(t, l)
				}
			}
			if answer == nil && served != 20 {
				t.Errorf("%d of 20 were served", served)
			}
			if answer != nil && served == 20 {
				t.Error("none was refused though none had an answer")
			}
		})
	}
}
