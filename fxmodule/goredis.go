package fxmodule

import (
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise/redisgo"
)

// GoRedis provides locks over go-redis, on the client or the options in the graph: a type from the
// list in the package's documentation.
func GoRedis(opts ...Option) fx.Option {
	c, err := newConfig(opts)
	if err != nil {
		return fx.Error(err)
	}
	optional := c.tag(`optional:"true"`)
	return c.module("go-redis", fx.Provide(fx.Private, fx.Annotate(
		func(any redis.UniversalClient, single *redis.Client, cluster *redis.ClusterClient,
			anyOpt *redis.UniversalOptions, singleOpt *redis.Options,
			failoverOpt *redis.FailoverOptions, clusterOpt *redis.ClusterOptions,
		) (source, error) {
			var found choice[redis.UniversalClient]
			found.offer("redis.UniversalClient", any != nil, false, func() redis.UniversalClient { return any })
			found.offer("*redis.Client", single != nil, false, func() redis.UniversalClient { return single })
			found.offer("*redis.ClusterClient", cluster != nil, false, func() redis.UniversalClient { return cluster })
			found.offer("*redis.UniversalOptions", anyOpt != nil, true, with(anyOpt, redis.NewUniversalClient))
			found.offer("*redis.Options", singleOpt != nil, true, with(singleOpt, redis.NewClient))
			found.offer("*redis.FailoverOptions", failoverOpt != nil, true, with(failoverOpt, redis.NewFailoverClient))
			found.offer("*redis.ClusterOptions", clusterOpt != nil, true, with(clusterOpt, redis.NewClusterClient))
			client, ours, err := found.made(c)
			if err != nil {
				return source{}, err
			}
			s := source{Backend: redisgo.New(client), where: func() string { return address(client, failoverOpt, anyOpt) }}
			if ours {
				s.close = client.Close
			}
			return s, nil
		},
		fx.ParamTags(optional, optional, optional, optional, optional, optional, optional),
		fx.ResultTags(c.tag("")),
	)))
}

// address names the servers of a client. The options name the sentinels, which the client does not tell.
func address(client redis.UniversalClient, sentinels *redis.FailoverOptions, anyOpt *redis.UniversalOptions) string {
	if sentinels == nil && anyOpt != nil && anyOpt.MasterName != "" {
		sentinels = anyOpt.Failover()
	}
	if sentinels != nil {
		return fmt.Sprintf("master %q of the sentinels %s", sentinels.MasterName, strings.Join(sentinels.SentinelAddrs, ", "))
	}
	switch client := client.(type) {
	case *redis.Client:
		return client.Options().Addr
	case *redis.ClusterClient:
		return "the cluster of " + strings.Join(client.Options().Addrs, ", ")
	}
	return fmt.Sprintf("the servers of a %T", client)
}

// with returns a function that makes a client of opt.
func with[O any, C redis.UniversalClient](opt O, make func(O) C) func() redis.UniversalClient {
	return func() redis.UniversalClient { return make(opt) }
}
