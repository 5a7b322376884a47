// Lone is one goroutine that locks and unlocks one free name, over and over, and says how long that takes:
//
//	go run ./examples/lone
//
// on a store in this process, and on a Redis:
//
//	go run ./examples/lone -redis 127.0.0.1:6379 -client go-redis -context background
//	go run ./examples/lone -redis 127.0.0.1:6379 -client rueidis -context timeout
//
// `make lone` compares it with the same two commands sent by hand.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	goredis "github.com/redis/go-redis/v9"
	gorueidis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

func main() {
	redis := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it the store is in memory")
	client := flag.String("client", "go-redis", "which Redis client: go-redis or rueidis")
	kind := flag.String("context", "background", "what Lock and Unlock are given: background, cancel or timeout")
	n := flag.Int("n", 10000, "how often")
	flag.Parse()
	if err := run(os.Stdout, *redis, *client, *kind, *n); err != nil {
		fmt.Fprintln(os.Stderr, "lone:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, redis, client, kind string, n int) error {
	open, with := stores[client], contexts[kind]
	if redis == "" {
		open = func(string) backend.Backend { return memory.New() }
	}
	if open == nil || with == nil || n < 1 {
		return fmt.Errorf("-client %q -context %q -n %d: see -help", client, kind, n)
	}
	locks, err := mortise.New(open(redis))
	if err != nil {
		return err
	}
	defer locks.Close()
	took := make([]time.Duration, n)
	for i := -n / 10; i < n; i++ { // the first ones connect and warm up
		ctx, cancel := with(context.Background())
		began := time.Now()
		lease, err := locks.Lock(ctx, "lone")
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			return err
		}
		took[max(i, 0)] = time.Since(began)
		cancel()
	}
	slices.Sort(took)
	fmt.Fprintf(out, "Lock and Unlock: p50 %v, p99 %v\n", took[n/2], took[n*99/100])
	return nil
}

var stores = map[string]func(addr string) backend.Backend{
	"go-redis": func(addr string) backend.Backend {
		return redisgo.New(goredis.NewClient(&goredis.Options{Addr: addr}))
	},
	"rueidis": func(addr string) backend.Backend {
		return rueidis.New(gorueidis.ClientOption{InitAddress: []string{addr}})
	},
}

var contexts = map[string]func(context.Context) (context.Context, context.CancelFunc){
	"background": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
	"cancel":     context.WithCancel,
	"timeout": func(ctx context.Context) (context.Context, context.CancelFunc) {
		return context.WithTimeout(ctx, time.Minute)
	},
}
