package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// ShardedPubSub says how releases are announced on a Redis Cluster: with PUBLISH, to every node of the
// cluster, or with SPUBLISH, to the node of the lock's slot. All clients that share locks must use the
// same, Redisson included; its shardedSubscriptionMode has the same three values and the same default.
// Exclusion does not depend on the choice. But a SUBSCRIBE does not receive an SPUBLISH: clients with
// different choices do not wake each other, and wait until the holder's lease is over.
type ShardedPubSub int8

const (
	// ShardedAuto is ShardedOn for a client of a cluster whose servers have sharded pub/sub (Redis 7
	// and newer), otherwise ShardedOff. The session asks once for each client, by PUBSUB SHARDNUMSUB
	// as Redisson does, several nodes at once. A Redis user without permission for this command gets ShardedOff,
	// and so does a client of a cluster whose server is none, as redis.NewFailoverClusterClient makes it.
	ShardedAuto ShardedPubSub = iota
	// ShardedOn uses SPUBLISH and SSUBSCRIBE. If the server has no sharded pub/sub, the first
	// operation fails, before a lock is taken.
	ShardedOn
	// ShardedOff uses PUBLISH and SUBSCRIBE.
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

// ErrNoCluster is returned by [Sharder.AskSharded] if the client is not a client of a cluster.
var ErrNoCluster = errors.New("the client is not one of a cluster")

// Sharder may be implemented by an adapter whose client may be a client of a cluster with sharded
// pub/sub. The adapter chooses the names of nodes; the session only compares them.
type Sharder interface {
	// ShardedPubSub returns the user's choice; ShardedOff for a client that is certainly not a client
	// of a cluster. ShardedPubSub does no I/O.
	ShardedPubSub() ShardedPubSub
	// AskSharded sends PUBSUB SHARDNUMSUB to a node, or to several nodes at once, and returns the first
	// answer: a node that hangs must not delay a client of the others.
	AskSharded(ctx context.Context) error
	// Master returns the name of the node that has a channel's slot, as far as the client knows.
	// Master is called often, and should answer from memory.
	Master(ctx context.Context, channel string) (node string, err error)
	// FindMasters asks the cluster for the nodes of the slots again.
	FindMasters(ctx context.Context) error
	// SubscribeShard is [Adapter.Subscribe] to one node, with SSUBSCRIBE and SUNSUBSCRIBE. The
	// channels of a call of Subscribe may be of several slots; the adapter then sends a command for
	// each slot. name is the name of a lock in a slot of the node, for a client library that learns
	// the node of a slot only by a command about a key.
	SubscribeShard(ctx context.Context, node, name string, ev ShardEvents) (Subscription, error)
}

const (
	commandPublish  = "publish"
	commandSPublish = "spublish"
)

const remedySharded = "sharded pub/sub is on: it needs a client of a cluster and Redis 7 or newer; leave it at " +
	"ShardedAuto, or switch it off for all who share the locks"

// newSharding returns a Lazy that decides at the first command whether pub/sub is sharded; nil if it certainly is not.
// The server's answer is kept; if there is no answer, the next command asks again.
func newSharding(s *core) (Sharder, *Lazy[bool]) {
	sharder, ok := s.adapter.(Sharder)
	if !ok || sharder.ShardedPubSub() == ShardedOff {
		return nil, nil
	}
	return sharder, NewLazy(func() (bool, error) {
		ctx, cancel := context.WithTimeout(s.ctx, pubsub.Patience)
		defer cancel()
		if err := s.greet(ctx); err != nil {
			return false, err
		}
		on := sharder.ShardedPubSub() == ShardedOn
		if !on && s.single.Load() {
			return false, nil
		}
		err := sharder.AskSharded(ctx)
		text, answered := s.adapter.ServerError(err)
		switch {
		case err == nil:
			return true, nil
		case errors.Is(err, ErrNoCluster):
		case !answered, backend.FaultOf(s.fault(err)).Temporary, denied(text):
			return false, err
		case on && strings.HasPrefix(text, "NOPERM"):
			return true, nil // no permission to ask; the user has chosen ShardedOn
		}
		if on {
			return false, &backend.Fault{Err: err, Remedy: remedySharded}
		}
		return false, nil
	}, func(bool) {})
}

// denied reports whether text is an error that every command gets, so that it says nothing about sharded pub/sub.
func denied(text string) bool {
	for _, prefix := range []string{"NOAUTH", "WRONGPASS", "DENIED"} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}
