package grpclock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// ServerOptions makes the options of a server that serves calls with the same key one at a time, over all
// processes with the same store of locks: methods may have unary methods and streams, also such that
// share a lock.
//
//	grpc.NewServer(grpclock.ServerOptions(locks, methods)...)
//
// They are grpc.ChainUnaryInterceptor with [UnaryServerInterceptor], and grpc.ChainStreamInterceptor with
// [StreamServerInterceptor]; options that stand before them are the outer interceptors. Errors and costs are theirs.
func ServerOptions(locks mortise.Locker, methods Methods, opts ...Option) []grpc.ServerOption {
	i := build("ServerOptions", locks, methods, unary|streams, opts)
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(i.unary), grpc.ChainStreamInterceptor(i.stream)}
}

// UnaryServerInterceptor makes an interceptor that serves unary calls with the same key one at a time,
// over all processes with the same store of locks. Without options a call is refused at once while
// another call holds its lock.
//
// UnaryServerInterceptor does no I/O. UnaryServerInterceptor panics if locks is nil, an option is
// invalid, or methods do not match the services (see [Methods]): such a mistake in the program
// shows at its start.
//
// Cost: two commands for a call whose lock is free.
func UnaryServerInterceptor(locks mortise.Locker, methods Methods, opts ...Option) grpc.UnaryServerInterceptor {
	i := build("UnaryServerInterceptor", locks, methods, unary, opts)
	return i.unary
}

// StreamServerInterceptor is [UnaryServerInterceptor] for streams: a stream holds its lock from
// before the handler begins until the handler returns. If the key needs the first message
// ([Fields], [Func]), the message is received before the handler begins; for a stream where the
// server speaks first, use [Metadata].
func StreamServerInterceptor(locks mortise.Locker, methods Methods, opts ...Option) grpc.StreamServerInterceptor {
	i := build("StreamServerInterceptor", locks, methods, streams, opts)
	return i.stream
}

// Option changes an interceptor.
type Option func(*interceptor)

// WithWait makes a call wait for its lock, for d at most; then the call is answered as locked. A call
// whose deadline ends before is answered with DeadlineExceeded. d must be positive.
func WithWait(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("grpclock: WithWait(%v): a wait is positive; without it calls are refused at once", d))
	}
	return func(i *interceptor) { i.waits, i.wait = true, d }
}

// WithMaxClientWait makes a call wait for its lock for as long as its client does, until its
// deadline or its cancellation, and for [MaxClientWait] at most: the same as
// WithWait(MaxClientWait).
func WithMaxClientWait() Option { return WithWait(MaxClientWait) }

// MaxClientWait bounds [WithMaxClientWait]: a call without a deadline, whose client was lost by,
// for example, a broken network, would wait until the connection is found dead.
const MaxClientWait = 5 * time.Minute

// The most calls of a process that wait, unless [WithMaxWaiters] says otherwise.
const (
	DefaultMaxWaiters      = 512  // for one lock
	DefaultMaxWaitersInAll = 4096 // for all locks of all interceptors
)

// WithMaxWaiters bounds how many calls wait at once in this process, by [WithWait]: perName for the same
// lock, and inAll for all locks of the interceptor. A further call for the lock is answered at once with
// ResourceExhausted and [ReasonCrowded]; a further call in all is served if its lock is free, and
// otherwise answered likewise. Both are at least one. The first bound counts other callers of the same
// client, too: see mortise.WithMaxWaiters.
//
// A waiting call keeps its message in memory. For the second bound, a call whose message, encoded, has
// more than 64 KiB counts as one for each 64 KiB; a call that would count as more than inAll counts as inAll.
// A stream that is locked before its first message counts as one: gRPC bounds what its client sends meanwhile
// by the stream's window, which begins at 64 KiB and may grow (grpc.StaticStreamWindowSize).
//
// Without this option the bounds are [DefaultMaxWaiters] and [DefaultMaxWaitersInAll]; the second is
// then one bound for all interceptors of the process without the option, and for httplock's middlewares.
func WithMaxWaiters(perName, inAll int) Option {
	if perName < 1 || inAll < 1 {
		panic(fmt.Sprintf("grpclock: WithMaxWaiters(%d, %d): at least one each; without WithWait no call waits",
			perName, inAll))
	}
	return func(i *interceptor) { i.perName, i.inAll = perName, inAll }
}

// DefaultRetryAfter is the longest delay in a RetryInfo while a lock is held, unless
// [WithRetryAfter] says otherwise.
const DefaultRetryAfter = 3 * time.Second

// WithRetryAfter bounds the delay in a RetryInfo while the lock is held. The remaining time of the
// holder's lease is an upper bound only: a renewed lease may have 30 s to go when its call is about
// to end. Use the usual duration of a call. The bound is at least a second; by default
// [DefaultRetryAfter].
func WithRetryAfter(most time.Duration) Option {
	if most < time.Second {
		panic(fmt.Sprintf("grpclock: WithRetryAfter(%v): at least a second", most))
	}
	return func(i *interceptor) { i.retry = most }
}

// WithReaders locks calls of these methods by read: readers share the lock, the other methods do not. Each method must
// be in [Methods].
//
//	rw := client.RW()
//	grpclock.UnaryServerInterceptor(rw.Write, methods, grpclock.WithReaders(rw.Read, "/shop.v1.Orders/Get"))
func WithReaders(read mortise.Locker, fullMethods ...string) Option {
	if read == nil || len(fullMethods) == 0 {
		panic("grpclock: WithReaders: the Locker must not be nil, and there must be methods")
	}
	return func(i *interceptor) {
		for _, m := range fullMethods {
			i.readers[m] = read
		}
	}
}

// WithLockOptions passes options to each Lock or TryLock: mortise.WithLease or mortise.WithMaxHold,
// to bound the effect of a handler without an end, or of a stream kept open. Instead of
// mortise.WithWait and mortise.WithMaxWaiters use [WithWait] and [WithMaxWaiters]. An option refused
// by mortise is answered with Internal.
func WithLockOptions(opts ...mortise.Option) Option {
	return func(i *interceptor) { i.options = append(i.options[:len(i.options):len(i.options)], opts...) }
}

// WithFailOpen serves calls WITHOUT a lock while the store of locks is unavailable
// (mortise.ErrUnavailable): for work that may overlap, but must not stop. Such a call's
// context carries no lease: [Lease] returns nil.
func WithFailOpen() Option {
	return func(i *interceptor) { i.open = true }
}

// WithErrorHandler replaces all answers: the function gets the default status and its cause, and
// returns the error to return; the default status for nil, since a refused call is never served. The
// cause is not for the client.
func WithErrorHandler(answer func(ctx context.Context, fullMethod string, s *status.Status, cause error) error) Option {
	if answer == nil {
		panic("grpclock: WithErrorHandler: the function must not be nil")
	}
	return func(i *interceptor) {
		i.answer = func(ctx context.Context, fullMethod string, s *status.Status, cause error) error {
			if err := answer(ctx, fullMethod, s, cause); err != nil {
				return err
			}
			return s.Err()
		}
	}
}

// Lease returns the lease in a call's context; nil if there is none. A nil lease holds nothing.
// Before a write, a handler checks the lease's Err, or sends its Token along.
func Lease(ctx context.Context) *mortise.Lease {
	l, _ := ctx.Value(leaseKey{}).(*mortise.Lease)
	return l
}

type leaseKey struct{}

// releaseWait bounds how long an answer waits for the release of its lock. The lock is released before the answer is
// sent, so that the client's next call is not refused because of this one.
const releaseWait = 2 * time.Second

type interceptor struct {
	locks   mortise.Locker
	rules   map[string]rule
	readers map[string]mortise.Locker
	options []mortise.Option
	waiting []mortise.Option // options, mortise.WithWait and mortise.WithMaxWaiters
	perName int              // the most calls that wait for a lock
	inAll   int              // 0: the limit of the process
	limit   *middleware.Limit
	waits   bool
	wait    time.Duration // 0: calls do not wait
	retry   time.Duration // the longest delay
	open    bool
	answer  func(context.Context, string, *status.Status, error) error
}

func build(of string, locks mortise.Locker, methods Methods, seen sees, opts []Option) *interceptor {
	if locks == nil {
		panic("grpclock: " + of + ": the Locker must not be nil")
	}
	rules, err := methods.rules(seen)
	if err != nil {
		panic("grpclock: " + of + ": " + err.Error())
	}
	i := &interceptor{locks: locks, rules: rules, readers: make(map[string]mortise.Locker), answer: answerPlainly,
		retry: DefaultRetryAfter, perName: DefaultMaxWaiters}
	for _, o := range opts {
		if o == nil {
			panic("grpclock: " + of + ": a nil Option")
		}
		o(i)
	}
	for m := range i.readers {
		if _, ok := rules[m]; !ok {
			panic("grpclock: " + of + ": WithReaders: " + m + " is not among the methods that are locked")
		}
	}
	if i.wait > 0 {
		i.waiting = append(i.options[:len(i.options):len(i.options)], mortise.WithWait(i.wait),
			mortise.WithMaxWaiters(i.perName))
	}
	i.limit = middleware.NewLimit(i.inAll)
	return i
}

func (i *interceptor) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	rule, ok := i.rules[info.FullMethod]
	if !ok {
		return handler(ctx, req)
	}
	lease, ctx, err := i.lock(ctx, info.FullMethod, rule, req)
	if err != nil {
		return nil, err
	}
	if lease == nil {
		return handler(ctx, req)
	}
	defer release(ctx, lease) // also if the handler panics
	resp, err := handler(carry(lease.Context(), lease), req)
	return resp, i.outcome(ctx, info.FullMethod, lease, err)
}

func (i *interceptor) stream(
	srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	rule, ok := i.rules[info.FullMethod]
	if !ok {
		return handler(srv, ss)
	}
	ctx := ss.Context()
	s := &stream{ServerStream: ss, ctx: ctx}
	var req any
	if rule.message {
		first := rule.request.New().Interface()
		switch err := ss.RecvMsg(first); {
		case err == io.EOF:
			cause := &middleware.ValueError{Name: "first message", Why: "is missing"}
			return i.answer(ctx, info.FullMethod, badKey(cause), cause)
		case err != nil:
			return err
		}
		s.first, req = first, first
	}
	lease, ctx, err := i.lock(ctx, info.FullMethod, rule, req)
	if err != nil {
		return err
	}
	s.ctx = ctx
	if lease == nil {
		return handler(srv, s)
	}
	defer release(ctx, lease)
	s.ctx, s.lease = carry(lease.Context(), lease), lease
	returned := s.endOnLoss(func(cause error) error { return i.answer(ctx, info.FullMethod, lost(), cause) })
	defer returned() // also if the handler panics
	err = handler(srv, s)
	if answered := returned(); answered != nil {
		return answered
	}
	return i.outcome(ctx, info.FullMethod, lease, err)
}

// lock acquires the lock of a call. It returns neither a lease nor an error if the call may pass without a lock. The
// returned context is for the handler; a lease is not in it yet.
func (i *interceptor) lock(
	ctx context.Context, method string, r rule, req any,
) (*mortise.Lease, context.Context, error) {
	name, ctx, err := r.name(ctx, req)
	if err == nil && name == "" {
		err = errEmptyKey
	}
	switch {
	case errors.Is(err, ErrNoLock):
		return nil, ctx, nil
	case err != nil:
		return nil, ctx, i.answer(ctx, method, badKey(err), err)
	}
	locks := i.locks
	if read, ok := i.readers[method]; ok {
		locks = read
	}
	var lease *mortise.Lease
	if i.waits {
		lease, err = i.lockLimited(ctx, locks, name, req)
	} else {
		lease, err = locks.TryLock(middleware.AskStore(ctx), name, i.options...)
	}
	switch {
	case err == nil && lease == nil:
		err = errors.New("grpclock: the Locker returned neither a lease nor an error")
	case err == nil && ctx.Err() != nil: // the client has left meanwhile
		release(ctx, lease)
		err = context.Cause(ctx)
	case err == nil:
		return lease, ctx, nil
	case i.open && errors.Is(err, mortise.ErrUnavailable):
		return nil, carry(ctx, nil), nil
	}
	return nil, ctx, i.answer(ctx, method, refused(ctx, err, i.retry), err)
}

// lockLimited acquires the lock of a call that may wait if the limit permits it. The call keeps req in memory.
func (i *interceptor) lockLimited(
	ctx context.Context, locks mortise.Locker, name string, req any,
) (*mortise.Lease, error) {
	size := 0
	if m, ok := req.(proto.Message); ok {
		size = proto.Size(m)
	}
	leave, ok := i.limit.Enter(size)
	if !ok {
		return i.limit.TryLock(middleware.AskStore(ctx), locks, name, i.options...)
	}
	defer leave() // also if the client library panics
	return locks.Lock(ctx, name, i.waiting...)
}

// carry returns a context with the lease; nil for none.
func carry(ctx context.Context, lease *mortise.Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// outcome returns the error of a call. If the handler broke off because the lock was lost, the error says so; otherwise
// the handler's error stands.
func (i *interceptor) outcome(ctx context.Context, method string, lease *mortise.Lease, err error) error {
	if err == nil {
		return nil
	}
	// Canceled may be of the call's own end.
	canceled := ctx.Err() == nil && (errors.Is(err, context.Canceled) || status.Code(err) == codes.Canceled)
	brokeOff := middleware.IsLoss(err) || canceled
	if cause := lease.Err(); middleware.IsLoss(cause) && brokeOff {
		return i.answer(ctx, method, lost(), cause)
	}
	return err
}

// release unlocks the lease, also after the client has gone: Unlock sends the release in any case, and repeats it. The
// observer of the lock client gets the error.
func release(ctx context.Context, lease *mortise.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if middleware.IsLoss(lease.Err()) {
		cancel() // the lock is lost: do not wait for the release
	}
	lease.Unlock(ctx)
}
