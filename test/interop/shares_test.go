package interop

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var sharesFor = flag.Duration("shares", 0, "for how long each row of TestShares runs, instead of a trial of two rows")

// share is what Java threads and goroutines that lock one name again and again came to.
type share struct {
	java, golang         int64
	longJava, longGolang time.Duration // the longest wait
}

func (s share) ofJava() float64 { return float64(s.java) / float64(s.java+s.golang) }

// contend has threads of one JVM and goroutines of each of some clients lock a name for a time.
func contend(t *testing.T, s *site, c *redisson, kind string, threads int, goroutines []mortise.Locker, hold,
	lasts time.Duration) (out share) {
	name := "shares-" + strconv.Itoa(len(t.Name()))
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range threads {
		l := c.thread(t, fmt.Sprint("turns-", i)).lockOf(kind, name)
		all.Go(func() {
			r := l.ask("turns")
			r.Wait, r.Lease = lasts.Milliseconds(), hold.Milliseconds()
			reply := l.thread.client.java.wait(l.thread.start(r), lasts+long)
			longest, _ := strconv.Atoi(reply.Text)
			mu.Lock()
			defer mu.Unlock()
			harness.ErrorIf(t, reply.Error != "", "Java: %s: %s", reply.Error, reply.Message)
			out.java += reply.Number
			out.longJava = max(out.longJava, time.Duration(longest)*time.Millisecond)
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	for _, g := range goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				l, err := g.Lock(ctx, name)
				waited := time.Since(begun)
				mu.Lock()
				out.longGolang = max(out.longGolang, waited)
				mu.Unlock()
				if err != nil {
					break
				}
				time.Sleep(hold)
				harness.Check(t, l.Unlock(context.Background()))
				mu.Lock()
				out.golang++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return out
}

// Java threads beside goroutines that lock the same name again and again get a share of it that is worth the name.
func TestShares(t *testing.T) {
	s := standalone(t)
	c := theJava(t, versions[len(versions)-1]).open(t, s, "shares", 30*time.Second)
	for _, a := range adapters {
		for _, kind := range []string{"plain", "fenced"} {
			for _, hold := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond} {
				if *sharesFor == 0 && (hold != 5*time.Millisecond || kind != "plain") {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%v", a.name, kind, hold), func(t *testing.T) {
					locks := harness.Must(mortise.New(a.open(t, s)))(t)
					defer locks.Shutdown(context.Background())
					var k []mortise.LockerOption
					if kind == "fenced" {
						k = append(k, mortise.Fenced())
					}
					g := make([]mortise.Locker, 8)
					for i := range g {
						g[i] = harness.Must(locks.Locker(k...))(t)
					}
					lasts := max(*sharesFor, 3*time.Second)
					got := contend(t, s, c, kind, 8, g, hold, lasts)
					t.Logf("Java has %d of %d, a share of %.2f; its longest wait %v, Go's %v", got.java,
						got.java+got.golang, got.ofJava(), got.longJava, got.longGolang)
					harness.ErrorIf(t, got.ofJava() < 0.1, "Java has a share of %.3f", got.ofJava())
				})
			}
		}
	}
}
