// Package faults_test breaks what a lock stands on: connections, replies, servers,
// the scheduler. Its servers are real redis-servers, its clients go-redis and
// rueidis, and each test says by name which rule of docs/explanation/guarantees.md, or which report of
// another system's users, it stands for.
package faults_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// long asks for the long variants: `MORTISE_FAULTS=long go test ./...`.
var long = os.Getenv("MORTISE_FAULTS") == "long"

// timed asks that times which are bars are asserted, and that what is measured is as large as the bar says: `make
// exclusion`, on a machine that does nothing else.
var timed = flag.Bool("faults.timed", false, "assert times")

// bar is d where times are asserted, and more on a machine that may be busy.
func bar(d time.Duration) time.Duration {
	if *timed {
		return d
	}
	return d + 4*time.Second
}

func TestMain(m *testing.M) {
	flag.Parse()
	// Most of these tests wait; they can wait side by side.
	if n := runtime.GOMAXPROCS(0); flag.Lookup("test.parallel").Value.String() == strconv.Itoa(n) {
		flag.Set("test.parallel", strconv.Itoa(max(8, n)))
	}
	redis.SetLogger(harness.Silent{}) // it tells each failed dial
	var stop func()
	machine, stop = redistest.Watch()
	code := m.Run()
	stop()
	if err := leaks(
		// go-redis looks for its server once a second, and then sees that the client is closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// leaks is goleak.Find with more patience than its half a second: libraries may still be
// closing what they were told to.
func leaks(opts ...goleak.Option) error {
	for end := time.Now().Add(patience); ; {
		if err := goleak.Find(opts...); err == nil || time.Now().After(end) {
			return err
		}
	}
}

// stack is a client library as users set it up.
type stack struct {
	name string
	// cached: Redis tells the client when a record changes.
	cached  bool
	backend func(t testing.TB, addr string, c config) backend.Backend
}

// config is what tests vary about a client.
type config = harness.Site

var stacks = []stack{
	{name: "go-redis", backend: func(t testing.TB, addr string, c config) backend.Backend {
		c.Addrs = []string{addr}
		return c.Backend(t, harness.GoRedis)
	}},
	{name: "rueidis", cached: true, backend: rueidisBackend(false)},
	{name: "rueidis/nocache", backend: rueidisBackend(true)},
}

func rueidisBackend(noCache bool) func(testing.TB, string, config) backend.Backend {
	return func(_ testing.TB, addr string, c config) backend.Backend {
		c.Addrs, c.NoCache = []string{addr}, noCache
		opt := c.Option()
		// It looks twice for replies that are late, and then asks: no longer, in all, than the timeout.
		opt.ConnWriteTimeout /= 2
		return rueidis.New(opt)
	}
}

// each runs a test on every stack. It is parallel if the test is.
func each(t *testing.T, f func(t *testing.T, s stack)) {
	for _, s := range stacks {
		t.Run(s.name, func(t *testing.T) { f(t, s) })
	}
}

// eachParallel is each, side by side.
func eachParallel(t *testing.T, f func(t *testing.T, s stack)) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		t.Parallel()
		f(t, s)
	})
}

// client makes a mortise client on a stack until the end of the test, and has it
// load its scripts.
func (s stack) client(t testing.TB, addr string, c config, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	m := s.unproven(t, addr, c, opts...)
	harness.OK(t, m.Ping(within(t, patience)))
	return m
}

// served is a server and a client of it.
func served(t *testing.T, s stack, c config, opts ...mortise.ClientOption) (*redistest.Server, *mortise.Client) {
	t.Helper()
	srv := redistest.Start(t)
	return srv, s.client(t, srv.Addr(), c, opts...)
}

// unproven is client that sends nothing yet.
func (s stack) unproven(t testing.TB, addr string, c config, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	return harness.Client(t, s.backend(t, addr, c), opts...)
}

// direct is a client that no fault is put before.
func direct(t testing.TB, addr string, opts ...mortise.ClientOption) *mortise.Client {
	t.Helper()
	return stacks[0].client(t, addr, config{}, opts...)
}

// patience bounds what must happen and has no bound of its own.
var patience = time.Minute

// eventually awaits an event of which no test says how soon it comes. A slow machine may take long.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	await(t, 3*patience, what, f)
}

func init() {
	if long {
		patience = 2 * time.Minute
	}
}

// Short names of what these tests say most often. check fails the test, which goes on, unless an
// error is the target.
var (
	within = harness.Within
	await  = harness.Await
	check  = harness.CheckIs
)

// closed waits for ch.
func closed(t testing.TB, d time.Duration, what string, ch <-chan struct{}) {
	t.Helper()
	harness.Receive(t, d, what, ch)
}

// scriptRuns tells how many scripts the server has run.
func scriptRuns(srv *redistest.Server) int64 { return srv.Calls("eval", "evalsha") }

// stays checks for d that ok holds: that something does NOT happen has no event.
func stays(t testing.TB, d time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		harness.FatalIf(t, !ok(), "no longer so: %s", what)
	}
}

// machine knows when this machine was busy while the tests of this package ran.
var machine *redistest.Machine

// quick checks how long something took that has just ended. What the machine was late by is not counted.
func quick(t testing.TB, what string, took, bound time.Duration) {
	t.Helper()
	machine.Within(t, what, took, bound)
}

func lock(t testing.TB, c mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) *mortise.Lease {
	t.Helper()
	l, err := c.Lock(ctx, name, opts...)
	harness.FatalIf(t, err != nil, "Lock: %v", err)
	return l
}

func unlock(t testing.TB, l *mortise.Lease) {
	t.Helper()
	harness.Checkf(t, l.Unlock(within(t, patience)), "Unlock")
}

// exists tells whether a key is there.
func exists(srv *redistest.Server, key string) bool {
	v, err := srv.Do("EXISTS", key)
	return err == nil && v == int64(1)
}

// pttl is what is left of a key's time.
func pttl(srv *redistest.Server, key string) time.Duration {
	v, _ := srv.Do("PTTL", key)
	n, _ := v.(int64)
	return time.Duration(n) * time.Millisecond
}

// holds is the hold count in the store, and how many owners it has.
func holds(t testing.TB, srv *redistest.Server, key string) (count, owners int) {
	t.Helper()
	v := srv.Must("HVALS", key).([]any)
	for _, x := range v {
		n, err := strconv.Atoi(x.(string))
		harness.FatalIf(t, err != nil, "hold count %v", x)
		count += n
	}
	return count, len(v)
}

// foreign puts a record of another owner's into the store.
func foreign(t testing.TB, srv *redistest.Server, key string, lease time.Duration) {
	t.Helper()
	srv.Must("HSET", key, "somebody:1", "1")
	srv.Must("PEXPIRE", key, strconv.FormatInt(lease.Milliseconds(), 10))
}

// connections are the server's connections of the client of a name, by CLIENT LIST.
func connections(t testing.TB, srv *redistest.Server, name string) (n int) {
	t.Helper()
	for l := range strings.Lines(srv.Must("CLIENT", "LIST").(string)) {
		if slices.Contains(strings.Fields(l), "name="+name) {
			n++
		}
	}
	return n
}

// channels is how many channels have a subscriber.
func channels(srv *redistest.Server) int {
	v, err := srv.Do("PUBSUB", "CHANNELS")
	if err != nil {
		return -1
	}
	names := 0
	for _, c := range v.([]any) {
		if !strings.HasSuffix(c.(string), ":mortise") && !strings.Contains(c.(string), ":to:") {
			names++
		}
	}
	if len(v.([]any)) != 3*names {
		return -1 // some are on their way
	}
	return names
}

// result is what a Lock in a goroutine came to.
type result struct {
	lease *mortise.Lease
	err   error
	at    time.Time
}

// locking runs Lock in a goroutine.
func locking(c mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) <-chan result {
	ch := make(chan result, 1)
	go func() {
		l, err := c.Lock(ctx, name, opts...)
		ch <- result{l, err, time.Now()}
	}()
	return ch
}

func receive(t testing.TB, d time.Duration, what string, ch <-chan result) result {
	t.Helper()
	return harness.Receive(t, d, what, ch)
}

// got awaits a Lock in a goroutine and unlocks what it got. It returns when that was.
func got(t testing.TB, d time.Duration, what string, ch <-chan result) time.Time {
	t.Helper()
	r := receive(t, d, what, ch)
	unlock(t, harness.Must(r.lease, r.err)(t))
	return r.at
}
