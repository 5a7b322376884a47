package interop

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// clients opens clients, each with so many goroutines.
func clients(t *testing.T, a adapter, s *site, kind string, clients, goroutines int) (all []taker) {
	var k []mortise.Option
	if kind == "fenced" {
		k = append(k, mortise.Fenced())
	}
	for range clients {
		locks := harness.Must(mortise.New(a.open(t, s)))(t)
		t.Cleanup(func() { locks.Shutdown(context.Background()) })
		all = append(all, lockers(goroutines, locks.With(k...))...)
	}
	return all
}

// Threads of a JVM beside goroutines that lock the same name again and again have a share of it that is worth the
// name, and wait little longer than beside as many threads.
func TestShares(t *testing.T) {
	s := &site{servers: []*redistest.Server{redistest.Start(t)}}
	java := theJava(t, versions[len(versions)-1])
	near := java.open(t, s, "near", 30*time.Second)
	far := java.open(t, away(t, s, 30*time.Millisecond), "far", 30*time.Second)
	lasts := max(*sharesFor, 2*time.Second)
	row := func(what string, c *redisson, x contest, least, most float64, bounded bool) {
		t.Run(what, func(t *testing.T) {
			var shares, ratios []float64
			var longest []time.Duration
			name := "shares-" + strconv.Itoa(len(t.Name()))
			for range *sharesRuns {
				got := x.shares(t, c, name)
				harness.ErrorIf(t, got.java == 0 || got.golang == 0, "a side got nothing: %+v", got)
				shares, longest = append(shares, got.ofJava()), append(longest, got.longJava)
				ratio := 0.0
				if bounded && *sharesFor != 0 {
					alone := x
					alone.threads, alone.takes = 2*x.threads, nil
					ratio = float64(got.longJava) / float64(alone.shares(t, c, name).longJava)
				}
				ratios = append(ratios, ratio)
				t.Logf("%v; Java's is %.2f of that of %d threads alone", got, ratio, 2*x.threads)
			}
			got := stats.Quantile(shares, .5)
			asBusy(t, got < least || got > most, "Java has a share of %.2f, want %.2f to %.2f", got, least, most)
			asBusy(t, bounded && stats.Quantile(ratios, .5) > 1.5, "Java's longest wait is %.2f of that of its threads alone",
				stats.Quantile(ratios, .5))
			asBusy(t, x.hold == 0 && stats.Quantile(longest, .5) > float64(time.Second), "Java waited for %v", longest)
		})
	}
	for _, a := range adapters {
		for _, kind := range []string{"plain", "fenced"} {
			for _, hold := range []time.Duration{0, 1, 5, 10} {
				if *sharesFor == 0 && (hold != 5 || kind != "plain") {
					continue
				}
				least, most := 0.35, 0.65
				if hold == 0 {
					least, most = 0.05, 1
				}
				x := contest{kind, 8, clients(t, a, s, kind, 1, 8), hold * time.Millisecond, lasts}
				row(fmt.Sprint(a.name, "/", kind, "/", x.hold), near, x, least, most, hold != 0)
			}
		}
		x := contest{"plain", 8, clients(t, a, s, "plain", 8, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/eight clients of one goroutine", near, x, 0.08, 0.25, false)
		x = contest{"plain", 8, clients(t, a, s, "plain", 1, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/one goroutine", near, x, 0.35, 0.65, false)
		x = contest{"plain", 1, clients(t, a, s, "plain", 1, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/one goroutine and one thread", near, x, 0.35, 0.65, false)
		x = contest{"plain", 8, clients(t, a, s, "plain", 1, 8), 10 * time.Millisecond, lasts}
		row(a.name+"/Java 30 ms away", far, x, 0.2, 1, false)
		for _, goroutines := range []int{1, 8} {
			t.Run(fmt.Sprint(a.name, "/a client that listens and takes nothing/", goroutines), func(t *testing.T) {
				x.threads, x.takes = 0, clients(t, a, s, "plain", 1, goroutines)
				name := "shares-" + strconv.Itoa(len(t.Name()))
				x.besideListener(t, s, near, name, "redisson_lock__channel:{"+name+"}")
			})
		}
	}
}

// away is a site whose server is so far away, there and back.
func away(t *testing.T, s *site, trip time.Duration) *site {
	late := func(l *redistest.Line, from, to net.Conn) func() {
		return func() {
			for c := range l.Chunks(from) {
				if !l.Sleep(time.Until(c.Came.Add(trip / 2))) {
					return
				}
				if _, err := to.Write(c.Data); err != nil {
					return
				}
			}
		}
	}
	r := redistest.NewRelay(t, s.servers[0].Addr(), func(l *redistest.Line) (up, down func()) {
		return late(l, l.Client, l.Server), late(l, l.Server, l.Client)
	})
	return &site{servers: s.servers, front: r.Addr()}
}
