//go:build linux

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

const workerEnv = "MORTISE_CHAOS_WORKER"

// workerConfig is what a worker is told by its environment.
type workerConfig struct {
	Process    int
	Ledger     string
	Site       harness.Site
	Client     string
	Lock       string // "": mortise; else one made by hand, and how it is broken
	Lease      time.Duration
	Prefix     string
	Goroutines int
	Think      time.Duration // between two visits, on average
}

// worker is a process that takes locks, again and again.
type worker struct {
	workerConfig
	book *harness.Ledger
	lock locker
	ctx  context.Context // ends when all is to end
}

// lease is what the worker needs of one.
type lease interface {
	Err() error
	Token() int64
	Unlock(context.Context) error
}

// locker is what the worker fights for; only mortise has all of it.
type locker interface {
	take(ctx context.Context, name string, w want) (lease, error)
	close(context.Context) error
}

// want is how a lock is asked for.
type want struct {
	shape       harness.Shape
	reads       bool // of a read-write lock
	fenced, try bool
	lease       time.Duration // 0: renewed
	wait        time.Duration // 0: for as long as it takes
}

// patient is how many goroutines of a process wait for as long as it takes.
const patient = 2

// Of the names of a generation, so many are wanted by all, and so many by few.
const (
	hotNames   = len(shapes)
	coldNames  = 5 * len(shapes)
	longNames  = len(shapes) // held for long, and wanted by some
	generation = int64(hotNames + coldNames + longNames)
)

func (c workerConfig) key(name int64) string { return fmt.Sprint(c.Prefix, name) }

// shapes are those of names, in turn.
var shapes = [...]harness.Shape{harness.Plain, harness.Plain, harness.Fair, harness.ReadWrite, harness.Permits}

func shapeOf(name int64) harness.Shape { return shapes[name%generation%int64(len(shapes))] }

const permitsMade = 2

func work(config workerConfig) error {
	w := &worker{workerConfig: config}
	goredis.SetLogger(harness.Silent{})
	book, unmap, err := harness.Map[harness.Ledger](w.Ledger)
	if err != nil {
		return err
	}
	defer unmap()
	w.book = book
	if w.lock, err = w.locker(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	var wg sync.WaitGroup
	wg.Go(func() { book.Feel(func() bool { return ctx.Err() != nil }) })
	for i := range w.Goroutines {
		wg.Go(func() {
			for w.ctx.Err() == nil {
				w.visit(i)
				w.pause(rand.N(2*w.Think + 1))
			}
		})
	}
	book.Worker[w.Process].Ready.Store(1)
	for book.Stop.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	wg.Wait()
	end, done := context.WithTimeout(context.Background(), patience/2)
	defer done()
	if err := w.lock.close(end); err != nil {
		return err
	}
	return w.leaks()
}

// leaks waits for what libraries are still closing, and tells what never ends.
func (w *worker) leaks() (err error) {
	// go-redis looks for its server once a second, and then sees that the client is closed.
	opts := []goleak.Option{goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")}
	for end := time.Now().Add(patience / 4); ; {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
		if time.Now().After(end) {
			break
		}
	}
	// rueidis (1.0.71 to 1.0.79) keeps a connection for ever where a command, or its look at a cluster's slots, was
	// dialling it while it was closed or another master took its place: mux.Close, then mux._pipe stores
	// what it dialled. A test of how many there are is finish's.
	if (w.Site.Sentinels || w.Site.Cluster) && goleak.Find(append(opts,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundRead"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundWrite"))...) == nil {
		w.book.Strays.Add(1)
		return nil
	}
	return err
}

func (w *worker) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// mortises are locks of mortise.
type mortises struct {
	client      *mortise.Client
	fair        [2]mortise.Locker // not fenced, and fenced; plain likewise
	plain       [2]mortise.Locker
	read, write mortise.Locker
	below       func()
}

func (w *worker) locker() (locker, error) {
	mutant := slices.Contains(mutants, w.Lock)
	if w.Lock != "" && !mutant {
		return newHandmade(w.workerConfig, w.book), nil
	}
	b, below, err := w.Site.Open(w.Client)
	if err != nil {
		return nil, err
	}
	client, err := mortise.New(b, mortise.WithWatchdogTimeout(w.Lease))
	if err != nil {
		return nil, err
	}
	m := &mortises{client: client, below: below}
	for i, fenced := range []mortise.Option{{}, mortise.Fenced()} {
		m.plain[i], m.fair[i] = client.With(fenced), client.With(fenced, mortise.Fair())
	}
	m.read, m.write = client.RW().Read, client.RW().Write
	if mutant {
		return &mutated{m, w.Lock}, nil
	}
	return m, nil
}

func (m *mortises) take(ctx context.Context, name string, w want) (lease, error) {
	var opts []mortise.Option
	if w.lease > 0 {
		opts = append(opts, mortise.WithLease(w.lease))
	}
	if w.wait > 0 && !w.try {
		opts = append(opts, mortise.WithWait(w.wait))
	}
	fenced := 0
	if w.fenced {
		fenced = 1
	}
	var l mortise.Locker
	switch {
	case w.shape == harness.Permits:
		return m.permit(ctx, name, w.try, opts)
	case w.reads:
		l = m.read
	case w.shape == harness.ReadWrite:
		l = m.write
	case w.shape == harness.Fair:
		l = m.fair[fenced]
	default:
		l = m.plain[fenced]
	}
	if w.try {
		return l.TryLock(ctx, name, opts...)
	}
	return l.Lock(ctx, name, opts...)
}

// permit takes one, of those that it makes if there are none.
func (m *mortises) permit(ctx context.Context, name string, try bool, opts []mortise.Option) (lease, error) {
	p := semaphore.New(m.client, name, 0)
	if _, err := p.TrySetPermits(ctx, permitsMade); err != nil {
		return nil, err
	}
	take := p.Acquire
	if try {
		take = p.TryAcquire
	}
	permit, err := take(ctx, 1, opts...)
	if err != nil {
		return nil, err
	}
	return permitLease{permit}, nil
}

// permitLease is a permit that looks like a lease.
type permitLease struct{ *semaphore.Permit }

func (permitLease) Token() int64                       { return 0 }
func (p permitLease) Unlock(ctx context.Context) error { return p.Release(ctx) }

func (m *mortises) close(ctx context.Context) error {
	defer m.below()
	return m.client.Shutdown(ctx)
}

// visit takes a lock, is inside for a while, and leaves, and writes it all down.
func (w *worker) visit(i int) {
	name := w.book.Round.Load() * generation
	hot := rand.IntN(5) == 0
	if hot {
		name += rand.Int64N(int64(hotNames))
	} else {
		name += int64(hotNames) + rand.Int64N(int64(coldNames))
	}
	s := shapeOf(name)
	wants := want{shape: s, reads: s == harness.ReadWrite && rand.IntN(3) > 0, fenced: i%2 == 0 && s.Fenced(),
		try: rand.IntN(8) == 0}
	long := false // held for more than a lease, and renewed meanwhile
	switch dice := rand.IntN(1000); {
	case s == harness.Permits:
		long = hot && dice < 20
	case wants.reads:
		long = !hot && dice < 3
	case dice < 2: // alone, so not where many would have to wait
		long, hot = true, false
		name += int64(hotNames+coldNames) + name%int64(longNames) - name%generation
	}
	// A fenced lock is held for a millisecond at least: see docs/explanation/guarantees.md.
	stay := time.Millisecond + rand.N(time.Millisecond)
	overstay := false
	switch dice := rand.IntN(1000); {
	case long:
		stay = w.Lease + rand.N(w.Lease/2)
	case dice < 150: // a lease that is not renewed
		wants.lease = 60*time.Millisecond + rand.N(140*time.Millisecond)
		if overstay = dice < 30; overstay {
			stay = wants.lease + rand.N(20*time.Millisecond)
		}
	}
	if i >= patient { // others give up, and give others room: a goroutine that waits for one name does not ask for another
		wants.wait = 50*time.Millisecond + rand.N(200*time.Millisecond)
	}

	e, index := w.book.Begin()
	if e == nil {
		w.pause(time.Second)
		return
	}
	self := &w.book.Worker[w.Process]
	e.Describe(name, int64(w.Process), int64(i), s, permitsMade, wants.reads)
	e.Begun.Store(harness.Now())
	waits := hot && !wants.try
	if waits {
		self.Waiting.Add(1)
	}
	l, err := w.lock.take(w.ctx, w.key(name), wants)
	if waits {
		self.Waiting.Add(-1)
	}
	if err != nil {
		if e.Fail(err); e.End.Load() == harness.Failed {
			w.pause(5 * time.Millisecond)
		}
		return
	}
	token := l.Token()
	e.Token.Store(token)
	e.Got.Store(harness.Now())
	step := 100 * time.Microsecond
	w.book.Stay(w.Process, e, index, l, harness.Stay{
		Until: harness.Now() + int64(stay), Overstay: overstay, Linger: hot,
		Over:  func() bool { return w.ctx.Err() != nil },
		Pause: func(int64) time.Duration { step = min(2*step, 5*time.Millisecond); return step },
	})
	e.Leaving.Store(harness.Now())
	e.Leave(l.Unlock(context.Background()))
}
