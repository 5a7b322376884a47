package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	goredis "github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	gocronlock "github.com/mortise-go/mortise/gocron"
	"github.com/mortise-go/mortise/internal/asked"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/slow"
	"github.com/mortise-go/mortise/redisgo"
)

// patience bounds what takes no time worth speaking of.
const patience = 20 * time.Second

// client is a client on a server, as each process has one.
func client(t *testing.T, srv *redistest.Server, opts ...mortise.ClientOption) *mortise.Client {
	rdb := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	c := check.Value(mortise.New(redisgo.New(rdb), opts...)).In(t)
	t.Cleanup(func() { c.Close(); rdb.Close() })
	return c
}

// The flows of gocron's own TestScheduler_WithDistributed: three schedulers want to run a job once,
// at once.
func TestThreeSchedulers(t *testing.T) {
	check.Long(t)
	for _, c := range []struct {
		name string
		runs int
		with func(t *testing.T, c *mortise.Client) ([]gocron.SchedulerOption, []gocron.JobOption)
	}{
		{"with an elector", 1, func(t *testing.T, c *mortise.Client) ([]gocron.SchedulerOption, []gocron.JobOption) {
			e := gocronlock.Elect(t.Context(), c, "leader")
			t.Cleanup(func() { <-e.Done() })
			return []gocron.SchedulerOption{gocron.WithDistributedElector(e)}, nil
		}},
		{"with a locker", 1, func(_ *testing.T, c *mortise.Client) ([]gocron.SchedulerOption, []gocron.JobOption) {
			return []gocron.SchedulerOption{gocron.WithDistributedLocker(gocronlock.Locker(c, "jobs:"))}, nil
		}},
		{"with a job's locker", 1, func(_ *testing.T, c *mortise.Client) ([]gocron.SchedulerOption, []gocron.JobOption) {
			return nil, []gocron.JobOption{gocron.WithDistributedJobLocker(gocronlock.Locker(c, "jobs:"))}
		}},
		{"with a locker that the job does not use", 3,
			func(_ *testing.T, c *mortise.Client) ([]gocron.SchedulerOption, []gocron.JobOption) {
				return []gocron.SchedulerOption{gocron.WithDistributedLocker(gocronlock.Locker(c, "jobs:"))},
					[]gocron.JobOption{gocron.WithDisabledDistributedJobLocker(true)}
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			var ran, skipped, missed atomic.Int32
			start := time.Now().Add(2 * time.Second) // all have campaigned by then
			for range 3 {
				schedulerOpts, jobOpts := c.with(t, client(t, srv))
				s := check.Value(gocron.NewScheduler(append(schedulerOpts, gocron.WithMonitor(counting{&skipped}))...)).In(t)
				t.Cleanup(func() { s.Shutdown() })
				_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(start)), gocron.NewTask(func() {
					time.Sleep(100 * time.Millisecond)
					ran.Add(1)
				}), append(jobOpts, gocron.WithName("once"), gocron.WithEventListeners(
					gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
						if missed.Add(1); !errors.Is(err, mortise.ErrNotAcquired) {
							t.Errorf("the lock was refused with %v", err)
						}
					})))...)
				check.FatalIf(t, err != nil, "%v", err)
				s.Start()
			}
			await(t, "all have had their turn", func() bool { return int(ran.Load()+skipped.Load()) == 3 })
			check.ErrorIf(t, int(ran.Load()) != c.runs, "the job ran %d times, want %d", ran.Load(), c.runs)
		})
	}
}

// counting counts runs that were skipped.
type counting struct{ skipped *atomic.Int32 }

func (c counting) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		c.skipped.Add(1)
	}
}

func (counting) RecordJobTiming(_, _ time.Time, _ uuid.UUID, _ string, _ []string) {}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "%s: not within %v", what, patience)
	}
}

// The flow of gocron's examples/elector: three nodes each want to run a job each second, the leader
// does, and hands over after some runs; then a leader dies.
func TestTheLeaderRunsTheJobsUntilItStopsOrDies(t *testing.T) {
	check.Long(t)
	t.Parallel()
	const watchdog = 2 * time.Second
	srv := redistest.Start(t)
	runs := make(chan int, 100)
	stop := make([]context.CancelFunc, 3)
	clients := make([]*mortise.Client, 3)
	electors := make([]*gocronlock.Elector, 3)
	for node := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		stop[node], clients[node] = cancel, client(t, srv, mortise.WithWatchdogTimeout(watchdog))
		electors[node] = gocronlock.Elect(ctx, clients[node], "nodes")
		s := check.Value(gocron.NewScheduler(gocron.WithDistributedElector(electors[node]))).In(t)
		_, err := s.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() { runs <- node }))
		check.FatalIf(t, err != nil, "%v", err)
		s.Start()
		t.Cleanup(func() { s.Shutdown(); cancel(); <-electors[node].Done() })
	}
	seen := []int{runsOf(t, runs, -1)}
	last := func() int { return seen[len(seen)-1] }
	stop[last()]() // resigns
	seen = append(seen, runsOf(t, runs, last()))
	<-electors[seen[0]].Done()
	err := electors[seen[0]].IsLeader(t.Context())
	check.ErrorIf(t, !errors.Is(err, gocronlock.ErrNotLeader) || !errors.Is(err, context.Canceled), "resigned: %v", err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	machine, died := redistest.Timed(t), time.Now()
	clients[last()].Shutdown(ended) // leaves the lock to run out, as a process that died
	err = electors[last()].IsLeader(t.Context())
	check.ErrorIf(t, !errors.Is(err, gocronlock.ErrNotLeader), "dead: %v", err)
	seen = append(seen, runsOf(t, runs, last()))
	machine.Within(t, "after the leader died, the next one", time.Since(died), patience/2)
	slices.Sort(seen)
	check.ErrorIf(t, !slices.Equal(seen, []int{0, 1, 2}), "nodes %v led", seen)
}

// runsOf awaits ten runs in a row of a node other than one, and returns the node.
func runsOf(t *testing.T, runs <-chan int, but int) int {
	t.Helper()
	node, n := -1, 0
	for end := time.After(patience); n < 10; {
		select {
		case by := <-runs:
			check.ErrorIf(t, node >= 0 && by != node, "nodes %d and %d run jobs by turns", node, by)
			if by != but {
				node = by
				n++
			}
		case <-end:
			t.Fatal("no node runs jobs")
		}
	}
	return node
}

// gocron #841: schedulers that do not come at the same time run a quick job each.
func TestAQuickJobOfSchedulersThatComeAtDifferentTimes(t *testing.T) {
	check.Long(t)
	const interval = 600 * time.Millisecond
	run := func(t *testing.T, opts ...gocronlock.Option) []time.Time {
		srv := redistest.Start(t)
		var mu sync.Mutex
		var runs []time.Time
		start := time.Now().Add(time.Second)
		for node := range 3 {
			s := check.Value(gocron.NewScheduler(
				gocron.WithDistributedLocker(gocronlock.Locker(client(t, srv), "jobs:", opts...)))).In(t)
			_, err := s.NewJob(gocron.DurationJob(interval), gocron.NewTask(func() {
				mu.Lock()
				defer mu.Unlock()
				runs = append(runs, time.Now())
			}), gocron.WithName("quick"), gocron.WithStartAt(gocron.WithStartDateTime(
				start.Add(time.Duration(node)*interval/4)))) // its clock is late
			check.FatalIf(t, err != nil, "%v", err)
			s.Start()
			t.Cleanup(func() { s.Shutdown() })
		}
		time.Sleep(time.Until(start.Add(6*interval + 3*interval/4))) // that time is the subject
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(runs)
	}
	t.Run("by default", func(t *testing.T) {
		t.Parallel()
		runs := run(t)
		for i, at := range runs {
			check.ErrorIf(t, i > 0 && at.Sub(runs[i-1]) < 400*time.Millisecond, "runs at %v", runs)
		}
		check.ErrorIf(t, len(runs) < 5 || len(runs) > 7, "%d runs in seven intervals", len(runs))
	})
	t.Run("without a splay each runs it", func(t *testing.T) {
		t.Parallel()
		runs := run(t, gocronlock.Splay(0))
		check.ErrorIf(t, len(runs) < 15, "%d runs in seven intervals by three schedulers", len(runs))
	})
}

func TestTheLocker(t *testing.T) {
	check.Long(t)
	t.Parallel()
	srv := redistest.Start(t)
	a, b := client(t, srv), client(t, srv)
	long := gocronlock.Locker(a, "jobs:", gocronlock.Splay(0))
	ctx, cancel := context.WithCancel(t.Context())
	lock := check.Value(long.Lock(ctx, "main.report")).In(t)
	cancel() // the scheduler is being shut down
	info := check.Value(b.Inspect(t.Context(), "jobs:main.report")).In(t)
	check.ErrorIf(t, !info.Held || info.Client != a.ID(), "while the job runs, the lock is %+v", info)
	_, err := gocronlock.Locker(b, "jobs:").Lock(t.Context(), "main.report")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired) ||
		!strings.Contains(err.Error(), `"main.report" is skipped, held by `+info.Owner), "while the job runs: %v", err)
	check.ErrorIf(t, lock.Unlock(ctx) != nil, "Unlock failed")
	info = check.Value(b.Inspect(t.Context(), "jobs:main.report")).In(t)
	check.ErrorIf(t, info.Held, "after the run the lock is %+v", info)

	lock = check.Value(gocronlock.Locker(a, "jobs:", gocronlock.Splay(2*time.Second)).Lock(t.Context(), "x")).In(t)
	locked := time.Now()
	check.ErrorIf(t, lock.Unlock(ctx) != nil, "Unlock failed")
	held := func() bool { return check.Value(b.Inspect(t.Context(), "jobs:x")).In(t).Held }
	check.ErrorIf(t, !held() && time.Since(locked) < time.Second, "the lock is free within its splay")
	await(t, "the splay is over", func() bool { return !held() })
	check.ErrorIf(t, time.Since(locked) < 1900*time.Millisecond, "the lock is free after %v", time.Since(locked))

	_, err = gocronlock.Locker(nil, "jobs:").Lock(t.Context(), "x")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "of a nil Locker: %v", err)
	_, err = gocronlock.Locker(a, "jobs:", nil).Lock(t.Context(), "x")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "with a nil Option: %v", err)
	bad := gocronlock.Elect(t.Context(), a, "}")
	<-bad.Done()
	err = bad.IsLeader(t.Context())
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalidName) || !strings.Contains(fmt.Sprint(err), "campaigns no more"),
		"of a bad name: %v", err)
}

// The splay is counted from when the lock is there: a store that answers late, which is when processes come
// at different times, does not use it up.
func TestTheSplayCountsFromTheAcquisition(t *testing.T) {
	store := memory.New()
	locks := check.Value(mortise.New(slow.Store{Store: store, Acquire: 300 * time.Millisecond})).In(t)
	other := check.Value(mortise.New(store)).In(t)
	t.Cleanup(func() { locks.Close(); other.Close() })
	k := gocronlock.Locker(locks, "jobs:", gocronlock.Splay(250*time.Millisecond))
	check.NoError(t, check.Value(k.Lock(t.Context(), "x")).In(t).Unlock(t.Context()))
	_, err := other.TryLock(t.Context(), "jobs:x")
	check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired), "right after the acquisition: %v", err)
}

// Close waits for five seconds of a splay at most: a longer one takes a Shutdown with more time.
func TestClosingWithinALongSplay(t *testing.T) {
	for _, closing := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			store := memory.New()
			locks, other := check.Value(mortise.New(store)).In(t), check.Value(mortise.New(store)).In(t)
			defer other.Close()
			k := gocronlock.Locker(locks, "jobs:", gocronlock.Splay(8*time.Second))
			check.NoError(t, check.Value(k.Lock(t.Context(), "x")).In(t).Unlock(t.Context()))
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if closing {
				locks.Close()
			} else {
				locks.Shutdown(ctx)
			}
			_, err := other.TryLock(t.Context(), "jobs:x")
			check.ErrorIf(t, errors.Is(err, mortise.ErrNotAcquired) != closing, "after Close %v: %v", closing, err)
		})
	}
}

// stalled is a Locker whose store does not answer until answer is closed.
type stalled struct {
	mortise.Locker
	asked, answer chan struct{}
}

func (s stalled) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	close(s.asked)
	select {
	case <-s.answer:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return s.Locker.TryLock(ctx, name, opts...)
}

// A scheduler is shut down while a job waits for the answer to its TryLock: the Shutdown does not wait for the store,
// and the job is not started afterwards.
func TestAShutdownWhileTheStoreDoesNotAnswer(t *testing.T) {
	t.Parallel()
	locks := check.Value(mortise.New(memory.New())).In(t)
	t.Cleanup(func() { locks.Close() })
	store := stalled{locks, make(chan struct{}), make(chan struct{})}
	s := check.Value(gocron.NewScheduler(gocron.WithStopTimeout(time.Second),
		gocron.WithDistributedLocker(gocronlock.Locker(store, "jobs:")))).In(t)
	refused := make(chan error, 1)
	var ran atomic.Bool
	_, err := s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()),
		gocron.NewTask(func() { ran.Store(true) }), gocron.WithName("once"), gocron.WithEventListeners(
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { refused <- err }),
			gocron.AfterJobRuns(func(uuid.UUID, string) { refused <- nil })))
	check.FatalIf(t, err != nil, "%v", err)
	s.Start()
	<-store.asked
	check.Done(t, s.Shutdown())
	close(store.answer)
	check.Is(t, "the lock", <-refused, context.Canceled)
	check.ErrorIf(t, ran.Load(), "the job was started after the Shutdown")
}

// late is a Locker whose reply arrives when the scheduler is being shut down.
type late struct {
	mortise.Locker
	shutdown context.CancelFunc
}

func (l late) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	lease, err := l.Locker.TryLock(ctx, name, opts...)
	l.shutdown()
	return lease, err
}

func TestALockThatComesTooLateIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := check.Value(mortise.New(memory.New())).In(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := gocronlock.Locker(late{locks, cancel}, "jobs:").Lock(ctx, "x")
		check.Is(t, "of an ended scheduler", err, context.Canceled)
		synctest.Wait()
		check.Done(t, check.Value(locks.TryLock(t.Context(), "jobs:x")).In(t).Unlock(t.Context()))
		check.NoError(t, locks.Shutdown(t.Context()))
	})
}

// A job's end waits for a store that hangs for five seconds at most.
func TestTheEndOfAJobDoesNotWaitForAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := check.Value(mortise.New(slow.Store{Store: memory.New(), Release: time.Hour})).In(t)
		lock := check.Value(gocronlock.Locker(locks, "jobs:", gocronlock.Splay(0)).Lock(t.Context(), "x")).In(t)
		over := time.Now()
		check.Is(t, "Unlock", lock.Unlock(t.Context()), context.DeadlineExceeded)
		check.ErrorIf(t, time.Since(over) > 6*time.Second, "Unlock took %v", time.Since(over))
		check.NoError(t, locks.Shutdown(t.Context()))
	})
}

// An Elector that Elect has not made leads nothing, and says so.
func TestANilOrZeroElectorDoesNotLead(t *testing.T) {
	for _, e := range []*gocronlock.Elector{nil, new(gocronlock.Elector)} {
		err := e.IsLeader(t.Context())
		if !errors.Is(err, gocronlock.ErrNotLeader) || !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("IsLeader: %v", err)
		}
		<-e.Done()
	}
}

// A job is tried once. With a client that caches which locks are held, a TryLock just after the last job's end may be
// refused in all processes: then no process would run the job.
func TestALockOfAJobIsAskedOfTheStore(t *testing.T) {
	locks := check.Value(mortise.New(memory.New())).In(t)
	defer locks.Close()
	l := &marked{Locker: locks}
	lock := check.Value(gocronlock.Locker(l, "jobs:").Lock(t.Context(), "x")).In(t)
	check.Done(t, lock.Unlock(t.Context()))
	check.ErrorIf(t, !l.asks, "the held cache may refuse the lock of a job")
}

type marked struct {
	mortise.Locker
	asks bool
}

func (m *marked) TryLock(ctx context.Context, name string, opts ...mortise.Option) (*mortise.Lease, error) {
	m.asks = asked.Is(ctx)
	return m.Locker.TryLock(ctx, name, opts...)
}

// In memory the store knows since when.
func TestARefusalSaysWhoHasTheJobAndSinceWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		a, b := check.Value(mortise.New(store)).In(t), check.Value(mortise.New(store)).In(t)
		defer a.Close()
		defer b.Close()
		time.Sleep(time.Hour)
		since := time.Now().Format(time.RFC3339)
		lease := check.Value(a.Lock(t.Context(), "jobs:report")).In(t)
		time.Sleep(time.Minute)
		_, err := gocronlock.Locker(b, "jobs:").Lock(t.Context(), "report")
		want := fmt.Sprintf("gocronlock: job %q is skipped, held by %s since %s: ", "report", lease.Owner(), since)
		check.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired) || !strings.HasPrefix(err.Error(), want), "%v", err)
	})
}
