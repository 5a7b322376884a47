package grpclock_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
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
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// boundedRetry: findings U8, a holder's lease of 30 s is no reason to stay away for as long.
func boundedRetry(s *site) {
	s.never()
	release := s.Hold()
	for want, opts := range map[time.Duration][]grpclock.Option{
		grpclock.DefaultRetryAfter: nil, time.Second: {grpclock.WithRetryAfter(time.Second)},
	} {
		got := s.want(call(s.ctx(), s.unary(opts...), "42"), codes.Aborted, grpclock.ReasonLocked)
		check.ErrorIf(s, got != want, "the delay is %v, want %v", got, want)
	}
	release()
}

func TestARetryDelayOfLessThanASecondIsRefused(t *testing.T) {
	defer func() { check.ErrorIf(t, recover() == nil, "WithRetryAfter of less than a second is not refused") }()
	grpclock.WithRetryAfter(time.Millisecond)
}

// retrying returns a client's option with the retry policy of the guide.
func retrying(t *testing.T) grpc.DialOption {
	t.Helper()
	page := string(check.Value(os.ReadFile("../../docs/how-to/grpc.md")).In(t))
	_, rest, _ := strings.Cut(page, "```json\n")
	config, _, found := strings.Cut(rest, "```")
	for from, to := range map[string]string{
		"shop.v1.Orders": "grpc.testing.TestService", `"0.1s"`: `"0.01s"`, `"3s"`: `"0.01s"`,
	} {
		check.FatalIf(t, !found || !strings.Contains(config, from), "the guide has no retry policy with %s: %s", from, config)
		config = strings.Replace(config, from, to, 1)
	}
	return grpc.WithDefaultServiceConfig(config)
}

// A client that repeats calls that were not begun must not repeat a call that was.
func TestTheRetryPolicyOfTheGuideRunsAHandlerThatHadBegunOnce(t *testing.T) {
	for how, lose := range map[string]func(*testing.T, *mortise.Client){
		"the lock is removed": func(t *testing.T, locks *mortise.Client) {
			check.Done(t, check.Err(locks.ForceUnlock(context.Background(), middle.Order, "")))
		},
		"the server shuts down": func(t *testing.T, locks *mortise.Client) { check.Done(t, locks.Close()) },
		"the lease ends":        func(*testing.T, *mortise.Client) {},
	} {
		for kind, call := range calls {
			t.Run(how+", "+kind, func(t *testing.T) {
				t.Parallel()
				s := &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, memory.New())}}
				var runs atomic.Int32
				s.handlers(func(ctx context.Context) {
					if runs.Add(1) == 1 {
						go lose(t, s.Locks)
					}
				})
				client := s.retried(t, nil, grpclock.WithLockOptions(mortise.WithLease(time.Second/4)))
				retry := s.want(call(s.ctx(), client), codes.Unknown, grpclock.ReasonLost)
				check.Equal(t, "the handler ran %d times", runs.Load(), 1)
				check.Equal(t, "the answer asks for a retry after %v", retry, 0)
			})
		}
	}
}

// The client learns of a broken connection as of a server that shuts down: by Unavailable.
func TestTheRetryPolicyOfTheGuideRunsAHandlerWhoseConnectionBreaksOnce(t *testing.T) {
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, memory.New())}}
			conns := make(chan net.Conn, 10)
			dial := grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				conns <- c
				return c, err
			})
			var runs atomic.Int32
			s.handlers(func(context.Context) {
				runs.Add(1)
				(<-conns).Close()
			})
			err := call(s.ctx(), s.retried(t, dial))
			check.Equal(t, "answered %v", status.Code(err), codes.Unavailable)
			check.Equal(t, "the handler ran %d times", runs.Load(), 1)
		})
	}
}

// A call that was refused is repeated.
func TestTheRetryPolicyOfTheGuideRepeatsACallThatWasNotBegun(t *testing.T) {
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, memory.New())}}
			s.handlers(func(context.Context) { t.Error("it was served") })
			var refusals atomic.Int32
			client := s.retried(t, nil, grpclock.WithErrorHandler(func(context.Context, string, *status.Status, error) error {
				refusals.Add(1)
				return nil
			}))
			middle.Holding(t, s.Locks, middle.Order)
			s.want(call(s.ctx(), client), codes.Aborted, grpclock.ReasonLocked)
			check.Equal(t, "it was asked for %d times", refusals.Load(), 4)
		})
	}
}

// calls are a call of each kind for order 42, to its end.
var calls = map[string]func(context.Context, pb.TestServiceClient) error{
	"unary": func(ctx context.Context, c pb.TestServiceClient) error { return call(ctx, c, "42") },
	"server stream": func(ctx context.Context, c pb.TestServiceClient) error {
		cs, err := c.StreamingOutputCall(ctx, &pb.StreamingOutputCallRequest{ResponseStatus: request("42").ResponseStatus})
		return ended(err, func() error { return check.Err(cs.Recv()) })
	},
	"client stream": func(ctx context.Context, c pb.TestServiceClient) error {
		cs, err := c.StreamingInputCall(ctx)
		if err == nil {
			err = cs.Send(&pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: []byte{0x42}}})
		}
		return ended(err, func() error { return cs.RecvMsg(new(pb.StreamingInputCallResponse)) })
	},
	"stream of both": func(ctx context.Context, c pb.TestServiceClient) error {
		cs, err := c.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, "order-id", "42"))
		return ended(err, func() error { return check.Err(cs.Recv()) })
	},
}

// ended receives until the call has ended.
func ended(err error, receive func() error) error {
	for err == nil {
		err = receive()
	}
	return err
}

// handlers makes handlers that call begun, and then stay until their lock is lost: in a call of a stream, or elsewhere.
func (s *site) handlers(begun func(context.Context)) {
	s.onUnary = func(ctx context.Context, _ *pb.SimpleRequest) error {
		begun(ctx)
		<-ctx.Done()
		return ctx.Err()
	}
	s.onOutput = func(_ *pb.StreamingOutputCallRequest, ss pb.TestService_StreamingOutputCallServer) error {
		begun(ss.Context())
		<-ss.Context().Done()
		return ss.Context().Err()
	}
	s.onInput = func(ss pb.TestService_StreamingInputCallServer) error {
		begun(ss.Context())
		return ended(nil, func() error { return check.Err(ss.Recv()) })
	}
	s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
		begun(ss.Context())
		return check.Err(ss.Recv())
	}
}

// retried serves methods of each kind to a client that repeats calls.
func (s *site) retried(t *testing.T, dial grpc.DialOption, opts ...grpclock.Option) pb.TestServiceClient {
	client := []grpc.DialOption{retrying(t)}
	if dial != nil {
		client = append(client, dial)
	}
	return s.serveTo(client,
		grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(s.Locks, grpclock.Methods{unary: order}, opts...)),
		grpc.StreamInterceptor(grpclock.StreamServerInterceptor(s.Locks, grpclock.Methods{
			output: order, input: grpclock.Fields("orders:{payload.body}"), duplex: byMetadata}, opts...)))
}
