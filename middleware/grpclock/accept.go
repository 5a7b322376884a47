package grpclock

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// UnaryDelegationInterceptor makes an interceptor for calls to enter the locks of their callers:
// the interceptor checks the delegations sent by a caller's [UnaryClientInterceptor], and puts them
// into the call's context; locks, a [*mortise.Client], enters the caller's locks from such a
// context. The interceptor stands before all interceptors with locks:
//
//	grpc.ChainUnaryInterceptor(
//		grpclock.UnaryDelegationInterceptor(locks, checker),
//		grpclock.UnaryServerInterceptor(locks, methods),
//	)
//
// A call without delegations passes unchanged. A call with bad delegations is answered with
// [ReasonBadDelegation]: InvalidArgument if malformed, PermissionDenied if not authentic; with
// Unavailable ([ReasonUnverified]) if the verifier failed. Such a call is never served without its
// delegations: the call would wait for its own caller. The metadata is removed, so handlers do not
// pass the metadata on.
//
// A call passes even if the caller has unlocked meanwhile, or lost its lock; a Lock of locks then
// fails with delegation.ErrEnded, and [UnaryServerInterceptor] answers with
// FailedPrecondition.
//
// Of the options, only [WithErrorHandler] applies. UnaryDelegationInterceptor panics if locks or
// checker is nil, or an option does not apply. Cost: no command.
func UnaryDelegationInterceptor(
	locks *mortise.Client, checker *delegation.Checker, opts ...Option,
) grpc.UnaryServerInterceptor {
	a := newAcceptor("UnaryDelegationInterceptor", locks, checker, opts)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		ctx, err := a.accept(ctx, info.FullMethod)
		if err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
}

// StreamDelegationInterceptor is [UnaryDelegationInterceptor] for streams.
func StreamDelegationInterceptor(
	locks *mortise.Client, checker *delegation.Checker, opts ...Option,
) grpc.StreamServerInterceptor {
	a := newAcceptor("StreamDelegationInterceptor", locks, checker, opts)
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		ctx, err := a.accept(ss.Context(), info.FullMethod)
		if err != nil {
			return err
		}
		if ctx != ss.Context() {
			ss = &accepted{ServerStream: ss, ctx: ctx}
		}
		return handler(srv, ss)
	}
}

// accepted is a stream whose context has the delegations of its caller.
type accepted struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *accepted) Context() context.Context { return s.ctx }

type acceptor struct {
	locks   *mortise.Client
	checker *delegation.Checker
	answer  func(context.Context, string, *status.Status, error) error
}

func newAcceptor(of string, locks *mortise.Client, checker *delegation.Checker, opts []Option) *acceptor {
	if locks == nil || checker == nil {
		panic("grpclock: " + of + ": the client of locks and the Checker must not be nil")
	}
	i := interceptor{answer: answerPlainly, readers: make(map[string]mortise.Locker)}
	for _, o := range opts {
		if o == nil {
			panic("grpclock: " + of + ": a nil Option")
		}
		o(&i)
	}
	if len(i.readers) > 0 || i.options != nil || i.waits || i.retry != 0 || i.inAll != 0 || i.open {
		panic("grpclock: " + of + ": of the options only WithErrorHandler applies")
	}
	return &acceptor{locks: locks, checker: checker, answer: i.answer}
}

func (a *acceptor) accept(ctx context.Context, method string) (context.Context, error) {
	entries := metadata.ValueFromIncomingContext(ctx, MetadataKey)
	if len(entries) == 0 {
		return ctx, nil
	}
	with, err := a.checker.Accept(ctx, a.locks, entries...)
	if err != nil {
		return nil, a.answer(ctx, method, badDelegation(err), err)
	}
	md, _ := metadata.FromIncomingContext(ctx) // a copy
	delete(md, MetadataKey)
	return metadata.NewIncomingContext(with, md), nil
}

func answerPlainly(_ context.Context, _ string, s *status.Status, _ error) error { return s.Err() }

func badDelegation(err error) *status.Status {
	code := codes.PermissionDenied
	switch {
	case errors.Is(err, delegation.ErrDuplicated), errors.Is(err, delegation.ErrOversize),
		errors.Is(err, delegation.ErrVersion), errors.Is(err, delegation.ErrMalformed):
		code = codes.InvalidArgument
	case errors.Is(err, delegation.ErrUnverified):
		return problem(codes.Unavailable, ReasonUnverified,
			"what the call says of its caller's locks cannot be verified now", soon)
	case delegation.Reason(err) == "error": // an error of the lock client
		return problem(codes.Internal, ReasonInternal, "the lock is not usable", 0)
	}
	return problem(code, ReasonBadDelegation,
		"what the call says of its caller's locks is refused: "+delegation.Reason(err), 0)
}
