package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// ShardedPubSub says how releases are announced on a Redis Cluster: to every node of the cluster,
// with PUBLISH, or to the node with the lock's slot, with SPUBLISH. All clients with shared locks
// must agree, Redisson included; its shardedSubscriptionMode has the same three values and the same
// default. A client with SUBSCRIBE does not hear SPUBLISH. Exclusion does not depend on the choice;
// clients with different choices do not wake each other, and wait until the holder's lease is over.
type ShardedPubSub int8

const (
	// ShardedAuto is ShardedOn for a client of a cluster with sharded pub/sub on its servers, Redis
	// 7 and newer, and ShardedOff elsewhere. The session asks once for each client, as Redisson
	// does: PUBSUB SHARDNUMSUB. A user without permission for the command gets ShardedOff.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn is an error where sharded pub/sub is unavailable, before any lock is taken.
	ShardedOn
	// ShardedOff is PUBLISH and SUBSCRIBE.
	ShardedOff
)

func (m ShardedPubSub) String() string {
	switch m {
	case ShardedAuto:
		return "ShardedAuto"
	case ShardedOn:
		return "ShardedOn"
	case ShardedOff:
		return "ShardedOff"
	}
	return fmt.Sprintf("ShardedPubSub(%d)", int8(m))
}

// ErrNoCluster is the answer of [Sharder.AskSharded] for a client outside a cluster.
var ErrNoCluster = errors.New("the client is not one of a cluster")

// Sharder is implemented by an adapter whose client may belong to a cluster with sharded pub/sub.
// Node names are the adapter's own; the session only compares names.
type Sharder interface {
	// ShardedPubSub is the user's choice; ShardedOff for a client certainly outside a cluster.
	// ShardedPubSub does no I/O.
	ShardedPubSub() ShardedPubSub
	// AskSharded sends PUBSUB SHARDNUMSUB to any node.
	AskSharded(ctx context.Context) error
	// Master names the node with a channel's slot, by the client's knowledge. Master is called
	// often, and should answer from memory.
	Master(ctx context.Context, channel string) (node string, err error)
	// FindMasters asks the cluster again for the nodes of the slots.
	FindMasters(ctx context.Context) error
	// SubscribeShard is [Adapter.Subscribe] to a single node, with SSUBSCRIBE and SUNSUBSCRIBE. The
	// channels of a call may be of several slots, with a command for each slot. name is the name of
	// a lock there, for a client library without another way to learn the place of a slot than the
	// reply to a command about a key.
	SubscribeShard(ctx context.Context, node, name string, ev ShardEvents) (Subscription, error)
}

const (
	commandPublish  = "publish"
	commandSPublish = "spublish"
)

const remedySharded = "sharded pub/sub is on: it needs a client of a cluster and Redis 7 or newer; leave it at " +
	"ShardedAuto, or switch it off for all who share the locks"

// newSharding makes what decides, at the first command, whether pub/sub is sharded: nil if
// it certainly is not. What the server answered is kept; where it gave no answer the next command
// asks again.
func newSharding(ctx context.Context, a Adapter, fault func(error) error) (Sharder, *Lazy[bool]) {
	sharder, ok := a.(Sharder)
	if !ok || sharder.ShardedPubSub() == ShardedOff {
		return nil, nil
	}
	return sharder, NewLazy(func() (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, pubsub.Patience)
		defer cancel()
		err := sharder.AskSharded(ctx)
		text, answered := a.ServerError(err)
		on := sharder.ShardedPubSub() == ShardedOn
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrNoCluster):
		case !answered, backend.FaultOf(fault(err)).Temporary, denied(text):
			return false, err
		case on && strings.HasPrefix(text, "NOPERM"):
			return true, nil // it cannot be asked; the user knows
		}
		if on {
			return false, &backend.Fault{Err: err, Remedy: remedySharded}
		}
		return false, nil
	}, func(bool) {})
}

// denied tells of an answer that each command would get, and that says nothing about any.
func denied(text string) bool {
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "DENIED"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
