// Package pubsub keeps the subscriptions of a client: a single connection for all channels, or with
// sharded pub/sub a connection for each node with channels. The package dials, redials, subscribes,
// gives silent connections up, and follows moved slots. The meaning of messages is left to the
// caller.
package pubsub

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Watcher watches topics. The methods may be called concurrently, and do no I/O.
type Watcher interface {
	// Watch subscribes to a channel for a topic. Config.Watching is called after the server's
	// confirmation, and again after each interruption.
	Watch(channel string, t backend.Topic)
	// WatchTogether is Watch of several channels of one slot, subscribed by one command.
	WatchTogether(all []Watch)
	// Unwatch ends a Watch.
	Unwatch(channel string, t backend.Topic)
	// Listens reports whether the server confirmed the subscription of a channel, watched or not.
	Listens(channel string) bool
	// Close ends the connections and the goroutines. No event is delivered after Close.
	Close()
}

// Watch is a channel watched for a topic.
type Watch struct {
	Channel string
	Topic   backend.Topic
}

// Config is the callbacks of a [Watcher]. The functions are called without a mutex held.
type Config struct {
	// Open opens a subscription connection; the connection neither reconnects nor subscribes again.
	Open func(ctx context.Context, ev ShardEvents) (Subscription, error)
	// Watching reports that a topic's releases will be heard from now on, Message reports each
	// message for a topic.
	Watching func(t backend.Topic)
	Message  func(t backend.Topic, payload string)
	// Beside reports whether the channel of a topic only stands beside another channel, watched
	// after the first: Watching reports the topic when its channel becomes subscribed, not for a
	// Watch of a channel already subscribed. Beside may be nil.
	Beside func(t backend.Topic) bool
	// Failed returns the call to make for each topic without a watch because of err; nil if err is
	// temporary.
	Failed func(err error) (tell func(t backend.Topic))
}

// Sharding is the further callbacks of a [Watcher] if pub/sub may be sharded.
type Sharding struct {
	// Decide reports whether pub/sub is sharded.
	Decide func(ctx context.Context) (bool, error)
	// Slot is a channel's slot, and Channel the channel of a topic in the slot of its name.
	Slot    func(channel string) int
	Channel func(t backend.Topic) string
	Cluster
}

// Cluster finds nodes. The names of nodes are only compared.
type Cluster interface {
	// Master names the node with a channel's slot, by the client's knowledge.
	Master(ctx context.Context, channel string) (node string, err error)
	// FindMasters asks the cluster again for the nodes of the slots.
	FindMasters(ctx context.Context) error
	// SubscribeShard opens a subscription connection to a single node. name is the name of a lock
	// there.
	SubscribeShard(ctx context.Context, node, name string, ev ShardEvents) (Subscription, error)
}

// Subscription is a subscription connection. The methods, except Close, are called from one
// goroutine. The methods send; they need not wait for the server's confirmation. The confirmation
// arrives at Events.
type Subscription interface {
	// Subscribe names at least one channel.
	Subscribe(ctx context.Context, channels ...string) error
	// Unsubscribe names at least one channel.
	Unsubscribe(ctx context.Context, channels ...string) error
	// Ping asks for a sign of life; the answer arrives at Events.Alive.
	Ping(ctx context.Context) error
	// Close ends the connection, and returns when no event will be delivered any more. Close does
	// not call Events.Down. Close is called once, also after Down.
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
	// Alive is any other sign of life: the answer to Ping, the confirmation of Unsubscribe. Alive
	// may be called from another goroutine.
	Alive()
	// Down reports that the connection is lost, or that the server refused a command on the
	// connection. Down is called once at most, and no other method is called after Down.
	Down(err error)
}

// ShardEvents receives the messages of a subscription to a single node of a cluster.
type ShardEvents interface {
	// Down is called for a lost connection only.
	Events
	// Unsubscribed reports the end of a subscription: by an Unsubscribe, or because the server lost
	// the channel's slot.
	Unsubscribed(channel string)
	// Refused reports that the server answered a Subscribe of these channels with an error. The
	// connection lives on. A refused Unsubscribe is Alive.
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
