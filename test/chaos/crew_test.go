//go:build linux

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
)

// patience bounds what takes no time worth speaking of.
const patience = 2 * time.Minute

var runs atomic.Int64

// crew is a site and the worker processes on it.
type crew struct {
	t       *testing.T
	site    *site
	book    *ledger
	config  workerConfig
	rules   rules
	members []*member
	rand    *rand.Rand
	began   int64
	faults  []fault
	skipped []string // faults that could not be done
	master  *node    // as the sentinels had it, and when that was
	seen    int64
	illEnds int // processes that did not end well: goroutines were left, for one
	own     *mortise.Client
	remains []string // records in the store after all had ended

	stopClock chan struct{}
	clock     sync.WaitGroup
}

// member is a worker process.
type member struct {
	config workerConfig
	cmd    *exec.Cmd
	output *lockedBuffer
	gone   chan struct{}
	err    error
	killed bool
}

// newCrew makes a site of servers and its workers' ledger. What is in config holds for all workers.
func newCrew(t *testing.T, where string, config workerConfig, seed uint64) *crew {
	t.Helper()
	h := fnv.New64a()
	h.Write([]byte(where))
	c := &crew{
		t: t, site: newSite(t, where), config: config, began: now(), stopClock: make(chan struct{}),
		rules: rules{lease: int64(config.Lease), slack: int64(time.Second)},
		rand:  rand.New(rand.NewPCG(seed, h.Sum64())),
	}
	c.config.Ledger = filepath.Join(t.TempDir(), "ledger")
	c.config.Site, c.config.Addrs = where, c.site.addrs
	c.config.Prefix = fmt.Sprintf("chaos:%d:", runs.Add(1))
	book, unmap, err := openLedger(c.config.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	c.book = book
	// Names change every so often: a history is short enough to be checked whole.
	c.clock.Go(func() {
		book.feel(func() bool {
			select {
			case <-c.stopClock:
				return true
			default:
				book.generation.Store((now() - c.began) / int64(generationTime))
				return false
			}
		})
	})
	t.Cleanup(func() {
		close(c.stopClock)
		c.clock.Wait()
		for p, m := range c.members {
			m.cmd.Process.Kill()
			<-m.gone
			if out := m.output.String(); out != "" && t.Failed() {
				t.Logf("process %d said:\n%s", p, out)
			}
		}
		unmap()
	})
	return c
}

const generationTime = 4 * time.Second // two leases: who holds on to a permit does so beside others

// start starts a worker process with a client, on one side of the wires, and waits until it is at work.
func (c *crew) start(client string, side int) int {
	c.t.Helper()
	config := c.config
	config.Process, config.Client, config.Wires = len(c.members), client, c.site.sides[side]
	if config.Process >= maxProcesses {
		c.t.Fatal("the ledger has no room for another process")
	}
	m := &member{config: config, output: new(lockedBuffer), gone: make(chan struct{})}
	text, err := json.Marshal(config)
	if err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	m.cmd = exec.Command(self)
	m.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	m.cmd.Stdout, m.cmd.Stderr = m.output, m.output
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.members = append(c.members, m)
	go func() {
		m.err = m.cmd.Wait()
		close(m.gone)
	}()
	c.await("a worker is ready", func() bool {
		select {
		case <-m.gone:
			c.t.Fatalf("process %d ended at once: %v\n%s", config.Process, m.err, m.output)
		default:
		}
		return c.book.worker[config.Process].ready.Load() != 0
	})
	return config.Process
}

// startAll starts as many of each client on each side.
func (c *crew) startAll() {
	c.t.Helper()
	for side := range 2 {
		for _, client := range []string{goRedis, rueidisName} {
			c.start(client, side)
		}
	}
}

// replace starts a process in the place of one that is gone.
func (c *crew) replace(p int) {
	c.t.Helper()
	side := 0
	if len(c.site.sides) > 1 && fmt.Sprint(c.members[p].config.Wires) == fmt.Sprint(c.site.sides[1]) {
		side = 1
	}
	c.start(c.members[p].config.Client, side)
}

// alive are the processes that were not killed.
func (c *crew) alive() (all []int) {
	for p, m := range c.members {
		if !m.killed {
			all = append(all, p)
		}
	}
	return all
}

// any picks one of those, other than.
func (c *crew) any(other ...int) int {
	all := slices.DeleteFunc(c.alive(), func(p int) bool { return slices.Contains(other, p) })
	return all[c.rand.IntN(len(all))]
}

// between is a time between two, from the seed.
func (c *crew) between(from, to time.Duration) time.Duration {
	return from + time.Duration(c.rand.Int64N(int64(to-from)))
}

// hang has whoever of process p gets next into a lock that all want stay there, and
// returns its entry; nil if nobody does for long.
func (c *crew) hang(p int) *entry {
	c.book.worker[p].linger.Store(1)
	var index int64
	inside := c.awaits(20*time.Second, func() bool {
		index = c.book.worker[p].lingering.Load() - 1
		return index >= 0
	})
	if !inside {
		c.letGo(p)
		return nil
	}
	return &c.book.entries[index]
}

// letGo ends that.
func (c *crew) letGo(p int) { c.book.worker[p].linger.Store(0) }

// kill is SIGKILL, and waits until the process is gone.
func (c *crew) kill(p int) {
	c.t.Helper()
	m := c.members[p]
	m.killed = true
	if err := m.cmd.Process.Kill(); err != nil {
		c.t.Fatalf("process %d: %v\n%s", p, err, m.output)
	}
	<-m.gone
}

// freeze is SIGSTOP, and waits until the process has stopped.
func (c *crew) freeze(p int) {
	c.t.Helper()
	pid := c.members[p].cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	c.await("the process has stopped", func() bool {
		// Its state is the first letter after the name in parentheses.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			c.t.Fatal(err)
		}
		i := bytes.LastIndexByte(stat, ')')
		return i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
	})
}

// thaw is SIGCONT.
func (c *crew) thaw(p int) {
	c.t.Helper()
	if err := c.members[p].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

// came counts those who got in after a time, from an entry on.
func (c *crew) came(after, since int64) (n int) {
	for i := since; i < min(c.book.used.Load(), maxEntries); i++ {
		if c.book.entries[i].first.Load() > after {
			n++
		}
	}
	return n
}

// progress awaits some who get in from now on, in processes of both sides, and notes when the first did.
func (c *crew) progress(what string) {
	c.t.Helper()
	const enough = 20
	from, used := now(), max(0, c.book.used.Load()-1000) // who waits has an entry
	if !c.awaits(patience, func() bool { return c.came(from, used) >= enough }) {
		for p := range c.members {
			c.members[p].cmd.Process.Signal(syscall.SIGQUIT) // it writes where it hangs
		}
		time.Sleep(time.Second)
		c.t.Fatalf("%d got in within %v after: %s", c.came(from, used), patience, what)
	}
	var first int64
	for i := used; i < min(c.book.used.Load(), maxEntries); i++ {
		if at := c.book.entries[i].first.Load(); at > from && (first == 0 || at < first) {
			first = at
		}
	}
	for i := range c.faults {
		if f := &c.faults[i]; f.again == 0 {
			f.again = first
		}
	}
}

// waiting is the number of goroutines of a process in Lock for a lock that all want.
func (c *crew) waiting(p int) int64 { return c.book.worker[p].waiting.Load() }

// mostStrays is in how many processes of a run rueidis may leave a connection of its own: see leaks. More
// would be one of ours.
var mostStrays = map[string]int64{sentinels: maxProcesses, cluster: 1}

// finish ends all workers and checks that they end well, and leave nothing behind.
func (c *crew) finish() {
	c.t.Helper()
	c.book.stop.Store(1)
	end := time.After(patience)
	for p, m := range c.members {
		select {
		case <-m.gone:
			if !m.killed && m.err != nil {
				c.illEnds++
				c.t.Errorf("process %d (%s): %v\n%s", p, m.config.Client, m.err, m.output)
			}
		case <-end:
			m.cmd.Process.Signal(syscall.SIGQUIT) // it writes where it hangs
			<-m.gone
			c.illEnds++
			c.t.Errorf("process %d did not end within %v\n%s", p, patience, m.output)
		}
	}
	if n := c.book.strays.Load(); n > mostStrays[c.site.kind] {
		c.illEnds += int(n)
		c.t.Errorf("%d processes left connections of rueidis's behind", n)
	}
	if c.book.used.Load() > maxEntries {
		c.t.Error("the ledger is full: the run was too long for it")
	}
	if c.book.generation.Load()*generation > maxNames {
		c.t.Error("the fenced store is full: the run was too long for it")
	}
}

// left checks that no lock is left in the store when all have ended, after a lease, nor anything else of them but
// the counters of tokens, for two minutes what was answered to who made permits, permits, none of them out, and
// places in queues that those who died left behind.
func (c *crew) left() {
	c.t.Helper()
	client, visits := c.client(), c.book.all()
	var left []string
	gone := c.awaits(time.Duration(c.rules.lease)+patience, func() bool {
		left = nil
		for _, n := range c.site.masters() {
			keys, err := n.server.Do("KEYS", "*"+c.config.Prefix+"*")
			if err != nil {
				left = append(left, err.Error())
				continue
			}
			for _, k := range keys.([]any) {
				key := k.(string)
				name, err := strconv.ParseInt(strings.TrimPrefix(key, c.config.Prefix), 10, 64)
				switch {
				case strings.HasPrefix(key, "redisson_lock_token:") || strings.HasPrefix(key, "mortise:1:once:"):
				case err == nil && shapeOf(name) == permits:
					if n, err := client.Permits(key).Available(context.Background()); n != permitsMade {
						left = append(left, fmt.Sprintf("%s: %d of %d permits, %v;", key, n, permitsMade, err))
					}
				case c.deadPlaces(n, key, visits):
				default:
					left = append(left, key)
				}
			}
		}
		return len(left) == 0
	})
	if !gone {
		c.remains = left
		c.t.Errorf("locks of nobody are left: %s", strings.Join(left, " "))
	}
}

// deadPlaces tells whether key is of a fair lock's queue in which none stands but who was killed, whose leaving the
// store forgot, or whose time is over: a request that the network kept for longer than anybody undoes it. Nobody has
// come since, who would have taken them out; and the key ends by itself.
func (c *crew) deadPlaces(n *node, key string, visits []visit) bool {
	tag, queue := strings.CutPrefix(key, "redisson_lock_queue:")
	if !queue {
		var times bool
		if tag, times = strings.CutPrefix(key, "redisson_lock_timeout:"); !times {
			return false
		}
	}
	if ttl, err := n.server.Do("PTTL", key); err != nil || ttl == int64(-1) {
		return false
	}
	_, name, _ := strings.Cut(strings.TrimSuffix(tag, "}"), c.config.Prefix)
	var from, to int64 // when it was asked for
	for _, x := range visits {
		if fmt.Sprint(x.name) == name {
			if from == 0 || x.begun < from {
				from = x.begun
			}
			to = max(to, x.begun, x.freed)
		}
	}
	forgot := slices.ContainsFunc(c.faults, func(f fault) bool { return f.promise != allHolds && f.from <= to && f.to >= from })
	if forgot {
		return true
	}
	places, err := n.server.Do("LRANGE", "redisson_lock_queue:"+tag, "0", "-1")
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(places.([]any), func(p any) bool {
		dead := slices.ContainsFunc(c.members, func(m *member) bool {
			return m.killed && strings.Contains(p.(string), fmt.Sprintf("/%d/", m.cmd.Process.Pid))
		})
		score, err := n.server.Do("ZSCORE", "redisson_lock_timeout:"+tag, p.(string))
		until, _ := strconv.ParseFloat(fmt.Sprint(score), 64)
		over := err == nil && score != nil && until <= float64(time.Now().UnixMilli())
		return !dead && !over
	})
}

// stuck tells whether somebody waits for a lock that nobody has had for long.
func (c *crew) stuck() bool {
	visits, stalls, at := c.book.all(), c.book.stalls(), now()
	type lock struct {
		free, waits int64
		taken       bool
	}
	locks := map[int64]*lock{}
	for _, x := range visits {
		l := locks[x.name]
		if l == nil {
			l = new(lock)
			locks[x.name] = l
		}
		switch {
		case x.got == 0 && x.end == open && !c.members[x.process].killed:
			if l.waits == 0 || x.begun < l.waits {
				l.waits = x.begun
			}
		case x.end == open && !c.members[x.process].killed:
			l.taken = true
		default:
			l.free = max(l.free, x.frees(c.rules.lease))
		}
	}
	for _, l := range locks {
		due := max(l.free, l.waits)
		for _, f := range c.faults {
			due = max(due, f.to)
		}
		if l.waits != 0 && !l.taken && (undisturbed(due, at, stalls) > c.rules.lease+c.rules.slack || at-due > int64(patience/4)) {
			return true
		}
	}
	return false
}

// verdict judges what is in the ledger by now.
func (c *crew) verdict() verdict {
	return judge(c.book.all(), c.faults, c.book.stalls(), c.rules)
}

// await looks until ok says yes.
func (c *crew) await(what string, ok func() bool) {
	c.t.Helper()
	if !c.awaits(patience, ok) {
		c.t.Fatalf("not within %v: %s", patience, what)
	}
}

func (c *crew) awaits(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			return ok()
		}
	}
	return true
}

// pass lets time pass.
func (c *crew) pass(d time.Duration) {
	for end := now() + int64(d); now() < end; {
		time.Sleep(time.Duration(end - now()))
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
