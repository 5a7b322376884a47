//go:build unix

package grpclock_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// transportStream is what an interceptor finds below a stream of gRPC.
type transportStream struct {
	grpc.ServerTransportStream
	end context.CancelFunc
}

func (s transportStream) WriteStatus(*status.Status) error { s.end(); return nil }

// fake is a stream whose messages take no time, unless recv says otherwise.
type fake struct {
	grpc.ServerStream
	ctx  context.Context
	recv func() error
}

func (s fake) Context() context.Context { return s.ctx }

func (s fake) RecvMsg(any) error {
	if s.recv != nil {
		return s.recv()
	}
	return nil
}

func (s fake) SendMsg(any) error { return nil }

// serveFake serves a stream that holds a lock. The stream is of gRPC's own kind, or another's.
func serveFake(t *testing.T, grpcs bool, recv func() error, handler grpc.StreamHandler, opts ...grpclock.Option) error {
	key := grpclock.ContextFunc(func(context.Context) (string, error) { return middle.Order, nil })
	intercept := grpclock.StreamServerInterceptor(middle.InMemory(t, memory.New()), grpclock.Methods{duplex: key}, opts...)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	if grpcs {
		ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream{end: end})
	}
	return intercept(nil, fake{ctx: ctx, recv: recv}, &grpc.StreamServerInfo{FullMethod: duplex}, handler)
}

func TestAMessageOfALockedStreamNeedsNeitherAGoroutineNorMemory(t *testing.T) {
	check.Done(t, serveFake(t, true, nil, func(_ any, ss grpc.ServerStream) error {
		check.Equal(t, "allocations of a RecvMsg: %v", testing.AllocsPerRun(100, func() { ss.RecvMsg(nil) }), 0)
		check.Equal(t, "allocations of a SendMsg: %v", testing.AllocsPerRun(100, func() { ss.SendMsg(nil) }), 0)
		return nil
	}))
}

// A message that arrives with the loss, or later, is not handled as under the lock.
func TestAMessageThatArrivesAfterTheLossIsNotHandled(t *testing.T) {
	for name, grpcs := range map[string]bool{"of gRPC": true, "of another": false} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				synctest.Test(t, func(t *testing.T) {
					var ended <-chan struct{}
					late := func() error { <-ended; return nil }
					err := serveFake(t, grpcs, late, func(_ any, ss grpc.ServerStream) error {
						ended = ss.Context().Done()
						err := ss.RecvMsg(nil)
						check.Is(t, "RecvMsg", err, mortise.ErrLost)
						check.Is(t, "RecvMsg, again", ss.RecvMsg(nil), mortise.ErrLost)
						check.Is(t, "SendMsg", ss.SendMsg(nil), mortise.ErrLost)
						return err
					}, grpclock.WithLockOptions(mortise.WithMaxHold(10*time.Second)))
					check.ErrorIf(t, status.Code(err) != codes.Unknown, "answered %v", err)
				})
			}
		})
	}
}

// What a loss does to a call over real gRPC, by both of its servers.
func TestALossEndsAStreamThatIsInACall(t *testing.T) {
	for name, serve := range map[string]func(*site, ...grpc.ServerOption) pb.TestServiceClient{
		"gRPC's server": (*site).serve,
		"net/http":      (*site).serveHTTP,
	} {
		for _, c := range []struct {
			name    string
			handler func(pb.TestService_FullDuplexCallServer) error
			opts    []grpclock.Option
			want    string
			byHTTP  string // what net/http's server answers, if it differs
		}{
			{"in Recv", inRecv, nil, "Unknown: the lock was lost", ""},
			{"in Recv, and then by its own status", func(ss pb.TestService_FullDuplexCallServer) error {
				check.Err(ss.Recv())
				return status.Error(codes.OutOfRange, "half done")
			}, nil, "Unknown: the lock was lost", "OutOfRange: half done"},
			{"in Send", func(ss pb.TestService_FullDuplexCallServer) error {
				part := &pb.StreamingOutputCallResponse{Payload: &pb.Payload{Body: make([]byte, 64<<10)}}
				for {
					if err := ss.Send(part); err != nil {
						return err
					}
				}
			}, nil, "Unknown: the lock was lost", ""},
			{"elsewhere, by its own status", func(ss pb.TestService_FullDuplexCallServer) error {
				<-ss.Context().Done()
				return status.Error(codes.OutOfRange, "half done")
			}, nil, "OutOfRange: half done", ""},
			{"in Recv, by the answer of the program", inRecv, []grpclock.Option{grpclock.WithErrorHandler(
				func(context.Context, string, *status.Status, error) error {
					return status.Error(codes.DataLoss, "mine")
				})},
				"DataLoss: mine", ""},
			{"in Recv, by a panic of the program", inRecv, []grpclock.Option{grpclock.WithErrorHandler(
				func(context.Context, string, *status.Status, error) error { panic("boom") })},
				"Unknown: the lock was lost", "Internal: recovered"},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				t.Parallel()
				s := &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, memory.New())}}
				ended, panicked := make(chan error, 1), make(chan any, 1)
				s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
					_, ours := grpc.ServerTransportStreamFromContext(ss.Context()).(interface {
						WriteStatus(*status.Status) error
					})
					check.ErrorIf(t, !ours, "gRPC's stream has no WriteStatus: each message needs a goroutine")
					err := c.handler(ss)
					ended <- grpclock.Lease(ss.Context()).Err()
					return err
				}
				count := func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
					defer func() {
						p := recover()
						if panicked <- p; p != nil {
							err = status.Error(codes.Internal, "recovered")
						}
					}()
					return h(srv, ss)
				}
				client := serve(s, grpc.ChainStreamInterceptor(count, grpclock.StreamServerInterceptor(s.Locks,
					grpclock.Methods{duplex: byMetadata},
					append(c.opts, grpclock.WithLockOptions(mortise.WithMaxHold(100*time.Millisecond)))...)))
				cs := s.duplexCall(client, s.ctx())
				check.Is(t, "the lease", middle.Receive(t, "the handler's end", ended), mortise.ErrLost)
				var err error
				for err == nil {
					_, err = cs.Recv()
				}
				got := fmt.Sprintf("%v: %.50s", status.Code(err), status.Convert(err).Message())
				want := c.want
				if name == "net/http" && c.byHTTP != "" {
					want = c.byHTTP
				}
				check.ErrorIf(t, !strings.HasPrefix(got, want), "answered %q, want %q", got, want)
				p := middle.Receive(t, "the interceptor's end", panicked)
				check.ErrorIf(t, (p == "boom") != (c.name == "in Recv, by a panic of the program"), "panicked with %v", p)
			})
		}
	}
}

func inRecv(ss pb.TestService_FullDuplexCallServer) error {
	err := check.Err(ss.Recv())
	if !errors.Is(err, mortise.ErrLost) {
		return status.Errorf(codes.Internal, "Recv returned %v", err)
	}
	return err
}

// serveHTTP is serve by a server of net/http.
func (s *site) serveHTTP(opts ...grpc.ServerOption) pb.TestServiceClient {
	s.Helper()
	srv := grpc.NewServer(opts...)
	pb.RegisterTestServiceServer(srv, s)
	h := httptest.NewUnstartedServer(srv)
	h.Config.Protocols = new(http.Protocols)
	h.Config.Protocols.SetUnencryptedHTTP2(true)
	h.Start()
	conn := check.Value(grpc.NewClient(h.Listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))).In(s)
	s.Cleanup(func() {
		conn.Close()
		h.Close()
	})
	return pb.NewTestServiceClient(conn)
}

// gRPC bounds the bytes that a handler has not received for each stream, and not for a connection: streams that wait
// with unread messages stop no other call of their connection. net/http bounds both: see httplock.
func TestStreamsThatWaitDoNotStopOtherCallsOfTheirConnection(t *testing.T) {
	const waiters, upload = 10, 600 << 10
	s := &site{Site: &middle.Site{T: t, Locks: middle.InMemory(t, memory.New())}}
	s.onInput = func(ss pb.TestService_StreamingInputCallServer) error {
		n := 0
		for {
			m, err := ss.Recv()
			if err != nil {
				return ss.SendAndClose(&pb.StreamingInputCallResponse{AggregatedPayloadSize: int32(n)})
			}
			n += len(m.Payload.Body)
		}
	}
	began := make(chan struct{}, waiters+1)
	key := grpclock.ContextFunc(func(ctx context.Context) (string, error) {
		began <- struct{}{}
		return middle.Order, nil
	})
	client := s.stream(grpclock.Methods{input: key}, grpclock.WithMaxClientWait())
	open := func() pb.TestService_StreamingInputCallClient {
		cs := check.Value(client.StreamingInputCall(s.ctx())).In(t)
		middle.Receive(t, "the call", began)
		return cs
	}
	part := &pb.StreamingInputCallRequest{Payload: &pb.Payload{Body: make([]byte, 60<<10)}}
	holder := open()
	check.Done(t, holder.Send(part))
	var waiting []<-chan int32
	for range waiters {
		cs := open()
		waiting = append(waiting, middle.Async(func() int32 {
			for range upload / len(part.Payload.Body) {
				check.Done(t, cs.Send(part)) // most of it only once the stream has the lock
			}
			r, err := cs.CloseAndRecv()
			check.Done(t, err)
			return r.GetAggregatedPayloadSize()
		}))
	}
	for range upload/len(part.Payload.Body) - 1 {
		check.Done(t, holder.Send(part))
	}
	r := check.Value(holder.CloseAndRecv()).In(t)
	check.Equal(t, "the holder's upload: %d", r.AggregatedPayloadSize, upload)
	for _, w := range waiting {
		check.Equal(t, "the upload of one that waited: %d", middle.Receive(t, "one that waited", w), upload)
	}
}
