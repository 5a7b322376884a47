package mortise

import (
	"context"
	"sync"
	"time"
)

// firstAnswer is for how long the store's first answer is awaited where WithWait says less.
const firstAnswer = time.Second

// boundWait is a child of ctx that ends after d with errWaitOver. WithWait bounds waiting for a
// holder, and not the first question, which takes a round trip however short the wait: until the
// caller says nowWaits, d is as long as firstAnswer.
func boundWait(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d >= firstAnswer {
		return context.WithTimeoutCause(ctx, d, errWaitOver)
	}
	x := &shortWait{}
	x.Context, x.cancel = context.WithCancelCause(ctx)
	x.mu.Lock() // the timer may be due at once
	x.timer = time.AfterFunc(d, func() { x.over(d) })
	x.mu.Unlock()
	return x, func() {
		x.timer.Stop()
		x.cancel(nil)
	}
}

// shortWait is shorter than a round trip may be.
type shortWait struct {
	context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer
	due      bool // its time is over
	answered bool // the first question is answered, or was not asked before there was something to wait for
}

func (x *shortWait) over(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.due || x.answered {
		x.cancel(errWaitOver)
		return
	}
	x.due = true
	x.timer.Reset(firstAnswer - d)
}

// Err is what a context with a deadline says.
func (x *shortWait) Err() error {
	err := x.Context.Err()
	if err != nil && context.Cause(x.Context) == errWaitOver {
		return context.DeadlineExceeded
	}
	return err
}

// nowWaits notes that a call goes from asking to waiting: a wait made by boundWait ends when its time
// is over.
func nowWaits(wait context.Context) {
	x, short := wait.(*shortWait)
	if !short {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.answered = true; x.due {
		x.cancel(errWaitOver)
	}
}
