package exclusion

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// beside has one client keep eight goroutines busy with each of two names, and lets another client lock some, again and
// again. It returns the turns of the busy ones and the waits of the other, in microseconds.
func beside(t *testing.T, addr string, lock func(ctx context.Context, c *mortise.Client) (*mortise.Lease, error)) (
	turns int64, waits []int) {
	client := func() *mortise.Client {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { rdb.Close() })
		c := harness.Must(mortise.New(redisgo.New(rdb)))(t)
		t.Cleanup(func() { c.Shutdown(context.Background()) })
		return c
	}
	busy, other := client(), client()
	// A grant lasts backend.FirstLease until its client has confirmed it, which a machine may be too late for.
	machine, began := redistest.Timed(t), time.Now()
	unlock := func(l *mortise.Lease) {
		err := l.Unlock(context.Background())
		if late := machine.Late(began); late < backend.FirstLease/2 || !errors.Is(err, mortise.ErrLost) {
			harness.Check(t, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), max(*fairFor, 2*time.Second))
	defer cancel()
	var done atomic.Int64
	var all sync.WaitGroup
	for _, name := range []string{"n", "m"} {
		for range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					l, err := busy.Lock(ctx, name)
					if err != nil {
						return
					}
					time.Sleep(time.Millisecond)
					unlock(l)
					done.Add(1)
				}
			})
		}
	}
	if lock != nil {
		for ctx.Err() == nil {
			began := time.Now()
			l, err := lock(ctx, other)
			waits = append(waits, int(time.Since(began).Microseconds()))
			if err != nil {
				break
			}
			time.Sleep(time.Millisecond)
			unlock(l)
		}
	}
	all.Wait()
	return done.Load(), waits
}

// Beside a client with eight goroutines a name, a waiter of another client has its turns: a plain one, one that polls,
// and a LockAll of both names. What that costs the busy client is in the log; times are asserted with -fairness.time.
func TestABusyClientLeavesTurnsToOthers(t *testing.T) {
	addr := redistest.Start(t).Addr()
	alone, _ := beside(t, addr, nil)
	for what, lock := range map[string]func(ctx context.Context, c *mortise.Client) (*mortise.Lease, error){
		"a plain waiter": func(ctx context.Context, c *mortise.Client) (*mortise.Lease, error) { return c.Lock(ctx, "n") },
		"Polling(5ms)": func(ctx context.Context, c *mortise.Client) (*mortise.Lease, error) {
			return c.With(mortise.Polling(5*time.Millisecond)).Lock(ctx, "n")
		},
		"LockAll of both": func(ctx context.Context, c *mortise.Client) (*mortise.Lease, error) {
			return c.LockAll(ctx, []string{"n", "m"})
		},
	} {
		t.Run(what, func(t *testing.T) {
			turns, waits := beside(t, addr, lock)
			harness.FatalIf(t, len(waits) < 10, "it had %d turns", len(waits))
			p99 := time.Duration(stats.Quantile(waits, 0.99)) * time.Microsecond
			share := float64(turns) / float64(alone)
			t.Logf("%d turns of its own, p99 of its waits %v; the busy client has %.2f of its turns without it",
				len(waits), p99, share)
			asserted := *fairFor >= 2*time.Second
			harness.ErrorIf(t, asserted && p99 > 250*time.Millisecond, "the p99 of its waits is %v, want 250ms at the most", p99)
			want := 0.8
			if what == "LockAll of both" {
				want = 0.7 // two names are held: see docs/decisions/0010
			}
			harness.ErrorIf(t, asserted && share < want,
				"the busy client has %.2f of its turns without it, want %.1f at least", share, want)
		})
	}
}
