package redisproto

import (
	"context"
	"errors"

	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// Adapter is what mortise needs of a Redis client library. The methods of Commands are generated. The
// other methods are written by hand, in under a hundred lines, and have no logic of their own:
// redisproto reconnects subscriptions, and knows about locks. An Adapter may also implement [Tracker],
// [Untracker], [Greeter], [Asker], [Ender], [Pooler], [Locator], [Loner], [Replicator] and [Sharder].
type Adapter interface {
	Commands

	// Features returns the abilities of this client in its configuration. Features does no I/O.
	Features() Features
	// Subscribe opens a subscription connection. The connection does not reconnect by itself: when
	// it is lost, the adapter calls ev.Down once, and the session asks for a new connection. ctx
	// bounds the opening only. If the client library cannot be interrupted, Subscribe may return
	// after the end of ctx: the session does not wait for it, and closes the late connection.
	Subscribe(ctx context.Context, ev Events) (Subscription, error)
	// Ping sends PING.
	Ping(ctx context.Context) error
	// LoadScripts loads each source with SCRIPT LOAD, on every master.
	LoadScripts(ctx context.Context, sources []string) error
	// ServerError reports whether err is an error reply of the server, and returns its text. Any
	// other error counts as a failure of the transport.
	ServerError(err error) (text string, ok bool)
	// Unsent reports whether err says that the command was certainly not sent: for example, the
	// connection was refused, or the pool had no free connection.
	Unsent(err error) bool
	// Close frees the adapter's own resources. A client passed to the adapter stays open.
	Close() error
}

// Features says how a client is configured.
type Features struct {
	// Cluster reports whether keys live on several nodes, by slot.
	Cluster bool
	// Tracking reports whether the server tracks the keys that commands read (client-side caching),
	// and sends invalidations: see Tracker.
	Tracking bool
	// Unsettled reports that there was no connection yet, so Cluster may turn out to be true.
	Unsettled bool
	// Leaves reports whether callers can leave scripts, because the profile sends them through a
	// [batcher.Batcher]: when ctx ends, or if it had ended before, the method returns a
	// [backend.Left], and the script goes on.
	Leaves bool
}

// Tracker is implemented by an adapter whose client has client-side caching.
type Tracker interface {
	// OnInvalidate sets the function to call with changed keys; nil stands for all keys.
	// OnInvalidate is called before the first command.
	OnInvalidate(fn func(keys []string))
}

// Greeter may be implemented by an adapter that can ask the server for its version and mode. A session
// asks before its first command.
type Greeter interface {
	// Hello sends HELLO without arguments, and returns the fields of its reply, at least "server",
	// "version" and "mode". On a cluster, a node that hangs must not delay the reply of another node:
	// see [First].
	Hello(ctx context.Context) (fields map[string]string, err error)
}

// Asker may be implemented by an adapter that can send a command without a key to each master. Check
// and List use it.
type Asker interface {
	// AskEach sends a command to each master that the client knows, to all at once, and returns their
	// answers; for a client of a single server one answer, without an address. On a cluster it may ask
	// replicas, too. An error says that no server could be asked.
	AskEach(ctx context.Context, args ...string) ([]Answer, error)
	// Ask sends a command to the node with an address as in an Answer, and returns its reply. The error
	// wraps [ErrNoNode] if the client knows no such node.
	Ask(ctx context.Context, node string, args ...string) (any, error)
}

// ErrNoNode is the error of Ask for a node that is no part of the cluster any more.
var ErrNoNode = errors.New("the node has left the cluster")

// Answer is what a node answered.
type Answer struct {
	Node  string // its address; empty for a single server
	Reply any    // as the client library decodes it: of lists, maps, strings and int64
	Err   error
}

// Ender may be implemented by an adapter whose client the user may close.
type Ender interface {
	// Ended reports whether err says that the client is closed: no later command succeeds.
	Ended(err error) bool
}

// Pooler may be implemented by an adapter that takes a connection for each command from a pool which the application
// uses, too.
type Pooler interface {
	// Pool returns how many connections of the pool are in use, and how many it has at most: on a cluster
	// those of the node that has name. Pool does no I/O.
	Pool(name string) (used, size int)
}

// Locator may be implemented by an adapter that knows its servers without asking. Errors of commands name them.
type Locator interface {
	// Servers returns the addresses of the servers; "" if they are unknown. Servers does no I/O.
	Servers() string
}

// Untracker may be implemented by a [Tracker]. It saves the cost of tracking, a quarter of the cost of
// a lock, for commands that need none.
type Untracker interface {
	// Untracked returns the commands over another connection, without tracking; nil if there is
	// none. To the server it belongs to another client, so the tracking connection gets
	// invalidations for its writes. It is not used on a cluster. leaves: callers can leave scripts, as
	// Features.Leaves says; otherwise the session itself sends scripts together, and each goes out at once.
	Untracked(leaves bool) Commands
}

// Loner may be implemented by an adapter that has a connection for one call at a time: package lone.
// The caller sends its command by itself, without a batcher, and can leave all the same. Loner is not
// used on a cluster.
type Loner interface {
	// Lone returns the commands over this connection; nil while there is none.
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
	// Events receives the messages of a Subscription, and is told of its loss.
	Events = pubsub.Events
	// ShardEvents is Events for a connection to one node of a cluster with sharded pub/sub.
	ShardEvents = pubsub.ShardEvents
)
