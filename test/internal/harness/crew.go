//go:build linux

package harness

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Crew is worker processes that share a ledger.
type Crew struct {
	T        *testing.T
	Book     *Ledger
	Path     string // the ledger's
	Members  []*Process
	Faults   []Fault
	Patience time.Duration // bounds what takes no time worth speaking of
	Began    int64
}

// NewCrew makes a ledger. When the test ends all workers are killed; if it failed, it shows what
// they said.
func NewCrew(t *testing.T, patience time.Duration) *Crew {
	t.Helper()
	c := &Crew{T: t, Path: filepath.Join(t.TempDir(), "ledger"), Patience: patience, Began: Now()}
	book, unmap, err := Map[Ledger](c.Path)
	OK(t, err)
	c.Book = book
	t.Cleanup(func() {
		for p, m := range c.Members {
			m.Kill()
			if out := m.Output.String(); out != "" && t.Failed() {
				t.Logf("process %d said:\n%s", p, out)
			}
		}
		unmap()
	})
	return c
}

// Start starts a worker, which says by Ready in the ledger that it is at work. It returns its number.
func (c *Crew) Start(cmd *exec.Cmd) int {
	c.T.Helper()
	p := len(c.Members)
	if p >= MaxProcesses {
		c.T.Fatal("the ledger has no room for another process")
	}
	m := Must(Start(cmd))(c.T)
	c.Members = append(c.Members, m)
	c.Await("a worker is ready", func() bool {
		select {
		case <-m.Gone:
			c.T.Fatalf("process %d ended at once: %v\n%s", p, m.Err, m.Output.String())
		default:
		}
		return c.Book.Worker[p].Ready.Load() != 0
	})
	return p
}

// Await is [Await] with the crew's patience.
func (c *Crew) Await(what string, ok func() bool) {
	c.T.Helper()
	Await(c.T, c.Patience, what, ok)
}

// Hang has the goroutine of process p that gets in next stay there, and returns its entry; nil if
// none does within d.
func (c *Crew) Hang(p int, d time.Duration) *Entry {
	c.Book.Worker[p].Linger.Store(1)
	var e *Entry
	inside := Awaits(d, func() bool {
		if i := c.Book.Worker[p].Lingering.Load() - 1; i >= 0 {
			e = &c.Book.Entries[i]
		}
		return e != nil && e.First.Load() != 0
	})
	if !inside {
		c.LetGo(p)
		return nil
	}
	return e
}

// LetGo ends that.
func (c *Crew) LetGo(p int) { c.Book.Worker[p].Linger.Store(0) }

// Waiting is how many goroutines of process p wait for a lock that is fought for.
func (c *Crew) Waiting(p int) int64 { return c.Book.Worker[p].Waiting.Load() }

// Progress awaits some visits that begin from now on, and returns when the first did. Entries of
// waiters may be older, by back.
func (c *Crew) Progress(after string, back int64, within time.Duration) (first int64) {
	c.T.Helper()
	const enough = 20
	from, used := Now(), c.Book.Used.Load()-back
	n := 0
	came := Awaits(within, func() bool {
		n, first = c.Book.Came(from, used)
		return n >= enough
	})
	if !came {
		for _, m := range c.Members {
			m.Cmd.Process.Signal(syscall.SIGQUIT) // it writes where it hangs
		}
		time.Sleep(time.Second)
		c.T.Fatalf("%d got in within %v after: %s", n, within, after)
	}
	return first
}

// Finish ends all workers, and fails the test for those that do not end well. It returns how many.
func (c *Crew) Finish() (ill int) {
	c.T.Helper()
	c.Book.Stop.Store(1)
	end := time.Now().Add(c.Patience)
	for p, m := range c.Members {
		if err := m.Ends(time.Until(end)); err != nil && !m.Killed {
			ill++
			c.T.Errorf("process %d: %v\n%s", p, err, m.Output.String())
		}
	}
	if c.Book.Used.Load() > MaxEntries {
		c.T.Error("the ledger is full: the run was too long for it")
	}
	return ill
}
