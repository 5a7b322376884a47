//go:build unix

package rueidis_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/rueidis"
)

// ears hears events on channels, by name.
type ears struct {
	mu    sync.Mutex
	heard map[string]chan struct{}
}

func (e *ears) of(what string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.heard == nil {
		e.heard = map[string]chan struct{}{}
	}
	if e.heard[what] == nil {
		e.heard[what] = make(chan struct{}, 1000)
	}
	return e.heard[what]
}
func (e *ears) Watching(t backend.Topic) { e.of("watching " + t.Name) <- struct{}{} }
func (e *ears) Released(t backend.Topic) { e.of("released " + t.Name) <- struct{}{} }
func (e *ears) Changed(t backend.Topic)  { e.of("changed " + t.Name) <- struct{}{} }
func (e *ears) ChangedAll()              { e.of("changed all") <- struct{}{} }

func (e *ears) await(t *testing.T, what string) {
	t.Helper()
	select {
	case <-e.of(what):
	case <-time.After(20 * time.Second):
		t.Fatalf("not heard: %s", what)
	}
}

func (e *ears) silent(t *testing.T, what string) {
	t.Helper()
	select {
	case <-e.of(what):
		t.Errorf("heard: %s", what)
	case <-time.After(100 * time.Millisecond):
	}
}

func open(t *testing.T, b backend.Backend) (backend.Store, *ears) {
	t.Helper()
	e := &ears{}
	s := check.Value(b.Open(e)).In(t)
	t.Cleanup(func() { _ = s.Close() })
	return s, e
}

func at(addr string) backend.Backend { return rueidis.New(small(addr)) }

// small are the options of a client whose connections take little memory.
func small(addrs ...string) redis.ClientOption {
	return redis.ClientOption{
		InitAddress: addrs, RingScaleEachConn: redistest.RingScale,
		ReadBufferEachConn: redistest.BufferSize, WriteBufferEachConn: redistest.BufferSize,
	}
}

func smallNoCache(addrs ...string) redis.ClientOption {
	o := small(addrs...)
	o.DisableCache = true
	return o
}

func try(t *testing.T, s backend.Store, name, owner string) backend.AcquireReply {
	t.Helper()
	q := backend.AcquireRequest{Name: name, Owner: owner, Lease: 30 * time.Second, Unasked: true}
	return check.Value(s.Acquire(t.Context(), q)).In(t)
}

// refuse has s refuse a held lock until a refusal costs no command: s then knows the holder, and hears of its end.
func refuse(t *testing.T, srv *redistest.Server, s backend.Store, name string) {
	t.Helper()
	awaitThat(t, "the lock is refused without a command", func() bool {
		before := srv.Calls("evalsha", "eval")
		check.FatalIf(t, try(t, s, name, "o").Granted, "granted")
		return srv.Calls("evalsha", "eval") == before
	})
}

// free releases what its owner holds.
func free(t *testing.T, s backend.Store, name, owner string) {
	t.Helper()
	r, err := s.Release(t.Context(), backend.ReleaseRequest{Name: name, Owner: owner})
	check.ErrorIf(t, err != nil || !r.Held, "release of %s: %+v, %v", name, r, err)
}

func do(t *testing.T, srv *redistest.Server, args ...string) any {
	t.Helper()
	return check.Value(srv.Do(args...)).In(t)
}

func TestAHeldLockIsRefusedWithoutACommand(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	s, e := open(t, at(proxy.Addr()))
	holder, _ := open(t, at(srv.Addr()))
	check.FatalIf(t, !try(t, holder, "n", "h").Granted, "not granted")
	refuse(t, srv, s, "n")
	proxy.Reset()
	began := time.Now()
	for range 1000 {
		r := try(t, s, "n", "o")
		check.FatalIf(t, r.Granted || r.Remaining <= 0 || r.Remaining > 30*time.Second, "%+v", r)
	}
	pauses := int(time.Since(began) / (500 * time.Millisecond)) // of a busy machine: the cache asks again after each
	if n := proxy.Count(redistest.Named("EVALSHA", "EVAL")); n > 3*pauses {
		t.Errorf("%d commands for 1000 refusals in %v: %v", n, time.Since(began), proxy.Commands())
	}
	for what, end := range map[string]func(){
		"release": func() { holder.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h"}) },
		"DEL":     func() { do(t, srv, "DEL", "n") },
		"expiry": func() {
			do(t, srv, "PEXPIRE", "n", "3000")
			e.await(t, "changed n") // by PEXPIRE
			refuse(t, srv, s, "n")
			r := try(t, s, "n", "o")
			check.ErrorIf(t, r.Granted || r.Remaining > 3*time.Second, "%+v", r)
		},
	} {
		end()
		e.await(t, "changed n")
		check.ErrorIf(t, !try(t, s, "n", "o").Granted, "refused after %s", what)
		// Its own release is not told to it; it has to know by itself.
		free(t, s, "n", "o")
		for len(e.of("changed n")) > 0 {
			<-e.of("changed n")
		}
		check.FatalIf(t, !try(t, holder, "n", "h").Granted, "not granted")
		refuse(t, srv, s, "n")
	}
	do(t, srv, "FLUSHALL")
	e.await(t, "changed all")
	check.ErrorIf(t, !try(t, s, "n", "o").Granted, "refused after FLUSHALL")
}

func TestTheOwnReleaseIsNotForgotten(t *testing.T) {
	srv := redistest.Start(t)
	s, _ := open(t, at(srv.Addr()))
	for range 20 {
		check.FatalIf(t, !try(t, s, "n", "a").Granted, "not granted")
		refuse(t, srv, s, "n")
		free(t, s, "n", "a")
		check.FatalIf(t, !try(t, s, "n", "b").Granted, "refused after the own release")
		if r, err := s.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"}); err != nil || !r {
			t.Fatal(r, err)
		}
	}
}

func TestAHolderHearsThatItsRecordWasDeleted(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	s, e := open(t, at(srv.Addr()))
	for what, before := range map[string]func(){
		"acquire": func() {
			r := try(t, s, "n", "a")
			check.FatalIf(t, !r.Granted || r.VerifyAfter <= 0, "%+v", r)
			out := make([]backend.RenewResult, 1)
			s.Renew(t.Context(), []backend.RenewRequest{{Name: "n", Owner: "a"}}, out) // it asks to be asked
			check.FatalIf(t, !out[0].Held, "%v", out)
		},
		"renewal": func() {
			try(t, s, "n", "a")
			out := make([]backend.RenewResult, 1)
			s.Renew(t.Context(), []backend.RenewRequest{{Name: "n", Owner: "a", Lease: time.Hour}}, out)
			check.FatalIf(t, !out[0].Held, "%v", out)
		},
		"re-entry": func() {
			try(t, s, "n", "a")
			r, err := s.SetHolds(t.Context(), backend.HoldsRequest{Name: "n", Owner: "a", Holds: 2, Lease: time.Hour})
			check.FatalIf(t, err != nil || !r.Held, "%v, %v", r, err)
		},
	} {
		before()
		e.silent(t, "changed n") // of its own writes
		do(t, srv, "DEL", "n")
		e.await(t, "changed n")
		t.Log(what)
	}
}

func TestALostConnectionForgetsAll(t *testing.T) {
	srv := redistest.Start(t)
	proxy := redistest.NewProxy(t, srv.Addr())
	s, e := open(t, at(proxy.Addr()))
	do(t, srv, "HSET", "n", "java:1", "1")
	refuse(t, srv, s, "n")
	proxy.Cut()
	e.await(t, "changed all")
	do(t, srv, "DEL", "n") // nobody tells
	ask := backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Minute, Unasked: true}
	r, err := s.Acquire(t.Context(), ask)
	// the connections on which nobody listens break when they are used
	for cut := 0; err != nil && backend.FaultOf(err).Temporary && cut < 2; cut++ {
		r, err = s.Acquire(t.Context(), ask)
	}
	check.ErrorIf(t, err != nil || !r.Granted, "%+v, %v: refused from what was seen over a connection that is gone", r,
		err)
}

// Nothing is read over a connection for subscriptions, so its end says nothing about records: nothing is forgotten, and
// no lease is renewed for it.
func TestALostSubscriptionForgetsNothing(t *testing.T) {
	check.Long(t)
	single, cluster := redistest.Start(t), redistest.StartCluster(t, 3)
	for what, c := range map[string]struct {
		servers []*redistest.Server
		sharded redisproto.ShardedPubSub
	}{
		"single":  {[]*redistest.Server{single}, rueidis.ShardedAuto},
		"cluster": {cluster.Masters, rueidis.ShardedOff},
		"sharded": {cluster.Masters, rueidis.ShardedOn},
	} {
		t.Run(what, func(t *testing.T) {
			// With one address: rueidis may close connections to further ones soon after it has opened them.
			opt := redis.ClientOption{InitAddress: []string{c.servers[0].Addr()}}
			holder, _ := open(t, rueidis.New(opt))
			s, e := open(t, rueidis.New(opt, rueidis.WithShardedPubSub(c.sharded)))
			check.FatalIf(t, !try(t, holder, what, "h").Granted, "not granted")
			s.Subscribe(backend.Topic{Name: what})
			e.await(t, "watching "+what)
			sum := func(of func(*redistest.Server) int64) (n int64) {
				for _, srv := range c.servers {
					n += of(srv)
				}
				return n
			}
			check.Equal(t, "%d connections for subscriptions", sum(func(srv *redistest.Server) int64 {
				return do(t, srv, "CLIENT", "KILL", "TYPE", "pubsub").(int64)
			}), 1)
			e.await(t, "watching "+what)
			e.silent(t, "changed all")
		})
	}
}

func TestTheUsersOwnOnInvalidationsIsCalledToo(t *testing.T) {
	srv := redistest.Start(t)
	heard := make(chan int, 10)
	s, _ := open(t, rueidis.New(redis.ClientOption{
		InitAddress:     []string{srv.Addr()},
		OnInvalidations: func(m []redis.RedisMessage) { heard <- len(m) },
	}))
	do(t, srv, "HSET", "n", "java:1", "1")
	refuse(t, srv, s, "n")
	do(t, srv, "DEL", "n")
	check.Equal(t, "%d keys", <-heard, 1)
}

func TestWithoutTrackingAllElseWorks(t *testing.T) {
	srv := redistest.Start(t, redistest.WithACL("plain on >pw ~* &* +@all -client|tracking"))
	for name, opt := range map[string]redis.ClientOption{
		"switched off":         {DisableCache: true},
		"RESP2":                {AlwaysRESP2: true},
		"refused":              {Username: "plain", Password: "pw"},
		"no automatic batches": {DisableCache: true, DisableAutoPipelining: true},
	} {
		t.Run(name, func(t *testing.T) {
			do(t, srv, "FLUSHALL")
			opt.InitAddress = []string{srv.Addr()}
			s, e := open(t, rueidis.New(opt))
			do(t, srv, "HSET", "n", "java:1", "1")
			for range 2 {
				check.FatalIf(t, try(t, s, "n", "o").Granted, "granted")
			}
			hearsOfARelease(t, srv, s, e)
		})
	}
}

// hearsOfARelease checks that a session without tracking hears of a release by its message, and is granted the lock: no
// cache that hears of nothing refuses it.
func hearsOfARelease(t *testing.T, srv *redistest.Server, s backend.Store, e *ears) {
	t.Helper()
	s.Subscribe(backend.Topic{Name: "n"})
	e.await(t, "watching n")
	do(t, srv, "DEL", "n")
	do(t, srv, "PUBLISH", "redisson_lock__channel:{n}", "0")
	e.await(t, "released n")
	check.ErrorIf(t, !try(t, s, "n", "o").Granted, "the lock that became free is refused")
}

// A user that loses +client|tracking, as after a failover to a server without it, goes on as if it had never had it.
func TestTrackingThatIsRefusedLaterIsDoneWithout(t *testing.T) {
	srv := redistest.Start(t, redistest.WithACL("some on >pw ~* &* +@all"))
	s, e := open(t, rueidis.New(redis.ClientOption{
		InitAddress: []string{srv.Addr()}, Username: "some", Password: "pw",
	}))
	do(t, srv, "HSET", "n", "java:1", "1")
	check.FatalIf(t, try(t, s, "n", "o").Granted || !try(t, s, "held", "o").Granted, "exclusion")
	do(t, srv, "ACL", "SETUSER", "some", "-client|tracking")
	do(t, srv, "CLIENT", "KILL", "USER", "some")
	e.await(t, "changed all")

	out := make([]backend.RenewResult, 1)
	for range 5 { // the connections that were killed cost a try each
		if s.Renew(t.Context(), []backend.RenewRequest{{Name: "held", Owner: "o", Lease: time.Minute}}, out); out[0].Held {
			break
		}
		check.FatalIf(t, !backend.FaultOf(out[0].Err).Temporary, "renewal: %v", out[0].Err)
	}
	check.ErrorIf(t, !out[0].Held, "not renewed: %v", out[0].Err)
	check.ErrorIf(t, try(t, s, "n", "o").Granted, "granted")
	hearsOfARelease(t, srv, s, e)
}

func TestOpenTwiceAndTheFirstClosed(t *testing.T) {
	srv := redistest.Start(t)
	b := at(srv.Addr())
	one, _ := open(t, b)
	two, _ := open(t, b)
	check.FatalIf(t, !try(t, one, "n", "a").Granted || try(t, two, "n", "b").Granted, "exclusion")
	one.Close()
	check.ErrorIf(t, try(t, two, "n", "b").Granted || !try(t, two, "m", "b").Granted,
		"the second does not work without the first")
}

func TestTheClientIsBuiltAtTheFirstCommandAndTriedAgain(t *testing.T) {
	srv := redistest.Start(t)
	srv.Stop()
	s, _ := open(t, at(srv.Addr()))
	for range 2 {
		_, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
		var op *net.OpError
		f := backend.FaultOf(err)
		check.FatalIf(t, !errors.As(err, &op) || f.MayHaveRun || !f.Temporary, "%+v", f)
	}
	srv.Restart()
	proxy := redistest.NewProxy(t, srv.Addr())
	s, _ = open(t, at(proxy.Addr()))
	check.ErrorIf(t, proxy.Connections() != 0, "Open dials")
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			_, err := s.Acquire(context.Background(),
				backend.AcquireRequest{Name: fmt.Sprint(i), Owner: "o", Lease: time.Second})
			check.Done(t, err)
		})
	}
	wg.Wait()
	c := proxy.Connections()
	check.ErrorIf(t, c > 4, "%d connections", c) // one is a lone caller's, as each is for a moment
}

func TestOptionsThatCannotWorkAreErrorsOfOpen(t *testing.T) {
	to := []string{"127.0.0.1:1"}
	for text, b := range map[string]backend.Backend{
		"InitAddress":  rueidis.New(redis.ClientOption{}),
		"ConnLifetime": rueidis.New(redis.ClientOption{InitAddress: to, ConnLifetime: time.Hour}),
		"ClientTrackingOptions": rueidis.New(redis.ClientOption{InitAddress: to,
			ClientTrackingOptions: []string{"BCAST"}}),
		"DisableAutoPipelining":   rueidis.New(redis.ClientOption{InitAddress: to, DisableAutoPipelining: true}),
		"NewWithClient: the clie": rueidis.NewWithClient(nil),
		"rueidis: a nil Option":   rueidis.New(redis.ClientOption{InitAddress: to}, nil),
		"WithShardedPubSub":       rueidis.New(redis.ClientOption{InitAddress: to}, rueidis.WithShardedPubSub(7)),
	} {
		_, err := b.Open(&ears{})
		check.ErrorIf(t, err == nil || !strings.Contains(err.Error(), text), "%s: %v", text, err)
	}
}

// rueidis itself finds that a slot has no node, and sends nothing.
func TestASlotWithoutANodeIsNotServed(t *testing.T) {
	check.Long(t)
	cluster := redistest.StartCluster(t, 1)
	cluster.Masters[0].Must("CLUSTER", "DELSLOTS", fmt.Sprint(redisproto.Slot("n")))
	s, _ := open(t, rueidis.New(redis.ClientOption{InitAddress: cluster.Addrs()}))
	_, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
	f := backend.FaultOf(err)
	check.ErrorIf(t, !errors.Is(err, redis.ErrNoSlot) || f.MayHaveRun || !f.Temporary ||
		!strings.Contains(f.Remedy, "does not serve this slot"), "%v: %+v", err, f)
}

// That a store is a cluster, which has no age, shows when the client is built: at this very command.
func TestTheFirstCommandMayAskAClusterForItsAge(t *testing.T) {
	check.Long(t)
	cluster := redistest.StartCluster(t, 3)
	for _, sharded := range []rueidis.Option{rueidis.WithShardedPubSub(rueidis.ShardedAuto),
		rueidis.WithShardedPubSub(rueidis.ShardedOff)} {
		b := rueidis.New(redis.ClientOption{InitAddress: cluster.Addrs()}, sharded)
		s, _ := open(t, b)
		for i := range 8 { // one of them is not in the slot of the key that says the age
			r, err := s.Capabilities().Age.AcquireAged(t.Context(), backend.AgedRequest{
				AcquireRequest: backend.AcquireRequest{Name: fmt.Sprint("n", i), Owner: "o", Lease: time.Second},
				Age:            backend.Age{Least: time.Minute}})
			check.FatalIf(t, err != nil || !r.Granted, "%+v, %v", r, err)
			check.NoError(t, check.Err(s.Release(t.Context(), backend.ReleaseRequest{Name: fmt.Sprint("n", i), Owner: "o"})))
		}
	}
}

// What rueidis does when a connection breaks while it finds out whether a server is one of a cluster:
// the answer is taken for a yes. Here the first answer is one.
func TestASingleServerIsNotTakenForAClusterForGood(t *testing.T) {
	srv := redistest.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.NoError(t, err)
	host, port, _ := net.SplitHostPort(l.Addr().String())
	yes := fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$%d\r\n%s\r\n:%s\r\n$1\r\nx\r\n", len(host), host, port)
	// The same in answer to CLUSTER SHARDS, which rueidis sends to Redis 8 and Valkey 8.
	yesShards := fmt.Sprintf("*1\r\n*4\r\n$5\r\nslots\r\n*2\r\n:0\r\n:16383\r\n$5\r\nnodes\r\n*1\r\n*8\r\n$4\r\nport\r\n"+
		":%s\r\n$8\r\nendpoint\r\n$%d\r\n%s\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$6\r\nhealth\r\n$6\r\nonline\r\n", port,
		len(host), host)
	var asked atomic.Int64
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", srv.Addr())
			if err != nil {
				client.Close()
				continue
			}
			conns.Go(func() {
				io.Copy(client, server)
				client.Close()
			})
			conns.Go(func() {
				defer server.Close()
				for b := make([]byte, 1<<16); ; {
					n, err := client.Read(b)
					if err != nil {
						return
					}
					shards := bytes.Contains(b[:n], []byte("SHARDS"))
					if (shards || bytes.Contains(b[:n], []byte("SLOTS"))) && asked.Add(1) == 1 {
						if shards {
							io.WriteString(client, yesShards)
						} else {
							io.WriteString(client, yes)
						}
						continue
					}
					server.Write(b[:n])
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); conns.Wait() }) // after the session
	s, e := open(t, at(l.Addr().String()))
	_, err = s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Second})
	check.FatalIf(t, !backend.FaultOf(err).Temporary, "the first build: %v", err)
	check.ErrorIf(t, !try(t, s, "n", "o").Granted, "not granted")
	s.Subscribe(backend.Topic{Name: "n"})
	e.await(t, "watching n")
	if asked.Load() < 3 {
		t.Errorf("asked %d times", asked.Load())
	}
}

// Plain and fenced locks that are taken, released and not waited for leave nothing at the server to
// tell anybody about, taken one by one or many at a time. One that is asked after is heard of.
func TestTheServerRemembersNothingOfBriefLocks(t *testing.T) {
	srv := redistest.Start(t)
	s, e := open(t, at(srv.Addr()))
	check.NoError(t, s.Ping(t.Context()))
	tracked := func() string {
		info := do(t, srv, "INFO", "stats").(string)
		_, rest, _ := strings.Cut(info, "tracking_total_keys:")
		n, _, _ := strings.Cut(rest, "\r\n")
		return n
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			name := fmt.Sprint("n", i)
			check.ErrorIf(t, !try(t, s, name, "a").Granted, "refused")
			if i%2 == 0 {
				return
			}
			free(t, s, name, "a")
		})
	}
	all.Wait()
	for range 2 {
		r, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "fenced", Owner: "a", Lease: time.Minute, Fenced: true})
		check.FatalIf(t, err != nil || !r.Granted || r.VerifyAfter <= 0, "%v, %v", r, err)
		free(t, s, "fenced", "a")
	}
	check.Equal(t, "%s names are remembered", tracked(), "0")
	out := make([]backend.RenewResult, 1)
	s.Renew(t.Context(), []backend.RenewRequest{{Name: "n0", Owner: "a"}}, out)
	n := tracked()
	check.ErrorIf(t, !out[0].Held || n != "1", "%+v; %s names are remembered, want 1", out[0], n)
	do(t, srv, "DEL", "n0")
	e.await(t, "changed n0")
}

// A server that has no room for more connections serves those whom it knows.
func TestNoRoomForTheOtherConnections(t *testing.T) {
	srv := redistest.Start(t)
	s, _ := open(t, at(srv.Addr()))
	check.NoError(t, check.Err(s.Inspect(t.Context(), "n"))) // by the connection that tracks
	do(t, srv, "CONFIG", "SET", "maxclients", "1")
	r, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Minute})
	check.ErrorIf(t, err != nil || !r.Granted, "%+v, %v", r, err)
	free(t, s, "n", "o")
}

// The end of a reservation is the session's own write, of which no invalidation tells.
func TestALockThatWasReservedIsFreeWhenItsClientHasLeftTheQueue(t *testing.T) {
	srv := redistest.Start(t)
	holder, _ := open(t, rueidis.New(redis.ClientOption{InitAddress: []string{srv.Addr()}, DisableCache: true}))
	s, heard := open(t, at(srv.Addr()))
	topic := backend.Topic{Kind: backend.KindLock, Name: "n"}
	check.ErrorIf(t, !try(t, holder, "n", "h:1").Granted, "not granted")
	s.Subscribe(topic)
	defer s.Unsubscribe(topic)
	heard.await(t, "watching n")
	queue := s.Capabilities().Queue
	ask := backend.AcquireRequest{Name: "n", Owner: "w:1", Lease: time.Minute}
	r := check.Value(queue.Enrol(t.Context(), backend.EnrolRequest{AcquireRequest: ask, Entry: 1})).In(t)
	check.ErrorIf(t, !r.Enrolled, "%+v", r)
	check.Value(holder.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"})).In(t)
	heard.await(t, "changed n")
	refused := try(t, s, "n", "w:2")
	check.ErrorIf(t, refused.Granted, "it is not reserved")
	check.NoError(t, queue.Leave(t.Context(), backend.LeaveEntryRequest{Name: "n", Entry: 1, Owner: "w:1"}))
	again := try(t, s, "n", "w:3")
	check.ErrorIf(t, !again.Granted, "refused, though it is free: %+v; before %+v", again, refused)
}

// A server in a long script answers CLIENT TRACKING with BUSY, and tracks later.
func TestAServerThatWasBusyTracks(t *testing.T) {
	for what, built := range map[string]bool{"at first": false, "when the client connects again": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t, redistest.WithConfig("busy-reply-threshold 50"))
			s, e := open(t, at(srv.Addr()))
			do(t, srv, "HSET", "n", "java:1", "1")
			if built {
				try(t, s, "n", "o")
			}
			do(t, srv, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			if built {
				e.await(t, "changed all")
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = srv.Do("EVAL", "while true do end", "0")
			}()
			awaitThat(t, "the server is busy", func() bool { return check.Err(srv.Do("GET", "x")) != nil })
			err := s.Ping(t.Context())
			f := backend.FaultOf(err)
			check.ErrorIf(t, !f.Temporary || !strings.Contains(f.Remedy, "SCRIPT KILL"), "Ping: %v (%+v)", err, f)
			do(t, srv, "SCRIPT", "KILL")
			<-ended
			awaitThat(t, "the lock is refused without a command", func() bool {
				before := srv.Calls("eval", "evalsha")
				_, err := s.Acquire(t.Context(), backend.AcquireRequest{Name: "n", Owner: "o", Lease: time.Minute, Unasked: true})
				return err == nil && srv.Calls("eval", "evalsha") == before
			})
		})
	}
}
