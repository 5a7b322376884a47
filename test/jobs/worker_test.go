//go:build linux

package jobs

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const workerEnv = "MORTISE_JOBS_WORKER"

// workerConfig is what a worker is told by its environment.
type workerConfig struct {
	Process  int
	Book     string // the path of the file that all processes map
	Site     harness.Site
	Client   string // "go-redis" or "rueidis"
	Watchdog time.Duration
	Interval time.Duration // of ticks; 0: the worker leads
}

const (
	maxProcesses = 64
	maxTerms     = 256
	maxTicks     = 2048
)

// book is what the processes write.
type book struct {
	Worker  [maxProcesses]member
	Started atomic.Int64 // terms
	Terms   [maxTerms]termEntry
	First   atomic.Int64 // the time of the first tick that counts, in ms since the epoch
	Ticks   [maxTicks]tickEntry
}

// member is what a process says of itself.
type member struct {
	Ready   atomic.Int64
	Skew    atomic.Int64 // how far time.Now is ahead of the machine's clock
	Running atomic.Int64 // the number of the tick that it runs, from one; zero if it runs none
	Seen    atomic.Int64 // the newest term that it knows of as a follower
	SeenAt  atomic.Int64
}

// termEntry is a leader's claim.
type termEntry struct {
	Process, Token atomic.Int64
	First, Last    atomic.Int64 // zero until it has led
}

type tickEntry struct {
	Starts  atomic.Int64
	Process atomic.Int64 // that started it last
}

var here harness.InWorker

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	harness.Worker(workerEnv, work)
	os.Exit(m.Run())
}

func work(config workerConfig) error {
	all, unmap, err := harness.Map[book](config.Book)
	harness.OK(here, err)
	defer unmap()
	me := &all.Worker[config.Process]
	b, below, err := config.Site.Open(config.Client)
	harness.OK(here, err)
	defer below()
	client := harness.Must(mortise.New(b, mortise.WithWatchdogTimeout(config.Watchdog)))(here)
	defer client.Close()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	me.Skew.Store(skew())
	me.Ready.Store(1)
	if config.Interval > 0 {
		once.Every(ctx, client, "ticks", config.Interval, func(_ context.Context, at time.Time) {
			n := (at.UnixMilli() - all.First.Load()) / config.Interval.Milliseconds()
			if n >= 0 && n < maxTicks {
				all.Ticks[n].Starts.Add(1)
				all.Ticks[n].Process.Store(int64(config.Process))
				me.Running.Store(n + 1)
				time.Sleep(config.Interval / 5) // the work, of which some is killed
				me.Running.Store(0)
			}
		})
		return nil
	}
	go func() {
		for l, err := range leader.Observe(ctx, client, "lead") {
			if err == nil && l.Term > 0 {
				me.SeenAt.Store(harness.Now())
				me.Seen.Store(l.Term)
			}
		}
	}()
	leader.Run(ctx, client, "lead", func(ctx context.Context, term leader.Term) error {
		e := &all.Terms[all.Started.Add(1)-1]
		e.Process.Store(int64(config.Process))
		e.Token.Store(term.Token)
		for ctx.Err() == nil {
			at := harness.Now() // before the question
			if term.Err() != nil {
				break
			}
			e.First.CompareAndSwap(0, at)
			e.Last.Store(at)
			time.Sleep(500 * time.Microsecond)
		}
		return ctx.Err()
	})
	return nil
}

// skew is how far time.Now is ahead of the machine's clock.
func skew() int64 {
	var t unix.Timespec
	harness.OK(here, unix.ClockGettime(unix.CLOCK_REALTIME, &t))
	return time.Now().UnixNano() - t.Nano()
}
