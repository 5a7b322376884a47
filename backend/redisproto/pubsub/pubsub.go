// Package pubsub keeps the subscriptions of a client: on one connection for all channels, or with
// sharded pub/sub on one connection for each node of the cluster with channels. It dials and redials,
// subscribes, gives up silent connections, and follows slots that move to another node. It does not
// interpret messages.
package pubsub

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Watcher watches topics. The methods may be called concurrently, and do no I/O.
type Watcher interface {
	// Watch subscribes to a channel for a topic. Config.Watching is called after the server has
	// confirmed the subscription, and again after each interruption.
	Watch(channel string, t backend.Topic)
	// WatchTogether is Watch of several channels of one slot, subscribed by one command.
	WatchTogether(all []Watch)
	// Unwatch ends a Watch.
	Unwatch(channel string, t backend.Topic)
	// Listens reports whether the server has confirmed the subscription of a channel. The channel may
	// be one without a Watch: it stays subscribed for a while after the last Unwatch.
	Listens(channel string) bool
	// Demoted notes that a command met a replica: the client's address may have moved to another server, and left the
	// subscription connection behind. The connection is opened again, at most once in [LastPause], and after the last
	// call of Demoted. Demoted does nothing with sharded pub/sub, which follows the slots.
	Demoted()
	// Close ends the connections and the goroutines. No event is delivered after Close.
	Close()
}

// Watch is a channel watched for a topic.
type Watch struct {
	Channel string
	Topic   backend.Topic
}

// Config is the callbacks of a [Watcher]. They are called without a mutex held.
type Config struct {
	// Open opens a subscription connection. The connection does not reconnect by itself.
	Open func(ctx context.Context, ev ShardEvents) (Subscription, error)
	// Watching is called when a topic's channel is subscribed: later messages arrive at Message.
	Watching func(t backend.Topic)
	Message  func(t backend.Topic, payload string)
	// Beside reports whether the channel of a topic is an additional channel of another topic, which
	// is watched as well. For such a topic Watching is called when the channel becomes subscribed, but
	// not for a Watch of a channel that is subscribed already. Beside may be nil.
	Beside func(t backend.Topic) bool
	// Failed returns the function to call for each topic that cannot be watched because of err; nil
	// if err is temporary.
	Failed func(err error) (tell func(t backend.Topic))
	// Denied reports whether the server refused a Subscribe because of one of its channels. Denied may
	// be nil.
	Denied func(err error) bool
}

// Sharding is the further callbacks of a [Watcher] if pub/sub may be sharded.
type Sharding struct {
	// Decide reports whether pub/sub is sharded.
	Decide func(ctx context.Context) (bool, error)
	// Slot returns a channel's slot. Channel returns the channel of a topic for sharded pub/sub, which
	// is in the slot of the topic's name.
	Slot    func(channel string) int
	Channel func(t backend.Topic) string
	Cluster
}

// Cluster finds the nodes of slots. The names of nodes are only compared with each other.
type Cluster interface {
	// Master returns the name of the node that has a channel's slot, as far as the client knows.
	Master(ctx context.Context, channel string) (node string, err error)
	// FindMasters asks the cluster for the nodes of the slots again.
	FindMasters(ctx context.Context) error
	// SubscribeShard opens a subscription connection to a node. name is the name of a lock in a slot
	// of the node.
	SubscribeShard(ctx context.Context, node, name string, ev ShardEvents) (Subscription, error)
}

// Subscription is a subscription connection. All methods except Close are called from one goroutine.
// They send a command, and need not wait for the server's confirmation, which arrives at Events.
type Subscription interface {
	// Subscribe subscribes to one channel or more.
	Subscribe(ctx context.Context, channels ...string) error
	// Unsubscribe unsubscribes from one channel or more.
	Unsubscribe(ctx context.Context, channels ...string) error
	// Ping sends a PING; the answer arrives at Events.Alive.
	Ping(ctx context.Context) error
	// Close ends the connection. After Close has returned no event is delivered. Close does not call
	// Events.Down. It is called once, even after Down.
	Close() error
}

// Events receives the messages of a Subscription, in the order of arrival. The methods return at
// once.
type Events interface {
	// Subscribed reports the server's confirmation of a Subscribe: once for each channel and
	// command, also for a channel already subscribed.
	Subscribed(channel string)
	// Message delivers a published message.
	Message(channel, payload string)
	// Alive reports any other sign of life of the server: the answer to Ping, the confirmation of
	// Unsubscribe. Alive may be called from another goroutine.
	Alive()
	// Down reports that the connection is lost, or that the server refused a command on the
	// connection. Down is called once at most, and no other method is called after Down.
	Down(err error)
}

// ShardEvents receives the messages of a subscription to one node of a cluster.
type ShardEvents interface {
	// Events has Down, which here is called for a lost connection only.
	Events
	// Unsubscribed reports the end of a subscription: by an Unsubscribe, or because the server lost
	// the channel's slot.
	Unsubscribed(channel string)
	// Refused reports that the server answered a Subscribe of these channels with an error. The
	// connection lives on. For a refused Unsubscribe Alive is called.
	Refused(channels []string, err error)
}

// loop is a goroutine that can be woken and ended. The flags are guarded by the mutex of its owner.
type loop struct {
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // wakes the goroutine; capacity 1
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
