package faults_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// machinery counts the goroutines that mortise or a client library started: not
// those that a test started, and not what serves the test. The profile groups
// goroutines by stack, with the function that each began with at its end.
func machinery() (n int, kinds map[string]int) {
	var b bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&b, 1)
	kinds = map[string]int{}
	for group := range strings.SplitSeq(b.String(), "\n\n") {
		frames := strings.Split(strings.TrimSpace(group), "\n")
		head, root := frames[0], frames[len(frames)-1]
		if strings.HasPrefix(head, "goroutine profile:") && len(frames) > 1 {
			head = frames[1]
		}
		digits, _, _ := strings.Cut(head, " ")
		count, err := strconv.Atoi(digits)
		if err != nil {
			continue
		}
		fields := strings.Fields(root)
		if len(fields) < 3 {
			continue
		}
		began := fields[2]
		switch {
		case strings.Contains(began, "mortise/test/faults"), strings.Contains(began, "mortise/internal/"):
		case strings.Contains(began, "mortise"), strings.Contains(began, "/redis/"):
			n += count
			kinds[began[:strings.LastIndex(began, "+")]] += count
		}
	}
	return n, kinds
}

// underWay counts the goroutines of clients that come and go: for commands, mostly.
func underWay(kinds map[string]int) (n int) {
	for began, count := range kinds {
		if strings.HasPrefix(began, "github.com/mortise-go/mortise.") && !strings.HasSuffix(began, ".(*Client).runSchedule") {
			n += count
		}
	}
	return n
}

// senders counts those of commands.
func senders(kinds map[string]int) (n int) {
	for began, count := range kinds {
		if strings.Contains(began, "batcher.(*Batcher[") {
			n += count
		}
	}
	return n
}

// workers runs f(0) to f(n-1) on a few goroutines.
func workers(n int, f func(i int)) { harness.Workers(n, 16, func(i int) error { f(i); return nil }) }

// named are names that begin with prefix.
func named(prefix string) func(i int) string {
	return func(i int) string { return fmt.Sprint(prefix, i) }
}

// takes takes n locks.
func takes(t testing.TB, ctx context.Context, c *mortise.Client, n int, name func(i int) string) []*mortise.Lease {
	t.Helper()
	leases := make([]*mortise.Lease, n)
	harness.OK(t, harness.Workers(n, 16, func(i int) (err error) {
		leases[i], err = c.Lock(ctx, name(i))
		return err
	}))
	return leases
}

// releases releases leases, whatever that comes to.
func releases(leases []*mortise.Lease) {
	workers(len(leases), func(i int) { leases[i].Unlock(context.Background()) })
}

// 10,000 leases held and 10,000 names waited for by one client: no goroutine and no
// connection more than with 10, no lease lost over several renewals, no waiter
// forgotten, nothing left behind.
func TestRule15_TenThousandLeasesAndTenThousandWaitersNeedNoMoreMachinery(t *testing.T) {
	n := 10_000
	if long {
		n = 50_000
	}
	each(t, func(t *testing.T, s stack) {
		// What is there before is not ours.
		ignore := goleak.IgnoreCurrent()
		srv := redistest.Start(t)
		// Under the race detector 20,000 callers at once keep two CPUs busy for some
		// seconds, and clients send in the order of asking: a renewal waits behind
		// them all.
		const watchdog = 30 * time.Second
		const pool = 8
		var lost, failures atomic.Int64
		begun := time.Now()
		renewed := make([]atomic.Int32, n)
		index := func(name string) (i int) { fmt.Sscanf(name, "held:%d", &i); return i }
		c, err := mortise.New(s.backend(t, srv.Addr(), config{Name: "many", Pool: pool}),
			mortise.WithWatchdogTimeout(watchdog),
			mortise.WithObserver(mortise.Observer{
				Lost: func(e mortise.Event) {
					if lost.Add(1) <= 3 {
						t.Logf("%v: lost after %v: %v", time.Since(begun), e.Held, e.Err)
					}
				},
				RenewalFailed: func(e mortise.Event) {
					if failures.Add(1) <= 3 {
						t.Logf("%v: renewal failed: %v", time.Since(begun), e.Err)
					}
				},
				Renewed: func(e mortise.Event) { renewed[index(e.Name)].Add(1) },
			}))
		harness.OK(t, err)
		t.Cleanup(func() { // where the test failed half-way; its observer logs
			now, cancel := context.WithCancel(context.Background())
			cancel()
			c.Shutdown(now)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 9*patience)
		defer cancel()
		harness.OK(t, c.Ping(ctx))
		wanted := named("wanted:")
		put(t, srv, n, wanted, time.Hour)

		var leases []*mortise.Lease
		got := make([]atomic.Bool, n)
		failed := make(chan error, 2*n)
		noneFailed := func() {
			if len(failed) > 0 {
				t.Fatal(<-failed)
			}
		}
		var waiters sync.WaitGroup
		begin := func(from, to int) {
			leases = append(leases, takes(t, ctx, c, to-from, func(i int) string { return fmt.Sprint("held:", from+i) })...)
			t.Logf("%v: %d leases", time.Since(begun), to)
			// In waves: all at once, on a busy machine, is longer than go-redis lets a
			// command wait for a connection.
			for i := from; i < to; i++ {
				waiters.Go(func() {
					l, err := c.Lock(ctx, wanted(i), mortise.WithLease(time.Minute))
					if err != nil {
						failed <- err
						return
					}
					got[i].Store(true)
					if err := l.Unlock(ctx); err != nil {
						failed <- err
					}
				})
				if i+1 < to && (i+1)%1000 != 0 {
					continue
				}
				eventually(t, "all wait", func() bool { return channels(srv) == i+1 || len(failed) > 0 })
				noneFailed()
			}
		}
		least := func() int {
			m := int32(1 << 30)
			for i := range leases {
				m = min(m, renewed[i].Load())
			}
			return int(m)
		}

		// A command whose caller may give up runs in a goroutine of its own until its
		// reply is there, and where a server is slow there are more senders; what is counted is what stays: of the latter one
		// for acquisitions, one for releases, and one for all other scripts.
		quiet := func() (n int, kinds map[string]int) {
			eventually(t, "no command is on its way", func() bool {
				n, kinds = machinery()
				return underWay(kinds) == 0 && senders(kinds) <= 3
			})
			return n, kinds
		}
		// The senders of renewals are there now and then.
		const extra = 4

		begin(0, 10)
		few, _ := quiet()
		fewConns := connections(t, srv, "many")
		begin(10, n)
		t.Logf("%v: %d waiters", time.Since(begun), n)
		many, kinds := quiet()
		harness.ErrorIf(t, many > few+extra,
			"%d goroutines with %d leases and waiters, %d with 10: %v", many, n, few, kinds)
		conns := connections(t, srv, "many")
		// Clients open theirs when they first need them, rueidis one for a lone caller; one more subscribes.
		bound := map[string]int{"go-redis": pool, "rueidis": 4, "rueidis/nocache": 5}[s.name] + 1
		harness.ErrorIf(t, conns > bound, "%d connections with %d leases and waiters, %d with 10", conns, n, fewConns)
		t.Logf("%d leases and %d waiters: %d goroutines, %d connections; 10: %d, %d", n, n, many, conns, few, fewConns)

		eventually(t, "each lease was renewed", func() bool { return least() >= 1 || lost.Load() > 0 })
		harness.FatalIf(t, lost.Load() > 0, "%d leases were lost", lost.Load())
		m, kinds := quiet()
		harness.ErrorIf(t, m > few+extra, "%d goroutines after renewals: %v", m, kinds)
		for i, l := range leases {
			harness.OKf(t, l.Err(), "lease %d", i)
		}

		// The other side releases.
		srv.Must("EVAL", `for i = 0, tonumber(ARGV[1]) - 1 do
			redis.call('del', 'wanted:' .. i)
			redis.call('publish', 'redisson_lock__channel:{wanted:' .. i .. '}', '0')
		end`, "0", fmt.Sprint(n))
		waiters.Wait()
		noneFailed()
		for i := range got {
			harness.FatalIf(t, !got[i].Load(), "waiter %d did not get its lock", i)
		}
		harness.OK(t, harness.Workers(n, 16, func(i int) error { return leases[i].Unlock(ctx) }))
		eventually(t, "no channel is subscribed", func() bool { return channels(srv) == 0 })
		left := srv.Must("EVAL", leftBehind, "0")
		harness.ErrorIf(t, fmt.Sprint(left) != "[]", "left behind: %.300v", left)
		harness.Check(t, c.Close())
		if s.name == "go-redis" {
			// The user's own client: only the subscription's connection was ours.
			eventually(t, "the subscription's connection is closed",
				func() bool { return connections(t, srv, "many") <= pool })
			return
		}
		eventually(t, "the connections are closed", func() bool { return connections(t, srv, "many") == 0 })
		const server = "github.com/mortise-go/mortise/internal/redistest.(*process).start.func1"
		harness.Check(t, leaks(ignore, goleak.IgnoreAnyFunction(server)))
	})
}

// leftBehind returns the keys on the server, without the turns of foreign clients that expire. On a slow machine a
// client may take its connection for dead while it subscribes, and replace it; until the server sees the end of the
// old one, both count as subscribers of a topic, and one of them is taken for a foreign client.
const leftBehind = `local left = {}
for _, key in ipairs(redis.call('keys', '*')) do
	local ttl = redis.call('pttl', key)
	-- The turns of foreign clients, and since when a lock was held: at most for the watchdog's timeout.
	local expires = string.find(key, ':round$') or string.find(key, '^mortise:1:held:')
	if not expires or ttl < 0 or ttl > 60000 then
		left[#left + 1] = key .. ' ' .. ttl
	end
end
return left`

// put makes records of another owner's, n of them.
func put(t testing.TB, srv *redistest.Server, n int, name func(int) string, lease time.Duration) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		to := min(from+1000, n)
		args := []string{"EVAL", `for _, k in ipairs(KEYS) do
			redis.call('hset', k, 'somebody:1', 1)
			redis.call('pexpire', k, ARGV[1])
		end`, fmt.Sprint(to - from)}
		for i := from; i < to; i++ {
			args = append(args, name(i))
		}
		srv.Must(append(args, fmt.Sprint(lease.Milliseconds()))...)
	}
}
