//go:build unix

package redisproto_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/scripts"
)

// adapters are the ways to Redis that every test here runs over.
var adapters = map[string]func(t *testing.T, addr string, as login) backend.Backend{
	"go-redis": func(t *testing.T, addr string, as login) backend.Backend {
		return goRedis(t, as, redis.UniversalOptions{Addrs: []string{addr}})
	},
	"go-redis RESP2": func(t *testing.T, addr string, as login) backend.Backend {
		return goRedis(t, as, redis.UniversalOptions{Addrs: []string{addr}, Protocol: 2})
	},
	"rueidis": func(t *testing.T, addr string, as login) backend.Backend {
		return rueidis.New(rueidisAs(as, rueidislib.ClientOption{InitAddress: []string{addr}}))
	},
	"rueidis RESP2": func(t *testing.T, addr string, as login) backend.Backend {
		return rueidis.New(rueidisAs(as, rueidislib.ClientOption{InitAddress: []string{addr}, AlwaysRESP2: true}))
	},
	"rueidis, own client": func(t *testing.T, addr string, as login) backend.Backend {
		return ownRueidis(t, rueidisAs(as, rueidislib.ClientOption{InitAddress: []string{addr}}))
	},
}

func goRedis(t *testing.T, as login, o redis.UniversalOptions, opts ...redisgo.Option) backend.Backend {
	o.Username, o.Password = as.user, as.password
	if !o.IsClusterMode {
		o.ReadTimeout = 5 * time.Second
	}
	rdb := redis.NewUniversalClient(&o)
	t.Cleanup(func() { _ = rdb.Close() })
	return redisgo.New(rdb, opts...)
}

func rueidisAs(as login, o rueidislib.ClientOption) rueidislib.ClientOption {
	o.Username, o.Password = as.user, as.password
	o.RingScaleEachConn = redistest.RingScale
	o.ReadBufferEachConn, o.WriteBufferEachConn = redistest.BufferSize, redistest.BufferSize
	return o
}

func ownRueidis(t *testing.T, o rueidislib.ClientOption, opts ...rueidis.Option) backend.Backend {
	c := check.Value(rueidislib.NewClient(o)).In(t)
	t.Cleanup(c.Close)
	return rueidis.NewWithClient(c, opts...)
}

type login struct{ user, password string }

func overAll(t *testing.T, f func(t *testing.T, srv *redistest.Server, b backend.Backend), opts ...redistest.Option) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, opts...)
			f(t, srv, adapter(t, srv.Addr(), login{}))
		})
	}
}

// overProxies runs a test over all adapters, each through a proxy to a server.
func overProxies(t *testing.T, f func(t *testing.T, name string, srv *redistest.Server, proxy *redistest.Proxy,
	b backend.Backend)) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t)
			proxy := redistest.NewProxy(t, srv.Addr())
			f(t, name, srv, proxy, adapter(t, proxy.Addr(), login{}))
		})
	}
}

// overClusters runs a test over a cluster of one node, by each client library.
func overClusters(t *testing.T, f func(t *testing.T, srv *redistest.Server, b backend.Backend)) {
	t.Run("go-redis", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithCluster())
		f(t, srv, goRedis(t, login{}, redis.UniversalOptions{Addrs: []string{srv.Addr()}, IsClusterMode: true}))
	})
	t.Run("rueidis", func(t *testing.T) {
		srv := redistest.Start(t, redistest.WithCluster())
		f(t, srv, rueidis.New(rueidislib.ClientOption{InitAddress: []string{srv.Addr()}}))
	})
}

var _ backend.QueueHandler = (*ears)(nil)

// ears is a Handler whose events can be awaited.
type ears struct {
	mu    sync.Mutex
	heard map[string]int
	more  chan struct{}
}

func (e *ears) hear(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.heard[what]++
	close(e.more)
	e.more = make(chan struct{})
}
func (e *ears) Watching(t backend.Topic)                 { e.hear("watching " + t.Name) }
func (e *ears) Released(t backend.Topic)                 { e.hear("released " + t.Name) }
func (e *ears) Changed(t backend.Topic)                  { e.hear("changed " + t.Name) }
func (e *ears) Freed(t backend.Topic)                    { e.hear("released " + t.Name) }
func (e *ears) Granted(t backend.Topic, g backend.Grant) { e.hear("granted " + t.Name + " " + g.Owner) }

func (e *ears) Reserved(t backend.Topic, entry uint64) {
	e.hear(fmt.Sprint("reserved ", t.Name, " ", entry))
}
func (e *ears) First(t backend.Topic, entry uint64, after time.Duration) {
	e.hear(fmt.Sprint("first ", t.Name, " ", entry, " ", after))
}
func (e *ears) Wanted(t backend.Topic, entry uint64) {
	e.hear(fmt.Sprint("wanted ", t.Name, " ", entry))
}
func (e *ears) ChangedAll() { e.hear("changed all") }
func (e *ears) WatchFailed(t backend.Topic, err error) {
	e.hear("failed " + t.Name + ": " + err.Error())
}

// await waits until what was heard n times in all.
func (e *ears) await(t *testing.T, what string, n int) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		e.mu.Lock()
		got, more := e.heard[what], e.more
		e.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%q was heard %d times, want %d; heard %v", what, got, n, e.all())
		}
	}
}

func (e *ears) all() (out []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for what, n := range e.heard {
		if out = append(out, fmt.Sprint(what, " ", n)); len(out) == 20 {
			break
		}
	}
	return out
}

func session(t *testing.T, b backend.Backend) (anykind.Store, *ears) {
	t.Helper()
	e := &ears{heard: map[string]int{}, more: make(chan struct{})}
	s := check.Value(b.Open(e)).In(t)
	t.Cleanup(func() {
		check.Done(t, s.Close())
	})
	return anykind.Store{Store: s}, e
}

func topic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

func acquire(t *testing.T, s anykind.Store, name, owner string, lease time.Duration) anykind.AcquireReply {
	t.Helper()
	r := check.Value(s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: owner, Lease: lease})).In(t)
	return r
}

func release(t *testing.T, s anykind.Store, name, owner string) {
	t.Helper()
	r, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: name, Owner: owner})
	check.FatalIf(t, err != nil || !r.Held, "release: %+v %v", r, err)
}

func do(t *testing.T, srv *redistest.Server, args ...string) any {
	t.Helper()
	v, err := srv.Do(args...)
	check.FatalIf(t, err != nil, "%v: %v", args, err)
	return v
}

// eventually waits for what has no event to wait for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "not so within 20 s: %s", what)
	}
}

func noChannels(t *testing.T, srv *redistest.Server) {
	t.Helper()
	eventually(t, "no channel is subscribed",
		func() bool { return fmt.Sprint(do(t, srv, "PUBSUB", "CHANNELS")) == "[]" })
}

func TestTheRecordIsRedissons(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		java, javaEars := session(t, b)
		java.Subscribe(topic("orders:42"))
		javaEars.await(t, "watching orders:42", 1)
		const channel = "redisson_lock__channel:{orders:42}"
		channels := do(t, srv, "PUBSUB", "CHANNELS", channel+"*").([]any)
		own := slices.ContainsFunc(channels, func(c any) bool { return strings.HasPrefix(c.(string), channel+":to:") })
		check.ErrorIf(t, len(channels) != 3 || !own || !slices.Contains(channels, any(channel)) ||
			!slices.Contains(channels, any(channel+":mortise")), "channels %s", channels)
		acquire(t, s, "orders:42", "c:1", 30*time.Second)
		check.Equal(t, "HGETALL %s", fmt.Sprint(do(t, srv, "HGETALL", "orders:42")), "[c:1 1]")
		ms := do(t, srv, "PTTL", "orders:42").(int64)
		check.ErrorIf(t, ms < 15_000 || ms > 30_000, "PTTL %d", ms)
		if r, err := s.SetHolds(t.Context(), anykind.HoldsRequest{Name: "orders:42", Owner: "c:1", Holds: 2,
			Lease: time.Second}); err != nil || !r.Held {
			t.Fatal(r, err)
		}
		check.Equal(t, "after re-entry %s",
			fmt.Sprint(do(t, srv, "HGETALL", "orders:42"), do(t, srv, "PTTL", "orders:42").(int64) > 15_000), "[c:1 2] true")
		if r := acquire(t, s, "orders:42", "c:2", time.Second); r.Granted || r.Remaining < 15*time.Second ||
			r.Remaining > 30*time.Second {
			t.Errorf("%+v", r)
		}
		rec, err := s.Inspect(t.Context(), topic("orders:42"))
		check.ErrorIf(t, err != nil || !rec.Held || rec.Owner != "c:1" || rec.Holds != 2 || rec.Remaining < 15*time.Second,
			"%+v %v", rec, err)
		if r, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: "orders:42", Owner: "c:1",
			Keep: 1}); err != nil || !r.Held {
			t.Fatal(r, err)
		}
		release(t, s, "orders:42", "c:1")
		javaEars.await(t, "released orders:42", 1)
		check.ErrorIf(t, do(t, srv, "EXISTS", "orders:42").(int64) != 0, "the key is still there")
		do(t, srv, "HSET", "orders:42", "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
		if r := acquire(t, s, "orders:42", "c:2", time.Second); r.Granted || r.Remaining >= 0 {
			t.Errorf("a lock of Java's without expiry: %+v", r)
		}
		if freed, err := s.ForceRelease(t.Context(), topic("orders:42")); !freed || err != nil {
			t.Error(freed, err)
		}
		javaEars.await(t, "released orders:42", 2)
		do(t, srv, "PUBLISH", "redisson_lock__channel:{orders:42}", "00")
		do(t, srv, "PUBLISH", "redisson_lock__channel:{orders:42}", "0")
		javaEars.await(t, "released orders:42", 3)
		java.Unsubscribe(topic("orders:42"))
		noChannels(t, srv)
		check.Equal(t, "%d releases", javaEars.heard["released orders:42"], 3)
		r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "{t}:7", Owner: "c:1", Lease: time.Second,
			Fenced: true})
		check.ErrorIf(t, err != nil || !r.Granted || r.Token < time.Now().Add(-time.Hour).UnixMilli(), "%+v %v", r, err)
		got := fmt.Sprint(do(t, srv, "GET", "redisson_lock_token:{t}:7"))
		check.ErrorIf(t, got != fmt.Sprint(r.Token), "token key %s, token %d", got, r.Token)
	})
}

func TestOnlyTheFirstPingLoadsTheScripts(t *testing.T) {
	check.Long(t)
	overProxies(t, func(t *testing.T, _ string, _ *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		s, _ := session(t, b)
		check.NoError(t, s.Ping(t.Context()))
		check.Equal(t, "the first Ping sent %d SCRIPT LOAD", proxy.Count(redistest.Named("SCRIPT")), len(scripts.All))
		proxy.Reset()
		check.NoError(t, s.Ping(t.Context()))
		check.Equal(t, "the second Ping sent %q", fmt.Sprint(proxy.Commands()), "[PING]")
	})
}

func TestAFlushOfScriptsIsNotNoticed(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		check.NoError(t, s.Ping(t.Context()))
		for _, script := range scripts.All {
			got := fmt.Sprint(do(t, srv, "SCRIPT", "EXISTS", script.SHA1))
			check.ErrorIf(t, got != "[1]", "Ping did not load %s", script.Name)
		}
		flush := func() { do(t, srv, "SCRIPT", "FLUSH") }
		flush()
		check.ErrorIf(t, !acquire(t, s, "n", "o", time.Minute).Granted, "not granted")
		flush()
		out := make([]backend.RenewResult, 2)
		s.Renew(t.Context(), []anykind.RenewRequest{{Name: "n", Owner: "o", Lease: time.Minute},
			{Name: "m", Owner: "o", Lease: time.Minute}}, out)
		check.ErrorIf(t, out[0] != (backend.RenewResult{Held: true}) || out[1] != (backend.RenewResult{}), "%+v", out)
		flush()
		rec, err := s.Inspect(t.Context(), topic("n"))
		check.ErrorIf(t, err != nil || rec.Holds != 1, "%v, %v", rec, err)
		flush()
		release(t, s, "n", "o")
	})
}

func TestSubscriptionsComeBack(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		for i := range 20 {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		for i := range 20 {
			e.await(t, fmt.Sprint("watching ", i), 1)
		}
		check.Equal(t, "%d subscription connections", do(t, srv, "CLIENT", "KILL", "TYPE", "pubsub").(int64), 1)
		for i := range 20 {
			e.await(t, fmt.Sprint("watching ", i), 2)
		}
		do(t, srv, "PUBLISH", "redisson_lock__channel:{3}", "0")
		e.await(t, "released 3", 1)

		srv.Stop()
		time.Sleep(300 * time.Millisecond)
		srv.Restart()
		for i := range 20 {
			e.await(t, fmt.Sprint("watching ", i), 3)
		}
		do(t, srv, "PUBLISH", "redisson_lock__channel:{4}", "0")
		e.await(t, "released 4", 1)
		eventually(t, "commands go on", func() bool {
			_, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
			return err == nil
		})
		for i := range 20 {
			s.Unsubscribe(topic(fmt.Sprint(i)))
		}
		noChannels(t, srv)
	})
}

// Two would mean that the client library reconnected as well, behind our back.
func TestALostSubscriptionIsReplacedByOne(t *testing.T) {
	check.Long(t)
	overProxies(t, func(t *testing.T, name string, srv *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		s, e := session(t, b)
		s.Subscribe(topic("n"))
		e.await(t, "watching n", 1)
		proxy.Reset()
		do(t, srv, "CLIENT", "KILL", "TYPE", "pubsub")
		e.await(t, "watching n", 2)
		time.Sleep(100 * time.Millisecond)
		dials := proxy.Count(redistest.Named("HELLO"))
		subscribes := proxy.Count(redistest.Named("SUBSCRIBE"))
		most := 1
		if name == "rueidis RESP2" {
			most = 2 // rueidis wants one more beside it for commands
		}
		if dials > most || subscribes != 1 {
			t.Errorf("%d connections, %d SUBSCRIBE: %v", dials, subscribes, proxy.Commands())
		}
	})
}

func TestTenThousandWatchesTakeOneConnection(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		const n = 10_000
		s.Subscribe(topic("first"))
		e.await(t, "watching first", 1)
		goroutines := runtime.NumGoroutine()
		connections := len(strings.Split(strings.TrimSpace(fmt.Sprint(do(t, srv, "CLIENT", "LIST"))), "\n"))
		for i := range n {
			s.Subscribe(topic(fmt.Sprint(i)))
		}
		for i := range n {
			e.await(t, fmt.Sprint("watching ", i), 1)
		}
		eventually(t, "there are no goroutines more", func() bool { return runtime.NumGoroutine() <= goroutines+3 })
		list := ""
		eventually(t, "there are no connections more", func() bool {
			list = strings.TrimSpace(fmt.Sprint(do(t, srv, "CLIENT", "LIST")))
			return len(strings.Split(list, "\n")) <= connections
		})
		check.ErrorIf(t, !strings.Contains(list, fmt.Sprint("sub=", 3*(n+1), " ")), "not all on one connection:\n%s", list)
		do(t, srv, "PUBLISH", "redisson_lock__channel:{9999}", "0")
		e.await(t, "released 9999", 1)
		for i := range n {
			s.Unsubscribe(topic(fmt.Sprint(i)))
		}
		s.Unsubscribe(topic("first"))
		noChannels(t, srv)
	})
}

func TestARenewalOfManyIsFewCommands(t *testing.T) {
	check.Long(t)
	overProxies(t, func(t *testing.T, name string, srv *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		s, _ := session(t, b)
		const n = 600
		in, out := make([]anykind.RenewRequest, n), make([]backend.RenewResult, n)
		for i := range in {
			in[i] = anykind.RenewRequest{Name: fmt.Sprint(i), Owner: "o", Lease: time.Minute}
			if i%2 == 0 {
				acquire(t, s, in[i].Name, "o", 20*time.Second)
			}
		}
		s.Renew(t.Context(), in[:1], out[:1])
		proxy.Reset()
		s.Renew(t.Context(), in, out)
		for i, r := range out {
			check.FatalIf(t, r.Err != nil || r.Held != (i%2 == 0), "%d: %+v", i, r)
		}
		want := 3
		if strings.HasPrefix(name, "rueidis") && !strings.Contains(name, "own client") { // it would track
			want = (n + redisproto.TrackedBatch - 1) / redisproto.TrackedBatch
		}
		if c := proxy.Count(redistest.Named("EVALSHA", "EVAL")); c != want {
			t.Errorf("%d commands for %d leases: %.300v", c, n, proxy.Commands())
		}
		ms := do(t, srv, "PTTL", "598").(int64)
		check.ErrorIf(t, ms < 50_000, "PTTL %d", ms)
	})
}

func TestOtherKindsAreRefusedNotGranted(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		do(t, srv, "HSET", "rw", "mode", "read", "c:1", "1")
		do(t, srv, "SET", "string", "x")
		do(t, srv, "RPUSH", "list", "x")
		for _, name := range []string{"rw", "string", "list"} {
			_, acquired := s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: "o", Lease: time.Second})
			_, fenced := s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: "o", Lease: time.Second,
				Fenced: true})
			_, inspected := s.Inspect(t.Context(), topic(name))
			_, forced := s.ForceRelease(t.Context(), topic(name))
			for what, err := range map[string]error{"acquire": acquired, "fenced": fenced, "inspect": inspected,
				"force": forced} {
				f := backend.FaultOf(err)
				check.ErrorIf(t, !errors.Is(err, backend.ErrWrongKind) || f.Remedy == "" || f.Temporary, "%s %s: %v %+v", what,
					name, err, f)
			}
			f := backend.FaultOf(acquired)
			check.ErrorIf(t, f.MayHaveRun, "%s: %+v", name, f)
		}
	})
}

func TestFaultsOfARealServer(t *testing.T) {
	check.Long(t)
	for name, adapter := range adapters {
		if strings.Contains(name, "own client") {
			continue // cannot be built without a login that works
		}
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithPassword("right"), redistest.WithACL(
				"mute on >pw ~* resetchannels +@all",
				"half on >pw ~* &* +@all -pexpire",
				"none on >pw ~other* &* +@all",
				"bare on >pw ~* &* +@all -evalsha -eval",
			))
			try := func(as login) (backend.Fault, error) {
				s, _ := session(t, adapter(t, srv.Addr(), as))
				defer s.Close()
				_, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
				return backend.FaultOf(err), err
			}
			for _, c := range []struct {
				as         login
				text       string
				mayHaveRun bool
			}{
				{login{}, "NOAUTH", false},
				{login{"", "wrong"}, "WRONGPASS", false},
				{login{"none", "pw"}, "NOPERM", false},
				{login{"bare", "pw"}, "NOPERM", false},
				{login{"half", "pw"}, "pexpire", true},
			} {
				f, err := try(c.as)
				check.ErrorIf(t, err == nil || !strings.Contains(err.Error(), c.text) || f.Remedy == "" || f.Temporary ||
					f.MayHaveRun != c.mayHaveRun, "%v: %+v", c.as, f)
			}
			do(t, srv, "DEL", "n")

			s, e := session(t, adapter(t, srv.Addr(), login{"mute", "pw"}))
			acquire(t, s, "n", "o", time.Minute)
			_, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: "n", Owner: "o"})
			f := backend.FaultOf(err)
			check.ErrorIf(t, err == nil || !f.MayHaveRun || f.Temporary || !strings.Contains(f.Remedy, "lacks a channel"),
				"release without permission for the channel: %v %+v", err, f)
			if do(t, srv, "EXISTS", "n").(int64) != 0 {
				t.Log("the release did not take effect")
			}
			s.Subscribe(topic("n"))
			eventually(t, "the watcher is told", func() bool {
				return slices.ContainsFunc(e.all(), func(s string) bool {
					return strings.HasPrefix(s,
						"failed n: NOPERM")
				})
			})
			do(t, srv, "ACL", "SETUSER", "mute", "&*")
			e.await(t, "watching n", 1)
		})
	}
}

func TestAServerThatIsAwayIsAFaultInBoundedTime(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		check.NoError(t, s.Ping(t.Context()))
		srv.Pause()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.Acquire(ctx, anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
		if f := backend.FaultOf(err); err == nil || !f.MayHaveRun || !f.Temporary || time.Since(start) > 9*time.Second {
			t.Errorf("paused: %v after %v", err, time.Since(start))
		}
		srv.Stop()
		var f backend.Fault
		eventually(t, "the dial is refused", func() bool {
			_, err = s.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
			f = backend.FaultOf(err)
			return err != nil && !f.MayHaveRun
		})
		check.ErrorIf(t, !f.Temporary || f.Remedy == "", "stopped: %+v", f)
		srv.Restart()
		eventually(t, "it works again", func() bool {
			r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
			return err == nil && r.Granted
		})
	})
}

func TestAReplyThatIsLostIsNotSentAgain(t *testing.T) {
	check.Long(t)
	overProxies(t, func(t *testing.T, _ string, srv *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		s, _ := session(t, b)
		check.NoError(t, s.Ping(t.Context()))
		for i := range 30 { // all connections of the pool are open
			acquire(t, s, fmt.Sprint(i), "o", time.Second)
		}
		srv.Pause()
		proxy.Reset()
		done := make(chan error)
		go func() {
			_, err := s.Acquire(context.Background(),
				anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
			done <- err
		}()
		eventually(t, "it is sent", func() bool { return proxy.Count(redistest.Named("EVALSHA")) > 0 })
		proxy.Cut()
		err := <-done
		srv.Resume()
		f := backend.FaultOf(err)
		check.ErrorIf(t, err == nil || !f.MayHaveRun || !f.Temporary, "%v %+v", err, f)
		time.Sleep(100 * time.Millisecond)
		check.Equal(t, "sent %d times", proxy.Count(redistest.Named("EVALSHA", "EVAL")), 1)
	})
}

func TestACloseLeavesNoConnectionAndNoGoroutine(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		opened := func(sessions int) {
			for range sessions {
				s, e := session(t, b)
				acquire(t, s, "n", "o", time.Second)
				s.Subscribe(topic("n"))
				e.await(t, "watching n", 1)
				s.Close()
			}
		}
		opened(3) // the client's own machinery starts
		goroutines := runtime.NumGoroutine()
		const sessions = 30
		opened(sessions)
		// A client of rueidis starts goroutines for each of its connections in its own time, at the latest with a PING:
		// up to three, for four connections. They are its user's.
		eventually(t, "the goroutines end", func() bool { return runtime.NumGoroutine() < goroutines+sessions })
		noChannels(t, srv)
	})
}

func TestOnAClusterOfOneNode(t *testing.T) {
	check.Long(t)
	overClusters(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		out := make([]backend.RenewResult, 300)
		in := make([]anykind.RenewRequest, 300)
		for i := range in {
			in[i] = anykind.RenewRequest{Name: fmt.Sprint(i), Owner: "o", Lease: time.Minute}
		}
		s.Renew(t.Context(), in, out) // the first command of all
		for i := range in {
			check.NoError(t, out[i].Err)
			acquire(t, s, in[i].Name, "o", 20*time.Second)
		}
		check.Done(t, s.Ping(t.Context()))
		s.Renew(t.Context(), in, out)
		for i := range in {
			check.FatalIf(t, out[i] != (backend.RenewResult{Held: true}), "%d: %+v", i, out[i])
		}
		s.Subscribe(topic("7"))
		e.await(t, "watching 7", 1)
		release(t, s, "7", "o")
		e.await(t, "released 7", 1)
		do(t, srv, "CLIENT", "KILL", "TYPE", "pubsub")
		e.await(t, "watching 7", 2)
		r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "7", Owner: "o", Lease: time.Second,
			Fenced: true})
		check.ErrorIf(t, err != nil || !r.Granted || r.Token == 0, "%v, %v", r, err)
	})
}
