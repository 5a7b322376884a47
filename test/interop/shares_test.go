package interop

import (
	"context"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	sharesFor  = flag.Duration("shares", 0, "for how long each run of TestShares takes, instead of a trial of two rows")
	sharesRuns = flag.Int("shares.runs", 1, "how often each row of TestShares runs; the medians count")
)

// share is what Java threads and goroutines that lock one name again and again came to.
type share struct {
	java, golang         int64
	longJava, longGolang time.Duration // the longest wait
}

func (s share) ofJava() float64 { return float64(s.java) / float64(s.java+s.golang) }

// contest is threads and goroutines that lock one name again and again.
type contest struct {
	kind    string
	threads int              // of a JVM
	locks   []mortise.Locker // of a goroutine each
	hold    time.Duration
	lasts   time.Duration
}

// run has them lock the name for as long as it lasts.
func (x contest) run(t *testing.T, c *redisson) (out share) {
	name := "shares-" + strconv.Itoa(len(t.Name()))
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range x.threads {
		l := c.thread(t, fmt.Sprint("turns-", i)).lockOf(x.kind, name)
		all.Go(func() {
			r := l.ask("turns")
			r.Wait, r.Lease = x.lasts.Milliseconds(), x.hold.Milliseconds()
			reply := l.thread.client.java.wait(l.thread.start(r), x.lasts+long)
			longest, _ := strconv.Atoi(reply.Text)
			mu.Lock()
			defer mu.Unlock()
			harness.ErrorIf(t, reply.Error != "", "Java: %s: %s", reply.Error, reply.Message)
			out.java += reply.Number
			out.longJava = max(out.longJava, time.Duration(longest)*time.Millisecond)
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), x.lasts)
	defer cancel()
	for _, g := range x.locks {
		all.Go(func() {
			turns, longest := int64(0), time.Duration(0)
			for ctx.Err() == nil {
				begun := time.Now()
				l, err := g.Lock(ctx, name)
				longest = max(longest, time.Since(begun))
				if err != nil {
					break
				}
				time.Sleep(x.hold)
				harness.Check(t, l.Unlock(context.Background()))
				turns++
			}
			mu.Lock()
			defer mu.Unlock()
			out.golang += turns
			out.longGolang = max(out.longGolang, longest)
		})
	}
	all.Wait()
	return out
}

// lockers opens clients, each with so many goroutines.
func lockers(t *testing.T, a adapter, s *site, kind string, clients, goroutines int) (all []mortise.Locker) {
	var k []mortise.LockerOption
	if kind == "fenced" {
		k = append(k, mortise.Fenced())
	}
	for range clients {
		locks := harness.Must(mortise.New(a.open(t, s)))(t)
		t.Cleanup(func() { locks.Shutdown(context.Background()) })
		l := harness.Must(locks.Locker(k...))(t)
		for range goroutines {
			all = append(all, l)
		}
	}
	return all
}

func median[T int64 | float64 | time.Duration](all []T) T {
	slices.Sort(all)
	return all[len(all)/2]
}

// asBusy asserts what holds for a run whose length was asked for. A trial shows that both sides get their turns.
func asBusy(t *testing.T, bad bool, what string, args ...any) {
	t.Helper()
	harness.ErrorIf(t, *sharesFor != 0 && bad, what, args...)
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
			for range *sharesRuns {
				got := x.run(t, c)
				harness.ErrorIf(t, got.java == 0 || got.golang == 0, "a side got nothing: %+v", got)
				shares, longest = append(shares, got.ofJava()), append(longest, got.longJava)
				ratio := 0.0
				if bounded && *sharesFor != 0 {
					alone := x
					alone.threads, alone.locks = 2*x.threads, nil
					ratio = float64(got.longJava) / float64(alone.run(t, c).longJava)
				}
				ratios = append(ratios, ratio)
				t.Logf("Java has %d of %d, a share of %.2f; its longest wait %v (%.2f of that of %d threads alone), Go's %v",
					got.java, got.java+got.golang, got.ofJava(), got.longJava, ratio, 2*x.threads, got.longGolang)
			}
			got := median(shares)
			asBusy(t, got < least || got > most, "Java has a share of %.2f, want %.2f to %.2f", got, least, most)
			asBusy(t, bounded && median(ratios) > 1.5, "Java's longest wait is %.2f of that of its threads alone",
				median(ratios))
			asBusy(t, x.hold == 0 && median(longest) > time.Second, "Java waited for %v", median(longest))
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
				x := contest{kind, 8, lockers(t, a, s, kind, 1, 8), hold * time.Millisecond, lasts}
				row(fmt.Sprint(a.name, "/", kind, "/", x.hold), near, x, least, most, hold != 0)
			}
		}
		x := contest{"plain", 8, lockers(t, a, s, "plain", 8, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/eight clients of one goroutine", near, x, 0.08, 0.25, false)
		x = contest{"plain", 8, lockers(t, a, s, "plain", 1, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/one goroutine", near, x, 0.35, 0.65, false)
		x = contest{"plain", 1, lockers(t, a, s, "plain", 1, 1), 10 * time.Millisecond, lasts}
		row(a.name+"/one goroutine and one thread", near, x, 0.35, 0.65, false)
		x = contest{"plain", 8, lockers(t, a, s, "plain", 1, 8), 10 * time.Millisecond, lasts}
		row(a.name+"/Java 30 ms away", far, x, 0.2, 1, false)
		for _, goroutines := range []int{1, 8} {
			t.Run(fmt.Sprint(a.name, "/a client that listens and takes nothing/", goroutines), func(t *testing.T) {
				x.threads, x.locks = 0, lockers(t, a, s, "plain", 1, goroutines)
				var ratios []float64
				for range *sharesRuns {
					without := x.run(t, near).golang
					rdb := s.clients().Universal()
					listens := rdb.Subscribe(t.Context(), "redisson_lock__channel:{shares-"+strconv.Itoa(len(t.Name()))+"}")
					harness.Must(listens.Receive(t.Context()))(t)
					with := x.run(t, near).golang
					listens.Close()
					rdb.Close()
					ratios = append(ratios, float64(with)/float64(without))
					t.Logf("Go has %d, and %d without it", with, without)
				}
				asBusy(t, median(ratios) < 0.8, "Go has %.2f of what it has without", median(ratios))
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
