package interop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// site is where Java and Go meet: a server, or the masters of a cluster.
type site struct {
	servers []*redistest.Server
	// sharded: both sides announce releases with SPUBLISH.
	sharded bool
	// front is the address that Java is told of a standalone server; empty for the server's.
	front string

	marks atomic.Int64
	mu    sync.Mutex
	asks  map[string][]string // what was asked of each key, as MONITOR shows it
}

func newSite(t *testing.T, servers ...*redistest.Server) *site {
	t.Helper()
	s := &site{servers: servers, asks: make(map[string][]string)}
	for _, server := range servers {
		s.monitor(t, server)
	}
	return s
}

func standalone(t *testing.T) *site { return newSite(t, redistest.Start(t)) }

// cluster starts three masters that share the slots.
func cluster(t *testing.T) *site {
	t.Helper()
	return newSite(t, redistest.StartCluster(t, 3).Masters...)
}

func (s *site) cluster() bool { return len(s.servers) > 1 }

// clients is the site as Go's clients are told of it.
func (s *site) clients() harness.Site {
	at := harness.Site{Cluster: s.cluster(), Name: "go"}
	for _, server := range s.servers {
		at.Addrs = append(at.Addrs, server.Addr())
	}
	return at
}

// must sends a command about a key to the server that has it.
func (s *site) must(t *testing.T, args ...string) any {
	t.Helper()
	got, err := s.servers[0].Do(args...)
	var reply redistest.Error
	if errors.As(err, &reply) {
		if to, moved := strings.CutPrefix(reply.Error(), "MOVED "); moved {
			for _, server := range s.servers {
				if strings.HasSuffix(to, " "+server.Addr()) {
					return server.Must(args...)
				}
			}
		}
	}
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return got
}

func (s *site) pttl(t *testing.T, key string) time.Duration {
	t.Helper()
	return time.Duration(s.must(t, "PTTL", key).(int64)) * time.Millisecond
}

// keys are all keys whose names contain part.
func (s *site) keys(t *testing.T, part string) []string {
	t.Helper()
	var all []string
	for _, server := range s.servers {
		for _, key := range server.Must("KEYS", "*").([]any) {
			if strings.Contains(key.(string), part) {
				all = append(all, key.(string))
			}
		}
	}
	slices.Sort(all)
	return all
}

// subscribers counts the connections that listen on the channels of names that
// contain part, without those that stand beside Redisson's.
func (s *site) subscribers(t *testing.T, part string) int {
	t.Helper()
	n := 0
	kinds := []string{""}
	if s.sharded {
		kinds = []string{"SHARD"} // a client that listens elsewhere hears nothing
	}
	for _, server := range s.servers {
		for _, kind := range kinds {
			for _, channel := range server.Must("PUBSUB", kind+"CHANNELS").([]any) {
				name := channel.(string)
				beside := strings.Contains(name, ":to:") || strings.HasSuffix(name, ":mortise")
				if strings.Contains(name, part) && !beside {
					n += int(server.Must("PUBSUB", kind+"NUMSUB", channel.(string)).([]any)[1].(int64))
				}
			}
		}
	}
	return n
}

// asked is a command that asks for something: a script, with its first key, or the count of a latch, which
// Redisson reads by itself; and settled's PING. What scripts do inside says "lua]" where clients have their
// address.
var asked = regexp.MustCompile(`^\S+ \[\d+ \S+:\d+\] ` +
	`(?i:"eval(?:sha)?" "(?:[^"\\]|\\.)*" "[^"]*"|"get"|"ping") ` +
	`("(?:[^"\\]|\\.)*")(.*)`)

// monitor writes down what a server is asked for.
func (s *site) monitor(t *testing.T, server *redistest.Server) {
	t.Helper()
	conn := harness.Must(net.Dial("tcp", server.Addr()))(t)
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !lines.Scan() {
		t.Fatalf("MONITOR: %v %v", err, lines.Err())
	}
	go func() {
		defer close(done)
		for lines.Scan() {
			if m := asked.FindStringSubmatch(lines.Text()); m != nil {
				s.mu.Lock()
				s.asks[m[1]] = append(s.asks[m[1]], m[2])
				s.mu.Unlock()
			}
		}
	}()
}

// tries counts what was asked of a name for an owner, or for all owners of a Go client; for
// any, if owner is "".
func (s *site) tries(name, owner string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.asks[`"`+name+`"`]
	if owner == "" {
		return len(all)
	}
	n := 0
	for _, rest := range all {
		if strings.Contains(rest, `"`+owner+`"`) || strings.Contains(rest, `"`+owner+`:`) {
			n++
		}
	}
	return n
}

// settled awaits that all is counted by tries that was asked before.
func (s *site) settled(t *testing.T) {
	t.Helper()
	mark := fmt.Sprintf("settled %d", s.marks.Add(1))
	for _, server := range s.servers {
		server.Must("PING", mark)
	}
	until(t, "MONITOR to catch up", func() bool { return s.tries(mark, "") == len(s.servers) })
}

// publish sends what a release sends, by hand.
func (s *site) publish(t *testing.T, channel, payload string) {
	t.Helper()
	if s.sharded {
		s.must(t, "SPUBLISH", channel, payload)
		return
	}
	s.must(t, "PUBLISH", channel, payload)
}

func channelOf(name string) string { return "redisson_lock__channel:" + tagged(name) }
func tokenKey(name string) string  { return "redisson_lock_token:" + tagged(name) }

func tagged(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}

// until waits for a condition that no event tells of.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	harness.Await(t, long, what, holds)
}

// adapter is a Go client of Redis.
type adapter struct {
	name string
	open func(t *testing.T, s *site) backend.Backend
}

var adapters = []adapter{
	{"go-redis", func(t *testing.T, s *site) backend.Backend {
		rdb := s.clients().Universal()
		t.Cleanup(func() { rdb.Close() })
		mode := redisgo.ShardedOff
		if s.sharded {
			mode = redisgo.ShardedAuto
		}
		return redisgo.New(rdb, redisgo.WithShardedPubSub(mode))
	}},
	{"rueidis", func(_ *testing.T, s *site) backend.Backend {
		mode := rueidis.ShardedOff
		if s.sharded {
			mode = rueidis.ShardedAuto
		}
		return rueidis.New(s.clients().Option(), rueidis.WithShardedPubSub(mode))
	}},
}

// pair is one Redisson and one Go client of Redis on one site: what each test runs on.
type pair struct {
	*testing.T
	site    *site
	adapter adapter
	java    *java
	// redisson has the default watchdog, and serves all tests of its version.
	redisson *redisson
	// name is the lock's, and part of every name that the test uses.
	name string
}

// plainly is the plain kind's.
var plainly mortise.Option

// fenced and plain are the kinds that most tests run on, by Java's name.
var bothKinds = []struct {
	java string
	kind mortise.Option
}{{"plain", plainly}, {"fenced", mortise.Fenced()}}

// golang is a Go client, a process of its own as far as the store can tell.
type golang struct {
	*mortise.Client
	t *testing.T
}

func (p *pair) golang(opts ...mortise.ClientOption) *golang {
	p.Helper()
	c := harness.Must(mortise.New(p.adapter.open(p.T, p.site), opts...))(p)
	p.Cleanup(func() { harness.Checkf(p, c.Close(), "the Go client was closed") })
	return &golang{c, p.T}
}

// in bounds an operation that should take no time, so that a lost wake-up fails the
// test. It does not bound the lease.
func in(d time.Duration) mortise.Option { return mortise.WithWait(d) }

func (g *golang) of(k mortise.Option) mortise.Locker {
	g.t.Helper()
	return g.With(k)
}

// lock takes a lock that is free, or is about to be.
func (g *golang) lock(k mortise.Option, name string, opts ...mortise.Option) *mortise.Lease {
	g.t.Helper()
	return harness.Must(g.of(k).Lock(context.Background(), name, append(opts, in(long))...))(g.t)
}

// again enters a lock again.
func (g *golang) again(k mortise.Option, outer *mortise.Lease, opts ...mortise.Option) *mortise.Lease {
	g.t.Helper()
	return harness.Must(g.of(k).Lock(outer.Context(), outer.Name(), append(opts, in(long))...))(g.t)
}

func (g *golang) unlock(l *mortise.Lease) {
	g.t.Helper()
	harness.OK(g.t, l.Unlock(context.Background()))
}

func (g *golang) inspect(name string) mortise.LockInfo {
	g.t.Helper()
	return harness.Must(g.Inspect(context.Background(), name))(g.t)
}

// refused asserts that the lock is held by another, and returns what is said to be
// left of its lease.
func (g *golang) refused(k mortise.Option, name string) time.Duration {
	g.t.Helper()
	lease, err := g.of(k).TryLock(context.Background(), name)
	if err == nil {
		lease.Unlock(context.Background())
	}
	var e *mortise.Error
	harness.FatalIf(g.t, !errors.Is(err, mortise.ErrNotAcquired) || !errors.As(err, &e),
		"TryLock of a lock that another holds: %v", err)
	return e.Remaining
}

// waiting is a Go Lock that waits.
type waiting struct {
	done   chan struct{}
	lease  *mortise.Lease
	permit *semaphore.Permit
	err    error
	at     time.Time
}

func (g *golang) startLock(k mortise.Option, name string, opts ...mortise.Option) *waiting {
	g.t.Helper()
	w := &waiting{done: make(chan struct{})}
	l := g.of(k)
	go func() {
		defer close(w.done)
		w.lease, w.err = l.Lock(context.Background(), name, append(opts, in(3*long))...)
		w.at = time.Now()
	}()
	return w
}

// await awaits the lock: how long after the event it came.
func (g *golang) await(w *waiting, event time.Time) (time.Duration, *mortise.Lease) {
	g.t.Helper()
	select {
	case <-w.done:
	case <-time.After(long):
		g.t.Fatalf("a Go waiter was not woken within %v", long)
	}
	harness.FatalIf(g.t, w.err != nil, "a Go waiter: %v", w.err)
	return w.at.Sub(event), w.lease
}

// loadScripts has every server know the scripts that the tests count: with one that does
// not, each client has a way of its own of going on. So many names are on every master.
func loadScripts(t *testing.T, s *site, client *redisson) {
	t.Helper()
	j := client.thread(t, "loader")
	for n := range 40 {
		for _, kind := range []string{"plain", "fenced", "fair", "read", "write"} {
			l := j.lockOf(kind, fmt.Sprintf("load/%s/%s/%d", j.client.java.version, kind, n))
			l.lock(0)
			l.unlock()
		}
		for _, kind := range []string{"semaphore", "permits"} {
			name := fmt.Sprintf("load/%s/%s/%d", j.client.java.version, kind, n)
			j.do(request{Op: "set", Kind: kind, Name: name, Count: 1})
			got := j.do(request{Op: "acquire", Kind: kind, Name: name, Count: 1})
			j.do(request{Op: "release", Kind: kind, Name: name, Count: 1, Permit: got.Text})
		}
	}
	for _, a := range adapters {
		c := harness.Must(mortise.New(a.open(t, s)))(t)
		harness.OK(t, errors.Join(c.Ping(context.Background()), c.Close()))
	}
}

// suite runs every test on every pair of a site, all side by side.
func suite(t *testing.T, s *site) {
	t.Parallel()
	for _, version := range versions {
		if version == oldest && len(s.servers) > 1 && !s.sharded {
			continue
		}
		harness.Beside(t, "redisson-"+version, func(t *testing.T) {
			j := theJava(t, version)
			redisson := j.open(t, s, "default", 0)
			loadScripts(t, s, redisson)
			for _, a := range adapters {
				harness.Beside(t, a.name, func(t *testing.T) {
					for _, test := range tests {
						name := strings.Join([]string{test.name, version, a.name}, "/")
						p := &pair{T: t, site: s, adapter: a, java: j, redisson: redisson, name: name}
						p.leaf(test.name, "", test.run)
					}
				})
			}
		})
	}
}

// leaf runs a test beside others. sub, if not empty, is what its names have more than p's.
func (p *pair) leaf(name, sub string, run func(*pair)) {
	p.Helper()
	harness.Beside(p.T, name, func(t *testing.T) {
		leaf := *p
		leaf.T = t
		if sub != "" {
			leaf.name += "/" + sub
		}
		run(&leaf)
		if !t.Failed() {
			leaf.clean()
		}
	})
}

func TestStandalone(t *testing.T) { suite(t, standalone(t)) }
func TestCluster(t *testing.T)    { suite(t, cluster(t)) }

// TestSharded: releases are announced by SPUBLISH, as both sides do by default on a cluster.
func TestSharded(t *testing.T) {
	s := cluster(t)
	s.sharded = true
	suite(t, s)
}

// figure logs a time that go test -v shows.
func (p *pair) figure(what string, d time.Duration) {
	p.Helper()
	p.Logf("%s %v", what, d.Round(100*time.Microsecond))
}
