package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// Adapter is the set of abilities required of a Redis client. Commands is generated; the rest is
// written by hand, in under a hundred lines, and holds no logic: the layers above count references,
// reconnect, and know locks. A client with client-side caching is a [Tracker] too, a client of a
// cluster with sharded pub/sub a [Sharder].
type Adapter interface {
	Commands

	// Features returns the abilities of this client in its configuration. Features does no I/O.
	Features() Features
	// Subscribe opens a subscription connection. The connection neither reconnects nor subscribes
	// again: when the connection is lost, Subscribe calls ev.Down once, and the session asks for a
	// new connection. ctx bounds the opening only. If the client library cannot be interrupted,
	// Subscribe may return after the end of ctx: the session does not wait, and closes the late
	// connection.
	Subscribe(ctx context.Context, ev Events) (Subscription, error)
	// Ping sends PING.
	Ping(ctx context.Context) error
	// LoadScripts loads each source with SCRIPT LOAD, on every master.
	LoadScripts(ctx context.Context, sources []string) error
	// ServerError reports whether err is an error reply of the server, and returns its text. Any
	// other error counts as a failure of the transport.
	ServerError(err error) (text string, ok bool)
	// Unsent reports whether the command certainly never left: a refused connection, an exhausted
	// pool.
	Unsent(err error) bool
	// Close frees the adapter's own resources. A client passed to the adapter stays open.
	Close() error
}

// Features lists the abilities of a client.
type Features struct {
	// Cluster reports whether keys live on several nodes, by slot.
	Cluster bool
	// Tracking reports whether the server tracks the reads of the commands' connection, with
	// invalidations sent to Tracking (see Tracker).
	Tracking bool
	// Unsettled reports that there was no connection yet; Cluster may turn out to be true.
	Unsettled bool
	// Leaves reports whether scripts go through a [batcher.Batcher]: a call whose ctx ends, or had
	// ended, goes on, and its error is a [backend.Left].
	Leaves bool
}

// Tracker is implemented by an adapter whose client has client-side caching.
type Tracker interface {
	// OnInvalidate sets the function to call with changed keys; nil stands for all keys.
	// OnInvalidate is called before the first command.
	OnInvalidate(fn func(keys []string))
}

// Greeter is implemented by an adapter with the ability to identify the server. A session asks
// once, before its first command.
type Greeter interface {
	// Hello sends HELLO without arguments, and returns the fields "server" and "version" of its reply.
	Hello(ctx context.Context) (server, version string, err error)
}

// Untracker may be implemented by a [Tracker]. Tracking costs the server, and the client library, a
// quarter of the cost of a lock.
type Untracker interface {
	// Untracked returns the commands over another connection without tracking, a different client
	// to the server: the tracking connection is told of its writes. Untracked is not used on a
	// cluster. Nil if there is no other connection.
	Untracked() Commands
}

// Loner may be implemented by an adapter with a connection for a single call at a time. The caller
// sends the command without a batcher and may leave all the same. Loner is not used on a cluster.
type Loner interface {
	// Lone returns the commands over the lone connection; nil while there is none.
	Lone() LoneCommands
}

// LoneCommands are the commands of a lone caller. If ctx ends first, the error is a [backend.Left].
type LoneCommands interface {
	Acquire(ctx context.Context, k AcquireKeys, a AcquireArgs) (int64, error)
	Release(ctx context.Context, k ReleaseKeys, a ReleaseArgs) (int64, error)
}

type (
	// Subscription is a connection with subscribed channels.
	Subscription = pubsub.Subscription
	// Events receives the messages of a Subscription, and its loss.
	Events = pubsub.Events
	// ShardEvents is Events of a connection to a single node of a cluster with sharded pub/sub.
	ShardEvents = pubsub.ShardEvents
)
