//go:build unix

package rueidis_test

import (
	"testing"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/rueidis"
)

func onServer(_ *testing.T, addr string) backend.Backend { return at(addr) }

func byOwnClient(t *testing.T, addr string) backend.Backend {
	client := check.Value(redis.NewClient(small(addr))).In(t)
	t.Cleanup(client.Close)
	return rueidis.NewWithClient(client)
}

func TestConformance(t *testing.T) {
	t.Run("cache", func(t *testing.T) { conformance.Run(t, onServer) })
	t.Run("nocache", func(t *testing.T) {
		check.Long(t)
		conformance.Run(t, func(_ *testing.T, addr string) backend.Backend {
			return rueidis.New(smallNoCache(addr))
		})
	})
	t.Run("client", func(t *testing.T) {
		check.Long(t)
		conformance.Run(t, byOwnClient)
	})
}

// Pub/sub is sharded there. Without the cache, waiters hear of releases by nothing else.
func TestOnCluster(t *testing.T) {
	check.Long(t)
	conformance.RunOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
		return rueidis.New(smallNoCache(addrs...), rueidis.WithShardedPubSub(rueidis.ShardedOn))
	})
}

func TestReplicas(t *testing.T) {
	check.Long(t)
	t.Run("master", func(t *testing.T) { conformance.RunReplicas(t, onServer) })
	t.Run("client", func(t *testing.T) { conformance.RunReplicas(t, byOwnClient) })
	t.Run("cluster", func(t *testing.T) {
		conformance.RunReplicasOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
			return rueidis.New(small(addrs...))
		})
	})
}

func TestCache(t *testing.T) { conformance.RunCache(t, onServer) }
