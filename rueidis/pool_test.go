//go:build unix

package rueidis_test

import (
	"context"
	"testing"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/rueidis"
)

func TestAnErrorNamesTheServer(t *testing.T) { conformance.RunErrorNamesServer(t, onServer) }

// rueidis does not tell that its pool is exhausted.
func TestALeaseThatIsLostBehindAnExhaustedPoolTellsOfItsRenewal(t *testing.T) {
	check.Long(t)
	client := check.Value(redis.NewClient(redis.ClientOption{InitAddress: []string{redistest.Start(t).Addr()},
		DisableCache: true, DisableAutoPipelining: true, BlockingPoolSize: 2})).In(t)
	jobs, stop := context.WithCancel(t.Context())
	defer client.Close()
	defer stop()
	conformance.RunLostBehindPool(t, rueidis.NewWithClient(client), func() {
		for range 2 {
			go client.Do(jobs, client.B().Blpop().Key("jobs").Timeout(0).Build())
		}
	}, "the store was unavailable")
}
