//go:build unix

package redisgo_test

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// held holds back what comes over connections with subscriptions while it is shut.
type held struct {
	shut atomic.Bool
	open chan struct{}
}

// before returns the address of a relay before a server.
func (h *held) before(t *testing.T, addr string) string {
	return redistest.NewRelay(t, addr, func(l *redistest.Line) (up, down func()) {
		var subscribes atomic.Bool
		copies := func(from, to net.Conn, pass func(data []byte)) func() {
			return func() {
				for c := range l.Chunks(from) {
					pass(c.Data)
					if _, err := to.Write(c.Data); err != nil {
						return
					}
				}
			}
		}
		up = copies(l.Client, l.Server, func(data []byte) {
			if bytes.Contains(bytes.ToLower(data), []byte("subscribe")) {
				subscribes.Store(true)
			}
		})
		down = copies(l.Server, l.Client, func([]byte) {
			if subscribes.Load() && h.shut.Load() {
				select {
				case <-h.open:
				case <-l.Dead():
				}
			}
		})
		return up, down
	}).Addr()
}

// The message of a grant tells when the lease began: a client that hears it after the lease is over does not have the
// lock.
func TestAGrantThatIsHeardAfterItsLeaseIsNoGrant(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	h := &held{open: make(chan struct{})}
	rdb := redis.NewClient(&redis.Options{Addr: h.before(t, srv.Addr())})
	t.Cleanup(func() { rdb.Close() })
	client := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	t.Cleanup(func() { client.Close() })
	other := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	t.Cleanup(func() { other.Close() })
	holder := check.Value(mortise.New(redisgo.New(other))).In(t)
	t.Cleanup(func() { holder.Close() })
	until := func(what, script string) {
		t.Helper()
		untilTrue(t, other, what, script)
	}
	lease := check.Value(holder.Lock(t.Context(), "n")).In(t)
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { got <- check.Err(client.Lock(ctx, "n")) }()
	until("enrolled", "return redis.call('zcard', 'mortise:1:next:{n}2')")
	h.shut.Store(true)
	check.NoError(t, lease.Unlock(t.Context()))
	until("granted", "return redis.call('hlen', 'n')")
	// Its lease is over: another one holds the lock, without asking for it.
	until("over", `if redis.call('exists', 'n') == 0 then
		redis.call('hset', 'n', 'another:1', '1')
		redis.call('pexpire', 'n', 60000)
		return 1
	end`)
	h.shut.Store(false)
	close(h.open)
	enters := time.NewTimer(time.Second)
	defer enters.Stop()
	select {
	case err := <-got:
		t.Fatalf("Lock returned %v while another holds the lock", err)
	case <-enters.C:
	}
	cancel()
	check.Is(t, "Lock", <-got, context.Canceled)
}

// untilTrue waits until a script returns 1.
func untilTrue(t *testing.T, rdb *redis.Client, what, script string) {
	t.Helper()
	check.Long(t)
	for rdb.Eval(t.Context(), script, nil).Val() != int64(1) {
		check.FatalIf(t, t.Context().Err() != nil, "not %s", what)
		time.Sleep(time.Millisecond)
	}
}

// After a failover the connection of a client's subscriptions may be one to a replica, which passes messages on. The
// master does not count it, and grants the lock to another.
func TestAGrantThatOnlyAReplicaPassesOnIsNoGrant(t *testing.T) {
	check.Long(t)
	old := redistest.Start(t)
	now := redistest.StartReplica(t, old)
	var addr atomic.Pointer[string]
	at := old.Addr()
	addr.Store(&at)
	rdb := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, *addr.Load())
	}})
	t.Cleanup(func() { rdb.Close() })
	client := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	t.Cleanup(func() { client.Close() })
	old.Must("HSET", "n", "another:1", "1")
	old.Must("PEXPIRE", "n", "60000")
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { got <- check.Err(client.Lock(ctx, "n")) }()
	master := redis.NewClient(&redis.Options{Addr: now.Addr()})
	t.Cleanup(func() { master.Close() })
	untilTrue(t, master, "enrolled", "return redis.call('zcard', 'mortise:1:next:{n}2')")
	host, port, _ := net.SplitHostPort(now.Addr())
	now.Must("REPLICAOF", "NO", "ONE")
	old.Must("REPLICAOF", host, port)
	next := now.Addr()
	addr.Store(&next)
	for !old.InStep() {
		time.Sleep(time.Millisecond)
	}
	third := check.Value(mortise.New(redisgo.New(master))).In(t)
	t.Cleanup(func() { third.Close() })
	check.NoError(t, check.Err(third.ForceUnlock(t.Context(), "n", "")))
	lease := check.Value(third.TryLock(t.Context(), "n")).In(t)
	enters := time.NewTimer(time.Second)
	defer enters.Stop()
	select {
	case err := <-got:
		t.Fatalf("Lock returned %v while another holds the lock: %v", err, lease.Err())
	case <-enters.C:
	}
	cancel()
	check.Is(t, "Lock", <-got, context.Canceled)
}
