// Package deploy_test runs mortise in the ways in which Redis is deployed: over TLS as a user who
// may do no more than he has to, over a Unix socket, with sentinels, on a cluster
// whose slots move. Its servers are real, its clients go-redis, rueidis and valkey-go.
// docs/reference/deployments.md names the test that shows each.
package deploy_test

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	valkeygo "github.com/valkey-io/valkey-go"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/valkey"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// patience bounds what must happen and has no bound of its own.
const patience = time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait; they can wait side by side.
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", "24")
	}
	redis.SetLogger(harness.Silent{}) // it tells each failed dial
	os.Exit(m.Run())
}

// site is where a client finds its servers, and as which user.
type site struct {
	harness.Site
	socket string // instead of Addrs
}

// stack is a client library as users set it up.
type stack struct {
	name string
	open func(t *testing.T, at site) backend.Backend
}

var stacks = []stack{{"go-redis", openGoRedis}, {"rueidis", openRueidis}, {"valkey-go", openValkey}}

func openGoRedis(t *testing.T, at site) backend.Backend {
	if at.socket == "" {
		return at.Backend(t, harness.GoRedis)
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: at.socket, Username: at.User, Password: at.Password})
	t.Cleanup(func() { rdb.Close() })
	return redisgo.New(rdb)
}

func openRueidis(_ *testing.T, at site) backend.Backend {
	opt := at.Option()
	if at.socket != "" {
		opt.InitAddress, opt.DialCtxFn = []string{at.socket}, dialUnix
	}
	return rueidis.New(opt)
}

func openValkey(_ *testing.T, at site) backend.Backend {
	opt := valkeygo.ClientOption{InitAddress: at.Addrs, Username: at.User, Password: at.Password, TLSConfig: at.TLS}
	if at.Sentinels {
		opt.Sentinel.MasterSet = redistest.MasterSet
	}
	if at.socket != "" {
		opt.InitAddress, opt.DialCtxFn = []string{at.socket}, dialUnix
	}
	return valkey.New(opt)
}

func dialUnix(ctx context.Context, path string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return d.DialContext(ctx, "unix", path)
}

// server is the site of one server, and clustered that of a cluster's masters.
func server(addr string) site { return site{Site: harness.At(addr)} }

func clustered(c *redistest.Cluster) site {
	return site{Site: harness.Site{Addrs: c.Addrs(), Cluster: true}}
}

// as is the site for another user.
func (s site) as(user, password string) site {
	s.User, s.Password = user, password
	return s
}

// each runs a test on every stack.
func each(t *testing.T, f func(t *testing.T, s stack)) {
	for _, s := range stacks {
		harness.Beside(t, s.name, func(t *testing.T) { f(t, s) })
	}
}

// client makes a mortise client until the end of the test.
func client(t *testing.T, b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	return harness.Client(t, b, opts...)
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

func within(t *testing.T, d time.Duration) context.Context { return harness.Within(t, d) }

// eventually polls until holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	harness.Await(t, patience, what, holds)
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

// still fails the test if a waiter does not wait any more.
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
	harness.Checkf(t, harness.Receive(t, patience, what, done), "%s", what)
}

// gives unlocks a lease, where the deployment changes.
func gives(t *testing.T, ctx context.Context, lease *mortise.Lease) {
	t.Helper()
	err := lease.Unlock(ctx)
	harness.ErrorIf(t, err != nil && !unavailable(err), "%s: %v", lease.Name(), err)
}

// unavailable tells of errors that a deployment which changes may cause, and nothing else.
func unavailable(err error) bool { return errors.Is(err, mortise.ErrUnavailable) }
