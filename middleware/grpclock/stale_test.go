//go:build unix

package grpclock_test

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	pb "google.golang.org/grpc/interop/grpc_testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// What a caller is told, the store has said: the client's cache may be behind.
func TestARefusalIsTheStoresNotTheCaches(t *testing.T) {
	s := middle.NewSite(t)
	lock := grpclock.UnaryServerInterceptor(s.Stale(), grpclock.Methods{unary: order})
	request := &pb.SimpleRequest{ResponseStatus: &pb.EchoStatus{Message: "42"}}
	_, err := lock(t.Context(), request, &grpc.UnaryServerInfo{FullMethod: unary},
		func(context.Context, any) (any, error) { return nil, nil })
	check.NoError(t, err)
}
