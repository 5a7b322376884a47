package grpclock

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// stream is a stream under a lease. Its context is the lease's context, and RecvMsg and SendMsg fail when the lock is
// lost.
type stream struct {
	grpc.ServerStream
	ctx   context.Context
	lease *mortise.Lease // nil if the stream passed without a lock
	first proto.Message  // received for the key, not yet handed to the handler

	calls atomic.Int32 // RecvMsg and SendMsg that run
	aside *aside       // makes the calls; nil if endOnLoss can end the call
}

func (s *stream) Context() context.Context { return s.ctx }

// RecvMsg returns when the lock is lost, even if the client is silent.
func (s *stream) RecvMsg(m any) error {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	if err := s.lost(); err != nil {
		return err
	}
	if first := s.first; first != nil {
		s.first = nil
		return hand(m, first)
	}
	switch {
	case s.lease == nil:
		return s.ServerStream.RecvMsg(m)
	case s.aside != nil:
		return s.aside.recv(func() error { return s.ServerStream.RecvMsg(m) })
	}
	err := s.ServerStream.RecvMsg(m)
	if cause := s.lease.Err(); middleware.IsLoss(cause) { // by the clock: a message that came later is not the handler's
		return cause
	}
	return err
}

// SendMsg returns when the lock is lost, even if the client reads nothing.
func (s *stream) SendMsg(m any) error {
	s.calls.Add(1)
	defer s.calls.Add(-1)
	if err := s.lost(); err != nil {
		return err
	}
	switch {
	case s.lease == nil:
		return s.ServerStream.SendMsg(m)
	case s.aside != nil:
		return s.aside.send(func() error { return s.ServerStream.SendMsg(m) })
	}
	err := s.ServerStream.SendMsg(m)
	if err == nil {
		return nil
	}
	if cause := s.lost(); cause != nil {
		return cause
	}
	return err
}

// lost returns the error of a lease that ended without Unlock; nil if there is none.
func (s *stream) lost() error {
	if s.lease == nil || s.ctx.Err() == nil {
		return nil
	}
	if err := s.lease.Err(); middleware.IsLoss(err) {
		return err
	}
	return nil
}

// call is gRPC's stream below all interceptors. WriteStatus answers the call and ends it: its RecvMsg and SendMsg
// return. They call WriteStatus themselves when they fail, so it may be called beside them.
type call interface {
	WriteStatus(st *status.Status) error
}

// endOnLoss ends the call when the lease is lost while the handler is in RecvMsg or SendMsg, where it does not see its
// context end. answer makes the answer. A handler that is elsewhere may answer by itself.
//
// returned has to be called after the handler's return; it returns the answer, or nil if the call was not ended.
//
// gRPC gives an interceptor no way to end a call but to return. So endOnLoss uses a method of gRPC's internal stream,
// by its name. s.aside makes the calls if the stream is another's, if a later gRPC has no such method, and if the
// server is net/http's, by grpc.Server.ServeHTTP: there WriteStatus waits behind a SendMsg that waits for the client.
func (s *stream) endOnLoss(answer func(cause error) error) (returned func() error) {
	under, ok := grpc.ServerTransportStreamFromContext(s.ctx).(call)
	if !ok || s.ctx.Value(http.ServerContextKey) != nil {
		s.aside = &aside{lease: s.lease, ended: s.ctx.Done()}
		return func() error { return nil }
	}
	var r result
	back, done := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(s.lease.Context(), func() {
		defer close(done)
		cause := middleware.AwaitLoss(s.lease, back)
		if cause == nil || s.calls.Load() == 0 {
			return
		}
		r.err = lost().Err()
		defer func() {
			r.panicked = recover()
			under.WriteStatus(status.Convert(r.err))
		}()
		r.err = answer(cause)
	})
	return sync.OnceValue(func() error {
		close(back)
		if !stop() {
			<-done
		}
		return r.get()
	})
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
