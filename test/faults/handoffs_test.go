package faults_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

var handoffsTime = flag.Duration("handoffs", 300*time.Millisecond, "for how long each row of TestHandoffs runs")

// sharing is a lock of a kind that clients of one waiter each take in turn.
type sharing struct {
	name string
	// sides is how many kinds of tenure there are: clients take one each, in turn. Zero is one.
	sides int
	// granted: a release grants it, so a handoff is two commands.
	granted bool
	// set prepares the lock.
	set func(t *testing.T, c *mortise.Client)
	// take takes it for the client of that number.
	take func(ctx context.Context, c *mortise.Client, number int) (release func() error, err error)
}

func leased(l *mortise.Lease, err error) (func() error, error) {
	return func() error { return l.Unlock(context.Background()) }, err
}

func counts(permits int) sharing {
	return sharing{
		name: fmt.Sprintf("counting semaphore of %d", permits),
		set: func(t *testing.T, c *mortise.Client) {
			_, err := semaphore.NewCounting(c, "n").TrySetPermits(t.Context(), permits)
			harness.OK(t, err)
		},
		take: func(ctx context.Context, c *mortise.Client, _ int) (func() error, error) {
			s := semaphore.NewCounting(c, "n")
			return func() error { return s.Release(context.Background(), 1) }, s.Acquire(ctx, 1)
		},
	}
}

func permitsOf(permits int) sharing {
	return sharing{
		name: fmt.Sprintf("semaphore of %d", permits), granted: true,
		set: func(t *testing.T, c *mortise.Client) {
			_, err := semaphore.New(c, "n", 0).TrySetPermits(t.Context(), permits)
			harness.OK(t, err)
		},
		take: func(ctx context.Context, c *mortise.Client, _ int) (func() error, error) {
			p, err := semaphore.New(c, "n", 0).Acquire(ctx, 1)
			return func() error { return p.Release(context.Background()) }, err
		},
	}
}

var sharings = []sharing{
	{name: "write", granted: true, take: func(ctx context.Context, c *mortise.Client, _ int) (func() error, error) {
		return leased(c.RW().Write.Lock(ctx, "n"))
	}},
	{name: "read and write", sides: 2, granted: true, take: func(
		ctx context.Context, c *mortise.Client, number int,
	) (func() error, error) {
		if number%2 == 0 {
			return leased(c.RW().Read.Lock(ctx, "n"))
		}
		return leased(c.RW().Write.Lock(ctx, "n"))
	}},
	counts(1), counts(3), permitsOf(1), permitsOf(3),
}

// consul #7523 again, with a client for each waiter: a release is told to those that can be served.
func TestConsul7523_CommandsOfAHandoffAreBoundedWhateverTheNumberOfClients(t *testing.T) {
	each(t, func(t *testing.T, s stack) {
		for _, x := range sharings {
			for _, clients := range []int{2, 4, 8, 16} {
				t.Run(fmt.Sprintf("%s/%d", x.name, clients), func(t *testing.T) { handoffs(t, s, x, clients) })
			}
		}
	})
}

// asked awaits that no client is between its call and the answer: each holds, waits or has left. So the fairness of the
// queue is judged, and not that of the machine's scheduler.
type asked struct {
	mu     sync.Mutex
	all    *sync.Cond
	asking map[int]bool
}

func (a *asked) set(i int, asking bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.asking, i); asking {
		a.asking[i] = true
	}
	a.all.Broadcast()
}

func (a *asked) await() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.asking) > 0 {
		a.all.Wait()
	}
}

func handoffs(t *testing.T, s stack, x sharing, clients int) {
	srv := redistest.Start(t)
	sharers := make([]*mortise.Client, clients)
	asks := &asked{asking: make(map[int]bool)}
	asks.all = sync.NewCond(&asks.mu)
	for i := range sharers {
		sharers[i] = s.client(t, srv.Addr(), config{}, mortise.WithObserver(mortise.Observer{
			Waiting: func(mortise.Event) { asks.set(i, false) },
		}))
	}
	if x.set != nil {
		x.set(t, sharers[0])
	}
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		grants  = make([]int, clients)
		longest time.Duration
	)
	// run has the clients hold what they share in turn, for d, and on a busy machine until each has had its share several
	// times.
	run := func(d time.Duration, times int) (commands int64, took time.Duration) {
		clear(grants)
		longest = 0
		var all atomic.Int32
		before := srv.Calls("eval", "evalsha", "subscribe", "unsubscribe")
		begun := time.Now()
		for i, c := range sharers {
			wg.Go(func() {
				for time.Since(begun) < d || int(all.Load()) < times*clients {
					asked := time.Now()
					asks.set(i, true)
					release, err := x.take(within(t, patience), c, i)
					asks.set(i, false)
					if err != nil {
						t.Error(err)
						return
					}
					waited := time.Since(asked)
					time.Sleep(time.Millisecond)
					asks.await()
					if err := release(); err != nil {
						t.Error(err)
					}
					all.Add(1)
					mu.Lock()
					grants[i]++
					longest = max(longest, waited)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		return srv.Calls("eval", "evalsha", "subscribe", "unsubscribe") - before, time.Since(begun)
	}
	run(50*time.Millisecond, 1) // connections, scripts
	commands, took := run(*handoffsTime, 10)
	sum, jain := 0, 1.0
	sides := max(1, x.sides)
	means := make([]float64, sides)
	for side := range sides {
		n, squares := 0, 0
		for i := side; i < clients; i += sides {
			n += grants[i]
			squares += grants[i] * grants[i]
		}
		sum += n
		means[side] = float64(n*sides) / float64(clients)
		jain = min(jain, float64(n*n*sides)/float64(clients*squares))
	}
	cost := float64(commands) / float64(sum)
	// Where the machine stands still, each client that waits asks again after a second.
	rechecks := clients * int(took.Seconds())
	most := 3.3
	if x.granted {
		most = 2.3
	}
	harness.ErrorIf(t, float64(commands) > most*float64(sum)+float64(rechecks),
		"%.2f commands a handoff, want %v at most, and %d rechecks", cost, most, rechecks)
	harness.ErrorIf(t, jain < 0.98, "Jain's index of the clients of one side is %.2f: %v", jain, grants)
	// Readers come in together: where their groups and single writers alternate, each reader has as many tenures as all
	// writers have, or nearly.
	least := 0.8 * slices.Max(means) / float64(max(1, clients/sides))
	harness.ErrorIf(t, slices.Min(means) < least, "a side has too few tenures: %v", grants)
	t.Logf("%-22s %2d clients: %5.2f commands a handoff, %5.0f handoffs/s, longest wait %4d ms, Jain %.2f, least %d",
		x.name, clients, cost, float64(sum)/took.Seconds(), longest.Milliseconds(), jain,
		slices.Min(grants))
}
