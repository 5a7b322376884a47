//go:build unix

package redisproto_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// counter is a session on counts of all kinds.
type counter struct {
	anykind.Store
	takes
	latches
}

// takes is what [backend.CountingSemaphoreStore] has and other counts lack.
type takes interface {
	TakeCount(ctx context.Context, r backend.CountRequest) (backend.TakeReply, error)
	CancelTake(ctx context.Context, r backend.CountRequest) error
	DrainCount(ctx context.Context, r backend.CountRequest) (int64, error)
}

// latches is what [backend.CountDownLatchStore] has and other counts lack.
type latches interface {
	CountDown(ctx context.Context, r backend.CountRequest) (int64, error)
	DeleteCount(ctx context.Context, r backend.CountRequest) (bool, error)
}

func counterOf(s anykind.Store) counter {
	can := s.Capabilities()
	return counter{s, can.CountingSemaphores, can.CountDownLatches}
}

// request is one on a count, with an ID of its own.
func request(k backend.Kind, name string, n int64) backend.CountRequest {
	return backend.CountRequest{Topic: backend.Topic{Kind: k, Name: name}, ID: fmt.Sprint("c:", rand.Int64()), N: n}
}

const permitID = "00ff7f80c328a0a1fffe0d0a25245c22"

// listen subscribes to channels and returns what is published as "channel payload".
func listen(t *testing.T, srv *redistest.Server, channels ...string) func() string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	sub := rdb.Subscribe(t.Context(), channels...)
	t.Cleanup(func() { sub.Close(); rdb.Close() })
	for range channels {
		check.NoError(t, check.Err(sub.Receive(t.Context())))
	}
	return func() string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		m, err := sub.ReceiveMessage(ctx)
		check.FatalIf(t, err != nil, "nothing was published: %v", err)
		return m.Channel + " " + m.Payload
	}
}

// listenAsOurs listens to a channel of Redisson's as a client of mortise, for which there are no turns.
func listenAsOurs(t *testing.T, srv *redistest.Server, channel string) func() string {
	t.Helper()
	return listen(t, srv, channel, channel+":mortise")
}

func TestCountsLieWhereRedissonLooksForThem(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		raw, _ := session(t, b)
		s, ctx := counterOf(raw), t.Context()
		must := func(_ any, err error) {
			t.Helper()
			check.NoError(t, err)
		}
		get := func(want any, args ...string) {
			t.Helper()
			got := srv.Must(args...)
			check.ErrorIf(t, fmt.Sprint(got) != fmt.Sprint(want), "%v: %v, want %v", args, got, want)
		}
		heard := func(next func() string, want ...string) {
			t.Helper()
			for _, w := range want {
				check.Equal(t, "published %q", next(), w)
			}
		}

		for name, channel := range map[string]string{"l": "redisson_countdownlatch__channel__{l}",
			"{l}x": "redisson_countdownlatch__channel__{{l}x}"} {
			next := listen(t, srv, channel)
			must(s.SetCount(ctx, request(backend.KindCountDownLatch, name, 2)))
			get("2", "GET", name)
			must(s.CountDown(ctx, request(backend.KindCountDownLatch, name, 0)))
			get("1", "GET", name)
			must(s.CountDown(ctx, request(backend.KindCountDownLatch, name, 0)))
			get(0, "EXISTS", name)
			must(s.SetCount(ctx, request(backend.KindCountDownLatch, name, 1)))
			must(s.DeleteCount(ctx, request(backend.KindCountDownLatch, name, 0)))
			get(0, "EXISTS", name)
			heard(next, channel+" 1", channel+" 0", channel+" 1", channel+" 1")
		}

		for name, channel := range map[string]string{"s": "redisson_sc:{s}", "{s}x": "redisson_sc:{s}x"} {
			next := listenAsOurs(t, srv, channel)
			must(s.SetCount(ctx, request(backend.KindCountingSemaphore, name, 3)))
			take := request(backend.KindCountingSemaphore, name, 2)
			must(s.TakeCount(ctx, take))
			get("1", "GET", name)
			must(nil, s.CancelTake(ctx, take))
			get("3", "GET", name)
			must(s.AddCount(ctx, request(backend.KindCountingSemaphore, name, -5))) // says nothing
			must(s.AddCount(ctx, request(backend.KindCountingSemaphore, name, 1)))  // nor this: none are free
			must(s.AddCount(ctx, request(backend.KindCountingSemaphore, name, 4)))
			must(s.DrainCount(ctx, request(backend.KindCountingSemaphore, name, 0)))
			get("0", "GET", name)
			must(s.AddCount(ctx, request(backend.KindCountingSemaphore, name, backend.MaxCount)))
			must(s.AddCount(ctx, request(backend.KindCountingSemaphore, name, 1)))
			heard(next, channel+" +3", channel+" +3", channel+" +3", channel+" +2147483647", channel+" +2147483647")
		}

		next := listenAsOurs(t, srv, "redisson_sc:{p}")
		must(s.SetCount(ctx, request(backend.KindSemaphore, "p", 2)))
		srv.Must("PEXPIRE", "p", "3600000")
		if r, err := s.Acquire(ctx, anykind.AcquireRequest{Kind: backend.KindSemaphore, Name: "p", Owner: permitID,
			Lease: time.Minute}); err != nil || !r.Granted || r.Available != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		get("1", "GET", "p")
		members := srv.Must("ZRANGE", "{p}:timeout", "0", "-1").([]any)
		id, _ := hex.DecodeString(permitID)
		check.ErrorIf(t, len(members) != 1 || members[0] != string(id), "the permits that are out are %q", members)
		score, _ := strconv.ParseInt(srv.Must("ZSCORE", "{p}:timeout", members[0].(string)).(string), 10, 64)
		d := time.Until(time.UnixMilli(score))
		check.ErrorIf(t, d < 50*time.Second || d > time.Minute, "the permit ends in %v", d)
		ttl := srv.Must("PTTL", "{p}:timeout").(int64)
		check.ErrorIf(t, ttl < 3500000, "the zset lives for %d ms, the count for an hour", ttl)
		must(s.Release(ctx, anykind.ReleaseRequest{Kind: backend.KindSemaphore, Name: "p", Owner: permitID}))
		heard(next, "redisson_sc:{p} +2", "redisson_sc:{p} +2")

		ours := 0
		for _, key := range srv.Must("KEYS", "*").([]any) {
			if key := key.(string); strings.HasPrefix(key, "mortise:") {
				ours++
				ttl := srv.Must("PTTL", key).(int64)
				check.ErrorIf(t, ttl <= 0 || ttl > backend.Remembered.Milliseconds() || !strings.HasPrefix(key, "mortise:1:once:{"),
					"%s lives for %d ms", key, ttl)
			}
		}
		check.ErrorIf(t, ours == 0, "nothing is remembered")
	})
}

func TestWhatRedissonLeavesInPermitsIsUnderstood(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		raw, _ := session(t, b)
		s, ctx := counterOf(raw), t.Context()
		id, _ := hex.DecodeString(permitID)
		acquire := func() anykind.AcquireReply {
			t.Helper()
			r, err := s.Acquire(ctx, anykind.AcquireRequest{Kind: backend.KindSemaphore, Name: "p",
				Owner: strings.Repeat("ab", 16), Lease: time.Minute})
			check.NoError(t, err)
			return r
		}
		srv.Must("SET", "p", "0")
		srv.Must("ZADD", "{p}:timeout", "922337203685477", string(id)) // acquire() without a lease
		r := acquire()
		check.ErrorIf(t, r.Granted || r.Remaining >= 0, "one is out for ever, and another: %+v", r)
		out := make([]backend.RenewResult, 1)
		s.Renew(ctx, []anykind.RenewRequest{{Kind: backend.KindSemaphore, Name: "p", Owner: permitID,
			Lease: time.Hour}}, out)
		check.ErrorIf(t, !out[0].Held || srv.Must("ZSCORE", "{p}:timeout", string(id)) != "922337203685477",
			"a renewal shortened it: %+v", out)
		// its JVM died
		srv.Must("ZADD", "{p}:timeout", fmt.Sprint(time.Now().Add(-time.Second).UnixMilli()), string(id))
		n, err := s.Count(ctx, backend.Topic{Kind: backend.KindSemaphore, Name: "p"})
		check.ErrorIf(t, n != 1 || err != nil, "%d, %v are free", n, err)
		srv.Must("SET", "p", "0")
		srv.Must("ZADD", "{p}:timeout", fmt.Sprint(time.Now().Add(-time.Second).UnixMilli()), string(id))
		r = acquire()
		check.ErrorIf(t, !r.Granted, "what has ended is not given out: %+v", r)
		// No client writes a time before 1970. A waiter would ask each millisecond for a permit that never comes back.
		srv.Must("DEL", "{p}:timeout")
		srv.Must("SET", "p", "0")
		srv.Must("ZADD", "{p}:timeout", "-1", string(id))
		r = acquire()
		check.ErrorIf(t, !r.Granted, "what ended before 1970 is not given out: %+v", r)
	})
}

func TestMessagesWithoutAWaiterWakeNoWaiter(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, h := session(t, b)
		for _, x := range []struct {
			topic   backend.Topic
			channel string
			heeded  int
		}{
			{backend.Topic{Kind: backend.KindCountingSemaphore, Name: "s"}, "redisson_sc:{s}", 2},
			{backend.Topic{Kind: backend.KindSemaphore, Name: "p"}, "redisson_sc:{p}", 2},
			{backend.Topic{Kind: backend.KindCountDownLatch, Name: "l"}, "redisson_countdownlatch__channel__{l}", 5},
		} {
			s.Subscribe(x.topic)
			h.await(t, "watching "+x.topic.Name, 1)
			for _, payload := range []string{"0", "-3", "7", "00", "1"} {
				srv.Must("PUBLISH", x.channel, payload)
			}
			h.await(t, "released "+x.topic.Name, x.heeded)
			got := h.all()
			check.ErrorIf(t, slices.Contains(got, fmt.Sprintf("released %s %d", x.topic.Name, x.heeded+1)), "%v", got)
		}
	})
}

func TestCountsWorkOnACluster(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t, redistest.WithCluster())
	raw, h := session(t, goRedis(t, login{}, redis.UniversalOptions{Addrs: []string{srv.Addr()}, IsClusterMode: true}))
	s, ctx := counterOf(raw), t.Context()
	for _, name := range []string{"n", "{t}n", "a{t}"} {
		for _, k := range []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore} {
			top := backend.Topic{Kind: k, Name: name}
			s.Subscribe(top)
			h.await(t, "watching "+name, 1)
			for what, err := range map[string]error{
				"set":    check.Err(s.SetCount(ctx, request(k, name, 1))),
				"add":    check.Err(s.AddCount(ctx, request(k, name, 1))),
				"down":   check.Err(s.CountDown(ctx, request(k, name, 0))),
				"take":   check.Err(s.TakeCount(ctx, request(k, name, 1))),
				"cancel": s.CancelTake(ctx, request(k, name, 1)),
				"drain":  check.Err(s.DrainCount(ctx, request(k, name, 0))),
				"acquire": check.Err(s.Acquire(ctx, anykind.AcquireRequest{Kind: backend.KindSemaphore, Name: name,
					Owner: permitID, Lease: time.Minute})),
				"release": check.Err(s.Release(ctx, anykind.ReleaseRequest{Kind: backend.KindSemaphore, Name: name,
					Owner: permitID})),
				"count":  check.Err(s.Count(ctx, top)),
				"delete": check.Err(s.DeleteCount(ctx, request(k, name, 0))),
			} {
				check.ErrorIf(t, err != nil, "%s of %q: %v", what, name, err)
			}
			h.await(t, "released "+name, 1)
			s.Unsubscribe(top)
		}
	}
	in := []anykind.RenewRequest{
		{Kind: backend.KindSemaphore, Name: "a", Owner: permitID, Lease: time.Minute},
		{Kind: backend.KindSemaphore, Name: "b", Owner: permitID, Lease: time.Minute},
	}
	out := make([]backend.RenewResult, len(in))
	s.Renew(ctx, in, out)
	for _, r := range out {
		check.ErrorIf(t, r.Err != nil || r.Held, "a batch over two slots: %+v", r)
	}
}

// TestCountsOnRedisAndInMemoryAgree runs random operations on both and compares what
// they answer.
func TestCountsOnRedisAndInMemoryAgree(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, _ *redistest.Server, b backend.Backend) {
		redisSession, _ := session(t, b)
		memorySession, _ := session(t, memory.New())
		on, in := counterOf(redisSession), counterOf(memorySession)
		seed := time.Now().UnixNano()
		r := rand.New(rand.NewPCG(uint64(seed), 0))
		ctx := t.Context()

		kinds := []backend.Kind{backend.KindCountDownLatch, backend.KindCountingSemaphore, backend.KindSemaphore}
		past := map[string][]backend.CountRequest{} // some arrive again
		step := func() (string, func(counter) (any, error)) {
			op := []string{"set", "count", "down", "down", "delete", "add", "add", "take", "take", "cancel", "drain",
				"acquire", "acquire", "release", "renew"}[r.IntN(15)]
			k := kinds[r.IntN(3)]
			name := fmt.Sprint(k, "-", r.IntN(2))
			if r.IntN(30) == 0 {
				name = "lock"
			}
			q := request(k, name, 1+int64(r.IntN(3)))
			like := op
			if op == "cancel" {
				like = "take"
			}
			if old := past[like]; len(old) > 0 && r.IntN(4) == 0 {
				q = old[r.IntN(len(old))]
				q.Again = true
			} else {
				if op == "add" && r.IntN(2) == 0 {
					q.N = -q.N
				}
				past[like] = append(past[like], q)
			}
			id := fmt.Sprintf("%032x", r.IntN(5))
			return fmt.Sprintf("%s %+v %s", op, q, id), func(s counter) (any, error) {
				switch op {
				case "set":
					return s.SetCount(ctx, q)
				case "count":
					return s.Count(ctx, q.Topic)
				case "down":
					return s.CountDown(ctx, q)
				case "delete":
					return s.DeleteCount(ctx, q)
				case "add":
					return s.AddCount(ctx, q)
				case "take":
					return s.TakeCount(ctx, q)
				case "cancel":
					return nil, s.CancelTake(ctx, q)
				case "drain":
					return s.DrainCount(ctx, q)
				case "acquire":
					a, err := s.Acquire(ctx, anykind.AcquireRequest{Kind: backend.KindSemaphore, Name: name, Owner: id,
						Lease: time.Hour})
					a.Remaining = a.Remaining.Round(time.Hour)
					return a, err
				case "release":
					return s.Release(ctx, anykind.ReleaseRequest{Kind: backend.KindSemaphore, Name: name, Owner: id})
				default:
					out := make([]backend.RenewResult, 1)
					s.Renew(ctx, []anykind.RenewRequest{{Kind: backend.KindSemaphore, Name: name, Owner: id,
						Lease: time.Hour}}, out)
					return out[0].Held, out[0].Err
				}
			}
		}
		for _, s := range []counter{on, in} {
			a, err := s.Acquire(ctx, anykind.AcquireRequest{Name: "lock", Owner: "a:1", Lease: time.Hour})
			check.FatalIf(t, !a.Granted || err != nil, "%v, %v", a, err)
		}
		var log []string
		for range 1500 {
			what, do := step()
			a, errA := do(on)
			c, errC := do(in)
			log = append(log, fmt.Sprintf("%s: %+v, %v", what, a, errA))
			if fmt.Sprint(a) != fmt.Sprint(c) || errors.Is(errA, backend.ErrWrongKind) != errors.Is(errC,
				backend.ErrWrongKind) || (errA == nil) != (errC == nil) {
				t.Fatalf("seed %d: in memory it is %+v, %v, after\n%s", seed, c, errC,
					strings.Join(log[max(0, len(log)-25):], "\n"))
			}
		}
	})
}

func TestEachOperationOnACountIsOneCommand(t *testing.T) {
	overProxies(t, func(t *testing.T, _ string, _ *redistest.Server, proxy *redistest.Proxy, b backend.Backend) {
		c := check.Value(mortise.New(b)).In(t)
		defer c.Close()
		ctx := t.Context()
		check.NoError(t, c.Ping(ctx))
		l, s, p := latch.New(c, "l"), semaphore.NewCounting(c, "s"), semaphore.New(c, "p", 0)
		var permit, other *semaphore.Permit
		for _, x := range []struct {
			what string
			do   func() error
		}{
			{"Latch.TrySet", func() error { return check.Err(l.TrySet(ctx, 2)) }},
			{"Latch.Count", func() error { return check.Err(l.Count(ctx)) }},
			{"Latch.CountDown", func() error { return l.CountDown(ctx) }},
			{"Latch.Delete", func() error { return check.Err(l.Delete(ctx)) }},
			{"Latch.Wait", func() error { return l.Wait(ctx) }},
			{"Semaphore.TrySetPermits", func() error { return check.Err(s.TrySetPermits(ctx, 5)) }},
			{"Semaphore.Acquire", func() error { return s.Acquire(ctx, 2) }},
			{"Semaphore.TryAcquire", func() error { return s.TryAcquire(ctx, 2) }},
			{"Semaphore.Release", func() error { return s.Release(ctx, 4) }},
			{"Semaphore.AddPermits", func() error { return s.AddPermits(ctx, -1) }},
			{"Semaphore.Available", func() error { return check.Err(s.Available(ctx)) }},
			{"Semaphore.Drain", func() error { return check.Err(s.Drain(ctx)) }},
			{"Permits.TrySetPermits", func() error { return check.Err(p.TrySetPermits(ctx, 2)) }},
			{"Permits.Acquire", func() (err error) { permit, err = p.Acquire(ctx, 1); return err }},
			{"Permits.TryAcquire", func() (err error) { other, err = p.TryAcquire(ctx, 1); return err }},
			{"Permits.Available", func() error { return check.Err(p.Available(ctx)) }},
			{"Permit.Release", func() error { return permit.Release(ctx) }},
			{"Permits.Release", func() error { return p.Release(ctx, other.IDs()[0]) }},
		} {
			proxy.Reset()
			err := x.do()
			check.ErrorIf(t, err != nil, "%s: %v", x.what, err)
			// all but what opens a connection, and looks after one that is idle
			sent := proxy.Count(func(c redistest.Command) bool {
				return !slices.Contains([]string{"HELLO", "CLIENT", "PING"}, c.Args[0])
			})
			if sent != 1 {
				t.Errorf("%s: %q, want one command", x.what, proxy.Commands())
			}
		}
	})
}
