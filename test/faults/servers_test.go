package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// started starts a server, and has something done to it.
func started(do func(*redistest.Server), opts ...redistest.Option) func(*testing.T) string {
	return func(t *testing.T) string {
		srv := redistest.Start(t, opts...)
		if do != nil {
			do(srv)
		}
		return srv.Addr()
	}
}

// listening is a server by hand. Its connections are closed at the end of the test.
func listening(serve func(net.Conn)) func(*testing.T) string {
	return func(t *testing.T) string {
		l := harness.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				serve(c)
			}
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return l.Addr().String()
	}
}

// A server that is down, refuses, or never answers: Lock and TryLock return in
// bounded time, even with a context without an end, and the error names the lock and
// the operation, is ErrUnavailable (or ErrWrongKind), and says what to do.
func TestRule13_ErrorsOfBadServersSayWhatToDo(t *testing.T) {
	const timeout = time.Second
	const bound = 10*time.Second + 2*timeout // repeats for ten seconds (decision 85), the last of which takes its time
	cases := []struct {
		what string
		// server returns the address.
		server func(t *testing.T) string
		config config
		want   error  // ErrUnavailable unless set
		says   string // or one of several, by |
	}{
		{what: "down", says: "connection refused", server: started(func(srv *redistest.Server) { srv.Stop() })},
		{what: "a name without an address", says: "no such host",
			server: func(*testing.T) string { return "redis.invalid:6379" }},
		{what: "accepts and never answers", says: "timeout|deadline", server: listening(func(net.Conn) {})},
		{what: "stopped in its tracks", says: "timeout|deadline", server: func(t *testing.T) string {
			srv := redistest.Start(t)
			srv.Pause()
			t.Cleanup(srv.Resume)
			return srv.Addr()
		}},
		{what: "not a Redis", says: "", server: listening(func(c net.Conn) {
			c.Write([]byte("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"))
			c.Close()
		})},
		{what: "NOAUTH", says: "NOAUTH", server: started(nil, redistest.WithPassword("secret"))},
		{what: "wrong password", says: "WRONGPASS", config: config{User: "default", Password: "guess"},
			server: started(nil, redistest.WithPassword("secret"))},
		{what: "a user without scripts", says: "NOPERM", config: config{User: "app", Password: "app"},
			server: started(nil, redistest.WithACL("app on >app ~* &* +@all -@scripting"))},
		{what: "a user without the key", says: "NOPERM", config: config{User: "app", Password: "app"},
			server: started(nil, redistest.WithACL("app on >app ~others:* &* +@all"))},
		{what: "a user without hset", says: "", config: config{User: "app", Password: "app"},
			server: started(nil, redistest.WithACL("app on >app ~* &* +@all -hset"))},
		{what: "the key is a string", says: "WRONGTYPE", want: mortise.ErrWrongKind,
			server: started(func(srv *redistest.Server) { srv.Must("SET", "orders:42", "x") })},
		{what: "the key is a read-write lock", says: "read-write", want: mortise.ErrWrongKind,
			server: started(func(srv *redistest.Server) { srv.Must("HSET", "orders:42", "mode", "write", "x:1:write", "1") })},
		{what: "a replica", says: "READONLY", server: func(t *testing.T) string {
			return redistest.StartReplica(t, redistest.Start(t)).Addr()
		}},
		{what: "loading", says: "LOADING", server: func(t *testing.T) string {
			srv := redistest.Start(t, redistest.WithConfig("enable-debug-command yes"))
			srv.Must("EVAL", "for i = 1, 50000 do redis.call('set', 'k' .. i, string.rep('x', 200)) end", "0")
			srv.Must("CONFIG", "SET", "key-load-delay", "500", "loading-process-events-interval-bytes", "1024")
			go srv.Do("DEBUG", "RELOAD")
			eventually(t, "it loads", func() bool {
				_, err := srv.Do("GET", "k1")
				return err != nil && strings.HasPrefix(err.Error(), "LOADING")
			})
			return srv.Addr()
		}},
		{what: "out of memory", says: "OOM", server: started(func(srv *redistest.Server) {
			srv.Must("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
		})},
		{what: "cannot save", says: "MISCONF", server: func(t *testing.T) string {
			srv := redistest.Start(t, redistest.WithConfig("enable-protected-configs yes"))
			dir := filepath.Join(t.TempDir(), "gone")
			harness.OK(t, os.Mkdir(dir, 0o700))
			srv.Must("CONFIG", "SET", "dir", dir)
			srv.Must("CONFIG", "SET", "save", "3600 1")
			harness.OK(t, os.Remove(dir))
			srv.Must("BGSAVE")
			eventually(t, "saving failed", func() bool {
				_, err := srv.Do("SET", "x", "1")
				return err != nil && strings.HasPrefix(err.Error(), "MISCONF")
			})
			return srv.Addr()
		}},
		{what: "too few replicas", says: "NOREPLICAS", server: started(func(srv *redistest.Server) {
			srv.Must("CONFIG", "SET", "min-replicas-to-write", "1")
		})},
		{what: "too many clients", says: "", server: func(t *testing.T) string {
			srv := redistest.Start(t)
			srv.Must("CONFIG", "SET", "maxclients", "1")
			eventually(t, "the only client is connected", func() bool { // the one that sent CONFIG may still be there
				c := harness.Must(net.Dial("tcp", srv.Addr()))(t)
				var reply [7]byte
				_, err := c.Write([]byte("PING\r\n"))
				if _, read := io.ReadFull(c, reply[:]); err != nil || read != nil || string(reply[:]) != "+PONG\r\n" {
					c.Close()
					return false
				}
				t.Cleanup(func() { c.Close() })
				return true
			})
			return srv.Addr()
		}},
		{what: "EVALSHA is renamed", says: "unknown command",
			server: started(nil, redistest.WithConfig("rename-command EVALSHA nothing"))},
		{what: "a cluster without this slot", says: "", server: started(nil,
			redistest.WithConfig("cluster-enabled yes", "cluster-require-full-coverage no"))},
	}
	eachParallel(t, func(t *testing.T, s stack) {
		for _, tc := range cases {
			harness.Beside(t, tc.what, func(t *testing.T) {
				conf := tc.config
				conf.Timeout = timeout
				c := s.unproven(t, tc.server(t), conf)
				want := tc.want
				if want == nil {
					want = mortise.ErrUnavailable
				}
				const name = "orders:42"
				for op, call := range map[string]func() error{
					"lock":    func() error { _, err := c.Lock(context.Background(), name); return err },
					"trylock": func() error { _, err := c.TryLock(context.Background(), name); return err },
				} {
					begun := time.Now()
					err := call()
					took := time.Since(begun)
					harness.FatalIf(t, err == nil, "%s: no error", op)
					t.Logf("%s after %v: %v", s.name, took.Round(time.Millisecond), err)
					quick(t, op, took, bound)
					check(t, err, want)
					for _, other := range []error{mortise.ErrNotAcquired, context.Canceled, context.DeadlineExceeded} {
						if errors.Is(err, other) { // the caller's context has no end
							t.Errorf("%s: the error is %v too", op, other)
						}
					}
					text := err.Error()
					harness.ErrorIf(t, !strings.HasPrefix(text, fmt.Sprintf("mortise: %s %q: ", op, name)),
						"%s: the text does not begin with operation and lock", op)
					harness.ErrorIf(t, !slices.ContainsFunc(strings.Split(tc.says, "|"),
						func(says string) bool { return strings.Contains(text, says) }),
						"%s: the text does not say %q", op, tc.says)
					var f *backend.Fault
					harness.ErrorIf(t, !errors.As(err, &f) || f.Remedy == "" || !strings.Contains(text, f.Remedy),
						"%s: the text has no remedy", op)
				}
				if err := c.Ping(within(t, bound)); want == mortise.ErrUnavailable && err != nil {
					check(t, err, want)
				}
			})
		}
	})
}

// A wait on a bad server ends when it was to end.
func TestRule13_WithWaitAndContextsBoundAWaitOnADeadServer(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, c := served(t, s, config{Timeout: patience})
		srv.Pause()
		t.Cleanup(srv.Resume)
		begun := time.Now()
		_, err := c.Lock(context.Background(), "n", mortise.WithWait(200*time.Millisecond))
		check(t, err, mortise.ErrUnavailable)
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err = c.TryLock(ctx, "n")
		check(t, err, context.DeadlineExceeded)
		quick(t, "it", time.Since(begun), soon)
		// Closing is bounded too.
		begun = time.Now()
		c.Close()
		quick(t, "Close", time.Since(begun), patience*3/4)
	})
}

// Bad input is refused before anything is sent.
func TestRule13_BadInputIsRefusedWithoutACommand(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		_, p, c := counted(t, s, config{})
		ctx := within(t, patience)
		p.Reset()
		long := strings.Repeat("x", 65537)
		refused := map[string]struct {
			err  error
			want error
		}{}
		try := func(what string, want error, ctx context.Context, name string, opts ...mortise.Option) {
			l, err := c.Lock(ctx, name, opts...)
			harness.ErrorIf(t, l != nil, "%s: a lease", what)
			refused[what] = struct{ err, want error }{err, want}
		}
		try("empty name", mortise.ErrInvalidName, ctx, "")
		try("long name", mortise.ErrInvalidName, ctx, long)
		try("not UTF-8", mortise.ErrInvalidName, ctx, "\xff")
		try("half a hash tag", mortise.ErrInvalidName, ctx, "a{b")
		try("empty hash tag", mortise.ErrInvalidName, ctx, "{}b")
		try("negative lease", mortise.ErrInvalid, ctx, "n", mortise.WithLease(-time.Second))
		try("tiny lease", mortise.ErrInvalid, ctx, "n", mortise.WithLease(time.Microsecond))
		try("endless lease", mortise.ErrInvalid, ctx, "n", mortise.WithLease(1<<62))
		try("negative wait", mortise.ErrInvalid, ctx, "n", mortise.WithWait(-1))
		try("two bounds", mortise.ErrInvalid, ctx, "n", mortise.WithLease(time.Second), mortise.WithMaxHold(time.Second))
		try("two ways to wait", mortise.ErrInvalid, ctx, "n", mortise.Fair(), mortise.Polling(time.Second))
		try("nil context", mortise.ErrInvalid, nil, "n")
		gone, cancel := context.WithCancel(ctx)
		cancel()
		try("ended context", context.Canceled, gone, "n")
		for what, r := range refused {
			if !errors.Is(r.err, r.want) {
				t.Errorf("%s: %v, want %v", what, r.err, r.want)
				continue
			}
			if len(r.err.Error()) > 600 {
				t.Errorf("%s: %d bytes of text", what, len(r.err.Error()))
			}
			t.Logf("%s: %.120v", what, r.err)
		}
		if n := p.Count(work); n != 0 {
			t.Errorf("%d commands: %.300q", n, p.Commands())
		}
	})
}

// A second Unlock releases no hold that the same client has by now, and a nil context is as good as
// Background where it cannot mislead.
func TestRule07_ASecondUnlockTouchesNoLaterHold(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, c := served(t, s, config{})
		ctx := within(t, patience)
		l := lock(t, c, ctx, "n", mortise.WithLease(ample))
		unlock(t, l)
		next := lock(t, c, ctx, "n", mortise.WithLease(ample))
		err := l.Unlock(ctx)
		check(t, err, mortise.ErrReleased)
		live(t, srv, 1, "")
		harness.Check(t, next.Unlock(nil)) //nolint:staticcheck
	})
}
