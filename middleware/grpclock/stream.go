package grpclock

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/mortise-go/mortise"
)

// stream is a stream under a lease: its context is the lease's, and it ends with it.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	lease *mortise.Lease // nil: it passed without
	first proto.Message  // received for the key, not yet handed to the handler
	left  bool           // a RecvMsg was left to itself
}

func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg returns when the lock is lost, also while the client is silent: below, only
// the client or the end of the call would wake it. What is left behind ends with
// the call; m must not be read any more.
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

// SendMsg returns when the lock is lost, also while the client reads nothing: below, only the client
// or the end of the call would wake it. What is left behind ends with the call.
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

// whileHeld returns what f returns, or earlier, with left, if the lock is lost.
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
	select {
	case r := <-done:
		return false, r.get()
	case <-s.ctx.Done():
	}
	if err := s.lost(); err != nil {
		return true, err
	}
	r := <-done // the call has ended, or the handler has unlocked
	return false, r.get()
}

// result is what a function came to in a goroutine of its own.
type result struct {
	err      error
	panicked any
}

// get panics where the function did: there interceptors recover.
func (r result) get() error {
	if r.panicked != nil {
		panic(r.panicked)
	}
	return r.err
}

// lost is why the lease ended without Unlock.
func (s *stream) lost() error {
	if s.lease == nil || s.ctx.Err() == nil {
		return nil
	}
	if err := s.lease.Err(); over(err) {
		return err
	}
	return nil
}

// hand puts the first message into the handler's.
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
	wire, err := proto.Marshal(first) // the registry has another Go type of that name
	if err != nil {
		return err
	}
	return proto.Unmarshal(wire, to)
}
