// Package pubsub keeps the subscriptions of one client: one connection for all channels, or where
// pub/sub is sharded one for each node of a cluster that has channels. It dials, dials again,
// subscribes, gives silent connections up, and follows slots that move. What a message says is not
// its business.
package pubsub

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Watcher is how topics are watched. Its methods may be called concurrently, and do no I/O.
type Watcher interface {
	// Watch subscribes to a channel for a topic. Config.Watching is called when the server has
	// confirmed it, and again after each interruption.
	Watch(channel string, t backend.Topic)
	// WatchTogether is Watch of several channels of one slot, which are subscribed by one command.
	WatchTogether(all []Watch)
	// Unwatch takes Watch back.
	Unwatch(channel string, t backend.Topic)
	// Listens reports whether the server confirmed that a channel is subscribed, watched or not.
	Listens(channel string) bool
	// Close ends the connections and the goroutines. No event is delivered after it.
	Close()
}

// Watch is a channel that is watched for a topic.
type Watch struct {
	Channel string
	Topic   backend.Topic
}

// Config is what a [Watcher] needs. Its functions are called without a mutex held.
type Config struct {
	// Open opens one subscription connection, which neither reconnects nor subscribes again.
	Open func(ctx context.Context, ev ShardEvents) (Subscription, error)
	// Watching is told that a topic's releases will be heard from now on, Message of each message for a topic.
	Watching func(t backend.Topic)
	Message  func(t backend.Topic, payload string)
	// Beside reports whether the channel of a topic only stands beside another, which is watched after it: Watching
	// tells of it when it becomes subscribed, not for a Watch of what is subscribed already. It may be nil.
	Beside func(t backend.Topic) bool
	// Failed returns what to tell of each topic that cannot be watched because of err; nil if err
	// passes by itself.
	Failed func(err error) (tell func(t backend.Topic))
}

// Sharding is what a [Watcher] needs where pub/sub may be sharded.
type Sharding struct {
	// Decide reports whether it is.
	Decide func(ctx context.Context) (bool, error)
	// Slot is a channel's slot, and Channel the channel of a topic in the slot of its name.
	Slot    func(channel string) int
	Channel func(t backend.Topic) string
	Cluster
}

// Cluster finds nodes. The names of nodes are only compared.
type Cluster interface {
	// Master names the node that has a channel's slot, as far as the client knows.
	Master(ctx context.Context, channel string) (node string, err error)
	// FindMasters asks the cluster again for the nodes of the slots.
	FindMasters(ctx context.Context) error
	// SubscribeShard opens a subscription connection to one node. name is that of a lock there.
	SubscribeShard(ctx context.Context, node, name string, ev ShardEvents) (Subscription, error)
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

// ShardEvents receives what arrives on a subscription to one node of a cluster.
type ShardEvents interface {
	// Events, of which Down is called for a lost connection only.
	Events
	// Unsubscribed tells that a subscription ended: by an Unsubscribe, or because the
	// server let the channel's slot go.
	Unsubscribed(channel string)
	// Refused tells that the server answered a Subscribe of these channels with an error.
	// The connection lives on. A refused Unsubscribe is Alive.
	Refused(channels []string, err error)
}

// loop is a goroutine that is woken, and its end. The flags are guarded by the mutex of its owner.
type loop struct {
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // has room for one
	ended  chan struct{} // closed when the goroutine has returned

	started, closed bool
}

func newLoop() loop {
	l := loop{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *loop) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
