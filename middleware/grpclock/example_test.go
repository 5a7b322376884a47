package grpclock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// One call at a time for each order. The name is the one that httplock's
// RouteKey("orders:{id}") makes, so HTTP and gRPC exclude each other.
func Example() {
	locks, err := mortise.New(memory.New()) // on Redis: redisgo.New(rdb), or rueidis.New(option)
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	server := newServer(locks)
	registerOrders(server, func(ctx context.Context) { // in a service: shopv1.RegisterOrdersServer(server, orders)
		fmt.Println("holds", grpclock.Lease(ctx).Name()) // ctx ends if the lock is lost
	})
	if err := callShip(server, "42"); err != nil { // in a client: shopv1.NewOrdersClient(conn).Ship(ctx, request)
		log.Fatal(err)
	}
	// Output: holds orders:42
}

func newServer(locks mortise.Locker) *grpc.Server {
	methods := grpclock.Methods{"/shop.v1.Orders/Ship": grpclock.Fields("orders:{order.id}")}
	lock := grpclock.ServerOptions(locks, methods, grpclock.WithWait(2*time.Second)) // default: no wait
	return grpc.NewServer(lock...)
}

func newStreamServer(locks mortise.Locker) *grpc.Server {
	methods := grpclock.Methods{"/shop.v1.Orders/Import": grpclock.Metadata("imports:{order-id}")}
	lock := grpclock.ServerOptions(locks, methods,
		grpclock.WithLockOptions(mortise.WithMaxHold(time.Minute))) // even if the client falls silent
	return grpc.NewServer(lock...)
}

// A stream is locked by its metadata, before its first message.
func ExampleServerOptions_stream() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()

	server := newStreamServer(locks)
	registerImport(server, func(stream grpc.ServerStream) error {
		fmt.Println("holds", grpclock.Lease(stream.Context()).Name())
		return stream.RecvMsg(shopMessage("Order")) // returns if the lock is lost
	})
	if err := callImport(server, "42"); err != nil {
		log.Fatal(err)
	}
	// Output: holds imports:42
}

// What a client of a call sees whose lock is held.
func ExampleUnaryServerInterceptor_refused() {
	locks, err := mortise.New(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	lease, err := locks.Lock(context.Background(), "orders:42", mortise.WithLease(time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Unlock(context.Background())

	server := grpc.NewServer(grpc.UnaryInterceptor(grpclock.UnaryServerInterceptor(locks, grpclock.Methods{
		"/shop.v1.Orders/Ship": grpclock.Fields("orders:{order.id}"),
	})))
	registerOrders(server, func(context.Context) {})

	st := status.Convert(callShip(server, "42"))
	fmt.Println(st.Code())
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			fmt.Println(d.Reason)
		case *errdetails.RetryInfo:
			fmt.Println("retry within a minute:", d.RetryDelay.AsDuration() <= time.Minute)
		}
	}
	// Output:
	// Aborted
	// LOCKED
	// retry within a minute: true
}
