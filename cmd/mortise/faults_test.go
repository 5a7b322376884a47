//go:build linux

package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

var faultRounds = flag.Int("faults.rounds", 0, "rounds of TestFaults; each fault once if zero")

// The worker is the test's own binary with this argument: it ignores TERM, and has a child that does so.
const (
	workerCommand = "__worker"
	workerRun     = "MORTISE_TEST_RUN"     // which run a process belongs to
	workerCounter = "MORTISE_TEST_COUNTER" // the socket that workers report to
)

// worker is a command that runs under a lock. It reports to the counter, and works until it is told to end.
func worker(role string) int {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	if role == "parent" {
		c := exec.Command("/proc/self/exe", workerCommand, "child")
		if err := c.Start(); err != nil {
			return 99
		}
	}
	c, err := net.Dial("unix", os.Getenv(workerCounter))
	if err != nil {
		return 98
	}
	fmt.Fprintln(c, os.Getenv(workerRun), role, os.Getpid())
	io.ReadFull(c, make([]byte, 1))
	return 0
}

// counter is outside: it hears of each process of a command as it begins to work, and sees whether one of another run
// is at work then.
type counter struct {
	t       testing.TB
	socket  string
	mu      sync.Mutex
	workers map[net.Conn]report
	changed chan struct{} // closed when a process has begun or ended
	begun   int
	doubles int
}

// report is what a process says as it begins.
type report struct {
	run, role string
	pid       int
}

func newCounter(t testing.TB) *counter {
	c := &counter{t: t, socket: t.TempDir() + "/s", workers: map[net.Conn]report{}, changed: make(chan struct{})}
	l := check.Value(net.Listen("unix", c.socket)).In(t)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.mu.Lock()
		for conn := range c.workers {
			conn.Close()
		}
		c.mu.Unlock()
		all.Wait()
	})
	return c
}

func (c *counter) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var r report
	if _, err := fmt.Fscan(in, &r.run, &r.role, &r.pid); err != nil {
		return // it was killed before it worked
	}
	c.mu.Lock()
	for _, other := range c.workers {
		if other.run != r.run && atWork(other.pid) {
			c.doubles++
			c.t.Errorf("%+v begins, and %+v is at work", r, other)
		}
	}
	c.workers[conn] = r
	c.begun++
	c.tell()
	c.mu.Unlock()
	io.Copy(io.Discard, in)
	c.mu.Lock()
	delete(c.workers, conn)
	c.tell()
	c.mu.Unlock()
}

func (c *counter) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// await waits until ok, with the processes at work by run and role.
func (c *counter) await(what string, ok func(at map[string]map[string]int) bool) {
	c.t.Helper()
	late := time.After(2 * time.Minute)
	for {
		at := map[string]map[string]int{}
		c.mu.Lock()
		for _, r := range c.workers {
			if at[r.run] == nil {
				at[r.run] = map[string]int{}
			}
			at[r.run][r.role] = r.pid
		}
		changed := c.changed
		c.mu.Unlock()
		if ok(at) {
			return
		}
		select {
		case <-changed:
		case <-late:
			c.t.Fatalf("%s: not in two minutes; at work: %v", what, at)
		}
	}
}

// end tells the command of a run to end; its child goes on.
func (c *counter) end(run string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn, r := range c.workers {
		if r.run == run && r.role == "parent" {
			conn.Write([]byte{0})
		}
	}
}

// atWork reports whether a process may change something: it is there, no zombie, and not stopped.
func atWork(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')'):]), " ")
	return !strings.ContainsAny(after[:1], "ZXxTt")
}

// processes returns those that have a text in their environment, the guardian for example.
func processes(text string) (all []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		if env, err := os.ReadFile(path); err == nil && bytes.Contains(append(env, 0), []byte(text+"\x00")) {
			pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
			all = append(all, pid)
		}
	}
	return all
}

// contender is a mortise that wants the lock.
type contender struct {
	*program
	run string
}

// arena is a store, a lock, and those that contend for it.
type arena struct {
	t          testing.TB
	server     *redistest.Server
	counter    *counter
	contenders map[string]*contender
	name       string
	n          int
}

const (
	contenders = 3
	faultLease = "3s"
	faultGrace = "200ms"
)

// fill begins as many contenders as are missing. Those that are not the victim of a fault end only where the store is
// away.
func (a *arena) fill() {
	for run, c := range a.contenders {
		select {
		case <-c.ended:
			code := c.ProcessState.ExitCode()
			check.ErrorIf(a.t, code != codeUnavailable, "run %s: exit code %d; %s", run, code, &c.said)
			delete(a.contenders, run)
		default:
		}
	}
	for len(a.contenders) < contenders {
		a.n++
		run := fmt.Sprintf("%s-%d", a.name, a.n)
		env := []string{workerRun + "=" + run, workerCounter + "=" + a.counter.socket}
		p := beginWith(a.t, at(a.server), env, "run", "--lease", faultLease, "--grace", faultGrace, "n", "--",
			check.Value(os.Executable()).In(a.t), workerCommand, "parent")
		a.contenders[run] = &contender{p, run}
	}
}

// holder awaits a run, other than but, whose command and its child work, and returns it with their process numbers.
func (a *arena) holder(but string) (c *contender, parent, child int) {
	a.t.Helper()
	a.counter.await("a command at work", func(at map[string]map[string]int) bool {
		for run, roles := range at {
			if run != but && len(roles) == 2 && a.contenders[run] != nil {
				c, parent, child = a.contenders[run], roles["parent"], roles["child"]
				return true
			}
		}
		return false
	})
	return c, parent, child
}

// idle awaits that no process of a run works.
func (a *arena) idle(run string) {
	a.t.Helper()
	a.counter.await("the command has ended", func(at map[string]map[string]int) bool { return len(at[run]) == 0 })
}

// guardian returns the process number of a contender's guardian.
func (a *arena) guardian(c *contender) int {
	for _, pid := range processes(workerRun + "=" + c.run) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if bytes.Contains(text, []byte(group.GuardCommand)) {
			return pid
		}
	}
	a.t.Fatalf("run %s has no guardian", c.run)
	return 0
}

// fault is what is done to a run whose command works. It returns the exit codes that are right.
type fault struct {
	name string
	do   func(a *arena, c *contender, parent, child int) []int
}

var faults = []fault{
	{"the command is killed", func(_ *arena, _ *contender, parent, _ int) []int {
		unix.Kill(parent, unix.SIGKILL)
		return []int{137}
	}},
	{"the command ends, its child does not", func(a *arena, c *contender, _, _ int) []int {
		a.counter.end(c.run)
		return []int{0}
	}},
	{"mortise gets TERM, the command ignores it", func(a *arena, c *contender, _, _ int) []int {
		c.Process.Signal(unix.SIGTERM)
		a.counter.end(c.run)
		return []int{0}
	}},
	{"mortise is killed", func(_ *arena, c *contender, _, _ int) []int {
		c.Process.Kill()
		return []int{-1}
	}},
	{"mortise is stopped beyond the lease", func(a *arena, c *contender, _, _ int) []int {
		c.Process.Signal(unix.SIGSTOP)
		a.holder(c.run)
		c.Process.Signal(unix.SIGCONT)
		return []int{codeLost}
	}},
	{"all is paused beyond the lease", func(a *arena, c *contender, parent, _ int) []int {
		guardian := a.guardian(c)
		c.Process.Signal(unix.SIGSTOP)
		unix.Kill(-parent, unix.SIGSTOP)
		unix.Kill(guardian, unix.SIGSTOP)
		a.holder(c.run)
		unix.Kill(guardian, unix.SIGCONT) // a command that is continued itself would work for a moment
		a.idle(c.run)
		c.Process.Signal(unix.SIGCONT)
		return []int{codeLost}
	}},
	{"the guardian is killed", func(a *arena, c *contender, _, _ int) []int {
		unix.Kill(a.guardian(c), unix.SIGKILL)
		return []int{codeInternal}
	}},
	{"the command is stopped, and killed", func(_ *arena, _ *contender, parent, child int) []int {
		unix.Kill(parent, unix.SIGSTOP)
		unix.Kill(child, unix.SIGSTOP)
		unix.Kill(parent, unix.SIGKILL)
		return []int{137}
	}},
	{"the store is killed, and is back", func(a *arena, c *contender, _, _ int) []int {
		a.server.Restart()
		a.counter.end(c.run)
		return []int{0, codeLost} // lost where that takes longer than the lease
	}},
	{"the store is killed for longer than the lease", func(a *arena, c *contender, _, _ int) []int {
		a.server.Stop()
		a.idle(c.run)
		<-c.ended
		a.server.Restart()
		return []int{codeLost}
	}},
	{"the store is paused for longer than the lease", func(a *arena, c *contender, _, _ int) []int {
		a.server.Pause()
		a.idle(c.run)
		a.server.Resume()
		return []int{codeLost}
	}},
}

// round does one fault to the run that has the lock.
func (a *arena) round(f fault) {
	a.fill()
	c, parent, child := a.holder("")
	right := f.do(a, c, parent, child)
	select {
	case <-c.ended:
	case <-time.After(2 * time.Minute):
		a.t.Fatalf("%s: mortise has not ended", f.name)
	}
	delete(a.contenders, c.run)
	code := c.ProcessState.ExitCode()
	check.ErrorIf(a.t, !slices.Contains(right, code), "%s: exit code %d, not %v; %s", f.name, code, right, &c.said)
	a.none(workerRun + "=" + c.run)
}

// none awaits that no process with a text in its environment is left.
func (a *arena) none(text string) {
	a.t.Helper()
	check.Long(a.t)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := processes(text)
		if len(left) == 0 {
			return
		}
		check.FatalIf(a.t, time.Now().After(end), "processes are left: %v", left)
	}
}

// A counter outside never sees the commands of two runs at work, whatever happens to commands, to mortise, to its
// guardian and to the store; each exit code is as documented; no process is left. The store keeps what it has
// confirmed: one that loses a lock gives it to another.
func TestFaults(t *testing.T) {
	check.Long(t)
	lanes, rounds := 2, len(faults)
	if *faultRounds > 0 {
		lanes, rounds = 4, *faultRounds
	}
	var mu sync.Mutex
	done, begun, doubles := map[string]int{}, 0, 0
	t.Run("lanes", func(t *testing.T) {
		for lane := range lanes {
			t.Run(fmt.Sprint(lane), func(t *testing.T) {
				t.Parallel()
				a := &arena{t: t, server: redistest.Start(t, redistest.WithAOF()), counter: newCounter(t),
					contenders: map[string]*contender{}, name: fmt.Sprintf("%d-%d", os.Getpid(), lane)}
				defer func() {
					for _, c := range a.contenders {
						c.Process.Kill()
					}
					a.none(workerCounter + "=" + a.counter.socket)
				}()
				order := rand.New(rand.NewPCG(1, uint64(lane))).Perm(len(faults))
				for n := lane; n < rounds; n += lanes {
					f := faults[order[0]]
					if *faultRounds == 0 {
						f = faults[n]
					} else if order = order[1:]; len(order) == 0 {
						order = rand.Perm(len(faults))
					}
					a.round(f)
					mu.Lock()
					done[f.name]++
					mu.Unlock()
				}
				mu.Lock()
				a.counter.mu.Lock()
				begun, doubles = begun+a.counter.begun, doubles+a.counter.doubles
				a.counter.mu.Unlock()
				mu.Unlock()
			})
		}
	})
	t.Logf("%d processes of commands began; two runs at work: %d times; faults: %v", begun, doubles, done)
}
