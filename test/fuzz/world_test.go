//go:build unix

package fuzz

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// slack is for how long a machine that does other things may stand still.
const slack = 20 * time.Second

// world is a server, and the ways to it.
type world struct {
	server *redistest.Server
	admin  *goredis.Client // the test's own
	rdb    *goredis.Client
	sent   int // scripts, when it was last counted
}

// theWorld is made once for each process.
var theWorld = sync.OnceValue(func() *world {
	server := redistest.Start(whole)
	w := &world{
		server: server,
		admin:  goredis.NewClient(&goredis.Options{Addr: server.Addr(), ReadTimeout: slack, PoolSize: 2}),
		rdb:    goredis.NewClient(&goredis.Options{Addr: server.Addr()}),
	}
	whole.Cleanup(func() { w.admin.Close(); w.rdb.Close() })
	return w
})

// The stores. Those on Redis are opened anew for each client.
const (
	inMemory = "memory"
	byRedis  = "go-redis"
	byCached = "rueidis"
)

var stores = []string{inMemory, byRedis, byCached}

func (w *world) backend(store string) backend.Backend {
	switch store {
	case byRedis:
		return redisgo.New(w.rdb)
	case byCached:
		return rueidis.New(rueidisclient.ClientOption{
			InitAddress: []string{w.server.Addr()},
			// For each input there is a connection: small ones.
			RingScaleEachConn: 6, ReadBufferEachConn: 4096, WriteBufferEachConn: 4096,
		})
	}
	return memory.New()
}

// tagged is what a name's other keys are made of.
func tagged(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}

var timeoutOf = regexp.MustCompile(`(?s)^:.*:rwlock_timeout:[0-9]+$`)

// companion is a key of mortise's own; a colon ends it where the name has braces, so that n and {n} share none.
func companion(kind, name string) string {
	if strings.Contains(name, "{") {
		return "mortise:1:" + kind + ":" + name + ":"
	}
	return "mortise:1:" + kind + ":{" + name + "}"
}

// own tells whether a key is one of those that the locks and counts of a name may have. It is
// written after wire.md and the tables in docs, not after the code.
func own(key, name string) bool {
	tag := tagged(name)
	switch key {
	case name, "redisson_lock_token:" + tag, "redisson_lock_queue:" + tag, "redisson_lock_timeout:" + tag,
		queueOf(name), queueOf(name) + ":asks", queueOf(name) + ":round", queueOf(name) + ":window",
		queueOf(name) + ":extra",
		companion("writer", name), tag + ":timeout", companion("tick", name), companion("proclaim", name),
		companion("wake", name), companion("wake", name) + ":round", companion("wake", name) + ":wants":
		return true
	}
	if strings.HasPrefix(key, companion("once", name)+":") {
		return true
	}
	rest, is := strings.CutPrefix(key, tag)
	return is && timeoutOf.MatchString(rest)
}

// queueOf is the queue of the clients that wait for a plain lock.
func queueOf(name string) string {
	if strings.Contains(name, "{") {
		return "mortise:1:next:" + name + ":2"
	}
	return "mortise:1:next:{" + name + "}2"
}

func ownOf(names []string) func(key string) bool {
	return func(key string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return own(key, n) })
	}
}

// decoys are keys that stand around those of names, and are not theirs.
func decoys(names []string) (keys []string) {
	own := ownOf(names)
	add := func(all ...string) {
		for _, k := range all {
			if !own(k) && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	add("other", "mortise:1:since")
	for _, n := range names {
		if n == "" {
			n = "empty"
		}
		add(n+"\x00", n[:len(n)-1]+"~")
		if len(n) > 4096 {
			continue
		}
		add(n[:len(n)-1], n[1:], "{"+n+"}", strings.ToUpper(n), strings.Trim(n, "{}"), n+"}",
			tagged(n)+":", tagged(n)+":timeout:", "redisson_lock__channel:"+tagged(n),
			"redisson_lock_token:"+n+"x", "redisson_lock_token:{"+n+"x}", "mortise:1:next:{"+n+"}2x",
			"mortise:1:next:{"+n+"}2:asksx", "mortise:1:next:{"+n+"}2:roundx", "mortise:1:next:{"+n+"}2:windowx")
	}
	return keys
}

var putDecoys = goredis.NewScript(`
redis.call('flushall')
for i, k in ipairs(KEYS) do
  if i % 5 == 0 then redis.call('rpush', k, 'a', 'b')
  elseif i % 5 == 1 then redis.call('hset', k, 'somebody:1', 1)
  elseif i % 5 == 2 then redis.call('set', k, 7)
  elseif i % 5 == 3 then redis.call('zadd', k, 1, 'a', 2, 'b')
  else redis.call('hset', k, 'mode', 'read', 'somebody:1', 1) end
  if i % 2 == 0 then redis.call('pexpire', k, 3600000) end
end
return 1`)

// reset empties the server and puts decoys.
func (w *world) reset(t testing.TB, decoys []string) {
	t.Helper()
	harness.OK(t, putDecoys.Run(context.Background(), w.admin, decoys).Err())
}

var lookAround = goredis.NewScript(`
local out = {}
for i, k in ipairs(KEYS) do
  local dump, left = redis.call('dump', k), redis.call('pttl', k)
  local ends = left == -1 and '' or left > 3000000 and ' expires' or ' expires soon'
  out[i] = (dump and redis.sha1hex(dump) or 'gone') .. ends
end
return out`)

// digests are what decoys are.
func (w *world) digests(t testing.TB, decoys []string) []string {
	t.Helper()
	out := harness.Must(lookAround.Run(context.Background(), w.admin, decoys).StringSlice())(t)
	return out
}

// leftover is a key that is there, and is no decoy.
type leftover struct {
	name    string
	expires bool
	fields  []string // of a hash, a list or a zset; its first hundred
}

var lookAtRest = goredis.NewScript(`
local out = {}
for _, k in ipairs(redis.call('keys', '*')) do
  local of, fields = redis.call('type', k).ok, {}
  if of == 'hash' and redis.call('hlen', k) < 100 then fields = redis.call('hkeys', k)
  elseif of == 'list' then fields = redis.call('lrange', k, 0, 99)
  elseif of == 'zset' then fields = redis.call('zrange', k, 0, 99) end
  out[#out + 1] = {k, tostring(redis.call('pttl', k)), fields}
end
return out`)

func (w *world) rest(t testing.TB, decoys []string) (all []leftover) {
	t.Helper()
	rows := harness.Must(lookAtRest.Run(context.Background(), w.admin, nil).Slice())(t)
	for _, row := range rows {
		r := row.([]any)
		l := leftover{name: r[0].(string), expires: r[1].(string) != "-1"}
		for _, f := range r[2].([]any) {
			l.fields = append(l.fields, f.(string))
		}
		if !slices.Contains(decoys, l.name) {
			all = append(all, l)
		}
	}
	return all
}

// scripts is how many scripts clients have sent since the last call.
func (w *world) scripts(t testing.TB) int {
	t.Helper()
	info := harness.Must(w.admin.Info(context.Background(), "commandstats").Result())(t)
	n := 0
	for l := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(l, "cmdstat_evalsha:calls="); ok {
			digits, _, _ := strings.Cut(rest, ",")
			n, _ = strconv.Atoi(digits)
		}
	}
	since := n - w.sent
	w.sent = n
	return since
}

// unharmed checks that decoys are what they were, and returns what else is there, all of it names'.
func (w *world) unharmed(t testing.TB, names, decoys, before []string) []leftover {
	t.Helper()
	for i, now := range w.digests(t, decoys) {
		if now != before[i] {
			t.Fatalf("another key was touched, %q: %s, before %s", decoys[i], now, before[i])
		}
	}
	all, own := w.rest(t, decoys), ownOf(names)
	for _, k := range all {
		harness.FatalIf(t, !own(k.name), "a key came to be that is not of %q: %q", names, k.name)
	}
	return all
}

// call is one call with a time of its own, which it must not outlive.
func call[R any](t testing.TB, what string, d time.Duration, f func(ctx context.Context) (R, error)) (R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	began := time.Now()
	hung := time.AfterFunc(d+3*slack, func() {
		buf := make([]byte, 1<<20)
		panic(fmt.Sprintf("%s hangs\n%s", what, buf[:runtime.Stack(buf, true)]))
	})
	r, err := f(ctx)
	hung.Stop()
	took := time.Since(began)
	harness.FatalIf(t, took > d+slack, "%s took %v", what, took)
	v := verdict(err)
	harness.FatalIf(t, strings.HasPrefix(v, "?"), "%s: an error of no kind: %v", what, err)
	return r, err
}

// does is call of what returns nothing but an error.
func does(t testing.TB, what string, d time.Duration, f func(ctx context.Context) error) error {
	t.Helper()
	_, err := call(t, what, d, func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
	return err
}

// verdict names what an error is, in the terms that callers can tell apart.
func verdict(err error) string {
	if is := harness.ErrorNames(err); is != "" {
		return is
	}
	return "? " + err.Error()
}

// shutdown ends a client, and tells whether it was orderly.
func shutdown(t testing.TB, c *mortise.Client, d time.Duration) bool {
	t.Helper()
	return nil == does(t, "Shutdown", d, func(ctx context.Context) error {
		if err := c.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		return ctx.Err()
	})
}

// whole stands for the whole run of the test binary, as a [testing.TB].
var whole = new(harness.WholeRun)

// crashes is a directory for what a process says that ends by a panic: go test keeps that of those
// that fuzz to itself.
const crashes = "MORTISE_FUZZ_CRASHES"

func TestMain(m *testing.M) {
	goredis.SetLogger(harness.Silent{})
	if dir := os.Getenv(crashes); dir != "" {
		f, err := os.CreateTemp(dir, "crash")
		if err != nil {
			log.Panic(err)
		}
		if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
			log.Panic(err)
		}
		whole.Cleanup(func() { os.Remove(f.Name()) })
		f.Close()
	}
	code := m.Run()
	whole.End()
	os.Exit(code)
}
