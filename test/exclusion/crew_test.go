//go:build linux

package exclusion

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/internal/redistest"
)

// patience bounds what takes no time worth speaking of: a process starts, or ends.
const patience = 20 * time.Second

var runs atomic.Int64

// crew is a server and the worker processes on it.
type crew struct {
	t       *testing.T
	server  *redistest.Server
	book    *ledger
	config  workerConfig
	members []*member
	faults  []fault
	began   int64
	slack   time.Duration // rules.slack
	lost    int           // permits that may be gone for good
	asked   int64         // since when somebody may have been waiting; 0: all the time
}

type member struct {
	cmd    *exec.Cmd
	output *lockedBuffer
	gone   chan struct{}
	err    error
	killed bool
}

// fault is something that the test did.
type fault struct {
	what     string
	from, to int64
	redis    bool // Redis did not answer from from to to
	process  int  // or this process was stopped or killed
}

// newCrew starts a server. What is in config holds for all workers.
func newCrew(t *testing.T, config workerConfig) *crew {
	t.Helper()
	c := &crew{t: t, server: redistest.Start(t), config: config, began: now(), slack: slack}
	c.config.Ledger = filepath.Join(t.TempDir(), "ledger")
	c.config.Addr = c.server.Addr()
	c.config.Prefix = fmt.Sprintf("exclusion:%d:", runs.Add(1))
	book, unmap, err := openLedger(c.config.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	c.book = book
	t.Cleanup(func() {
		for p, m := range c.members {
			m.cmd.Process.Kill()
			<-m.gone
			if out := m.output.String(); out != "" {
				t.Logf("process %d said:\n%s", p, out)
			}
		}
		unmap()
	})
	return c
}

// start starts a worker process with a client and waits until it is at work.
func (c *crew) start(client string, goroutines int) int {
	c.t.Helper()
	config := c.config
	config.Process, config.Client, config.Goroutines = len(c.members), client, goroutines
	text, err := json.Marshal(config)
	if err != nil {
		c.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	m := &member{cmd: exec.Command(self), output: new(lockedBuffer), gone: make(chan struct{})}
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
	await(c.t, patience, "a worker is ready", func() bool {
		select {
		case <-m.gone:
			c.t.Fatalf("process %d ended at once: %v\n%s", config.Process, m.err, m.output)
		default:
		}
		return c.book.worker[config.Process].ready.Load() != 0
	})
	return config.Process
}

// key is the lock of that number.
func (c *crew) key(name int64) string { return fmt.Sprint(c.config.Prefix, name) }

// hang has whoever of process p gets in next stay there, and returns its entry.
func (c *crew) hang(p int) *entry {
	c.t.Helper()
	c.book.linger.Or(1 << p)
	var index int64
	await(c.t, patience, fmt.Sprintf("process %d is inside", p), func() bool {
		index = c.book.worker[p].lingering.Load() - 1
		return index >= 0
	})
	e := &c.book.holds[index]
	await(c.t, patience, "it says so", func() bool { return e.first.Load() != 0 })
	return e
}

// letGo ends that.
func (c *crew) letGo(p int) { c.book.linger.And(^(1 << p)) }

// kill is SIGKILL, and waits until the process is gone.
func (c *crew) kill(p int) {
	c.t.Helper()
	m := c.members[p]
	m.killed = true
	from := now()
	if err := m.cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	<-m.gone
	c.fault(fault{what: "kill", from: from, to: now(), process: p})
}

// freeze is SIGSTOP, and waits until the process has stopped.
func (c *crew) freeze(p int) {
	c.t.Helper()
	pid := c.members[p].cmd.Process.Pid
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		c.t.Fatal(err)
	}
	await(c.t, patience, "the process has stopped", func() bool {
		// Its state is the first letter after the name in parentheses.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			c.t.Fatal(err)
		}
		i := bytes.LastIndexByte(stat, ')')
		return i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
	})
	c.fault(fault{what: "process stopped", from: now(), process: p})
}

// thaw is SIGCONT.
func (c *crew) thaw(p int) {
	c.t.Helper()
	for i := range c.faults {
		if f := &c.faults[i]; f.process == p && f.to == 0 {
			f.to = now()
		}
	}
	if err := c.members[p].cmd.Process.Signal(syscall.SIGCONT); err != nil {
		c.t.Fatal(err)
	}
}

// pauseRedis stops Redis for a while.
func (c *crew) pauseRedis(d time.Duration) {
	c.t.Helper()
	from := now()
	c.server.Pause()
	for end := from + int64(d); now() < end; {
		time.Sleep(time.Duration(end - now()))
	}
	c.server.Resume()
	c.fault(fault{what: fmt.Sprintf("Redis paused for %v", d), from: from, to: now(), redis: true, process: -1})
}

func (c *crew) fault(f fault) {
	c.t.Logf("%7.3f s: %s (process %d)", float64(now()-c.began)/1e9, f.what, f.process)
	c.faults = append(c.faults, f)
}

// progress awaits some claims that begin from now on.
func (c *crew) progress(after string, within time.Duration) {
	c.t.Helper()
	const enough = 20
	from, used := now(), c.book.used.Load()
	await(c.t, within, fmt.Sprintf("%d acquisitions after: %s", enough, after), func() bool {
		n := 0
		for i := used; i < min(c.book.used.Load(), maxHolds); i++ {
			if c.book.holds[i].first.Load() > from {
				n++
			}
		}
		return n >= enough
	})
}

// waiting is the number of goroutines in Lock.
func (c *crew) waiting() (n int64) {
	for p, m := range c.members {
		if !m.killed {
			n += c.book.worker[p].waiting.Load()
		}
	}
	return n
}

// finish ends all workers and checks that they end well.
func (c *crew) finish() {
	c.t.Helper()
	c.book.stop.Store(1)
	end := time.After(patience)
	for p, m := range c.members {
		select {
		case <-m.gone:
			if !m.killed && m.err != nil {
				c.t.Errorf("process %d: %v", p, m.err)
			}
		case <-end:
			// SIGQUIT makes it write where it hangs.
			m.cmd.Process.Signal(unix.SIGQUIT)
			<-m.gone
			c.t.Errorf("process %d did not end within %v", p, patience)
		}
	}
}

// judge judges what is in the ledger by now.
func (c *crew) judge() verdict {
	r := rules{lease: int64(c.config.Watchdog), slack: int64(c.slack), most: c.config.Size, lost: c.lost}
	// Read first: what comes while the ledger is read and judged is no silence.
	until, waiting := now(), c.waiting() > 0
	v := judge(c.book.all(), c.faults, r)
	v.silence(waiting, c.asked, until, c.faults, r)
	if c.book.used.Load() > maxHolds {
		c.t.Error("the ledger is full: the run was too long for it")
	}
	return v
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
