//go:build unix

package redisproto_test

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// over runs a test of a script over one adapter: what the script does is the same over all.
func over(t *testing.T, f func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears)) {
	srv := redistest.Start(t)
	s, e := session(t, adapters["go-redis"](t, srv.Addr(), login{}))
	f(t, srv, s, e)
}

// The queue's keys expired an hour after the last place was taken, under those who waited
// for longer than that.
func TestAQueueThatIsWaitedInDoesNotExpire(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		ask(t, s, "n", "go:1", fairWait)
		ask(t, s, "n", "go:2", fairWait)
		ask(t, s, "n", "go:3", fairWait)
		keys := []string{"redisson_lock_queue:{n}", "redisson_lock_timeout:{n}"}
		later := func() { // an hour has passed
			for _, key := range keys {
				do(t, srv, "PEXPIRE", key, "60000")
			}
		}
		for _, owner := range []string{"go:2", "go:3"} {
			for what, score := range map[string]time.Duration{"its place is to be kept longer": time.Minute,
				"it is kept long enough": time.Hour} {
				at := time.Now().Add(score).UnixMilli()
				do(t, srv, "ZADD", keys[1], strconv.FormatInt(at, 10), owner)
				later()
				ask(t, s, "n", owner, fairWait)
				for _, key := range keys {
					left := time.Duration(do(t, srv, "PTTL", key).(int64)) * time.Millisecond
					check.ErrorIf(t, left <= time.Hour, "%s asked, %s: %s expires in %v", owner, what, key, left)
				}
			}
		}
	})
}

// A queue in which no waiter hears kept a release from waiters for the plain lock.
func TestPlainWaitersHearOfAReleaseIfNoWaiterInTheQueueDoes(t *testing.T) {
	check.Long(t)
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, e *ears) {
		s.Subscribe(topic("n"))
		e.await(t, "watching n", 1)
		ask(t, s, "n", "go:1", fairWait)
		ask(t, s, "n", "dead:1", fairWait)
		ask(t, s, "n", "dead:2", fairWait)
		free(t, s, "n", "go:1")
		e.await(t, "released n", 1)
		eventually(t, "it is had after the turn of the queue", func() bool {
			in := anykind.AcquireRequest{Name: "n", Owner: "plain:1", Lease: time.Minute}
			return check.Value(s.Acquire(t.Context(), in)).In(t).Granted
		})
		if r, err := s.Release(t.Context(), anykind.ReleaseRequest{Name: "n", Owner: "plain:1"}); err != nil ||
			!r.Held {
			t.Fatal(r, err)
		}
		e.await(t, "released n", 2)
		if r, err := s.Capabilities().Fair.Leave(t.Context(),
			backend.LeaveRequest{Name: "n", Owner: "dead:1", Wait: fairWait}); err != nil || !r.Queued {
			t.Fatal(r, err)
		}
		e.await(t, "released n", 3)

		// Where one does, it alone is told.
		s.Subscribe(backend.Topic{Kind: backend.KindFair, Name: "n", Owner: "go:3"})
		e.await(t, "watching n", 2)
		eventually(t, "the dead are gone", func() bool { return ask(t, s, "n", "go:2", fairWait).Granted })
		ask(t, s, "n", "go:3", fairWait)
		free(t, s, "n", "go:2")
		e.await(t, "released n", 4)
		n := do(t, srv, "PUBLISH", "redisson_lock__channel:{n}:go:3", "0")
		check.FatalIf(t, n != int64(1), "%v", n)
		e.await(t, "released n", 5) // a message that went to both would have come before
		e.mu.Lock()
		defer e.mu.Unlock()
		n = e.heard["released n"]
		check.ErrorIf(t, n != 5, "released %d times, want 5", n)
	})
}

// Lua writes numbers above 1e14 with an exponent, which is no number of ours.
func TestALeaseOfMillenniaIsRead(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		do(t, srv, "HSET", "n", "uuid:1", "1")
		do(t, srv, "PEXPIRE", "n", "180000000000000000") // Integer.MAX_VALUE days, or so
		r, err := s.Inspect(t.Context(), topic("n"))
		check.ErrorIf(t, err != nil || !r.Held || r.Remaining != -1, "%+v, %v", r, err)
		do(t, srv, "HSET", "rw", "mode", "write", "uuid:1:write", "1")
		do(t, srv, "PEXPIRE", "rw", "180000000000000000")
		r, err = s.Inspect(t.Context(), backend.Topic{Kind: backend.KindWrite, Name: "rw"})
		check.ErrorIf(t, err != nil || r.Owner != "uuid:1" || r.Remaining != -1, "%+v, %v", r, err)
	})
}

// A count at the end of int64, which Java may set, is not an open latch.
func TestALargeCountIsNotNegative(t *testing.T) {
	over(t, func(t *testing.T, srv *redistest.Server, s anykind.Store, _ *ears) {
		do(t, srv, "SET", "n", strconv.FormatInt(math.MaxInt64, 10))
		latch := backend.Topic{Kind: backend.KindCountDownLatch, Name: "n"}
		for range 2 {
			n, err := s.Capabilities().CountDownLatches.Count(t.Context(), latch)
			check.ErrorIf(t, err != nil || n <= 0, "%d, %v", n, err)
			n, err = s.Capabilities().CountDownLatches.CountDown(t.Context(), backend.CountRequest{Topic: latch, ID: "a", N: 1})
			check.ErrorIf(t, err != nil || n <= 0, "counted down to %d, %v", n, err)
		}
		check.Equal[any](t, "%v is left", do(t, srv, "GET", "n"), strconv.FormatInt(math.MaxInt64-1, 10))
	})
}
