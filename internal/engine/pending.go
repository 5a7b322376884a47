package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/retry"
)

// sender sends commands for callers that may leave.
type sender struct {
	*state
	retry retry.Policy
	// base is the context of commands. The end of a caller's context ends only its wait: the sender awaits the answer
	// of each command, so that a grant without a caller is found and released.
	base   context.Context
	cancel context.CancelFunc
}

func newSender(s *state) sender {
	x := sender{state: s}
	x.base, x.cancel = context.WithCancel(context.Background())
	x.retry = retry.Policy{Temporary: temporary, Done: x.base.Done()}
	return x
}

// asking returns the policy for commands that are not repeated once Shutdown has begun: all that release nothing.
func (e *sender) asking() retry.Policy {
	p := e.retry
	p.Done = e.calls.closing
	return p
}

func temporary(err error) bool { return backend.FaultOf(err).Temporary }

// Base returns the context of commands. It ends only when the client shuts down.
func (e *sender) Base() context.Context { return e.base }

// Explain wraps a backend's error in the sentinel for users.
func (e *sender) Explain(err error) error { return fail.FromStore(err, e.base.Err() != nil) }

// unleft returns the context of a command whose caller cannot leave. If the store has backend.Leaver for the command's
// kind, the context cannot end: the store needs no goroutine then, and ends commands itself when closed.
func (e *sender) unleft(leaves bool) context.Context {
	if leaves {
		return context.Background()
	}
	return e.base
}

// pending is a command whose caller may leave before the answer.
type pending interface {
	// send sends the command once. If callers can leave it (backend.Leaver), ctx is the caller's context, and the
	// error may be a *backend.Left.
	send(ctx context.Context) error
	// left returns a function that waits for the answer, if err is a *backend.Left; otherwise nil.
	left(err error) (wait func() error)
	// finish goes on after the first send, which returned err: it retries a temporary failure and notes the outcome.
	// It returns the caller's error.
	finish(err error) error
	// dispose undoes the command. It is called after finish if the caller has left.
	dispose()
	// abort ends the command, whose outcome is unknown, after a panic of the backend on the caller's goroutine. It does
	// not wait for the store.
	abort()
	// flag returns the flag that decides whether the caller left first, or the answer came first: the first one sets
	// it.
	flag() *atomic.Bool
}

// errand is the flag of a pending command, to be embedded.
type errand struct{ decided atomic.Bool }

func (x *errand) flag() *atomic.Bool { return &x.decided }

// carryOut sends p, and returns the error of finish. If ctx ends before, carryOut returns *fail.CallerGone at once,
// and p goes on in the background; Shutdown waits for p. Leaves: callers can leave p in the store, by backend.Leaver.
// p needs no goroutine if ctx cannot end; with leaves, p needs one only after the caller has left or send has failed.
func (e *sender) carryOut(ctx context.Context, p pending, leaves bool) error {
	way, direct := e.route(ctx, leaves)
	if !direct {
		return e.carryOutElsewhere(ctx, p)
	}
	sending := true
	defer abortIf(&sending, p)
	err := e.sent(ctx, p, p.send(way))
	sending = false
	return err
}

// abortIf aborts p if it is still being sent. The caller's goroutine defers it while it sends p: a backend that calls
// the user's code, such as a hook of the client library, may panic.
func abortIf(sending *bool, p interface{ abort() }) {
	if *sending {
		*sending = false
		p.abort()
	}
}

// errPanicked is the outcome of a command in which the backend panicked.
var errPanicked = &backend.Fault{Err: errors.New("the backend panicked"), MayHaveRun: true}

// carryOutElsewhere is carryOut with a goroutine for the command.
func (e *sender) carryOutElsewhere(ctx context.Context, p pending) error {
	return e.inBackground(ctx, p, func() error { return p.finish(p.send(e.base)) })
}

// route returns the context with which the caller's goroutine sends a command. Direct is false if the command needs a
// goroutine of its own.
func (e *sender) route(ctx context.Context, leaves bool) (way context.Context, direct bool) {
	if ctx.Done() == nil {
		return e.unleft(leaves), true
	}
	return ctx, leaves
}

// sent is the rest of carryOut after the caller's goroutine has sent p, and send returned err.
func (e *sender) sent(ctx context.Context, p pending, err error) error {
	if err == nil || ctx.Done() == nil {
		return p.finish(err)
	}
	if wait := p.left(err); wait != nil {
		e.begin()
		go func() {
			defer e.end()
			_ = p.finish(wait())
			p.dispose()
		}()
		return fail.Gone(ctx)
	}
	return e.inBackground(ctx, p, func() error { return p.finish(err) })
}

// inBackground runs the rest of p in a goroutine, and waits until it is done or ctx ends.
func (e *sender) inBackground(ctx context.Context, p pending, rest func() error) error {
	reply := make(chan error, 1)
	p.flag().Store(false)
	e.begin()
	go func() {
		defer e.end()
		err := rest()
		if p.flag().CompareAndSwap(false, true) {
			reply <- err
		} else {
			p.dispose()
		}
	}()
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		if p.flag().CompareAndSwap(false, true) {
			return fail.Gone(ctx)
		}
		return <-reply
	}
}

// leftBehind implements pending.left for commands with one type of reply. The function that it returns passes the
// reply to heard.
func leftBehind[R any](err error, heard func(R, error)) func() error {
	left, is := errors.AsType[*backend.Left[R]](err)
	if !is {
		return nil
	}
	return func() error {
		reply, err := left.Wait()
		heard(reply, err)
		return err
	}
}

// Await runs op, which sends commands under Base, and returns its error. If ctx ends before, Await returns
// *fail.CallerGone at once, and op goes on; dispose, if not nil, is called after op. The caller may read what op
// writes only if Await did not return *fail.CallerGone.
func (e *sender) Await(ctx context.Context, op func() error, dispose func()) error {
	if ctx.Err() != nil {
		return fail.Gone(ctx)
	}
	return e.SendOff(ctx, op, dispose)
}

// SendOff is Await, but runs op even if ctx has already ended.
func (e *sender) SendOff(ctx context.Context, op func() error, dispose func()) error {
	if ctx.Done() == nil {
		return op()
	}
	return e.inBackground(ctx, &task{after: dispose}, op)
}

// task is a pending command for Await and SendOff: the operation runs as the rest of inBackground.
type task struct {
	errand
	after func() // may be nil
}

func (*task) send(context.Context) error { return nil }
func (*task) left(error) func() error    { return nil }
func (*task) finish(err error) error     { return err }
func (*task) abort()                     {}

func (t *task) dispose() {
	if t.after != nil {
		t.after()
	}
}
