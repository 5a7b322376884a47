//go:build unix

package grpclock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

const testService = "grpc.testing.TestService"

// memorySite is a site whose locks are in memory, beside another client of the same store.
func memorySite(t *testing.T) (s *site, caller *mortise.Client) {
	store := memory.New()
	return &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, store)}}, middle.InMemory(t, store)
}

func (s *site) accepting(ring *delegation.Ring, opts ...grpclock.Option) []grpc.ServerOption {
	c := middle.Checker(s, ring, "b")
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(grpclock.UnaryDelegationInterceptor(s.Locks, c),
			grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: order}, opts...)),
		grpc.ChainStreamInterceptor(grpclock.StreamDelegationInterceptor(s.Locks, c),
			grpclock.StreamServerInterceptor(s.Locks, grpclock.Methods{
				output: byMetadata, input: byMetadata, duplex: byMetadata}, opts...)),
	}
}

// told is a client whose calls tell services.
func (s *site) told(ring *delegation.Ring, services grpclock.Services, opts ...grpc.ServerOption) pb.TestServiceClient {
	return s.serveTo([]grpc.DialOption{
		grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(middle.Issuer(s, ring), services)),
		grpc.WithStreamInterceptor(grpclock.StreamClientInterceptor(middle.Issuer(s, ring), services)),
	}, opts...)
}

func TestACalleeEntersItsCallersLock(t *testing.T) {
	s, caller := memorySite(t)
	ring := middle.Ring(t, "k1")
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		md, _ := metadata.FromIncomingContext(ctx)
		check.ErrorIf(t, len(md[grpclock.MetadataKey]) != 0, "the handler sees %v", md)
		if l := grpclock.Lease(ctx); l.Name() != "orders:42" || l.Err() != nil {
			t.Errorf("%q, %v", l.Name(), l.Err())
		}
		return nil
	}
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		md, _ := metadata.FromIncomingContext(ss.Context())
		check.ErrorIf(t, len(md[grpclock.MetadataKey]) != 0 || md.Get("order-id")[0] != "42", "the handler sees %v", md)
		for {
			if _, err := ss.Recv(); err != nil {
				return nil
			}
			if err := ss.Send(&pb.StreamingOutputCallResponse{}); err != nil {
				return err
			}
		}
	}
	lease := middle.Holding(t, caller, "orders:42")
	ctx, cancel := context.WithTimeout(lease.Context(), middle.Patience)
	defer cancel()
	stream := func(c pb.TestServiceClient) error {
		ss, err := c.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, "order-id", "42"))
		if err != nil {
			return err
		}
		ss.Send(&pb.StreamingOutputCallRequest{}) // of a call that was refused it says EOF, and Recv says why
		if _, err := ss.Recv(); err != nil {
			return err
		}
		return ss.CloseSend()
	}
	told := s.told(ring, grpclock.Services{testService: "b"}, s.accepting(ring)...)
	for range 3 {
		check.NoError(t, call(ctx, told, "42"))
	}
	check.NoError(t, stream(told))
	untold := s.told(ring, grpclock.Services{}, s.accepting(ring)...)
	s.want(call(ctx, untold, "42"), codes.Aborted, grpclock.ReasonLocked)
	s.want(stream(untold), codes.Aborted, grpclock.ReasonLocked)
	check.Done(t, lease.Err())
}

func TestAReplayAfterTheRelease(t *testing.T) {
	s, caller := memorySite(t)
	ring := middle.Ring(t, "k1")
	s.onUnary = func(context.Context, *pb.SimpleRequest) error { return nil }
	client := s.serve(s.accepting(ring)...)
	lease := middle.Holding(t, caller, "orders:42")
	entry, err := middle.Issuer(t, ring).Issue(lease.Context(), "b")
	check.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(s.ctx(), grpclock.MetadataKey, entry)
	check.NoError(t, call(ctx, client, "42"))
	check.Done(t, lease.Unlock(context.Background()))
	s.want(call(ctx, client, "42"), codes.FailedPrecondition, grpclock.ReasonDelegationEnded)
	middle.Holding(t, caller, "orders:42")
	s.want(call(ctx, client, "42"), codes.FailedPrecondition, grpclock.ReasonDelegationEnded)
}

func TestParallelCalleesTakeTurns(t *testing.T) {
	s, caller := memorySite(t)
	ring := middle.Ring(t, "k1")
	var inside middle.Inside
	s.onUnary = func(context.Context, *pb.SimpleRequest) error {
		inside.Work()
		return nil
	}
	client := s.told(ring, grpclock.Services{testService: "b"}, s.accepting(ring, grpclock.WithWait(middle.Patience))...)
	lease := middle.Holding(t, caller, "orders:42")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { check.Done(t, call(lease.Context(), client, "42")) })
	}
	wg.Wait()
	inside.Alone(t)
}

// Each refusal: its code, its reason, its own error; no handler is reached.
func TestAcceptRefuses(t *testing.T) {
	ring := middle.Ring(t, "k1")
	var (
		mu     sync.Mutex
		causes []error
		log    strings.Builder
	)
	s, _ := memorySite(t)
	s.onUnary = func(context.Context, *pb.SimpleRequest) error {
		t.Error("the handler was reached")
		return nil
	}
	s.onDuplex = func(pb.TestService_FullDuplexCallServer) error { t.Error("the handler was reached"); return nil }
	keep := grpclock.WithErrorHandler(func(_ context.Context, _ string, st *status.Status, cause error) error {
		mu.Lock()
		defer mu.Unlock()
		causes = append(causes, cause)
		return st.Err()
	})
	checker := middle.Checker(t, ring, "b", delegation.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	client := s.serve(grpc.UnaryInterceptor(grpclock.UnaryDelegationInterceptor(s.Locks, checker, keep)),
		grpc.StreamInterceptor(grpclock.StreamDelegationInterceptor(s.Locks, checker, keep)))
	for _, test := range middle.Refusals(t, ring, "b") {
		t.Run(test.Name, func(t *testing.T) {
			s.T = t
			causes = nil
			log.Reset()
			code := codes.PermissionDenied
			if test.Malformed {
				code = codes.InvalidArgument
			}
			ctx := context.Background()
			for _, e := range test.Entries {
				ctx = metadata.AppendToOutgoingContext(ctx, grpclock.MetadataKey, e)
			}
			s.want(call(ctx, client, "42"), code, grpclock.ReasonBadDelegation)
			ss, err := client.FullDuplexCall(ctx)
			if err == nil {
				_, err = ss.Recv()
			}
			s.want(err, code, grpclock.ReasonBadDelegation)
			check.ErrorIf(t, !strings.HasSuffix(status.Convert(err).Message(), delegation.Reason(test.Want)), "%v", err)
			mu.Lock()
			defer mu.Unlock()
			check.ErrorIf(t, len(causes) != 2 || !errors.Is(causes[0], test.Want) || !errors.Is(causes[1], test.Want) ||
				strings.Count(log.String(), "reason="+delegation.Reason(test.Want)) != 2,
				"causes %v, logged %s", causes, log.String())
		})
	}
	s.T = t
	accept := func(locks *mortise.Client, v delegation.Verifier) error {
		good := metadata.Pairs(grpclock.MetadataKey, middle.Entry(t, ring, "b", nil))
		_, err := grpclock.UnaryDelegationInterceptor(locks, middle.Checker(t, v, "b"))(
			metadata.NewIncomingContext(context.Background(), good), nil, &grpc.UnaryServerInfo{FullMethod: unary}, nil)
		return err
	}
	retry := s.want(accept(s.Locks, middle.Away{}), codes.Unavailable, grpclock.ReasonUnverified)
	check.ErrorIf(t, retry != time.Second, "retry after %v", retry)
	s.want(accept(middle.Cannot(t), ring), codes.Internal, grpclock.ReasonInternal)
}

// What a call of each service sends.
func TestOnlyNamedServicesAreTold(t *testing.T) {
	_, caller := memorySite(t)
	ring := middle.Ring(t, "k1")
	held := middle.Holding(t, caller, "orders:42").Context()
	call := func(s delegation.Signer, ctx context.Context, method string) (md metadata.MD, err error) {
		services := grpclock.Services{testService: "b"}
		unaryErr := grpclock.UnaryClientInterceptor(middle.Issuer(t, s), services)(ctx, method, nil, nil, nil,
			func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
				md, _ = metadata.FromOutgoingContext(ctx)
				return nil
			})
		_, err = grpclock.StreamClientInterceptor(middle.Issuer(t, s), services)(ctx, nil, nil, method,
			func(ctx context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string,
				_ ...grpc.CallOption) (grpc.ClientStream, error) {
				other, _ := metadata.FromOutgoingContext(ctx)
				check.ErrorIf(t, len(other[grpclock.MetadataKey]) != len(md[grpclock.MetadataKey]) || len(other) != len(md),
					"a stream sends %v, a unary call %v", other, md)
				return nil, nil
			})
		check.ErrorIf(t, (err == nil) != (unaryErr == nil), "a stream: %v, a unary call: %v", err, unaryErr)
		return md, err
	}
	forged := func(ctx context.Context) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "Mortise-Delegation", "forged", "mortise-delegation", "forged again")
	}
	for _, test := range []struct {
		name, method string
		ctx          context.Context
		want         int
	}{
		{"named, holding", unary, held, 1},
		{"named, holding nothing", unary, context.Background(), 0},
		{"another", "/grpc.testing.TestService2/UnaryCall", held, 0},
		{"another that begins so", "/grpc.testing.TestServiceX/UnaryCall", held, 0},
		{"named, with somebody else's", unary, forged(held), 1},
		{"another, with somebody else's", "/other.Service/UnaryCall", forged(held), 0},
		{"holding nothing, with somebody else's", unary, forged(context.Background()), 0},
	} {
		ctx := metadata.AppendToOutgoingContext(test.ctx, "traceparent", "00-x")
		md, err := call(ring, ctx, test.method)
		got := md[grpclock.MetadataKey]
		check.ErrorIf(t, err != nil || len(got) != test.want || len(md["traceparent"]) != 1 ||
			strings.Contains(strings.Join(got, ""), "forged"),
			"%s: sent %v, %v", test.name, md, err)
		if test.want == 1 {
			p, err := middle.Checker(t, ring, "b").Check(ctx, got...)
			check.ErrorIf(t, err != nil || p.Delegations[0].Name != "orders:42", "%s: %+v, %v", test.name, p, err)
		}
	}
	md, err := call(middle.Away{}, held, unary)
	check.ErrorIf(t, err == nil || md != nil, "a call that cannot be signed was sent: %v, %v", md, err)
}

func TestDelegationMistakesPanicWhenTheProgramStarts(t *testing.T) {
	s, _ := memorySite(t)
	i, c := middle.Issuer(t, middle.Ring(t, "k1")), middle.Checker(t, middle.Ring(t, "k1"), "b")
	middle.Panic(t, "grpclock: ", map[string]func(){
		"no issuer": func() { grpclock.UnaryClientInterceptor(nil, nil) },
		"a service misspelt": func() {
			grpclock.UnaryClientInterceptor(i, grpclock.Services{"grpc.testing.TestServices": "b"})
		},
		"a method":  func() { grpclock.StreamClientInterceptor(i, grpclock.Services{unary: "b"}) },
		"a message": func() { grpclock.StreamClientInterceptor(i, grpclock.Services{"grpc.testing.SimpleRequest": "b"}) },
		"no name":   func() { grpclock.UnaryClientInterceptor(i, grpclock.Services{testService: ""}) },
		"a long name": func() {
			grpclock.UnaryClientInterceptor(i, grpclock.Services{testService: strings.Repeat("x", 256)})
		},
		"a nil option":      func() { grpclock.UnaryDelegationInterceptor(s.Locks, c, nil) },
		"no client":         func() { grpclock.UnaryDelegationInterceptor(nil, c) },
		"no checker":        func() { grpclock.StreamDelegationInterceptor(s.Locks, nil) },
		"WithWait":          func() { grpclock.UnaryDelegationInterceptor(s.Locks, c, grpclock.WithWait(time.Second)) },
		"WithMaxClientWait": func() { grpclock.UnaryDelegationInterceptor(s.Locks, c, grpclock.WithMaxClientWait()) },
		"WithRetryAfter": func() {
			grpclock.UnaryDelegationInterceptor(s.Locks, c, grpclock.WithRetryAfter(time.Second))
		},
		"WithFailOpen": func() { grpclock.UnaryDelegationInterceptor(s.Locks, c, grpclock.WithFailOpen()) },
		"WithReaders": func() {
			grpclock.StreamDelegationInterceptor(s.Locks, c, grpclock.WithReaders(s.Locks, unary))
		},
		"WithLockOptions": func() {
			grpclock.UnaryDelegationInterceptor(s.Locks, c, grpclock.WithLockOptions(mortise.WithLease(time.Second)))
		},
	})
}

// A call that is served unlocked has no lease, also behind an interceptor that holds another lock.
func TestFailOpenWithinAnotherLock(t *testing.T) {
	s, _ := memorySite(t)
	down := memory.New()
	outer := grpclock.Func(func(context.Context, any) (string, error) { return "tenants:1", nil })
	client := s.serve(grpc.ChainUnaryInterceptor(
		grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: outer}),
		grpclock.UnaryServerInterceptor(middle.InMemory(t, down), grpclock.Methods{unary: order}, grpclock.WithFailOpen())))
	down.SetDown(errors.New("down"))
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		if l := grpclock.Lease(ctx); l != nil {
			t.Errorf("served without the inner lock, with the lease of %s", l.Name())
		}
		return nil
	}
	check.NoError(t, call(s.ctx(), client, "42"))
}

// A call that waits for an inner lock when it loses the outer one has lost a lock; its client has not left.
func TestALockLostWhileTheCallWaitsForAnother(t *testing.T) {
	s, other := memorySite(t)
	middle.Holding(t, other, middle.Order)
	outer := grpclock.Func(func(context.Context, any) (string, error) { return "tenants:1", nil })
	inner := make(chan *status.Status, 1)
	client := s.serve(grpc.ChainUnaryInterceptor(
		grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: outer},
			grpclock.WithLockOptions(mortise.WithMaxHold(50*time.Millisecond))),
		grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: order}, grpclock.WithWait(middle.Patience),
			grpclock.WithErrorHandler(func(_ context.Context, _ string, answer *status.Status, _ error) error {
				inner <- answer
				return nil
			}))))
	s.onUnary = func(context.Context, *pb.SimpleRequest) error { t.Error("served"); return nil }
	err := call(s.ctx(), client, "42")
	s.want(err, codes.Unknown, grpclock.ReasonLost)
	s.want((<-inner).Err(), codes.Unknown, grpclock.ReasonLost)
}

// A function of WithErrorHandler that returns nil does not let a refused call pass.
func TestAnErrorHandlerThatReturnsNothingLetsNothingPass(t *testing.T) {
	s, other := memorySite(t)
	none := grpclock.WithErrorHandler(func(context.Context, string, *status.Status, error) error { return nil })
	middle.Holding(t, other, middle.Order)
	s.onUnary = func(context.Context, *pb.SimpleRequest) error { t.Error("served"); return nil }
	s.want(call(s.ctx(), s.unary(none), "42"), codes.Aborted, grpclock.ReasonLocked)
	s.want(call(s.ctx(), s.unary(none), ""), codes.InvalidArgument, grpclock.ReasonBadKey)
	client := s.serve(grpc.UnaryInterceptor(grpclock.UnaryDelegationInterceptor(s.Locks,
		middle.Checker(t, middle.Ring(t, "k1"), "b"), none)))
	s.want(call(metadata.AppendToOutgoingContext(s.ctx(), grpclock.MetadataKey, "forged"), client, "42"),
		codes.InvalidArgument, grpclock.ReasonBadDelegation)
}

// panicking is the stream of an interceptor before the lock's.
type panicking struct {
	grpc.ServerStream
	onSend bool
}

func (p panicking) RecvMsg(m any) error {
	if !p.onSend {
		panic("of RecvMsg")
	}
	return p.ServerStream.RecvMsg(m)
}

func (p panicking) SendMsg(any) error { panic("of SendMsg") }

// What panics below the lock's stream panics in the handler's goroutine, where an interceptor can recover it.
func TestAPanicBelowTheStreamIsTheHandlers(t *testing.T) {
	for _, want := range []string{"of RecvMsg", "of SendMsg"} {
		s, _ := memorySite(t)
		lock := grpclock.StreamServerInterceptor(s.Locks, grpclock.Methods{duplex: byMetadata})
		client := s.serve(grpc.ChainStreamInterceptor(
			func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
				defer func() { err = status.Error(codes.DataLoss, fmt.Sprint(recover())) }()
				return handler(srv, panicking{ss, want == "of SendMsg"})
			}, lock))
		s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
			_, err := ss.Recv()
			return errors.Join(err, ss.Send(&pb.StreamingOutputCallResponse{}))
		}
		stream := check.Value(client.FullDuplexCall(metadata.AppendToOutgoingContext(s.ctx(), "order-id", "42"))).In(t)
		_ = stream.Send(&pb.StreamingOutputCallRequest{}) // of a call that is over it says EOF, and Recv says why
		_, err := stream.Recv()
		check.ErrorIf(t, status.Code(err) != codes.DataLoss || !strings.Contains(err.Error(), want), "%v", err)
	}
}
