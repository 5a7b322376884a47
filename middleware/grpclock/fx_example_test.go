package grpclock_test

import (
	"fmt"

	"go.uber.org/fx"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// The server is provided by the application, so that programs without gRPC do not link it.
func Example_fx() {
	methods := grpclock.Methods{"/grpc.health.v1.Health/Check": grpclock.Fields("health:{service}")}
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(),
		fx.Provide(func(locks mortise.Locker) *grpc.Server {
			return grpc.NewServer(grpclock.ServerOptions(locks, methods)...)
		}),
		fx.Invoke(func(s *grpc.Server) { healthpb.RegisterHealthServer(s, health.NewServer()) }),
	)
	fmt.Println(app.Err())
	// Output: <nil>
}
