//go:build unix

package rueidis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/rueidis"
)

// A lone caller sends by itself, over a connection that it may leave. It is free at once though the server
// stands still, and what it asked for is released.
func TestALoneCallerLeavesAtOnceAndLeavesNothing(t *testing.T) {
	check.Long(t)
	for what, opt := range map[string]redis.ClientOption{"caching": {}, "no caching": {DisableCache: true}} {
		t.Run(what, func(t *testing.T) {
			srv := redistest.Start(t)
			opt.InitAddress, opt.ClientName = []string{srv.Addr()}, "caller"
			locks := check.Value(mortise.New(rueidis.New(opt))).In(t)
			defer locks.Close()
			connections := func() int { return strings.Count(do(t, srv, "CLIENT", "LIST").(string), " name=caller ") }
			alone := func(n int) {
				t.Helper()
				for range n {
					lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
					check.NoError(t, lease.Unlock(t.Context()))
				}
			}
			alone(1)
			before := connections()
			ready := func() { // the connection is made in the background
				t.Helper()
				awaitThat(t, "a connection of a lone caller", func() bool {
					alone(40)
					return connections() > before
				})
			}
			locked, unlocked := time.Hour, time.Hour // the quickest, since the machine may be busy
			for range 3 {
				ready()
				ctx, cancel := context.WithCancel(t.Context())
				srv.Pause()
				lock := func() error { return check.Err(locks.Lock(ctx, "n")) }
				locked = min(locked, leaves(t, srv, cancel, lock))
				ready()
				lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
				ctx, cancel = context.WithCancel(t.Context())
				srv.Pause()
				unlocked = min(unlocked, leaves(t, srv, cancel, func() error { return lease.Unlock(ctx) }))
			}
			check.ErrorIf(t, max(locked, unlocked) > 5*time.Millisecond, "Lock returns after %v, Unlock after %v",
				locked, unlocked)
		})
	}
}

// Nothing but the calls of a lone caller goes over its connection, however the client is configured, and nothing but
// the call reads it: else a call that was left takes another's reply for its own, or waits for one that never comes.
func TestTheLibraryUsesTheConnectionOfALoneCallerForNothingElse(t *testing.T) {
	pings := redis.ClientOption{}
	pings.Dialer.KeepAlive = 50 * time.Millisecond // a ping before a connection has begun is a race in rueidis
	for what, opt := range map[string]redis.ClientOption{
		"pings": pings, "pipelining": {AlwaysPipelining: true},
	} {
		t.Run(what, func(t *testing.T) {
			srv := redistest.Start(t)
			var all dialed
			opt.InitAddress, opt.DialCtxFn = []string{srv.Addr()}, all.dial
			locks := check.Value(mortise.New(rueidis.New(opt))).In(t)
			defer locks.Close()
			var line *spied
			awaitThat(t, "a connection that has all the calls", func() bool {
				all.each(func(c *spied) { c.calls, c.others, c.early = 0, 0, 0 })
				for range 20 {
					lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
					check.NoError(t, lease.Unlock(t.Context()))
				}
				all.each(func(c *spied) {
					if c.calls == 40 {
						line = c
					}
				})
				return line != nil
			})
			others := 0
			awaitThat(t, "pings elsewhere", func() bool {
				others = 0
				all.each(func(c *spied) { others += c.others })
				return what != "pings" || others > 10
			})
			all.mu.Lock()
			defer all.mu.Unlock()
			check.ErrorIf(t, line.others+line.early > 0, "%d other commands, %d reads without a command",
				line.others, line.early)
		})
	}
}

// The reply to a call that was left is the server's: a release that is sent once more would find nothing held.
func TestALoneReleaseThatWasLeftIsKnownToHaveReleased(t *testing.T) {
	srv := redistest.Start(t)
	var all dialed
	b := rueidis.New(redis.ClientOption{InitAddress: []string{srv.Addr()}, DialCtxFn: all.dial})
	s := check.Value(b.Open(new(engine.Engine).Handler())).In(t)
	defer s.Close()
	acquire := func() {
		r := check.Value(s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Minute})).In(t)
		check.ErrorIf(t, !r.Granted, "not granted")
	}
	release := backend.ReleaseRequest{Name: "n", Owner: "o"}
	awaitThat(t, "a connection that has all the calls", func() bool {
		all.each(func(c *spied) { c.calls = 0 })
		for range 20 {
			acquire()
			check.Value(s.Release(t.Context(), release)).In(t)
		}
		alone := false
		all.each(func(c *spied) { alone = alone || c.calls == 40 })
		return alone
	})
	acquire()
	before := srv.Calls("evalsha", "eval")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Release(ctx, release)
	left, is := errors.AsType[*backend.Left[backend.ReleaseReply]](err)
	check.FatalIf(t, !is, "the release was not left: %v", err)
	reply := check.Value(left.Wait()).In(t)
	check.ErrorIf(t, !reply.Held, "the release says that the lock was not held")
	sent := srv.Calls("evalsha", "eval") - before
	check.ErrorIf(t, sent != 1, "sent %d times", sent)
}

// dialed are connections that note what goes over them.
type dialed struct {
	mu  sync.Mutex
	all []*spied
}

type spied struct {
	net.Conn
	*dialed
	calls, others, early int // early reads are those before a command
	asked                bool
}

func (d *dialed) dial(ctx context.Context, addr string, via *net.Dialer, _ *tls.Config) (net.Conn, error) {
	c, err := via.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	x := &spied{Conn: c, dialed: d}
	d.all = append(d.all, x)
	return x, nil
}

func (d *dialed) each(do func(*spied)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.all {
		do(c)
	}
}

func (c *spied) Write(b []byte) (int, error) {
	c.mu.Lock()
	if c.asked = true; strings.Contains(string(b), "EVAL") {
		c.calls++
	} else {
		c.others++
	}
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *spied) Read(b []byte) (int, error) {
	c.mu.Lock()
	if !c.asked {
		c.early++
	}
	c.asked = false
	c.mu.Unlock()
	return c.Conn.Read(b)
}

// leaves has a call begin while srv stands still, and its caller leave: it returns how soon the call returned.
func leaves(t *testing.T, srv *redistest.Server, cancel func(), call func() error) time.Duration {
	t.Helper()
	returned := make(chan error)
	go func() { returned <- call() }()
	select {
	case err := <-returned:
		t.Fatalf("the server stands still, and the call returns %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	left := time.Now()
	cancel()
	err := <-returned
	took := time.Since(left)
	check.ErrorIf(t, !errors.Is(err, context.Canceled), "the caller left, and the call returns %v", err)
	srv.Resume()
	awaitThat(t, "the lock is free", func() bool { return do(t, srv, "EXISTS", "n") == int64(0) })
	return took
}

func awaitThat(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "not in 20 s: %s", what)
	}
}
