//go:build unix

package valkey_test

import (
	"testing"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

func onServer(_ *testing.T, addr string) backend.Backend {
	return valkey.New(valkeygo.ClientOption{InitAddress: []string{addr}})
}

func TestConformance(t *testing.T) {
	t.Run("cache", func(t *testing.T) { conformance.Run(t, onServer) })
	t.Run("client", func(t *testing.T) { // no cache there
		check.Long(t)
		conformance.Run(t, func(t *testing.T, addr string) backend.Backend {
			client, err := valkeygo.NewClient(valkeygo.ClientOption{InitAddress: []string{addr}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			return valkey.NewWithClient(client)
		})
	})
}

// Pub/sub is sharded there. Without the cache, waiters hear of releases by nothing else.
func TestOnCluster(t *testing.T) {
	check.Long(t)
	conformance.RunOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
		return valkey.New(valkeygo.ClientOption{InitAddress: addrs, DisableCache: true},
			valkey.WithShardedPubSub(valkey.ShardedOn))
	})
}

func TestReplicas(t *testing.T) {
	check.Long(t)
	t.Run("master", func(t *testing.T) { conformance.RunReplicas(t, onServer) })
	t.Run("cluster", func(t *testing.T) {
		conformance.RunReplicasOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
			return valkey.New(valkeygo.ClientOption{InitAddress: addrs})
		})
	})
}

func TestCache(t *testing.T) { conformance.RunCache(t, onServer) }
