//go:build linux

package exclusion

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// workerConfig is what a worker is told by its environment.
type workerConfig struct {
	Process    int
	Ledger     string
	Addr       string
	Client     string // "go-redis" or "rueidis"
	Workload   string // "crowd", "rounds" or "turns"
	What       string // what is fought for: "lock", "fair", "rw", "counting semaphore" or "semaphore"; "" is "lock"
	Size       int    // how many permits there are
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

const workerEnv = "MORTISE_EXCLUSION_WORKER"

// TestMain makes this binary a worker if it is told to be one.
func TestMain(m *testing.M) {
	harness.Worker(workerEnv, work)
	os.Exit(m.Run())
}

type worker struct {
	workerConfig
	book   *harness.Ledger
	client *mortise.Client
	plain  mortise.Locker // or fair, as the configuration says
	fenced mortise.Locker
	ctx    context.Context // ends when all is to end
	inside sync.Map        // owner's name and holder's entry, for renewals; by lock name
}

// here is the worker's process: what fails here ends it, and shows on standard error.
var here harness.InWorker

// open makes the worker's client and its lockers.
func (w *worker) open() (below func()) {
	b, below, err := harness.At(w.Addr).Open(w.Client)
	harness.OK(here, err)
	w.client = harness.Must(mortise.New(broken(w.Broken, b), mortise.WithWatchdogTimeout(w.Watchdog),
		mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.RenewedEvent) {
				if v, ok := w.inside.Load(e.Name); ok {
					v.(*harness.Entry).Renewed.Store(harness.Now() - int64(e.Took))
				}
			},
		})))(here)
	var kind mortise.LockerOption
	if w.What == "fair" {
		kind = mortise.Fair()
	}
	w.plain = harness.Locker(here, w.client, kind)
	w.fenced = harness.Locker(here, w.client, kind, mortise.Fenced())
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
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.ctx = ctx
	go func() {
		for book.Stop.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()

	book.Worker[w.Process].Ready.Store(1)
	var wg sync.WaitGroup
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
		s := w.client.CountingSemaphore(key)
		return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
			err := s.Acquire(w.ctx, 1, opts...)
			return always{}, 0, func(int64) error { return s.Release(context.Background(), 1) }, err
		})
	case "semaphore":
		return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
			p, err := w.client.Semaphore(key).Acquire(w.ctx, opts...)
			return p, 0, func(int64) error { return p.Release(context.Background()) }, err
		})
	}
	locker := w.plain
	if w.Fenced || i%2 == 0 {
		locker = w.fenced
	}
	return w.enter(i, name, stay, overstay, false, func() (held, int64, leaving, error) {
		lease, err := locker.Lock(w.ctx, key, opts...)
		token, _ := lease.Token()
		return lease, token, func(int64) error { return lease.Unlock(context.Background()) }, err
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

// brokenBackend wraps the sessions of a backend with one that is wrong in one way.
type brokenBackend struct {
	backend.Backend
	how string
}

// broken is b, or one that is wrong in one way.
func broken(how string, b backend.Backend) backend.Backend {
	if how == "" {
		return b
	}
	return &brokenBackend{b, how}
}

func (b *brokenBackend) Open(h backend.Handler) (backend.Store, error) {
	heard := h
	if b.how == "wake before subscribe" {
		heard = deaf{h} // the session itself hears of releases only
	}
	x, err := b.Backend.Open(heard)
	if err != nil {
		return nil, err
	}
	all, plain := everything{x}, bare{x}
	switch b.how {
	case "release without owner check":
		return releasesAnybodys{all}, nil
	case "grant in vain":
		return &grantsInVain{everything: all}, nil
	case "downgrade that frees":
		return dropsReaders{all}, nil
	case "release that counts twice":
		return &miscounts{everything: all, times: 2}, nil
	case "release that does not count":
		return &miscounts{everything: all, times: 0}, nil
	case "wake before subscribe":
		return &wakesEarly{Store: plain, handler: h}, nil
	case "renewal after release":
		return &renewsOn{Store: plain, lease: map[string]time.Duration{}}, nil
	}
	return nil, fmt.Errorf("no lock is broken like %q", b.how)
}

// everything is a session with all kinds of locks and counts, which go from one owner to the next by the methods of a
// session only.
type everything struct{ backend.Store }

func (x everything) Capabilities() backend.Capabilities {
	can := x.Store.Capabilities()
	return backend.Capabilities{Fair: can.Fair, ReadWrite: can.ReadWrite, CountDownLatches: can.CountDownLatches,
		CountingSemaphores: can.CountingSemaphores, Semaphores: can.Semaphores}
}

// bare is a session of plain locks.
type bare struct{ backend.Store }

func (bare) Capabilities() backend.Capabilities { return backend.Capabilities{} }

// releasesAnybodys does what DEL in place of the owner-checked script does.
type releasesAnybodys struct{ everything }

func (x releasesAnybodys) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.everything.Release, x.ForceRelease)
}

// releaseAnybodys removes the record though the owner does not hold it.
func releaseAnybodys(ctx context.Context, r backend.ReleaseRequest,
	release func(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error),
	force func(context.Context, string) (bool, error)) (backend.ReleaseReply, error) {
	reply, err := release(ctx, r)
	if err == nil && !reply.Held && r.Keep == 0 {
		reply.Held, err = force(ctx, r.Name)
	}
	return reply, err
}

func (x releasesAnybodys) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.ReadWrite, can.Semaphores = anybodysRW{can.ReadWrite}, anybodysPermits{can.Semaphores}
	can.Fair = anybodysFair{can.Fair, x.Store}
	return can
}

type anybodysRW struct{ backend.ReadWriteStore }

func (x anybodysRW) ReleaseRead(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.ReadWriteStore.ReleaseRead, x.ForceReleaseRW)
}

func (x anybodysRW) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.ReadWriteStore.ReleaseWrite, x.ForceReleaseRW)
}

type anybodysFair struct {
	backend.FairStore
	s backend.Store
}

func (x anybodysFair) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.FairStore.Release, x.s.ForceRelease)
}

type anybodysPermits struct{ backend.SemaphoreStore }

func (x anybodysPermits) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return releaseAnybodys(ctx, r, x.SemaphoreStore.Release, func(ctx context.Context, name string) (bool, error) {
		q := backend.CountRequest{Topic: backend.Topic{Kind: backend.KindSemaphore, Name: name}, ID: "twice " + r.Owner, N: 1}
		_, err := x.AddCount(ctx, q)
		return true, err
	})
}

// grantsInVain grants to one waiter in so many of a queue what another holds.
type grantsInVain struct {
	everything
	refusals atomic.Int64
}

func (x *grantsInVain) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.Fair = fairInVain{can.Fair, x}
	return can
}

type fairInVain struct {
	backend.FairStore
	by *grantsInVain
}

func (x fairInVain) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	reply, err := x.FairStore.Acquire(ctx, r)
	if err == nil && !reply.Granted && reply.Remaining > 0 && x.by.refusals.Add(1)%20 == 0 {
		x.Leave(ctx, backend.LeaveRequest{Name: r.Name, Owner: r.Owner, Wait: r.Wait})
		return backend.FairReply{AcquireReply: backend.AcquireReply{Granted: true}}, nil
	}
	return reply, err
}

// dropsReaders removes the record when a writer releases it, though it reads on.
type dropsReaders struct{ everything }

func (x dropsReaders) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.ReadWrite = readersDropped{can.ReadWrite}
	return can
}

type readersDropped struct{ backend.ReadWriteStore }

func (x readersDropped) ReleaseWrite(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := x.ReadWriteStore.ReleaseWrite(ctx, r)
	if err == nil && r.Keep == 0 {
		_, err = x.ForceReleaseRW(ctx, r.Name)
	}
	return reply, err
}

// miscounts has one in so many releases of a semaphore count as often as it says.
type miscounts struct {
	everything
	times    int
	releases atomic.Int64
}

func (x *miscounts) Capabilities() backend.Capabilities {
	can := x.everything.Capabilities()
	can.CountingSemaphores = miscounted{can.CountingSemaphores, x}
	return can
}

type miscounted struct {
	backend.CountingSemaphoreStore
	by *miscounts
}

func (s miscounted) AddCount(ctx context.Context, r backend.CountRequest) (sum int64, err error) {
	times := 1
	if s.by.releases.Add(1)%50 == 0 {
		times = s.by.times
	}
	for i := range times {
		q := r
		q.ID = fmt.Sprint(r.ID, ":", i)
		if sum, err = s.CountingSemaphoreStore.AddCount(ctx, q); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// wakesEarly tells its waiters that they are subscribed when it has only begun to be,
// so they try, and then sleep, before they can hear of a release.
type wakesEarly struct {
	backend.Store
	handler backend.Handler
	mu      sync.Mutex
	wanted  map[backend.Topic]*time.Timer
}

func (x *wakesEarly) Subscribe(t backend.Topic) {
	x.handler.Watching(t)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.wanted == nil {
		x.wanted = map[backend.Topic]*time.Timer{}
	}
	x.wanted[t] = time.AfterFunc(time.Millisecond, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.wanted[t] != nil {
			x.Store.Subscribe(t)
		}
	})
}

func (x *wakesEarly) Unsubscribe(t backend.Topic) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if timer := x.wanted[t]; timer != nil {
		timer.Stop()
	}
	delete(x.wanted, t)
	x.Store.Unsubscribe(t)
}

// deaf hears of releases only: not that it is subscribed now, and nothing of what
// client-side caching tells, which repairs a wake-up that was missed.
type deaf struct{ backend.Handler }

func (deaf) Watching(backend.Topic) {}
func (deaf) Changed(backend.Topic)  {}
func (deaf) ChangedAll()            {}

// renewsOn has a watchdog of the kind that sets the key whether it is there or not,
// and after some releases forgets to end it: as soon as it wins the race with the other waiters.
type renewsOn struct {
	backend.Store
	mu       sync.Mutex
	lease    map[string]time.Duration
	releases atomic.Int64
}

func (x *renewsOn) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := x.Store.Acquire(ctx, r)
	if err == nil && reply.Granted {
		x.mu.Lock()
		x.lease[r.Owner] = r.Lease
		x.mu.Unlock()
	}
	return reply, err
}

func (x *renewsOn) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := x.Store.Release(ctx, r)
	x.mu.Lock()
	lease := x.lease[r.Owner]
	delete(x.lease, r.Owner)
	x.mu.Unlock()
	if err != nil || !reply.Held || r.Keep > 0 || x.releases.Add(1) < 50 {
		return reply, err
	}
	renew := func() bool {
		reply, err := x.Store.Acquire(ctx, backend.AcquireRequest{Name: r.Name, Owner: r.Owner, Lease: lease})
		x.Store.Renew(ctx, []backend.RenewRequest{{Name: r.Name, Owner: r.Owner, Lease: lease}},
			make([]backend.RenewResult, 1))
		return err == nil && reply.Granted
	}
	go func() {
		for renew() {
			time.Sleep(lease / 3)
		}
	}()
	return reply, err
}
