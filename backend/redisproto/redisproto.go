// Package redisproto is the one implementation of [backend.Backend] for Redis. It
// holds everything about locks in Redis that does not depend on the client
// library: which keys and channels there are, what the scripts' replies mean, what
// an error reply asks a person to do, one subscription connection for all
// waiters, and the picture of held locks that client-side caching keeps true. What
// it needs of a client library is the [Adapter] interface; docs/new-backend.md
// walks through writing one.
//
// Keys, channels and values are Redisson's, so that Java and Go share one lock.
package redisproto

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// New makes a backend of an adapter. open is called once for each
// [backend.Backend.Open]; it does no I/O and reports a nil client or a
// configuration that cannot work.
func New(open func() (Adapter, error)) backend.Backend { return opener(open) }

type opener func() (Adapter, error)

func (open opener) Open(h backend.Handler) (backend.Session, error) {
	if h == nil {
		return nil, errors.New("redisproto: Open needs a Handler")
	}
	a, err := open()
	if err != nil {
		return nil, err
	}
	s := &session{adapter: a, handler: h, seen: newPicture(pictureSize), tag: newTag()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.untracked = untracked{own: a, epoch: time.Now(), answered: s.answered, undone: s.undone}
	if u, ok := a.(Untracker); ok {
		s.untracked.other = u.Untracked()
	}
	s.joint = s.newJoint()
	s.greeting = s.newGreeting()
	s.subs = s.watcher()
	if t, ok := a.(Tracker); ok {
		t.OnInvalidate(s.invalidated)
	}
	return s, nil
}

// watcher makes what watches topics: one connection, or where pub/sub is sharded one for
// each node.
func (s *session) watcher() watcher {
	plain := func() *subscriptions {
		return newSubscriptions(func(ctx context.Context, ev ShardEvents) (Subscription, error) {
			return s.adapter.Subscribe(ctx, ev)
		}, s.handler, s.tag, s.fault)
	}
	sharder, sharding := newSharding(s.ctx, s.adapter, s.fault)
	if sharding == nil {
		return plain()
	}
	s.sharding = sharding
	all := newShards(sharder, sharding.Get, s.handler, s.fault)
	all.plain = plain
	all.node = func(name string) *subscriptions {
		n := newSubscriptions(nil, s.handler, s.tag, s.fault)
		n.open = func(ctx context.Context, ev ShardEvents) (Subscription, error) {
			return sharder.SubscribeShard(ctx, name, n.anyName(), ev)
		}
		n.shards = all
		return n
	}
	return all
}

// topicChannel is where releases of a topic are announced.
func topicChannel(t backend.Topic) string {
	switch t.Kind {
	case backend.KindLatch:
		return latchChannel(t.Name)
	case backend.KindSemaphore, backend.KindPermits:
		return semaphoreChannel(t.Name)
	case backend.KindRead, backend.KindWrite:
		return rwChannel(t.Name)
	case backend.KindFair:
		return fairChannel(t.Name, t.Owner)
	case backend.KindNested:
		return underChannel(t.Name, t.Owner)
	}
	return channelOf(t.Name)
}

// shardChannel is topicChannel where pub/sub is sharded: in the slot of the name.
func shardChannel(t backend.Topic) string {
	if t.Kind == backend.KindLatch {
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
