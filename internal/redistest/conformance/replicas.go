//go:build unix

package conformance

import (
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/internal/redistest"
)

// RunReplicas runs the tests about replicas on a master that has one.
func RunReplicas(t *testing.T, open func(t *testing.T, addr string) backend.Backend) {
	backendtest.RunReplicas(t, func(t *testing.T) backendtest.Store {
		s := &store{t: t, server: redistest.Start(t)}
		s.open = func(t *testing.T, s *redistest.Server) backend.Backend { return open(t, s.Addr()) }
		redistest.StartReplica(t, s.server)
		return replicated{s}
	})
}

// RunReplicasOnCluster runs them on clusters of masters that have one each.
func RunReplicasOnCluster(t *testing.T, open func(t *testing.T, addrs []string) backend.Backend) {
	backendtest.RunReplicas(t, func(t *testing.T) backendtest.Store {
		c := &cluster{t: t, servers: redistest.StartCluster(t, 2), open: open}
		for _, m := range c.servers.Masters {
			c.servers.Replica(m)
		}
		return replicatedCluster{c}
	})
}

type replicated struct{ *store }

func (replicated) Replicas() int { return 1 }

type replicatedCluster struct{ *cluster }

func (replicatedCluster) Replicas() int { return 1 }
