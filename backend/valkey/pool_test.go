//go:build unix

package valkey_test

import (
	"context"
	"testing"

	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
)

func TestAnErrorNamesTheServer(t *testing.T) { conformance.RunErrorNamesServer(t, onServer) }

// valkey-go does not tell that its pool is exhausted.
func TestALeaseThatIsLostBehindAnExhaustedPoolTellsOfItsRenewal(t *testing.T) {
	check.Long(t)
	client := check.Value(valkeygo.NewClient(valkeygo.ClientOption{InitAddress: []string{redistest.Start(t).Addr()},
		DisableCache: true, DisableAutoPipelining: true, BlockingPoolSize: 2})).In(t)
	jobs, stop := context.WithCancel(t.Context())
	defer client.Close()
	defer stop()
	conformance.RunLostBehindPool(t, valkey.NewWithClient(client), func() {
		for range 2 {
			go client.Do(jobs, client.B().Blpop().Key("jobs").Timeout(0).Build())
		}
	}, "the store was unavailable")
}
