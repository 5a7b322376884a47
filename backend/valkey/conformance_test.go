//go:build unix

package valkey_test

import (
	"testing"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

func TestConformance(t *testing.T) {
	t.Run("cache", func(t *testing.T) {
		conformance.Run(t, func(_ *testing.T, addr string) backend.Backend {
			return valkey.New(valkeygo.ClientOption{InitAddress: []string{addr}})
		})
	})
	t.Run("client", func(t *testing.T) { // no cache there
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
	conformance.RunOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
		return valkey.New(valkeygo.ClientOption{InitAddress: addrs, DisableCache: true},
			valkey.WithShardedPubSub(valkey.ShardedOn))
	})
}

func TestReplicas(t *testing.T) {
	t.Run("master", func(t *testing.T) {
		conformance.RunReplicas(t, func(_ *testing.T, addr string) backend.Backend {
			return valkey.New(valkeygo.ClientOption{InitAddress: []string{addr}})
		})
	})
	t.Run("cluster", func(t *testing.T) {
		conformance.RunReplicasOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
			return valkey.New(valkeygo.ClientOption{InitAddress: addrs})
		})
	})
}
