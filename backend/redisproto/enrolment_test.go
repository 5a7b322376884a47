package redisproto_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/wire"
)

const (
	wakeQueue = "mortise:1:wake:{n}"
	wakeWants = wakeQueue + ":wants"
)

// shared is a kind whose clients queue there, and how a session takes it and releases it.
type shared struct {
	set  func(t *testing.T, s anykind.Store)
	take func(t *testing.T, s anykind.Store, number int, r backend.Enrolment) (bool, backend.QueueReply)
	free func(t *testing.T, s anykind.Store, number int)
}

func setPermits(k backend.Kind) func(t *testing.T, s anykind.Store) {
	return func(t *testing.T, s anykind.Store) {
		t.Helper()
		r := backend.CountRequest{Topic: backend.Topic{Kind: k, Name: "n"}, ID: "set", N: 1}
		check.Value(s.Capabilities().CountingSemaphores.SetCount(t.Context(), r)).In(t)
	}
}

var sharedKinds = map[string]shared{
	"write": {
		set: func(*testing.T, anykind.Store) {},
		take: func(t *testing.T, s anykind.Store, number int, r backend.Enrolment) (bool, backend.QueueReply) {
			t.Helper()
			x := check.Value(s.Capabilities().ReadWrite.AcquireWrite(t.Context(), backend.WriteRequest{
				Name: "n", Owner: fmt.Sprint("w:", number), Lease: time.Minute, Enrolment: r})).In(t)
			return x.Granted, x.QueueReply
		},
		free: func(t *testing.T, s anykind.Store, number int) {
			t.Helper()
			r := backend.ReleaseRequest{Name: "n", Owner: fmt.Sprint("w:", number)}
			x := check.Value(s.Capabilities().ReadWrite.ReleaseWrite(t.Context(), r)).In(t)
			check.ErrorIf(t, !x.Held, "the writer did not hold it")
		},
	},
	"counting semaphore": {
		set: setPermits(backend.KindCountingSemaphore),
		take: func(t *testing.T, s anykind.Store, number int, r backend.Enrolment) (bool, backend.QueueReply) {
			t.Helper()
			x := check.Value(s.Capabilities().CountingSemaphores.TakeCount(t.Context(), backend.CountRequest{
				Topic: backend.Topic{Kind: backend.KindCountingSemaphore, Name: "n"}, ID: fmt.Sprint("take", number), N: 1,
				Enrolment: r})).In(t)
			return x.Granted, x.QueueReply
		},
		free: func(t *testing.T, s anykind.Store, number int) {
			t.Helper()
			check.Value(s.Capabilities().CountingSemaphores.AddCount(t.Context(), backend.CountRequest{
				Topic: backend.Topic{Kind: backend.KindCountingSemaphore, Name: "n"}, ID: fmt.Sprint("add", number), N: 1})).In(t)
		},
	},
	"semaphore": {
		set: setPermits(backend.KindSemaphore),
		take: func(t *testing.T, s anykind.Store, number int, r backend.Enrolment) (bool, backend.QueueReply) {
			t.Helper()
			x := check.Value(s.Capabilities().Semaphores.Acquire(t.Context(), backend.PermitRequest{
				Name: "n", Owner: fmt.Sprintf("%032x", number), Lease: time.Minute, Enrolment: r})).In(t)
			return x.Granted, x.QueueReply
		},
		free: func(t *testing.T, s anykind.Store, number int) {
			t.Helper()
			r := backend.ReleaseRequest{Name: "n", Owner: fmt.Sprintf("%032x", number)}
			x := check.Value(s.Capabilities().Semaphores.Release(t.Context(), r)).In(t)
			check.ErrorIf(t, !x.Held, "the permit was not out")
		},
	},
}

// What another writes into a queue delays, and does no more: no release fails, nothing is granted twice, and
// the next ask of a second later is served.
func TestAQueueThatAnotherWroteToDelaysOnly(t *testing.T) {
	check.Long(t)
	soon := func(d time.Duration) string { return strconv.FormatInt(-time.Now().Add(d).UnixMilli(), 10) }
	writes := map[string]func() [][]string{
		"a string": func() [][]string { return [][]string{{"SET", wakeQueue, "x"}, {"SET", wakeWants, "x"}} },
		"a list":   func() [][]string { return [][]string{{"RPUSH", wakeQueue, "x"}, {"RPUSH", wakeWants, "x"}} },
		"members": func() [][]string {
			return [][]string{{"ZADD", wakeQueue, "0", "", "1", ":", "2", "n", "3", "s\x00:"}}
		},
		"owners": func() [][]string {
			return [][]string{{"ZADD", wakeQueue, "1", "p:w:", "2", "px:w:x", "3", "nx:r:y", "4", "nx:1:0123456789abcdef",
				"5", "nx:128:z", "6", "nx:0:z", "7", "nx:1e1:z", "8", "nx:w+:z", "9", "nx:r+:z", "10", "nx:99999999999999999999:z"},
				{"HSET", wakeWants, "nx:w+:z", "w", "lease:nx:w+:z", "nan", "lease:nx:r+:z", "-1", "px:w:x", "w"}}
		},
		"scores": func() [][]string {
			return [][]string{{"ZADD", wakeQueue, "-inf", "p:1", "+inf", "p:2", "-1", "p:3"}}
		},
		"what is kept":      func() [][]string { return [][]string{{"ZADD", wakeQueue, soon(time.Second / 2), "p:1"}} },
		"what is kept long": func() [][]string { return [][]string{{"ZADD", wakeQueue, soon(time.Hour), "p:1"}} },
		"turns": func() [][]string {
			return [][]string{{"ZADD", wakeQueue, soon(time.Second / 2), "redisson"}, {"HSET", wakeRound, "owed", "nan",
				"length", "inf", "pause", "1e300", "seen", "-inf", "open", "x", "charge", "nan", "misses", "-1e300"}}
		},
		"turns in a string": func() [][]string { return [][]string{{"SET", wakeRound, "x"}} },
		"wants": func() [][]string {
			return [][]string{{"ZADD", wakeQueue, "1", "p:1", "2", "p:2", soon(time.Second / 2), "p:3"},
				{"HSET", wakeWants, "p:1", "nan", "p:2", "-inf", "p:3", "inf"}}
		},
	}
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		listen(t, srv, "redisson_rwlock:{n}", "redisson_sc:{n}")
		number := 0
		for kind, k := range sharedKinds {
			for what, commands := range writes {
				t.Run(kind+"/"+what, func(t *testing.T) {
					do(t, srv, "FLUSHALL")
					k.set(t, s)
					gets := func() int {
						t.Helper()
						for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
							number++
							got, _ := k.take(t, s, number, backend.Enrolment{Entry: 1, Heard: number%2 == 0})
							check.FatalIf(t, !got && time.Now().After(end), "it is free, and refused")
							if got {
								return number
							}
						}
					}
					holder := gets()
					for _, c := range commands() {
						do(t, srv, c...)
					}
					number++
					got, _ := k.take(t, s, number, backend.Enrolment{Entry: 1})
					check.ErrorIf(t, got, "two hold it")
					k.free(t, s, holder)
					holder = gets()
					number++
					got, _ = k.take(t, s, number, backend.Enrolment{})
					check.ErrorIf(t, got, "two hold it")
					k.free(t, s, holder)
				})
			}
		}
	})
}

// A queue's order is that of the arrivals, also if the server's clock is set back meanwhile.
func TestAClockThatIsSetBackChangesNoOrder(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		order := func(what, queue string, want ...string) {
			t.Helper()
			var got []string
			for _, entry := range do(t, srv, "ZRANGE", queue, "0", "-1").([]any) {
				all := strings.Split(entry.(string), ":") // a number, or an owner that ends with it
				got = append(got, all[len(all)-1])
			}
			check.ErrorIf(t, !slices.Equal(got, want), "%s: the queue is %v, want %v", what, got, want)
		}
		setBack := func(queue string) { // the first entry came two minutes ago, and the clock was set back by four
			do(t, srv, "ZINCRBY", queue, "120e6", do(t, srv, "ZRANGE", queue, "0", "0").([]any)[0].(string))
		}
		for _, kind := range []backend.Kind{backend.KindLock, backend.KindCountingSemaphore, backend.KindSemaphore} {
			s.Subscribe(backend.Topic{Kind: kind, Name: "n"})
		}
		e.await(t, "watching n", 3)
		check.FatalIf(t, !tries(t, s, "n", "h:1", false).Granted, "not granted")
		(&waiter{Store: s, ears: e, name: "n", owner: "w:1"}).enters(t, 1)
		setBack(queueOf("n"))
		(&waiter{Store: s, ears: e, name: "n", owner: "w:2"}).enters(t, 2)
		order("a lock", queueOf("n"), "1", "2")
		check.Value(s.Capabilities().Queue.Serve(t.Context(), backend.ServeRequest{Name: "n", Owner: "h:1", Next: "h:3",
			Lease: time.Minute, Yield: true, Entry: 3})).In(t)
		order("a lock whose releaser waits", queueOf("n"), "2", "3")
		for kind, k := range sharedKinds {
			do(t, srv, "FLUSHALL")
			k.set(t, s)
			k.take(t, s, 0, backend.Enrolment{})
			k.take(t, s, 1, backend.Enrolment{Entry: 1})
			setBack(wakeQueue)
			k.take(t, s, 2, backend.Enrolment{Entry: 2})
			order(kind, wakeQueue, "1", "2")
			k.free(t, s, 0)
			k.take(t, s, 1, backend.Enrolment{Entry: 1, Stays: true})
			if kind != "write" { // a grant of a read-write lock leaves no entry
				order(kind+", whose next holder has more waiters", wakeQueue, "2", "1")
			}
		}
	})
}

// The queue lives for longer than a client with very many names takes to ask again.
func TestTheQueueOfAnEntryOutlivesTheLongestRecheck(t *testing.T) {
	overTurns(t, func(x *turns, _ string) {
		x.gets(0)
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "two hold it")
		pttl(x.T, x.srv, wakeQueue, recheck, 10*time.Minute)
		if do(x.T, x.srv, "HGET", wakeWants, do(x.T, x.srv, "ZRANGE", wakeQueue, "0", "0").([]any)[0].(string)) == "w" {
			pttl(x.T, x.srv, wakeWants, recheck, 10*time.Minute)
		}
	})
}

// A queue of very many entries without subscribers: a script tells a bounded number of them.
func TestAScriptTellsABoundedNumberOfEntries(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		const dead, most = 5000, wire.EntriesTold * 6
		for kind, k := range sharedKinds {
			for _, score := range []string{"1", "-1"} {
				do(t, srv, "FLUSHALL")
				k.set(t, s)
				k.take(t, s, 1, backend.Enrolment{})
				entries := []string{"ZADD", wakeQueue}
				for i := range dead {
					entries = append(entries, score, fmt.Sprintf("pdead%d:1", i))
				}
				do(t, srv, entries...)
				do(t, srv, "CONFIG", "RESETSTAT")
				k.free(t, s, 1)
				n := 0
				for _, command := range []string{"publish", "zrem", "zadd", "hget", "zrangebyscore"} {
					n += ran(t, srv, command)
				}
				check.ErrorIf(t, n > most, "%s: a release made %d calls for %d entries, want at most %d", kind, n, dead, most)
				left := do(t, srv, "ZCARD", wakeQueue).(int64)
				check.ErrorIf(t, left < dead-wire.EntriesTold*2, "%s: a release removed %d entries", kind, dead-left)
			}
		}
	})
}

// A user without permissions for the queue, or a server that takes no writes, gives no entry a place; releases
// are told to all.
func TestAUserWithoutPermissionsForTheQueueIsToldOfEachRelease(t *testing.T) {
	srv := redistest.Start(t)
	for what, rules := range map[string][]string{
		"key":  {"resetkeys", "~n", "~{n}*", "~mortise:1:once:*", "~mortise:1:writer:*", "~redisson_*"},
		"time": {"~*", "-time"}, "zadd": {"~*", "-zadd"},
	} {
		for kind, k := range sharedKinds {
			if kind == "semaphore" && what != "key" {
				continue // its permits are a zset, and end by the server's clock
			}
			t.Run(what+"/"+kind, func(t *testing.T) {
				do(t, srv, "FLUSHALL")
				do(t, srv, append([]string{"ACL", "SETUSER", "some", "reset", "on", ">secret", "+@all", "&*"}, rules...)...)
				s, e := session(t, adapters["go-redis"](t, srv.Addr(), login{"some", "secret"}))
				topic := backend.Topic{Kind: backend.KindCountingSemaphore, Name: "n"}
				switch kind {
				case "write":
					topic.Kind = backend.KindWrite
				case "semaphore":
					topic.Kind = backend.KindSemaphore
				}
				k.set(t, s)
				k.take(t, s, 1, backend.Enrolment{})
				s.Subscribe(topic)
				e.await(t, "watching n", 1)
				got, q := k.take(t, s, 2, backend.Enrolment{Entry: 1})
				check.ErrorIf(t, got || q.Enrolled, "%v, %+v; want it refused, without a place", got, q)
				k.free(t, s, 1)
				e.await(t, "released n", 1)
				got, _ = k.take(t, s, 3, backend.Enrolment{Entry: 1})
				check.ErrorIf(t, !got, "it is free, and refused")
			})
		}
	}
}

// A script tells 64 entries at the most. Of more readers the next are told when the last of those asks.
func TestEachOfManyReadersIsToldOnceNoWriterHoldsTheLock(t *testing.T) {
	over(t, func(t *testing.T, _ *redistest.Server, s anykind.Store, e *ears) {
		s.Subscribe(backend.Topic{Kind: backend.KindWrite, Name: "n"})
		e.await(t, "watching n", 1)
		k := sharedKinds["write"]
		k.take(t, s, 1, backend.Enrolment{})
		reads := func(number, entry int) bool {
			return check.Value(s.Capabilities().ReadWrite.AcquireRead(t.Context(), backend.ReadRequest{Name: "n",
				Owner: fmt.Sprint("r:", number), Lease: time.Minute, Enrolment: backend.Enrolment{Entry: uint64(entry)},
			})).In(t).Granted
		}
		const readers = 150
		for i := 1; i <= readers; i++ {
			check.ErrorIf(t, reads(i, i), "reader %d got in beside the writer", i)
		}
		k.free(t, s, 1)
		for i := 1; i <= readers; i++ {
			eventually(t, fmt.Sprintf("reader %d is told to ask", i), func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return e.heard[fmt.Sprint("reserved n ", i)]+e.heard[fmt.Sprintf("first n %d 20ms", i)] > 0
			})
			check.ErrorIf(t, !reads(readers+i, i), "reader %d is refused", i)
		}
	})
}

// A grant puts an entry to the end of the queue; where the queue cannot be written, it says so.
func TestAGrantSaysThatTheEntryIsNotInTheQueueWhereThatIsSo(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		for _, kind := range []string{"counting semaphore", "semaphore"} {
			do(t, srv, "FLUSHALL")
			k := sharedKinds[kind]
			k.set(t, s)
			do(t, srv, "SET", wakeQueue, "x")
			got, q := k.take(t, s, 1, backend.Enrolment{Entry: 1, Stays: true})
			check.ErrorIf(t, !got || q.Enrolled, "%s: %v, %+v; want it granted, and not in the queue", kind, got, q)
		}
	})
}
