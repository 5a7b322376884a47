// Package redisgo lets mortise use github.com/redis/go-redis/v9.
//
//	locks, err := mortise.New(redisgo.New(rdb))
//
// Scripts are not retried by go-redis, whatever its MaxRetries: they are sent once,
// so that a reply that got lost never makes two holds of one.
//
// Scripts that are ready at the same time go out in one pipeline, not so on a cluster. Hooks of
// the client see them as such, and do not see the caller's context.
//
// There is no client-side caching here: a TryLock of a held lock costs a command,
// and a lock that an operator deletes is noticed at its next renewal. Package
// rueidis has it.
package redisgo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
)

// New makes a backend of a go-redis client: *redis.Client, also of
// redis.NewFailoverClient, or *redis.ClusterClient. It does no I/O. A nil client, or
// a *redis.Ring, is an error of mortise.New. The client stays open when the
// locks are closed.
//
// One connection more than the client's pool is used while somebody waits for a
// lock, and some 30 s longer, or with sharded pub/sub one for each master of the cluster; it
// does not count towards PoolSize. A command takes ReadTimeout (3 s by default) at most: do
// not switch that off.
func New(rdb redis.UniversalClient, opts ...Option) backend.Backend {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return redisproto.New(func() (redisproto.Adapter, error) {
		if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, errors.New("redisgo.New: the client is nil: pass what redis.NewClient or redis.NewClusterClient returned")
		}
		if _, ring := rdb.(*redis.Ring); ring {
			return nil, errors.New("redisgo.New: a *redis.Ring moves a name to another server when a shard is down, and the lock would be granted twice: pass a *redis.Client or a *redis.ClusterClient")
		}
		_, cluster := rdb.(*redis.ClusterClient)
		if !cluster && o.sharded == ShardedOn {
			return nil, errors.New("redisgo.New: WithShardedPubSub(ShardedOn) needs a *redis.ClusterClient")
		}
		return &adapter{commands: newCommands(rdb, cluster), options: o}, nil
	})
}

// Option changes what [New] makes.
type Option func(*options)

type options struct{ sharded redisproto.ShardedPubSub }

// WithShardedPubSub sets how releases are announced on a cluster; without it, it is
// [ShardedAuto]. All who share locks must agree: see [redisproto.ShardedPubSub].
func WithShardedPubSub(mode redisproto.ShardedPubSub) Option {
	return func(o *options) { o.sharded = mode }
}

// The values of [WithShardedPubSub].
const (
	ShardedAuto = redisproto.ShardedAuto
	ShardedOn   = redisproto.ShardedOn
	ShardedOff  = redisproto.ShardedOff
)

type adapter struct {
	commands
	options
	waits waits

	mu         sync.Mutex
	masters    map[string]*redis.Client // by address: those that Master named
	redirected map[string]*redis.Client // by address: made by nodeAt
}

var (
	_ redisproto.Sharder = (*adapter)(nil)
	_ redisproto.Greeter = (*adapter)(nil)
)

func (a *adapter) Features() redisproto.Features {
	return redisproto.Features{Cluster: a.cluster, Leaves: a.batcher != nil}
}

func (a *adapter) Ping(ctx context.Context) error { return a.client.Ping(ctx).Err() }

// Hello implements [redisproto.Greeter].
func (a *adapter) Hello(ctx context.Context) (server, version string, err error) {
	reply, err := a.client.Do(ctx, "hello").Result()
	if err != nil {
		return "", "", err
	}
	fields := map[any]any{}
	switch r := reply.(type) {
	case map[any]any: // RESP3
		fields = r
	case []any:
		for pair := range slices.Chunk(r, 2) {
			if _, named := pair[0].(string); named && len(pair) == 2 {
				fields[pair[0]] = pair[1]
			}
		}
	}
	return fmt.Sprint(fields["server"]), fmt.Sprint(fields["version"]), nil
}

func (a *adapter) Close() error {
	if a.batcher != nil {
		a.batcher.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, rdb := range a.redirected {
		_ = rdb.Close()
	}
	return nil
}

func (a *adapter) LoadScripts(ctx context.Context, sources []string) error {
	load := func(ctx context.Context, rdb redis.Cmdable) error {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, source := range sources {
				p.ScriptLoad(ctx, source)
			}
			return nil
		})
		return err
	}
	if c, ok := a.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, rdb *redis.Client) error { return load(ctx, rdb) })
	}
	return load(ctx, a.client)
}

func (a *adapter) ServerError(err error) (string, bool) {
	var reply redis.Error
	if !errors.As(err, &reply) || errors.Is(err, redis.Nil) {
		return "", false
	}
	return reply.Error(), true
}

func (a *adapter) Unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// ended keeps go-redis from reconnecting by itself: reads and writes look at a
// context's deadline only, dialling heeds that it has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Subscribe needs go-redis 9.20.1: before it, PubSub over RESP3 lost a message whose
// frame began at the end of what was read so far (go-redis #3839).
func (a *adapter) Subscribe(ctx context.Context, ev redisproto.Events) (redisproto.Subscription, error) {
	return subscribe(ctx, a.client.Subscribe(ctx), func(s *subscription) { s.receive(ev) })
}

func subscribe(ctx context.Context, p *redis.PubSub, receive func(*subscription)) (*subscription, error) {
	s := &subscription{pubsub: p, closing: make(chan struct{}), done: make(chan struct{})}
	if err := p.Ping(ctx); err != nil { // connects
		_ = p.Close()
		return nil, err
	}
	go func() {
		defer close(s.done)
		receive(s)
	}()
	return s, nil
}

type subscription struct {
	pubsub        *redis.PubSub
	closing, done chan struct{}
}

func (s *subscription) receive(ev redisproto.Events) {
	for {
		got, err := s.pubsub.Receive(ended)
		if err != nil {
			s.lost(err, ev)
			return
		}
		switch m := got.(type) {
		case *redis.Message:
			ev.Message(m.Channel, m.Payload)
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				ev.Subscribed(m.Channel)
				continue
			}
			ev.Alive()
		default:
			ev.Alive()
		}
	}
}

func (s *subscription) lost(err error, ev redisproto.Events) {
	select {
	case <-s.closing:
	default:
		ev.Down(err)
	}
}

func (s *subscription) Subscribe(_ context.Context, channels ...string) error {
	return s.pubsub.Subscribe(ended, channels...)
}

func (s *subscription) Unsubscribe(_ context.Context, channels ...string) error {
	return s.pubsub.Unsubscribe(ended, channels...)
}

func (s *subscription) Ping(context.Context) error { return s.pubsub.Ping(ended) }

func (s *subscription) Close() error {
	close(s.closing)
	err := s.pubsub.Close()
	<-s.done
	return err
}
