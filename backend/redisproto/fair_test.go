//go:build unix

package redisproto_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

const fairWait = 5 * time.Minute

func ask(t *testing.T, s anykind.Store, name, owner string, wait time.Duration) anykind.AcquireReply {
	t.Helper()
	r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Kind: backend.KindFair, Name: name, Owner: owner,
		Lease: time.Minute, Wait: wait, Fenced: true})
	check.FatalIf(t, err != nil, "%s: %v", owner, err)
	return r
}

func free(t *testing.T, s anykind.Store, name, owner string) {
	t.Helper()
	r, err := s.Release(t.Context(), anykind.ReleaseRequest{Kind: backend.KindFair, Name: name, Owner: owner})
	check.FatalIf(t, err != nil || !r.Held, "%s: %+v %v", owner, r, err)
}

// passOn goes through all that a fair lock does.
func passOn(t *testing.T, s anykind.Store, e *ears, name string) {
	t.Helper()
	for i := range 3 {
		owner, next := fmt.Sprintf("o:%d", 2*i), fmt.Sprintf("o:%d", 2*i+1)
		turn := backend.Topic{Kind: backend.KindFair, Name: name, Owner: next}
		s.Subscribe(turn)
		e.await(t, "watching "+name, 2*i+1)
		s.Subscribe(topic(name))
		e.await(t, "watching "+name, 2*i+2)
		r := ask(t, s, name, owner, fairWait)
		check.FatalIf(t, !r.Granted || r.Token == 0, "%+v", r)
		r = ask(t, s, name, next, fairWait)
		check.FatalIf(t, r.Granted, "%+v", r)
		switch i {
		case 0:
			free(t, s, name, owner)
		case 1:
			r, err := s.Capabilities().Fair.Leave(t.Context(), backend.LeaveRequest{Name: name, Owner: owner, Wait: fairWait})
			check.FatalIf(t, err != nil || !r.Held, "%+v %v", r, err)
		case 2:
			ok, err := s.ForceRelease(t.Context(), topic(name))
			check.FatalIf(t, err != nil || !ok, "%v, %v", ok, err)
		}
		e.await(t, "released "+name, 2*i+1)
		r = ask(t, s, name, next, fairWait)
		check.FatalIf(t, !r.Granted, "%+v", r)
		free(t, s, name, next) // told to waiters for the plain lock
		e.await(t, "released "+name, 2*i+2)
		s.Unsubscribe(turn)
		s.Unsubscribe(topic(name))
	}
}

func TestFairLocksWorkOnACluster(t *testing.T) {
	overClusters(t, func(t *testing.T, _ *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		for _, n := range []string{"n", "{t}n", "a{t}"} {
			passOn(t, s, e, n)
		}
	})
}

// What the remedy of a missing permission says is enough.
func TestFairLocksNeedTheirPermissionsOnly(t *testing.T) {
	for name, adapter := range adapters {
		t.Run(name, func(t *testing.T) {
			srv := redistest.Start(t, redistest.WithACL("fair on >pw ~* resetchannels &redisson_* -@all "+
				"+evalsha +eval +script|load +subscribe +unsubscribe +publish +ping +exists +hexists +hset +hdel "+
				"+hlen +hgetall +pexpire +pttl +del +incr +set +time "+
				"+lindex +lpop +lrange +lrem +rpush +zadd +zrem +zscore +zrange "+
				"+hello +auth +client +select"))
			s, e := session(t, adapter(t, srv.Addr(), login{"fair", "pw"}))
			passOn(t, s, e, "n")
		})
	}
}

// javas puts a waiter of Redisson's into the queue.
func javas(t *testing.T, srv *redistest.Server, field string, score int64) {
	t.Helper()
	do(t, srv, "RPUSH", "redisson_lock_queue:{n}", field)
	do(t, srv, "ZADD", "redisson_lock_timeout:{n}", strconv.FormatInt(score, 10), field)
}

func TestRedissonsWaitersAreServedInTurn(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		ask(t, s, "n", "go:1", fairWait)
		now := time.Now().UnixMilli()
		javas(t, srv, "uuid:1", now+60_000+300_000)
		javas(t, srv, "uuid:2", now+60_000+600_000)
		if r := ask(t, s, "n", "go:2", fairWait); r.Granted {
			t.Fatalf("%+v", r)
		}
		score := func(field string) int64 {
			x := check.Value(strconv.ParseFloat(do(t, srv, "ZSCORE", "redisson_lock_timeout:{n}", field).(string), 64)).In(t)
			return int64(x) - now
		}
		if got := score("go:2"); got != 60_000+900_000 {
			t.Errorf("the place behind Redisson's is given up after %d ms, want the last one's time and 300 s", got)
		}
		s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: "uuid:1"}) // stands for Java
		e.await(t, "watching n", 1)
		free(t, s, "n", "go:1")
		e.await(t, "released n", 1)
		if got := score("uuid:1"); got != 60_000+300_000 {
			t.Errorf("the first was told; its place is given up after %d ms", got)
		}
		if r := ask(t, s, "n", "go:2", fairWait); r.Granted || r.AskAfter <= backend.Absence {
			t.Errorf("before Redisson's: %+v", r)
		}

		// The first leaves without a word; the second is not there either.
		s.Unsubscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: "uuid:1"})
		noChannels(t, srv)
		r := ask(t, s, "n", "go:2", fairWait)
		check.FatalIf(t, r.Granted || r.AskAfter <= 0 || r.AskAfter > backend.Absence, "%+v", r)
		time.Sleep(r.AskAfter + time.Millisecond) // the time that it is told is the subject
		r = ask(t, s, "n", "go:2", fairWait)
		check.ErrorIf(t, !r.Granted, "%+v", r)
		free(t, s, "n", "go:2")
		check.Equal[any](t, "%v keys are left",
			do(t, srv, "EXISTS", "n", "redisson_lock_queue:{n}", "redisson_lock_timeout:{n}"), int64(0))
	})
}

// Redisson's waiters take their place before they listen, and never raise its time. One
// that has just come is neither given up with a dead one before it, nor with one of its own
// client's: it would be asleep by the time that its place was gone, and it was not told.
func TestRedissonsWaitersWhoHaveJustComeKeepTheirPlaces(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		const java = "0d3e54a0-9a5c-4a29-b6a4-6d1f3c1e7b11:"
		place := func(field string) int64 {
			t.Helper()
			x := check.Value(strconv.ParseFloat(do(t, srv, "ZSCORE", "redisson_lock_timeout:{n}", field).(string), 64)).In(t)
			return int64(x)
		}
		for what, test := range map[string]struct {
			first string
			free  func()
		}{
			"behind a dead one, a release": {"dead:1", func() { free(t, s, "n", "go:1") }},
			"behind a dead one, a leaver": {"dead:1", func() {
				r, err := s.Capabilities().Fair.Leave(t.Context(),
					backend.LeaveRequest{Name: "n", Owner: "go:1", Wait: fairWait})
				check.FatalIf(t, err != nil || !r.Held, "%+v %v", r, err)
			}},
			"behind a dead one, a question": {"dead:1",
				func() { do(t, srv, "DEL", "n"); ask(t, s, "n", "go:3", fairWait) }},
			"behind one of its own": {java + "7", func() { free(t, s, "n", "go:1") }},
		} {
			do(t, srv, "FLUSHALL")
			ask(t, s, "n", "go:1", fairWait)
			late := time.Now().UnixMilli() + 3_600_000
			javas(t, srv, test.first, late)
			javas(t, srv, java+"8", late)
			javas(t, srv, java+"-9", late)
			test.free()
			got := place(test.first) - time.Now().UnixMilli()
			check.ErrorIf(t, got > 2*backend.Absence.Milliseconds(), "%s: the first, who is away, has %d ms", what, got)
			for _, n := range []string{"8", "-9"} {
				got := late - place(java+n)
				check.ErrorIf(t, got != 0, "%s: the place of %s is given up %d ms earlier", what, java+n, got)
			}
		}

		// One whose time is over is told of it: it comes again, at the end.
		do(t, srv, "FLUSHALL")
		s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: java + "8"}) // stands for Java
		e.await(t, "watching n", 1)
		javas(t, srv, java+"8", time.Now().UnixMilli()-1)
		r := ask(t, s, "n", "go:1", fairWait)
		check.ErrorIf(t, !r.Granted, "%+v", r)
		e.await(t, "released n", 1)
	})
}

// A list and a zset that do not fit each other, which eviction or an operator can
// leave behind, stop no other for long.
func TestAQueueThatIsDamagedMends(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		for what, damage := range map[string]func(){
			"no list":         func() { do(t, srv, "DEL", "redisson_lock_queue:{n}") },
			"no zset":         func() { do(t, srv, "DEL", "redisson_lock_timeout:{n}") },
			"neither":         func() { do(t, srv, "DEL", "redisson_lock_timeout:{n}", "redisson_lock_queue:{n}") },
			"a strange entry": func() { do(t, srv, "LPUSH", "redisson_lock_queue:{n}", "strange") },
		} {
			s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: what})
			e.await(t, "watching n", 1)
			ask(t, s, "n", "go:1", fairWait)
			ask(t, s, "n", what, fairWait)
			damage()
			ask(t, s, "n", what, fairWait)
			free(t, s, "n", "go:1")
			eventually(t, what+": it is served", func() bool { return ask(t, s, "n", what, fairWait).Granted })
			free(t, s, "n", what)
			eventually(t, what+": nothing is left", func() bool {
				if r := ask(t, s, "n", "go:1", 0); r.Granted {
					free(t, s, "n", "go:1")
				}
				return do(t, srv, "EXISTS", "n", "redisson_lock_queue:{n}", "redisson_lock_timeout:{n}") == int64(0)
			})
		}
	})
}

func TestAForgottenQueueExpires(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		ask(t, s, "n", "go:1", fairWait)
		ask(t, s, "n", "go:2", fairWait)
		for _, key := range []string{"redisson_lock_queue:{n}", "redisson_lock_timeout:{n}"} {
			left := time.Duration(do(t, srv, "PTTL", key).(int64)) * time.Millisecond
			check.ErrorIf(t, left <= time.Hour || left > 2*time.Hour, "%s expires in %v", key, left)
		}
	})
}

// Without sharded pub/sub a node of a cluster counts its own subscribers only. Whether a waiter lives is not
// decided by that: dead waiters of several clients in front hold the others up for some seconds in all.
func TestTheDeadInFrontDoNotStopAFairLockOfAClusterWithoutShardedPubSub(t *testing.T) {
	c := redistest.StartCluster(t, 3)
	for as, adapter := range clusterAdapters {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			name := "n/" + as
			s, _ := session(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOff))
			ask(t, s, name, "holder:1", fairWait)
			const dead = 12
			for i := range dead {
				ask(t, s, name, fmt.Sprintf("dead%d:%d", i%4, i), fairWait)
			}
			at := c.Master(redisproto.Slot(name))
			served := make(chan int, 2)
			var leaving sync.WaitGroup
			for i := range 2 {
				waiter, err := client(t, adapter(t, c.Addrs(), login{},
					redisproto.ShardedOff)).Locker(mortise.Fair())
				check.NoError(t, err)
				leaving.Go(func() {
					l, err := waiter.Lock(context.Background(), name, mortise.WithWait(time.Minute))
					check.Done(t, err)
					served <- i
					check.Done(t, l.Unlock(context.Background()))
				})
				eventually(t, "it stands in the queue", func() bool {
					return at.Must("ZCARD", "redisson_lock_timeout:{"+name+"}") == int64(dead+1+i)
				})
			}
			free(t, s, name, "holder:1")
			began := time.Now()
			for i := range 2 {
				select {
				case got := <-served:
					check.ErrorIf(t, got != i, "waiter %d was served, want %d", got, i)
				case <-time.After(20 * time.Second):
					t.Fatalf("no waiter was served within %v of the release", time.Since(began))
				}
			}
			took := time.Since(began)
			leaving.Wait()
			check.ErrorIf(t, took > 10*time.Second, "%d dead waiters of 4 clients held the others up for %v", dead, took)
		})
	}
}
