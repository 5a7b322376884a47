package redisgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend/redisproto"
)

// ShardedPubSub is off for a client that is none of a cluster.
func (a *adapter) ShardedPubSub() redisproto.ShardedPubSub {
	if !a.cluster {
		return ShardedOff
	}
	return a.sharded
}

func (a *adapter) AskSharded(ctx context.Context) error {
	return a.client.PubSubShardNumSub(ctx).Err()
}

// Master is from go-redis' own picture of the cluster.
func (a *adapter) Master(ctx context.Context, channel string) (string, error) {
	c, ok := a.client.(*redis.ClusterClient)
	if !ok {
		return "", redisproto.ErrNoCluster
	}
	rdb, err := c.MasterForKey(ctx, channel)
	if err != nil {
		return "", err
	}
	addr := rdb.Options().Addr
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.masters == nil {
		a.masters = map[string]*redis.Client{}
	}
	a.masters[addr] = rdb
	return addr, nil
}

// FindMasters: ForEachMaster has go-redis load its picture anew, at once; ReloadState would
// do so some time later.
func (a *adapter) FindMasters(ctx context.Context) error {
	c, ok := a.client.(*redis.ClusterClient)
	if !ok {
		return redisproto.ErrNoCluster
	}
	return c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil })
}

func (a *adapter) SubscribeShard(ctx context.Context, addr, _ string, ev redisproto.ShardEvents) (redisproto.Subscription, error) {
	a.mu.Lock()
	rdb := a.masters[addr]
	a.mu.Unlock()
	if rdb == nil {
		return nil, fmt.Errorf("%s is no master of the cluster", addr)
	}
	var err error
	s := &shardSubscription{}
	s.subscription, err = subscribe(ctx, rdb.SSubscribe(ctx), func(plain *subscription) { s.receive(plain, ev) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// shardSubscription knows which commands have no reply yet, for an error does not tell
// which of them it answers.
type shardSubscription struct {
	*subscription

	mu   sync.Mutex
	sent []shardCommand
}

// shardCommand is an SSUBSCRIBE or SUNSUBSCRIBE for channels of one slot.
type shardCommand struct {
	slot        int
	channels    []string // not confirmed yet
	unsubscribe bool
}

func (s *shardSubscription) receive(plain *subscription, ev redisproto.ShardEvents) {
	for {
		got, err := plain.pubsub.Receive(ended)
		if err != nil {
			c, ok := s.refused(err)
			switch {
			case !ok:
				plain.lost(err, ev)
				return
			case c.unsubscribe:
				ev.Alive()
			default:
				ev.Refused(c.channels, err)
			}
			continue
		}
		switch m := got.(type) {
		case *redis.Message:
			ev.Message(m.Channel, m.Payload)
		case *redis.Subscription:
			unsubscribed := m.Kind == "sunsubscribe"
			s.confirmed(m.Channel, unsubscribed)
			if unsubscribed {
				ev.Unsubscribed(m.Channel)
			} else {
				ev.Subscribed(m.Channel)
			}
		default:
			ev.Alive()
		}
	}
}

// refused takes the command that an error reply answers: the first, or the first about the
// slot that the error names, since an unsubscribing by the server looks like an answer
// too. What is taken wrongly is subscribed again, and comes right with that.
func (s *shardSubscription) refused(err error) (shardCommand, bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return shardCommand{}, false
	}
	slot := -1
	if text := reply.Error(); strings.HasPrefix(text, "MOVED ") {
		_, _ = fmt.Sscanf(text, "MOVED %d", &slot)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.sent {
		if slot < 0 || c.slot == slot {
			s.sent = slices.Delete(s.sent, i, i+1)
			return c, true
		}
	}
	return shardCommand{}, false
}

func (s *shardSubscription) confirmed(channel string, unsubscribed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.sent {
		c := &s.sent[i]
		at := slices.Index(c.channels, channel)
		if at < 0 {
			continue
		}
		if c.unsubscribe != unsubscribed {
			return // the server let it go before it read this command
		}
		if c.channels = slices.Delete(c.channels, at, at+1); len(c.channels) == 0 {
			s.sent = slices.Delete(s.sent, i, i+1)
		}
		return
	}
}

// send sends a command for each slot.
func (s *shardSubscription) send(channels []string, unsubscribe bool, do func(context.Context, ...string) error) error {
	for _, group := range redisproto.BySlot(len(channels), func(i int) string { return channels[i] }) {
		names := make([]string, len(group))
		for i, at := range group {
			names[i] = channels[at]
		}
		s.mu.Lock()
		s.sent = append(s.sent, shardCommand{redisproto.Slot(names[0]), slices.Clone(names), unsubscribe})
		s.mu.Unlock()
		if err := do(ended, names...); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardSubscription) Subscribe(_ context.Context, channels ...string) error {
	return s.send(channels, false, s.pubsub.SSubscribe)
}

func (s *shardSubscription) Unsubscribe(_ context.Context, channels ...string) error {
	return s.send(channels, true, s.pubsub.SUnsubscribe)
}
