//go:build unix

package redisgo_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/redisgo"
)

func onServer(t *testing.T, addr string) backend.Backend {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return redisgo.New(rdb)
}

func onCluster(opts ...redisgo.Option) func(t *testing.T, addrs []string) backend.Backend {
	return func(t *testing.T, addrs []string) backend.Backend {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { rdb.Close() })
		return redisgo.New(rdb, opts...)
	}
}

func TestConformance(t *testing.T) { conformance.Run(t, onServer) }

// Pub/sub is sharded there.
func TestOnCluster(t *testing.T) {
	check.Long(t)
	conformance.RunOnCluster(t, onCluster(redisgo.WithShardedPubSub(redisgo.ShardedOn)))
}

// Pub/sub is one for all nodes there: PUBLISH counts the subscribers of its own node only.
func TestOnClusterWithoutShardedPubSub(t *testing.T) {
	check.Long(t)
	conformance.RunFairOnCluster(t, onCluster(redisgo.WithShardedPubSub(redisgo.ShardedOff)))
}

func TestReplicas(t *testing.T) {
	check.Long(t)
	t.Run("master", func(t *testing.T) { conformance.RunReplicas(t, onServer) })
	t.Run("cluster", func(t *testing.T) { conformance.RunReplicasOnCluster(t, onCluster()) })
}
