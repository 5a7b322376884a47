package grpclock

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/mortise-go/mortise/middleware/delegation"
)

// MetadataKey is the key of the metadata sent by [UnaryClientInterceptor]: [delegation.Header] in
// lower case.
const MetadataKey = "mortise-delegation"

// Services names the gRPC services to send delegations to: the name in the service's checks (its
// audience), by the full name in the .proto, such as "shop.v1.Orders". An unknown service is a
// panic when the program starts, so the generated code must be linked in; a program with the
// service's client has the code anyway.
type Services map[string]string

// UnaryClientInterceptor makes an interceptor that tells the services about the locks held by a
// call's context; the services then enter the locks instead of waiting for them (see package
// delegation, and [UnaryDelegationInterceptor]). Calls of other services pass unchanged, and so
// does a call whose context holds nothing. Give the interceptor only to connections to those
// services: the interceptor knows names of services, not the server behind the connection.
//
//	services := grpclock.Services{"shop.v1.Stock": "stock"}
//	tell := grpc.WithUnaryInterceptor(grpclock.UnaryClientInterceptor(issuer, services))
//	conn, err := grpc.NewClient(target, creds, tell)
//
// Existing metadata of [MetadataKey] is removed from a call to any server: the metadata of an
// incoming call is never sent on. Delegations are valid for a limited time
// ([delegation.WithLifetime]); a call with a longer wait for its connection, or repeated by gRPC
// after this time, is refused.
//
// A call fails, without being sent, if the issuer's signer fails. UnaryClientInterceptor panics if
// issuer is nil or services are invalid. Cost: no command, and metadata of about 200 bytes.
func UnaryClientInterceptor(issuer *delegation.Issuer, services Services) grpc.UnaryClientInterceptor {
	c := newCarrier("UnaryClientInterceptor", issuer, services)
	return func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		ctx, err := c.carry(ctx, method)
		if err != nil {
			return err
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
}

// StreamClientInterceptor is [UnaryClientInterceptor] for streams: the delegations are those of the
// context when the stream begins.
func StreamClientInterceptor(issuer *delegation.Issuer, services Services) grpc.StreamClientInterceptor {
	c := newCarrier("StreamClientInterceptor", issuer, services)
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		begin grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		ctx, err := c.carry(ctx, method)
		if err != nil {
			return nil, err
		}
		return begin(ctx, desc, cc, method, opts...)
	}
}

type carrier struct {
	issuer   *delegation.Issuer
	services Services
}

func newCarrier(of string, issuer *delegation.Issuer, services Services) *carrier {
	if issuer == nil {
		panic("grpclock: " + of + ": the Issuer must not be nil")
	}
	c := &carrier{issuer: issuer, services: make(Services, len(services))}
	for service, audience := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
		if err == nil {
			if _, ok := d.(protoreflect.ServiceDescriptor); !ok {
				err = fmt.Errorf("it is a %T", d)
			}
		}
		if err != nil {
			panic(fmt.Sprintf("grpclock: %s: there is no service %q; "+
				"it is one like shop.v1.Orders, and its generated code is linked in: %v", of, service, err))
		}
		if audience == "" || len(audience) > delegation.MaxAudience {
			panic(fmt.Sprintf("grpclock: %s: %s needs a name to check it by, of %d bytes at most",
				of, service, delegation.MaxAudience))
		}
		c.services[service] = audience
	}
	return c
}

func (c *carrier) carry(ctx context.Context, method string) (context.Context, error) {
	var entry string
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if audience, ok := c.services[service]; ok {
		var err error
		if entry, err = c.issuer.Issue(ctx, audience); err != nil {
			return nil, err
		}
	}
	md, _ := metadata.FromOutgoingContext(ctx) // a copy
	switch {
	case len(md[MetadataKey]) > 0:
		delete(md, MetadataKey)
		if entry != "" {
			md[MetadataKey] = []string{entry}
		}
		return metadata.NewOutgoingContext(ctx, md), nil
	case entry != "":
		return metadata.AppendToOutgoingContext(ctx, MetadataKey, entry), nil
	}
	return ctx, nil
}
