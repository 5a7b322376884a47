//go:build linux

package exclusion

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// slack is how long a free lock may wait for its next holder: more than a second, because the
// machine may be busy with other things.
const slack = 4 * time.Second

var runs atomic.Int64

// crew is a server and the worker processes on it.
type crew struct {
	*harness.Crew
	t      *testing.T
	server *redistest.Server
	config workerConfig
	rules  harness.Rules
	asked  int64 // since when a worker may have been waiting; 0: all the time
}

// newCrew starts a server. What is in config holds for all workers.
func newCrew(t *testing.T, config workerConfig) *crew {
	t.Helper()
	server := redistest.Start(t)
	config.Site = harness.At(server.Addr())
	c := newCrewAt(t, config)
	c.server = server
	return c
}

// newCrewAt is newCrew, at servers that are there.
func newCrewAt(t *testing.T, config workerConfig) *crew {
	t.Helper()
	c := &crew{Crew: harness.NewCrew(t, patience), t: t, config: config}
	c.rules = harness.Rules{Lease: int64(config.Watchdog), Slack: int64(slack), After: int64(config.Watchdog)}
	c.config.Ledger = c.Path
	c.config.Prefix = fmt.Sprintf("exclusion:%d:", runs.Add(1))
	return c
}

// start starts a worker process with a client and waits until it is at work.
func (c *crew) start(client string, goroutines int) int {
	c.t.Helper()
	return c.Start(c.config.command(len(c.Members), client, goroutines))
}

// key is the lock of that number.
func (c *crew) key(name int64) string { return fmt.Sprint(c.config.Prefix, name) }

// hang has the goroutine of process p that gets in next stay there, and returns its entry.
func (c *crew) hang(p int) *harness.Entry {
	c.t.Helper()
	for {
		e := c.Hang(p, patience)
		harness.FatalIf(c.t, e == nil, "process %d is not inside within %v", p, patience)
		if e.Told.Load() == 0 {
			return e
		}
		c.LetGo(p) // a busy machine has had its lease end already
		c.Await("it leaves", func() bool { return e.Read(0).End != harness.Open })
	}
}

// full has the goroutines of processes ps stay inside until as many are as there are permits.
func full(c *crew, ps ...int) {
	c.t.Helper()
	for _, p := range ps {
		c.Book.Worker[p].Linger.Store(1)
	}
	c.Await("all permits are out", func() bool { return c.judge().Together >= c.config.Size })
	for _, p := range ps {
		c.LetGo(p)
	}
}

// told waits until a visit has asked once more, and was told of its end: its process may have been
// stopped just after it asked.
func told(c *crew, e *harness.Entry) {
	c.t.Helper()
	c.Await("the holder is told", func() bool { return e.Told.Load() != 0 })
}

// kill is SIGKILL, and waits until the process is gone.
func (c *crew) kill(p int) {
	c.t.Helper()
	from := harness.Now()
	c.Members[p].Kill()
	c.fault(harness.Fault{Kind: "kill", From: from, To: harness.Now(), Process: p})
}

// freeze stops process p, until thaw.
func (c *crew) freeze(p int) {
	c.t.Helper()
	harness.OK(c.t, c.Members[p].Freeze())
	c.fault(harness.Fault{Kind: "process stopped", From: harness.Now(), Process: p})
}

func (c *crew) thaw(p int) {
	c.t.Helper()
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Process == p && f.To == 0 {
			f.To = harness.Now()
		}
	}
	harness.OK(c.t, c.Members[p].Thaw())
}

// pauseRedis stops Redis for a while.
func (c *crew) pauseRedis(d time.Duration) {
	c.t.Helper()
	from := harness.Now()
	c.server.Pause()
	harness.SleepUntil(from + int64(d))
	c.server.Resume()
	kind := fmt.Sprintf("Redis paused for %v", d)
	c.fault(harness.Fault{Kind: kind, From: from, To: harness.Now(), Process: harness.NoProcess})
}

func (c *crew) fault(f harness.Fault) {
	f.Name = harness.NoName
	c.t.Logf("%7.3f s: %s (process %d)", float64(harness.Now()-c.Began)/1e9, f.Kind, f.Process)
	c.Faults = append(c.Faults, f)
}

// progress awaits some claims that begin from now on.
func (c *crew) progress(after string, within time.Duration) {
	c.t.Helper()
	c.Progress(after, 0, within)
}

// judge judges what is in the ledger by now.
func (c *crew) judge() harness.Verdict {
	// Read first: what comes while the ledger is read and judged is no silence.
	until, waiting := harness.Now(), false
	for p, m := range c.Members {
		waiting = waiting || !m.Killed && c.Waiting(p) > 0
	}
	v := harness.Judge(c.Book.All(), c.Faults, nil, c.rules)
	if waiting {
		v.Silence(c.asked, until, c.Faults, c.rules)
	}
	return v
}

// fails fails the test if the verdict is bad, or not ok.
func (c *crew) fails(v harness.Verdict, ok bool) {
	c.t.Helper()
	harness.ErrorIf(c.t, v.Bad() || !ok, "%v\n%s", v, v.Why())
}
