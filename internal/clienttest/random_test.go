package clienttest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/semaphore"
)

var (
	randomSeed = flag.Uint64("random.seed", 0, "the seed of the first random history; 0: any")
	randomRuns = flag.Int("random.runs", 40, "how many random histories")
	randomLog  = flag.Bool("random.log", false, "print the first random history that fails")
)

// Clients of one store call at random, while its replies are lost or late, messages are lost, machines sleep, clients
// shut down, observers panic and records are removed. A ledger of the leases checks exclusion and that nothing is lost
// without a cause; each lease has its events; free locks are had by those that wait; and in the end nothing is left.
//
// Goroutines are not in the hands of the seed: a history that fails may pass when it is repeated.
func TestRandomCallsWithRandomFaults(t *testing.T) {
	seed := *randomSeed
	if seed == 0 {
		seed = rand.Uint64() >> 20
	}
	for i := range uint64(*randomRuns) {
		x := &history{dice: dice{rand: rand.New(rand.NewPCG(seed+i, 0))}}
		synctest.Test(t, func(t *testing.T) {
			x.t = t
			x.run()
		})
		if len(x.wrong) == 0 {
			continue
		}
		t.Errorf("-random.seed=%d, %+v:\n%s", seed+i, x.mode, strings.Join(x.wrong, "\n"))
		if *randomLog {
			t.Fatalf("\n%s", strings.Join(x.lines, "\n"))
		}
	}
}

// dice are thrown by all goroutines of a history.
type dice struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func (d *dice) float() float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rand.Float64()
}

func (d *dice) chance(p float64) bool { return d.float() < p }

func (d *dice) n(n int) int { return int(d.float() * float64(n)) }

// upTo is a time that is short more often than long.
func (d *dice) upTo(most time.Duration) time.Duration {
	return time.Duration(float64(most) * d.float() * d.float() * d.float())
}

// mode is what goes wrong in a history.
type mode struct {
	faults  bool // calls of the store fail; otherwise only messages do
	removes bool // records are removed
	lends   bool // leases are delegated
	all     bool // LockAll is called
	sleeps  bool // machines sleep
	shuts   bool // clients are shut down
	panics  bool // observers panic
}

// history is one sequence of calls.
type history struct {
	dice
	mode
	t       *testing.T
	store   *memory.Store
	clients []*actor
	begun   time.Time
	quiet   atomic.Bool // nothing goes wrong any more
	down    atomic.Bool // the store is

	ledger sync.Mutex // guards what follows
	held   []*taking
	recent []*taking      // contexts come from these
	waits  map[string]int // calls, by name
	idle   map[string]int // seconds in which a name was free though calls wait
	lines  []string
	wrong  []string
}

// actor is a client, and what its observer heard.
type actor struct {
	*Client
	number  int
	lockers []Locker
	events  sync.Map // of *[3]atomic.Int64, by the number of the lease: Acquired, Released, Lost
	takings sync.Map // of *taking, likewise
	refused atomic.Int64
	failed  atomic.Int64 // calls
}

// taking is a lease in the ledger.
type taking struct {
	of       *actor
	name     string
	shared   bool
	permits  int
	lease    ledgered
	outer    *taking
	unlocked atomic.Bool
	released bool // its Unlock is over, and is an event
}

// ledgered is a lease, or permits.
type ledgered interface {
	Context() context.Context
	Err() error
	Unlock(ctx context.Context) error
}

// heldPermit is a permit, released by Unlock.
type heldPermit struct{ *semaphore.Permit }

func (p heldPermit) Unlock(ctx context.Context) error { return p.Release(ctx) }

func (a *taking) live() bool { return !a.unlocked.Load() && a.lease.Err() == nil }

// hold is what stands behind the lease; nil for one of LockAll.
func (a *taking) hold() *lease.Hold {
	if l, ok := a.lease.(*Lease); ok {
		h, _ := holdingOf(l).(*lease.Hold)
		return h
	}
	return a.lease.Context().Value(lease.Carriers{}).(*lease.Context).Hold
}

// left is what is left of the lease.
func (a *taking) left() time.Duration {
	h := a.hold()
	h.Tenure.Keeper.Lock()
	defer h.Tenure.Keeper.Unlock()
	return h.Tenure.Deadline.Until(engineOf(a.of.Client).Now())
}

func (x *history) log(format string, args ...any) {
	line := fmt.Sprintf("%14v  ", time.Since(x.begun)) + fmt.Sprintf(format, args...)
	x.ledger.Lock()
	defer x.ledger.Unlock()
	x.lines = append(x.lines, line)
}

func (x *history) fail(format string, args ...any) {
	x.log("WRONG: "+format, args...)
	x.ledger.Lock()
	defer x.ledger.Unlock()
	x.wrong = append(x.wrong, fmt.Sprintf(format, args...))
}

// fault is what happens to a call of the store.
func (x *history) fault(c *call) error {
	background := context.Background()
	if !x.faults || x.quiet.Load() {
		return c.run(background)
	}
	dice := x.float()
	if dice < 0.6 {
		return c.run(background)
	}
	x.log("%.2f of %T %+v", dice, c.request, c.request)
	switch {
	case dice < 0.68: // it is late
		time.Sleep(x.upTo(4 * time.Second))
		return c.run(background)
	case dice < 0.78: // its reply is late
		err := c.run(background)
		time.Sleep(x.upTo(8 * time.Second))
		return err
	case dice < 0.87: // its reply is lost
		time.Sleep(x.upTo(time.Second))
		return replyLost(c)
	case dice < 0.91: // it is so late that it failed before
		go func() {
			time.Sleep(x.upTo(5 * time.Second))
			_ = c.run(background)
		}()
		return unknownOutcome()
	case dice < 0.97:
		return &backend.Fault{Err: errGone, Temporary: true}
	}
	return &backend.Fault{Err: errGone, MayHaveRun: x.chance(0.5)}
}

// lossy is a handler whose messages are late, or lost.
type lossy struct {
	backend.Handler
	x *history
}

func (h lossy) deliver(f func(backend.QueueHandler)) {
	to := h.Handler.(backend.QueueHandler)
	switch dice := h.x.float(); {
	case dice < 0.75 || h.x.quiet.Load():
		f(to)
	case dice < 0.8: // it comes twice
		f(to)
		time.AfterFunc(h.x.upTo(10*time.Second), func() { f(to) })
	case dice < 0.92:
		time.AfterFunc(h.x.upTo(time.Second), func() { f(to) })
	}
}

func (h lossy) Released(t backend.Topic) {
	h.deliver(func(backend.QueueHandler) { h.Handler.Released(t) })
}
func (h lossy) Changed(t backend.Topic) {
	h.deliver(func(backend.QueueHandler) { h.Handler.Changed(t) })
}
func (h lossy) ChangedAll()           { h.deliver(func(backend.QueueHandler) { h.Handler.ChangedAll() }) }
func (h lossy) Freed(t backend.Topic) { h.deliver(func(to backend.QueueHandler) { to.Freed(t) }) }

func (h lossy) Granted(t backend.Topic, g backend.Grant) {
	h.deliver(func(to backend.QueueHandler) { to.Granted(t, g) })
}

func (h lossy) Reserved(t backend.Topic, entry uint64) {
	h.deliver(func(to backend.QueueHandler) { to.Reserved(t, entry) })
}

func (h lossy) First(t backend.Topic, entry uint64, after time.Duration) {
	h.deliver(func(to backend.QueueHandler) { to.First(t, entry, after) })
}

func (h lossy) Wanted(t backend.Topic, entry uint64) {
	h.deliver(func(to backend.QueueHandler) { to.Wanted(t, entry) })
}

var errPanic = errors.New("an observer panics")

func (x *history) mayPanic() {
	if x.panics && x.chance(0.05) {
		panic(errPanic)
	}
}

// recovered calls f, in which an observer may panic.
func recovered(f func()) {
	defer func() {
		if err := recover(); err != nil && err != errPanic {
			panic(err)
		}
	}()
	f()
}

// refused counts the error of a call. Wrong arguments are left out: NotAcquired has those only of calls that waited.
func refused(n *atomic.Int64, err error) {
	if !errors.Is(err, ErrInvalid) {
		n.Add(1)
	}
}

// observer counts the events of each lease.
func (x *history) observer(a *actor) Observer {
	count := func(lease uint64, which int) {
		v, _ := a.events.LoadOrStore(lease, new([3]atomic.Int64))
		v.(*[3]atomic.Int64)[which].Add(1)
	}
	return Observer{
		Waiting: func(Event) {
			if x.chance(0.2) {
				time.Sleep(x.upTo(3 * time.Second))
			}
			x.mayPanic()
		},
		Acquired:    func(e Event) { count(e.Lease, 0); x.mayPanic() },
		NotAcquired: func(e Event) { refused(&a.refused, e.Err); x.mayPanic() },
		Released:    func(e Event) { count(e.Lease, 1); x.mayPanic() },
		Lost: func(e Event) {
			count(e.Lease, 2)
			x.log("client %d lost %q: %v", a.number, e.Name, e.Err)
			gone := contains(e.Err.Error(), "no record") || contains(e.Err.Error(), "has acquired")
			if gone && !x.removes {
				x.fail("client %d: %v", a.number, e.Err)
			}
		},
	}
}

func (x *history) open(number int) *actor {
	b := spyOn(x.store, "ReadWrite Fair Delegation Semaphores CountingSemaphores Batch", hooks{anyCall: x.fault})
	if x.chance(0.7) {
		b.can += " Queue Enrolments"
	}
	if b.leaves = x.chance(0.7); b.leaves {
		b.can += " Leaver"
	}
	b.listen = func(h backend.Handler) backend.Handler { return lossy{h, x} }
	a := &actor{number: number}
	a.Client = need(New(b, WithWatchdogTimeout(3*time.Second), WithObserver(x.observer(a))))(x.t)
	a.lockers = []Locker{a.Client, a.Client, a.Client}
	for _, kind := range [][]Option{
		{Fair()}, {Fenced()}, {NonReentrant()}, {Polling(10 * time.Millisecond)}, {Fair(), Fenced()},
	} {
		a.lockers = append(a.lockers, a.With(kind...))
	}
	return a
}

const permits = 3

// took enters a lease into the ledger, if no other excludes it.
func (x *history) took(a *taking) {
	if h := a.hold(); h != nil {
		a.of.takings.Store(h.Number, a)
	}
	x.ledger.Lock()
	others := slices.Clone(x.held)
	x.held = append(x.held, a)
	x.recent = append(x.recent, a)
	x.recent = x.recent[max(0, len(x.recent)-12):]
	x.ledger.Unlock()
	out := a.permits
	for _, o := range others {
		switch {
		case o.name != a.name || !o.live() || a.shared && o.shared || a.under(o):
		case a.permits > 0:
			out += o.permits
		case !x.removes && a.live():
			x.fail("client %d got %q while client %d held it", a.of.number, a.name, o.of.number)
		}
	}
	if out > permits && !x.removes {
		x.fail("%d permits are out", out)
	}
}

// under reports whether a was entered under o.
func (a *taking) under(o *taking) bool {
	for p := a.outer; p != nil; p = p.outer {
		if p == o {
			return true
		}
	}
	return false
}

// asks counts calls that may wait for a name.
func (x *history) asks(name string, n int) {
	x.ledger.Lock()
	defer x.ledger.Unlock()
	x.waits[name] += n
	x.idle[name] = 0
}

// watch looks for names that are free though calls wait for them.
func (x *history) watch(stop <-chan struct{}) {
	for tick := time.NewTicker(time.Second); ; {
		select {
		case <-stop:
			tick.Stop()
			return
		case <-tick.C:
		}
		x.ledger.Lock()
		held := slices.Clone(x.held)
		x.ledger.Unlock()
		busy := make(map[string]bool)
		for _, a := range held {
			busy[a.name] = busy[a.name] || a.live()
		}
		for _, name := range []string{"a", "b", "rw"} {
			x.ledger.Lock()
			if x.idle[name]++; busy[name] || x.waits[name] == 0 || x.down.Load() {
				x.idle[name] = 0
			}
			seconds := x.idle[name]
			x.ledger.Unlock()
			if seconds == 15 { // a lost grant's lease, two lost messages, and the fault
				x.fail("%q is free, and waited for, for %d s", name, seconds)
			}
		}
	}
}

// context draws the context of a call: that of a lease, perhaps.
func (x *history) context(a *actor, name string) (ctx context.Context, outer *taking, cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(context.Background())
	x.ledger.Lock()
	recent := slices.Clone(x.recent)
	x.ledger.Unlock()
	for _, o := range recent {
		if o.name != name || o.hold() == nil || !x.chance(0.2) {
			continue
		}
		if o.of == a {
			if ctx, outer = o.lease.Context(), o; x.chance(0.5) {
				ctx = context.WithoutCancel(ctx)
			}
			break
		}
		if !x.lends || name == "rw" {
			continue
		}
		if all := delegation.FromContext(o.lease.Context()); len(all) > 0 {
			ctx, outer = need(delegation.NewContext(ctx, a.Client, all...))(x.t), o
			break
		}
	}
	if x.chance(0.3) {
		ctx, cancel = context.WithTimeout(ctx, x.upTo(10*time.Second))
	}
	return ctx, outer, cancel
}

// lock calls Lock or TryLock.
func (x *history) lock(a *actor, l Locker, name string, shared bool) []*taking {
	ctx, outer, _ := x.context(a, name)
	var opts []Option
	switch x.n(7) {
	case 0:
		opts = append(opts, WithLease(MinLease+x.upTo(5*time.Second)))
	case 1:
		opts = append(opts, WithMaxHold(MinLease+x.upTo(5*time.Second)))
	}
	x.asks(name, 1)
	defer x.asks(name, -1)
	got, err := (*Lease)(nil), error(nil)
	if x.chance(0.3) {
		got, err = l.TryLock(ctx, name, opts...)
	} else {
		if outer != nil || x.chance(0.5) { // one that waits for itself does so for a while
			opts = append(opts, WithWait(1+x.upTo(20*time.Second)))
		}
		got, err = l.Lock(ctx, name, opts...)
	}
	x.log("client %d locked %q: %v", a.number, name, err)
	if err != nil {
		refused(&a.failed, err)
		return nil
	}
	taken := &taking{of: a, name: name, shared: shared, lease: got, outer: outer}
	x.took(taken)
	return []*taking{taken}
}

// acquire takes permits.
func (x *history) acquire(a *actor) []*taking {
	n := 1 + x.n(2)
	ctx, cancel := context.WithTimeout(context.Background(), x.upTo(20*time.Second))
	_ = cancel // the permit's context ends with it
	p, err := semaphore.New(a.Client, "s", 0).Acquire(ctx, n)
	x.log("client %d acquired %d permits: %v", a.number, n, err)
	if err != nil {
		refused(&a.failed, err)
		return nil
	}
	taken := &taking{of: a, name: "s", permits: n, lease: heldPermit{p}}
	x.took(taken)
	return []*taking{taken}
}

// lockAll takes two names, and unlocks them after a while.
func (x *history) lockAll(a *actor) {
	l, err := Parts{}.And(a.Client, "a", "b").Lock(context.Background(), WithWait(1+x.upTo(10*time.Second)))
	x.log("client %d locked all: %v", a.number, err)
	if err != nil {
		return
	}
	for _, name := range []string{"a", "b"} {
		taken := &taking{of: a, name: name, lease: l}
		x.took(taken)
		defer taken.unlocked.Store(true)
	}
	time.Sleep(x.upTo(2 * time.Second))
	x.ledger.Lock()
	for _, taken := range x.held {
		if taken.lease == l {
			taken.unlocked.Store(true)
		}
	}
	x.ledger.Unlock()
	x.log("client %d unlocked all: %v", a.number, l.Unlock(context.Background()))
}

// unlock unlocks a lease, which must succeed unless it was lost.
func (x *history) unlock(a *taking) {
	a.unlocked.Store(true)
	before, left, start := a.lease.Err(), a.left(), time.Now()
	a.released = true
	ctx, cancel := context.WithCancel(context.Background())
	if x.chance(0.3) {
		ctx, cancel = context.WithTimeout(ctx, x.upTo(time.Second))
	}
	defer cancel()
	err := a.lease.Unlock(ctx)
	x.log("client %d unlocked %q, %v before: %v", a.of.number, a.name, before, err)
	gaveUp := errors.Is(err, context.DeadlineExceeded)
	ended := errors.Is(err, ErrLost) || errors.Is(err, ErrReleased) || errors.Is(err, ErrClosed)
	switch {
	case before != nil && !ended && !gaveUp:
		x.fail("the Unlock of an ended lease, %v, came to %v", before, err)
	case before == nil && !x.removes && !x.sleeps && errors.Is(err, ErrLost) && time.Since(start) < left:
		x.fail("client %d: the Unlock of a live lease: %v", a.of.number, err)
	}
	if a.lease.Err() == nil || a.lease.Context().Err() == nil || !errors.Is(a.lease.Unlock(ctx), ErrReleased) {
		x.fail("an unlocked lease goes on: %v", a.lease.Err())
	}
}

// remove removes a record, of which its holders may hear late.
func (x *history) remove(a *actor) {
	name := []string{"a", "b", "rw"}[x.n(3)]
	switch x.n(5) {
	case 0:
		_, _ = a.ForceUnlock(context.Background(), name, "")
	case 1:
		x.store.Flush()
	case 2:
		x.store.Occupy(name)
		time.Sleep(x.upTo(3 * time.Second))
		fallthrough
	default:
		x.store.Delete(name)
	}
	x.log("%q was removed", name)
}

// take acquires something.
func (x *history) take(a *actor) []*taking {
	switch x.n(10) {
	case 0:
		return x.lock(a, a.RW().Read, "rw", true)
	case 1:
		return x.lock(a, a.RW().Write, "rw", false)
	case 2:
		return x.acquire(a)
	case 3:
		if x.all {
			x.lockAll(a)
			return nil
		}
	}
	return x.lock(a, a.lockers[x.n(len(a.lockers))], []string{"a", "b"}[x.n(2)], false)
}

// act makes calls, one after the other.
func (x *history) act(a *actor, calls int) {
	var mine []*taking
	var unlocks sync.WaitGroup
	for range calls {
		switch dice := x.n(100); {
		case dice < 50:
			recovered(func() { mine = append(mine, x.take(a)...) })
		case dice < 53 && x.removes:
			x.remove(a)
		case dice < 55 && x.sleeps:
			sleepMachine(a.Client, x.upTo(5*time.Second))
		case dice < 80 && len(mine) > 0:
			i := x.n(len(mine))
			taken := mine[i]
			mine = slices.Delete(mine, i, i+1)
			unlocks.Go(func() { recovered(func() { x.unlock(taken) }) })
			if x.chance(0.7) {
				unlocks.Wait()
			}
		default:
			time.Sleep(x.upTo(4 * time.Second))
		}
	}
	for _, taken := range mine {
		time.Sleep(x.upTo(time.Second))
		recovered(func() { x.unlock(taken) })
	}
	unlocks.Wait()
}

// disturb has the store unavailable now and then.
func (x *history) disturb(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(x.upTo(time.Minute)):
		}
		x.down.Store(true)
		x.store.SetDown(errGone)
		x.log("the store is down")
		time.Sleep(x.upTo(8 * time.Second))
		x.store.SetDown(nil)
		x.down.Store(false)
		x.log("the store is up")
	}
}

// shut shuts a client down at some time.
func (x *history) shut(a *actor) {
	time.Sleep(x.upTo(time.Minute))
	ctx, cancel := context.WithTimeout(context.Background(), x.upTo(10*time.Second))
	defer cancel()
	x.log("client %d was shut down: %v", a.number, a.Shutdown(ctx))
}

func (x *history) run() {
	x.begun, x.store = time.Now(), memory.New()
	x.waits, x.idle = make(map[string]int), make(map[string]int)
	x.mode = mode{
		faults: x.chance(0.75), removes: x.chance(0.25), lends: x.chance(0.3), all: x.chance(0.5), sleeps: x.chance(0.25),
		shuts: x.chance(0.3), panics: x.chance(0.25),
	}
	admin := on(x.t, x.store)
	need(semaphore.New(admin, "s", 0).TrySetPermits(context.Background(), permits))(x.t)
	stop := make(chan struct{})
	var calls, others sync.WaitGroup
	others.Go(func() { x.watch(stop) })
	others.Go(func() { x.disturb(stop) })
	for i := range 2 + x.n(2) {
		a := x.open(i)
		x.clients = append(x.clients, a)
		for range 1 + x.n(4) {
			calls.Go(func() { x.act(a, 10+x.n(30)) })
		}
		if x.shuts && x.chance(0.5) {
			others.Go(func() { x.shut(a) })
		}
	}
	calls.Wait()
	close(stop)
	others.Wait()
	time.Sleep(5 * time.Second)
	x.quiet.Store(true)
	time.Sleep(time.Hour) // the longest that anything is looked for
	synctest.Wait()
	for _, a := range x.clients {
		x.settled(a)
	}
	x.empty(admin)
	for _, a := range x.clients {
		if err := a.Shutdown(context.Background()); err != nil && !x.shuts {
			x.fail("Shutdown: %v", err)
		}
	}
}

// settled checks that a client has told all, and has nothing left.
func (x *history) settled(a *actor) {
	if s := engineOf(a.Client).Probe().Snapshot(); s != (engine.Snapshot{}) && !engineOf(a.Client).Shut() {
		x.fail("client %d has left %+v", a.number, s)
	}
	if x.panics { // what comes after a panic is not told
		return
	}
	if calls, events := a.failed.Load(), a.refused.Load(); calls != events && !x.all {
		x.fail("client %d: %d calls failed, with %d events", a.number, calls, events)
	}
	for number, v := range a.takings.Range {
		taken := v.(*taking)
		n := new([3]atomic.Int64)
		if v, ok := a.events.Load(number); ok {
			n = v.(*[3]atomic.Int64)
		}
		err := taken.lease.Err()
		lost := errors.Is(err, ErrLost) || errors.Is(err, ErrClosed)
		if n[0].Load() != 1 || (n[1].Load() == 1) != taken.released || (n[2].Load() == 1) != lost {
			x.fail("client %d: a lease of %q that ended by %q has %d, %d and %d events: acquired, released, lost",
				a.number, taken.name, err, n[0].Load(), n[1].Load(), n[2].Load())
		}
	}
}

// empty checks that nothing is left in the store.
func (x *history) empty(admin *Client) {
	ctx := context.Background()
	for _, name := range []string{"a", "b"} {
		if st := need(admin.Inspect(ctx, name))(x.t); st.Held || st.Reserved {
			x.fail("%+v is left", st)
		}
	}
	if st := need(admin.Inspect(ctx, "rw"))(x.t); st.Held {
		x.fail("%+v is left", st)
	}
	if free := need(semaphore.New(admin, "s", 0).Available(ctx))(x.t); free != permits && !x.removes {
		x.fail("%d of %d permits are free", free, permits)
	}
}
