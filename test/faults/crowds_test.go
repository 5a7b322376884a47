package faults_test

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// sent counts the commands that clients have sent, and not those that scripts ran.
func sent(srv *redistest.Server) int64 {
	return srv.Calls("evalsha", "eval", "subscribe", "unsubscribe", "ping", "script|load", "client|tracking", "hello")
}

// occupied is what the process has of heap and of goroutines' stacks.
func occupied() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// serverMemory is what the server has.
func serverMemory(t *testing.T, srv *redistest.Server) int64 {
	t.Helper()
	return harness.Must(strconv.ParseInt(srv.Info("used_memory"), 10, 64))(t)
}

// A client that waits for many names asks for them a hundred times a second at most, all together. It listens on three
// channels for each: Redisson's, its own, and the one that is counted.
func TestRule15_ManyNamesCostAHundredCommandsASecond(t *testing.T) {
	names, lasts := 1000, 6*time.Second
	if *timed {
		names, lasts = 10_000, time.Minute
	}
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		c := s.client(t, srv.Addr(), config{})
		held := named("held:")
		put(t, srv, names, held, time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		here, there := occupied(), serverMemory(t, srv)
		var waiters sync.WaitGroup
		for i := range names {
			waiters.Go(func() {
				l, err := c.Lock(ctx, held(i))
				harness.ErrorIf(t, l != nil || ctx.Err() == nil, "Lock of a held lock: %v, %v", l, err)
			})
			if (i+1)%1000 == 0 {
				eventually(t, "all wait", func() bool { return channels(srv) == i+1 })
			}
		}
		// Each has asked once more when it listened.
		before := sent(srv)
		eventually(t, "all have asked again", func() bool {
			now := sent(srv)
			quiet := now-before < 20
			before = now
			time.Sleep(100 * time.Millisecond)
			return quiet
		})
		each := func(bytes int64) int64 { return bytes / int64(names) }
		client, server := each(occupied()-here), each(serverMemory(t, srv)-there)

		begun, most := time.Now(), int64(0)
		before = sent(srv)
		for last, at := before, begun; time.Since(begun) < lasts; {
			time.Sleep(time.Second)
			now, took := sent(srv), time.Since(at)
			most = max(most, int64(float64(now-last)/took.Seconds()))
			last, at = now, time.Now()
		}
		rate := float64(sent(srv)-before) / time.Since(begun).Seconds()
		t.Logf("%d names: %.1f commands a second, %d in the busiest; a waiter has %d bytes here and %d at the server",
			names, rate, most, client, server)
		harness.ErrorIf(t, rate > 100, "%.1f commands a second, want 100 at most", rate)
		harness.ErrorIf(t, client > 16<<10 && !raceEnabled, "%d bytes a waiter, want %d at most", client, 16<<10)
		cancel()
		waiters.Wait()
		eventually(t, "no channel is subscribed", func() bool { return channels(srv) == 0 })
	})
}

// The clients of a server whose subscriptions are all cut at once do not all ask at once when they listen again.
func TestRule12_ClientsThatReconnectAtOnceAskWithJitter(t *testing.T) {
	clients := int64(200)
	if *timed {
		clients = 1000
	}
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		foreign(t, srv, "n", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters sync.WaitGroup
		var all []*mortise.Client
		for i := range clients {
			all = append(all, s.client(t, srv.Addr(), config{Pool: 1, Name: fmt.Sprint("c", i)}))
		}
		for _, c := range all {
			waiters.Go(func() { _ = harness.Err(c.Lock(ctx, "n")) })
		}
		entered(t, srv, clients)
		const window = 50 * time.Millisecond
		runs := int64(0) // what is asked twice at first is not counted
		eventually(t, "none asks", func() bool {
			before := runs
			runs = scriptRuns(srv)
			time.Sleep(4 * window)
			return runs == before && scriptRuns(srv) == before
		})
		type sample struct {
			at   time.Time
			asks int64
		}
		samples := []sample{{time.Now(), scriptRuns(srv)}}
		srv.Must("CLIENT", "KILL", "TYPE", "pubsub")
		eventually(t, "all have asked again", func() bool {
			samples = append(samples, sample{time.Now(), scriptRuns(srv)})
			return samples[len(samples)-1].asks-samples[0].asks >= clients
		})
		most := int64(0)
		for i, from := range samples {
			for _, to := range samples[i+1:] {
				asks, took := to.asks-from.asks, to.at.Sub(from.at)
				if most = max(most, asks*int64(window)/int64(max(took, window))); took > window {
					break
				}
			}
		}
		took := samples[len(samples)-1].at.Sub(samples[0].at)
		t.Logf("%d clients asked again within %v, %d of them within %v", clients, took.Round(time.Millisecond), most, window)
		tenths := int64(8) // a machine that stands still has all be late together
		if *timed {
			tenths = 4
		}
		harness.ErrorIf(t, most > clients*tenths/10, "%d of %d asked within %v", most, clients, window)
		cancel()
		waiters.Wait()
	})
}
