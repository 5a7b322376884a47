package engine

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/retry"
)

// sender carries commands out for callers that may leave.
type sender struct {
	*state
	retry retry.Policy
	// base is the context of commands. A caller's ends only its wait: a command that was sent is always awaited, so
	// that what it got is not left behind.
	base   context.Context
	cancel context.CancelFunc
}

func newSender(s *state) sender {
	x := sender{state: s}
	x.base, x.cancel = context.WithCancel(context.Background())
	x.retry = retry.Policy{Temporary: temporary, Done: x.base.Done()}
	return x
}

func temporary(err error) bool { return backend.FaultOf(err).Temporary }

// Base is the context of commands that no caller can end.
func (e *sender) Base() context.Context { return e.base }

// Explain puts the sentinel before a backend's error.
func (e *sender) Explain(err error) error { return fail.FromStore(err, e.base.Err() != nil) }

// unleft is the context of a command that its caller cannot leave. A store that lets callers leave ends commands itself
// when it is closed, and needs no goroutine where the context cannot end.
func (e *sender) unleft(leaves bool) context.Context {
	if leaves {
		return context.Background()
	}
	return e.base
}

// pending is a command whose caller may leave before the store has answered.
type pending interface {
	// send sends the command for the first time. Where the store lets callers leave it, ctx is the caller's, and the
	// error may be a *backend.Left.
	send(ctx context.Context) error
	// left returns what waits for the answer, if err says that the caller has left; otherwise nil.
	left(err error) (wait func() error)
	// finish goes on from what the first send came to: it repeats a failure that may pass, and settles the rest. Its
	// error is the caller's.
	finish(err error) error
	// dispose undoes what finish came to, where the caller has left.
	dispose()
	// flag is set by the caller that leaves, or by the answer.
	flag() *atomic.Bool
}

// errand is embedded in a pending command.
type errand struct{ claimed atomic.Bool }

func (x *errand) flag() *atomic.Bool { return &x.claimed }

// carryOut sends p and returns what finish does, or *fail.CallerGone as soon as ctx ends: p then goes on by
// itself. Leaves tells that the store lets callers leave p. A context that cannot end costs no goroutine, nor
// does a store that lets callers leave, unless the first attempt fails. Shutdown waits for p.
func (e *sender) carryOut(ctx context.Context, p pending, leaves bool) error {
	if way, direct := e.route(ctx, leaves); direct {
		return e.sent(ctx, p, p.send(way))
	}
	return e.apart(ctx, p)
}

// apart is carryOut for a command that needs a goroutine.
func (e *sender) apart(ctx context.Context, p pending) error {
	return e.inBackground(ctx, p, func() error { return p.finish(p.send(e.base)) })
}

// route is the context that a command is sent with on its caller's goroutine; direct is false where it needs another.
func (e *sender) route(ctx context.Context, leaves bool) (way context.Context, direct bool) {
	if ctx.Done() == nil {
		return e.unleft(leaves), true
	}
	return ctx, leaves
}

// sent is the rest of carryOut, after a first send on the caller's goroutine that came to err.
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

// inBackground does the rest of p in a goroutine, and waits until it is done or ctx ends.
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

// leftBehind is pending.left for a command with one kind of reply.
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

// Await runs op, which sends commands under Base, and returns its error. When ctx ends first it returns
// *fail.CallerGone at once and leaves op to itself: its result is then found by dispose, which may be nil. What op
// came to may be read only if Await did not return *fail.CallerGone.
func (e *sender) Await(ctx context.Context, op func() error, dispose func()) error {
	if ctx.Err() != nil {
		return fail.Gone(ctx)
	}
	return e.SendOff(ctx, op, dispose)
}

// SendOff is Await for what must be sent though ctx has ended already.
func (e *sender) SendOff(ctx context.Context, op func() error, dispose func()) error {
	if ctx.Done() == nil {
		return op()
	}
	return e.inBackground(ctx, &task{after: dispose}, op)
}

// task is a pending command of functions.
type task struct {
	errand
	after func() // may be nil
}

func (*task) send(context.Context) error { return nil }
func (*task) left(error) func() error    { return nil }
func (*task) finish(err error) error     { return err }

func (t *task) dispose() {
	if t.after != nil {
		t.after()
	}
}
