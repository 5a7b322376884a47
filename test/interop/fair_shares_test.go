package interop

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	fairFor  = flag.Duration("fair", 6*time.Second, "for how long each run of TestFairShares lasts")
	fairRuns = flag.Int("fair.runs", 1, "how many runs TestFairShares has of each adapter")
)

// Four Java threads and twice four goroutines lock a fair lock again and again, each with the rest of the run as its
// wait. Redisson subtracts a waiter's wait from all places when it is granted, and removes places whose time is over
// without a message. No live waiter drops out of the queue by that: none sleeps for long, and all have the same share.
func TestFairShares(t *testing.T) {
	s := standalone(t)
	c := theJava(t, versions[len(versions)-1]).open(t, s, "fair-shares", 30*time.Second)
	for _, a := range adapters {
		for run := range *fairRuns {
			t.Run(fmt.Sprintf("%s/%d", a.name, run), func(t *testing.T) {
				java, golang := contest{"fair", 4, mixedLockers(t, s, a), 10 * time.Millisecond, *fairFor}.run(t, c,
					fmt.Sprint("fair-shares/", a.name, run))
				all := append(java, golang...)
				t.Log(all)
				counts := make([]int64, len(all))
				for i, one := range all {
					counts[i] = one.count
					harness.ErrorIf(t, one.longest > 5*time.Second, "waiter %d waited for %v", i, one.longest)
				}
				least, most := slices.Min(counts), slices.Max(counts)
				harness.ErrorIf(t, float64(least) < 0.8*float64(most), "the shares are not equal: %d to %d", least, most)
			})
		}
	}
}

// mixedLockers are the fair lockers of two clients, four of each.
func mixedLockers(t *testing.T, s *site, a adapter) (fair []taker) {
	t.Helper()
	for range 2 {
		locks := harness.Must(mortise.New(a.open(t, s)))(t)
		t.Cleanup(func() { harness.Check(t, locks.Shutdown(context.Background())) })
		fair = append(fair, lockers(4, locks.With(mortise.Fair()))...)
	}
	return fair
}
