package grpclock

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mortise-go/mortise"
)

// checkLease is how often a lease is checked after its context ended with the stream's: a loss no longer shows in the
// context.
const checkLease = 250 * time.Millisecond

// stream is a stream under a lease. Its context is the lease's context, and RecvMsg and SendMsg fail when the lock is
// lost.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	lease *mortise.Lease // nil if the stream passed without a lock
	first proto.Message  // received for the key, not yet handed to the handler
	left  bool           // the underlying RecvMsg may still run
}

func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg returns when the lock is lost, even if the client is silent. The RecvMsg of the underlying stream then runs
// on until the client sends or the call ends. It may still write to m, so the handler must not read m.
func (s *stream) RecvMsg(m any) error {
	if err := s.lost(); err != nil {
		return err
	}
	if first := s.first; first != nil {
		s.first = nil
		return hand(m, first)
	}
	if s.lease == nil {
		return s.ServerStream.RecvMsg(m)
	}
	if s.left {
		return fmt.Errorf("grpclock: RecvMsg after one that failed: %w", s.lease.Err())
	}
	left, err := s.whileHeld(func() error { return s.ServerStream.RecvMsg(m) })
	s.left = left
	return err
}

// SendMsg returns when the lock is lost, even if the client reads nothing. The SendMsg of the underlying stream then
// runs on until the client reads or the call ends.
func (s *stream) SendMsg(m any) error {
	if err := s.lost(); err != nil {
		return err
	}
	if s.lease == nil {
		return s.ServerStream.SendMsg(m)
	}
	_, err := s.whileHeld(func() error { return s.ServerStream.SendMsg(m) })
	return err
}

// whileHeld runs f in a goroutine and returns its error. If the lock is lost first, it returns early, with left set,
// and f runs on.
func (s *stream) whileHeld(f func() error) (left bool, err error) {
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			r.panicked = recover()
			done <- r
		}()
		r.err = f()
	}()
	ended := s.ctx.Done()
	var check <-chan time.Time
	for {
		select {
		case r := <-done:
			return false, r.get()
		case <-ended:
			ended = nil
		case <-check:
		}
		switch err := s.lease.Err(); {
		case over(err):
			return true, err
		case err == nil: // the context ended with its parent, the stream's
			check = time.After(checkLease)
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

// lost returns the error of a lease that ended without Unlock; nil if there is none.
func (s *stream) lost() error {
	if s.lease == nil || s.ctx.Err() == nil {
		return nil
	}
	if err := s.lease.Err(); over(err) {
		return err
	}
	return nil
}

// hand copies the first message into m, the handler's message.
func hand(m any, first proto.Message) error {
	to, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("%w: the handler receives a %T, which is not a proto.Message", errMisused, m)
	}
	if to.ProtoReflect().Descriptor() == first.ProtoReflect().Descriptor() {
		proto.Reset(to)
		proto.Merge(to, first)
		return nil
	}
	wire, err := proto.Marshal(first) // the registry has another Go type for this message
	if err != nil {
		return err
	}
	return proto.Unmarshal(wire, to)
}
