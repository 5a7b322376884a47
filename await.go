package mortise

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mortise-go/mortise/backend"
)

var (
	errClosing  = errors.New("the client is shutting down")
	errWaitOver = errors.New("the time given by WithWait is over")
)

// callerGone is the error of a call whose caller's context ended.
type callerGone struct{ err, cause error }

func (e *callerGone) Error() string {
	if e.cause != nil && e.cause != e.err {
		return fmt.Sprintf("%v: %v", e.err, e.cause)
	}
	return e.err.Error()
}

func (e *callerGone) Unwrap() []error { return []error{e.err, e.cause} }

func gone(ctx context.Context) error {
	return &callerGone{err: ctx.Err(), cause: context.Cause(ctx)}
}

// await runs op, which sends commands under the client's context, and returns its
// error. When ctx ends first it returns *callerGone at once and leaves op to itself:
// its result is then found by orphan, if there is one. op's results other than the
// error may be read only if await did not return *callerGone.
//
// A context that cannot end costs no goroutine. Shutdown waits for the goroutine; a
// caller that has something to settle afterwards brackets itself with begin and end.
func await(c *Client, ctx context.Context, op func() error, orphan func()) error {
	if ctx.Err() != nil {
		return gone(ctx)
	}
	return dispatch(c, ctx, op, orphan)
}

// dispatch is await for what must be sent though ctx has ended already.
func dispatch(c *Client, ctx context.Context, op func() error, orphan func()) error {
	if ctx.Done() == nil {
		return op()
	}
	return sendOff(c, ctx, &funcs{op: op, after: orphan})
}

// errand is an operation that its caller may leave to itself.
type errand interface {
	do() error
	orphan() // instead of telling the caller
	claim() *atomic.Bool
}

// claimable is embedded in an errand: it is the caller's who leaves, or the reply's.
type claimable struct{ claimed atomic.Bool }

func (x *claimable) claim() *atomic.Bool { return &x.claimed }

// sendOff does e in a goroutine of its own, and waits until it is done or ctx ends.
func sendOff(c *Client, ctx context.Context, e errand) error {
	reply := make(chan error, 1)
	c.begin()
	go func() {
		defer c.end()
		err := e.do()
		if e.claim().CompareAndSwap(false, true) {
			reply <- err
		} else {
			e.orphan()
		}
	}()
	select {
	case err := <-reply:
		return err
	case <-ctx.Done():
		if e.claim().CompareAndSwap(false, true) {
			return gone(ctx)
		}
		return <-reply
	}
}

// leftBehind settles an operation that its caller has left to itself, once it is over.
func leftBehind[R any](c *Client, left *backend.Left[R], settle func(R, error)) {
	c.begin()
	go func() {
		defer c.end()
		settle(left.Wait())
	}()
}

// funcs is an errand of two functions; after may be nil.
type funcs struct {
	claimable
	op    func() error
	after func()
}

func (f *funcs) do() error { return f.op() }

func (f *funcs) orphan() {
	if f.after != nil {
		f.after()
	}
}

// begin and end bracket what Shutdown waits for.
func (c *Client) begin() {
	c.mu.Lock()
	c.running++
	c.mu.Unlock()
}

// beginUnlessShut is begin for what is not begun any more once Shutdown has.
func (c *Client) beginUnlessShut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return false
	}
	c.running++
	return true
}

func (c *Client) end() {
	c.mu.Lock()
	c.running--
	c.checkIdle()
	c.mu.Unlock()
}
