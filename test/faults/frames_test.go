package faults_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// What mortise may put between an uncontended Lock, whose context cannot end, and the client library.
const (
	mostFrames        = 8 // in all
	mostBackendFrames = 3 // of backend/redisproto and the adapter
)

// stackOf is mortise's own frames at a call of the client library.
type stackOf struct {
	own, backend []string
}

// calls notes the stack of the last call. What follows a panic is sent by another goroutine.
type calls struct {
	mu     sync.Mutex
	last   stackOf
	panics bool // at the next call, once
}

// stack returns the stack of the last call.
func (c *calls) stack() stackOf {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *calls) panicOnce() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.panics = true
}

func (c *calls) note() {
	var pcs [100]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	c.mu.Lock()
	defer c.mu.Unlock()
	s := stackOf{}
	defer func() { c.last = s }()
	if c.panics {
		c.panics = false
		panic("as a hook may")
	}
	for {
		f, more := frames.Next()
		name, is := strings.CutPrefix(f.Function, "github.com/mortise-go/mortise")
		if is && !strings.HasPrefix(name, "/test/") {
			s.own = append(s.own, f.Function)
			room, _, _ := strings.Cut(strings.TrimPrefix(name, "/"), "/")
			if room != "internal" && room[0] != '.' {
				s.backend = append(s.backend, f.Function)
			}
		}
		if !more {
			return
		}
	}
}

// amiss says what is wrong with the way to a command of an operation.
func (s stackOf) amiss(op string) (list []string) {
	if n := len(s.own); n == 0 || !strings.HasSuffix(s.own[n-1], ")."+op) {
		list = append(list, op+": its command is sent by another goroutine")
	}
	if len(s.backend) > mostBackendFrames || len(s.own) > mostFrames {
		list = append(list, fmt.Sprintf("%s: %d frames, want %d; %d of the backend, want %d:\n%s", op, len(s.own),
			mostFrames, len(s.backend), mostBackendFrames, strings.Join(s.own, "\n")))
	}
	return list
}

// noting is a hook of go-redis.
type noting struct{ calls *calls }

func (h noting) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (h noting) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h noting) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		h.calls.note()
		return next(ctx, cmd)
	}
}

// notingClient is a client of rueidis.
type notingClient struct {
	rueidislib.Client
	calls *calls
}

func (c notingClient) Do(ctx context.Context, cmd rueidislib.Completed) rueidislib.RedisResult {
	c.calls.note()
	return c.Client.Do(ctx, cmd)
}

func TestCost_FramesOfALoneCall(t *testing.T) {
	srv := redistest.Start(t)
	for name, open := range map[string]func(*calls) backend.Backend{
		"go-redis": func(seen *calls) backend.Backend {
			rdb := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
			t.Cleanup(func() { rdb.Close() })
			rdb.AddHook(noting{seen})
			return redisgo.New(rdb)
		},
		"rueidis": func(seen *calls) backend.Backend {
			client := harness.Must(rueidislib.NewClient(rueidislib.ClientOption{
				InitAddress: []string{srv.Addr()}, DisableCache: true,
			}))(t)
			t.Cleanup(client.Close)
			return rueidis.NewWithClient(notingClient{client, seen})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var seen calls
			c := harness.Must(mortise.New(open(&seen)))(t)
			defer c.Shutdown(context.Background())
			// The first commands of a session connect, say HELLO and load scripts, and the batcher's goroutines that sent
			// them end some time later: until then a call goes with them.
			harness.OK(t, harness.Must(c.Lock(context.Background(), "n"))(t).Unlock(context.Background()))
			frames(t, c, &seen)
			func() { // what follows goes straight to the library all the same
				defer func() { _ = recover() }()
				seen.panicOnce()
				_, _ = c.Lock(context.Background(), "other")
			}()
			frames(t, c, &seen)
		})
	}
}

// frames looks at lone calls until three in a row go straight to the library.
func frames(t *testing.T, c *mortise.Client, seen *calls) {
	t.Helper()
	var amiss []string
	for round, good := 0, 0; good < 3; round++ {
		l := harness.Must(c.Lock(context.Background(), "n"))(t)
		locked := seen.stack()
		harness.OK(t, l.Unlock(context.Background()))
		amiss = append(locked.amiss("Lock"), seen.stack().amiss("Unlock")...)
		if good++; len(amiss) > 0 {
			good = 0
		}
		harness.FatalIf(t, round > 1000, "%s", strings.Join(amiss, "\n"))
	}
}
