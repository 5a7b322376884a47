package etcd

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/mortise-go/mortise/backend"
)

// sent is the key of what tells, in a request's context, that something of the request was sent.
type sent struct{}

// watchSending returns a context for a request that may have been carried out if it was sent.
func watchSending(ctx context.Context) context.Context {
	return context.WithValue(ctx, sent{}, new(bool))
}

// atOnce has a request fail while nothing can be connected, where etcd's client would wait, and notes what was sent: a
// request has a peer then.
//
//nolint:revive // the signature is gRPC's
func atOnce(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, send grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	var to peer.Peer
	err := send(ctx, method, req, reply, c, append(opts, grpc.WaitForReady(false), grpc.Peer(&to))...)
	if was, watched := ctx.Value(sent{}).(*bool); watched {
		*was = *was || to.Addr != nil
	}
	return err
}

// remedies are those of errors of etcd, by text or else by code. The first that fits is used.
var remedies = []struct {
	err       error
	code      codes.Code
	remedy    string
	temporary bool
	// clean: the request has not been carried out.
	clean bool
}{
	{err: rpctypes.ErrNoLeader, remedy: "a majority of the members must run", temporary: true, clean: true},
	{err: rpctypes.ErrTooManyRequests, remedy: "etcd has too much to do", temporary: true, clean: true},
	{err: rpctypes.ErrInvalidAuthToken, remedy: "the user is asked for anew", temporary: true, clean: true},
	// Etcd answers so, too, where it has just carried out a request.
	{err: rpctypes.ErrNoSpace, remedy: "compact and defragment etcd, and disarm its alarm", temporary: true},
	{err: rpctypes.ErrRequestTooLarge, remedy: "set etcd's --max-request-bytes to 1.5 MiB or more", clean: true},
	{err: rpctypes.ErrTooManyOps, remedy: "set etcd's --max-txn-ops to 128 or more", clean: true},
	{code: codes.PermissionDenied, remedy: "grant the user the right to read and write the prefix's keys", clean: true},
	{code: codes.InvalidArgument, remedy: "check the user, the password and the configuration", clean: true},
}

// fault returns the Fault of an error of a request with a context of watchSending; nil for nil.
func fault(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	was, watched := ctx.Value(sent{}).(*bool)
	f := &backend.Fault{
		Err: fmt.Errorf("etcd: %w", err), Remedy: "check that a majority of etcd's members runs, and the connection to it",
		MayHaveRun: watched && *was, Temporary: true,
	}
	said := rpctypes.Error(err)
	for _, r := range remedies {
		if r.err != nil && errors.Is(said, r.err) || r.err == nil && codeOf(err) == r.code {
			f.Remedy, f.Temporary = r.remedy, r.temporary
			f.MayHaveRun = f.MayHaveRun && !r.clean
			break
		}
	}
	return f
}

// codeOf returns the code of an error of a request.
func codeOf(err error) codes.Code {
	var said rpctypes.EtcdError
	if errors.As(err, &said) {
		return said.Code()
	}
	return status.Code(err)
}

// unsent is fault for an error before anything was sent that could change a value; nil for nil.
func unsent(err error) error { return fault(context.Background(), err) }
