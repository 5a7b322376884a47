package redisproto_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/wire"
)

const wakeRound = wakeQueue + ":round"

// turns are requests for a read-write lock or a permit, beside a client that listens as Redisson's do.
type turns struct {
	shared
	*testing.T
	srv    *redistest.Server
	store  anykind.Store
	ears   *ears
	asked  int       // requests
	holder int       // the one that was granted
	began  time.Time // of at
}

// overTurns runs a test over the kinds. The session watches, so that its entries are told.
func overTurns(t *testing.T, f func(x *turns, channel string)) {
	for kind, at := range map[string]struct {
		kind    backend.Kind
		channel string
	}{
		"write":              {backend.KindWrite, "redisson_rwlock:{n}"},
		"counting semaphore": {backend.KindCountingSemaphore, "redisson_sc:{n}"},
		"semaphore":          {backend.KindSemaphore, "redisson_sc:{n}"},
	} {
		t.Run(kind, func(t *testing.T) {
			over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
				sharedKinds[kind].set(t, s)
				s.Subscribe(backend.Topic{Kind: at.kind, Name: "n"})
				e.await(t, "watching n", 1)
				f(&turns{shared: sharedKinds[kind], T: t, srv: srv, store: s, ears: e}, at.channel)
			})
		})
	}
}

// asks reports whether a request is granted. Its entry is none if zero.
func (x *turns) asks(r backend.Enrolment) bool {
	x.Helper()
	x.asked++
	got, _ := x.take(x.T, x.store, x.asked, r)
	if got {
		x.holder = x.asked
	}
	return got
}

// gets waits until a request is granted.
func (x *turns) gets(entry uint64) {
	x.Helper()
	eventually(x.T, "it is granted", func() bool { return x.asks(backend.Enrolment{Entry: entry}) })
}

// frees releases what was granted last, and reports whether it is the turn of Redisson's clients.
func (x *turns) frees() (turn bool) {
	x.Helper()
	x.free(x.T, x.store, x.holder)
	return do(x.T, x.srv, "ZSCORE", wakeQueue, "redisson") != nil
}

// inTurn frees what was granted last, and acts while it is the turn of Redisson's clients, which is as long as can be.
func (x *turns) inTurn(prepare, act func()) {
	x.Helper()
	for range 50 {
		do(x.T, x.srv, "DEL", wakeQueue, wakeRound)
		prepare()
		do(x.T, x.srv, "HSET", wakeRound, "length", "200")
		began := time.Now()
		check.FatalIf(x.T, !x.frees(), "Redisson's clients have no turn")
		act()
		if time.Since(began) < 190*time.Millisecond {
			return
		}
	}
	x.Fatal("the machine is too slow to act in 200 ms")
}

// A client of Redisson's that heard a release has a turn, whether clients of mortise wait or not. Their requests are
// refused meanwhile, until the turn is over or Redisson was heard to release.
func TestATurnOfRedissonsRefusesOurAsks(t *testing.T) {
	check.Long(t)
	overTurns(t, func(x *turns, channel string) {
		listen(x.T, x.srv, channel)
		for what, prepare := range map[string]func(){
			"without a queue": func() { x.gets(0) },
			"with a queue": func() {
				x.gets(0)
				check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "two hold it")
			},
		} {
			var got []bool
			x.inTurn(prepare, func() {
				got = []bool{x.asks(backend.Enrolment{}), x.asks(backend.Enrolment{Entry: 1}), x.asks(backend.Enrolment{Entry: 2}),
					x.asks(backend.Enrolment{Entry: 1, Heard: true})}
			})
			check.ErrorIf(x.T, !slices.Equal(got, []bool{false, false, false, true}),
				"%s: a request, one of each of two entries, and one that heard Redisson are granted: %v", what, got)
			x.frees()
			x.gets(2) // the turn ends by itself
			x.frees()
		}
	})
}

// Between two turns of Redisson's clients the entries have one each, and one each for a release of Redisson's that was
// no turn.
func TestRedissonsTurnsAreAsRareAsEntriesAreMany(t *testing.T) {
	check.Long(t)
	overTurns(t, func(x *turns, channel string) {
		listen(x.T, x.srv, channel)
		for entries, want := range []string{"111111", "111111", "101010", "100100"} {
			got := x.at(entries, len(want))
			for try := 1; got != want && try < 20 && x.outlived(); try++ {
				got = x.at(entries, len(want))
			}
			check.ErrorIf(x.T, got != want, "%d entries: turns at %s of the releases, want %s", entries, got, want)
		}
		x.gets(0)
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "two hold it")
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1, Heard: true}), "two hold it")
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1, Heard: true}), "two hold it")
		got := ""
		for range 4 {
			got += fmt.Sprint(x.frees())[:1]
			x.gets(1)
			check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "two hold it")
		}
		check.ErrorIf(x.T, got != "fttt", "after two tenures of Redisson's the next turns are %s", got)
	})
}

// at says at which of so many releases there is a turn of Redisson's clients, beside entries of ours.
func (x *turns) at(entries, releases int) (got string) {
	x.began = time.Now()
	x.gets(0)
	for e := range entries {
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: uint64(e + 1)}), "two hold it")
	}
	for n := range releases {
		if x.frees() {
			got += "1"
			do(x.T, x.srv, "ZREM", wakeQueue, "redisson") // it is over
			do(x.T, x.srv, "HSET", wakeRound, "window", "0")
		} else {
			got += "0"
		}
		e := uint64(n%max(entries, 1) + 1)
		x.gets(e)
		if entries > 0 {
			check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: e}), "two hold it") // the client's next waiter
		}
	}
	x.free(x.T, x.store, x.holder)
	do(x.T, x.srv, "DEL", wakeQueue, wakeRound)
	return got
}

// outlived reports whether a turn may have run out of its time while at went on: the machine was busy.
func (x *turns) outlived() bool { return time.Since(x.began) > wire.WindowShortest }

// A turn that no client of Redisson's uses makes the next one twice as long. After three there is none for a while, and
// without clients of Redisson's there is none at all.
func TestTurnsThatRedissonDoesNotUse(t *testing.T) {
	check.Long(t)
	overTurns(t, func(x *turns, channel string) {
		x.gets(0)
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "two hold it")
		check.ErrorIf(x.T, x.frees(), "a turn of clients that do not exist")
		x.gets(1)
		listen(x.T, x.srv, channel)
		got := ""
		for range 4 {
			got += fmt.Sprint(x.frees(), do(x.T, x.srv, "HGET", wakeRound, "length"), " ")
			x.gets(1)
		}
		check.Equal(x.T, "%s", got, "true20 true40 true80 false160 ")
		pause := do(x.T, x.srv, "HGET", wakeRound, "pause")
		check.ErrorIf(x.T, pause == nil || pause == "0", "the pause is until %v", pause)
	})
}

// A turn does not cut the time of the entries that were told to ask: what is kept for them lasts longer than the turn.
func TestATurnOfRedissonsLeavesReservationsAlone(t *testing.T) {
	overTurns(t, func(x *turns, channel string) {
		if x.T.Name() == "TestATurnOfRedissonsLeavesReservationsAlone/write" {
			return // a writer that was told has the lock for itself: no other release comes
		}
		do(x.T, x.srv, "SET", "n", "2")
		listen(x.T, x.srv, channel)
		x.gets(0)
		first := x.holder
		x.gets(0)
		check.ErrorIf(x.T, x.asks(backend.Enrolment{Entry: 1}), "three hold it")
		do(x.T, x.srv, "HSET", wakeRound, "owed", "9")
		check.FatalIf(x.T, x.frees(), "Redisson's clients have a turn")
		do(x.T, x.srv, "HSET", wakeRound, "owed", "0")
		x.holder = first
		check.FatalIf(x.T, !x.frees(), "Redisson's clients have no turn")
		entries := do(x.T, x.srv, "ZCARD", wakeQueue).(int64)
		check.ErrorIf(x.T, entries != 2, "the queue has %d entries; want the one that was told, and Redisson's", entries)
		pttl(x.T, x.srv, wakeQueue, 300*time.Millisecond, time.Second) // entry 1 was told less than a second ago
		x.gets(1)
		x.frees()
	})
}

// A dead client whose entry is the first does not keep the next one from being the first, and from hearing of a turn of
// Redisson's clients.
func TestADeadClientIsNotTheFirstInAWakeQueue(t *testing.T) {
	overTurns(t, func(x *turns, channel string) {
		dead := func() {
			do(x.T, x.srv, "ZADD", wakeQueue, "1", "pdead:1", "2", "pdead:2")
			do(x.T, x.srv, "HSET", wakeWants, "pdead:1", "w")
		}
		left := func(when string) {
			x.Helper()
			check.Equal(x.T, when+": %d entries are left", do(x.T, x.srv, "ZCARD", wakeQueue).(int64), 1)
			wants := do(x.T, x.srv, "HEXISTS", wakeWants, "pdead:1")
			check.ErrorIf(x.T, wants != int64(0), "%s: what the dead entry wants is left", when)
		}
		x.gets(0)
		dead()
		x.asked++
		got, r := x.take(x.T, x.store, x.asked, backend.Enrolment{Entry: 1})
		check.ErrorIf(x.T, got || !r.Enrolled || !r.First, "granted: %v, %+v; want it refused, the first", got, r)
		left("after a request")

		dead()
		listen(x.T, x.srv, channel)
		check.FatalIf(x.T, !x.frees(), "Redisson's clients have no turn")
		x.ears.await(x.T, "first n 1 20ms", 1)
		do(x.T, x.srv, "ZREM", wakeQueue, "redisson")
		left("after a turn")
		x.gets(1)
	})
}
