//go:build linux

package passport

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/passport"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// A fenced callee has its caller's token, as the entry says it; one that was never drawn, by somebody who has a key, is refused: the store that it
// is written to would refuse everybody after it.
func TestFencingTokensGoAlong(t *testing.T) {
	store := memory.New()
	for _, on := range []string{"memory", "go-redis", "rueidis"} {
		t.Run(on, func(t *testing.T) {
			server := redistest.Start(t)
			open := func() (*mortise.Client, mortise.Locker) {
				var b backend.Backend = store
				if on != "memory" {
					b = harness.At(server.Addr()).Backend(t, on)
				}
				c := harness.Client(t, b)
				return c, harness.Kind(t, c, mortise.Kind{Fenced: true})
			}
			ctx := context.Background()
			_, caller := open()
			adopter, callee := open()
			lease := harness.Must(caller.Lock(ctx, "orders:42"))(t)
			defer lease.Unlock(ctx)
			ring := harness.Must(passport.NewRing(key("k1")))(t)
			issuer := harness.Must(passport.NewIssuer(ring))(t)
			checker := harness.Must(passport.NewChecker(ring, "b"))(t)
			entry := harness.Must(issuer.Issue(lease.Context(), "b"))(t)
			enter := func(entry string) (*mortise.Lease, error) {
				within := harness.Must(checker.Adopt(ctx, adopter, entry))(t)
				return callee.TryLock(within, "orders:42")
			}
			got := harness.Must(enter(entry))(t)
			mine, _ := lease.Token()
			if token, fenced := got.Token(); !fenced || token != mine {
				t.Errorf("the callee's token is %d, %v, the caller's %d", token, fenced, mine)
			}
			harness.Check(t, got.Unlock(ctx))

			p := harness.Must(passport.Decode(entry))(t)
			for _, token := range []int64{mine + 1, mine + int64(time.Hour), 1<<63 - 1} {
				p.Claims[0].Token = token
				forged := harness.Must(p.Sign(ctx, ring))(t)
				if got, err := enter(forged); !errors.Is(err, mortise.ErrClaimEnded) {
					stolen, _ := got.Token()
					t.Errorf("token %d: %v, a lease with %d", token, err, stolen)
					got.Unlock(ctx)
				}
			}
		})
	}
}
