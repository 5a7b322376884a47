//go:build linux

package jobs

import (
	"cmp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// lease is how long a leader that died holds the others up.
const lease = 3 * time.Second

// A leader is killed, stopped, cut off, or resigns. Two never lead at once, the next one leads
// within the lease and a second, and the other processes know of it within a second.
func TestLeadersUnderFaults(t *testing.T) {
	t.Parallel()
	c := newCrew(t, workerConfig{Watchdog: lease})
	for range 3 {
		c.start("", 0)
	}
	last := c.after(0)
	for round := range 2 {
		for _, fault := range []struct {
			name  string
			bound time.Duration
			do    func(*worker)
			heal  func(*worker)
		}{
			{"SIGKILL", lease + time.Second, func(w *worker) { w.Kill() }, func(*worker) { c.start("", 0) }},
			{"SIGSTOP", lease + time.Second, func(w *worker) { harness.OK(t, w.Freeze()) },
				func(w *worker) { harness.OK(t, w.Thaw()) }},
			{"partition", lease + time.Second, func(w *worker) { w.gate.close() }, func(w *worker) { w.gate.open() }},
			{"SIGTERM", time.Second, func(w *worker) { harness.OK(t, w.Cmd.Process.Signal(syscall.SIGTERM)); <-w.Gone },
				func(*worker) { c.start("", 0) }},
		} {
			leads := c.workers[last.Process.Load()]
			at := harness.Now()
			fault.do(leads)
			next := c.after(last.Token.Load())
			took := c.stalls.undisturbed(at, next.First.Load())
			t.Logf("round %d, %-9s of process %d: process %d leads %v later", round, fault.name, leads.number,
				next.Process.Load(), took.Round(time.Millisecond))
			harness.ErrorIf(t, took > fault.bound, "%s: the next one leads after %v, want %v", fault.name, took, fault.bound)
			c.follow(next, leads)
			fault.heal(leads)
			last = next
			if fault.name == "SIGSTOP" || fault.name == "partition" { // it finds that it leads no more, and follows
				c.follow(next, nil)
			}
		}
	}
	c.judge()
}

// after awaits a term that is newer than a token, and has led.
func (c *crew) after(token int64) (next *termEntry) {
	c.t.Helper()
	harness.Await(c.t, patience, "another leads", func() bool {
		for _, e := range c.terms() {
			if e.Token.Load() > token {
				next = e
			}
		}
		return next != nil
	})
	return next
}

// terms are those whose leader has led, the oldest first.
func (c *crew) terms() (all []*termEntry) {
	for i := range c.Started.Load() {
		if e := &c.Terms[i]; e.First.Load() != 0 {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *termEntry) int { return cmp.Compare(a.First.Load(), b.First.Load()) })
	return all
}

// follow awaits that each process but one knows of the leader of a term.
func (c *crew) follow(term *termEntry, but *worker) {
	c.t.Helper()
	for _, w := range c.workers {
		gone := false
		select {
		case <-w.Gone:
			gone = true
		default:
		}
		if gone || w == but {
			continue
		}
		m := &c.Worker[w.number]
		harness.Await(c.t, patience, "the others know of it", func() bool { return m.Seen.Load() >= term.Token.Load() })
		took := c.stalls.undisturbed(term.First.Load(), m.SeenAt.Load())
		harness.ErrorIf(c.t, but != nil && took > time.Second, "process %d learns of the leader after %v", w.number, took)
	}
}

// judge fails the test if two led at once, or an older term led after a newer one.
func (c *crew) judge() {
	c.t.Helper()
	all := c.terms()
	for i, e := range all[1:] {
		before := all[i]
		if e.First.Load() <= before.Last.Load() {
			c.t.Errorf("processes %d and %d both led, for %v", before.Process.Load(), e.Process.Load(),
				time.Duration(before.Last.Load()-e.First.Load()))
		}
		if e.Token.Load() <= before.Token.Load() {
			c.t.Errorf("term %d follows term %d", e.Token.Load(), before.Token.Load())
		}
	}
	c.t.Logf("%d terms, one at a time", len(all))
}
