package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.uber.org/fx"
	"google.golang.org/grpc"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/middleware/telemetry"
)

// Addresses are where a replica listens. A port of 0 is replaced by the one that was found when it starts.
type Addresses struct{ HTTP, GRPC string }

// Replica is one process of the shop. store is fxmodule.Memory, GoRedis or Rueidis, with what that needs.
//
// The servers' constructors take what takes the Locker, so fx stops the servers before the locks: requests that run
// keep their locks until they are answered.
func Replica(at *Addresses, warehouse *Warehouse, stock *Stock, store fx.Option) fx.Option {
	return fx.Options(
		fx.NopLogger,
		fx.Supply(at, warehouse, &Shipping{warehouse, stock}),
		store,
		fxmodule.Observe(newObserver),
		fx.Provide(newMetrics, newRoutes, newOrders),
		fx.Invoke(serveHTTP, serveGRPC),
	)
}

// newObserver makes what the locks report to.
func newObserver(meters metric.MeterProvider) (mortise.Observer, error) {
	return telemetry.New(telemetry.WithMeterProvider(meters), telemetry.WithNameAttribute(10, family))
}

// family makes "orders" of "orders:42": there are few of these, and so they can be a label.
func family(name string) string {
	before, _, _ := strings.Cut(name, ":")
	return before
}

// newMetrics makes OpenTelemetry's meters, and what Prometheus reads of them.
func newMetrics(life fx.Lifecycle) (metric.MeterProvider, prometheus.Gatherer, error) {
	registry := prometheus.NewRegistry()
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, nil, fmt.Errorf("metrics: %w", err)
	}
	meters := sdk.NewMeterProvider(sdk.WithReader(exporter))
	life.Append(fx.StopHook(meters.Shutdown))
	return meters, registry, nil
}

func serveHTTP(life fx.Lifecycle, end fx.Shutdowner, at *Addresses, routes http.Handler) {
	// Bounds: a client that sends or reads slowly holds a lock meanwhile. WriteTimeout runs from the request's header.
	server := &http.Server{
		Handler: routes, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 20 * time.Second,
		WriteTimeout: 10*time.Second + maxWait + maxHold + 5*time.Second, IdleTimeout: time.Minute,
	}
	life.Append(fx.Hook{
		OnStart: func(context.Context) error {
			return listen(&at.HTTP, end, func(l net.Listener) error {
				if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
					return err
				}
				return nil
			})
		},
		OnStop: server.Shutdown, // waits for the requests that run
	})
}

func serveGRPC(life fx.Lifecycle, end fx.Shutdowner, at *Addresses, server *grpc.Server) {
	life.Append(fx.Hook{
		OnStart: func(context.Context) error { return listen(&at.GRPC, end, server.Serve) },
		OnStop: func(ctx context.Context) error {
			done := make(chan struct{})
			go func() {
				defer close(done)
				server.GracefulStop()
			}()
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				server.Stop()
				return ctx.Err()
			}
		},
	})
}

// listen serves in the background. A server that fails later ends the application.
func listen(addr *string, end fx.Shutdowner, serve func(net.Listener) error) error {
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	*addr = l.Addr().String()
	go func() {
		if serve(l) != nil {
			end.Shutdown(fx.ExitCode(1))
		}
	}()
	return nil
}
