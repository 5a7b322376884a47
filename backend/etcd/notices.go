package etcd

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mortise-go/mortise/backend/cas"
)

// alive is how long, in seconds, the keys of a session that listens outlive it.
const alive = 10

// leaseOf returns the etcd lease of a session's keys. Who writes a notice knows it by the session's name.
func (d *driver) leaseOf(session string) clientv3.LeaseID {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(d.below(session)))
	return clientv3.LeaseID(sum.Sum64()>>1 | 1)
}

var errEnded = errors.New("the session's etcd lease has ended")

// Listen implements [cas.Driver]. A session that listens has a key, with a lease. Notices are written to keys below
// it if it is there. The stream is not etcd's Watcher, which would go on by itself after an interruption.
func (d *driver) Listen(ctx context.Context, session string, hear func(cas.Heard)) error {
	ctx, c, err := d.begin(ctx)
	if err != nil {
		return unsent(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lease, below := d.leaseOf(session), d.below(session)
	_, err = clientv3.RetryLeaseClient(c).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(lease), TTL: alive})
	if err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
		return unsent(err)
	}
	renewals, err := c.KeepAlive(ctx, lease)
	if err != nil {
		return unsent(err)
	}
	go func() {
		for range renewals { // until ctx ends
		}
	}()
	put, err := c.Put(ctx, below, "", clientv3.WithLease(lease))
	if err != nil {
		return unsent(err)
	}
	stream, err := pb.NewWatchClient(c.ActiveConnection()).Watch(ctx)
	if err == nil {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{
				Key: []byte(below), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(below)), StartRevision: put.Header.Revision + 1,
			},
		}})
	}
	for err == nil {
		var r *pb.WatchResponse
		if r, err = stream.Recv(); err != nil {
			break
		}
		if r.Canceled {
			return unsent(fmt.Errorf("etcd ended the watch: %s", r.CancelReason))
		}
		if r.Created {
			hear(cas.Heard{})
		}
		for _, e := range r.Events {
			if e.Type == mvccpb.DELETE && string(e.Kv.Key) == below {
				return unsent(errEnded)
			}
			for text := range strings.Lines(string(e.Kv.Value)) {
				hear(cas.Heard{Text: strings.TrimSuffix(text, "\n")})
			}
		}
	}
	return unsent(err)
}
