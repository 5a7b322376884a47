// Package deploy_test runs mortise in the ways in which Redis is deployed: over TLS as a user who
// may do no more than he has to, over a Unix socket, with sentinels, on a cluster
// whose slots move. Its servers are real, its clients go-redis, rueidis and valkey-go.
// docs/deployments.md names the test that shows each.
package deploy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	redisrueidis "github.com/redis/rueidis"
	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/valkey"
)

// patience bounds what must happen and has no bound of its own.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait; they can wait side by side.
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", "24")
	}
	redis.SetLogger(silent{}) // it tells each failed dial
	os.Exit(m.Run())
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// site is where a client finds its servers, and as whom.
type site struct {
	addrs          []string
	user, password string
	tls            *tls.Config
	socket         string // instead of addrs
	sentinels      bool   // that is what is at addrs
	cluster        bool
}

// stack is a client library as users set it up.
type stack struct {
	name string
	open func(t *testing.T, at site) backend.Backend
}

var stacks = []stack{{"go-redis", openGoRedis}, {"rueidis", openRueidis}, {"valkey-go", openValkey}}

func openGoRedis(t *testing.T, at site) backend.Backend {
	var rdb redis.UniversalClient
	switch {
	case at.sentinels:
		rdb = redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.MasterSet, SentinelAddrs: at.addrs,
			Username: at.user, Password: at.password, TLSConfig: at.tls,
		})
	case at.cluster:
		rdb = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs:    slices.Clone(at.addrs), // it appends to the slice, which clients would share
			Username: at.user, Password: at.password, TLSConfig: at.tls,
		})
	case at.socket != "":
		rdb = redis.NewClient(&redis.Options{Network: "unix", Addr: at.socket, Username: at.user, Password: at.password})
	default:
		rdb = redis.NewClient(&redis.Options{Addr: at.addrs[0], Username: at.user, Password: at.password, TLSConfig: at.tls})
	}
	t.Cleanup(func() { rdb.Close() })
	return redisgo.New(rdb)
}

func openRueidis(_ *testing.T, at site) backend.Backend {
	opt := redisrueidis.ClientOption{InitAddress: at.addrs, Username: at.user, Password: at.password, TLSConfig: at.tls}
	if at.sentinels {
		opt.Sentinel.MasterSet = redistest.MasterSet
	}
	if at.socket != "" {
		opt.InitAddress = []string{at.socket}
		opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	return rueidis.New(opt)
}

func openValkey(_ *testing.T, at site) backend.Backend {
	opt := valkeygo.ClientOption{InitAddress: at.addrs, Username: at.user, Password: at.password, TLSConfig: at.tls}
	if at.sentinels {
		opt.Sentinel.MasterSet = redistest.MasterSet
	}
	if at.socket != "" {
		opt.InitAddress = []string{at.socket}
		opt.DialCtxFn = func(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, "unix", path)
		}
	}
	return valkey.New(opt)
}

// each runs a test on every stack.
func each(t *testing.T, f func(t *testing.T, s stack)) {
	for _, s := range stacks {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
}

// client makes a mortise client until the end of the test.
func client(t *testing.T, b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	locks, err := mortise.New(b, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		locks.Shutdown(ctx)
	})
	return locks
}

// ready is client, once it has found its servers: on a busy machine that takes its time.
func ready(t *testing.T, b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	locks := client(t, b, opts...)
	eventually(t, "the client finds its servers", func() bool {
		err := locks.Ping(within(t, patience))
		if err != nil && !unavailable(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	return locks
}

// within is a context that ends a test which hangs.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// waiting runs a Lock that has to wait, and returns what it comes to.
func waiting(locks mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) <-chan error {
	done := make(chan error, 1)
	go func() {
		lease, err := locks.Lock(ctx, name, opts...)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		done <- err
	}()
	return done
}

// still fails the test if somebody who waits does not any more.
func still(t *testing.T, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		t.Fatalf("does not wait any more: %v", err)
	default:
	}
}

func ended(t *testing.T, what string, done <-chan error) {
	t.Helper()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

// unavailable tells of errors that a deployment which changes may cause, and nothing else.
func unavailable(err error) bool { return errors.Is(err, mortise.ErrUnavailable) }
