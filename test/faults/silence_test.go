package faults_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// unheard is within what time a waiter has a lock of whose release nothing tells it.
const unheard = 5500 * time.Millisecond

// entered awaits that so many clients are in the queue of n.
func entered(t *testing.T, srv *redistest.Server, entries int64) {
	t.Helper()
	eventually(t, "they are in the queue", func() bool {
		return srv.Must("ZCARD", "mortise:1:next:{n}2") == entries
	})
}

// A lock is free, and nothing tells the waiter, whose holder's lease is far from its end.
func TestRule08And12_SilenceCostsAWaiterFiveSecondsAndNotALease(t *testing.T) {
	for what, free := range map[string]func(t *testing.T, srv *redistest.Server, w *wire, held *mortise.Lease){
		"the record is deleted": func(t *testing.T, srv *redistest.Server, _ *wire, _ *mortise.Lease) {
			srv.Must("DEL", "n")
		},
		"the message is lost": func(t *testing.T, _ *redistest.Server, w *wire, held *mortise.Lease) {
			w.deaf.Store(true)
			unlock(t, held)
		},
		"the subscription is half open": func(t *testing.T, srv *redistest.Server, w *wire, held *mortise.Lease) {
			w.deaf.Store(true)
			srv.Must("CLIENT", "KILL", "TYPE", "pubsub")
			unlock(t, held)
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachParallel(t, func(t *testing.T, s stack) {
				srv, w, c := wired(t, s, config{})
				held := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(time.Minute))
				ch := waiting(t, srv, c, "n")
				entered(t, srv, 1)
				free(t, srv, w, held)
				freed := time.Now()
				took := got(t, patience, "the waiter has the lock", ch).Sub(freed)
				t.Logf("after %v", took.Round(time.Millisecond))
				quick(t, "the waiter", took, bar(unheard))
			})
		})
	}
}

// A latch is deleted, and nothing tells the client that waits for it twice.
func TestRule08And12_SilenceOfALatch(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, _, c := wired(t, s, config{})
		ctx := within(t, patience)
		latch := latch.New(c, "n")
		harness.OK(t, harness.Err(latch.TrySet(ctx, 1)))
		over := make(chan error, 2)
		for range 2 {
			go func() { over <- latch.Wait(ctx) }()
		}
		eventually(t, "the latch is watched", func() bool {
			return len(srv.Must("PUBSUB", "CHANNELS", "redisson_countdownlatch__*").([]any)) == 1
		})
		srv.Must("DEL", "n")
		freed := time.Now()
		for range 2 {
			harness.OK(t, <-over)
		}
		quick(t, "the last", time.Since(freed), bar(unheard))
	})
}

// unheardGrant is a lock that was granted to a client that does not hear of it, with another client behind that.
type unheardGrant struct {
	first, second <-chan result
	w             *wire
}

// grantUnheard has a holder release a lock that two clients wait for, the first of them over a wire.
func grantUnheard(
	t *testing.T, srv *redistest.Server, w *wire, holder, first, second *mortise.Client,
) (r unheardGrant) {
	t.Helper()
	ctx := within(t, 3*patience)
	held := lock(t, holder, ctx, "n", mortise.WithLease(time.Minute))
	r.first = locking(first, ctx, "n")
	entered(t, srv, 1)
	r.second = locking(second, ctx, "n")
	entered(t, srv, 2)
	r.w = w
	w.deaf.Store(true)
	unlock(t, held)
	grantedTo(t, srv, first)
	return r
}

// grantedTo checks that n was granted to a client.
func grantedTo(t *testing.T, srv *redistest.Server, c *mortise.Client) {
	t.Helper()
	fields := srv.Must("HKEYS", "n").([]any)
	harness.FatalIf(t, len(fields) != 1 || !strings.HasPrefix(fields[0].(string), c.ID()), "n is granted to %v", fields)
}

// ends checks that both have the lock in the end, one after the other, and that nothing is left. The client that did
// not hear asks again, and may be the first.
func (r unheardGrant) ends(t *testing.T, srv *redistest.Server, free time.Time) {
	t.Helper()
	for _, which := range []string{"one", "the other"} {
		var l result
		select {
		case l = <-r.first:
		case l = <-r.second:
		case <-time.After(patience):
			t.Fatalf("%s has the lock not within %v", which, patience)
		}
		harness.OK(t, l.err)
		t.Logf("%s has it after %v", which, l.at.Sub(free).Round(time.Millisecond))
		quick(t, which, l.at.Sub(free), bar(unheard))
		unlock(t, l.lease)
		free = time.Now()
		r.w.deaf.Store(false)
	}
	eventually(t, "the record is gone", func() bool { return !exists(srv, "n") })
}

// What is reserved for an owner that its client asks for no more is given back at once.
func TestRule08_AReservationForALateOwnerIsGivenBack(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, c := served(t, s, config{})
		foreign(t, srv, "n", time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		ch := locking(c, ctx, "n")
		entered(t, srv, 1)
		tag, _, _ := strings.Cut(srv.Must("ZRANGE", "mortise:1:next:{n}2", "0", "0").([]any)[0].(string), ":")
		late := tag + ":-:" + c.ID() + ":late"
		srv.Must("HSET", "n", "mortise:reserved:"+late, "-")
		srv.Must("PUBLISH", "redisson_lock__channel:{n}:to:"+tag[1:], "r"+late)
		eventually(t, "it is given back", func() bool {
			return srv.Must("HEXISTS", "n", "mortise:reserved:"+late) == int64(0)
		})
		harness.ErrorIf(t, srv.Must("HLEN", "n") != int64(1), "the holder's record is gone")
		cancel()
		harness.ErrorIf(t, (<-ch).lease != nil, "granted")
	})
}

// A client that listens and does nothing more costs the next one its first lease, also where that one has just come and
// is not told that its entry is the first, or comes again, or waits for many names.
func TestRule08And12_AStoppedClientCostsTheNextItsFirstLease(t *testing.T) {
	type waits struct {
		srv *redistest.Server
		c   *mortise.Client
		ctx context.Context
	}
	lock := func(t *testing.T, w waits) <-chan result {
		t.Helper()
		ch := locking(w.c, w.ctx, "n")
		entered(t, w.srv, 2)
		return ch
	}
	for what, next := range map[string]func(t *testing.T, w waits) <-chan result{
		"it has just come": lock,
		"it has come again": func(t *testing.T, w waits) <-chan result {
			ch, before := lock(t, w), scriptRuns(w.srv)
			eventually(t, "it has asked again", func() bool { return scriptRuns(w.srv) >= before+2 })
			w.srv.Must("ZREMRANGEBYRANK", "mortise:1:next:{n}2", "1", "1")
			w.srv.Must("PUBLISH", "redisson_lock__channel:{n}", "0")
			entered(t, w.srv, 2)
			return ch
		},
		"it waits for 200 names": func(t *testing.T, w waits) <-chan result {
			held := named("held:")
			put(t, w.srv, 200, held, time.Hour)
			for i := range 200 {
				locking(w.c, w.ctx, held(i))
			}
			eventually(t, "it listens", func() bool {
				return len(w.srv.Must("PUBSUB", "CHANNELS", "*:mortise").([]any)) == 200
			})
			return lock(t, w)
		},
		"a call that polls went before it": func(t *testing.T, w waits) <-chan result {
			ctx, cancel := context.WithCancel(w.ctx)
			polls := locking(w.c.With(mortise.Polling(20*time.Millisecond)), ctx, "n")
			entered(t, w.srv, 2)
			ch := locking(w.c, w.ctx, "n")
			eventually(t, "both wait", func() bool { return len(w.srv.Must("PUBSUB", "CHANNELS", "*:mortise").([]any)) == 1 })
			cancel()
			harness.ErrorIf(t, (<-polls).err == nil, "a call that has left has the lock")
			return ch
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachParallel(t, func(t *testing.T, s stack) {
				srv, c := served(t, s, config{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				conn := harness.Must(net.Dial("tcp", srv.Addr()))(t)
				defer conn.Close()
				harness.Must(fmt.Fprint(conn, "SUBSCRIBE redisson_lock__channel:{n}:to:stopped\r\n"))(t)
				harness.Must(conn.Read(make([]byte, 1)))(t)
				held := harness.Must(direct(t, srv.Addr()).Lock(ctx, "n"))(t)
				srv.Must("ZADD", "mortise:1:next:{n}2", "1", "pstopped:-:host/1/x:1")
				ch := next(t, waits{srv, c, ctx})
				unlock(t, held)
				free := time.Now()
				took := got(t, patience, "the next has the lock", ch).Sub(free)
				t.Logf("after %v", took.Round(time.Millisecond))
				quick(t, "the next", took, 2500*time.Millisecond)
			})
		})
	}
}

// What happens to a server, or by hand, while a lock is granted to a client that does not hear of it, costs the next
// client seconds, and no call has an error by it.
func TestRule08And12_SilenceAfterAGrant(t *testing.T) {
	for what, strike := range map[string]func(*testing.T, *redistest.Server, *wire){
		"nothing":               func(*testing.T, *redistest.Server, *wire) {},
		"the record is deleted": func(t *testing.T, srv *redistest.Server, _ *wire) { srv.Must("DEL", "n") },
		"the queue is deleted": func(_ *testing.T, srv *redistest.Server, _ *wire) {
			srv.Must("DEL", "n", "mortise:1:next:{n}2")
		},
		"the store is flushed": func(t *testing.T, srv *redistest.Server, _ *wire) { srv.Must("FLUSHALL") },
		"the server is full for a while": func(t *testing.T, srv *redistest.Server, _ *wire) {
			srv.Must("CONFIG", "SET", "maxmemory", "1")
			refuses(t, srv, "OOM", 2*time.Second)
			srv.Must("CONFIG", "SET", "maxmemory", "0")
		},
		"the server is a replica for a while": func(t *testing.T, srv *redistest.Server, _ *wire) {
			srv.Must("REPLICAOF", "127.0.0.1", "1") // of no server
			refuses(t, srv, "READONLY", 2*time.Second)
			srv.Must("REPLICAOF", "NO", "ONE")
		},
		"the server is restarted empty": func(_ *testing.T, srv *redistest.Server, w *wire) {
			srv.Restart()
			w.deaf.Store(false)
			w.Cut() // the client notices that its connections have ended
		},
		"the lock is unlocked by force": func(t *testing.T, srv *redistest.Server, _ *wire) {
			harness.OK(t, harness.Err(direct(t, srv.Addr()).ForceUnlock(within(t, patience), "n", "")))
		},
	} {
		t.Run(what, func(t *testing.T) {
			eachParallel(t, func(t *testing.T, s stack) {
				srv, w, first := wired(t, s, config{})
				r := grantUnheard(t, srv, w, direct(t, srv.Addr()), first, s.client(t, srv.Addr(), config{}))
				strike(t, srv, w)
				r.ends(t, srv, time.Now())
			})
		})
	}
}

// refuses checks for d that a server refuses to write.
func refuses(t *testing.T, srv *redistest.Server, why string, d time.Duration) {
	t.Helper()
	stays(t, d, "it refuses to write", func() bool {
		_, err := srv.Do("SET", "x", "1")
		return err != nil && strings.HasPrefix(err.Error(), why)
	})
}

// The same where the master of a cluster is replaced by its replica.
func TestRule08And12_SilenceOfAMasterThatIsReplaced(t *testing.T) {
	t.Parallel()
	harness.EachLibrary(t, func(t *testing.T, library string) {
		cluster := redistest.StartCluster(t, 1)
		old := cluster.Masters[0]
		replica := cluster.Replica(old)
		site := config{Addrs: cluster.Addrs(), Cluster: true}
		open := func(site config) *mortise.Client { return harness.Client(t, site.Backend(t, library)) }
		w := newWire(t, old.Addr())
		through := site
		through.Wires = map[string]string{old.Addr(): w.Addr()}
		r := grantUnheard(t, old, w, open(site), open(through), open(site))
		cluster.Failover(replica)
		r.ends(t, replica, time.Now())
	})
}

// A caller that is cancelled while the server stands still returns at once, wherever its wait is, and leaves nothing:
// no entry and no lock.
func TestRule09_ACancelledWaiterReturnsAtOnceThoughTheServerStandsStill(t *testing.T) {
	const atOnce = 5 * time.Millisecond
	// cancels cancels a Lock while the server stands still, and sees to it that nothing is left then.
	cancels := func(t *testing.T, srv *redistest.Server, cancel context.CancelFunc, ch <-chan result) {
		t.Helper()
		began := time.Now()
		cancel()
		r := receive(t, patience, "Lock returns", ch)
		check(t, r.err, context.Canceled)
		t.Logf("it returned after %v", r.at.Sub(began).Round(10*time.Microsecond))
		quick(t, "Lock, when cancelled,", r.at.Sub(began), bar(atOnce))
		srv.Resume()
	}
	stop := func(t *testing.T, srv *redistest.Server) {
		srv.Pause()
		t.Cleanup(srv.Resume)
	}
	eachParallel(t, func(t *testing.T, s stack) {
		harness.Beside(t, "in the queue", func(t *testing.T) {
			srv, c := served(t, s, config{})
			held := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(time.Minute))
			ctx, cancel := context.WithCancel(within(t, patience))
			ch := locking(c, ctx, "n")
			entered(t, srv, 1)
			stop(t, srv)
			cancels(t, srv, cancel, ch)
			entered(t, srv, 0)
			unlock(t, held)
			nothing(t, srv)
		})
		harness.Beside(t, "while it asks", func(t *testing.T) {
			srv, c := served(t, s, config{})
			held := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(time.Minute))
			busy := locking(c, within(t, patience), "n") // so that the client listens
			entered(t, srv, 1)
			unlock(t, held)
			l := receive(t, patience, "the first", busy)
			harness.OK(t, l.err)
			other := locking(direct(t, srv.Addr()), within(t, patience), "n")
			entered(t, srv, 1)
			unlock(t, l.lease)
			o := receive(t, patience, "the other", other)
			harness.OK(t, o.err)
			stop(t, srv)
			ctx, cancel := context.WithCancel(within(t, patience))
			ch := locking(c, ctx, "n")
			stays(t, 50*time.Millisecond, "it waits for the reply", func() bool { return len(ch) == 0 })
			cancels(t, srv, cancel, ch)
			unlock(t, o.lease)
			nothing(t, srv)
		})
		harness.Beside(t, "when it was granted the lock and did not hear", func(t *testing.T) {
			srv, w, c := wired(t, s, config{})
			held := lock(t, direct(t, srv.Addr()), within(t, patience), "n", mortise.WithLease(time.Minute))
			ctx, cancel := context.WithCancel(within(t, patience))
			ch := locking(c, ctx, "n")
			entered(t, srv, 1)
			w.deaf.Store(true)
			unlock(t, held)
			grantedTo(t, srv, c)
			srv.Must("PEXPIRE", "n", "60000") // it is not to end by itself
			stop(t, srv)
			cancels(t, srv, cancel, ch)
			nothing(t, srv)
		})
	})
}
