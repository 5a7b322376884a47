package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend/redisproto"
)

const (
	// nodePatience is how long one node may take to tell who has which slot.
	nodePatience = time.Second
	// inFlight is how many SSUBSCRIBE or SUNSUBSCRIBE are on their way at once.
	inFlight = 64
)

// ShardedPubSub is what the user chose: whether the client is one of a cluster is known when
// it is built.
func (a *adapter) ShardedPubSub() redisproto.ShardedPubSub { return a.sharded }

func (a *adapter) AskSharded(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	if client.Mode() != rueidis.ClientModeCluster {
		return redisproto.ErrNoCluster
	}
	return client.Do(ctx, client.B().PubsubShardnumsub().Build()).Error()
}

// slotRange is who has the slots from first to last.
type slotRange struct {
	first, last int64
	node        string
}

// Master is from a picture of the adapter's own: that of rueidis cannot be asked.
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

// FindMasters asks one node after the other until one answers.
func (a *adapter) FindMasters(ctx context.Context) error {
	client, err := a.connect(ctx)
	if err != nil {
		return err
	}
	err = errors.New("rueidis knows no node of the cluster")
	for addr, node := range client.Nodes() {
		var masters []slotRange
		if masters, err = askSlots(ctx, addr, node); err == nil {
			a.masters.Store(&masters)
			return nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// askSlots gives up on a node that dials or hangs for long; what it began ends by itself.
func askSlots(ctx context.Context, addr string, node rueidis.Client) ([]slotRange, error) {
	ctx, cancel := context.WithTimeout(ctx, nodePatience)
	defer cancel()
	got := make(chan rueidis.RedisResult, 1)
	go func() { got <- node.Do(ctx, node.B().ClusterSlots().Build()) }()
	var reply rueidis.RedisResult
	select {
	case reply = <-got:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ranges, err := reply.ToArray()
	if err != nil {
		return nil, err
	}
	var masters []slotRange
	for _, r := range ranges {
		m, err := parseRange(r, addr)
		if err != nil {
			return nil, fmt.Errorf("CLUSTER SLOTS of %s: %w", addr, err)
		}
		if m.node != "" {
			masters = append(masters, m)
		}
	}
	return masters, nil
}

// parseRange reads first, last, master, replicas. rueidis names nodes in the same way.
func parseRange(r rueidis.RedisMessage, asked string) (m slotRange, err error) {
	fields, err := r.ToArray()
	if err != nil || len(fields) < 3 {
		return m, fmt.Errorf("not a range of slots: %v %w", fields, err)
	}
	first, err1 := fields[0].AsInt64()
	last, err2 := fields[1].AsInt64()
	master, err3 := fields[2].ToArray()
	if err := errors.Join(err1, err2, err3); err != nil || len(master) < 2 {
		return m, fmt.Errorf("not a range of slots: %w", err)
	}
	host, err := master[0].ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return m, err
	}
	port, err := master[1].AsInt64()
	if err != nil {
		return m, err
	}
	switch host {
	case "": // it does not know its own address
		host, _, _ = net.SplitHostPort(asked)
	case "?": // it does not know that one's
		return m, nil
	}
	return slotRange{first, last, net.JoinHostPort(host, strconv.FormatInt(port, 10))}, nil
}

// SubscribeShard connects by way of rueidis, which does not hear of a node that took slots
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
			return nil, fmt.Errorf("rueidis does not know the node %s yet", addr)
		}
	}
	s := &shardSubscription{ev: ev}
	s.subscription, err = subscribe(ctx, node, ev, func(c rueidis.PubSubSubscription) {
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

// send sends a command for each slot and awaits their replies: rueidis does not tell when a
// command is written. refused hears of error replies.
func (s *shardSubscription) send(ctx context.Context, channels []string, build func([]string) rueidis.Completed, refused func([]string, error)) error {
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
			var reply *rueidis.RedisError
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
	return s.send(ctx, channels, func(names []string) rueidis.Completed {
		return s.conn.B().Ssubscribe().Channel(names...).Build()
	}, s.ev.Refused)
}

func (s *shardSubscription) Unsubscribe(ctx context.Context, channels ...string) error {
	return s.send(ctx, channels, func(names []string) rueidis.Completed {
		return s.conn.B().Sunsubscribe().Channel(names...).Build()
	}, func([]string, error) { s.ev.Alive() })
}
