//go:build unix

package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// The client libraries.
const (
	GoRedis = "go-redis"
	Rueidis = "rueidis"
)

// Libraries are both.
var Libraries = []string{GoRedis, Rueidis}

// Site is where a client finds its servers, as which user, and what tests vary about the client.
type Site struct {
	Addrs          []string // of the servers, or of the sentinels
	Sentinels      bool     // that is what is at Addrs
	Cluster        bool
	User, Password string
	TLS            *tls.Config
	Wires          map[string]string // where to connect to instead, by address
	Name           string            // that CLIENT LIST shows
	Pool           int               // go-redis's PoolSize; 1 is one connection for rueidis too
	Timeout        time.Duration     // of a command; zero for the library's own
	NoCache        bool              // of rueidis
}

// At is the site of one server.
func At(addr string) Site { return Site{Addrs: []string{addr}} }

func (s Site) dial(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
	if to, ok := s.Wires[addr]; ok {
		addr = to
	}
	return d.DialContext(ctx, "tcp", addr)
}

// Universal is a go-redis client.
func (s Site) Universal() goredis.UniversalClient {
	o := &goredis.UniversalOptions{
		Addrs:    slices.Clone(s.Addrs), // a cluster client appends to the slice
		Username: s.User, Password: s.Password, TLSConfig: s.TLS, IsClusterMode: s.Cluster,
		ClientName: s.Name, PoolSize: s.Pool, ReadTimeout: s.Timeout, WriteTimeout: s.Timeout, DialTimeout: s.Timeout,
	}
	if s.Sentinels {
		o.MasterName = redistest.MasterSet
	}
	if s.Wires != nil {
		o.Dialer = func(ctx context.Context, _, addr string) (net.Conn, error) {
			return s.dial(ctx, &net.Dialer{Timeout: s.Timeout}, addr)
		}
	}
	return goredis.NewUniversalClient(o)
}

// Option is what a rueidis client is made with.
func (s Site) Option() rueidisclient.ClientOption {
	o := rueidisclient.ClientOption{
		InitAddress: s.Addrs, Username: s.User, Password: s.Password, TLSConfig: s.TLS,
		ClientName: s.Name, DisableCache: s.NoCache, ConnWriteTimeout: s.Timeout,
	}
	if s.Sentinels {
		o.Sentinel.MasterSet = redistest.MasterSet
	}
	if s.Pool == 1 { // by default some four
		o.PipelineMultiplex = -1
	}
	o.Dialer.Timeout, o.Dialer.KeepAlive = s.Timeout, s.Timeout/4
	if s.Wires != nil {
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return s.dial(ctx, d, addr)
		}
	}
	return o
}

// Open makes a backend on one of the libraries, and what closes the client below it.
func (s Site) Open(library string) (backend.Backend, func(), error) {
	switch library {
	case GoRedis:
		rdb := s.Universal()
		return redisgo.New(rdb), func() { rdb.Close() }, nil
	case Rueidis:
		return rueidis.New(s.Option()), func() {}, nil
	}
	return nil, nil, fmt.Errorf("no client library %q", library)
}

// Backend is Open until the end of the test.
func (s Site) Backend(t testing.TB, library string) backend.Backend {
	t.Helper()
	b, below, err := s.Open(library)
	OK(t, err)
	t.Cleanup(below)
	return b
}

// Client makes a mortise client until the end of the test, when it has a second to shut down.
func Client(t testing.TB, b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	c := Must(mortise.New(b, opts...))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Shutdown(ctx)
	})
	return c
}

// Beside runs a subtest beside others.
func Beside(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		test(t)
	})
}

// EachLibrary runs a test on each library, side by side.
func EachLibrary(t *testing.T, test func(t *testing.T, library string)) {
	for _, library := range Libraries {
		Beside(t, library, func(t *testing.T) { test(t, library) })
	}
}

// WholeRun stands for the whole run of a test binary, as a [testing.TB] that redistest can start
// servers with.
type WholeRun struct {
	testing.TB // nil: redistest uses no more than the methods below
	atEnd      []func()
}

// Helper does nothing.
func (*WholeRun) Helper() {}

// Fatalf panics.
func (*WholeRun) Fatalf(format string, a ...any) { log.Panicf(format, a...) }

// Cleanup has End call f.
func (w *WholeRun) Cleanup(f func()) { w.atEnd = append(w.atEnd, f) }

// TempDir is a directory that End removes.
func (w *WholeRun) TempDir() string {
	dir, err := os.MkdirTemp("", "harness")
	if err != nil {
		log.Panic(err)
	}
	w.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// End runs what Cleanup was given, the last first.
func (w *WholeRun) End() {
	for _, f := range slices.Backward(w.atEnd) {
		f()
	}
}

// ErrorNames names what an error is, in the terms that callers can tell apart: "ok" where there is
// none, "" where it is an error of no kind.
func ErrorNames(err error) string {
	if err == nil {
		return "ok"
	}
	var is []string
	for _, s := range []struct {
		name string
		err  error
	}{
		{"NotAcquired", mortise.ErrNotAcquired}, {"NotHeld", fail.NotHeld}, {"Lost", mortise.ErrLost},
		{"Released", mortise.ErrReleased}, {"Closed", mortise.ErrClosed}, {"Unavailable", mortise.ErrUnavailable},
		{"WrongKind", mortise.ErrWrongKind}, {"BadName", mortise.ErrInvalidName}, {"Invalid", mortise.ErrInvalid},
		{"backend.WrongKind", backend.ErrWrongKind}, {"backend.SessionClosed", backend.ErrSessionClosed},
		{"Canceled", context.Canceled}, {"DeadlineExceeded", context.DeadlineExceeded},
	} {
		if errors.Is(err, s.err) {
			is = append(is, s.name)
		}
	}
	return strings.Join(is, " ")
}
