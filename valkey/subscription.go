package valkey

import (
	"context"
	"sync/atomic"

	"github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/redisproto"
)

// Subscribe takes a connection of its own. Dedicate dials and takes no context.
func (a *adapter) Subscribe(ctx context.Context, ev redisproto.Events) (redisproto.Subscription, error) {
	client, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return subscribe(ctx, client, ev, func(c valkey.PubSubSubscription) {
		if c.Kind == "subscribe" {
			ev.Subscribed(c.Channel)
			return
		}
		ev.Alive()
	})
}

func subscribe(ctx context.Context, client valkey.Client, ev redisproto.Events, on func(valkey.PubSubSubscription)) (*subscription, error) {
	conn, _ := client.Dedicate()
	if err := conn.Do(ctx, conn.B().Ping().Build()).Error(); err != nil { // connects, on a cluster
		conn.Close()
		return nil, err
	}
	s := &subscription{conn: conn, ev: ev, done: make(chan struct{})}
	lost := conn.SetPubSubHooks(valkey.PubSubHooks{
		OnMessage:      func(m valkey.PubSubMessage) { ev.Message(m.Channel, m.Message) },
		OnSubscription: on,
	})
	go func() {
		defer close(s.done)
		if err := <-lost; !s.closing.Load() {
			ev.Down(err)
		}
	}()
	return s, nil
}

type subscription struct {
	conn    valkey.DedicatedClient
	ev      redisproto.Events
	closing atomic.Bool
	done    chan struct{}
}

func (s *subscription) Subscribe(ctx context.Context, channels ...string) error {
	return s.conn.Do(ctx, s.conn.B().Subscribe().Channel(channels...).Build()).Error()
}

func (s *subscription) Unsubscribe(ctx context.Context, channels ...string) error {
	return s.conn.Do(ctx, s.conn.B().Unsubscribe().Channel(channels...).Build()).Error()
}

func (s *subscription) Ping(ctx context.Context) error {
	if err := s.conn.Do(ctx, s.conn.B().Ping().Build()).Error(); err != nil {
		return err
	}
	s.ev.Alive()
	return nil
}

func (s *subscription) Close() error {
	s.closing.Store(true)
	s.conn.Close()
	<-s.done
	return nil
}
