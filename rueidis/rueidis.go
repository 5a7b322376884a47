// Package rueidis lets mortise use github.com/redis/rueidis, with client-side
// caching: Redis tells the client when a lock's record changes. So a TryLock of a
// lock that is known to be held is refused without a command, waiters wake also
// when a record expires or is deleted, and a holder learns at once that its record
// was deleted, from half a second after it was taken on.
//
//	locks, err := mortise.New(rueidis.New(redis.ClientOption{InitAddress: []string{"localhost:6379"}}))
//
// where redis is github.com/redis/rueidis.
package rueidis

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
)

// New makes a backend that has a rueidis client of its own, which it builds at the
// first command and closes with the locks. While the server cannot be reached,
// each command tries again to build it; commands that are sent at once share one
// attempt, which takes Dialer.Timeout (5 s by default) at most.
//
// Of the options it sets DisableRetry and, unless DisableCache is set,
// ClientTrackingOptions (OPTOUT NOLOOP) and PipelineMultiplex: what the server is to tell about
// goes over one connection for each server, for that is where invalidations arrive. Plain locks
// are taken and released over two more (or one, if PipelineMultiplex is -1), of a client that tracks
// nothing, save on a cluster; while those cannot be had, over the one.
// OnInvalidations is called as well if it is set. Where the server does not
// support RESP3 or tracking, the client goes on as if DisableCache were set.
//
// These are errors of mortise.New, because they would break what locks rely on:
// ConnLifetime, which sends commands a second time; ClientTrackingOptions; and
// DisableAutoPipelining without DisableCache, which leaves no connection to listen on.
//
// A goroutine that often has no others beside it, 32 times in a second, gets one connection more, over
// which it sends by itself. Not so on a cluster, by way of sentinels, with Standalone.EnableRedirect
// or AuthCredentialsFn, or with the client of NewWithClient.
//
// While a goroutine waits for a lock, and some 30 s longer, there is one more connection for
// subscriptions, or with sharded pub/sub one for each master of the cluster.
func New(opt rueidis.ClientOption, opts ...Option) backend.Backend {
	return redisproto.New(func() (redisproto.Adapter, error) {
		switch {
		case len(opt.InitAddress) == 0:
			return nil, errors.New("rueidis.New: ClientOption.InitAddress is empty")
		case opt.ConnLifetime > 0:
			return nil, errors.New("rueidis.New: ClientOption.ConnLifetime makes rueidis send commands a second " +
				"time: leave it zero")
		case len(opt.ClientTrackingOptions) > 0:
			return nil, errors.New("rueidis.New: ClientOption.ClientTrackingOptions is set by mortise: leave it empty")
		case opt.DisableAutoPipelining && !opt.DisableCache:
			return nil, errors.New("rueidis.New: ClientOption.DisableAutoPipelining needs DisableCache as well")
		}
		a, opt := newAdapter(opts), opt // a copy for each Open
		opt.DisableRetry = true
		plain := opt
		plain.DisableCache = true
		a.line = newLine(plain)
		if !opt.DisableCache {
			a.tracking.Store(true)
			a.most = redisproto.TrackedBatch
			opt.PipelineMultiplex = -1
			opt.ClientTrackingOptions = []string{"OPTOUT", "NOLOOP"}
			opt.OnInvalidations = func(messages []rueidis.RedisMessage) {
				if plain.OnInvalidations != nil {
					plain.OnInvalidations(messages)
				}
				a.invalidated(messages)
			}
			untold := plain
			untold.OnInvalidations = nil
			untold.ForceSingleClient = true // it is not asked for while there may be a cluster
			// two connections, for as many round trips as there are at once; or one, where that is
			// wanted
			if untold.PipelineMultiplex >= 0 {
				untold.PipelineMultiplex = 1
			}
			a.plain = redisproto.NewLazy(func() (rueidis.Client, error) { return rueidis.NewClient(untold) },
				rueidis.Client.Close)
		}
		return a.over(func() (rueidis.Client, error) {
			if a.tracking.Load() {
				client, err := newClient(opt)
				if !errors.Is(err, rueidis.ErrNoCache) {
					return client, err
				}
				a.tracking.Store(false)
			}
			return newClient(plain)
		}, rueidis.Client.Close), nil
	})
}

// newClient asks a cluster again whether it is one: before v1.0.77, rueidis takes a single
// server for a cluster when the connection breaks while it finds out, and keeps to that.
func newClient(opt rueidis.ClientOption) (rueidis.Client, error) {
	client, err := rueidis.NewClient(opt)
	if err != nil || client.Mode() != rueidis.ClientModeCluster {
		return client, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), settling)
	defer cancel()
	if err := client.Do(ctx, client.B().ClusterSlots().Build()).Error(); err != nil {
		client.Close()
		return nil, err
	}
	return client, nil
}

// settling is how long a cluster may take to say that it is one.
const settling = 5 * time.Second

// NewWithClient makes a backend of a client that exists. It stays open when the
// locks are closed, and there is no client-side caching: what a client does with
// invalidations is settled when it is built. A client built with ConnLifetime may send
// commands a second time, whose replies then mislead; do not pass one.
func NewWithClient(client rueidis.Client, opts ...Option) backend.Backend {
	return redisproto.New(func() (redisproto.Adapter, error) {
		if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			return nil, errors.New("rueidis.NewWithClient: the client is nil: pass what rueidis.NewClient " +
				"returned without an error")
		}
		return newAdapter(opts).over(func() (rueidis.Client, error) { return client, nil }, func(rueidis.Client) {}),
			nil
	})
}

// Option changes what [New] and [NewWithClient] make.
type Option func(*options)

type options struct{ sharded redisproto.ShardedPubSub }

// WithShardedPubSub sets how releases are announced on a cluster; without it, it is
// [ShardedAuto]. All clients that share locks must agree: see [redisproto.ShardedPubSub].
func WithShardedPubSub(mode redisproto.ShardedPubSub) Option {
	return func(o *options) { o.sharded = mode }
}

// The values of [WithShardedPubSub].
const (
	ShardedAuto = redisproto.ShardedAuto
	ShardedOn   = redisproto.ShardedOn
	ShardedOff  = redisproto.ShardedOff
)
