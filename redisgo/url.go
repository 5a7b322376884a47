package redisgo

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
)

func init() {
	for _, s := range []string{"redis", "rediss"} {
		register(s, redis.ParseURL, func(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) })
		register(s+"+cluster", redis.ParseClusterURL,
			func(o *redis.ClusterOptions) redis.UniversalClient { return redis.NewClusterClient(o) })
		register(s+"+sentinel", redis.ParseFailoverURL,
			func(o *redis.FailoverOptions) redis.UniversalClient { return redis.NewFailoverClient(o) })
	}
	register("redis+unix", redis.ParseURL, func(o *redis.Options) redis.UniversalClient { return redis.NewClient(o) })
}

// register registers a scheme of mortise.Open. The client library knows the part before the plus sign, or unix.
func register[O any](scheme string, parse func(string) (*O, error), connect func(*O) redis.UniversalClient) {
	known, kind, _ := strings.Cut(scheme, "+")
	if kind == "unix" {
		known = kind
	}
	backend.Register(scheme, func(address string) (backend.Backend, error) {
		o, err := parse(known + strings.TrimPrefix(address, scheme))
		if err != nil {
			return nil, err
		}
		return redisproto.New(func() (redisproto.Adapter, error) {
			options := *o // a copy for each client
			rdb := connect(&options)
			_, cluster := rdb.(*redis.ClusterClient)
			return owned{&adapter{commands: newCommands(rdb, cluster)}}, nil
		}), nil
	})
}

// owned is an adapter whose client was made for it, and is closed with it.
type owned struct{ *adapter }

// Close implements [redisproto.Adapter].
func (o owned) Close() error { return errors.Join(o.adapter.Close(), o.client.Close()) }
