package interop

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	fairFor  = flag.Duration("fair", 6*time.Second, "for how long each run of TestFairShares lasts")
	fairRuns = flag.Int("fair.runs", 1, "how many runs TestFairShares has of each adapter")
)

// tenures is what one thread or goroutine came to.
type tenures struct {
	count   int64
	longest time.Duration // its longest wait
}

// Four Java threads and twice four goroutines lock a fair lock again and again, each with the rest of the run as its
// wait. Redisson subtracts a waiter's wait from all places when it is granted, and removes places whose time is over
// without a message. No live waiter drops out of the queue by that: none sleeps for long, and all have the same share.
func TestFairShares(t *testing.T) {
	s := standalone(t)
	c := theJava(t, versions[len(versions)-1]).open(t, s, "fair-shares", 30*time.Second)
	for _, a := range adapters {
		for run := range *fairRuns {
			t.Run(fmt.Sprintf("%s/%d", a.name, run), func(t *testing.T) {
				all := fairTurns(t, c, fmt.Sprint("fair-shares/", a.name, run), mixedLockers(t, s, a))
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
func mixedLockers(t *testing.T, s *site, a adapter) (fair []mortise.Locker) {
	t.Helper()
	for range 2 {
		locks := harness.Must(mortise.New(a.open(t, s)))(t)
		t.Cleanup(func() { harness.Check(t, locks.Shutdown(context.Background())) })
		l := harness.Must(locks.Locker(mortise.Fair()))(t)
		fair = append(fair, l, l, l, l)
	}
	return fair
}

// fairTurns has threads of one JVM and goroutines lock a fair lock until the run is over.
func fairTurns(t *testing.T, c *redisson, name string, golang []mortise.Locker) []tenures {
	const threads, hold = 4, 10 * time.Millisecond
	out := make([]tenures, threads+len(golang))
	var all sync.WaitGroup
	for i := range threads {
		l := c.thread(t, fmt.Sprint("fair-turns-", i)).lockOf("fair", name)
		all.Go(func() {
			r := l.ask("turns")
			r.Wait, r.Lease = fairFor.Milliseconds(), hold.Milliseconds()
			reply := l.thread.client.java.wait(l.thread.start(r), *fairFor+long)
			harness.ErrorIf(t, reply.Error != "", "Java: %s: %s", reply.Error, reply.Message)
			longest, _ := strconv.Atoi(reply.Text)
			out[i] = tenures{reply.Number, time.Duration(longest) * time.Millisecond}
		})
	}
	end := time.Now().Add(*fairFor)
	for i, g := range golang {
		one := &out[threads+i]
		all.Go(func() {
			for begun := time.Now(); begun.Before(end); begun = time.Now() {
				l, err := g.Lock(context.Background(), name, mortise.WithWait(end.Sub(begun)))
				one.longest = max(one.longest, time.Since(begun))
				if err != nil {
					break
				}
				time.Sleep(hold)
				harness.Check(t, l.Unlock(context.Background()))
				one.count++
			}
		})
	}
	all.Wait()
	return out
}
