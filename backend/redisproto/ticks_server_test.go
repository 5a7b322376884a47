//go:build unix

package redisproto_test

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// A schedule whose fleet is stopped is remembered for 30 days beyond the reach of its claims.
func TestAScheduleIsKeptBeyondTheReachOfItsClaims(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		const day = 24 * time.Hour
		_, err := s.Capabilities().Ticks.ClaimTick(t.Context(), backend.TickRequest{
			Name: "n", ID: "1", Interval: day, Missed: 3,
		})
		check.NoError(t, err)
		left := time.Duration(do(t, srv, "PTTL", "mortise:1:tick:{n}").(int64)) * time.Millisecond
		check.ErrorIf(t, left <= (3+30)*day || left > (3+2+30)*day, "%v are left of the record", left)
	})
}
