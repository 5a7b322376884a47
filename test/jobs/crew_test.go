//go:build linux

package jobs

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// patience bounds what takes no time worth speaking of.
const patience = time.Minute

// crew is worker processes on a server, each behind a relay of its own.
type crew struct {
	*book
	t       *testing.T
	config  workerConfig
	server  *redistest.Server
	workers []*worker
	stalls  stalls
}

type worker struct {
	*harness.Process
	number int
	gate   gate
}

func newCrew(t *testing.T, config workerConfig) *crew {
	t.Helper()
	c := &crew{t: t, config: config, server: redistest.Start(t)}
	c.config.Book = filepath.Join(t.TempDir(), "book")
	book, unmap, err := harness.Map[book](c.config.Book)
	harness.OK(t, err)
	c.book = book
	c.stalls.watch(t)
	t.Cleanup(func() {
		for _, w := range c.workers {
			w.Kill()
			if out := w.Output.String(); out != "" && t.Failed() {
				t.Logf("process %d said:\n%s", w.number, out)
			}
		}
		unmap()
	})
	return c
}

// start starts a process of a program, which is this one if it is empty, with a clock that is ahead
// by skew.
func (c *crew) start(program string, skew time.Duration) *worker {
	c.t.Helper()
	w := &worker{number: len(c.workers)}
	relay := redistest.NewRelay(c.t, c.server.Addr(), w.gate.lines)
	config := c.config
	config.Process, config.Client = w.number, harness.Libraries[w.number%2]
	config.Site = harness.At(relay.Addr())
	cmd := harness.Self(workerEnv, config)
	if program != "" {
		cmd.Path, cmd.Args = program, []string{program}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", skewEnv, skew.Nanoseconds()))
	}
	w.Process = harness.Must(harness.Start(cmd))(c.t)
	c.workers = append(c.workers, w)
	harness.Await(c.t, patience, "a worker is ready", func() bool {
		select {
		case <-w.Gone:
			c.t.Fatalf("process %d ended at once: %v\n%s", w.number, w.Err, w.Output.String())
		default:
		}
		return c.Worker[w.number].Ready.Load() != 0
	})
	return w
}

// gate is a network that can be interrupted: what is under way is held, and no connection ends.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // closed when it opens; nil while it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

// pass waits until the gate is open. It reports whether the line is.
func (g *gate) pass(l *redistest.Line) bool {
	for {
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return true
		}
		select {
		case <-shut:
		case <-l.Dead():
			return false
		}
	}
}

func (g *gate) lines(l *redistest.Line) (up, down func()) {
	return func() {
			for c := range l.Chunks(l.Client) {
				if !g.pass(l) {
					return
				}
				l.Server.Write(c.Data)
			}
		}, func() {
			for c := range l.Chunks(l.Server) {
				if !g.pass(l) {
					return
				}
				l.Client.Write(c.Data)
			}
		}
}

// stalls are times in which this process, and so perhaps the workers too, did not run though it
// wanted to.
type stalls struct {
	mu  sync.Mutex
	all []harness.Span
}

func (s *stalls) watch(t *testing.T) {
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for last := harness.Now(); !over.Load(); {
			time.Sleep(5 * time.Millisecond)
			now := harness.Now()
			if now-last > int64(50*time.Millisecond) {
				s.mu.Lock()
				s.all = append(s.all, harness.Span{From: last, To: now})
				s.mu.Unlock()
			}
			last = now
		}
	}()
	t.Cleanup(func() { over.Store(true); <-done })
}

// undisturbed is the time between two times in which the machine ran.
func (s *stalls) undisturbed(from, to int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(harness.Undisturbed(from, to, s.all))
}
