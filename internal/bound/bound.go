// Package bound bounds the waiting of a call, but not its first request to the store.
package bound

import (
	"context"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// FirstAnswer is how long a call with a shorter wait still waits for the store's first answer.
const FirstAnswer = time.Second

// Wait returns a child of ctx that ends after d with the cause fail.WaitOver. WithWait bounds the waiting for a
// holder, and not the first request, which takes a round trip however short the wait is. So a wait shorter than
// FirstAnswer lasts for FirstAnswer until the caller calls Begins.
func Wait(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d >= FirstAnswer {
		return context.WithTimeoutCause(ctx, d, fail.WaitOver)
	}
	x := &short{}
	x.Context, x.cancel = context.WithCancelCause(ctx)
	x.mu.Lock() // the timer may be due at once
	x.timer = time.AfterFunc(d, func() { x.over(d) })
	x.mu.Unlock()
	return x, func() {
		x.timer.Stop()
		x.cancel(nil)
	}
}

// short is a wait shorter than FirstAnswer.
type short struct {
	context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer
	due      bool // the wait's own time is over
	answered bool // Begins was called
}

func (x *short) over(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.due || x.answered {
		x.cancel(fail.WaitOver)
		return
	}
	x.due = true
	x.timer.Reset(FirstAnswer - d)
}

// Err returns context.DeadlineExceeded if the wait is over, as a context with a deadline does.
func (x *short) Err() error {
	err := x.Context.Err()
	if err != nil && context.Cause(x.Context) == fail.WaitOver {
		return context.DeadlineExceeded
	}
	return err
}

// Begins notes that a call begins to wait: its first request was answered, or it waits before it asks. From now on a
// wait made by Wait ends when its own time is over; if that was before, it ends now.
func Begins(wait context.Context) {
	x, is := wait.(*short)
	if !is {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered = true; x.due {
		x.cancel(fail.WaitOver)
	}
}
