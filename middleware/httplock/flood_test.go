//go:build unix

package httplock_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// flood are requests for busy names, each of its own; each is reset while it waits.
type flood struct {
	clients, names int
	enrolled       bool    // reset once it is in the store's queue; otherwise as soon as it waits
	most           float64 // commands a request, those of connections left out
}

// What a flood costs the store: see SECURITY.md. A request that may not wait costs one command, and no subscription.
func TestAFloodOverManyBusyNamesCostsFewCommands(t *testing.T) {
	check.Long(t)
	for client, open := range map[string]func(testing.TB, string) backend.Backend{
		"go-redis": func(t testing.TB, addr string) backend.Backend {
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { rdb.Close() })
			return redisgo.New(rdb)
		},
		"rueidis": func(_ testing.TB, addr string) backend.Backend {
			return rueidis.New(rueidisclient.ClientOption{InitAddress: []string{addr}})
		},
	} {
		for what, f := range map[string]flood{
			"one at a time":               {1, 500, false, 3}, // an attempt, SUBSCRIBE, UNSUBSCRIBE
			"one at a time, in the queue": {1, 100, true, 5},  // also the enrolment, and its end
			"64 at a time, in the queue":  {64, 1000, true, 5},
			"more than may wait":          {5000, 5000, false, 3},
		} {
			t.Run(client+", "+what, func(t *testing.T) { f.run(t, open) })
		}
	}
}

func (f flood) run(t *testing.T, open func(testing.TB, string) backend.Backend) {
	server := redistest.Start(t)
	server.Must("EVAL", "for i = 1, ARGV[1] do redis.call('hset', 'orders:' .. i, 'java:1', 1) "+
		"redis.call('pexpire', 'orders:' .. i, 600000) end", "0", fmt.Sprint(f.names))
	proxy := redistest.NewProxy(t, server.Addr())
	var resets sync.Map // by name
	locks := check.Value(mortise.New(open(t, proxy.Addr()), mortise.WithObserver(mortise.Observer{
		Waiting: func(e mortise.Event) {
			if reset, ok := resets.Load(e.Name); ok {
				reset.(func())()
			}
		}}))).In(t)
	t.Cleanup(func() { locks.Close() })
	lock := httplock.New(locks, orders, httplock.WithMaxClientWait())(http.NotFoundHandler())
	proxy.Reset()
	var all sync.WaitGroup
	var next, crowded atomic.Int32
	for range f.clients {
		all.Go(func() {
			for id := int(next.Add(1)); id <= f.names; id = int(next.Add(1)) {
				ctx, reset := context.WithCancel(t.Context())
				if name := fmt.Sprint("orders:", id); f.enrolled {
					resets.Store(name, func() { go f.resetEnrolled(t, server, name, reset) })
				} else {
					resets.Store(name, func() { reset() })
				}
				w := httptest.NewRecorder()
				r := httptest.NewRequest("POST", "/", nil).WithContext(ctx)
				r.SetPathValue("id", fmt.Sprint(id))
				lock.ServeHTTP(w, r)
				reset()
				if w.Code == http.StatusTooManyRequests {
					crowded.Add(1)
				} else if w.Code != 499 {
					t.Errorf("answered %d %s", w.Code, w.Body)
				}
			}
		})
	}
	all.Wait()
	left := func() string {
		return fmt.Sprint(server.Must("PUBSUB", "CHANNELS", "*orders*"), server.Must("KEYS", "mortise:1:next:*"))
	}
	until(t, func() bool { return left() == "[] []" }, left)
	scripts := proxy.Count(redistest.Named("EVAL", "EVALSHA"))
	channels := 0
	subscribed := proxy.Count(func(c redistest.Command) bool {
		if c.Args[0] == "SUBSCRIBE" {
			channels += len(c.Args) - 1
		}
		return strings.HasSuffix(c.Args[0], "SUBSCRIBE")
	})
	a := float64(scripts+subscribed) / float64(f.names)
	t.Logf("%.2f commands a request, %d of %d refused", a, crowded.Load(), f.names)
	check.ErrorIf(t, a > f.most, "%.2f commands a request, want %v at most: %d scripts, %d of subscriptions",
		a, f.most, scripts, subscribed)
	check.Equal(t, "subscribed to %d channels", channels, 3*(f.names-int(crowded.Load())))
}

// resetEnrolled resets a request once it is in the queue of its lock.
func (f flood) resetEnrolled(t *testing.T, server *redistest.Server, name string, reset func()) {
	until(t, func() bool {
		n, err := server.Do("EXISTS", "mortise:1:next:{"+name+"}2")
		return err != nil || n == int64(1)
	}, func() string { return name + " is in the queue" })
	reset()
}
