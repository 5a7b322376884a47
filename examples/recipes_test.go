//go:build unix

package examples

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/semaphore"
)

// The functions down to the next comment of this kind are the recipes of the README and of docs/how-to.

func shipOrder(ctx context.Context, locks mortise.Locker) error {
	lease, err := locks.Lock(ctx, "orders:42", mortise.WithWait(5*time.Second))
	if err != nil {
		return err // ErrNotAcquired: held by another owner; ErrUnavailable: Redis failed
	}
	defer lease.Unlock(ctx)
	return shipNow(lease.Context(), "42") // the context ends if the lock is lost
}

func routes(locks mortise.Locker, ship http.Handler) http.Handler {
	// 42, 042 and +42 are one lock, and the handler sees 42.
	key := httplock.RouteKey("orders:{id:int}")
	lock := httplock.New(locks, key, httplock.WithWait(2*time.Second)) // without WithWait: 423 at once
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/ship", lock(ship)) // the request's context ends if the lock is lost
	return mux
}

func newApp(redis string, more ...fx.Option) *fx.App {
	return fx.New(
		fx.Supply(&goredis.UniversalOptions{Addrs: []string{redis}}),
		fxmodule.GoRedis(),    // provides mortise.Locker and *mortise.Client
		fx.Provide(NewOrders), // func NewOrders(locks mortise.Locker) *Orders
		fx.Options(more...),
	)
}

func newTwoStores(orders, stock string, more ...fx.Option) *fx.App {
	return fx.New(
		fx.Supply(
			fx.Annotate(&goredis.UniversalOptions{Addrs: []string{orders}}, fx.ResultTags(`name:"orders"`)),
			fx.Annotate(&goredis.UniversalOptions{Addrs: []string{stock}}, fx.ResultTags(`name:"stock"`)),
		),
		fxmodule.GoRedis(fxmodule.Named("orders")),
		fxmodule.GoRedis(fxmodule.Named("stock")),
		fx.Provide(
			fx.Annotate(NewOrders, fx.ParamTags(`name:"orders"`)),
			fx.Annotate(NewStock, fx.ParamTags(`name:"stock"`)),
		),
		fx.Options(more...),
	)
}

func reportEveryMinute(ctx context.Context, locks *mortise.Client, report func(context.Context, time.Time)) error {
	return once.Every(ctx, locks, "report", time.Minute, report) // each tick is started at most once in the fleet
}

func leadScheduler(ctx context.Context, locks *mortise.Client, lead func(context.Context, int64) error) error {
	return leader.Run(ctx, locks, "scheduler", func(ctx context.Context, term leader.Term) error {
		return lead(ctx, term.Token) // ctx ends when leadership is lost; stores refuse an older token
	})
}

func partnerCaller(locks *mortise.Client, call func(context.Context) error) func(context.Context) error {
	partner := semaphore.New(locks, "partner-api", 10) // once: it declares the limit of the fleet
	return func(ctx context.Context) error {
		permit, err := partner.Acquire(ctx, 1, mortise.WithWait(time.Minute))
		if err != nil {
			return err
		}
		defer permit.Release(ctx) // a permit of a dead process expires
		return call(permit.Context())
	}
}

func lookUp(ctx context.Context, locks *mortise.Client, read func(context.Context) error) error {
	return mortise.Do(ctx, locks.RW().Read, "catalog", read) // locks.RW().Write excludes all readers
}

func transfer(ctx context.Context, locks *mortise.Client, move func(context.Context) error) error {
	lease, err := locks.LockAll(ctx, []string{"accounts:7", "accounts:8"}) // all or none, without deadlock
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return move(lease.Context())
}

func overThree(a, b, c *mortise.Client) (mortise.Locker, error) {
	return quorum.New(a, b, c) // three Redis servers without replication; survives the loss of one
}

func onBoth(ctx context.Context, old, new mortise.Locker, name string, work func(context.Context) error) error {
	return mortise.Do(ctx, old, name, func(ctx context.Context) error {
		return mortise.Do(ctx, new, name, work) // its context ends if either lock is lost
	})
}

func TestShip(t *testing.T) {
	store := memory.New() // real locks without a server; store.SetDown(err) makes the store unavailable
	locks, err := mortise.New(store)
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close()
	if err := NewOrders(locks).Ship(t.Context(), 42); err != nil {
		t.Error(err)
	}
}

// From here on the recipes run.

// Orders is a service that takes a lock for each order.
type Orders struct{ locks mortise.Locker }

// NewOrders makes the service.
func NewOrders(locks mortise.Locker) *Orders { return &Orders{locks} }

// Stock is a service whose locks are on another store than those of Orders.
type Stock struct{ locks mortise.Locker }

// NewStock makes the service.
func NewStock(locks mortise.Locker) *Stock { return &Stock{locks} }

// Ship works on an order under its lock.
func (o *Orders) Ship(ctx context.Context, id int) error {
	return mortise.Do(ctx, o.locks, fmt.Sprint("orders:", id), func(ctx context.Context) error { return ctx.Err() })
}

// onRedis makes a client on a server.
func onRedis(t *testing.T, server *redistest.Server) *mortise.Client {
	t.Helper()
	rdb := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	t.Cleanup(func() { rdb.Close() })
	locks, err := mortise.New(redisgo.New(rdb))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	return locks
}

// shipNow stands for the work.
func shipNow(ctx context.Context, _ string) error { return ctx.Err() }

// held reports an error unless name is held while f runs.
func held(t *testing.T, locks *mortise.Client, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if info, err := locks.Inspect(ctx, name); err != nil || !info.Held {
			t.Errorf("%s: %+v, %v; it should be held", name, info, err)
		}
		return nil
	}
}

func TestRecipeOfRoutes(t *testing.T) {
	locks := onRedis(t, redistest.Start(t))
	inside := held(t, locks, "orders:42")
	handler := routes(locks, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside(r.Context())
		io.WriteString(w, r.PathValue("id"))
	}))
	for _, id := range []string{"42", "042"} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/orders/"+id+"/ship", nil))
		if w.Code != 200 || w.Body.String() != "42" {
			t.Errorf("%s: %d %q", id, w.Code, w.Body)
		}
	}
}

func TestRecipeOfFx(t *testing.T) {
	server := redistest.Start(t)
	var shipped error
	app := newApp(server.Addr(), fx.NopLogger, fx.Invoke(func(orders *Orders, life fx.Lifecycle) {
		life.Append(fx.StartHook(func(ctx context.Context) { shipped = orders.Ship(ctx, 42) }))
	}))
	if err := errors.Join(app.Start(t.Context()), shipped, app.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

// Each of the two services has the locks of its own store.
func TestRecipeOfTwoStores(t *testing.T) {
	orders, stock := redistest.Start(t), redistest.Start(t)
	held := func(server *redistest.Server) *mortise.Lease {
		lease, err := onRedis(t, server).TryLock(t.Context(), "orders:42")
		if err != nil {
			t.Fatal(err)
		}
		return lease
	}
	app := newTwoStores(orders.Addr(), stock.Addr(), fx.NopLogger, fx.Invoke(func(o *Orders, s *Stock, life fx.Lifecycle) {
		life.Append(fx.StartHook(func(ctx context.Context) {
			_, ofOrders := o.locks.TryLock(ctx, "orders:42")
			lease, ofStock := s.locks.TryLock(ctx, "orders:42")
			if !errors.Is(ofOrders, mortise.ErrNotAcquired) || ofStock != nil {
				t.Errorf("the lock that is held on the store of Orders: %v; the same name on that of Stock: %v", ofOrders, ofStock)
			}
			if err := lease.Unlock(ctx); err != nil {
				t.Error(err)
			}
		}))
	}))
	defer held(orders).Unlock(t.Context())
	if err := errors.Join(app.Start(t.Context()), app.Stop(t.Context())); err != nil {
		t.Error(err)
	}
}

func TestRecipesOfJobs(t *testing.T) {
	locks := onRedis(t, redistest.Start(t))
	ctx, stop := context.WithCancel(t.Context())
	err := leadScheduler(ctx, locks, func(ctx context.Context, token int64) error {
		if token <= 0 {
			t.Errorf("the token is %d", token)
		}
		return held(t, locks, "scheduler")(ctx)
	})
	if err != nil {
		t.Error(err)
	}
	stop() // the next tick may be a minute away
	if err := reportEveryMinute(ctx, locks, func(context.Context, time.Time) {}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestRecipesOfLocksSemaphoresReadersAndLockAll(t *testing.T) {
	locks := onRedis(t, redistest.Start(t))
	var ran atomic.Int32
	counted := func(f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { ran.Add(1); return f(ctx) }
	}
	err := errors.Join(
		shipOrder(t.Context(), locks),
		partnerCaller(locks, counted(func(ctx context.Context) error {
			if free, err := semaphore.New(locks, "partner-api", 10).Available(ctx); free != 9 || err != nil {
				t.Errorf("%d permits are free: %v", free, err)
			}
			return nil
		}))(t.Context()),
		lookUp(t.Context(), locks, counted(held(t, locks, "catalog"))),
		transfer(t.Context(), locks, counted(held(t, locks, "accounts:8"))),
	)
	if err != nil || ran.Load() != 3 {
		t.Errorf("%d of 3 ran: %v", ran.Load(), err)
	}
}

func TestRecipeOfQuorum(t *testing.T) {
	var clients []*mortise.Client
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	for _, s := range servers {
		rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
		t.Cleanup(func() { rdb.Close() })
		c, err := mortise.New(redisgo.New(rdb), quorum.WithRejoinDelay(0)) // the servers are new
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		clients = append(clients, c)
	}
	locks, err := overThree(clients[0], clients[1], clients[2])
	if err != nil {
		t.Fatal(err)
	}
	servers[2].Stop()
	if err := NewOrders(locks).Ship(t.Context(), 42); err != nil {
		t.Error(err)
	}
}

// TestPrograms runs the program of the README, and of the first tutorial, on a Redis.
// The versions of a fleet that moves: the old store alone, both, the new store alone. Any two that run at the same time
// in docs/how-to/change-store.md exclude each other; the first and the last would not.
func TestRecipeOfAnotherStore(t *testing.T) {
	old := onRedis(t, redistest.Start(t))
	later, err := mortise.New(memory.New())
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	type version func(context.Context, func(context.Context) error) error
	var (
		before version = func(ctx context.Context, work func(context.Context) error) error {
			return mortise.Do(ctx, old, "orders:42", work)
		}
		between version = func(ctx context.Context, work func(context.Context) error) error {
			return onBoth(ctx, old, later, "orders:42", work)
		}
		after version = func(ctx context.Context, work func(context.Context) error) error {
			return mortise.Do(ctx, later, "orders:42", work)
		}
	)
	for name, fleet := range map[string][]version{
		"there": {before, between}, "both": {between, between}, "then": {between, after},
	} {
		t.Run(name, func(t *testing.T) {
			var inside, turns atomic.Int32
			errs := make(chan error, 16)
			for i := range cap(errs) {
				go func() {
					errs <- fleet[i%2](t.Context(), func(ctx context.Context) error {
						if n := inside.Add(1); n != 1 {
							return fmt.Errorf("%d are inside", n)
						}
						<-time.After(time.Millisecond) // who may come in meanwhile, does
						turns.Add(1)
						inside.Add(-1)
						return ctx.Err()
					})
				}()
			}
			for range cap(errs) {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if turns.Load() != int32(cap(errs)) {
				t.Errorf("%d turns", turns.Load())
			}
		})
	}
}

// Work on both ends with either lock.
func TestRecipeOfAnotherStoreEndsWithEitherLock(t *testing.T) {
	stores := make([]*mortise.Client, 2)
	for i := range stores {
		var err error
		if stores[i], err = mortise.New(memory.New()); err != nil {
			t.Fatal(err)
		}
		defer stores[i].Close()
	}
	for i, c := range stores {
		err := onBoth(t.Context(), stores[0], stores[1], "n", func(ctx context.Context) error {
			if _, err := c.ForceUnlock(context.Background(), "n", ""); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, mortise.ErrLost) {
			t.Errorf("the lock of store %d is lost: %v", i, err)
		}
	}
}

func TestPrograms(t *testing.T) {
	server := redistest.Start(t)
	for _, page := range []string{"../README.md", "../docs/tutorials/first-lock.md"} {
		code := program(t, page)
		if n := strings.Count(code, `"localhost:6379"`); n != 1 {
			t.Fatalf("%s: the address of Redis is there %d times", page, n)
		}
		out := runProgram(t, strings.Replace(code, `"localhost:6379"`, fmt.Sprintf("%q", server.Addr()), 1))
		if out != "holding orders:42\n" {
			t.Errorf("%s: the program says %q", page, out)
		}
	}
}
