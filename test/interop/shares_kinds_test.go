package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// Threads of a JVM beside goroutines that take a read-write lock or permits again and again: neither side is starved. A
// client of mortise counts as one, and so does a JVM.
func TestSharesOfOtherKinds(t *testing.T) {
	s := &site{servers: []*redistest.Server{redistest.Start(t)}}
	near := theJava(t, versions[len(versions)-1]).open(t, s, "near", 30*time.Second)
	for _, k := range []struct {
		kind, channel string
		takes         func(c *mortise.Client, i int, name string) taker
	}{
		{"write", "redisson_rwlock", func(c *mortise.Client, _ int, _ string) taker { return lockers(1, c.RW().Write)[0] }},
		{"read and write", "redisson_rwlock", func(c *mortise.Client, i int, _ string) taker {
			if i%2 == 0 {
				return lockers(1, c.RW().Read)[0]
			}
			return lockers(1, c.RW().Write)[0]
		}},
		{"semaphore", "redisson_sc", counting},
		{"permits", "redisson_sc", expiring},
		{"three permits", "redisson_sc", func(c *mortise.Client, _ int, name string) taker {
			harness.Must(semaphore.NewCounting(c, name).TrySetPermits(context.Background(), 3))(t)
			return counting(c, 0, name)
		}},
	} {
		rows := []struct{ clients, goroutines, threads int }{{1, 1, 8}, {1, 8, 8}, {8, 1, 8}, {8, 1, 1}, {1, 1, 0}, {1, 8, 0}}
		for _, many := range rows {
			for _, hold := range []time.Duration{1, 5, 10} {
				if *sharesFor == 0 && (hold != 5 || many.clients == many.goroutines) {
					continue
				}
				what := fmt.Sprintf("%s/%d clients of %d, %d threads/%v", k.kind, many.clients, many.goroutines, many.threads,
					hold*time.Millisecond)
				t.Run(what, func(t *testing.T) {
					name := fmt.Sprint("shares of ", what)
					x := contest{kind: k.kind, threads: many.threads, hold: hold * time.Millisecond,
						lasts: max(*sharesFor, 2*time.Second)}
					switch k.kind {
					case "read and write":
						x.kind = "write"
					case "three permits":
						x.kind = "semaphore"
					}
					for range many.clients {
						c := harness.Must(mortise.New(adapters[0].open(t, s)))(t)
						t.Cleanup(func() { c.Shutdown(context.Background()) })
						for range many.goroutines {
							x.takes = append(x.takes, k.takes(c, len(x.takes), name))
						}
					}
					if many.threads == 0 {
						x.besideListener(t, s, near, name, k.channel+":{"+name+"}")
						return
					}
					got := x.shares(t, near, name)
					t.Log(got)
					harness.ErrorIf(t, got.java == 0 || got.golang == 0, "a side got nothing: %+v", got)
					least, most := 0.35, 0.65
					if many.clients > 1 {
						least, most = 0.05, 0.25
					}
					if k.kind == "three permits" && many.threads > many.clients*many.goroutines { // a goroutine has one at most
						least, most = 0.6, 0.9
					}
					asBusy(t, got.ofJava() < least || got.ofJava() > most, "Java has a share of %.2f, want %.2f to %.2f",
						got.ofJava(), least, most)
					asBusy(t, got.longGolang > time.Second, "a client of mortise waited for %v", got.longGolang)
				})
			}
		}
	}
}

// counting takes the one permit of a counting semaphore.
func counting(c *mortise.Client, _ int, name string) taker {
	s := semaphore.NewCounting(c, name)
	_, err := s.TrySetPermits(context.Background(), 1)
	return func(ctx context.Context, _ string, wait mortise.Option) (func(context.Context) error, error) {
		if err == nil {
			err = s.Acquire(ctx, 1, wait)
		}
		return func(ctx context.Context) error { return s.Release(ctx, 1) }, err
	}
}

// expiring takes the one permit of a semaphore.
func expiring(c *mortise.Client, _ int, name string) taker {
	s := semaphore.New(c, name, 0)
	_, err := s.TrySetPermits(context.Background(), 1)
	return func(ctx context.Context, _ string, wait mortise.Option) (func(context.Context) error, error) {
		if err != nil {
			return nil, err
		}
		p, err := s.Acquire(ctx, 1, wait)
		if err != nil {
			return nil, err
		}
		return p.Release, nil
	}
}
