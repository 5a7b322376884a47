package grpclock

import (
	"fmt"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// aside makes each call of a stream in a goroutine of its own, and returns when the lease is lost: the call runs on
// until the client sends, or reads, or the stream ends. It is for streams that cannot be ended: see endOnLoss.
type aside struct {
	lease *mortise.Lease
	ended <-chan struct{} // closed when the lease's context has ended
	left  bool            // a RecvMsg may still run
}

// recv calls f, a RecvMsg. If the lock is lost first, f may still write to the handler's message.
func (a *aside) recv(f func() error) error {
	if a.left {
		return fmt.Errorf("grpclock: RecvMsg after one that failed: %w", a.lease.Err())
	}
	left, err := a.call(f)
	a.left = left
	return err
}

// send calls f, a SendMsg.
func (a *aside) send(f func() error) error {
	_, err := a.call(f)
	return err
}

// call runs f in a goroutine and returns its error. If the lock is lost first, it returns early, with left set, and f
// runs on.
func (a *aside) call(f func() error) (left bool, err error) {
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.err = f()
	}()
	ended := a.ended
	var check <-chan time.Time
	for {
		select {
		case r := <-done:
			if err := a.lease.Err(); middleware.IsLoss(err) && r.panicked == nil {
				return false, err
			}
			return false, r.get()
		case <-ended:
			ended = nil
		case <-check:
		}
		switch err := a.lease.Err(); {
		case middleware.IsLoss(err):
			return true, err
		case err == nil: // the context ended with its parent, the stream's
			check = time.After(middleware.LossCheck)
		} // otherwise the handler has unlocked
	}
}

// result is the outcome of a function that ran in a goroutine of its own.
type result struct {
	err      error
	panicked any
}

// get returns the error. If the function panicked, get panics in the caller's goroutine, where interceptors recover.
func (r result) get() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}
