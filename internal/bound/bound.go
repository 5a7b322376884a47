// Package bound bounds the waiting of a call, and not its first question.
package bound

import (
	"context"
	"sync"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// FirstAnswer is for how long the store's first answer is awaited where a wait is shorter.
const FirstAnswer = time.Second

// Wait is a child of ctx that ends after d with fail.WaitOver. WithWait bounds waiting for a holder, and not the
// first question, which takes a round trip however short the wait: until the caller says Begins, d is as long as
// FirstAnswer.
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

// short is shorter than a round trip may be.
type short struct {
	context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer
	due      bool // its time is over
	answered bool // the first question is answered, or was not asked before there was something to wait for
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

// Err is what a context with a deadline says.
func (x *short) Err() error {
	err := x.Context.Err()
	if err != nil && context.Cause(x.Context) == fail.WaitOver {
		return context.DeadlineExceeded
	}
	return err
}

// Begins notes that a call goes from asking to waiting: a wait made by Wait ends when its time is over.
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
