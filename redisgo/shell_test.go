//go:build unix

package redisgo_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
)

// recipe is a section of docs/how-to/free-a-lock.md.
type recipe struct {
	section string
	// hold takes what a process that dies leaves behind. wait waits for it.
	hold func(ctx context.Context, c *mortise.Client) error
	wait func(ctx context.Context, c *mortise.Client) error
}

const forLong = 10 * time.Minute

var recipes = []recipe{
	{"A lock: plain, fenced, or taken by LockAll", lockOf("orders:42"), lockOf("orders:42")},
	{"A lock: plain, fenced, or taken by LockAll", lockOf("orders:42", mortise.Fenced()), lockOf("orders:42")},
	{"A fair lock", lockOf("orders:42", mortise.Fair()), lockOf("orders:42", mortise.Fair())},
	{"A fair lock", lockOf("orders:42"), lockOf("orders:42", mortise.Fair())},
	{"A fair lock", lockOf("orders:42", mortise.Fair()), lockOf("orders:42")},
	{"A read-write lock", side(writes), side(reads)},
	{"A read-write lock", side(reads), side(writes)},
	{"A read-write lock", side(writes), side(writes)},
	{"A permit of a semaphore", permit, permit},
	{"A counting semaphore", func(ctx context.Context, c *mortise.Client) error {
		if _, err := semaphore.NewCounting(c, "slots").TrySetPermits(ctx, 1); err != nil {
			return err
		}
		return semaphore.NewCounting(c, "slots").Acquire(ctx, 1)
	}, func(ctx context.Context, c *mortise.Client) error {
		if err := semaphore.NewCounting(c, "slots").Acquire(ctx, 1); err != nil {
			return err
		}
		return semaphore.NewCounting(c, "slots").Release(ctx, 1)
	}},
	{"A latch", func(ctx context.Context, c *mortise.Client) error {
		_, err := latch.New(c, "started").TrySet(ctx, 1)
		return err
	}, func(ctx context.Context, c *mortise.Client) error { return latch.New(c, "started").Wait(ctx) }},
}

func lockOf(name string, kind ...mortise.Option) func(ctx context.Context, c *mortise.Client) error {
	return func(ctx context.Context, c *mortise.Client) error {
		l := c.With(kind...)
		return takes(ctx, c, l, name)
	}
}

func reads(c *mortise.Client) mortise.Locker { return c.RW().Read }

func writes(c *mortise.Client) mortise.Locker { return c.RW().Write }

func side(of func(*mortise.Client) mortise.Locker) func(ctx context.Context, c *mortise.Client) error {
	return func(ctx context.Context, c *mortise.Client) error { return takes(ctx, c, of(c), "orders:42") }
}

// takes locks: a client that is to die for long, others for a moment.
func takes(ctx context.Context, c *mortise.Client, l mortise.Locker, name string) error {
	if c.ID() == dies {
		_, err := l.Lock(ctx, name, mortise.WithLease(forLong))
		return err
	}
	lease, err := l.Lock(ctx, name)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func permit(ctx context.Context, c *mortise.Client) error {
	s := semaphore.New(c, "imports", 2)
	if c.ID() == dies { // both, of which one is freed
		_, err := s.Acquire(ctx, 2, mortise.WithLease(forLong))
		return err
	}
	p, err := s.Acquire(ctx, 1)
	if err != nil {
		return err
	}
	return p.Release(ctx)
}

// dies is the client that dies, as the page names it.
const dies = "host/1234/abc"

// The commands of docs/how-to/free-a-lock.md are run as they stand: all waiters, of several clients, get in at once.
func TestTheCommandsThatFreeALock(t *testing.T) {
	check.Long(t)
	page := string(check.Value(os.ReadFile("../docs/how-to/free-a-lock.md")).In(t))
	tried := map[string]bool{}
	server, cluster := redistest.Start(t), redistest.StartCluster(t, 3)
	onNodes := onCluster()
	for i, r := range recipes {
		tried[r.section] = true
		commands := commandsOf(t, page, r.section)
		t.Run(fmt.Sprint(r.section, i), func(t *testing.T) {
			open := func() backend.Backend { return onServer(t, server.Addr()) }
			server.Must("FLUSHALL")
			r.run(t, []*redistest.Server{server}, open, shell("", server.Addr(), commands))
		})
		t.Run(fmt.Sprint("cluster/", r.section, i), func(t *testing.T) {
			open := func() backend.Backend { return onNodes(t, cluster.Addrs()) }
			for _, m := range cluster.Masters {
				m.Must("FLUSHALL")
			}
			commands := strings.ReplaceAll(commands, " PUBLISH ", " SPUBLISH ")
			r.run(t, cluster.Masters, open, shell("-c", cluster.Addrs()[0], commands))
		})
	}
	for _, m := range regexp.MustCompile(`(?m)^## (.*)\n`).FindAllStringSubmatch(page, -1) {
		known := []string{"Force unlock from a program", "See the owner", "List locks", "A lock entered from another service"}
		check.ErrorIf(t, !tried[m[1]] && !slices.Contains(known, m[1]), "no test runs the section %q", m[1])
	}
}

// shell is a program in which redis-cli asks a server.
func shell(option, addr, commands string) string {
	port := addr[strings.LastIndexByte(addr, ':')+1:]
	return fmt.Sprintf("redis-cli() { command redis-cli %s -p %s \"$@\"; }\n%s", option, port, commands)
}

// commandsOf is the block of a section.
func commandsOf(t *testing.T, page, section string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "\n## "+section+"\n")
	_, rest, block := strings.Cut(rest, "```sh\n")
	commands, _, _ := strings.Cut(rest, "```")
	check.FatalIf(t, !found || !block, "docs/how-to/free-a-lock.md has no section %q with a block of commands", section)
	return commands
}

// quiet returns when all clients of a server sleep: when it has no more commands than it is asked here for a while.
func quiet(t *testing.T, s *redistest.Server) {
	t.Helper()
	processed := regexp.MustCompile(`total_commands_processed:(\d+)`)
	last, still := -1, 0
	for end := time.Now().Add(20 * time.Second); still < 5; time.Sleep(40 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "the clients do not come to rest")
		m := processed.FindStringSubmatch(s.Must("INFO", "stats").(string))
		n := check.Value(strconv.Atoi(m[1])).In(t)
		if still++; n != last+1 {
			still = 0
		}
		last = n
	}
}

func (r recipe) run(t *testing.T, servers []*redistest.Server, open func() backend.Backend, commands string) {
	client := func(opts ...mortise.ClientOption) *mortise.Client {
		c := check.Value(mortise.New(open(), opts...)).In(t)
		t.Cleanup(func() { c.Close() })
		return c
	}
	dead := client(mortise.WithID(dies))
	check.NoError(t, r.hold(t.Context(), dead))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	dead.Shutdown(gone)

	const waiters = 3
	served := make(chan error, waiters)
	for range waiters {
		waiting := make(chan struct{}, 1)
		c := client(mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { waiting <- struct{}{} }}))
		go func() { served <- r.wait(t.Context(), c) }()
		<-waiting
	}
	for _, s := range servers {
		quiet(t, s)
	}
	check.FatalIf(t, len(served) > 0, "a waiter was served before the lock was freed")
	out, err := exec.Command("bash", "-ec", commands).CombinedOutput()
	check.FatalIf(t, err != nil || strings.Contains(string(out), "ERR"), "the commands: %v\n%s", err, out)
	machine, began := redistest.Timed(t), time.Now()
	for range waiters {
		select {
		case err := <-served:
			check.NoError(t, err)
		case <-time.After(20 * time.Second):
			t.Fatalf("a waiter is not served; the commands said\n%s", out)
		}
	}
	// 5.5 s is what a waiter would have needed without the message.
	machine.Within(t, "to serve the waiters, after the commands said\n"+string(out)+",", time.Since(began), 3*time.Second)
}
