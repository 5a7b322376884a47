//go:build unix

package examples

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/redisgo"
	"github.com/mortise-go/mortise/rueidis"
)

// TestCosts counts, at a proxy before a real Redis, the commands in the table of
// docs/reference/costs.md, and compares. On a busy machine a renewal or a recheck falls due while an operation is
// counted, and adds to it: the least of up to three counts is the operation's.
func TestCosts(t *testing.T) {
	check.Long(t)
	table := costTable(t)
	for column, client := range []string{"go-redis", "rueidis"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			rows := newCosts(t, client).measure()
			disagrees := func(row cost) bool { return !agrees(table[row.what][column], row.commands) }
			for range 2 {
				if !slices.ContainsFunc(rows, disagrees) {
					break
				}
				for i, again := range newCosts(t, client).measure() {
					rows[i].commands = min(rows[i].commands, again.commands)
				}
			}
			for _, row := range rows {
				if want, ok := table[row.what]; !ok {
					t.Errorf("costs.md has no row %q; it costs %d", row.what, row.commands)
				} else if disagrees(row) {
					t.Errorf("%s costs %d, costs.md says %s", row.what, row.commands, want[column])
				}
			}
			if len(rows) != len(table) {
				t.Errorf("costs.md has %d rows, %d were measured", len(table), len(rows))
			}
		})
	}
}

// agrees tells whether n is what a cell says: "4", or "4 to 7".
func agrees(cell string, n int) bool {
	var least, most int
	if _, err := fmt.Sscanf(cell, "%d to %d", &least, &most); err != nil {
		return cell == fmt.Sprint(n)
	}
	return least <= n && n <= most
}

// costTable reads the rows below the page's mark.
func costTable(t *testing.T) map[string][2]string {
	page, err := os.ReadFile("../docs/reference/costs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "<!-- costs: checked by examples/costs_test.go -->\n")
	if !ok {
		t.Fatal("costs.md has no mark for the table of costs")
	}
	rows := make(map[string][2]string)
	for i, line := range strings.Split(rest, "\n") {
		if !strings.HasPrefix(line, "|") {
			break
		}
		if cells := strings.Split(line, "|"); i > 1 && len(cells) == 5 {
			rows[strings.TrimSpace(cells[1])] = [2]string{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
		}
	}
	return rows
}

type cost struct {
	what     string
	commands int
}

type costs struct {
	t      *testing.T
	client string
	server *redistest.Server
	proxy  *redistest.Proxy
	open   func(opts ...mortise.ClientOption) *mortise.Client
}

func newCosts(t *testing.T, client string) *costs {
	server := redistest.Start(t)
	c := &costs{t: t, client: client, server: server, proxy: redistest.NewProxy(t, server.Addr())}
	c.open = func(opts ...mortise.ClientOption) *mortise.Client {
		var b backend.Backend
		if client == "rueidis" {
			b = rueidis.New(rueidisclient.ClientOption{InitAddress: []string{c.proxy.Addr()}})
		} else {
			rdb := goredis.NewClient(&goredis.Options{Addr: c.proxy.Addr()})
			t.Cleanup(func() { rdb.Close() })
			b = redisgo.New(rdb)
		}
		locks, err := mortise.New(b, opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		if err := locks.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		return locks
	}
	return c
}

// count is how many commands f sends, those apart that set a connection up.
func (c *costs) count(f func()) int {
	c.proxy.Reset()
	f()
	setup := redistest.Named("HELLO", "CLIENT", "AUTH", "SELECT", "PING")
	return c.proxy.Count(func(cmd redistest.Command) bool { return !setup(cmd) })
}

func (c *costs) lock(l mortise.Locker, ctx context.Context, name string) *mortise.Lease {
	c.t.Helper()
	lease, err := l.Lock(ctx, name, mortise.WithWait(20*time.Second))
	if err != nil {
		c.t.Error(err)
	}
	return lease
}

func (c *costs) unlock(lease *mortise.Lease) {
	c.t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		c.t.Error(err)
	}
}

// until waits for something to be so.
func (c *costs) until(what string, so func() bool) {
	c.t.Helper()
	for end := time.Now().Add(20 * time.Second); !so(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not so within 20 s: %s", what)
		}
	}
}

// asked waits until so many scripts were sent since the count began.
func (c *costs) asked(n int) {
	c.t.Helper()
	scripts := redistest.Named("EVALSHA", "EVAL")
	c.until(fmt.Sprint(n, " scripts were sent"), func() bool { return c.proxy.Count(scripts) >= n })
}

func (c *costs) measure() []cost {
	t, ctx := c.t, context.Background()
	a, b := c.open(), c.open()
	var rows []cost
	add := func(what string, f func()) { rows = append(rows, cost{what, c.count(f)}) }

	var lease *mortise.Lease
	var err error
	add("`Lock`, free", func() { lease = c.lock(a, ctx, "x") })
	var inner *mortise.Lease
	add("`Lock` again by its holder", func() { inner = c.lock(a, lease.Context(), "x") })
	add("its `Unlock`", func() { c.unlock(inner) })
	refuse := func() {
		if _, err := b.TryLock(ctx, "x"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Fatal(err)
		}
	}
	add("`TryLock`, held by another process, the first time", refuse)
	add("`TryLock`, held by another process, again within 750 ms", func() {
		if refuse(); c.client == "rueidis" {
			c.asked(2)
		}
	})
	c.until("a refusal costs what it costs from then on", func() bool {
		return c.count(refuse) == 0 || c.client != "rueidis"
	})
	add("`TryLock`, held by another process, from then on", refuse)
	add("`TryLock`, held by this process", func() {
		if _, err := a.TryLock(ctx, "x"); !errors.Is(err, mortise.ErrNotAcquired) {
			t.Fatal(err)
		}
	})
	add("`Inspect`", func() {
		if _, err := b.Inspect(ctx, "x"); err != nil {
			t.Fatal(err)
		}
	})
	add("`lease.Err()`, `lease.Context()`", func() { _, _ = lease.Err(), lease.Context() })
	add("`Unlock`", func() { c.unlock(lease) })

	rows = append(rows, c.called(a, b)...)

	replica := redistest.StartReplica(t, c.server)
	add("`Lock` with `WithReplicas`, free, in one round trip", func() {
		if lease, err = a.Lock(ctx, "replicated", mortise.WithReplicas(1, 20*time.Second)); err != nil {
			t.Fatal(err)
		}
	})
	c.unlock(lease)
	replica.Stop()

	lease = c.lock(a, ctx, "held")
	add("it is held for a second", func() { time.Sleep(time.Second) })
	c.unlock(lease)

	fenced := a.With(mortise.Fenced())
	add("`Lock` with a fencing token, free", func() { lease = c.lock(fenced, ctx, "fenced") })
	c.unlock(lease)

	all := func(names []string, clients ...*mortise.Client) {
		var parts mortise.Parts
		for i, n := range names {
			parts = parts.And(clients[i%len(clients)], n)
		}
		if lease, err = parts.Lock(ctx, mortise.WithWait(20*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	five := []string{"all:1", "all:2", "all:3", "all:4", "all:5"}
	add("`LockAll` of 5 names, free", func() { all(five, a) })
	add("`Unlock` of those", func() { c.unlock(lease) })
	add("`LockAll` of 5 names on 2 clients, free", func() { all(five, a, b) })
	add("`Unlock` of those on 2 clients", func() { c.unlock(lease) })
	six := []string{"{x}:1", "{y}:1", "{z}:1", "{x}:2", "{y}:2", "{z}:2"}
	cluster := newCluster(t, c.client)
	rows = append(rows,
		cost{"`LockAll` of 6 names in 3 slots of a cluster, free", cluster.count(func() { all(six, cluster.locks) })},
		cost{"`Unlock` of those in 3 slots", cluster.count(func() { c.unlock(lease) })})

	rows = append(rows, c.waiting()...)
	return append(rows, cost{"a round of renewals, 200 locks held", c.renewals(200)})
}

// called has b's process called by a's over HTTP, while that holds the lock which b takes.
func (c *costs) called(a, b *mortise.Client) (rows []cost) {
	ring, err := delegation.NewRing(delegation.NewKey("k1", []byte("thirty-two bytes and some more, of a test")))
	if err != nil {
		c.t.Fatal(err)
	}
	issuer, err := delegation.NewIssuer(ring)
	if err != nil {
		c.t.Fatal(err)
	}
	checker, err := delegation.NewChecker(ring, "b")
	if err != nil {
		c.t.Fatal(err)
	}
	add := func(what string, f func()) { rows = append(rows, cost{what, c.count(f)}) }
	var call int // commands of a call in which nothing is locked
	srv := httptest.NewServer(httplock.AcceptDelegations(b, checker)(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		call += c.proxy.Count(func(redistest.Command) bool { return true })
		var lease *mortise.Lease
		add("`Lock` of a service that is called, under its caller's", func() { lease = c.lock(b, r.Context(), "called") })
		add("that one's `Unlock`", func() { c.unlock(lease) })
	})))
	defer srv.Close()
	caller := c.lock(a, context.Background(), "called")
	c.proxy.Reset()
	client := &http.Client{Transport: httplock.NewTransport(nil, issuer, httplock.Origins{srv.URL: "b"})}
	req, err := http.NewRequestWithContext(caller.Context(), "POST", srv.URL, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(rows) != 2 || call != 0 {
		c.t.Errorf("%s, %d rows, %d commands before the callee's Lock", resp.Status, len(rows), call)
	}
	add("its caller's `Unlock`", func() { c.unlock(caller) })
	return rows
}

// waiting has three processes with ten waiters each wait for a lock of a fourth.
func (c *costs) waiting() (rows []cost) {
	ctx := context.Background()
	holder := c.open()
	lease, err := holder.Lock(ctx, "wanted", mortise.WithLease(time.Hour)) // no renewal is counted
	if err != nil {
		c.t.Fatal(err)
	}
	var waiters [3]*mortise.Client
	var waiting atomic.Int32
	observer := mortise.Observer{Waiting: func(mortise.Event) { waiting.Add(1) }}
	for i := range waiters {
		waiters[i] = c.open(mortise.WithObserver(observer))
	}
	got := make(chan *mortise.Lease, 100)
	var wg sync.WaitGroup
	wait := func(l mortise.Locker) {
		wg.Go(func() {
			got <- c.lock(l, ctx, "wanted")
		})
	}
	// The first of a process asks, subscribes, and asks again. Then it would be too late for more.
	until := func(n int32, scripts int) {
		c.until(fmt.Sprint(n, " wait"), func() bool { return waiting.Load() >= n })
		c.asked(scripts)
		time.Sleep(200 * time.Millisecond)
	}
	// A waiter asks every few seconds besides, which a slow machine may count once.
	first := math.MaxInt
	for i, w := range waiters {
		first = min(first, c.count(func() {
			wait(w)
			until(int32(i+1), 2)
		}))
	}
	rows = append(rows, cost{"to begin to wait, the first of a process", first})
	further := func(more int, all int32) int {
		return c.count(func() {
			for range more {
				wait(waiters[0])
			}
			until(all, 0)
		})
	}
	rows = append(rows, cost{"to begin to wait, each further one", min(further(4, 7), further(5, 12))})
	for _, w := range waiters[1:] {
		for range 9 {
			wait(w)
		}
	}
	until(30, 0)
	time.Sleep(1200 * time.Millisecond) // each process behind another asks once when it has waited for a second
	rows = append(rows, cost{"30 waiters, for a second", c.count(func() { time.Sleep(time.Second) })})
	rows = append(rows, cost{"`Unlock` and handoff to one of 30, in 3 other processes", c.count(func() {
		c.unlock(lease)
		lease = <-got
		c.asked(1 + 1) // and those that look whether who was told has come, if this takes long
	})})
	for range 30 - 1 {
		c.unlock(lease)
		lease = <-got
	}
	c.unlock(lease)
	wg.Wait()

	c.until("nobody listens any more", func() bool { return len(c.server.Must("PUBSUB", "CHANNELS").([]any)) == 0 })
	lease = c.lock(holder, ctx, "wanted")
	for range 10 {
		wg.Go(func() {
			got <- c.lock(holder, ctx, "wanted")
		})
	}
	time.Sleep(400 * time.Millisecond)
	rows = append(rows, cost{"`Unlock` and handoff to one of 10 in the same process, held for a while", c.count(func() {
		c.unlock(lease)
		lease = <-got
		time.Sleep(200 * time.Millisecond)
	})})
	for range 11 {
		wg.Go(func() {
			got <- c.lock(holder, ctx, "wanted")
		})
	}
	time.Sleep(200 * time.Millisecond)
	rows = append(rows, cost{"20 such in a row, held for a moment each", c.count(func() {
		for range 20 {
			c.unlock(lease)
			lease = <-got
		}
	})})
	c.unlock(lease)
	wg.Wait()
	return rows
}

// renewals counts the commands of one round of renewals of n locks.
func (c *costs) renewals(n int) int {
	var renewed atomic.Int32
	const watchdog = 12 * time.Second
	locks := c.open(mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
		Renewed: func(mortise.Event) { renewed.Add(1) },
	}))
	var parts mortise.Parts
	for i := range n {
		parts = parts.And(locks, fmt.Sprint("many:", i))
	}
	var lease *mortise.Lease
	c.until("all are locked in a row", func() bool { // else they are renewed in several
		begin := time.Now()
		var err error
		if lease, err = parts.Lock(context.Background(), mortise.WithWait(20*time.Second)); err != nil {
			c.t.Fatal(err)
		}
		if time.Since(begin) < watchdog/48 {
			return true
		}
		c.unlock(lease)
		return false
	})
	commands := c.count(func() {
		n := n + int(renewed.Load())
		c.until("all are renewed", func() bool { return int(renewed.Load()) >= n })
	})
	c.unlock(lease)
	return commands
}

// cluster is a client on a cluster, whose nodes are not reached through a proxy: the server counts.
type cluster struct {
	t      *testing.T
	server *redistest.Server
	locks  *mortise.Client
}

func newCluster(t *testing.T, client string) *cluster {
	server := redistest.Start(t, redistest.WithCluster())
	b := rueidis.New(rueidisclient.ClientOption{InitAddress: []string{server.Addr()}})
	if client != "rueidis" {
		rdb := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{server.Addr()}})
		t.Cleanup(func() { rdb.Close() })
		b = redisgo.New(rdb)
	}
	locks, err := mortise.New(b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { locks.Close() })
	if err := locks.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &cluster{t, server, locks}
}

// count is how many scripts f sends.
func (c *cluster) count(f func()) int {
	before := c.scripts()
	f()
	return c.scripts() - before
}

func (c *cluster) scripts() (n int) {
	info, err := c.server.Do("INFO", "commandstats")
	if err != nil {
		c.t.Fatal(err)
	}
	for line := range strings.Lines(fmt.Sprint(info)) {
		for _, command := range []string{"cmdstat_eval:calls=", "cmdstat_evalsha:calls="} {
			var calls int
			if _, err := fmt.Sscanf(line, command+"%d", &calls); err == nil {
				n += calls
			}
		}
	}
	return n
}
