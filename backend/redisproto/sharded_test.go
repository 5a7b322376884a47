//go:build unix

package redisproto_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/semaphore"
)

// clusterAdapters are the ways to a cluster that tests run over. Client-side caching is off:
// it would wake waiters too.
var clusterAdapters = map[string]clusterAdapter{
	"go-redis": func(t *testing.T, addrs []string, as login, mode redisproto.ShardedPubSub) backend.Backend {
		return goRedis(t, as, redis.UniversalOptions{Addrs: addrs, IsClusterMode: true}, redisgo.WithShardedPubSub(mode))
	},
	"go-redis RESP2": func(t *testing.T, addrs []string, as login, mode redisproto.ShardedPubSub) backend.Backend {
		return goRedis(t, as, redis.UniversalOptions{Addrs: addrs, IsClusterMode: true, Protocol: 2},
			redisgo.WithShardedPubSub(mode))
	},
	"rueidis": func(t *testing.T, addrs []string, as login, mode redisproto.ShardedPubSub) backend.Backend {
		opt := rueidisAs(as, rueidislib.ClientOption{InitAddress: addrs, DisableCache: true})
		return rueidis.New(opt, rueidis.WithShardedPubSub(mode))
	},
	"rueidis RESP2, own client": func(t *testing.T, addrs []string, as login,
		mode redisproto.ShardedPubSub) backend.Backend {
		opt := rueidisAs(as, rueidislib.ClientOption{InitAddress: addrs, DisableCache: true, AlwaysRESP2: true})
		return ownRueidis(t, opt, rueidis.WithShardedPubSub(mode))
	},
}

type clusterAdapter func(t *testing.T, addrs []string, as login, mode redisproto.ShardedPubSub) backend.Backend

// forever is a lease that no test outlives: who gets what is held was woken.
const forever = time.Hour

const soon = 20 * time.Second

// kinds are all that can be waited for: how the first client takes it, and gives it back.
var kinds = map[string]struct {
	// hold returns what gives it back; wait waits for it and returns what gives that back.
	hold, wait func(ctx context.Context, c *mortise.Client, name string) (func() error, error)
}{
	"plain":              {lockAs(), lockAs()},
	"fenced":             {lockAs(mortise.Fenced()), lockAs(mortise.Fenced())},
	"fair":               {lockAs(mortise.Fair()), lockAs(mortise.Fair())},
	"read after write":   {write, read},
	"write after read":   {read, write},
	"counting semaphore": {acquireOne, acquireOne},
	"semaphore": {
		func(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
			if _, err := semaphore.New(c, name, 0).TrySetPermits(ctx, 1); err != nil {
				return nil, err
			}
			return acquirePermit(ctx, c, name)
		},
		acquirePermit,
	},
	"latch": {
		func(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
			l := latch.New(c, name)
			_, err := l.TrySet(ctx, 1)
			return func() error { return l.CountDown(context.Background()) }, err
		},
		func(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
			return func() error { return nil }, latch.New(c, name).Wait(ctx)
		},
	},
}

func take(l *mortise.Lease, err error) (func() error, error) {
	return func() error { return l.Unlock(context.Background()) }, err
}

func read(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
	l := c.RW().Read
	return take(l.Lock(ctx, name, mortise.WithLease(forever)))
}

func write(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
	l := c.RW().Write
	return take(l.Lock(ctx, name, mortise.WithLease(forever)))
}

func lockAs(k ...mortise.Option) func(context.Context, *mortise.Client, string) (func() error, error) {
	return func(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
		l := c.With(k...)
		return take(l.Lock(ctx, name, mortise.WithLease(forever)))
	}
}

func acquireOne(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
	s := semaphore.NewCounting(c, name)
	if _, err := s.TrySetPermits(ctx, 1); err != nil {
		return nil, err
	}
	return func() error { return s.Release(context.Background(), 1) }, s.Acquire(ctx, 1)
}

func acquirePermit(ctx context.Context, c *mortise.Client, name string) (func() error, error) {
	p, err := semaphore.New(c, name, 0).Acquire(ctx, 1, mortise.WithLease(forever))
	return func() error { return p.Release(context.Background()) }, err
}

func client(t *testing.T, b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	c := check.Value(mortise.New(b, opts...)).In(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = c.Shutdown(ctx)
	})
	return c
}

// pending is a wait that goes on.
type pending struct {
	done chan struct{}
	free func() error
	err  error
}

func waitFor(t *testing.T, c *mortise.Client, kind, name string) *pending {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.free, p.err = kinds[kind].wait(ctx, c, name)
	}()
	return p
}

func hold(t *testing.T, c *mortise.Client, kind, name string) func() {
	t.Helper()
	free := check.Value(kinds[kind].hold(t.Context(), c, name)).In(t)
	return func() {
		t.Helper()
		check.NoError(t, free())
	}
}

// woken awaits the end of a wait.
func (p *pending) woken(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(soon):
		t.Fatalf("not woken within %v", soon)
	}
	check.NoError(t, p.err)
	check.NoError(t, p.free())
}

func (p *pending) waits(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
		t.Fatalf("it did not wait: %v", p.err)
	default:
	}
}

// subscribers counts those that listen on channels whose names contain part.
func subscribers(c *redistest.Cluster, sharded bool, part string) (n int) {
	kind := ""
	if sharded {
		kind = "SHARD"
	}
	for _, s := range c.Masters {
		all, err := s.Do("PUBSUB", kind+"CHANNELS")
		if err != nil {
			continue // it is down
		}
		for _, channel := range all.([]any) {
			if strings.Contains(channel.(string), part) {
				n += int(s.Must("PUBSUB", kind+"NUMSUB", channel.(string)).([]any)[1].(int64))
			}
		}
	}
	return n
}

// listens waits until a session listens for a name.
func listens(t *testing.T, c *redistest.Cluster, name string) {
	t.Helper()
	eventually(t, name+" is listened for", func() bool { return subscribers(c, true, name) > 0 })
}

func TestShardedEveryKindIsWoken(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			b := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			for kind := range kinds {
				for _, pattern := range []string{"%s", "{%s}:x", "7:{%s}"} {
					name := fmt.Sprintf(pattern, strings.ReplaceAll(kind, " ", "-")+"/"+as)
					free := hold(t, a, kind, name)
					w := waitFor(t, b, kind, name)
					listens(t, c, name)
					w.waits(t)
					free()
					w.woken(t)
				}
			}
			check.Equal(t, "%d plain subscriptions", subscribers(c, false, ""), 0)
		})
	}
}

// A handoff that finds another owner in the record announces the release where the others listen.
func TestShardedAHandoffThatIsNoneIsHeard(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			h, _ := session(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOn))
			w, e := session(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOn))
			acquire(t, h, as, "h:1", time.Minute)
			c.Master(slotOf(as)).Must("HSET", as, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1")
			w.Subscribe(topic(as))
			e.await(t, "watching "+as, 1)
			r := check.Value(h.Capabilities().Queue.Serve(t.Context(), backend.ServeRequest{Name: as, Owner: "h:1",
				Next: "h:2", Lease: time.Minute})).In(t)
			check.Equal(t, "it answers %+v", r, backend.ServeReply{Held: true})
			e.await(t, "released "+as, 1)
		})
	}
}

// connections are those of a user with subscriptions, by server and id.
func connections(c *redistest.Cluster, user string) map[string]bool {
	all := map[string]bool{}
	for _, s := range c.Masters {
		for line := range strings.Lines(fmt.Sprint(s.Must("CLIENT", "LIST", "TYPE", "pubsub"))) {
			if id, _, ok := strings.Cut(line, " "); ok && strings.Contains(line, " user="+user+" ") {
				all[s.Addr()+" "+id] = true
			}
		}
	}
	return all
}

func TestShardedConnectionsAreOneForEachMaster(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			s, e := session(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOn))
			const n = 500
			for i := range n {
				s.Subscribe(topic(fmt.Sprint(i)))
			}
			for i := range n {
				e.await(t, fmt.Sprint("watching ", i), 1)
			}
			eventually(t, "there are 3 connections", func() bool { return len(connections(c, "default")) == 3 })
			// All are there again after all were cut.
			for _, m := range c.Masters {
				m.Must("CLIENT", "KILL", "TYPE", "pubsub")
			}
			for i := range n {
				e.await(t, fmt.Sprint("watching ", i), 2)
			}
			acquire(t, s, "7", "o", time.Minute)
			release(t, s, "7", "o")
			e.await(t, "released 7", 1)
			for i := range n {
				s.Unsubscribe(topic(fmt.Sprint(i)))
			}
			eventually(t, "no channel is subscribed", func() bool { return subscribers(c, true, "") == 0 })
		})
	}
}

func slotOf(name string) int { return redisproto.Slot(name) }

// other is a master that does not have the slot of name.
func other(c *redistest.Cluster, name string) *redistest.Server {
	at := c.Master(slotOf(name))
	for _, m := range c.Masters {
		if m != at {
			return m
		}
	}
	return nil
}

func TestShardedWaitersFollowTheirSlot(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			b := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			for _, kind := range []string{"plain", "fair", "counting semaphore"} {
				name := kind + "/" + as
				free := hold(t, a, kind, name)
				w := waitFor(t, b, kind, name)
				listens(t, c, name)

				// There and back, twice.
				for range 2 {
					for range 2 {
						to := other(c, name)
						c.Move(slotOf(name), to, nil)
						eventually(t, name+" is listened for at its new master", func() bool {
							return strings.Contains(fmt.Sprint(to.Must("PUBSUB", "SHARDCHANNELS")), name)
						})
					}
				}
				w.waits(t)
				free()
				w.woken(t)

				if kind != "plain" {
					continue
				}
				// Released when the key is at the new master and the slot is not.
				// Redis refuses scripts about more than one key until then, so the release
				// goes on by itself.
				giveBack := check.Value(kinds[kind].hold(t.Context(), a, name)).In(t)
				w = waitFor(t, b, kind, name)
				listens(t, c, name)
				c.Move(slotOf(name), other(c, name), func() {
					err := giveBack()
					check.ErrorIf(t, err != nil && !errors.Is(err, mortise.ErrUnavailable), "%v", err)
				})
				w.woken(t)
			}
		})
	}
}

func TestShardedWaitersOutliveTheirMaster(t *testing.T) {
	check.Long(t)
	t.Parallel()
	for _, as := range []string{"go-redis", "rueidis"} {
		adapter := clusterAdapters[as]
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, redistest.WithAOF())
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			b := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			const name, elsewhere = "foo", "bar"
			free, freeElsewhere := hold(t, a, "plain", name), hold(t, a, "plain", elsewhere)
			w, v := waitFor(t, b, "plain", name), waitFor(t, b, "plain", elsewhere)
			listens(t, c, name)
			listens(t, c, elsewhere)

			m := c.Master(slotOf(name))
			check.FatalIf(t, m == c.Master(slotOf(elsewhere)), "choose names on two masters")
			m.Stop()
			freeElsewhere() // the others go on
			v.woken(t)
			w.waits(t)
			m.Restart()
			c.Settle()
			listens(t, c, name)
			w.waits(t)
			free()
			w.woken(t)
		})
	}
}

func TestShardedWaitersFollowAFailover(t *testing.T) {
	check.Long(t)
	t.Parallel()
	for _, as := range []string{"go-redis", "rueidis"} {
		adapter := clusterAdapters[as]
		t.Run(as, func(t *testing.T) {
			c := redistest.StartCluster(t, 3)
			const name = "foo"
			m := c.Master(slotOf(name))
			replica := c.Replica(m)
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			b := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			free := hold(t, a, "plain", name)
			w := waitFor(t, b, "plain", name)
			listens(t, c, name)
			c.Failover(replica)
			eventually(t, "the replica is listened at", func() bool {
				return strings.Contains(fmt.Sprint(replica.Must("PUBSUB", "SHARDCHANNELS")), name)
			})
			w.waits(t)
			free()
			w.woken(t)
		})
	}
}

// A wait on a forbidden channel fails. Other waits go on, also those whose channels are of the same slot.
func TestShardedARefusedChannelAffectsItsWaitersOnly(t *testing.T) {
	check.Long(t)
	t.Parallel()
	var users []string
	for i := range len(clusterAdapters) {
		users = append(users, fmt.Sprintf("some%d on >pw ~* +@all &redisson_lock__channel:{may* "+
			"&redisson_lock__channel:{t*:may*", i))
	}
	c := redistest.StartCluster(t, 3, redistest.WithACL(users...))
	n := 0
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			user := fmt.Sprint("some", n)
			n++
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOn))
			b := client(t, adapter(t, c.Addrs(), login{user, "pw"}, redisproto.ShardedOn))
			var free []func()
			var allowed []*pending
			for i := range 12 {
				name := fmt.Sprint("may/", as, i)
				free = append(free, hold(t, a, "plain", name))
				allowed = append(allowed, waitFor(t, b, "plain", name))
				listens(t, c, name)
			}
			before := connections(c, user)
			check.FatalIf(t, len(before) == 0, "no connection")
			for i := range 12 {
				name := fmt.Sprint("must-not/", as, i)
				defer hold(t, a, "plain", name)()
				waitFor(t, b, "plain", name).refused(t)
			}
			// One command would subscribe these: they are of one slot, and waited for at the same time.
			mustNot := fmt.Sprintf("{t%s}:must-not", as)
			defer hold(t, a, "plain", mustNot)()
			for i := range 6 {
				name := fmt.Sprintf("{t%s}:may%d", as, i)
				free = append(free, hold(t, a, "plain", name))
				refused := waitFor(t, b, "plain", mustNot)
				allowed = append(allowed, waitFor(t, b, "plain", name))
				refused.refused(t)
				listens(t, c, name)
			}
			after := connections(c, user)
			for id := range before {
				check.ErrorIf(t, !after[id], "the connection %s was given up: %v before, %v after", id, before, after)
			}
			for i, w := range allowed {
				w.waits(t)
				free[i]()
				w.woken(t)
			}
		})
	}
}

// refused awaits the end of a wait on a channel that is forbidden.
func (p *pending) refused(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(soon):
		t.Fatal("waits on a channel that it may not listen to")
	}
	check.ErrorIf(t, p.err == nil || !strings.Contains(p.err.Error(), "NOPERM") ||
		!strings.Contains(p.err.Error(), "the Redis user lacks a channel, "), "%v", p.err)
}

// Without sharded pub/sub a node counts its own subscribers only, so whether a client lives is not known. Each that is
// gone has a reservation, three in a row at most, and the last of the queue is told of each, which asks.
func TestClientsThatAreGoneWhereNoNodeCountsAll(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			b := adapter(t, c.Addrs(), login{}, redisproto.ShardedOff)
			name := as
			srv := c.Master(redisproto.Slot(name))
			h, ears := session(t, b)
			holder := &waiter{Store: h, ears: ears, name: name, owner: "h:1"}
			for _, dead := range []int{1, 2, 20} {
				holder.takes(t)
				w := waits(t, b, name, "w:1")
				w.enters(t, uint64(dead))
				for i := range dead {
					do(t, srv, "ZADD", queueOf(name), strconv.Itoa(i), fmt.Sprintf("ndead%d:1", i))
				}
				holder.frees(t)
				if dead == 1 {
					w.await(t, "first "+name+" 1 1s", 1)
				} else {
					w.await(t, "released "+name, 1)
				}
				asks := 0
				for granted := false; !granted; asks++ {
					do(t, srv, "HDEL", name, do(t, srv, "HKEYS", name).([]any)[0].(string))
					granted = w.enrol(t, uint64(dead)).Granted
				}
				check.Equal(t, fmt.Sprint(dead, " are gone: granted after %d reservations"), asks, min(dead, 3))
				w.frees(t)
			}
		})
	}
}

func TestShardedModes(t *testing.T) {
	check.Long(t)
	t.Parallel()
	// A stand-in for a server that does not know sharded pub/sub.
	old := redistest.StartCluster(t, 1, redistest.WithConfig(`rename-command SPUBLISH ""`,
		`rename-command SSUBSCRIBE ""`, `rename-command PUBSUB ""`))
	new := redistest.StartCluster(t, 3, redistest.WithACL("blind on >pw ~* &* +@all -pubsub"))
	blind := login{"blind", "pw"}
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			for _, test := range []struct {
				what    string
				cluster *redistest.Cluster
				as      login
				mode    redisproto.ShardedPubSub
				sharded bool
			}{
				{"Auto on Redis 7", new, login{}, redisproto.ShardedAuto, true},
				{"On", new, login{}, redisproto.ShardedOn, true},
				{"Off", new, login{}, redisproto.ShardedOff, false},
				{"Auto, as a user that may not ask", new, blind, redisproto.ShardedAuto, false},
				{"On, as a user that may not ask", new, blind, redisproto.ShardedOn, true},
			} {
				name := test.what + "/" + as
				a := client(t, adapter(t, test.cluster.Addrs(), test.as, test.mode))
				b := client(t, adapter(t, test.cluster.Addrs(), test.as, test.mode))
				free := hold(t, a, "plain", name)
				w := waitFor(t, b, "plain", name)
				eventually(t, name+" is listened for",
					func() bool { return subscribers(test.cluster, test.sharded, name) == 3 })
				n := subscribers(test.cluster, !test.sharded, name)
				check.ErrorIf(t, n != 0, "%s: it listens in the other way too", test.what)
				free()
				w.woken(t)
			}

			s, e := session(t, adapter(t, old.Addrs(), login{}, redisproto.ShardedAuto))
			s.Subscribe(topic("n")) // before it is known how
			e.await(t, "watching n", 1)
			acquire(t, s, "n", "o", time.Minute)
			release(t, s, "n", "o")
			e.await(t, "released n", 1)

			on, e := session(t, adapter(t, old.Addrs(), login{}, redisproto.ShardedOn))
			_, err := on.Acquire(t.Context(), anykind.AcquireRequest{Name: "n", Owner: "o", Lease: time.Minute})
			f := backend.FaultOf(err)
			check.ErrorIf(t, err == nil || f.Temporary || f.MayHaveRun || !strings.Contains(f.Remedy, "Redis 7"),
				"On, without sharded pub/sub: %+v", f)
			on.Subscribe(topic("n"))
			eventually(t, "the watch fails", func() bool {
				return strings.Contains(strings.Join(e.all(), ""),
					"failed n: ")
			})
			n := old.Masters[0].Must("EXISTS", "n")
			check.ErrorIf(t, n != int64(0), "a lock was taken though its release cannot be told")
		})
	}
}

func TestShardedOnNeedsACluster(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer rdb.Close()
	if _, err := mortise.New(redisgo.New(rdb, redisgo.WithShardedPubSub(redisgo.ShardedOn))); err == nil ||
		!strings.Contains(err.Error(), "ClusterClient") {
		t.Errorf("go-redis: %v", err)
	}
	c := client(t, rueidis.New(rueidislib.ClientOption{InitAddress: []string{srv.Addr()}},
		rueidis.WithShardedPubSub(rueidis.ShardedOn)))
	_, err := c.Lock(t.Context(), "n")
	check.ErrorIf(t, !errors.Is(err, redisproto.ErrNoCluster) ||
		!strings.Contains(err.Error(), "needs a client of a cluster"), "rueidis: %v", err)
	// Auto and a standalone server is PUBLISH, though the server knows SPUBLISH.
	s, e := session(t, rueidis.New(rueidislib.ClientOption{InitAddress: []string{srv.Addr()}}))
	s.Subscribe(backend.Topic{Kind: backend.KindCountDownLatch, Name: "{a}b"})
	e.await(t, "watching {a}b", 1)
	check.Equal(t, "it listens on %s", fmt.Sprint(do(t, srv, "PUBSUB", "CHANNELS")),
		"[redisson_countdownlatch__channel__{{a}b}]")
}

// calls counts a command on all masters, not what scripts run inside.
func calls(c *redistest.Cluster, command string) (n int) {
	for _, s := range c.Masters {
		for line := range strings.Lines(fmt.Sprint(s.Must("INFO", "commandstats"))) {
			if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":calls="); ok {
				count, _, _ := strings.Cut(rest, ",")
				k, _ := strconv.Atoi(count)
				n += k
			}
		}
	}
	return n
}

var counted = []string{"evalsha", "eval", "publish", "spublish", "subscribe", "ssubscribe"}

func TestShardedCosts(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			a := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
			var waiting atomic.Int32
			b := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto),
				mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}))
			name := "n/" + as
			asked := calls(c, "pubsub|shardnumsub")
			for _, x := range []*mortise.Client{a, b} { // the scripts are loaded, the ways known
				check.NoError(t, x.Ping(t.Context()))
			}
			n := calls(c, "pubsub|shardnumsub") - asked // of each master once: the first answer counts
			check.ErrorIf(t, n < 2 || n > 2*len(c.Masters), "2 clients asked %d times whether pub/sub is sharded", n)
			start := func() map[string]int {
				counts := map[string]int{}
				for _, command := range counted {
					counts[command] = calls(c, command)
				}
				return counts
			}
			since := func(then map[string]int) string {
				var out []string
				now := start()
				for _, command := range counted {
					if n := now[command] - then[command]; n != 0 {
						out = append(out, fmt.Sprint(command, " ", n))
					}
				}
				return strings.Join(out, ", ")
			}
			then := start()
			for i := range 100 {
				hold(t, a, "plain", fmt.Sprint(name, i))()
			}
			check.Equal(t, "100 times Lock and Unlock: %s", since(then), "evalsha 200, spublish 100")

			free := hold(t, a, "plain", name)
			then = start()
			w := waitFor(t, b, "plain", name)
			listens(t, c, name)
			rest := []*pending{w}
			for range 9 {
				rest = append(rest, waitFor(t, b, "plain", name))
			}
			eventually(t, "all wait", func() bool { return waiting.Load() == 10 })
			eventually(t, "the waiter has asked again", func() bool { return calls(c, "evalsha")-then["evalsha"] == 2 })
			check.Equal(t, "to begin to wait: %s", since(then), "evalsha 2, ssubscribe 1")
			then = start()
			free()
			for range rest {
				eventually(t, "the next is woken", func() bool {
					for i, w := range rest {
						select {
						case <-w.done:
							w.woken(t)
							rest = append(rest[:i:i], rest[i+1:]...)
							return true
						default:
						}
					}
					return false
				})
			}
			if got := since(then); got != "evalsha 12, spublish 2" { // one to the next client, one to all
				t.Errorf("11 Unlocks and 10 hand-overs: %s", got)
			}
		})
	}
}

// Two clients take turns while the slot goes round. An Unlock on the way is refused and
// repeated, so it may say that it is not confirmed. A wake-up that is lost stops all of them:
// the lease is long.
func TestShardedNoWakeUpIsLostWhileSlotsMove(t *testing.T) {
	check.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			name := "n/" + as
			var stop atomic.Bool
			var turns atomic.Int64
			done := make(chan error, 4)
			for range 2 {
				locks := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedAuto))
				for range 2 {
					go func() {
						for !stop.Load() {
							l, err := locks.Lock(context.Background(), name, mortise.WithLease(forever))
							if err == nil {
								turns.Add(1)
								err = l.Unlock(context.Background())
							}
							if err != nil && !errors.Is(err, mortise.ErrUnavailable) {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
			}
			for range 6 {
				then := turns.Load()
				eventually(t, "they take turns", func() bool { return turns.Load() > then+20 })
				c.Move(slotOf(name), other(c, name), nil)
				c.Settle()
			}
			stop.Store(true)
			for range 4 {
				select {
				case err := <-done:
					check.Done(t, err)
				case <-time.After(soon):
					t.Fatal("one still waits")
				}
			}
		})
	}
}

// A *redis.ClusterClient may be one of a single server, and of its replicas: redis.NewFailoverClusterClient makes such.
func TestAClusterClientOfASingleServerHearsTheOthers(t *testing.T) {
	check.Long(t)
	t.Parallel()
	srv := redistest.Start(t)
	_, port, _ := strings.Cut(srv.Addr(), ":")
	replica := redistest.Start(t, redistest.WithConfig("replicaof 127.0.0.1 "+port))
	eventually(t, "the replica is in step", replica.InStep)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
		nodes := []redis.ClusterNode{{Addr: srv.Addr()}, {Addr: replica.Addr()}}
		return []redis.ClusterSlot{{End: redistest.Slots - 1, Nodes: nodes}}, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	a := client(t, redisgo.New(rdb))
	b := client(t, adapters["go-redis"](t, srv.Addr(), login{}))
	for as, pair := range map[string][2]*mortise.Client{"it waits": {b, a}, "it releases": {a, b}} {
		for kind := range kinds {
			name := kind + "/" + as
			free := hold(t, pair[0], kind, name)
			w := waitFor(t, pair[1], kind, name)
			eventually(t, name+" is listened for", func() bool {
				return strings.Contains(fmt.Sprint(srv.Must("PUBSUB", "CHANNELS")), name)
			})
			w.waits(t)
			free()
			w.woken(t)
		}
	}
	check.Equal(t, "SPUBLISH was sent %d times", srv.Calls("spublish"), 0)
}
