// Shop is a small shop as it stands in production: HTTP routes of chi and a gRPC service that share the lock of an
// order, put together by fx, with OpenTelemetry's metrics for Prometheus.
//
//	go run -C examples/apps/shop .
//
// starts two replicas of it within this process, sends them requests that collide, and says what came of them.
// It needs nothing but Go, and exits with 1 if anything is not as it should be.
//
//	go run -C examples/apps/shop . -redis 127.0.0.1:6379 -client go-redis
//	go run -C examples/apps/shop . -redis 127.0.0.1:6379 -client rueidis
//
// does the same on a Redis, where it leaves nothing.
//
//	go run -C examples/apps/shop . -serve :8080
//
// serves one replica until it is interrupted; README.md has what to send to it.
//
// replica.go, http.go and grpc.go are the shop, stock.go is a service that it calls while it holds a lock.
// warehouse.go stands for its database, show.go for its customers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
	gorueidis "github.com/redis/rueidis"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/fxmodule"
)

func main() {
	redis := flag.String("redis", "", "`address` of a Redis, such as 127.0.0.1:6379; without it the locks are in memory")
	client := flag.String("client", "go-redis", "which Redis client: go-redis or rueidis")
	serve := flag.String("serve", "", "serve HTTP on this `address` until interrupted, instead of the show")
	grpc := flag.String("grpc", "127.0.0.1:9090", "with -serve: the `address` for gRPC")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *client, Addresses{*serve, *grpc}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "shop:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, redis, client string, at Addresses, out io.Writer) error {
	if at.HTTP != "" {
		store, err := locks(redis, client)
		if err != nil {
			return err
		}
		return serve(ctx, &at, fx.Options(store, fx.Supply(slog.Default())), out)
	}
	// A lease of 30 s, the default, is well in production. Here one that an operator takes away is to be missed soon.
	store, err := locks(redis, client, fxmodule.ClientOptions(watchdog))
	if err != nil {
		return err
	}
	return show(ctx, store, out)
}

// locks is the one place that knows what they are on.
func locks(addr, client string, opts ...fxmodule.Option) (fx.Option, error) {
	switch {
	case addr == "":
		// Replicas that are processes cannot share this: with more than one, use Redis.
		return fx.Options(fx.Supply(memory.New()), fxmodule.Memory(opts...)), nil
	case client == "go-redis":
		return fx.Options(fx.Supply(&goredis.UniversalOptions{Addrs: []string{addr}}), fxmodule.GoRedis(opts...)), nil
	case client == "rueidis":
		return fx.Options(fx.Supply(gorueidis.ClientOption{InitAddress: []string{addr}}), fxmodule.Rueidis(opts...)), nil
	}
	return nil, fmt.Errorf("-client %q: it is go-redis or rueidis", client)
}

// serve is what main does in production.
func serve(ctx context.Context, at *Addresses, store fx.Option, out io.Writer) error {
	warehouse := NewWarehouse(3 * time.Second)
	stock, closeStock, err := openStock(ctx, "127.0.0.1:0", warehouse, store) // in yours a program of its own
	if err != nil {
		return err
	}
	app := fx.New(Replica(at, warehouse, stock, store))
	if err := start(ctx, app); err != nil {
		return errors.Join(err, closeStock())
	}
	fmt.Fprintf(out, "HTTP on %s, gRPC on %s; a payment takes 3 s; the stock is at %s\n", at.HTTP, at.GRPC, stock.url)
	var failed error
	select {
	case <-ctx.Done():
	case <-app.Wait():
		failed = errors.New("a server has failed")
	}
	return errors.Join(failed, stop(app), closeStock())
}

func start(ctx context.Context, app *fx.App) error {
	ctx, cancel := context.WithTimeout(ctx, app.StartTimeout())
	defer cancel()
	return app.Start(ctx)
}

// stop waits for the requests that run, for a while.
func stop(app *fx.App) error {
	ctx, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	return app.Stop(ctx)
}
