//go:build unix

package valkey_test

import (
	"testing"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

func onServer(_ *testing.T, addr string) backend.Backend {
	return valkey.New(small(addr))
}

// small are the options of a client whose connections take little memory.
func small(addrs ...string) valkeygo.ClientOption {
	return valkeygo.ClientOption{
		InitAddress: addrs, RingScaleEachConn: redistest.RingScale,
		ReadBufferEachConn: redistest.BufferSize, WriteBufferEachConn: redistest.BufferSize,
	}
}

func TestConformance(t *testing.T) {
	t.Run("cache", func(t *testing.T) { conformance.Run(t, onServer) })
	t.Run("client", func(t *testing.T) { // no cache there
		check.Long(t)
		conformance.Run(t, func(t *testing.T, addr string) backend.Backend {
			client, err := valkeygo.NewClient(small(addr))
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
		o := small(addrs...)
		o.DisableCache = true
		return valkey.New(o, valkey.WithShardedPubSub(valkey.ShardedOn))
	})
}

func TestReplicas(t *testing.T) {
	check.Long(t)
	t.Run("master", func(t *testing.T) { conformance.RunReplicas(t, onServer) })
	t.Run("cluster", func(t *testing.T) {
		conformance.RunReplicasOnCluster(t, func(_ *testing.T, addrs []string) backend.Backend {
			return valkey.New(small(addrs...))
		})
	})
}

func TestCache(t *testing.T) { conformance.RunCache(t, onServer) }
