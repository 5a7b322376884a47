//go:build unix

package grpclock_test

import (
	"io"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// BenchmarkStream is a message of a stream, over loopback, with a lock and without.
func BenchmarkStream(b *testing.B) {
	for name, opts := range map[string][]grpc.ServerOption{
		"without a lock": nil,
		"with a lock": {grpc.StreamInterceptor(grpclock.StreamServerInterceptor(middle.InMemory(b, memory.New()),
			grpclock.Methods{input: byMetadata, output: byMetadata, duplex: byMetadata}))},
	} {
		b.Run(name, func(b *testing.B) {
			s := new(service)
			client := s.serve(b, nil, opts...)
			ctx := metadata.AppendToOutgoingContext(b.Context(), "order-id", "42")
			b.Run("received", func(b *testing.B) {
				s.onInput = func(ss pb.TestService_StreamingInputCallServer) error {
					for {
						if _, err := ss.Recv(); err == io.EOF {
							return ss.SendAndClose(new(pb.StreamingInputCallResponse))
						} else if err != nil {
							return err
						}
					}
				}
				cs := check.Value(client.StreamingInputCall(ctx)).In(b)
				for range b.N {
					check.NoError(b, cs.Send(new(pb.StreamingInputCallRequest)))
				}
				check.NoError(b, check.Err(cs.CloseAndRecv()))
			})
			b.Run("sent", func(b *testing.B) {
				n := b.N
				s.onOutput = func(_ *pb.StreamingOutputCallRequest, ss pb.TestService_StreamingOutputCallServer) error {
					for range n {
						if err := ss.Send(new(pb.StreamingOutputCallResponse)); err != nil {
							return err
						}
					}
					return nil
				}
				cs := check.Value(client.StreamingOutputCall(ctx, new(pb.StreamingOutputCallRequest))).In(b)
				for range n {
					check.NoError(b, check.Err(cs.Recv()))
				}
			})
			b.Run("there and back", func(b *testing.B) {
				s.onDuplex = func(ss pb.TestService_FullDuplexCallServer) error {
					for {
						if _, err := ss.Recv(); err == io.EOF {
							return nil
						} else if err != nil {
							return err
						}
						if err := ss.Send(new(pb.StreamingOutputCallResponse)); err != nil {
							return err
						}
					}
				}
				cs := check.Value(client.FullDuplexCall(ctx)).In(b)
				for b.Loop() {
					check.NoError(b, cs.Send(new(pb.StreamingOutputCallRequest)))
					check.NoError(b, check.Err(cs.Recv()))
				}
				check.NoError(b, cs.CloseSend())
				check.ErrorIf(b, check.Err(cs.Recv()) != io.EOF, "the stream has not ended")
			})
		})
	}
}
