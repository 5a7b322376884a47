package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// Adapter is what a Redis client must be able to do. Commands is generated; the
// rest is written by hand, in under a hundred lines, and holds no logic: counting
// references, reconnecting and everything about locks is above it. A client with
// client-side caching is a [Tracker] too, one of a cluster with sharded pub/sub a [Sharder].
type Adapter interface {
	Commands

	// Features tells what this client, as it is configured, can do. It does no I/O.
	Features() Features
	// Subscribe opens one subscription connection. It neither reconnects nor
	// subscribes again: when the connection is lost it calls ev.Down once, and a
	// new one is asked for. ctx bounds the opening only. Where the client library
	// cannot be interrupted it may return later: the session does not wait for it,
	// and closes what it then gets.
	Subscribe(ctx context.Context, ev Events) (Subscription, error)
	// Ping sends PING.
	Ping(ctx context.Context) error
	// LoadScripts loads each source with SCRIPT LOAD, on every master.
	LoadScripts(ctx context.Context, sources []string) error
	// ServerError tells whether err is an error reply of the server, and its text.
	// Everything else is taken for a failure of the transport.
	ServerError(err error) (text string, ok bool)
	// Unsent tells whether err means for certain that the command never left:
	// a refused connection, an exhausted pool.
	Unsent(err error) bool
	// Close frees what the adapter made itself. A client it was given stays open.
	Close() error
}

// Features is what a client can do.
type Features struct {
	// Cluster tells that keys live on several nodes, by slot.
	Cluster bool
	// Tracking tells that the connection commands go over tracks what it reads,
	// and that its invalidations arrive at Tracking (see Tracker).
	Tracking bool
	// Unsettled tells that there was no connection yet, and that it may turn out
	// that Cluster is true.
	Unsettled bool
	// Leaves tells that scripts go through a [batcher.Batcher]: a call whose ctx ends, or had ended,
	// goes on, and its error is a [backend.Left].
	Leaves bool
}

// Tracker is implemented by an adapter whose client has client-side caching.
type Tracker interface {
	// OnInvalidate sets the function that hears of keys that changed; nil for
	// all of them. It is called before the first command.
	OnInvalidate(fn func(keys []string))
}

// Greeter is implemented by an adapter that can ask which server there is. A session asks once,
// before its first command.
type Greeter interface {
	// Hello sends HELLO without arguments, and returns the fields "server" and "version" of its reply.
	Hello(ctx context.Context) (server, version string, err error)
}

// Untracker may be implemented by a [Tracker]. Tracking costs the server, and the client library, a
// fourth of what a lock costs.
type Untracker interface {
	// Untracked are the commands over another connection, which tracks nothing, and is another
	// client to the server: of its writes the first is told. It is not used on a cluster. Nil if
	// there is no other.
	Untracked() Commands
}

// Loner may be implemented by an adapter that can have a connection for one call at a time, whose caller sends the
// command by itself and may leave it all the same. It is not used on a cluster.
type Loner interface {
	// Lone are the commands over that connection; nil while there is none.
	Lone() LoneCommands
}

// LoneCommands are what a lone caller sends. Where ctx ends first, the error is a [backend.Left].
type LoneCommands interface {
	Acquire(ctx context.Context, k AcquireKeys, a AcquireArgs) (int64, error)
	Release(ctx context.Context, k ReleaseKeys, a ReleaseArgs) (int64, error)
}

type (
	// Subscription is one connection that listens to channels.
	Subscription = pubsub.Subscription
	// Events is told what a Subscription hears, and that it was lost.
	Events = pubsub.Events
	// ShardEvents is Events of a connection to one node of a cluster with sharded pub/sub.
	ShardEvents = pubsub.ShardEvents
)
