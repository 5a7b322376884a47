package fxmodule_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// Orders is a service as it stands in an application.
type Orders struct{ locks mortise.Locker }

func NewOrders(locks mortise.Locker) *Orders { return &Orders{locks} }

func (o *Orders) Ship(ctx context.Context, id string) error {
	return mortise.Do(ctx, o.locks, "orders:"+id, func(ctx context.Context) error {
		fmt.Println("shipped", id)
		return nil
	})
}

func Example() {
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(), // in production: fxmodule.GoRedis() or fxmodule.Rueidis()
		fx.Provide(NewOrders),
		fx.Invoke(func(orders *Orders, life fx.Lifecycle) {
			life.Append(fx.StartHook(func(ctx context.Context) error { return orders.Ship(ctx, "42") }))
		}),
	)
	if err := app.Start(context.Background()); err != nil {
		panic(err)
	}
	if err := app.Stop(context.Background()); err != nil {
		panic(err)
	}
	// Output: shipped 42
}

func ExampleOpen() {
	type Config struct{ LockStore string } // from the environment, say
	app := fx.New(
		fx.NopLogger,
		fx.Supply(Config{LockStore: "memory:"}), // or postgres://host/shop
		fx.Provide(func(c Config) fxmodule.URL { return fxmodule.URL(c.LockStore) }),
		fxmodule.Open(), // for that one, import _ ".../backend/postgres"
		fx.Provide(NewOrders),
		fx.Invoke(func(orders *Orders, life fx.Lifecycle) {
			life.Append(fx.StartHook(func(ctx context.Context) error {
				return orders.Ship(ctx, "42")
			}))
		}),
	)
	if err := app.Start(context.Background()); err != nil {
		panic(err)
	}
	if err := app.Stop(context.Background()); err != nil {
		panic(err)
	}
	// Output: shipped 42
}

func ExampleGoRedis() {
	app := fx.Options(
		fx.Supply(&redis.UniversalOptions{Addrs: []string{"localhost:6379"}}),
		fxmodule.GoRedis(fxmodule.ClientOptions(mortise.WithName("shipping"))),
		fx.Provide(NewOrders),
		fx.Invoke(func(*Orders) {}),
	)
	fmt.Println(fx.ValidateApp(app, fx.NopLogger))
	// Output: <nil>
}

func ExampleNamed() {
	type lockers struct {
		fx.In

		Orders mortise.Locker `name:"orders"`
		Users  mortise.Locker `name:"users"`
	}
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(fxmodule.Named("orders"), fxmodule.LockerOptions(mortise.Fair())),
		fxmodule.Memory(fxmodule.Named("users")),
		fx.Invoke(func(in lockers) error {
			ctx := context.Background()
			order, err := in.Orders.Lock(ctx, "42")
			if err != nil {
				return err
			}
			defer order.Unlock(ctx)
			return mortise.Do(ctx, in.Users, "42", func(context.Context) error {
				fmt.Println("another lock, of another store")
				return nil
			})
		}),
	)
	fmt.Println(app.Err())
	// Output:
	// another lock, of another store
	// <nil>
}

func ExampleHTTP() {
	type routes struct {
		fx.In

		OneAtATime func(http.Handler) http.Handler `name:"orders"`
	}
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(fxmodule.HTTP("orders", httplock.RouteKey("orders:{id}"))),
		fx.Provide(func(in routes) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/ship", in.OneAtATime(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintln(w, "locked by", httplock.Lease(r.Context()).Name())
			})))
			return mux
		}),
		fx.Invoke(func(h http.Handler) {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequest("POST", "/orders/42/ship", nil))
			fmt.Print(answer.Body)
		}),
	)
	fmt.Println(app.Err())
	// Output:
	// locked by orders:42
	// <nil>
}

// A server stops before the locks that its requests hold: what it serves was made of the Locker, and fx stops in the
// opposite order. Shutdown awaits the requests, within fx's stop timeout, and they keep their locks until then.
func Example_server() {
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(),
		fx.Provide(func(locks mortise.Locker) http.Handler {
			lock := httplock.New(locks, httplock.RouteKey("orders:{id}"))
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}/ship", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprintln(w, "locked by", httplock.Lease(r.Context()).Name())
			})))
			return mux
		}),
		fx.Invoke(func(h http.Handler, life fx.Lifecycle) error {
			listener, err := net.Listen("tcp", "127.0.0.1:0") // in a service: ":8080"
			if err != nil {
				return err
			}
			server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute}
			life.Append(fx.StartStopHook(
				func() { go server.Serve(listener) },
				func(ctx context.Context) error { return server.Shutdown(ctx) },
			))
			life.Append(fx.StartHook(func() error { // a client, for the example
				answer, err := http.Post("http://"+listener.Addr().String()+"/orders/42/ship", "", nil)
				if err != nil {
					return err
				}
				defer answer.Body.Close()
				_, err = io.Copy(os.Stdout, answer.Body)
				return err
			}))
			return nil
		}),
	)
	if err := app.Start(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(app.Stop(context.Background()))
	// Output:
	// locked by orders:42
	// <nil>
}

// tenant gives each lock a prefix.
type tenant struct {
	mortise.Locker
	prefix string
}

func (t tenant) Lock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return t.Locker.Lock(ctx, t.prefix+name, opts...)
}

func (t tenant) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	return t.Locker.TryLock(ctx, t.prefix+name, opts...)
}

// A decorator changes the Locker for the whole graph, or for one fx.Module of it.
func Example_decorator() {
	app := fx.New(
		fx.NopLogger,
		fxmodule.Memory(),
		fx.Decorate(func(locks mortise.Locker) mortise.Locker { return tenant{locks, "acme:"} }),
		fx.Invoke(func(locks mortise.Locker) error {
			lease, err := locks.Lock(context.Background(), "orders:42")
			if err != nil {
				return err
			}
			fmt.Println(lease.Name())
			return lease.Unlock(context.Background())
		}),
	)
	fmt.Println(app.Err())
	// Output:
	// acme:orders:42
	// <nil>
}
