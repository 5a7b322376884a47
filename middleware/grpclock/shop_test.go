package grpclock_test

import (
	"context"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// The examples' service, made by hand where others have generated code:
//
//	package shop.v1;
//	message Order { string id = 1; }
//	message ShipRequest { Order order = 1; }
//	service Orders {
//		rpc Ship(ShipRequest) returns (Order);
//		rpc Import(stream Order) returns (Order);
//	}
var shop = func() protoreflect.FileDescriptor {
	field := func(name string, of *descriptorpb.FieldDescriptorProto_Type,
		message string) []*descriptorpb.FieldDescriptorProto {
		f := &descriptorpb.FieldDescriptorProto{
			Name: proto.String(name), Number: proto.Int32(1), Type: of,
			Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		if message != "" {
			f.TypeName = proto.String(message)
		}
		return []*descriptorpb.FieldDescriptorProto{f}
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Syntax: proto.String("proto3"), Name: proto.String("shop/v1/shop.proto"), Package: proto.String("shop.v1"),
		MessageType: []*descriptorpb.DescriptorProto{
			{Name: proto.String("Order"), Field: field("id", descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(), "")},
			{Name: proto.String("ShipRequest"),
				Field: field("order", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum(), ".shop.v1.Order")},
		},
		Service: []*descriptorpb.ServiceDescriptorProto{{
			Name: proto.String("Orders"),
			Method: []*descriptorpb.MethodDescriptorProto{{
				Name: proto.String("Ship"), InputType: proto.String(".shop.v1.ShipRequest"),
				OutputType: proto.String(".shop.v1.Order"),
			}, {
				Name: proto.String("Import"), InputType: proto.String(".shop.v1.Order"),
				OutputType: proto.String(".shop.v1.Order"), ClientStreaming: proto.Bool(true),
			}},
		}},
	}, nil)
	if err == nil {
		err = protoregistry.GlobalFiles.RegisterFile(file)
	}
	if err != nil {
		log.Fatal(err)
	}
	return file
}()

func shopMessage(name protoreflect.Name) *dynamicpb.Message {
	return dynamicpb.NewMessage(shop.Messages().ByName(name))
}

// registerOrders serves Ship by a function.
func registerOrders(s *grpc.Server, ship func(ctx context.Context)) {
	const method = "/shop.v1.Orders/Ship"
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.v1.Orders",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{
			MethodName: "Ship",
			Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any,
				error) {
				in := shopMessage("ShipRequest")
				if err := decode(in); err != nil {
					return nil, err
				}
				return interceptor(ctx, in, &grpc.UnaryServerInfo{FullMethod: method},
					func(ctx context.Context, _ any) (any, error) {
						ship(ctx)
						return shopMessage("Order"), nil
					})
			},
		}},
	}, struct{}{})
}

// registerImport serves Import by a function.
func registerImport(s *grpc.Server, serve func(grpc.ServerStream) error) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "shop.v1.Orders",
		HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Import", ClientStreams: true,
			Handler: func(_ any, stream grpc.ServerStream) error {
				if err := serve(stream); err != nil {
					return err
				}
				return stream.SendMsg(shopMessage("Order"))
			},
		}},
	}, struct{}{})
}

// callShip serves s on a port of its own and calls Ship.
func callShip(s *grpc.Server, id string) error {
	return called(s, func(conn *grpc.ClientConn) error {
		order, in := shopMessage("Order"), shopMessage("ShipRequest")
		order.Set(order.Descriptor().Fields().ByName("id"), protoreflect.ValueOfString(id))
		in.Set(in.Descriptor().Fields().ByName("order"), protoreflect.ValueOfMessage(order))
		return conn.Invoke(context.Background(), "/shop.v1.Orders/Ship", in, shopMessage("Order"))
	})
}

// callImport serves s on a port of its own and calls Import with one order.
func callImport(s *grpc.Server, id string) error {
	return called(s, func(conn *grpc.ClientConn) error {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "order-id", id)
		stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/shop.v1.Orders/Import")
		if err != nil {
			return err
		}
		if err := stream.SendMsg(shopMessage("Order")); err != nil {
			return err
		}
		return stream.RecvMsg(shopMessage("Order"))
	})
}

// called serves s on a port of its own, until call returns.
func called(s *grpc.Server, call func(*grpc.ClientConn) error) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go s.Serve(l)
	defer s.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(conn)
}
