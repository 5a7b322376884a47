// Package gocronlock runs each job of [gocron] in one process of a fleet: the package implements
// gocron's Locker and Elector. The package is a module of its own, so only its users get gocron.
//
//	elector := gocronlock.Elect(ctx, client, "scheduler")
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// # Which of the two
//
// With [Elect] one process runs all jobs, until the process stops or dies. Elect suits jobs at any
// times: take Elect unless the jobs are too many for one process.
//
// With [Locker] the processes share the jobs: each process tries to run each job at its own time,
// and while the lock of the job is held, other processes are refused. gocron does not compare times
// between processes, so a process that arrives after the end of the job runs the job again: see
// [Splay]. Jobs at fixed times (gocron.CronJob, gocron.DailyJob) start at almost the same time in
// all processes. Jobs at intervals (gocron.DurationJob) start at any time, since each process
// counts from its own start: give such jobs gocron.WithStartAt, or take Elect.
//
// A job at a fixed interval with exactly one start in the fleet, by one clock, needs neither: see
// package once.
//
// [gocron]: https://pkg.go.dev/github.com/go-co-op/gocron/v2
package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/leader"
	"github.com/mortise-go/mortise/middleware"
)

var (
	_ gocron.Locker  = (*locker)(nil)
	_ gocron.Elector = (*Elector)(nil)
)

// Option changes a [Locker].
type Option func(*locker)

// DefaultSplay is the splay of a Locker without [Splay].
const DefaultSplay = 500 * time.Millisecond

// Splay keeps a job locked for d from the acquisition of its lock, even if the job ends before: a
// process whose clock is behind by less than d is refused. d must be longer than the difference of
// the clocks, and shorter than the shortest interval between two runs of a job. Zero, or less,
// unlocks a job at its end.
func Splay(d time.Duration) Option { return func(k *locker) { k.splay = d } }

// Locker locks each run of a job for gocron.WithDistributedLocker and
// gocron.WithDistributedJobLocker. The lock's name is the prefix and the job's name. The job's name
// is the name of its function unless gocron.WithName gives another: choose a prefix not used by any
// other program on the store.
//
// The lock is held while the job runs, and for the splay: see [Splay]. The lock is renewed
// meanwhile. gocron has no way to tell a job about the loss of its lock, so a job cut off from the
// store goes on while another process runs the same job. A job that must notice takes a lock
// itself, with its context.
//
// A process that dies leaves the job locked until the lease is over: the client's watchdog timeout.
// So does a process that ends within the splay without closing its client. mortise.Client.Close
// waits for the splay, for five seconds at most; if the splay is longer, use mortise.Client.Shutdown
// with more time.
//
// If a job is refused, gocron's AfterLockError gets mortise.ErrNotAcquired if another process runs
// the job, or another error of TryLock. With a *mortise.Client the text of a refusal says who has the
// job, and since when if the store knows: "skipped, held by X since Y". Cost: a TryLock for each job
// and process, an Inspect for each refusal, and an Unlock for each run.
func Locker(l mortise.Locker, prefix string, opts ...Option) gocron.Locker {
	k := &locker{locks: l, prefix: prefix, splay: DefaultSplay}
	if l == nil {
		k.err = fmt.Errorf("gocronlock: %w: the Locker is nil; pass a *mortise.Client", mortise.ErrInvalid)
	}
	for _, o := range opts {
		if o == nil {
			k.err = fmt.Errorf("gocronlock: %w: a nil Option; omit it", mortise.ErrInvalid)
			return k
		}
		o(k)
	}
	return k
}

type locker struct {
	locks  mortise.Locker
	prefix string
	splay  time.Duration
	err    error // of the arguments of Locker
}

// releasing bounds how long the end of a job waits for the store. The release is sent in any case.
const releasing = 5 * time.Second

// Lock implements [gocron.Locker]. The context ends with the scheduler, or with the removal of the job: the end of the
// context ends the wait for the store, and does not end a lease.
func (k *locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	if k.err != nil {
		return nil, k.err
	}
	asking, leave := context.WithCancelCause(context.WithoutCancel(ctx))
	stay := context.AfterFunc(ctx, func() { leave(context.Cause(ctx)) })
	// A job is tried once at its time: the store decides. By their held caches all processes might be refused.
	lease, err := k.locks.TryLock(middleware.AskStore(asking), k.prefix+job)
	switch stayed := stay(); {
	case errors.Is(err, mortise.ErrNotAcquired) && stayed:
		return nil, k.skipped(ctx, job, err)
	case err != nil:
		return nil, err
	case !stayed:
		_ = lease.Unlock(ctx) // the client sends the release without a wait
		return nil, fmt.Errorf("gocronlock: the lock of job %q came too late: %w", job, context.Cause(ctx))
	}
	return held{lease, time.Now().Add(k.splay)}, nil
}

// skipped adds to a refusal who has the job, where the Locker can tell.
func (k *locker) skipped(ctx context.Context, job string, err error) error {
	client, can := k.locks.(interface {
		Inspect(context.Context, string) (mortise.LockInfo, error)
	})
	if !can {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	switch info, failed := client.Inspect(ctx, k.prefix+job); {
	case failed != nil || !info.Held:
		return err
	case info.Since.IsZero():
		return fmt.Errorf("gocronlock: job %q is skipped, held by %s: %w", job, info.Owner, err)
	default:
		return fmt.Errorf("gocronlock: job %q is skipped, held by %s since %s: %w", job, info.Owner,
			info.Since.Format(time.RFC3339), err)
	}
}

// looking bounds how long a refusal waits for the name of the holder.
const looking = 250 * time.Millisecond

// held is the lock of a running job.
type held struct {
	lease *mortise.Lease
	until time.Time // the end of the splay
}

// Unlock implements [gocron.Lock]. It ignores the context, which ends with the scheduler. gocron drops
// the error.
func (h held) Unlock(context.Context) error {
	rest := time.Until(h.until)
	if rest <= 0 {
		ctx, cancel := context.WithTimeout(context.Background(), releasing)
		defer cancel()
		return h.lease.Unlock(ctx)
	}
	go func() {
		t := time.NewTimer(rest)
		defer t.Stop()
		select {
		case <-t.C:
		case <-h.lease.Context().Done(): // lost, or the client is closed
		}
		_ = h.lease.Unlock(context.Background()) // the client repeats a failed release
	}()
	return nil
}

// ErrNotLeader is returned by [Elector.IsLeader] if another process leads, or none.
var ErrNotLeader = errors.New("gocronlock: this process does not lead")

// Elector is a candidate for leadership, for gocron.WithDistributedElector.
type Elector struct {
	term atomic.Pointer[leader.Term] // nil unless the process leads
	done chan struct{}
	err  error // the error of leader.Run; set before done is closed
}

// Elect campaigns for leadership under a name until ctx ends, as [leader.Run] does, and then
// resigns. End ctx after the scheduler's Shutdown; the Shutdown waits for running jobs. Each due
// job asks whether its process leads; a running job goes on when leadership is lost. Cost: the cost
// of leader.Run; a job asks without a command.
func Elect(ctx context.Context, l mortise.Locker, name string, opts ...leader.Option) *Elector {
	e := &Elector{done: make(chan struct{})}
	go func() {
		defer close(e.done)
		e.err = leader.Run(ctx, l, name, func(ctx context.Context, term leader.Term) error {
			e.term.Store(&term)
			defer e.term.Store(nil)
			<-ctx.Done()
			return ctx.Err()
		}, opts...)
	}()
	return e
}

// IsLeader implements [gocron.Elector]. IsLeader returns nil while the process leads, by the clock
// and not only by messages received. Otherwise the error wraps [ErrNotLeader], and the error of
// leader.Run after the return of leader.Run.
func (e *Elector) IsLeader(context.Context) error {
	if e == nil || e.done == nil {
		return fmt.Errorf("%w: %w: the Elector is nil or a zero value; make it with Elect", ErrNotLeader, mortise.ErrInvalid)
	}
	select {
	case <-e.done:
		return fmt.Errorf("%w, and campaigns no more: %w", ErrNotLeader, e.err)
	default:
	}
	term := e.term.Load()
	if term == nil {
		return ErrNotLeader
	}
	if err := term.Err(); err != nil {
		return fmt.Errorf("%w any more: %w", ErrNotLeader, err)
	}
	return nil
}

// Done is closed once the candidate has resigned: after the end of ctx, or after an error of
// leader.Run; IsLeader then returns this error.
func (e *Elector) Done() <-chan struct{} {
	if e == nil || e.done == nil {
		return closed
	}
	return e.done
}

// closed is the Done of an Elector that Elect has not made.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
