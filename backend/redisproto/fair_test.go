//go:build unix

package redisproto_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
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
	check.Long(t)
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
				"+hlen +hgetall +pexpire +pttl +unlink +incr +set +time "+
				"+lindex +lpop +lrange +lrem +rpush +zadd +zrem +zscore +zrange "+
				"+hello +auth +client +select"))
			s, e := session(t, adapter(t, srv.Addr(), login{"fair", "pw"}))
			passOn(t, s, e, "n")
		})
	}
}

const (
	queueOfN = "redisson_lock_queue:{n}"
	timesOfN = "redisson_lock_timeout:{n}"
	javaID   = "0d3e54a0-9a5c-4a29-b6a4-6d1f3c1e7b11:"
)

// place is when a place in the queue of n is given up, from now on.
func place(t *testing.T, srv *redistest.Server, field string) time.Duration {
	t.Helper()
	score, _ := do(t, srv, "ZSCORE", timesOfN, field).(string)
	at := check.Value(strconv.ParseFloat(score, 64)).In(t)
	return time.Until(time.UnixMilli(int64(math.Ceil(at))))
}

// javas has a waiter of Redisson's take a place, as Redisson does.
func javas(t *testing.T, srv *redistest.Server, field string, wait time.Duration) {
	t.Helper()
	base := time.Now()
	if last, ok := do(t, srv, "LINDEX", queueOfN, "-1").(string); ok {
		base = base.Add(place(t, srv, last))
	} else if left := do(t, srv, "PTTL", "n").(int64); left > 0 {
		base = base.Add(time.Duration(left) * time.Millisecond)
	}
	do(t, srv, "RPUSH", queueOfN, field)
	do(t, srv, "ZADD", timesOfN, strconv.FormatInt(base.Add(wait).UnixMilli(), 10), field)
}

// javaGrant has Redisson's first waiter hold the lock, and lowers all scores, as Redisson does.
func javaGrant(t *testing.T, srv *redistest.Server, field string, wait time.Duration) {
	t.Helper()
	check.Equal(t, "%v is the first", do(t, srv, "LPOP", queueOfN), any(field))
	do(t, srv, "ZREM", timesOfN, field)
	for _, other := range do(t, srv, "ZRANGE", timesOfN, "0", "-1").([]any) {
		do(t, srv, "ZINCRBY", timesOfN, strconv.FormatInt(-wait.Milliseconds(), 10), other.(string))
	}
	do(t, srv, "DEL", "n")
	do(t, srv, "HSET", "n", field, "1")
	do(t, srv, "PEXPIRE", "n", "30000")
}

func TestRedissonsWaitersAreServedInTurn(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
		ask(t, s, "n", "go:1", fairWait)
		javas(t, srv, javaID+"1", fairWait)
		javas(t, srv, javaID+"2", fairWait)
		if r := ask(t, s, "n", "go:2", fairWait); r.Granted || !r.Joined || r.AskAfter > backend.Absence {
			t.Fatalf("%+v, want a place, and to look after it each second", r)
		}
		about := func(field string, want time.Duration) {
			t.Helper()
			if got := place(t, srv, field); got < want-20*time.Second || got > want+time.Second {
				t.Errorf("the place of %s is given up after %v, want %v", field, got, want)
			}
		}
		about(javaID+"1", 6*time.Minute)
		about(javaID+"2", 11*time.Minute)
		about("go:2", 16*time.Minute)
		s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: javaID + "1"}) // stands for Java
		e.await(t, "watching n", 1)
		free(t, s, "n", "go:1")
		e.await(t, "released n", 1)
		about(javaID+"1", 6*time.Minute)
		r := ask(t, s, "n", "go:2", fairWait)
		check.ErrorIf(t, r.Granted || r.Joined, "before Redisson's: %+v", r)

		// The first leaves without a word; the second is not there either. Each has a second to come.
		s.Unsubscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: javaID + "1"})
		noChannels(t, srv)
		for range 2 {
			r = ask(t, s, "n", "go:2", fairWait)
			check.FatalIf(t, r.Granted || r.AskAfter <= 0 || r.AskAfter > backend.Absence, "%+v", r)
			time.Sleep(r.AskAfter + time.Millisecond) // the time that it is told is the subject
		}
		r = ask(t, s, "n", "go:2", fairWait)
		check.ErrorIf(t, !r.Granted, "%+v", r)
		free(t, s, "n", "go:2")
		check.Equal[any](t, "%v keys are left", do(t, srv, "EXISTS", "n", queueOfN, timesOfN), int64(0))
	})
}

// Redisson subtracts what it added for a waiter when the waiter is granted the lock, and removes first places whose
// time is over without a message. However long the waits are, and whatever Go's waiters do meanwhile, the places
// of waiters that live are kept.
func TestRedissonsArithmeticReachesNoLiveWaiter(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		waits := []time.Duration{40 * time.Second, time.Hour, 17 * time.Second, 5 * time.Minute, time.Second, 3 * time.Hour}
		for round := range 4 {
			do(t, srv, "DEL", "n", queueOfN, timesOfN)
			ask(t, s, "n", "go:0", fairWait)
			if round%2 == 1 {
				ask(t, s, "n", "go:first", time.Second) // before all of Redisson's
			}
			var fields []string
			for i, wait := range waits {
				java, golang := fmt.Sprint(javaID, i), fmt.Sprint("go:", i+1)
				javas(t, srv, java, wait)
				ask(t, s, "n", golang, wait/7)
				fields = append(fields, java, golang)
			}
			r, err := s.Capabilities().Fair.Leave(t.Context(),
				backend.LeaveRequest{Name: "n", Owner: "go:3", Wait: waits[2] / 7})
			check.FatalIf(t, err != nil || !r.Queued, "%+v %v", r, err)
			fields = slices.DeleteFunc(fields, func(f string) bool { return f == "go:3" })
			if round >= 2 { // as if the lock had been held for ten minutes, in which the last one looked after its place
				for _, field := range fields {
					do(t, srv, "ZINCRBY", timesOfN, "-600000", field)
				}
				ask(t, s, "n", "go:6", waits[5]/7)
			}
			do(t, srv, "DEL", "n") // and not a release, which finds that none of these listens
			if round%2 == 1 {
				check.FatalIf(t, !ask(t, s, "n", "go:first", time.Second).Granted, "not granted")
			}
			for i, field := range fields {
				if n, java := strings.CutPrefix(field, javaID); java {
					javaGrant(t, srv, field, waits[check.Value(strconv.Atoi(n)).In(t)])
				} else {
					do(t, srv, "DEL", "n")
					check.FatalIf(t, !ask(t, s, "n", field, fairWait).Granted, "%s is not granted", field)
				}
				for _, other := range fields[i+1:] {
					got := place(t, srv, other)
					check.ErrorIf(t, got < time.Second, "after the grant of %s the place of %s has %v", field, other, got)
				}
			}
		}
	})
}

// Redisson's waiters take their place before they listen, and never raise its time. One
// that has just come is neither given up with a dead one before it, nor with one of its own
// client's: it would be asleep by the time that its place was gone, and it was not told.
func TestNewWaitersOfRedissonKeepTheirPlaces(t *testing.T) {
	check.Long(t)
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, e := session(t, b)
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
			"behind one of its own": {javaID + "7", func() { free(t, s, "n", "go:1") }},
		} {
			do(t, srv, "FLUSHALL")
			ask(t, s, "n", "go:1", fairWait)
			for _, field := range []string{test.first, javaID + "8", javaID + "-9"} {
				javas(t, srv, field, fairWait)
			}
			test.free()
			got := place(t, srv, test.first)
			check.ErrorIf(t, got > 2*backend.Absence, "%s: the first, which is away, has %v", what, got)
			for i, n := range []string{"8", "-9"} {
				got := place(t, srv, javaID+n)
				check.ErrorIf(t, got < time.Duration(i+1)*fairWait-backend.Absence,
					"%s: the place of %s is given up after %v", what, javaID+n, got)
			}
		}

		// One whose time is over is told of it: it comes again, at the end.
		do(t, srv, "FLUSHALL")
		s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: javaID + "8"}) // stands for Java
		e.await(t, "watching n", 1)
		javas(t, srv, javaID+"8", -time.Millisecond)
		r := ask(t, s, "n", "go:1", fairWait)
		check.ErrorIf(t, !r.Granted, "%+v", r)
		e.await(t, "released n", 1)
	})
}

// One handoff is an ask that gets a place, a release and an ask that gets the lock.
func TestAHandoffOfAFairLockCostsTheSameHoweverManyWait(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		const handoffs, most = 20, 512
		wants := func(owner string, wait time.Duration) anykind.AcquireReply {
			r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Kind: backend.KindFair, Name: "n", Owner: owner,
				Lease: time.Minute, Wait: wait})
			check.FatalIf(t, err != nil, "%s: %v", owner, err)
			return r
		}
		owner := func(i int) string { return fmt.Sprintf("go%d:%d", i%8, i) }
		for i := range most + handoffs + 1 {
			s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: owner(i)})
		}
		e.await(t, "watching n", most+handoffs+1)
		for _, waiters := range []int{8, 64, 128, 256, most} {
			do(t, srv, "DEL", "n", queueOfN, timesOfN)
			for i := range waiters + 1 {
				wants(owner(i), fairWait)
			}
			do(t, srv, "CONFIG", "RESETSTAT")
			for i := range handoffs {
				wants(owner(waiters+1+i), fairWait)
				free(t, s, "n", owner(i))
				check.FatalIf(t, !wants(owner(i+1), fairWait).Granted, "%d is not granted", i+1)
			}
			n := 0
			for line := range strings.Lines(fmt.Sprint(do(t, srv, "INFO", "commandstats"))) {
				name, rest, stat := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
				calls, _, _ := strings.Cut(rest, ",")
				if stat && name != "evalsha" && name != "eval" && !strings.HasPrefix(name, "config") && name != "info" {
					n += check.Value(strconv.Atoi(calls)).In(t)
				}
			}
			check.Equal(t, fmt.Sprintf("%%d inner commands for %d handoffs with %d waiters", handoffs, waiters), n, 25*handoffs)
		}
	})
}

// What another user of the server leaves at the queue's keys fails no release after its first write.
func TestAFairReleaseDoesNotFailForTheQueuesKeys(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		for _, damage := range [][]string{
			{"SET", queueOfN, "x"}, {"SET", timesOfN, "x"}, {"HSET", queueOfN, "x", "1"}, {"LPUSH", timesOfN, "x"},
		} {
			for what, act := range map[string]func(){
				"release": func() { free(t, s, "n", "go:1") },
				"leave": func() {
					r, err := s.Capabilities().Fair.Leave(t.Context(),
						backend.LeaveRequest{Name: "n", Owner: "go:1", Wait: fairWait})
					check.FatalIf(t, err != nil || !r.Held || r.Queued, "%v: %+v, %v", damage, r, err)
				},
			} {
				do(t, srv, "FLUSHALL")
				ask(t, s, "n", "go:1", fairWait)
				ask(t, s, "n", "go:2", fairWait)
				do(t, srv, "DEL", damage[1])
				do(t, srv, damage...)
				act()
				check.Equal(t, what+": %v records are left", do(t, srv, "EXISTS", "n"), any(int64(0)))
			}
		}
	})
}

// A list and a zset that do not fit each other, which eviction or an operator can
// leave behind, stop no other for long.
func TestAQueueThatIsDamagedMends(t *testing.T) {
	check.Long(t)
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

// Redisson's queues have no time to live, and no waiter of Redisson's renews one.
func TestAQueueWithAWaiterOfRedissonDoesNotExpire(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		for what, visit := range map[string]func(){
			"a visitor behind it": func() {
				javas(t, srv, javaID+"1", fairWait)
				ask(t, s, "n", "go:2", fairWait)
			},
			"one that was before it is granted the lock": func() {
				ask(t, s, "n", "go:2", fairWait)
				javas(t, srv, javaID+"1", fairWait)
				free(t, s, "n", "go:1")
				check.FatalIf(t, !ask(t, s, "n", "go:2", fairWait).Granted, "not granted")
			},
			"one that was before it leaves": func() {
				ask(t, s, "n", "go:2", fairWait)
				javas(t, srv, javaID+"1", fairWait)
				check.Value(s.Capabilities().Fair.Leave(t.Context(),
					backend.LeaveRequest{Name: "n", Owner: "go:2", Wait: fairWait})).In(t)
			},
		} {
			do(t, srv, "FLUSHALL")
			ask(t, s, "n", "go:1", fairWait)
			visit()
			for _, key := range []string{queueOfN, timesOfN} {
				check.Equal(t, what+": "+key+" has %d ms", do(t, srv, "PTTL", key).(int64), -1)
			}
		}
	})
}

// Without sharded pub/sub a node of a cluster counts its own subscribers only. Whether a waiter lives is not
// decided by that: dead waiters of several clients in front hold the others up for some seconds in all.
func TestTheDeadInFrontDoNotStopAFairLockOfAClusterWithoutShardedPubSub(t *testing.T) {
	check.Long(t)
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
				waiter := client(t, adapter(t, c.Addrs(), login{}, redisproto.ShardedOff)).With(mortise.Fair())
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
			machine, began := redistest.Timed(t), time.Now()
			for i := range 2 {
				select {
				case got := <-served:
					check.ErrorIf(t, got != i, "waiter %d was served, want %d", got, i)
				case <-time.After(20 * time.Second):
					t.Fatalf("no waiter was served within %v of the release", time.Since(began))
				}
			}
			what := fmt.Sprintf("%d dead waiters of 4 clients: the others", dead)
			machine.Within(t, what, time.Since(began), 10*time.Second)
			leaving.Wait()
		})
	}
}
