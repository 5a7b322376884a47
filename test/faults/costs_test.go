package faults_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/scripts"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// work is what is counted: every command but the handshakes of connections and their
// pings.
func work(c redistest.Command) bool {
	return !slices.Contains([]string{"HELLO", "CLIENT", "AUTH", "PING", "SELECT"}, c.Args[0])
}

// counted is a server, a proxy that counts, and a client behind it.
func counted(t *testing.T, s stack, c config, opts ...mortise.ClientOption) (*redistest.Server, *redistest.Proxy,
	*mortise.Client) {
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	m := s.client(t, p.Addr(), c, opts...)
	loaded(t, srv)
	return srv, p, m
}

// loaded awaits that a client has loaded its scripts. Its Ping does not wait for a server that is slow at it.
func loaded(t *testing.T, srv *redistest.Server) {
	t.Helper()
	last := scripts.All[len(scripts.All)-1].SHA1
	eventually(t, "the scripts are loaded", func() bool {
		return srv.Must("SCRIPT", "EXISTS", last).([]any)[0] == int64(1)
	})
}

// costs runs f and fails unless it sent n commands.
func costs(t *testing.T, p *redistest.Proxy, what string, n int, f func()) {
	t.Helper()
	p.Reset()
	f()
	if got := p.Count(work); got != n {
		t.Errorf("%s: %d commands, want %d: %.300q", what, got, n, p.Commands())
	}
}

func TestCost_TryLockOfAHeldLock(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		ctx := within(t, patience)
		foreign(t, srv, "n", ample)
		try := func() {
			_, err := c.TryLock(ctx, "n")
			check(t, err, mortise.ErrNotAcquired)
			var e *mortise.Error
			harness.ErrorIf(t, !errors.As(err, &e) || e.Remaining <= 0 || e.Remaining > ample, "remaining %v", e.Remaining)
		}
		costs(t, p, "TryLock of a held lock", 1, try)
		again := func() {
			for range 10 {
				try()
			}
		}
		if s.cached { // it learns in the background, at the second refusal; on a busy machine it may have to learn again
			eventually(t, "ten more send nothing", func() bool {
				p.Reset()
				again()
				return p.Count(work) == 0
			})
		} else {
			costs(t, p, "ten more", 10, again)
		}
		// What it believes is taken back when it is no longer so.
		srv.Must("DEL", "n")
		await(t, soon, "it learns that the lock is free", func() bool {
			l, err := c.TryLock(ctx, "n")
			if err == nil {
				unlock(t, l)
			}
			return err == nil
		})
	})
}

// inner returns how many commands the scripts of a server have run.
func inner(t *testing.T, srv *redistest.Server) (n int64) {
	t.Helper()
	for line := range strings.Lines(srv.Must("INFO", "commandstats").(string)) {
		name, stat, _ := strings.Cut(line, ":calls=")
		name = strings.TrimPrefix(name, "cmdstat_")
		calls, _, _ := strings.Cut(stat, ",")
		sent := []string{"evalsha", "eval", "subscribe", "unsubscribe", "ping", "hello", "info", "command", "zcard", "select"}
		group, _, _ := strings.Cut(name, "|")
		if stat == "" || slices.Contains(append(sent, "client", "script", "config"), group) {
			continue
		}
		n += harness.Must(strconv.ParseInt(calls, 10, 64))(t)
	}
	return n
}

// A handoff between processes is two commands, an enrolment and a release, which run 16 commands on the server.
func TestCost_AHandoffBetweenProcesses(t *testing.T) {
	const handoffs, each, confirms = 100, 16, 20 // a renewal that confirms a grant runs fewer
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		clients := []*mortise.Client{c, s.client(t, p.Addr(), config{}), s.client(t, p.Addr(), config{})}
		ctx := within(t, patience)
		held := lock(t, clients[0], ctx, "n")
		waits := []<-chan result{locking(clients[1], ctx, "n")}
		entered(t, srv, 1)
		waits = append(waits, locking(clients[2], ctx, "n"))
		entered(t, srv, 2)
		var before int64
		for i := range 6 + handoffs {
			if i == 6 { // each has waited twice, and listens
				p.Reset()
				before = inner(t, srv)
			}
			unlock(t, held)
			r := receive(t, patience, "the next has it", waits[0])
			held = harness.Must(r.lease, r.err)(t)
			waits = append(waits[1:], locking(clients[i%3], ctx, "n"))
			entered(t, srv, 2)
		}
		n, ran := p.Count(work), int(inner(t, srv)-before)
		t.Logf("a handoff: %.2f commands, which run %.2f", float64(n)/handoffs, float64(ran)/handoffs)
		more := n - 2*handoffs // confirms and rechecks, where the machine is slow
		harness.ErrorIf(t, ran > each*handoffs+confirms*more, "%d commands run %d for %d handoffs", n, ran, handoffs)
		unlock(t, held)
		for _, w := range waits {
			got(t, patience, "the others have it", w)
		}
	})
}

// consul #7523: every release woke every waiter, and each sent a request.
func TestConsul7523_CommandsOfAHandoffAreTwoAtMostWhateverTheNumberOfWaiters(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		_, p, c := counted(t, s, config{Pool: 4})
		ctx := within(t, patience)
		for _, waiters := range []int{2, 10, 200} {
			l := lock(t, c, ctx, "n")
			var in atomic.Int32
			handed := make(chan *mortise.Lease)
			for range waiters {
				go func() {
					in.Add(1)
					l, err := c.Lock(ctx, "n")
					if err != nil {
						t.Error(err)
						l = nil
					}
					handed <- l
				}()
			}
			eventually(t, "all are about to wait", func() bool { return int(in.Load()) == waiters })
			time.Sleep(20 * time.Millisecond)
			p.Reset()
			for range waiters {
				unlock(t, l)
				if l = <-handed; l == nil {
					return
				}
			}
			n := p.Count(work)
			t.Logf("%d waiters: %.2f commands a handoff", waiters, float64(n)/float64(waiters))
			harness.ErrorIf(t, n > 2*waiters, "%d commands for %d handoffs", n, waiters)
			unlock(t, l)
		}
	})
}

func TestCost_RenewingManyLeasesIsOneCommandFor256(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		const m, batch, periods = 600, 256, 3
		// What is due within a 48th of the watchdog's timeout goes out together, so
		// take long enough for 600 acquisitions to be within it.
		const watchdog = 15 * time.Second
		var renewed atomic.Int64
		_, p, c := counted(t, s, config{}, mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
			Renewed: func(mortise.Event) { renewed.Add(1) },
		}))
		begun := time.Now()
		leases := takes(t, context.Background(), c, m, named("n"))
		spread := time.Since(begun)
		p.Reset()
		await(t, 2*watchdog, "each was renewed", func() bool { return renewed.Load() >= periods*m })
		n := p.Count(work)
		want := periods * ((m + batch - 1) / batch)
		t.Logf("%d leases, acquired within %v, renewed %d times: %d commands", m, spread, periods, n)
		// Leases that were acquired over a longer time than that share batches less well.
		want += periods * int(spread/(watchdog/48))
		if s.name == "rueidis" { // client-side caching makes large scripts dear; they go out together
			const script = 16
			want += (periods + 1) * ((m + script - 1) / script) // and each is asked after once, within half a second
		}
		harness.ErrorIf(t, n > want, "%d commands for %d renewals of %d leases, want %d", n, periods, m, want)
		releases(leases)
	})
}

func TestCost_WaitingSendsNothing(t *testing.T) {
	eachParallel(t, func(t *testing.T, s stack) {
		srv, p, c := counted(t, s, config{})
		foreign(t, srv, "n", ample)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		ch := waiting(t, srv, c, "n")
		for range 20 {
			go c.Lock(ctx, "n")
		}
		stays(t, 50*time.Millisecond, "", func() bool { return true })
		costs(t, p, "3 s of waiting", 0, func() {
			stays(t, 3*time.Second, "it waits", func() bool { return len(ch) == 0 })
		})
		cancel()
		srv.Must("EVAL", `redis.call('del', 'n') return redis.call('publish', 'redisson_lock__channel:{n}', '0')`, "0")
		got(t, soon, "the waiter woke", ch)
	})
}

// cost is what one operation costs: commands sent to the store, and allocations in the process, the
// client library's included. Of a renewal, allocations are for each lease.
//
// Allocations are rounded up, but a quarter of one is left to the background. A handoff needs rounding:
// it takes half an allocation more or less, depending on which goroutine was preempted last.
type cost struct {
	commands float64
	allocs   int
}

// operation has a cost on each stack.
type operation struct {
	name string
	// prepare returns the operation. What prepare itself does is not counted.
	prepare func(t *testing.T, b *setup) func() error
	// repeated is how often the operation is run before and for one figure, if that is told.
	repeated int
	// leases is how many leases the operation renews, if it does.
	leases   int
	watchdog time.Duration // the client's watchdog timeout; the default if zero
	// want is the cost on go-redis, rueidis, rueidis/nocache and memory: measured at 11695c4, with Go 1.26
	// on amd64 and the client libraries of this module's go.mod.
	want [4]cost
}

// setup is what an operation runs on.
type setup struct {
	*mortise.Client
	other   *mortise.Client // another client of the same store, for prepare
	waiting chan struct{}   // a call of Client began to wait
	renewed chan struct{}   // 64 leases of Client were renewed
	made    time.Time       // just before Client was
}

// Leases that are due within a 48th of the watchdog timeout are renewed together. All renewals fit into one
// command, but on rueidis, where a command renews 16.
const (
	renewals           = 64
	watchdogOfRenewals = 4 * time.Second
)

var operations = []operation{
	{name: "plain: Lock, Unlock", want: [4]cost{{2, 22}, {2, 6}, {2, 6}, {0, 10}},
		prepare: lockAndUnlock(mortise.Option{})},
	{name: "plain, context.Background: Lock, Unlock", want: [4]cost{{2, 22}, {2, 6}, {2, 6}, {0, 6}},
		prepare: func(t *testing.T, b *setup) func() error {
			return func() error { return ended(b.Lock(context.Background(), "n")) }
		}},
	{name: "plain, WithLease: Lock, Unlock", want: [4]cost{{2, 22}, {2, 6}, {2, 6}, {0, 10}},
		prepare: lockAndUnlock(mortise.Option{}, mortise.WithLease(time.Minute))},
	{name: "fenced: Lock, Unlock", want: [4]cost{{2, 28}, {2, 9}, {2, 9}, {0, 10}},
		prepare: lockAndUnlock(mortise.Fenced())},
	{name: "fair: Lock, Unlock", want: [4]cost{{2, 48}, {2, 24}, {2, 24}, {0, 13}},
		prepare: lockAndUnlock(mortise.Fair())},
	{name: "read: Lock, Unlock", want: [4]cost{{2, 41}, {2, 20}, {2, 20}, {0, 14}},
		prepare: func(t *testing.T, b *setup) func() error {
			read := b.RW().Read
			return func() error { return ended(read.Lock(t.Context(), "n")) }
		}},
	{name: "write: Lock, Unlock", want: [4]cost{{2, 37}, {2, 17}, {2, 17}, {0, 10}},
		prepare: func(t *testing.T, b *setup) func() error {
			write := b.RW().Write
			return func() error { return ended(write.Lock(t.Context(), "n")) }
		}},
	{name: "TryLock, Unlock", want: [4]cost{{2, 22}, {2, 6}, {2, 6}, {0, 10}},
		prepare: func(t *testing.T, b *setup) func() error {
			return func() error { return ended(b.TryLock(t.Context(), "n")) }
		}},
	{name: "TryLock, held by another client", want: [4]cost{{1, 16}, {0, 7}, {1, 8}, {0, 11}},
		prepare: func(t *testing.T, b *setup) func() error {
			held(t, b.other, "n")
			return refused(t, b)
		}},
	{name: "TryLock, held by this client", want: [4]cost{{0, 6}, {0, 6}, {0, 6}, {0, 6}},
		prepare: func(t *testing.T, b *setup) func() error {
			held(t, b.Client, "n")
			return refused(t, b)
		}},
	{name: "re-entry: Lock, Unlock", want: [4]cost{{2, 32}, {2, 14}, {2, 14}, {0, 9}},
		prepare: func(t *testing.T, b *setup) func() error {
			ctx := held(t, b.Client, "n").Context()
			return func() error { return ended(b.Lock(ctx, "n")) }
		}},
	{name: "LockAll of 3, Unlock", want: [4]cost{{2, 140}, {2, 115}, {2, 115}, {0, 80}},
		prepare: func(t *testing.T, b *setup) func() error {
			parts := mortise.Parts{}.And(b.Client, "a", "b", "c")
			return func() error { return ended(parts.Lock(t.Context())) }
		}},
	{name: "counting semaphore: Acquire, Release", want: [4]cost{{2, 44}, {2, 27}, {2, 27}, {0, 18}},
		prepare: func(t *testing.T, b *setup) func() error {
			s := semaphore.NewCounting(b.Client, "n")
			harness.Must(s.TrySetPermits(t.Context(), 2))(t)
			return func() error {
				if err := s.Acquire(t.Context(), 1); err != nil {
					return err
				}
				return s.Release(t.Context(), 1)
			}
		}},
	{name: "semaphore: Acquire, Release", want: [4]cost{{2, 51}, {2, 30}, {2, 30}, {0, 15}},
		prepare: func(t *testing.T, b *setup) func() error {
			p := semaphore.New(b.Client, "n", 0)
			harness.Must(p.TrySetPermits(t.Context(), 2))(t)
			return func() error {
				permit, err := p.Acquire(t.Context(), 1)
				if err != nil {
					return err
				}
				return permit.Release(t.Context())
			}
		}},
	{name: "once.TryTick", want: [4]cost{{1, 22}, {1, 12}, {1, 12}, {0, 8}},
		prepare: func(t *testing.T, b *setup) func() error {
			return func() error {
				_, err := once.TryTick(t.Context(), b.Client, "n", once.TickRequest{ID: "1", Interval: time.Hour})
				return err
			}
		}},
	{name: "leader.Proclaim", want: [4]cost{{1, 22}, {1, 11}, {1, 11}, {0, 6}},
		prepare: func(t *testing.T, b *setup) func() error {
			lease := held(t, b.Client, "n")
			return func() error { return leader.Proclaim(t.Context(), lease, "here") }
		}},
	// A goroutine waits, the holder unlocks, the goroutine's Lock returns.
	{name: "local handoff", want: [4]cost{{0.5, 20}, {0.5, 13}, {0.5, 13}, {0, 11}},
		prepare: func(t *testing.T, b *setup) func() error {
			lease := held(t, b.Client, "n")
			ask, granted := make(chan struct{}), make(chan result)
			t.Cleanup(func() { close(ask); lease.Unlock(context.Background()) })
			go func() {
				for range ask {
					l, err := b.Lock(t.Context(), "n")
					granted <- result{lease: l, err: err}
				}
			}()
			return func() error {
				ask <- struct{}{}
				select {
				case <-b.waiting:
				case r := <-granted:
					return fmt.Errorf("Lock of a held lock returned at once: %v", r.err)
				}
				if err := lease.Unlock(t.Context()); err != nil {
					return err
				}
				r := <-granted
				lease = r.lease
				return r.err
			}
		}},
	{name: fmt.Sprintf("renewal of %d leases", renewals), repeated: 1, leases: renewals, watchdog: watchdogOfRenewals,
		want: [4]cost{{1, 6}, {4, 4}, {1, 4}, {0, 1}}, prepare: func(t *testing.T, b *setup) func() error {
			takeTogether(t, b, watchdogOfRenewals/48/2)
			ctx := within(t, patience)
			return func() error {
				select {
				case <-b.renewed:
					return nil
				case <-ctx.Done():
					return errors.New("not all leases were renewed")
				}
			}
		}},
}

func lockAndUnlock(k mortise.Option, opts ...mortise.Option) func(*testing.T, *setup) func() error {
	return func(t *testing.T, b *setup) func() error {
		l := b.With(k)
		return func() error { return ended(l.Lock(t.Context(), "n", opts...)) }
	}
}

// ended unlocks what a Lock returned.
func ended(l *mortise.Lease, err error) error {
	if err != nil {
		return err
	}
	return l.Unlock(context.Background())
}

// held is a lease until the end of the test.
func held(t *testing.T, c *mortise.Client, name string) *mortise.Lease {
	t.Helper()
	l := lock(t, c, t.Context(), name)
	t.Cleanup(func() { l.Unlock(context.Background()) })
	return l
}

// takeTogether takes leases within a time, until the end of the test. It begins again where the machine was busy, or
// where they come on both sides of a quarter of a second of their client: on rueidis they are asked after by quarters.
func takeTogether(t *testing.T, b *setup, within time.Duration) {
	t.Helper()
	const quarter, making = 250 * time.Millisecond, 20 * time.Millisecond
	started := time.Now()
	for i := 0; time.Since(started) < patience; i++ { // each with names of its own: what was said of the last may be late
		begun := time.Now()
		leases := takes(t, t.Context(), b.Client, renewals, named(fmt.Sprintf("n%d:", i)))
		end := time.Now()
		if end.Sub(begun) < within && (begun.Sub(b.made)-making)/quarter == end.Sub(b.made)/quarter {
			t.Cleanup(func() { releases(leases) })
			return
		}
		releases(leases)
	}
	t.Fatalf("%d leases were not taken within %v, though it was tried for %v", renewals, within, patience)
}

func refused(t *testing.T, b *setup) func() error {
	return func() error {
		if _, err := b.TryLock(t.Context(), "n"); !errors.Is(err, mortise.ErrNotAcquired) {
			return fmt.Errorf("TryLock of a held lock: %w", err)
		}
		return nil
	}
}

// TestCost_OfEachOperation holds commands and allocations: it fails when a figure rises, and when one falls.
// The allocations of other tests would count, and the race detector's: each stack is measured in a process of its own.
func TestCost_OfEachOperation(t *testing.T) {
	t.Parallel()
	alone := os.Getenv(alone) != ""
	binary := harness.Must(os.Executable())(t)
	if raceEnabled && !alone {
		binary = filepath.Join(t.TempDir(), "costs.test")
		out, err := exec.CommandContext(t.Context(), "go", "test", "-race=false", "-c", "-o", binary, ".").CombinedOutput()
		harness.FatalIf(t, err != nil, "%v\n%s", err, out)
	}
	for i, s := range append(stacks, stack{name: "memory"}) {
		t.Run(strings.ReplaceAll(s.name, "/", " "), func(t *testing.T) {
			if !alone {
				t.Parallel()
				inAProcessOfItsOwn(t, binary)
				return
			}
			// On one processor the scheduler runs the goroutines in the same order each time.
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			for _, o := range operations {
				t.Run(o.name, func(t *testing.T) {
					got := o.measure(t, s, o.want[i])
					if got != o.want[i] {
						t.Errorf("%s, %s: %v commands and %d allocations, want %v and %d; if the change is meant, higher or lower, "+
							"write the new figures into costs_test.go, and the reason into the commit message", s.name, o.name,
							got.commands, got.allocs, o.want[i].commands, o.want[i].allocs)
					}
				})
			}
		})
	}
}

// alone is the environment variable of a process that runs one test and no other.
const alone = "MORTISE_COSTS_ALONE"

// inAProcessOfItsOwn runs the test t, and it alone, in a process of a test binary.
func inAProcessOfItsOwn(t *testing.T, binary string) {
	var path []string
	for _, part := range strings.Split(t.Name(), "/") {
		path = append(path, "^"+part+"$")
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.v", "-test.timeout", "5m", "-test.run", strings.Join(path, "/"))
	cmd.Env = append(os.Environ(), alone+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n    --- PASS: "+t.Name()) {
		var said strings.Builder
		for line := range strings.Lines(string(out)) {
			if !strings.Contains(line, "=== ") && !strings.Contains(line, "--- PASS") {
				said.WriteString(line)
			}
		}
		t.Errorf("in a process of its own: %v\n%s", err, said.String())
	}
}

// measure takes the lowest of up to ten tries of each figure: the background adds to a figure and takes nothing from
// it. Each try begins anew: leases that a busy machine has once renewed apart stay apart.
func (o operation) measure(t *testing.T, s stack, want cost) cost {
	lowest := func(what string, want float64, figure func(t *testing.T) float64) float64 {
		least := math.Inf(1)
		for try := 0; try < 10 && least != want; try++ {
			t.Run(what, func(t *testing.T) { least = min(least, figure(t)) })
		}
		return least
	}
	run := func(t *testing.T, f func() error, n int) {
		for range n {
			harness.OK(t, f())
		}
	}

	var got cost
	// The proxy that counts commands allocates, so allocations are measured without it.
	got.allocs = int(lowest("allocations", float64(want.allocs), func(t *testing.T) float64 {
		f, _ := o.start(t, s, false)
		run(t, f, cmp.Or(o.repeated, 300)) // a number below 256, as of a hold, is put into an interface for nothing
		n := cmp.Or(o.repeated, 50)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		run(t, f, n)
		runtime.ReadMemStats(&after)
		return math.Ceil(float64(after.Mallocs-before.Mallocs)/float64(n*max(o.leases, 1)) - 0.25)
	}))
	got.commands = lowest("commands", want.commands, func(t *testing.T) float64 {
		f, p := o.start(t, s, true)
		n := cmp.Or(o.repeated, 20)
		run(t, f, n)
		p.Reset()
		run(t, f, n)
		return float64(p.Count(work)) / float64(n)
	})
	return got
}

// start readies the operation on a client, behind a proxy that counts or behind a relay.
func (o operation) start(t *testing.T, s stack, counting bool) (f func() error, p *redistest.Proxy) {
	t.Helper()
	srv := redistest.Start(t)
	p = redistest.NewProxy(t, srv.Addr())
	addr := p.Addr()
	if !counting {
		// A server with a processor of its own may reply before the caller sleeps or after, and go-redis
		// then allocates less or more; with the relay the caller always sleeps.
		addr = redistest.NewRelay(t, srv.Addr(), nil).Addr()
	}
	open := func(addr string, opts ...mortise.ClientOption) *mortise.Client {
		return s.client(t, addr, config{}, opts...)
	}
	if s.backend == nil {
		store := memory.New()
		s.backend = func(testing.TB, string, config) backend.Backend { return store }
	}
	b := &setup{waiting: make(chan struct{}, 1), renewed: make(chan struct{}, 1), made: time.Now()}
	var mu sync.Mutex
	count := 0
	b.Client = open(addr, mortise.WithWatchdogTimeout(cmp.Or(o.watchdog, 30*time.Second)),
		mortise.WithObserver(mortise.Observer{
			Waiting: func(mortise.Event) { b.waiting <- struct{}{} },
			Renewed: func(mortise.Event) {
				mu.Lock()
				defer mu.Unlock()
				if count++; count%renewals == 0 {
					select {
					case b.renewed <- struct{}{}:
					default:
					}
				}
			},
		}))
	b.other = open(srv.Addr())
	return o.prepare(t, b), p
}
