//go:build unix

package valkey_test

import (
	"testing"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

// A closed client stays closed. Waiters repeated their requests for as long as they sit out an outage: 34 s.
func TestAWaitEndsWhenTheClientIsClosed(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) []string{
		"server":  func(t *testing.T) []string { return []string{redistest.Start(t).Addr()} },
		"cluster": func(t *testing.T) []string { check.Long(t); return redistest.StartCluster(t, 3).Addrs() },
	} {
		t.Run(name, func(t *testing.T) {
			options := valkeygo.ClientOption{InitAddress: start(t), DisableCache: true}
			mine := check.Value(valkeygo.NewClient(options)).In(t)
			other := check.Value(valkeygo.NewClient(options)).In(t)
			defer other.Close()
			conformance.RunClosed(t, valkey.NewWithClient(mine), valkey.NewWithClient(other), mine.Close)
		})
	}
}
