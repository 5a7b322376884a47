//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/mortise-go/mortise"
)

const workerEnv = "MORTISE_CHAOS_WORKER"

// workerConfig is what a worker is told by its environment.
type workerConfig struct {
	Process    int
	Ledger     string
	Site       string
	Addrs      []string          // of the servers, or of the sentinels
	Wires      map[string]string // where to connect to instead
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
	book *ledger
	lock locker
	ctx  context.Context // ends when all is to end
}

// lease is what the worker needs of one.
type lease interface {
	Err() error
	Token() (int64, bool)
	Unlock(context.Context) error
}

// locker is what the worker fights for; only mortise has all of it.
type locker interface {
	take(ctx context.Context, name string, w want) (lease, error)
	close(context.Context) error
}

// want is how a lock is asked for.
type want struct {
	shape       shape
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

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

func work(config string) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(config), &w.workerConfig); err != nil {
		return err
	}
	goredis.SetLogger(silent{})
	book, unmap, err := openLedger(w.Ledger)
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
	wg.Go(func() { book.feel(func() bool { return ctx.Err() != nil }) })
	for i := range w.Goroutines {
		wg.Go(func() {
			for w.ctx.Err() == nil {
				w.visit(i)
				w.pause(rand.N(2*w.Think + 1))
			}
		})
	}
	book.worker[w.Process].ready.Store(1)
	for book.stop.Load() == 0 {
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
	if w.Site != standalone && goleak.Find(append(opts,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundRead"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)._backgroundWrite"))...) == nil {
		w.book.strays.Add(1)
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
	b, below, err := w.backend()
	if err != nil {
		return nil, err
	}
	client, err := mortise.New(b, mortise.WithWatchdogTimeout(w.Lease))
	if err != nil {
		return nil, err
	}
	m := &mortises{client: client, below: below}
	for i, fenced := range []bool{false, true} {
		for kind, to := range map[mortise.Kind]*mortise.Locker{{Fenced: fenced}: &m.plain[i], {Fenced: fenced, Fair: true}: &m.fair[i]} {
			if *to, err = client.Kind(kind); err != nil {
				return nil, err
			}
		}
	}
	m.read, m.write = client.RW()
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
	case w.shape == permits:
		return m.permit(ctx, name, w.try, opts)
	case w.reads:
		l = m.read
	case w.shape == readWrite:
		l = m.write
	case w.shape == fair:
		l = m.fair[fenced]
	default:
		l = m.plain[fenced]
	}
	if w.try {
		return l.TryLock(ctx, name, opts...)
	}
	return l.Lock(ctx, name, opts...)
}

// permit takes one, of those that it makes if nobody has.
func (m *mortises) permit(ctx context.Context, name string, try bool, opts []mortise.Option) (lease, error) {
	p := m.client.Permits(name)
	if _, err := p.TrySetPermits(ctx, permitsMade); err != nil {
		return nil, err
	}
	take := p.Acquire
	if try {
		take = p.TryAcquire
	}
	permit, err := take(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return permitLease{permit}, nil
}

// permitLease is a permit that looks like a lease.
type permitLease struct{ *mortise.Permit }

func (permitLease) Token() (int64, bool)               { return 0, false }
func (p permitLease) Unlock(ctx context.Context) error { return p.Release(ctx) }

func (m *mortises) close(ctx context.Context) error {
	defer m.below()
	return m.client.Shutdown(ctx)
}

// visit takes a lock, is inside for a while, and leaves, and writes it all down.
func (w *worker) visit(i int) {
	name := w.book.generation.Load() * generation
	hot := rand.IntN(5) == 0
	if hot {
		name += rand.Int64N(int64(hotNames))
	} else {
		name += int64(hotNames) + rand.Int64N(int64(coldNames))
	}
	s := shapeOf(name)
	wants := want{shape: s, reads: s == readWrite && rand.IntN(3) > 0, fenced: i%2 == 0 && s.fenced(), try: rand.IntN(8) == 0}
	long := false // held for more than a lease, and renewed meanwhile
	switch dice := rand.IntN(1000); {
	case s == permits:
		long = hot && dice < 20
	case wants.reads:
		long = !hot && dice < 3
	case dice < 2: // alone, so not where many would have to wait
		long, hot = true, false
		name += int64(hotNames+coldNames) + name%int64(longNames) - name%generation
	}
	// A fenced lock is held for a millisecond at least: see docs/guarantees.md.
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
	if i >= patient { // others give up, and give others room: who waits for one name does not ask for another
		wants.wait = 50*time.Millisecond + rand.N(200*time.Millisecond)
	}

	e, index := w.book.begin()
	if e == nil {
		w.pause(time.Second)
		return
	}
	self := &w.book.worker[w.Process]
	e.name.Store(name)
	e.process.Store(int64(w.Process))
	e.who.Store(int64(i))
	if wants.reads {
		e.reads.Store(1)
	}
	e.begun.Store(now())
	waits := hot && !wants.try
	if waits {
		self.waiting.Add(1)
	}
	l, err := w.lock.take(w.ctx, w.key(name), wants)
	if waits {
		self.waiting.Add(-1)
	}
	if err != nil {
		e.freed.Store(now())
		if errors.Is(err, mortise.ErrNotAcquired) {
			e.end.Store(denied)
			return
		}
		e.end.Store(failed)
		w.pause(5 * time.Millisecond)
		return
	}
	token, _ := l.Token()
	e.token.Store(token)
	e.got.Store(now())
	w.stay(e, index, l, stay, hot, overstay)
	e.leaving.Store(now())
	err = l.Unlock(context.Background())
	e.freed.Store(now())
	switch {
	case err == nil:
		e.end.Store(released)
	case errors.Is(err, mortise.ErrNotHeld):
		e.end.Store(notHeld)
	default:
		e.end.Store(unsure)
	}
}

// stay is the critical section: it asks the lease, writes down what it says, and writes to
// the fenced store.
func (w *worker) stay(e *entry, index int64, l lease, stay time.Duration, hot, overstay bool) {
	self := &w.book.worker[w.Process]
	until := now() + int64(stay)
	defer self.lingering.CompareAndSwap(index+1, 0)
	for step := 200 * time.Microsecond; ; step = min(2*step, 5*time.Millisecond) {
		at, err := now(), l.Err()
		switch {
		case err == nil:
			e.last.Store(at)
			e.first.CompareAndSwap(0, at)
		case e.told.Load() == 0:
			if errors.Is(err, mortise.ErrLost) {
				e.lost.Store(1)
			}
			e.told.Store(at)
		}
		if !w.write(e) {
			if at := now(); l.Err() == nil {
				e.refused.CompareAndSwap(0, at)
			} else {
				e.stale.CompareAndSwap(0, at)
			}
		}
		if err != nil && !overstay {
			return
		}
		linger := hot && self.linger.Load() != 0 && w.ctx.Err() == nil && err == nil
		if linger {
			self.lingering.CompareAndSwap(0, index+1)
		}
		if at >= until && !linger || w.ctx.Err() != nil {
			return
		}
		time.Sleep(step)
	}
}

// write writes to the fenced store; it says no to a token that is smaller than one it has seen.
func (w *worker) write(e *entry) bool {
	token := e.token.Load()
	if token == 0 {
		return true
	}
	cell := &w.book.store[e.name.Load()%maxNames]
	for {
		seen := cell.Load()
		if token < seen {
			return false
		}
		if cell.CompareAndSwap(seen, token) {
			return true
		}
	}
}
