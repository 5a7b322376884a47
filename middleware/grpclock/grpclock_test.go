//go:build unix

package grpclock_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

const (
	unary  = "/grpc.testing.TestService/UnaryCall"
	output = "/grpc.testing.TestService/StreamingOutputCall"
	input  = "/grpc.testing.TestService/StreamingInputCall"
	duplex = "/grpc.testing.TestService/FullDuplexCall"
)

// site is a Redis and a client of it, and a service.
type site struct {
	*middle.Site
	service
}

// service is a gRPC service whose handlers are functions.
type service struct {
	pb.UnimplementedTestServiceServer
	onUnary  func(context.Context, *pb.SimpleRequest) error
	onOutput func(*pb.StreamingOutputCallRequest, pb.TestService_StreamingOutputCallServer) error
	onInput  func(pb.TestService_StreamingInputCallServer) error
	onDuplex func(pb.TestService_FullDuplexCallServer) error
}

func (s *service) UnaryCall(ctx context.Context, r *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return new(pb.SimpleResponse), s.onUnary(ctx, r)
}

func (s *service) StreamingOutputCall(r *pb.StreamingOutputCallRequest,
	ss pb.TestService_StreamingOutputCallServer) error {
	return s.onOutput(r, ss)
}

func (s *service) StreamingInputCall(ss pb.TestService_StreamingInputCallServer) error {
	return s.onInput(ss)
}

func (s *service) FullDuplexCall(ss pb.TestService_FullDuplexCallServer) error { return s.onDuplex(ss) }

func newSite(t *testing.T) *site { return &site{Site: middle.NewSite(t, redistest.WithAOF())} }

// serve serves the site's handlers and returns a client of them.
func (s *site) serve(opts ...grpc.ServerOption) pb.TestServiceClient {
	s.Helper()
	return s.serveTo(nil, opts...)
}

func (s *site) serveTo(client []grpc.DialOption, opts ...grpc.ServerOption) pb.TestServiceClient {
	s.Helper()
	return s.service.serve(s, client, opts...)
}

func (s *service) serve(t testing.TB, client []grpc.DialOption, opts ...grpc.ServerOption) pb.TestServiceClient {
	t.Helper()
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).In(t)
	srv := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(srv, s)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	conn := check.Value(grpc.NewClient(l.Addr().String(),
		append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)).In(t)
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		check.Done(t, <-served)
	})
	return pb.NewTestServiceClient(conn)
}

// unary serves the unary method, locked by order; unaryBy with another key.
func (s *site) unary(opts ...grpclock.Option) pb.TestServiceClient {
	return s.unaryBy(s.Locks, order, opts...)
}

func (s *site) unaryBy(locks mortise.Locker, key grpclock.Key, opts ...grpclock.Option) pb.TestServiceClient {
	methods := grpclock.Methods{unary: key}
	return s.serve(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(locks, methods, opts...)))
}

// call is what a unary call for an order comes to.
func call(ctx context.Context, client pb.TestServiceClient, id string) error {
	return check.Err(client.UnaryCall(ctx, request(id)))
}

// calls calls for order 42 in a goroutine.
func (s *site) calls(client pb.TestServiceClient) <-chan error {
	return middle.Async(func() error { return call(s.ctx(), client, "42") })
}

// answers keeps what callers are answered.
func answers() (grpclock.Option, <-chan error) {
	causes := make(chan error, 1)
	return grpclock.WithErrorHandler(func(_ context.Context, _ string, st *status.Status, _ error) error {
		causes <- st.Err()
		return st.Err()
	}), causes
}

func (s *site) stream(methods grpclock.Methods, opts ...grpclock.Option) pb.TestServiceClient {
	return s.serve(grpc.StreamInterceptor(grpclock.StreamServerInterceptor(s.Locks, methods, opts...)))
}

var (
	order      = grpclock.Fields("orders:{response_status.message}")
	byMetadata = grpclock.Metadata("orders:{order-id}")
)

func request(id string) *pb.SimpleRequest {
	return &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Message: id}}
}

func (s *site) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), middle.Patience)
	s.Cleanup(cancel)
	return ctx
}

// want checks an error's code and reason, and returns its retry delay.
func (s *site) want(err error, code codes.Code, reason string) (retry time.Duration) {
	s.Helper()
	st, got := status.Convert(err), ""
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			got = d.Reason
			check.ErrorIf(s, d.Domain != grpclock.Domain, "domain %q", d.Domain)
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration()
		}
	}
	check.ErrorIf(s, st.Code() != code || got != reason, "got %v, reason %q; want %v, %q", err, got, code, reason)
	check.ErrorIf(s, strings.Contains(st.Message(), "127.0.0.1") || strings.Contains(st.Message(), "orders:"),
		"the answer gives the store away: %v", err)
	return retry
}

// What can happen to a call, over real gRPC on a real Redis: each is answered as the
// package's documentation says, and leaves no lock.
func TestWhatCanHappen(t *testing.T) {
	check.Long(t)
	for _, c := range []struct {
		name string
		run  func(*site)
	}{
		{"unary: served, the key is free, the same key is locked within", served},
		{"unary: another holds the key", refused},
		{"unary: another holds the key, and the delay is bounded", boundedRetry},
		{"unary: it waits its turn", waits},
		{"unary: it waits in vain", waitsInVain},
		{"unary: its deadline ends while it waits", deadline},
		{"unary: the client goes away while it waits", clientLeaves},
		{"unary: the handler panics", panics},
		{"unary: the server shuts down", shutsDown},
		{"unary: Redis is down, and it may go on", redisDown},
		{"unary: Redis dies while it is served", redisDies},
		{"unary: the lock is lost, and the handler answers", lostAnswered},
		{"unary: the key is bad", badKeys},
		{"unary: readers share", readers},
		{"unary: all answers are replaced", replaced},
		{"server stream: held until its end", serverStream},
		{"client stream: the handler gets the first message", clientStream},
		{"client stream: there is no first message", noFirstMessage},
		{"stream: locked by metadata before its first message", streamByMetadata},
		{"one map: a unary method and a stream share a lock", oneMap},
		{"stream: the lock is lost while the client is silent", streamLost},
		{"stream: the lock is lost while the client reads nothing", streamLostUnread},
		{"stream: its deadline ends", streamDeadline},
		{"stream: the handler panics", streamPanics},
		{"stream: Redis is down", streamRedisDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			c.run(s)
			s.Free(middle.Order)
		})
	}
}

func served(s *site) {
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		if l := grpclock.Lease(ctx); l.Name() != "orders:42" || l.Err() != nil {
			s.Errorf("lease of %q: %v", l.Name(), l.Err())
		}
		return mortise.Do(ctx, s.Locks, "orders:42", func(ctx context.Context) error {
			state, err := s.Locks.Inspect(ctx, "orders:42")
			check.ErrorIf(s, state.Holds != 2, "held %d times", state.Holds)
			return err
		})
	}
	client := s.unary()
	for range 3 { // at once: it was released before the answer
		check.Done(s, call(s.ctx(), client, "42"))
	}
}

func (s *site) never() {
	s.onUnary = func(context.Context, *pb.SimpleRequest) error {
		s.Error("it was served")
		return nil
	}
}

// heldUnary makes handlers that stay until they are told to go.
func (s *site) heldUnary() (in, let chan struct{}) {
	in, let = make(chan struct{}, 16), make(chan struct{})
	s.onUnary = func(context.Context, *pb.SimpleRequest) error {
		in <- struct{}{}
		<-let
		return nil
	}
	return in, let
}

func refused(s *site) {
	in, let := s.heldUnary()
	client := s.unary()
	first := s.calls(client)
	middle.Receive(s, "the first in the handler", in)
	d := s.want(call(s.ctx(), client, "42"), codes.Aborted, grpclock.ReasonLocked)
	check.ErrorIf(s, d != 3*time.Second, "retry after %v, of a lease of 30 s, want 3s", d)
	other := middle.Async(func() error { return call(s.ctx(), client, "43") })
	middle.Receive(s, "another key in the handler", in)
	close(let)
	check.Done(s, errors.Join(middle.Receive(s, "the first", first), middle.Receive(s, "the other", other)))
	s.Free("orders:42")
	s.Free("orders:43")
}

func waits(s *site) {
	in, let := s.heldUnary()
	client := s.unary(grpclock.WithMaxClientWait())
	first := s.calls(client)
	middle.Receive(s, "the first in the handler", in)
	second := s.calls(client)
	let <- struct{}{}
	middle.Receive(s, "the second in the handler", in)
	let <- struct{}{}
	check.Done(s, errors.Join(middle.Receive(s, "the first", first), middle.Receive(s, "the second", second)))
}

func waitsInVain(s *site) {
	s.never()
	release := s.Hold()
	s.want(call(s.ctx(), s.unary(grpclock.WithWait(2*time.Second)), "42"), codes.Aborted, grpclock.ReasonLocked)
	release()
}

func deadline(s *site) {
	s.never()
	release := s.Hold()
	answer, causes := answers()
	client := s.unary(grpclock.WithMaxClientWait(), answer)
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	err := call(ctx, client, "42")
	check.ErrorIf(s, status.Code(err) != codes.DeadlineExceeded, "the client got %v", err)
	// The client may cancel before the server's own timer fires.
	if err := middle.Receive(s, "the end of the wait", causes); status.Code(err) == codes.Canceled {
		s.want(err, codes.Canceled, grpclock.ReasonClientGone)
	} else {
		s.want(err, codes.DeadlineExceeded, grpclock.ReasonTimeout)
	}
	release()
}

func clientLeaves(s *site) {
	s.never()
	release := s.Hold()
	began := make(chan struct{})
	key := grpclock.ContextFunc(func(context.Context) (string, error) { close(began); return "orders:42", nil })
	answer, causes := answers()
	client := s.unaryBy(s.Locks, key, grpclock.WithMaxClientWait(), answer)
	ctx, leave := context.WithCancel(s.Context())
	got := middle.Async(func() error { return call(ctx, client, "42") })
	middle.Receive(s, "the call", began)
	leave()
	middle.Receive(s, "the client", got)
	s.want(middle.Receive(s, "the end of the wait", causes), codes.Canceled, grpclock.ReasonClientGone)
	release()
}

func recovering(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (_ any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(codes.DataLoss, "recovered: %v", p)
		}
	}()
	return h(ctx, req)
}

func panics(s *site) {
	s.onUnary = func(context.Context, *pb.SimpleRequest) error { panic("boom") }
	client := s.serve(grpc.ChainUnaryInterceptor(recovering,
		grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: order})))
	err := call(s.ctx(), client, "42")
	check.ErrorIf(s, status.Convert(err).Message() != "recovered: boom", "%v", err)
}

func shutsDown(s *site) {
	in, let := s.heldUnary()
	client := s.unary(grpclock.WithMaxClientWait())
	first := s.calls(client)
	middle.Receive(s, "the first in the handler", in)
	second := s.calls(client)
	down := middle.Async(func() error { return s.Locks.Shutdown(s.ctx()) })
	s.want(middle.Receive(s, "the second", second), codes.Unavailable, grpclock.ReasonClosing)
	close(let)
	check.Done(s, errors.Join(middle.Receive(s, "the first", first), middle.Receive(s, "the shutdown", down)))
}

func redisDown(s *site) {
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		if l := grpclock.Lease(ctx); l != nil {
			s.Errorf("a lease of %q", l.Name())
		}
		return nil
	}
	strict, open := s.unary(), s.unary(grpclock.WithFailOpen())
	s.Redis.Stop()
	s.want(call(s.ctx(), strict, "42"), codes.Unavailable, grpclock.ReasonUnavailable)
	check.Done(s, call(s.ctx(), open, "42"))
	s.Redis.Restart()
}

// tillLost works until its context ends.
func (s *site) tillLost(in chan<- struct{}, causes chan<- error, then error) {
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		middle.TillEnded(ctx, in, causes)
		if then != nil {
			return then
		}
		return ctx.Err()
	}
}

func redisDies(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	s.tillLost(in, causes, nil)
	client := s.unary(grpclock.WithLockOptions(mortise.WithLease(3 * time.Second)))
	got := middle.Async(func() error { return call(context.Background(), client, "42") })
	middle.Receive(s, "the call", in)
	s.Redis.Stop()
	err := middle.Receive(s, "the loss", causes)
	check.ErrorIf(s, !errors.Is(err, mortise.ErrLost), "the cause is %v", err)
	s.want(middle.Receive(s, "the answer", got), codes.Unknown, grpclock.ReasonLost)
	s.Redis.Restart() // with the data it had
}

func lostAnswered(s *site) {
	in, causes := make(chan struct{}, 1), make(chan error, 1)
	s.tillLost(in, causes, status.Error(codes.OutOfRange, "half done"))
	client := s.unary(grpclock.WithLockOptions(mortise.WithLease(5 * time.Second)))
	err := call(context.Background(), client, "42")
	check.ErrorIf(s, status.Code(err) != codes.OutOfRange, "%v", err)
}

func badKeys(s *site) {
	s.never()
	method := func(k grpclock.Key) pb.TestServiceClient { return s.unaryBy(s.Locks, k) }
	for what, client := range map[string]pb.TestServiceClient{
		"missing message": method(grpclock.Fields("x:{payload.body}")),
		"empty string":    method(order),
		"unset integer":   method(grpclock.Fields("x:{response_size}")),
		"no metadata":     method(byMetadata),
		"empty":           method(grpclock.Func(func(context.Context, any) (string, error) { return "", nil })),
		"an error": method(grpclock.ContextFunc(func(context.Context) (string, error) {
			return "", errors.New("orders: secret")
		})),
	} {
		_, err := client.UnaryCall(s.ctx(), request(""))
		s.want(err, codes.InvalidArgument, grpclock.ReasonBadKey)
		if what == "missing message" {
			field := ""
			for _, d := range status.Convert(err).Details() {
				if b, ok := d.(*errdetails.BadRequest); ok {
					field = b.FieldViolations[0].Field
				}
			}
			check.ErrorIf(s, field != "payload.body", "the field is %q", field)
		}
	}
}

func readers(s *site) {
	in, let := s.heldUnary()
	read, write := s.Locks.RW().Read, s.Locks.RW().Write
	reader := s.unaryBy(write, order, grpclock.WithReaders(read, unary))
	writer := s.unaryBy(write, order)
	one, two := s.calls(reader), s.calls(reader)
	middle.Receive(s, "a reader", in)
	middle.Receive(s, "another", in)
	s.want(call(s.ctx(), writer, "42"), codes.Aborted, grpclock.ReasonLocked)
	close(let)
	check.Done(s, errors.Join(middle.Receive(s, "a reader", one), middle.Receive(s, "another", two)))
}

func replaced(s *site) {
	s.never()
	release := s.Hold()
	client := s.unary(grpclock.WithErrorHandler(func(_ context.Context, method string, st *status.Status,
		cause error) error {
		check.ErrorIf(s, method != unary || st.Code() != codes.Aborted || !errors.Is(cause, mortise.ErrNotAcquired),
			"%s %v %v", method, st, cause)
		return status.Error(codes.AlreadyExists, "mine")
	}))
	err := call(s.ctx(), client, "42")
	check.ErrorIf(s, status.Code(err) != codes.AlreadyExists, "%v", err)
	release()
}

func serverStream(s *site) {
	let := make(chan struct{})
	s.onOutput = func(r *pb.StreamingOutputCallRequest, ss pb.TestService_StreamingOutputCallServer) error {
		check.ErrorIf(s, r.ResponseStatus.GetMessage() != "42" || grpclock.Lease(ss.Context()).Name() != "orders:42",
			"request %v, lease %q", r, grpclock.Lease(ss.Context()).Name())
		if err := ss.Send(new(pb.StreamingOutputCallResponse)); err != nil {
			return err
		}
		<-let
		return ss.Send(new(pb.StreamingOutputCallResponse))
	}
	client := s.stream(grpclock.Methods{output: order})
	call := func() pb.TestService_StreamingOutputCallClient {
		cs := check.Value(client.StreamingOutputCall(s.ctx(),
			&pb.StreamingOutputCallRequest{ResponseStatus: &pb.EchoStatus{Message: "42"}})).In(s)
		return cs
	}
	first := call()
	check.NoError(s, check.Err(first.Recv()))
	_, err := call().Recv()
	check.ErrorIf(s, s.want(err, codes.Aborted, grpclock.ReasonLocked) <= 0, "no retry delay")
	close(let)
	check.Done(s, check.Err(first.Recv()))
}

func clientStream(s *site) {
	s.onInput = func(ss pb.TestService_StreamingInputCallServer) error {
		l := grpclock.Lease(ss.Context())
		check.ErrorIf(s, l.Name() != "uploads:6162", "lease of %q", l.Name())
		all := ""
		for range 2 {
			r, err := ss.Recv()
			if err != nil {
				return err
			}
			all += string(r.Payload.GetBody())
		}
		return ss.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(len(all))})
	}
	cs := check.Value(
		s.stream(grpclock.Methods{input: grpclock.Fields("uploads:{payload.body}")}).StreamingInputCall(s.ctx())).In(s)
	for _, part := range []string{"ab", "cde"} {
		check.NoError(s, cs.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: []byte(part)}}))
	}
	if r, err := cs.CloseAndRecv(); err != nil || r.AggregatedPayloadSize != 5 {
		s.Errorf("%v %v", r, err)
	}
	s.Free("uploads:6162")
}

func noFirstMessage(s *site) {
	s.onInput = func(pb.TestService_StreamingInputCallServer) error { s.Error("it was served"); return nil }
	cs, err := s.stream(grpclock.Methods{input: grpclock.Fields("uploads:{payload.body}")}).StreamingInputCall(s.ctx())
	check.NoError(s, err)
	_, err = cs.CloseAndRecv()
	s.want(err, codes.InvalidArgument, grpclock.ReasonBadKey)
}

// duplexCall opens a stream that is locked by metadata.
func (s *site) duplexCall(client pb.TestServiceClient, ctx context.Context) pb.TestService_FullDuplexCallClient {
	s.Helper()
	return check.Value(client.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, "order-id", "42"))).In(s)
}

func oneMap(s *site) {
	in, let := make(chan struct{}), make(chan struct{})
	s.onUnary = func(context.Context, *pb.SimpleRequest) error { return nil }
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		in <- struct{}{}
		<-let
		return nil
	}
	methods := grpclock.Methods{unary: order, duplex: byMetadata}
	client := s.serve(grpclock.ServerOptions(s.Locks, methods, grpclock.WithReaders(s.Locks, duplex))...)
	first := s.duplexCall(client, s.ctx())
	<-in
	s.want(call(s.ctx(), client, "42"), codes.Aborted, grpclock.ReasonLocked)
	close(let)
	_, err := first.Recv()
	check.ErrorIf(s, err != io.EOF, "the stream: %v", err)
	check.Done(s, call(s.ctx(), client, "42"))
}

func streamByMetadata(s *site) {
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		if err := ss.Send(new(pb.StreamingOutputCallResponse)); err != nil { // the server speaks first
			return err
		}
		_, err := ss.Recv()
		if err != nil {
			return err
		}
		return ss.Send(new(pb.StreamingOutputCallResponse))
	}
	client := s.stream(grpclock.Methods{duplex: byMetadata})
	first := s.duplexCall(client, s.ctx())
	check.NoError(s, check.Err(first.Recv()))
	_, err := s.duplexCall(client, s.ctx()).Recv()
	s.want(err, codes.Aborted, grpclock.ReasonLocked)
	check.Done(s, first.Send(new(pb.StreamingOutputCallRequest)))
	check.Done(s, check.Err(first.Recv()))
}

// A handler that waits for its silent client is woken.
func streamLost(s *site) {
	causes := make(chan error, 1)
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		if err := ss.Send(new(pb.StreamingOutputCallResponse)); err != nil {
			return err
		}
		_, err := ss.Recv()
		causes <- context.Cause(ss.Context())
		check.Is(s, "Send after the loss", ss.Send(new(pb.StreamingOutputCallResponse)), mortise.ErrLost)
		check.Is(s, "Recv after the loss", check.Err(ss.Recv()), mortise.ErrLost)
		return err
	}
	cs := s.duplexCall(s.stream(grpclock.Methods{duplex: byMetadata},
		grpclock.WithLockOptions(mortise.WithLease(5*time.Second))), s.ctx())
	check.NoError(s, check.Err(cs.Recv()))
	_, err := cs.Recv()
	s.want(err, codes.Unknown, grpclock.ReasonLost)
	if err := middle.Receive(s, "the cause", causes); !errors.Is(err, mortise.ErrLost) {
		s.Errorf("the cause is %v", err)
	}
}

// A handler whose client reads nothing, and so can send no more, is woken.
func streamLostUnread(s *site) {
	ended := make(chan error, 1)
	s.onOutput = func(_ *pb.StreamingOutputCallRequest, ss pb.TestService_StreamingOutputCallServer) error {
		part := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}
		for {
			if err := ss.Send(part); err != nil {
				ended <- err
				return err
			}
		}
	}
	client := s.stream(grpclock.Methods{output: byMetadata}, grpclock.WithLockOptions(mortise.WithMaxHold(time.Second)))
	ctx := metadata.AppendToOutgoingContext(s.ctx(), "order-id", "42")
	cs, err := client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest))
	check.NoError(s, err)
	check.Is(s, "Send after the loss", middle.Receive(s, "the handler's end", ended), mortise.ErrLost)
	for err = error(nil); err == nil; _, err = cs.Recv() {
	}
	s.want(err, codes.Unknown, grpclock.ReasonLost)
}

func streamDeadline(s *site) {
	ended := make(chan error, 1)
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		_, err := ss.Recv()
		ended <- err
		return err
	}
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	cs := s.duplexCall(s.stream(grpclock.Methods{duplex: byMetadata}), ctx)
	_, err := cs.Recv()
	check.ErrorIf(s, status.Code(err) != codes.DeadlineExceeded, "%v", err)
	check.ErrorIf(s, middle.Receive(s, "the handler's end", ended) == nil, "Recv returned a message")
}

func streamPanics(s *site) {
	s.onDuplex = func(pb.TestService_FullDuplexCallServer) error { panic("boom") }
	client := s.serve(grpc.ChainStreamInterceptor(
		func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = status.Errorf(codes.DataLoss, "recovered: %v", p)
				}
			}()
			return h(srv, ss)
		}, grpclock.StreamServerInterceptor(s.Locks, grpclock.Methods{duplex: byMetadata})))
	_, err := s.duplexCall(client, s.ctx()).Recv()
	check.ErrorIf(s, status.Convert(err).Message() != "recovered: boom", "%v", err)
}

func streamRedisDown(s *site) {
	s.onDuplex = func(pb.TestService_FullDuplexCallServer) error { s.Error("it was served"); return nil }
	client := s.stream(grpclock.Methods{duplex: byMetadata})
	s.Redis.Stop()
	_, err := s.duplexCall(client, s.ctx()).Recv()
	s.want(err, codes.Unavailable, grpclock.ReasonUnavailable)
	s.Redis.Restart()
}

// silent is a stream whose client neither sends nor reads, until the call ends.
type silent struct {
	grpc.ServerStream
	call, ctx context.Context // an interceptor outside has derived ctx from the call's context
}

func (s silent) Context() context.Context { return s.ctx }

func (s silent) RecvMsg(any) error { <-s.call.Done(); return s.call.Err() }

func (s silent) SendMsg(any) error { <-s.call.Done(); return s.call.Err() }

// The context of a stream may end before the lock is lost: by a time limit of an interceptor outside.
func TestALossAfterTheContextEndedWakesTheHandler(t *testing.T) {
	for what, hang := range map[string]func(grpc.ServerStream) error{
		"Recv": func(ss grpc.ServerStream) error { return ss.RecvMsg(new(pb.SimpleRequest)) },
		"Send": func(ss grpc.ServerStream) error { return ss.SendMsg(new(pb.SimpleResponse)) },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := grpclock.ContextFunc(func(context.Context) (string, error) { return middle.Order, nil })
				intercept := grpclock.StreamServerInterceptor(middle.InMemory(t, memory.New()), grpclock.Methods{duplex: key},
					grpclock.WithLockOptions(mortise.WithMaxHold(10*time.Second)))
				call, hangUp := context.WithTimeout(context.Background(), time.Minute)
				defer hangUp()
				ctx, cancel := context.WithTimeout(call, time.Second)
				defer cancel()
				began := time.Now()
				err := intercept(nil, silent{call: call, ctx: ctx}, &grpc.StreamServerInfo{FullMethod: duplex},
					func(_ any, ss grpc.ServerStream) error {
						err := hang(ss)
						check.Is(t, what, err, mortise.ErrLost)
						return err
					})
				check.ErrorIf(t, status.Code(err) != codes.Unknown, "answered %v", err)
				took := time.Since(began)
				check.ErrorIf(t, took < 9*time.Second || took > 10500*time.Millisecond, "the handler was back after %v", took)
			})
		})
	}
}

// Names of fields of each kind that makes one.
func TestFields(t *testing.T) {
	r := &pb.SimpleRequest{
		ResponseSize:   -7,
		Payload:        &pb.Payload{Body: []byte{0, 0xab}},
		ResponseStatus: &pb.EchoStatus{Code: 5, Message: "a:b"},
	}
	s := newSite(t)
	names := make(chan string, 1)
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		names <- grpclock.Lease(ctx).Name()
		return nil
	}
	for tmpl, want := range map[string]string{
		"n:{response_size}": "n:-7",
		"b:{payload.body}":  "b:00ab",
		"two:{response_status.code}:{response_status.message}": "two:5:a%3Ab",
	} {
		client := s.unaryBy(s.Locks, grpclock.Fields(tmpl))
		if _, err := client.UnaryCall(s.ctx(), r); err != nil {
			t.Error(err)
		} else if got := <-names; got != want {
			t.Errorf("%s: %q, want %q", tmpl, got, want)
		}
	}
}

// A method that is written wrong would be one that is never locked: it shows when the
// program starts.
func TestMisuse(t *testing.T) {
	locks := mortise.Locker((*mortise.Client)(nil))
	middle.Panic(t, "grpclock: ", map[string]func(){
		"no Locker":                func() { grpclock.UnaryServerInterceptor(nil, grpclock.Methods{unary: order}) },
		"no methods":               func() { grpclock.UnaryServerInterceptor(locks, nil) },
		"no such service":          func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{"/x.Y/Z": order}) },
		"no such method":           func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary + "s": order}) },
		"no method name":           func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{"UnaryCall": order}) },
		"an empty Key":             func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: {}}) },
		"a stream":                 func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{duplex: byMetadata}) },
		"no stream":                func() { grpclock.StreamServerInterceptor(locks, grpclock.Methods{unary: order}) },
		"no such field":            func() { field(locks, "x:{response_status.id}") },
		"a field of a string":      func() { field(locks, "x:{response_status.message.id}") },
		"a message":                func() { field(locks, "x:{response_status}") },
		"a bool":                   func() { field(locks, "x:{fill_username}") },
		"no placeholder":           func() { field(locks, "orders") },
		"no text before":           func() { field(locks, "{response_status.message}") },
		"what escaping emits":      func() { field(locks, "x:{response_status.message}%{response_status.message}") },
		"an integer of an integer": func() { field(locks, "x:{response_size:int}") },
		"no such form":             func() { field(locks, "x:{response_status.message:float}") },
		"canonical, but not there": func() {
			field(locks, "x:{response_size}", grpclock.Canonical("response_status.message", unchanged))
		},
		"readers of no method": func() {
			grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: order}, grpclock.WithReaders(locks, duplex))
		},
		"a nil option":           func() { grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: order}, nil) },
		"a wait that is none":    func() { grpclock.WithWait(0) },
		"an answer that is none": func() { grpclock.WithErrorHandler(nil) },
	})
}

func field(locks mortise.Locker, tmpl string, opts ...grpclock.KeyOption) {
	grpclock.UnaryServerInterceptor(locks, grpclock.Methods{unary: grpclock.Fields(tmpl, opts...)})
}

// However an id is spelt, lock and handler see one text.
func TestOneLockForAllSpellings(t *testing.T) {
	check.Long(t)
	s := newSite(t)
	in, let := make(chan string, 2), make(chan struct{})
	s.onUnary = func(ctx context.Context, r *pb.SimpleRequest) error {
		md, _ := metadata.FromIncomingContext(ctx)
		in <- r.ResponseStatus.Message + strings.Join(md.Get("order-id"), ",")
		<-let
		return nil
	}
	told := func(client pb.TestServiceClient, id string) error {
		return call(metadata.AppendToOutgoingContext(s.ctx(), "order-id", id), client, "")
	}
	fields := s.unaryBy(s.Locks, grpclock.Fields("orders:{response_status.message:int}"))
	meta := s.unaryBy(s.Locks, grpclock.Metadata("orders:{order-id:int}"))
	for _, c := range []struct {
		name string
		call func(id string) error
	}{
		{"fields", func(id string) error { return call(s.ctx(), fields, id) }},
		{"metadata", func(id string) error { return told(meta, id) }},
	} {
		first := middle.Async(func() error { return c.call("042") })
		got := middle.Receive(t, "the first in the handler", in)
		check.ErrorIf(t, got != "42", "%s: the handler saw %q, want 42", c.name, got)
		for _, id := range []string{"42", "+42", "042"} {
			s.want(c.call(id), codes.Aborted, grpclock.ReasonLocked)
		}
		s.want(c.call(" 42"), codes.InvalidArgument, grpclock.ReasonBadKey)
		let <- struct{}{}
		check.Done(t, middle.Receive(t, "the first answer", first))
	}

	// Without a lock, by ErrUnavailable, the handler sees the canonical text as well.
	open := s.unaryBy(s.Locks, grpclock.Metadata("orders:{order-id:int}"),
		grpclock.WithFailOpen())
	s.Redis.Stop()
	unlocked := middle.Async(func() error { return told(open, "042") })
	check.Equal(t, "unlocked: the handler saw %q", middle.Receive(t, "the unlocked one in the handler", in), "42")
	let <- struct{}{}
	check.Done(t, middle.Receive(t, "the unlocked answer", unlocked))
}

// unchanged is for Canonical.
func unchanged(value string) (string, error) { return value, nil }
