package main

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/examples/apps/shop/shopv1"
	"github.com/mortise-go/mortise/middleware/grpclock"
)

// newOrders is the shop's gRPC. Its locks have the names of the HTTP routes', so that the two exclude each other.
func newOrders(locks mortise.Locker, shipping *Shipping) *grpc.Server {
	server := grpc.NewServer(grpclock.ServerOptions(locks, grpclock.Methods{
		shopv1.Orders_Ship_FullMethodName: grpclock.Fields("orders:{order_id}", grpclock.Canonical("order_id", orderID)),
	})...)
	shopv1.RegisterOrdersServer(server, &orders{shipping: shipping})
	return server
}

type orders struct {
	shopv1.UnimplementedOrdersServer
	shipping *Shipping
}

func (o *orders) Ship(ctx context.Context, r *shopv1.ShipRequest) (*shopv1.Order, error) {
	order, err := o.shipping.Ship(ctx, r.GetOrderId())
	switch {
	case errors.Is(err, errState):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, err // of a lost lock, too: the interceptor answers that
	}
	return &shopv1.Order{Id: order.ID, State: order.State}, nil
}
