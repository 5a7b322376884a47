package redisproto

import "context"

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
	// Leaves tells that scripts go through an [Outbox]: a call whose ctx ends, or had ended,
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

// Untracker may be implemented by a [Tracker]. Tracking costs the server, and the client library, a fourth of what a lock costs.
type Untracker interface {
	// Untracked are the commands over another connection, which tracks nothing, and is another client to the server: of
	// its writes the first is told. It is not used on a cluster. Nil if there is no other.
	Untracked() Commands
}

// Subscription is one subscription connection. Its methods but Close are called
// from one goroutine. They send; they need not wait for the server's confirmation,
// which arrives at Events.
type Subscription interface {
	// Subscribe names at least one channel.
	Subscribe(ctx context.Context, channels ...string) error
	// Unsubscribe names at least one channel.
	Unsubscribe(ctx context.Context, channels ...string) error
	// Ping asks for a sign of life, which arrives at Events.Alive.
	Ping(ctx context.Context) error
	// Close ends it, and returns when no event will be delivered any more.
	// Events.Down is not called for it. It is called once, also after Down.
	Close() error
}

// Events receives what arrives on a Subscription, in the order of arrival. Its
// methods return at once.
type Events interface {
	// Subscribed tells that the server confirmed a Subscribe: once for each channel
	// and command, also for a channel that was subscribed already.
	Subscribed(channel string)
	// Message delivers what was published.
	Message(channel, payload string)
	// Alive is any other sign of life: the answer to Ping, the confirmation of
	// Unsubscribe. It may be called from another goroutine.
	Alive()
	// Down tells that the connection is lost, or that the server refused a command on
	// it. It is called once at most, and nothing after it.
	Down(err error)
}
