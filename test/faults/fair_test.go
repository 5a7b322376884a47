package faults_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

func fair(t testing.TB, c *mortise.Client) mortise.Locker {
	t.Helper()
	return c.With(mortise.Fair())
}

// nothing awaits that no key is left but tokens.
func nothing(t testing.TB, srv *redistest.Server) {
	t.Helper()
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		left = nil
		for _, k := range srv.Must("KEYS", "*").([]any) {
			if !strings.HasPrefix(k.(string), "redisson_lock_token:") {
				left = append(left, k.(string))
			}
		}
		if left == nil {
			return
		}
	}
	t.Errorf("left behind: %q", left)
}

func TestCost_AFairLockThatIsFreeIsOneCommandEach(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		f, ctx := fair(t, c), within(t, patience)
		for range 3 {
			var l *mortise.Lease
			costs(t, p, "Lock", 1, func() { l = lock(t, f, ctx, "n") })
			costs(t, p, "TryLock of what this client holds", 0, func() {
				_, err := f.TryLock(ctx, "n")
				check(t, err, mortise.ErrNotAcquired)
			})
			costs(t, p, "Unlock", 1, func() { unlock(t, l) })
		}
		nothing(t, srv)
	})
}

// A master without its replicas refuses the release, and its repetition in the background, too: the lock is free soon
// after it takes writes again, and not when the lease ends.
func TestRule10_AReleaseOfAFairLockThatTheServerRefusesIsRepeated(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{}, mortise.WithWatchdogTimeout(10*patience))
		scripts := func() int { return p.Count(redistest.Named("EVALSHA", "EVAL")) }
		ctx := within(t, 2*patience)
		l := lock(t, fair(t, c), ctx, "n")
		srv.Must("CONFIG", "SET", "min-replicas-to-write", "1")
		check(t, l.Unlock(ctx), mortise.ErrUnavailable)
		then := scripts()
		eventually(t, "the release is repeated", func() bool { return scripts() > then+1 })
		srv.Must("CONFIG", "SET", "min-replicas-to-write", "0")
		nothing(t, srv)
	})
}

// Keys, channels and scores are Redisson's.
func TestTheQueueOfAFairLockIsRedissons(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		srv.Must("HSET", "n", "uuid:1", "1")
		srv.Must("PEXPIRE", "n", "60000")
		var waiting atomic.Int32
		c := s.client(t, srv.Addr(), config{}, mortise.WithID("go"),
			mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}))
		f := fair(t, c)
		var cancels []context.CancelFunc
		var results []<-chan result
		before := time.Now().UnixMilli()
		for i := range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			cancels = append(cancels, cancel)
			var opts []mortise.Option
			if i == 1 {
				opts = []mortise.Option{mortise.WithWait(100 * time.Second)}
			}
			results = append(results, locking(f, ctx, "n", opts...))
			eventually(t, "it waits", func() bool { return waiting.Load() == int32(i+1) })
		}
		queue := func() (fields []string) {
			for _, x := range srv.Must("LRANGE", "redisson_lock_queue:{n}", "0", "-1").([]any) {
				fields = append(fields, x.(string))
			}
			return fields
		}
		score := func(field string) int64 {
			v, _ := srv.Must("ZSCORE", "redisson_lock_timeout:{n}", field).(string)
			x, err := strconv.ParseFloat(v, 64)
			harness.FatalIf(t, err != nil, "score of %q: %q", field, v)
			return int64(x) - before
		}
		about := func(what string, got, want int64) {
			t.Helper()
			if got < want-20_000 || got > want+20_000 { // what is wrong is so by a minute and more
				t.Errorf("%s: %d ms, want about %d", what, got, want)
			}
		}
		q := queue()
		harness.FatalIf(t, len(q) != 3 || !strings.HasPrefix(q[0], "go:"), "the queue is %q", q)
		about("the first", score(q[0]), 60_000+300_000)
		about("the second", score(q[1]), 60_000+100_000)
		about("the third", score(q[2]), 60_000+300_000)
		for _, field := range q {
			eventually(t, "each is listened for", func() bool {
				v := srv.Must("PUBSUB", "NUMSUB", "redisson_lock__channel:{n}:"+field).([]any)
				return v[1] == int64(1)
			})
		}

		// One that leaves changes no other's place.
		cancels[1]()
		<-results[1]
		eventually(t, "it leaves", func() bool { return len(queue()) == 2 })
		about("the first", score(q[0]), 60_000+300_000)
		about("the third", score(q[2]), 60_000+300_000)

		// Redisson's release.
		srv.Must("DEL", "n")
		srv.Must("PUBLISH", "redisson_lock__channel:{n}:"+q[0], "0")
		r := receive(t, patience, "the first is woken", results[0])
		harness.OK(t, r.err)
		if owner := srv.Must("HGET", "n", q[0]); owner != "1" {
			t.Errorf("the record of %q is %v", q[0], owner)
		}
		about("the third, which is the first now", score(q[2]), 60_000+300_000)
		unlock(t, r.lease)
		got(t, patience, "the third is woken", results[2])
		nothing(t, srv)
	})
}

// Scripts recognize Redisson's owners by their form. Beside these a client asks each second, and each place of a dead
// client costs a second.
func TestAClientWhoseIDIsAUUIDIsNotTakenForRedisson(t *testing.T) {
	const id = "550e8400-e29b-41d4-a716-446655440000"
	java := regexp.MustCompile(`^[0-9a-fA-F]+(-[0-9a-fA-F]+){4}:-?[0-9]+$`)
	eachParallel(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		var waiting atomic.Int32
		c := s.client(t, srv.Addr(), config{}, mortise.WithID(id),
			mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}))
		l := lock(t, fair(t, c), within(t, 2*patience), "n")
		waits := locking(fair(t, c), within(t, 2*patience), "n")
		eventually(t, "it waits", func() bool { return waiting.Load() == 1 })
		fields := append(srv.Must("HKEYS", "n").([]any), srv.Must("LRANGE", "redisson_lock_queue:{n}", "0", "-1").([]any)...)
		harness.FatalIf(t, len(fields) != 2, "the owner and the place are %q", fields)
		for _, f := range fields {
			harness.ErrorIf(t, java.MatchString(f.(string)), "%q has the form of Redisson's owners", f)
		}
		state, err := c.Inspect(within(t, patience), "n")
		if err != nil || state.Client != id || state.Owner != fields[0] {
			t.Errorf("the lock of %s: %+v, %v", fields[0], state, err)
		}
		unlock(t, l)
		got(t, patience, "the waiter is served", waits)
		nothing(t, srv)
	})
}

// Redisson removes places without a message. Beside its owners a client looks after its places each second.
func TestAPlaceThatRedissonRemovedIsTakenAgainWithinASecond(t *testing.T) {
	const java = "0d3e54a0-9a5c-4a29-b6a4-6d1f3c1e7b11:"
	const list, zset = "redisson_lock_queue:{n}", "redisson_lock_timeout:{n}"
	eachParallel(t, func(t *testing.T, s stack) {
		for what, prepare := range map[string]func(srv *redistest.Server){
			"Redisson's owner holds the lock": func(srv *redistest.Server) { srv.Must("HSET", "n", java+"1", "1") },
			"one of Redisson's waits": func(srv *redistest.Server) {
				srv.Must("HSET", "n", "other:1", "1")
				srv.Must("RPUSH", list, java+"2")
				srv.Must("ZADD", zset, strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10), java+"2")
			},
		} {
			srv := redistest.Start(t)
			prepare(srv)
			srv.Must("PEXPIRE", "n", "60000")
			var waiting atomic.Int32
			c := s.client(t, srv.Addr(), config{}, mortise.WithID("go"),
				mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}))
			ctx, cancel := context.WithCancel(context.Background())
			var results []<-chan result
			for i := range 3 {
				results = append(results, locking(fair(t, c), ctx, "n"))
				eventually(t, "it waits", func() bool { return waiting.Load() == int32(i+1) })
			}
			places := srv.Must("ZCARD", zset)
			srv.Must("EVAL", `for _, place in ipairs(redis.call('zrange', KEYS[2], 0, -1)) do
				if string.sub(place, 1, 3) == 'go:' then
					redis.call('lrem', KEYS[1], 0, place)
					redis.call('zrem', KEYS[2], place)
				end
			end`, "2", list, zset) // in one step, as Redisson does
			begun := time.Now()
			eventually(t, what+": they have places again",
				func() bool { return srv.Must("LLEN", list) == places })
			took := time.Since(begun)
			quick(t, what+": the places were gone, that", took, 1500*time.Millisecond)
			cancel()
			for _, r := range results {
				<-r
			}
		}
	})
}
