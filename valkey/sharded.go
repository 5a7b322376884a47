package valkey

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/redisproto"
)

// inFlight is how many SSUBSCRIBE or SUNSUBSCRIBE are on their way at once.
const inFlight = 64

// Master is from a picture of the adapter's own: that of valkey-go cannot be asked.
func (a *adapter) Master(ctx context.Context, channel string) (string, error) {
	if a.masters.Load() == nil {
		if err := a.FindMasters(ctx); err != nil {
			return "", err
		}
	}
	slot := int64(redisproto.Slot(channel))
	for _, r := range *a.masters.Load() {
		if slot >= r.first && slot <= r.last {
			return r.node, nil
		}
	}
	return "", fmt.Errorf("no master has slot %d", slot)
}

// SubscribeShard connects by way of valkey-go, which does not hear of a node that took slots
// over before it sends it a command: the reply of the old one says where it is.
func (a *adapter) SubscribeShard(ctx context.Context, addr, name string, ev redisproto.ShardEvents) (redisproto.Subscription, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	node := client.Nodes()[addr]
	if node == nil {
		_ = client.Do(ctx, client.B().Exists().Key(name).Build()).Error()
		if node = client.Nodes()[addr]; node == nil {
			return nil, fmt.Errorf("valkey-go does not know the node %s yet", addr)
		}
	}
	s := &shardSubscription{ev: ev}
	s.subscription, err = subscribe(ctx, node, ev, func(c valkey.PubSubSubscription) {
		switch c.Kind {
		case "ssubscribe":
			ev.Subscribed(c.Channel)
		case "sunsubscribe":
			ev.Unsubscribed(c.Channel)
		default:
			ev.Alive()
		}
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// shardSubscription is a subscription whose commands name channels of one slot each.
type shardSubscription struct {
	*subscription
	ev redisproto.ShardEvents
}

// send sends a command for each slot and awaits their replies: valkey-go does not tell when a
// command is written. refused hears of error replies.
func (s *shardSubscription) send(ctx context.Context, channels []string, build func([]string) valkey.Completed, refused func([]string, error)) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	room := make(chan struct{}, inFlight)
	for _, group := range redisproto.BySlot(len(channels), func(i int) string { return channels[i] }) {
		names := make([]string, len(group))
		for i, at := range group {
			names[i] = channels[at]
		}
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			err := s.conn.Do(ctx, build(names)).Error()
			var reply *valkey.ValkeyError
			switch {
			case err == nil:
			case errors.As(err, &reply):
				refused(names, err)
			default:
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

func (s *shardSubscription) Subscribe(ctx context.Context, channels ...string) error {
	return s.send(ctx, channels, func(names []string) valkey.Completed {
		return s.conn.B().Ssubscribe().Channel(names...).Build()
	}, s.ev.Refused)
}

func (s *shardSubscription) Unsubscribe(ctx context.Context, channels ...string) error {
	return s.send(ctx, channels, func(names []string) valkey.Completed {
		return s.conn.B().Sunsubscribe().Channel(names...).Build()
	}, func([]string, error) { s.ev.Alive() })
}
