// Orders is the service of the tutorial docs/tutorials/order-service.md: orders are shipped once each, by several
// replicas, and a replica that was paused beyond its lease writes nothing.
//
//	go run -C examples/apps/orders .
//	go run -C examples/apps/orders . -redis 127.0.0.1:6379 -listen 127.0.0.1:8080
//
// The first ships orders with locks in memory and exits; it exits with 1 if a label was bought twice. The second
// serves until it is interrupted: curl -i -X POST 127.0.0.1:8080/orders/42/ship
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/redisgo"
)

func main() {
	addr := flag.String("redis", "", "`address` of a Redis; without it the locks are in memory")
	listen := flag.String("listen", "", "`address` to serve at; without it some orders are shipped, and the program exits")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr, *listen, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, listen string, out io.Writer) error {
	var store backend.Backend = memory.New()
	if addr != "" {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		store = redisgo.New(rdb)
	}
	if listen == "" {
		return show(ctx, store, out)
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	return serve(ctx, store, l, func(_ context.Context, order string) (string, error) {
		return "label of " + order, nil
	})
}

// newLocks makes a client whose locks have fencing tokens.
func newLocks(store backend.Backend) (*mortise.Client, mortise.Locker, error) {
	client, err := mortise.New(store, mortise.WithLogger(slog.Default()))
	if err != nil {
		return nil, nil, err
	}
	return client, client.With(mortise.Fenced()), nil
}

// serve runs a replica until ctx ends, and then lets its requests finish.
func serve(ctx context.Context, store backend.Backend, l net.Listener,
	buy func(ctx context.Context, order string) (label string, err error)) error {
	client, locks, err := newLocks(store)
	if err != nil {
		return err
	}
	db, err := openDB(ctx, "41", "42", "43")
	if err != nil {
		return err
	}
	defer db.Close()
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/ship", &service{db, locks, buy})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	end, cancel := context.WithCancel(context.Background())
	defer cancel()
	server.RegisterOnShutdown(func() { client.Shutdown(end) }) // requests that wait for a lock return
	go func() {
		<-ctx.Done()
		time.AfterFunc(20*time.Second, cancel) // shorter than the grace period of the platform
		server.Shutdown(end)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, client.Close())
	}
	return errors.Join(server.Shutdown(end), client.Shutdown(end)) // waits for the requests, then for the locks
}

// show has two replicas ship one order at the same time.
func show(ctx context.Context, store backend.Backend, out io.Writer) error {
	db, err := openDB(ctx, "42")
	if err != nil {
		return err
	}
	defer db.Close()
	var bought atomic.Int32
	buy := func(context.Context, string) (string, error) {
		return fmt.Sprint("label ", bought.Add(1)), nil
	}
	var replicas [2]*service
	for i := range replicas {
		client, locks, err := newLocks(store)
		if err != nil {
			return err
		}
		defer client.Close()
		replicas[i] = &service{db, locks, buy}
	}
	var wg sync.WaitGroup
	errs := make([]error, len(replicas))
	for i, s := range replicas {
		wg.Go(func() { errs[i] = s.ship(ctx, "42") })
	}
	wg.Wait()
	got, err := label(ctx, db, "42")
	fmt.Fprintf(out, "2 replicas shipped order 42: %q, labels bought: %d\n", got, bought.Load())
	if n := bought.Load(); n != 1 {
		err = errors.Join(err, fmt.Errorf("%d labels were bought", n))
	}
	return errors.Join(append(errs, err)...)
}
