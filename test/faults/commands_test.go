package faults_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// work is what is counted: every command but the handshakes of connections and their
// pings.
func work(c redistest.Command) bool {
	return !slices.Contains([]string{"HELLO", "CLIENT", "AUTH", "PING", "SELECT"}, c.Args[0])
}

// counted is a server, a proxy that counts, and a client behind it.
func counted(t *testing.T, s stack, c config, opts ...mortise.ClientOption) (*redistest.Server, *redistest.Proxy, *mortise.Client) {
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	return srv, p, s.client(t, p.Addr(), c, opts...)
}

// costs runs f and fails unless it sent n commands.
func costs(t *testing.T, p *redistest.Proxy, what string, n int, f func()) {
	t.Helper()
	p.Reset()
	f()
	if got := p.Count(work); got != n {
		t.Errorf("%s: %d commands, want %d: %.300q", what, got, n, p.Commands())
	}
}

func TestCost_LockUnlockReentryAndTryLock(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		ctx := within(t, patience)
		var l, inner *mortise.Lease
		for range 3 {
			costs(t, p, "Lock", 1, func() { l = lock(t, c, ctx, "n") })
			costs(t, p, "re-entry", 1, func() { inner = lock(t, c, l.Context(), "n") })
			costs(t, p, "inner Unlock", 1, func() { unlock(t, inner) })
			costs(t, p, "TryLock of what this client holds", 0, func() {
				_, err := c.TryLock(ctx, "n")
				check(t, err, mortise.ErrNotAcquired)
			})
			costs(t, p, "Unlock", 1, func() { unlock(t, l) })
		}

		foreign(t, srv, "n", ample)
		try := func() {
			_, err := c.TryLock(ctx, "n")
			check(t, err, mortise.ErrNotAcquired)
			var e *mortise.Error
			harness.ErrorIf(t, !errors.As(err, &e) || e.Remaining <= 0 || e.Remaining > ample,
				"remaining %v", e.Remaining)
		}
		first, ten := 1, 10
		if s.cached { // it asks once more, over the connection that is told when it is free
			first, ten = 2, 0
		}
		costs(t, p, "TryLock of a held lock", first, try)
		costs(t, p, "ten more", ten, func() {
			for range 10 {
				try()
			}
		})
		// What it believes is taken back when it is no longer so.
		srv.Must("DEL", "n")
		await(t, soon, "it learns that the lock is free", func() bool {
			l, err := c.TryLock(ctx, "n")
			if err == nil {
				unlock(t, l)
			}
			return err == nil
		})
	})
}

func TestCost_AHandoffBetweenGoroutinesOfOneProcessIsTwoCommandsAtMost(t *testing.T) {
	consul7523(t, "handoff", []int{2})
}

// consul #7523: every release woke every waiter, and each sent a request.
func TestConsul7523_CommandsOfAHandoffDoNotGrowWithWaiters(t *testing.T) {
	consul7523(t, "n", []int{2, 10, 200})
}

func consul7523(t *testing.T, name string, sizes []int) {
	eachParallel(t, func(t *testing.T, s stack) {
		_, p, c := counted(t, s, config{Pool: 4})
		ctx := within(t, patience)
		for _, waiters := range sizes {
			l := lock(t, c, ctx, name)
			var in atomic.Int32
			handed := make(chan *mortise.Lease)
			for range waiters {
				go func() {
					in.Add(1)
					l, err := c.Lock(ctx, name)
					if err != nil {
						t.Error(err)
						l = nil
					}
					handed <- l
				}()
			}
			await(t, patience, "all are about to wait", func() bool { return int(in.Load()) == waiters })
			time.Sleep(20 * time.Millisecond)
			p.Reset()
			for range waiters {
				unlock(t, l)
				if l = <-handed; l == nil {
					return
				}
			}
			n := p.Count(work)
			t.Logf("%d waiters: %.2f commands a handoff", waiters, float64(n)/float64(waiters))
			harness.ErrorIf(t, n > 2*waiters, "%d commands for %d handoffs", n, waiters)
			unlock(t, l)
		}
	})
}

func TestCost_RenewingManyLeasesIsOneCommandFor256(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		const m, batch, periods = 600, 256, 3
		// What is due within a 48th of the watchdog's timeout goes out together, so
		// take long enough for 600 acquisitions to be within it.
		const watchdog = 15 * time.Second
		var renewed atomic.Int64
		_, p, c := counted(t, s, config{}, mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Renewed: func(mortise.RenewedEvent) { renewed.Add(1) },
		}))
		leases := make([]*mortise.Lease, m)
		begun := time.Now()
		workers(m, func(i int) {
			leases[i], _ = c.Lock(context.Background(), fmt.Sprint("n", i))
		})
		spread := time.Since(begun)
		p.Reset()
		await(t, 2*watchdog, "each was renewed", func() bool { return renewed.Load() >= periods*m })
		n := p.Count(work)
		want := periods * ((m + batch - 1) / batch)
		t.Logf("%d leases, acquired within %v, renewed %d times: %d commands", m, spread, periods, n)
		// Leases that were acquired over a longer time than that share batches less well.
		want += periods * int(spread/(watchdog/48))
		if s.name == "rueidis" { // client-side caching makes large scripts dear; they go out together
			const script = 16
			want += (periods + 1) * ((m + script - 1) / script) // and each is asked after once, within half a second
		}
		harness.ErrorIf(t, n > want, "%d commands for %d renewals of %d leases, want %d", n, periods, m, want)
		workers(m, func(i int) { leases[i].Unlock(context.Background()) })
	})
}

func TestCost_WaitingSendsNothing(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		foreign(t, srv, "n", ample)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ch := waiting(t, srv, c, "n")
		for range 20 {
			go c.Lock(ctx, "n")
		}
		stays(t, 50*time.Millisecond, "", func() bool { return true })
		costs(t, p, "3 s of waiting", 0, func() {
			stays(t, 3*time.Second, "it waits", func() bool { return len(ch) == 0 })
		})
		cancel()
		srv.Must("EVAL", `redis.call('del', 'n') return redis.call('publish', 'redisson_lock__channel:{n}', '0')`, "0")
		got(t, soon, "the waiter woke", ch)
	})
}
