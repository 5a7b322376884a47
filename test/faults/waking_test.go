package faults_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// waiting starts a Lock and waits until it is subscribed, so that what follows
// happens to a waiter that sleeps.
func waiting(t *testing.T, srv *redistest.Server, c *mortise.Client, name string) <-chan result {
	t.Helper()
	runs := scriptRuns(srv)
	ch := locking(c, within(t, patience), name, mortise.WithLease(ample))
	eventually(t, "the waiter is subscribed", func() bool { return channels(srv) == 1 })
	eventually(t, "it has asked once more after that", func() bool { return scriptRuns(srv) >= runs+2 })
	stays(t, 50*time.Millisecond, "", func() bool { runs = scriptRuns(srv); return true })
	eventually(t, "the waiter sleeps", func() bool {
		now := scriptRuns(srv)
		same := now == runs
		runs = now
		return same
	})
	return ch
}

func TestRule08And12_AWaiterWakes(t *testing.T) {
	// The bound of what is to happen at once; leases that would hide that it did
	// not are far longer.
	const once = 5 * time.Second
	// A lease that is waited for, and long enough for the waiter to wait by then.
	const rest = 6 * time.Second
	events := []struct {
		what string
		// hold takes the lock for another owner; free frees it.
		hold func(t *testing.T, srv *redistest.Server)
		free func(t *testing.T, srv *redistest.Server)
		// known: only a client that caches can know, the others by expiry.
		known bool
		// lease, if positive, is what is waited for.
		lease time.Duration
	}{
		{what: "when the record expires", lease: rest,
			hold: func(t *testing.T, srv *redistest.Server) { foreign(t, srv, "n", rest) },
			free: func(t *testing.T, srv *redistest.Server) {}},
		{what: "when an operator deletes the record", known: true,
			hold: func(t *testing.T, srv *redistest.Server) {},
			free: func(t *testing.T, srv *redistest.Server) { srv.Must("DEL", "n") }},
		{what: "when the store is flushed", known: true,
			hold: func(t *testing.T, srv *redistest.Server) {},
			free: func(t *testing.T, srv *redistest.Server) { srv.Must("FLUSHALL") }},
		{what: "when Redis was restarted empty",
			hold: func(t *testing.T, srv *redistest.Server) { foreign(t, srv, "n", ample) },
			free: func(t *testing.T, srv *redistest.Server) { srv.Restart() }},
		{what: "when Redis was killed and comes back empty a while later",
			hold: func(t *testing.T, srv *redistest.Server) { foreign(t, srv, "n", ample) },
			free: func(t *testing.T, srv *redistest.Server) {
				srv.Stop()
				time.Sleep(300 * time.Millisecond)
				srv.Restart()
			}},
	}
	eachParallel(t, func(t *testing.T, s stack) {
		for _, e := range events {
			harness.Beside(t, e.what, func(t *testing.T) {
				srv, c := served(t, s, config{})
				e.hold(t, srv)
				if e.known {
					lease := rest
					if s.cached {
						lease = ample
					}
					foreign(t, srv, "n", lease)
				}
				ch := waiting(t, srv, c, "n")
				left := pttl(srv, "n")
				e.free(t, srv)
				freed := time.Now()
				r := receive(t, patience, "the waiter woke", ch)
				harness.OK(t, r.err)
				took := r.at.Sub(freed)
				bound := e.lease
				if e.known && s.cached {
					bound = 0
				} else if e.known {
					bound = left // the lease that it knew of
				}
				quick(t, "to wake it", took, bound+once)
				t.Logf("%v", took.Round(time.Millisecond))
				unlock(t, r.lease)
			})
		}
	})
}

// Whatever happens to a waiter's connections right before the release, and to the
// server's scripts, the release reaches it.
func TestRule08And12_AReleaseIsNotMissedThoughTheConnectionsAreKilled(t *testing.T) {
	kill := func(class string) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, srv *redistest.Server) { srv.Must("CLIENT", "KILL", "TYPE", class) }
	}
	events := []struct {
		what string
		do   func(*testing.T, *redistest.Server)
	}{
		{"nothing", func(*testing.T, *redistest.Server) {}},
		{"subscriptions killed", kill("pubsub")},
		{"other connections killed", kill("normal")},
		{"all connections killed", func(t *testing.T, srv *redistest.Server) {
			kill("pubsub")(t, srv)
			kill("normal")(t, srv)
		}},
		{"scripts flushed", func(t *testing.T, srv *redistest.Server) { srv.Must("SCRIPT", "FLUSH") }},
		{"killed ten times", func(t *testing.T, srv *redistest.Server) {
			for range 10 {
				kill("pubsub")(t, srv)
				kill("normal")(t, srv)
			}
		}},
	}
	eachParallel(t, func(t *testing.T, s stack) {
		for _, e := range events {
			harness.Beside(t, e.what, func(t *testing.T) {
				srv, c := served(t, s, config{})
				holder := direct(t, srv.Addr())
				held := lock(t, holder, within(t, patience), "n", mortise.WithLease(ample))
				ch := waiting(t, srv, c, "n")
				e.do(t, srv)
				unlock(t, held)
				freed := time.Now()
				r := receive(t, soon, "the waiter woke", ch)
				harness.OK(t, r.err)
				t.Logf("%v", r.at.Sub(freed).Round(time.Millisecond))
				unlock(t, r.lease)
				eventually(t, "no channel is subscribed", func() bool { return channels(srv) == 0 })
			})
		}
	})
}

// A waiter that nothing tells of the release (it has no message and no expiry) is
// not there: but one whose connection is silently dead finds out by itself.
func TestRule08_AWaiterOnAPausedServerGoesOnWhenItIsResumed(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, c := served(t, s, config{Timeout: brief})
		foreign(t, srv, "n", 5*time.Second)
		ch := waiting(t, srv, c, "n")
		left := pttl(srv, "n")
		srv.Pause()
		time.Sleep(max(left, 0) + 300*time.Millisecond) // the lease ends meanwhile
		srv.Resume()
		got(t, 8*time.Second, "the waiter has the lock", ch)
	})
}

// go-redis before 9.20.1 loses a message that TCP tears within its first bytes
// (#3839): a lost wake-up, at the mercy of where a read of 10,000 messages ends.
func TestRule08_GoRedis3839_AReleaseIsHeardWhereverTheMessageIsTorn(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, w, c := wired(t, s, config{})
		for k := 1; k <= 48; k++ {
			name := "torn" + strconv.Itoa(k)
			foreign(t, srv, name, ample)
			w.tear.Store(0)
			runs := scriptRuns(srv)
			ch := locking(c, within(t, patience), name)
			eventually(t, "the waiter is subscribed", func() bool {
				n := srv.Must("PUBSUB", "NUMSUB", "redisson_lock__channel:{"+name+"}").([]any)
				return n[1] == int64(1)
			})
			eventually(t, "it has asked once more after that", func() bool { return scriptRuns(srv) >= runs+2 })
			time.Sleep(20 * time.Millisecond)
			w.tear.Store(int64(k))
			srv.Must("EVAL", `redis.call('del', KEYS[1])
				return redis.call('publish', 'redisson_lock__channel:{' .. KEYS[1] .. '}', '0')`, "1", name)
			select {
			case r := <-ch:
				if r.err != nil {
					t.Fatal(r.err)
				}
				unlock(t, r.lease)
			case <-time.After(soon):
				t.Fatalf("the waiter was not woken: the message was torn after %d bytes", k)
			}
		}
	})
}
