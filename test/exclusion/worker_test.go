//go:build linux

package exclusion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// workerConfig is what a worker is told by its environment.
type workerConfig struct {
	Process  int
	Ledger   string
	Site     harness.Site
	Client   string // "go-redis" or "rueidis"
	Workload string // "crowd", "rounds" or "turns"
	// What is fought for: "lock", "fair", "rw", "counting semaphore" or "semaphore"; "LockAll", a lock that half of the
	// goroutines take together with another; "polling", one that half of them poll for. "" is "lock".
	What       string
	Size       int // how many permits there are
	Goroutines int
	Watchdog   time.Duration
	Prefix     string
	// Overstay is how many holds there are for one that takes a short lease which is
	// not renewed, and that stays longer than it; 0 for none.
	Overstay int
	// Fenced makes all locks fenced; otherwise every second goroutine's are.
	Fenced bool
	Broken string // which of the broken locks to use; see broken
}

// patience bounds what takes no time worth speaking of: a process starts, or ends.
const patience = time.Minute

const workerEnv = "MORTISE_EXCLUSION_WORKER"

// command is that worker process.
func (w workerConfig) command(process int, client string, goroutines int) *exec.Cmd {
	w.Process, w.Client, w.Goroutines = process, client, goroutines
	return harness.Self(workerEnv, w)
}

// atEnd is what is done after all tests.
var atEnd []func()

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	harness.Worker(workerEnv, work)
	code := m.Run()
	for _, f := range atEnd {
		f()
	}
	os.Exit(code)
}

type worker struct {
	workerConfig
	book   *harness.Ledger
	client *mortise.Client
	plain  mortise.Locker // or fair, as the configuration says
	fenced mortise.Locker
	polls  mortise.Locker
	ctx    context.Context // ends when all is to end
	inside sync.Map        // owner's name and holder's entry, for renewals; by lock name
}

// broken is a backend, or one that is wrong as its name says: see broken_test.go.
var broken = func(_ string, b backend.Backend) backend.Backend { return b }

// here is the worker's process: what fails here ends it, and shows on standard error.
var here harness.InWorker

// open makes the worker's client and its lockers.
func (w *worker) open() (below func()) {
	b, below, err := w.Site.Open(w.Client)
	harness.OK(here, err)
	w.client = harness.Must(mortise.New(broken(w.Broken, b), mortise.WithWatchdogTimeout(w.Watchdog),
		mortise.WithObserver(onRenewal(func(name string, took time.Duration) {
			if v, ok := w.inside.Load(name); ok {
				v.(*harness.Entry).Renewed.Store(harness.Now() - int64(took))
			}
		}))))(here)
	w.plain, w.fenced, w.polls, err = lockers(w.client, w.What == "fair")
	harness.OK(here, err)
	harness.OK(here, w.client.Ping(context.Background()))
	return below
}

func work(config workerConfig) error {
	w := &worker{workerConfig: config}
	book, unmap, err := harness.Map[harness.Ledger](w.Ledger)
	harness.OK(here, err)
	defer unmap()
	w.book = book
	defer w.open()()
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM) // this process ends alone
	defer cancel()
	w.ctx = ctx
	var wg sync.WaitGroup
	wg.Go(func() {
		for book.Stop.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	})

	book.Worker[w.Process].Ready.Store(1)
	for i := range w.Goroutines {
		wg.Go(func() {
			switch w.Workload {
			case "rounds":
				w.rounds(i)
			case "turns":
				w.turns(i)
			default:
				w.crowd(i)
			}
		})
	}
	wg.Wait()
	end, done := context.WithTimeout(context.Background(), patience*3/4)
	defer done()
	if err := w.client.Shutdown(end); err != nil && w.Broken == "" {
		return err
	}
	return nil
}

// crowd takes one lock again and again.
func (w *worker) crowd(i int) {
	for w.ctx.Err() == nil {
		w.visit(i, 0, time.Duration(rand.IntN(1500))*time.Microsecond)
	}
}

// rounds takes one lock in each round, together with everybody else, and then none
// until the next round: no release comes later that would wake a waiter which
// slept through an earlier one.
func (w *worker) rounds(i int) {
	self := &w.book.Worker[w.Process]
	for done := int64(0); w.ctx.Err() == nil; {
		round := w.book.Round.Load()
		if round == done {
			time.Sleep(20 * time.Microsecond)
			continue
		}
		for w.ctx.Err() == nil && !w.visit(i, round, time.Duration(rand.IntN(1000))*time.Microsecond) {
		}
		done = round
		self.Round.Store(round)
	}
}

// turns takes one lock again and again, for a millisecond each.
func (w *worker) turns(i int) {
	for w.ctx.Err() == nil {
		w.visit(i, 0, time.Millisecond)
	}
}

// held is what a worker is inside of.
type held interface{ Err() error }

// slots is a counting semaphore.
type slots interface {
	Acquire(ctx context.Context, n int, opts ...mortise.Option) error
	Release(ctx context.Context, n int) error
}

// always is held until it is released: a permit of a semaphore.
type always struct{}

func (always) Err() error { return nil }

// leaving gives back what one is inside of, whose hold has that index.
type leaving func(index int64) error

// visit takes a lock, or what else is fought for, is inside for a while, and leaves. It
// tells whether it got in.
func (w *worker) visit(i int, name int64, stay time.Duration) bool {
	opts := []mortise.Option{mortise.WithWait(time.Minute)}
	overstay := w.Overstay > 0 && w.What != "counting semaphore" && rand.IntN(w.Overstay) == 0
	if overstay {
		opts = append(opts, mortise.WithLease(60*time.Millisecond))
		stay = time.Duration(60+rand.IntN(40)) * time.Millisecond
	}
	key := fmt.Sprint(w.Prefix, name)
	switch w.What {
	case "rw":
		return w.visitSide(i, name, key, stay, overstay, opts)
	case "counting semaphore":
		s := counting(w.client, key)
		return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
			err := s.Acquire(w.ctx, 1, opts...)
			return always{}, 0, func(int64) error { return s.Release(context.Background(), 1) }, err
		})
	case "semaphore":
		return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
			p, err := permit(w.ctx, w.client, key, opts)
			return p, 0, func(int64) error { return p.Release(context.Background()) }, err
		})
	}
	locker := w.plain
	switch {
	case w.What == "LockAll" && i%2 == 0:
		names := []string{fmt.Sprint(w.Prefix, 1), fmt.Sprint(w.Prefix, 0)}
		return w.enter(i, rand.Int64N(2), stay, overstay, false, func() (held, int64, leaving, error) {
			lease, err := lockAll(w.ctx, w.plain, names, opts)
			return lease, 0, func(int64) error { return lease.Unlock(context.Background()) }, err
		})
	case w.What == "LockAll":
		name = int64(i / 2 % 2)
		key = fmt.Sprint(w.Prefix, name)
	case w.What == "polling" && i%2 == 0:
		locker = w.polls
	case w.Fenced || w.What != "plain" && i%2 == 0:
		locker = w.fenced
	}
	return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
		lease, err := locker.Lock(w.ctx, key, opts...)
		return lease, tokenOf(lease), func(int64) error { return lease.Unlock(context.Background()) }, err
	})
}

// visitSide reads, or writes; of those that write, some go on as readers.
func (w *worker) visitSide(i int, name int64, key string, stay time.Duration, overstay bool,
	opts []mortise.Option) bool {
	read, write := w.client.RW().Read, w.client.RW().Write
	side, shared := read, true
	if rand.IntN(4) == 0 {
		side, shared = write, false
	}
	downgrade := !shared && rand.IntN(2) == 0
	return w.enter(i, name, stay, overstay, shared, func() (held, int64, leaving, error) {
		lease, err := side.Lock(w.ctx, key, opts...)
		return lease, 0, func(own int64) error {
			if !downgrade {
				return lease.Unlock(context.Background())
			}
			return w.downgrade(i, name, key, stay, read, lease, own)
		}, err
	})
}

// downgrade locks read with a writer's lease, unlocks write, stays, and unlocks read. It
// returns what write's Unlock did; what became of read is written down in an entry of its own.
func (w *worker) downgrade(i int, name int64, key string, stay time.Duration, read mortise.Locker,
	writer *mortise.Lease, own int64) error {
	begun := harness.Now()
	reader, err := read.Lock(writer.Context(), key, mortise.WithWait(time.Minute))
	if err != nil {
		return writer.Unlock(context.Background()) // the writer's lease is over
	}
	e, index := w.book.Begin()
	if e == nil {
		reader.Unlock(context.Background())
		return writer.Unlock(context.Background())
	}
	e.Under.Store(own + 1)
	w.describe(e, i, name, begun, true)
	at := harness.Now()
	if reader.Err() == nil {
		e.Claim(at)
	}
	err = writer.Unlock(context.Background())
	w.stay(e, index, reader, stay, false) // in the writer's place
	e.Leave(reader.Unlock(context.Background()))
	return err
}

// shapes are what is fought for.
var shapes = map[string]harness.Shape{
	"": harness.Plain, "fair": harness.Fair, "rw": harness.ReadWrite, "counting semaphore": harness.Permits,
	"semaphore": harness.Permits,
}

func (w *worker) describe(e *harness.Entry, i int, name, begun int64, shared bool) {
	e.Describe(name, int64(w.Process), int64(i), shapes[w.What], w.Size, shared)
	e.Renewed.Store(begun)
	e.Got.Store(harness.Now())
	e.Begun.Store(begun)
}

// enter takes what is fought for, stays inside, and leaves, and writes it all down. take
// returns a fencing token if there is one, and how to leave.
func (w *worker) enter(i int, name int64, stay time.Duration, overstay, shared bool,
	take func() (held, int64, leaving, error)) bool {
	self := &w.book.Worker[w.Process]
	begun := harness.Now() // a worker that is seen to wait has begun
	self.Waiting.Add(1)
	what, token, leave, err := take()
	self.Waiting.Add(-1)
	if err != nil {
		if w.ctx.Err() == nil {
			self.Failures.Add(1)
			time.Sleep(time.Millisecond)
		}
		return false
	}
	e, index := w.book.Begin()
	if e == nil {
		leave(index)
		return false
	}
	e.Token.Store(token)
	w.describe(e, i, name, begun, shared)
	key := fmt.Sprint(w.Prefix, name)
	w.inside.Store(key, e)
	w.stay(e, index, what, stay, overstay)
	e.Leaving.Store(harness.Now())
	err = leave(index)
	w.inside.CompareAndDelete(key, e)
	e.Leave(err)
	return true
}

// stay is the critical section.
func (w *worker) stay(e *harness.Entry, index int64, lease held, stay time.Duration, overstay bool) {
	until := harness.Now() + int64(stay)
	pause := func(at int64) time.Duration {
		if w.Workload == "turns" { // and ask once more then
			return max(time.Duration(until-at), 100*time.Microsecond)
		}
		return 100 * time.Microsecond
	}
	w.book.Stay(w.Process, e, index, lease, harness.Stay{
		Until: until, Overstay: overstay, Linger: true, Over: func() bool { return w.ctx.Err() != nil }, Pause: pause,
	})
}
