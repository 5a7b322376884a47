// Package redisproto implements [backend.Backend] for Redis. It has everything about locks in Redis
// except for the client library: keys and channels, the meaning of the scripts' replies, the remedies
// for error replies, the subscriptions, and the held cache of client-side caching. A client library is
// used through the interface [Adapter]; docs/how-to/new-backend.md explains how to write one.
//
// Keys, channels and values are Redisson's, so Java and Go share locks.
package redisproto

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto/heldcache"
	"github.com/mortise-go/mortise/backend/redisproto/pubsub"
	"github.com/mortise-go/mortise/scripts"
)

// New returns a backend on a client library. open makes the adapter of a session: it is called once for
// each [backend.Backend.Open], does no I/O, and returns an error for a nil client or an unusable
// configuration.
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
	if sharder, ok := a.(Sharder); ok {
		if mode := sharder.ShardedPubSub(); mode < ShardedAuto || mode > ShardedOff {
			_ = a.Close()
			return nil, fmt.Errorf("WithShardedPubSub(%v): use ShardedAuto, ShardedOn or ShardedOff", mode)
		}
	}
	s := &core{adapter: a, handler: h, seen: heldcache.New(heldcache.DefaultSize), tag: newTag(), grants: grantsBySwitch()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.second = heldcache.NewSecond[Commands](a, s.answered, s.undone)
	if u, ok := a.(Untracker); ok {
		if other := u.Untracked(false); other != nil {
			s.second.Use(other)
			s.beside = u.Untracked(true)
		}
	}
	s.joint = newJoint(s)
	s.greeting = newGreeting(s)
	s.loading = NewLazy(func() (struct{}, error) {
		return struct{}{}, a.LoadScripts(s.ctx, scripts.Sources())
	}, func(struct{}) {})
	s.subs = newWatcher(s)
	if t, ok := a.(Tracker); ok {
		t.OnInvalidate(s.invalidated)
	}
	return &session{s}, nil
}

// newWatcher returns the Watcher for the session's topics.
func newWatcher(s *core) pubsub.Watcher {
	config := pubsub.Config{
		Open: func(ctx context.Context, ev ShardEvents) (Subscription, error) {
			return s.adapter.Subscribe(ctx, ev)
		},
		Watching: queue{s}.watching,
		Message:  s.message,
		Beside:   isBeside,
		Failed:   func(err error) func(backend.Topic) { return watchFailed(s, err) },
		Denied:   func(err error) bool { return deniesChannel(s.adapter, err) },
	}
	sharder, sharding := newSharding(s)
	if sharding == nil {
		return pubsub.New(config)
	}
	s.sharding = sharding
	return pubsub.NewSharded(config, pubsub.Sharding{Decide: sharding.Get, Slot: Slot, Channel: shardChannel,
		Cluster: sharder})
}

// remedyPolling is added to the remedy for a plain lock that cannot be watched. Waiters of the other kinds cannot poll.
const remedyPolling = "the option mortise.Polling(pause) waits without SUBSCRIBE, but a release publishes to " +
	"the channel all the same"

// watchFailed returns the function that calls backend.WatchFailer for a topic; nil if err is temporary, or if the
// handler is no WatchFailer.
func watchFailed(s *core, err error) (tell func(t backend.Topic)) {
	fault := backend.FaultOf(s.fault(err))
	teller, ok := s.handler.(backend.WatchFailer)
	if !ok || fault.Temporary {
		return nil
	}
	polls := fault
	polls.Remedy = strings.TrimPrefix(fault.Remedy+"; "+remedyPolling, "; ")
	told := make(map[backend.Topic]bool)
	return func(t backend.Topic) {
		if isBeside(t) { // the lock is not watched without
			t.Owner = ""
		}
		if !told[t] {
			told[t] = true
			if t.Kind == backend.KindLock || t.Kind == backend.KindDelegated {
				teller.WatchFailed(t, &polls)
			} else {
				teller.WatchFailed(t, &fault)
			}
		}
	}
}

// deniesChannel reports whether the server refused a command because its user has no permission for a channel.
func deniesChannel(a Adapter, err error) bool {
	text, ok := a.ServerError(err)
	return ok && strings.HasPrefix(text, "NOPERM") && strings.Contains(text, "channel")
}

// topicChannel is the channel for releases of a topic.
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

// shardChannel is topicChannel for sharded pub/sub: a channel in the slot of the topic's name.
func shardChannel(t backend.Topic) string {
	if t.Kind == backend.KindCountDownLatch {
		return latchShardChannel(t.Name)
	}
	return topicChannel(t)
}

// channelOf is the channel for releases of a lock. The names a and {a} share a channel, as in Redisson: a release of
// one wakes the waiters for the other, which then ask in vain.
func channelOf(name string) string { return tagged("redisson_lock__channel:", name) }

// tokenKey is the counter of a lock's fencing tokens.
func tokenKey(name string) string { return tagged("redisson_lock_token:", name) }

// companion is a key of mortise's own beside the record of a name, in the slot of the name. No two names share such a
// key: it ends with a colon if the name has braces.
func companion(kind, name string) string {
	key := tagged("mortise:1:"+kind+":", name)
	if strings.Contains(name, "{") {
		key += ":"
	}
	return key
}

// tagged returns before and name, with braces around name, so that the result is in the slot of name. A name with a
// brace gets no braces: it is assumed to have a hash tag.
func tagged(before, name string) string {
	if strings.Contains(name, "{") {
		return before + name
	}
	return before + "{" + name + "}"
}
