// Package redisproto is the implementation of [backend.Backend] for Redis. The package holds
// everything about locks in Redis apart from the client library: keys and channels, the meaning of
// the scripts' replies, the remedies for error replies, a single subscription connection for all
// waiters, and the held cache, fed by client-side caching. The [Adapter] interface is the package's
// view of a client library; docs/how-to/new-backend.md walks through writing an adapter.
//
// Keys, channels and values are Redisson's, so Java and Go share locks.
package redisproto

import (
	"context"
	"errors"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
)

// New makes a backend of an adapter. open is called once for each [backend.Backend.Open]; open does
// no I/O and reports a nil client or an unusable configuration.
func New(open func() (Adapter, error)) backend.Backend { return opener(open) }

type opener func() (Adapter, error)

func (open opener) Open(h backend.Handler) (backend.Store, error) {
	if h == nil {
		return nil, errors.New("redisproto: Open needs a Handler")
	}
	a, err := open()
	if err != nil {
		return nil, err
	}
	s := &core{adapter: a, handler: h, seen: heldcache.New(heldcache.DefaultSize), tag: newTag()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.second = heldcache.NewSecond[Commands](a, s.answered, s.undone)
	if u, ok := a.(Untracker); ok {
		if other := u.Untracked(); other != nil {
			s.second.Use(other)
		}
	}
	s.joint = newJoint(s)
	s.greeting = newGreeting(s)
	s.subs = newWatcher(s)
	if t, ok := a.(Tracker); ok {
		t.OnInvalidate(s.invalidated)
	}
	return &session{s}, nil
}

// newWatcher makes what watches topics.
func newWatcher(s *core) pubsub.Watcher {
	config := pubsub.Config{
		Open: func(ctx context.Context, ev ShardEvents) (Subscription, error) {
			return s.adapter.Subscribe(ctx, ev)
		},
		Watching: queue{s}.watching,
		Message:  s.message,
		Beside:   isBeside,
		Failed:   func(err error) func(backend.Topic) { return watchFailed(s, err) },
	}
	sharder, sharding := newSharding(s.ctx, s.adapter, s.fault)
	if sharding == nil {
		return pubsub.New(config)
	}
	s.sharding = sharding
	return pubsub.NewSharded(config, pubsub.Sharding{Decide: sharding.Get, Slot: Slot, Channel: shardChannel,
		Cluster: sharder})
}

// watchFailed tells the handler of an error that does not pass by itself, if it wants to hear of it.
func watchFailed(s *core, err error) (tell func(t backend.Topic)) {
	fault := backend.FaultOf(s.fault(err))
	teller, ok := s.handler.(backend.WatchFailer)
	if !ok || fault.Temporary {
		return nil
	}
	return func(t backend.Topic) {
		if !isBeside(t) { // what fails for a channel beside that of a lock fails for the lock's, too
			teller.WatchFailed(t, &fault)
		}
	}
}

// topicChannel is where releases of a topic are announced.
func topicChannel(t backend.Topic) string {
	if isBeside(t) {
		owner := t.Owner
		t.Owner = ""
		return topicChannel(t) + ":" + owner
	}
	switch t.Kind {
	case backend.KindCountDownLatch:
		return latchChannel(t.Name)
	case backend.KindCountingSemaphore, backend.KindSemaphore:
		return semaphoreChannel(t.Name)
	case backend.KindRead, backend.KindWrite:
		return rwChannel(t.Name)
	case backend.KindFair:
		return fairChannel(t.Name, t.Owner)
	case backend.KindDelegated:
		return underChannel(t.Name, t.Owner)
	case backend.KindProclamation:
		return proclamationChannel(t.Name)
	}
	return channelOf(t.Name)
}

// shardChannel is topicChannel where pub/sub is sharded: in the slot of the name.
func shardChannel(t backend.Topic) string {
	if t.Kind == backend.KindCountDownLatch {
		return latchShardChannel(t.Name)
	}
	return topicChannel(t)
}

// channelOf is where releases of a lock are announced. "a" and "{a}" share one, as
// they do in Redisson: a waiter on one is woken by the other, in vain but unharmed.
func channelOf(name string) string { return tagged("redisson_lock__channel:", name) }

// tokenKey is the counter that a lock's fencing tokens come from.
func tokenKey(name string) string { return tagged("redisson_lock_token:", name) }

// companion is the key of mortise's own, of a kind, that stands beside the record of a name. No two names
// share one: a colon ends it where the name has braces of its own. It stands in the name's slot.
func companion(kind, name string) string {
	key := tagged("mortise:1:"+kind+":", name)
	if strings.Contains(name, "{") {
		key += ":"
	}
	return key
}

// tagged puts a name's hash tag around it, so that what is derived from it, by putting
// something before it, falls on its slot of a cluster. A name with a brace is taken to have a tag already.
func tagged(before, name string) string {
	if strings.Contains(name, "{") {
		return before + name
	}
	return before + "{" + name + "}"
}
