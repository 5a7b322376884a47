package interop

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest/stats"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var (
	sharesFor  = flag.Duration("shares", 0, "for how long each run of TestShares takes, instead of a trial of two rows")
	sharesRuns = flag.Int("shares.runs", 1, "how often each row of TestShares runs; the medians count")
)

// contest is threads and goroutines that take one thing again and again.
type contest struct {
	kind    string
	threads int     // of a JVM
	takes   []taker // of a goroutine each
	hold    time.Duration
	lasts   time.Duration
}

// taker waits for the thing of a name, and returns what releases it.
type taker func(ctx context.Context, name string, wait mortise.Option) (release func(context.Context) error, err error)

// lockers are n takers of a lock.
func lockers(n int, l mortise.Locker) (all []taker) {
	for range n {
		all = append(all, func(ctx context.Context, name string, wait mortise.Option) (func(context.Context) error, error) {
			held, err := l.Lock(ctx, name, wait)
			if err != nil {
				return nil, err
			}
			return held.Unlock, nil
		})
	}
	return all
}

// tenures is what one thread or goroutine came to.
type tenures struct {
	count   int64
	longest time.Duration // its longest wait
}

// run has them take the thing as long as the contest lasts: the threads' tenures, and those of the goroutines.
func (x contest) run(t *testing.T, c *redisson, name string) (java, golang []tenures) {
	java, golang = make([]tenures, x.threads), make([]tenures, len(x.takes))
	var all sync.WaitGroup
	for i := range x.threads {
		l := c.thread(t, fmt.Sprint("turns-", i)).lockOf(x.kind, name)
		all.Go(func() {
			r := l.ask("turns")
			r.Wait, r.Lease = x.lasts.Milliseconds(), x.hold.Milliseconds()
			reply := l.thread.client.java.wait(l.thread.start(r), x.lasts+long)
			harness.ErrorIf(t, reply.Error != "", "Java: %s: %s", reply.Error, reply.Message)
			longest, _ := strconv.Atoi(reply.Text)
			java[i] = tenures{reply.Number, time.Duration(longest) * time.Millisecond}
		})
	}
	ctx, end := context.Background(), time.Now().Add(x.lasts)
	for i, take := range x.takes {
		one := &golang[i]
		all.Go(func() {
			for begun := time.Now(); begun.Before(end); begun = time.Now() {
				release, err := take(ctx, name, mortise.WithWait(end.Sub(begun)))
				one.longest = max(one.longest, time.Since(begun))
				if err != nil {
					break
				}
				time.Sleep(x.hold)
				harness.Check(t, release(ctx))
				one.count++
			}
		})
	}
	all.Wait()
	return java, golang
}

// share is what both sides came to.
type share struct {
	java, golang         int64
	longJava, longGolang time.Duration // the longest wait
}

func (s share) ofJava() float64 { return float64(s.java) / float64(s.java+s.golang) }

func (s share) String() string {
	return fmt.Sprintf("Java has %d of %d, a share of %.2f; its longest wait %v, Go's %v",
		s.java, s.java+s.golang, s.ofJava(), s.longJava, s.longGolang)
}

// shares is what a run of the contest comes to.
func (x contest) shares(t *testing.T, c *redisson, name string) (s share) {
	java, golang := x.run(t, c, name)
	for _, one := range java {
		s.java, s.longJava = s.java+one.count, max(s.longJava, one.longest)
	}
	for _, one := range golang {
		s.golang, s.longGolang = s.golang+one.count, max(s.longGolang, one.longest)
	}
	return s
}

// besideListener has the goroutines take the thing beside a client that listens to a channel of Redisson's, and takes
// nothing: a busy run has most of what it has without.
func (x contest) besideListener(t *testing.T, s *site, c *redisson, name, channel string) {
	var ratios []float64
	if *sharesFor != 0 {
		x.lasts = max(x.lasts, 12*time.Second) // three windows of .2 s come every 3.8 s: a short run may see two periods
	}
	for range *sharesRuns {
		without := x.shares(t, c, name).golang
		rdb := s.clients().Universal()
		listens := rdb.Subscribe(t.Context(), channel)
		harness.Must(listens.Receive(t.Context()))(t)
		with := x.shares(t, c, name).golang
		listens.Close()
		rdb.Close()
		ratios = append(ratios, float64(with)/float64(without))
		t.Logf("Go has %d, and %d without it", with, without)
	}
	half := stats.Quantile(ratios, .5)
	asBusy(t, half < 0.8, "Go has %.2f of what it has without", half)
}

// asBusy asserts what holds for a run whose length was asked for. A trial shows that both sides get their turns.
func asBusy(t *testing.T, bad bool, what string, args ...any) {
	t.Helper()
	harness.ErrorIf(t, *sharesFor != 0 && bad, what, args...)
}
