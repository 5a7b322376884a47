// Package redisgo lets mortise use github.com/redis/go-redis/v9.
//
//	locks, err := mortise.New(redisgo.New(rdb))
//
// go-redis does not retry scripts, whatever its MaxRetries: a script is sent once, so a lost reply
// never makes two holds of one.
//
// Scripts ready at the same time go out in one pipeline, except on a cluster. Hooks of the client
// see such scripts as a pipeline, and do not see the caller's context.
// A hook must return the error of next: a command whose error a hook hides is mortise.ErrUnavailable.
//
// There is no client-side caching here: a TryLock of a held lock costs a command, and a holder
// notices an operator's deletion of the lock at the next renewal. Package rueidis has client-side
// caching.
package redisgo

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
)

// New makes a backend of a go-redis client: *redis.Client, also of redis.NewFailoverClient, or
// *redis.ClusterClient. New does no I/O. A nil client, or a *redis.Ring, is an error of
// mortise.New. The client stays open when the locks are closed.
//
// Pass the client itself, not a struct that embeds it, and use AddHook to see its commands. A
// wrapped client counts as a client of a single server: a wrapped *redis.ClusterClient gets no
// locks, and New cannot recognise a wrapped *redis.Ring, which grants locks twice.
//
// While a goroutine waits for a lock, and some 30 s longer, the backend uses a connection in
// addition to the client's pool, or with sharded pub/sub a connection for each master of the
// cluster; such connections do not count towards PoolSize. A command takes ReadTimeout (3 s by
// default) at most: do not disable the timeout.
func New(rdb redis.UniversalClient, opts ...Option) backend.Backend {
	return redisproto.New(func() (redisproto.Adapter, error) {
		var o options
		for _, opt := range opts {
			if opt == nil {
				return nil, errors.New("redisgo.New: a nil Option; omit it")
			}
			opt(&o)
		}
		if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, errors.New("redisgo.New: the client is nil: pass what redis.NewClient or " +
				"redis.NewClusterClient returned")
		}
		if _, ring := rdb.(*redis.Ring); ring {
			return nil, errors.New("redisgo.New: a *redis.Ring moves a name to another server when a shard is " +
				"down, and the lock would be granted twice: pass a *redis.Client or a *redis.ClusterClient")
		}
		_, cluster := rdb.(*redis.ClusterClient)
		if !cluster && o.sharded == ShardedOn {
			return nil, errors.New("redisgo.New: WithShardedPubSub(ShardedOn) needs a *redis.ClusterClient")
		}
		return &adapter{commands: newCommands(rdb, cluster), options: o}, nil
	})
}

// AskEach implements [redisproto.Asker].
func (a *adapter) AskEach(ctx context.Context, args ...string) ([]redisproto.Answer, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	return redisproto.Each(ctx, nodes, question(args)), nil
}

// Ask implements [redisproto.Asker].
func (a *adapter) Ask(ctx context.Context, node string, args ...string) (any, error) {
	nodes, err := a.nodes(ctx)
	if err != nil {
		return nil, err
	}
	return redisproto.At(ctx, nodes, node, question(args))
}

// nodes returns the masters by their addresses; of a single server "".
func (a *adapter) nodes(ctx context.Context) (map[string]redis.UniversalClient, error) {
	nodes := map[string]redis.UniversalClient{"": a.client}
	if c, ok := a.client.(*redis.ClusterClient); ok {
		var mu sync.Mutex
		clear(nodes)
		err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			nodes[m.Options().Addr] = m
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// question returns the function that sends a command to a node.
func question(args []string) func(context.Context, redis.UniversalClient) (any, error) {
	words := make([]any, len(args))
	for i, arg := range args {
		words[i] = arg
	}
	return func(ctx context.Context, node redis.UniversalClient) (any, error) {
		cmd := newCmd(ctx, words...)
		send(ctx, node, []scriptCmd{cmd})
		return result(cmd, (*redis.Cmd).Result)
	}
}

// Option changes what [New] makes.
type Option func(*options)

type options struct{ sharded redisproto.ShardedPubSub }

// WithShardedPubSub sets how releases are announced on a cluster; the default is [ShardedAuto]. All
// clients with shared locks must agree: see [redisproto.ShardedPubSub].
func WithShardedPubSub(mode redisproto.ShardedPubSub) Option {
	return func(o *options) { o.sharded = mode }
}

// The values of [WithShardedPubSub].
const (
	ShardedAuto = redisproto.ShardedAuto
	ShardedOn   = redisproto.ShardedOn
	ShardedOff  = redisproto.ShardedOff
)
