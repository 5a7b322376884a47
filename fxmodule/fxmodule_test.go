package fxmodule_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	goruedis "github.com/redis/rueidis"
	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/goleak"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/fxmodule"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// two is what a service takes from a graph with two named lockers.
type two struct {
	fx.In

	Orders  mortise.Locker  `name:"orders"`
	Tenants mortise.Locker  `name:"tenants"`
	Client  *mortise.Client `name:"tenants"`
}

// named is a value under a name in the graph.
func named(v any, name string) fx.Option {
	return fx.Supply(fx.Annotate(v, fx.ResultTags(`name:"`+name+`"`)))
}

func TestTwoNamedLockersStartWorkAndStopWithNothingLeft(t *testing.T) {
	a, b := redistest.Start(t), redistest.Start(t)
	for name, x := range map[string]fx.Option{
		"memory": fx.Options(fxmodule.Memory(fxmodule.Named("orders")), fxmodule.Memory(fxmodule.Named("tenants"))),
		"go-redis": fx.Options(
			named(&redis.UniversalOptions{Addrs: []string{a.Addr()}}, "orders"), fxmodule.GoRedis(fxmodule.Named("orders")),
			named(&redis.Options{Addr: b.Addr()}, "tenants"), fxmodule.GoRedis(fxmodule.Named("tenants")),
		),
		"rueidis": fx.Options(
			named(goruedis.ClientOption{InitAddress: []string{a.Addr()}}, "orders"), fxmodule.Rueidis(fxmodule.Named("orders")),
			named(goruedis.ClientOption{InitAddress: []string{b.Addr()}}, "tenants"),
			fxmodule.Rueidis(fxmodule.Named("tenants")),
		),
		"both": fx.Options(
			named(&redis.Options{Addr: a.Addr()}, "orders"), fxmodule.GoRedis(fxmodule.Named("orders")),
			named(goruedis.ClientOption{InitAddress: []string{b.Addr()}}, "tenants"),
			fxmodule.Rueidis(fxmodule.Named("tenants")),
		),
		"by URLs": fx.Options(
			named(fxmodule.URL("redis://"+a.Addr()), "orders"), fxmodule.Open(fxmodule.Named("orders")),
			named(fxmodule.URL("rueidis://"+b.Addr()), "tenants"), fxmodule.Open(fxmodule.Named("tenants")),
		),
		"by URLs, in memory": fx.Options(
			named(fxmodule.URL("memory:orders"), "orders"), fxmodule.Open(fxmodule.Named("orders")),
			named(fxmodule.URL("memory:tenants"), "tenants"), fxmodule.Open(fxmodule.Named("tenants")),
		),
	} {
		t.Run(name, func(t *testing.T) {
			defer nothingLeft(t, goleak.IgnoreCurrent())
			var in two
			options := fx.Options(x, fx.Invoke(func(got two) { in = got }))
			check.Done(t, fx.ValidateApp(options))
			app := fxtest.New(t, options)
			app.RequireStart()
			ctx := context.Background()
			lease := check.Value(in.Orders.Lock(ctx, "n")).In(t)
			other := check.Value(in.Tenants.TryLock(ctx, "n")).In(t)
			check.Is(t, "the client of the locker that holds it", check.Err(in.Client.TryLock(ctx, "n")), mortise.ErrNotAcquired)
			for _, l := range []*mortise.Lease{lease, other} {
				check.Done(t, l.Unlock(ctx))
			}
			app.RequireStop()
			check.Is(t, "after the stop", check.Err(in.Orders.TryLock(ctx, "n")), mortise.ErrClosed)
		})
	}
}

// nothingLeft waits until no goroutine is left but those to be ignored: a client library may
// still be closing when Stop has returned.
func nothingLeft(t *testing.T, ignore goleak.Option) {
	t.Helper()
	err := goleak.Find(ignore)
	for end := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(end); {
		err = goleak.Find(ignore)
	}
	check.Done(t, err)
}

func TestAStoreThatIsNotThereEndsTheStart(t *testing.T) {
	check.Long(t)
	l := check.Value(net.Listen("tcp", "127.0.0.1:0")).In(t)
	defer l.Close()
	taken := check.Value(net.Dial("tcp", l.Addr().String())).In(t)
	defer taken.Close()
	nowhere := taken.LocalAddr().String() // as long as it is a client's, no server can listen there
	for name, x := range map[string]fx.Option{
		"go-redis": fx.Options(fx.Supply(&redis.Options{Addr: nowhere}), fxmodule.GoRedis()),
		"rueidis":  fx.Options(fx.Supply(goruedis.ClientOption{InitAddress: []string{nowhere}}), fxmodule.Rueidis()),
		"a URL":    fx.Options(fx.Supply(fxmodule.URL("redis://u:secret@"+nowhere)), fxmodule.Open()),
	} {
		t.Run(name, func(t *testing.T) {
			defer nothingLeft(t, goleak.IgnoreCurrent())
			app := fx.New(fx.NopLogger, x, fx.Invoke(func(mortise.Locker) {}))
			err := app.Start(context.Background())
			check.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), nowhere) ||
				!strings.Contains(err.Error(), "cannot start"),
				"Start: %v", err)
			check.ErrorIf(t, strings.Contains(err.Error(), "secret"), "a password: %v", err)
			check.ErrorIf(t, errors.Is(err, context.DeadlineExceeded), "it was the start's own context that ended")
		})
	}
}

// A server that answers, and where no lock can work, ends the start with the remedy.
func TestAStoreThatCannotServeEndsTheStart(t *testing.T) {
	for name, x := range map[string]struct {
		prepare []string
		says    string
	}{
		"a replica": {[]string{"REPLICAOF", "127.0.0.1", "1"}, "role: the server is a replica, and refuses writes; give " +
			"the client the primary's address"},
		"no channels": {[]string{"ACL", "SETUSER", "default", "resetchannels"}, "channels: locks: the user lacks " +
			"&redisson_lock__channel:{*; ACL SETUSER <user> &redisson_lock__channel:{*"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			srv.Must(x.prepare...)
			app := fx.New(fx.NopLogger, fx.Supply(&redis.Options{Addr: srv.Addr()}), fxmodule.GoRedis(),
				fx.Invoke(func(mortise.Locker) {}))
			err := app.Start(t.Context())
			check.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), x.says) ||
				!strings.Contains(err.Error(), "the locks cannot start, their store cannot serve them"), "Start: %v", err)
		})
	}
}

// A server that accepts connections and never answers keeps the client library waiting for longer than the start may
// take: the module's own error, with the address, comes before fx's bare one.
func TestAStartThatIsShorterThanTheLibrarysTimeOutNamesTheStore(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt) // starts the goroutine of os/signal outside of the bubble
	defer signal.Stop(signals)
	const at = "192.0.2.7:6379" // no name: the resolver has state outside of the bubble
	for name, module := range map[string]func(t *testing.T, dial func() (net.Conn, error)) fx.Option{
		"go-redis": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			return fx.Options(fxmodule.GoRedis(), fx.Supply(&redis.Options{Addr: at,
				Dialer: func(context.Context, string, string) (net.Conn, error) { return dial() }}))
		},
		"go-redis, any": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			return fx.Options(fxmodule.GoRedis(), fx.Supply(&redis.UniversalOptions{Addrs: []string{at},
				Dialer: func(context.Context, string, string) (net.Conn, error) { return dial() }}))
		},
		"go-redis, cluster": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			return fx.Options(fxmodule.GoRedis(), fx.Supply(&redis.ClusterOptions{Addrs: []string{at},
				Dialer: func(context.Context, string, string) (net.Conn, error) { return dial() }}))
		},
		"rueidis": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			return fx.Options(fxmodule.Rueidis(), fx.Supply(goruedis.ClientOption{InitAddress: []string{at},
				DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return dial() }}))
		},
		"go-redis, a client of the graph": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			client := redis.NewClient(&redis.Options{Addr: at,
				Dialer: func(context.Context, string, string) (net.Conn, error) { return dial() }})
			t.Cleanup(func() { client.Close() })
			return fx.Options(fxmodule.GoRedis(), fx.Supply(client))
		},
		"rueidis, a client of the graph": func(t *testing.T, dial func() (net.Conn, error)) fx.Option {
			client := check.Value(goruedis.NewClient(goruedis.ClientOption{InitAddress: []string{at},
				ForceSingleClient: true, AlwaysRESP2: true, DisableCache: true, ClientSetInfo: goruedis.DisableClientSetInfo,
				DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return dial() }})).In(t)
			t.Cleanup(client.Close)
			return fx.Options(fxmodule.Rueidis(), fx.Supply(fx.Annotate(client, fx.As(new(goruedis.Client)))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mute atomic.Bool
				dial := func() (net.Conn, error) {
					here, there := net.Pipe()
					t.Cleanup(func() { there.Close() })
					go answer(there, &mute)
					return here, nil
				}
				options := module(t, dial)
				mute.Store(true)
				app := fx.New(fx.NopLogger, options, fx.Invoke(func(mortise.Locker) {}))
				check.Done(t, app.Err())
				ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
				defer cancel()
				err := app.Start(ctx)
				check.ErrorIf(t, ctx.Err() != nil, "Start returned at the end of its context")
				check.Is(t, "Start", err, mortise.ErrUnavailable)
				check.Is(t, "Start", err, context.DeadlineExceeded)
				for _, part := range []string{"fxmodule: the locks cannot start", at, "720ms"} {
					check.ErrorIf(t, !strings.Contains(err.Error(), part), "Start does not say %q: %v", part, err)
				}
				time.Sleep(time.Minute) // the client library's own time-outs end its goroutines
			})
		})
	}
}

// answer is a server that says OK to each command, until it is mute.
func answer(c net.Conn, mute *atomic.Bool) {
	for lines := bufio.NewScanner(c); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "*") && !mute.Load() {
			go io.WriteString(c, "+OK\r\n")
		}
	}
}

// go-redis' Close waits for the search for a master, which lasts until the library's time-out: the start does not wait
// for Close. On a busy machine a start may be too short for the module's error: it is repeated with more time.
func TestASentinelThatDoesNotAnswerEndsTheStartInTime(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	for limit := 200 * time.Millisecond; ; limit *= 2 {
		app := fx.New(fx.NopLogger, fxmodule.GoRedis(), fx.Invoke(func(mortise.Locker) {}),
			fx.Supply(&redis.FailoverOptions{SentinelAddrs: []string{"192.0.2.7:26379"}, MasterName: "orders",
				DialTimeout: time.Hour,
				Dialer:      func(context.Context, string, string) (net.Conn, error) { <-over; return nil, io.EOF }}))
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		err := app.Start(ctx)
		cancel()
		switch {
		case errors.Is(err, mortise.ErrUnavailable):
			check.ErrorIf(t, !strings.Contains(err.Error(), `master "orders" of the sentinels 192.0.2.7:26379`),
				"Start: %v", err)
			return
		case limit > 10*time.Second:
			t.Fatalf("a start of %v: %v", limit, err)
		}
	}
}

// A graph can fail after a constructor has used the locks; fx then calls no hook.
func TestAClientWhoseGraphFailsLaterIsClosed(t *testing.T) {
	server := redistest.Start(t)
	failed := errors.New("no port is left")
	for name, x := range map[string]fx.Option{
		"memory":   fxmodule.Memory(),
		"go-redis": fx.Options(fx.Supply(&redis.Options{Addr: server.Addr()}), fxmodule.GoRedis()),
		"rueidis":  fx.Options(fx.Supply(goruedis.ClientOption{InitAddress: []string{server.Addr()}}), fxmodule.Rueidis()),
		"a URL":    fx.Options(fx.Supply(fxmodule.URL("redis://"+server.Addr())), fxmodule.Open()),
	} {
		t.Run(name, func(t *testing.T) {
			defer nothingLeft(t, goleak.IgnoreCurrent())
			running := fxtest.New(t, x, fx.Invoke(func(mortise.Locker) {})) // made of the same option, and started
			running.RequireStart()
			defer running.RequireStop()
			var locks mortise.Locker
			app := fx.New(fx.NopLogger, x, fx.Populate(&locks),
				fx.Invoke(func() error {
					return mortise.Do(t.Context(), locks, "n", func(context.Context) error { return nil })
				}),
				fx.Invoke(func() error { return failed }))
			check.Is(t, "Start", app.Start(t.Context()), failed)
			check.Is(t, "a lock of the graph that failed", check.Err(locks.TryLock(t.Context(), "n")), mortise.ErrClosed)
		})
	}
}

func TestAClientOfTheGraphStaysOpen(t *testing.T) {
	server := redistest.Start(t)
	single := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer single.Close()
	other := check.Value(goruedis.NewClient(goruedis.ClientOption{InitAddress: []string{server.Addr()}})).In(t)
	defer other.Close()
	app := fxtest.New(t,
		fx.Supply(single), fxmodule.GoRedis(),
		fx.Supply(fx.Annotate(other, fx.As(new(goruedis.Client)), fx.ResultTags(`name:"r"`))),
		fxmodule.Rueidis(fxmodule.Named("r")),
		fx.Invoke(fx.Annotate(func(a, b mortise.Locker) {}, fx.ParamTags("", `name:"r"`))),
	)
	app.RequireStart()
	app.RequireStop()
	check.Done(t, single.Ping(context.Background()).Err())
	check.Done(t, other.Do(context.Background(), other.B().Ping().Build()).Error())
}

func TestAGraphWithoutOrWithTwoStoresSaysWhatToDo(t *testing.T) {
	use := fx.Invoke(func(mortise.Locker) {})
	for name, x := range map[string]struct {
		option fx.Option
		says   []string
	}{
		"no go-redis": {fx.Options(fxmodule.GoRedis(), use),
			[]string{"fx.Supply", "redis.UniversalClient", "*redis.Options"}},
		"no URL":    {fx.Options(fxmodule.Open(), use), []string{"fx.Supply", "fxmodule.URL"}},
		"not a URL": {fx.Options(fx.Supply(fxmodule.URL("orders")), fxmodule.Open(), use), []string{"scheme"}},
		"not imported": {fx.Options(fx.Supply(fxmodule.URL("postgres://u:secret@h/db")), fxmodule.Open(), use),
			[]string{"import _", "backend/postgres"}},
		"no rueidis": {fx.Options(fxmodule.Rueidis(), use), []string{"fx.Supply", "rueidis.ClientOption"}},
		"another's name": {fx.Options(fx.Supply(&redis.Options{}), fxmodule.GoRedis(fxmodule.Named("orders")),
			fx.Invoke(fx.Annotate(func(mortise.Locker) {}, fx.ParamTags(`name:"orders"`)))), []string{`"orders"`}},
		"two": {fx.Options(fx.Supply(&redis.Options{}, &redis.UniversalOptions{}), fxmodule.GoRedis(),
			use), []string{"*redis.Options", "*redis.UniversalOptions", "Named"}},
		"a bad name":           {fxmodule.Memory(fxmodule.Named("a\"b")), []string{"Named"}},
		"no name":              {fxmodule.GoRedis(fxmodule.Named("")), []string{"Named"}},
		"no middleware's name": {fxmodule.Memory(fxmodule.HTTP("", httplock.RouteKey("a:{b}"))), []string{"HTTP"}},
		"no key":               {fxmodule.Memory(fxmodule.HTTP("a", nil)), []string{"KeyFunc"}},
		"a nil option":         {fxmodule.Memory(nil), []string{"nil Option"}},
		"another observer": {fxmodule.Observe(func() *mortise.Observer { return nil }),
			[]string{"Observe", "*mortise.Observer"}},
		"no observer":    {fxmodule.Observe(func() {}), []string{"Observe"}},
		"no constructor": {fxmodule.Observe(nil), []string{"Observe"}},
		"a bad option": {fx.Options(fxmodule.Memory(fxmodule.ClientOptions(mortise.WithWatchdogTimeout(1))), use),
			[]string{"WithWatchdogTimeout"}},
	} {
		err := fx.New(fx.NopLogger, x.option).Err()
		if !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		check.ErrorIf(t, strings.Contains(err.Error(), "secret"), "%s: a password: %v", name, err)
		for _, s := range x.says {
			check.ErrorIf(t, !strings.Contains(err.Error(), s), "%s: does not say %s: %v", name, s, err)
		}
	}
}

func TestWrongLockerOptionsFailTheStart(t *testing.T) {
	app := fx.New(fx.NopLogger, fx.Invoke(func(mortise.Locker) {}),
		fxmodule.Memory(fxmodule.LockerOptions(mortise.Fair(), mortise.Polling(time.Second))))
	err := app.Start(t.Context())
	check.Is(t, "Start", err, mortise.ErrInvalid)
	check.ErrorIf(t, !strings.Contains(err.Error(), "Polling") || strings.Contains(err.Error(), "store"), "%v", err)
}

func TestTheGraphsLoggerAndObserversAreUsed(t *testing.T) {
	check.Long(t)
	var (
		log      bytes.Buffer
		acquired atomic.Int32
		counted  atomic.Int32
		locks    mortise.Locker
	)
	app := fxtest.New(t,
		fxmodule.Memory(fxmodule.LockerOptions(mortise.Fenced())),
		fx.Supply(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		fx.Supply(&counted),
		fxmodule.Observe(func(n *atomic.Int32) (mortise.Observer, error) { // takes its parameters from the graph
			return mortise.Observer{Lost: func(mortise.Event) { n.Add(1) }}, nil
		}),
		fxmodule.Observe(func() mortise.Observer {
			return mortise.Observer{Acquired: func(mortise.Event) { acquired.Add(1) }}
		}),
		fx.Populate(&locks),
	)
	app.RequireStart()
	lease := check.Value(locks.Lock(context.Background(), "n", mortise.WithLease(2*time.Second))).In(t)
	check.ErrorIf(t, lease.Token() == 0, "the Locker is not of the kind that was asked for")
	<-lease.Context().Done()
	app.RequireStop()
	check.ErrorIf(t, !strings.Contains(log.String(), "lease ended"), "the log says %q", log.String())
	check.ErrorIf(t, acquired.Load() != 1, "the observer was not called")
	check.ErrorIf(t, counted.Load() != 1, "the observer with a parameter was not called")
}

func TestAStopIsBoundedAndReleasesNothingUnderRunningWork(t *testing.T) {
	check.Long(t)
	server := redistest.Start(t)
	var locks mortise.Locker
	app := fxtest.New(t, fx.Supply(&redis.Options{Addr: server.Addr()}), fxmodule.GoRedis(), fx.Populate(&locks))
	app.RequireStart()
	lease := check.Value(locks.Lock(context.Background(), "n")).In(t)
	// fx does not even call a hook once this is over.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	check.Is(t, "Stop", app.Stop(ctx), context.DeadlineExceeded)
	select { // fx does not wait for a hook whose context has ended
	case <-lease.Context().Done():
	case <-time.After(20 * time.Second):
	}
	if !errors.Is(lease.Err(), mortise.ErrClosed) {
		t.Errorf("the lease: %v", lease.Err())
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	n, err := rdb.Exists(context.Background(), "n").Result()
	check.ErrorIf(t, n != 1 || err != nil, "the record was removed (%d, %v) while the work may still run", n, err)
}

// fx skips the hooks that remain once the stop's context has ended.
func TestLeasesThatAreStillHeldLeaveTimeForTheRemainingHooks(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt) // starts the goroutine of os/signal outside of the bubble
	defer signal.Stop(signals)
	synctest.Test(t, func(t *testing.T) {
		var in struct {
			fx.In
			A mortise.Locker `name:"a"`
			B mortise.Locker `name:"b"`
		}
		flushed := false
		flush := func(life fx.Lifecycle) {
			life.Append(fx.StopHook(func() { flushed = true }))
		}
		app := fxtest.New(t, fx.Invoke(flush), fxmodule.Memory(fxmodule.Named("a")), fxmodule.Memory(fxmodule.Named("b")),
			fx.Populate(&in))
		app.RequireStart()
		check.NoError(t, check.Err(in.A.Lock(t.Context(), "n")))
		check.NoError(t, check.Err(in.B.Lock(t.Context(), "n")))
		ctx, cancel := context.WithTimeout(t.Context(), fx.DefaultTimeout)
		defer cancel()
		check.Is(t, "Stop", app.Stop(ctx), context.DeadlineExceeded)
		check.ErrorIf(t, ctx.Err() != nil, "Stop returned at the end of its context")
		check.ErrorIf(t, !flushed, "the hook that was appended first has not run")
		for name, l := range map[string]mortise.Locker{"a": in.A, "b": in.B} {
			check.Is(t, name+" after the stop", check.Err(l.TryLock(t.Context(), "other")), mortise.ErrClosed)
		}
	})
}

// Two applications on one store share locks; the store stays usable when one of them ends.
func TestAMemoryStoreOfTheGraphIsUsed(t *testing.T) {
	for name, option := range map[string]func(*memory.Store) fx.Option{
		"plain": func(s *memory.Store) fx.Option { return fx.Options(fx.Supply(s), fxmodule.Memory()) },
		"named": func(s *memory.Store) fx.Option {
			return fx.Options(named(s, "orders"), fxmodule.Memory(fxmodule.Named("orders")),
				fx.Provide(fx.Annotate(func(l mortise.Locker) mortise.Locker { return l }, fx.ParamTags(`name:"orders"`))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			store := memory.New()
			var a, b mortise.Locker
			first := fxtest.New(t, option(store), fx.Populate(&a))
			second := fxtest.New(t, option(store), fx.Populate(&b))
			first.RequireStart()
			second.RequireStart()
			lease := check.Value(a.TryLock(ctx, "n")).In(t)
			check.Is(t, "the other application, while one holds it", check.Err(b.TryLock(ctx, "n")), mortise.ErrNotAcquired)
			check.Done(t, lease.Unlock(ctx))
			first.RequireStop()
			_, err := b.TryLock(ctx, "n", mortise.WithLease(time.Minute))
			check.ErrorIf(t, err != nil, "the other application, after one has stopped: %v", err)
			down, cancel := context.WithCancel(ctx)
			cancel()
			second.Stop(down) // does not wait for the lease
		})
	}
}

// Findings U10: two named modules share one observer, and are told apart in what it is told.
func TestEventsOfTwoNamedLockersNameTheModule(t *testing.T) {
	var told sync.Map
	observer := func() mortise.Observer {
		return mortise.Observer{Acquired: func(e mortise.Event) { told.Store(e.Name, e.Client) }}
	}
	var in struct {
		fx.In
		Orders  mortise.Locker `name:"orders"`
		Tenants mortise.Locker `name:"tenants"`
		Other   mortise.Locker `name:"other"`
	}
	app := fxtest.New(t, fxmodule.Observe(observer), fxmodule.Memory(fxmodule.Named("orders")),
		fxmodule.Memory(fxmodule.Named("tenants")),
		fxmodule.Memory(fxmodule.Named("other"), fxmodule.ClientOptions(mortise.WithName("a name of its own"))),
		fx.Populate(&in))
	app.RequireStart()
	want := map[string]string{"a": "orders", "b": "tenants", "c": "a name of its own"}
	for name, l := range map[string]mortise.Locker{"a": in.Orders, "b": in.Tenants, "c": in.Other} {
		check.Done(t, check.Value(l.Lock(t.Context(), name)).In(t).Unlock(t.Context()))
		got, _ := told.Load(name)
		check.ErrorIf(t, got != want[name], "the event of %s names the client %v, want %q", name, got, want[name])
	}
	app.RequireStop()
}
