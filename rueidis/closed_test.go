//go:build unix

package rueidis_test

import (
	"testing"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/rueidis"
)

// A closed client stays closed. Waiters repeated their requests for as long as they sit out an outage: 34 s.
func TestAWaitEndsWhenTheClientIsClosed(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) []string{
		"server":  func(t *testing.T) []string { return []string{redistest.Start(t).Addr()} },
		"cluster": func(t *testing.T) []string { check.Long(t); return redistest.StartCluster(t, 3).Addrs() },
	} {
		t.Run(name, func(t *testing.T) {
			options := redis.ClientOption{InitAddress: start(t), DisableCache: true}
			mine := check.Value(redis.NewClient(options)).In(t)
			other := check.Value(redis.NewClient(options)).In(t)
			defer other.Close()
			conformance.RunClosed(t, rueidis.NewWithClient(mine), rueidis.NewWithClient(other), mine.Close)
		})
	}
}
