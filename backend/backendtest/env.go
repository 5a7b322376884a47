package backendtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/timed"
)

const (
	// patience bounds every wait for something that must happen.
	patience = 20 * time.Second
	// long is a lease that no test outlives: what happens within patience did not
	// happen because it ran out.
	long = 10 * time.Minute
	// watchdog is the watchdog timeout where renewal is the subject. Two thirds of it are what
	// a renewal may be late by, where this process stands still for a while.
	watchdog = 4 * time.Second
)

// background is the context of operations whose context does not matter.
var background = context.Background()

// env is what a test has at hand.
type env struct {
	leases
	store   Store
	machine *timed.Machine // nil in a bubble
}

// tookAtMost notes an error if something that has just ended took longer than most, and twice what the machine was
// late by meanwhile. The text has one verb, for the time that it took.
func (e *env) tookAtMost(text string, began time.Time, most time.Duration) {
	e.Helper()
	d := time.Since(began)
	if e.machine != nil {
		most += 2 * e.machine.Late(began)
	}
	atMost(e, text, d, most)
}

// leases are short forms of what tests do with locks and permits.
type leases struct{ checks }

// servers is how many the store consists of.
func (e *env) servers() int {
	if s, ok := e.store.(interface{ Servers() int }); ok {
		return s.Servers()
	}
	return 1
}

// oneValue reports whether the store keeps all that belongs to a name as one value.
func (e *env) oneValue() bool {
	_, is := e.store.(interface{ OneValue() })
	return is
}

// permitsWithin reports whether the store keeps a semaphore's permits in use with its count, not in a key of their own.
func (e *env) permitsWithin() bool {
	_, is := e.store.(interface{ PermitsWithin() })
	return is || e.oneValue()
}

// client opens a client on the store. At the end of the test it is shut down
// without waiting for its leases.
func (e *env) client(opts ...mortise.ClientOption) *mortise.Client {
	e.Helper()
	return e.clientOn(e.store.Backend(), opts...)
}

// tapped is client with Faults under it.
func (e *env) tapped(opts ...mortise.ClientOption) (*mortise.Client, *Faults) {
	e.Helper()
	f := NewFaults(e.store.Backend())
	return e.clientOn(f, opts...), f
}

// renewing is a client with the short watchdog timeout, and the count of its renewals.
func renewing(e *env) (*mortise.Client, *atomic.Int32) {
	e.Helper()
	n := new(atomic.Int32)
	return e.client(mortise.WithWatchdogTimeout(watchdog), mortise.WithObserver(mortise.Observer{
		Renewed: func(mortise.Event) { n.Add(1) },
	})), n
}

// queueing is tapped, with the count of the waits that began.
func queueing(e *env) (*mortise.Client, *Faults, *atomic.Int32) {
	e.Helper()
	n := new(atomic.Int32)
	c, f := e.tapped(mortise.WithObserver(mortise.Observer{Waiting: func(mortise.Event) { n.Add(1) }}))
	return c, f, n
}

func (e *env) clientOn(b backend.Backend, opts ...mortise.ClientOption) *mortise.Client {
	e.Helper()
	c, err := mortise.New(b, opts...)
	e.fatalIf(err != nil, "mortise.New: %v", err)
	e.Cleanup(func() {
		select {
		case <-async(func() error { return c.Shutdown(ended()) }):
		case <-time.After(patience):
			e.Errorf("Shutdown under a context that has ended did not return within %v", patience)
		}
	})
	return c
}

// session opens a bare session on the store.
func (e *env) session() (*raw, *ears) {
	e.Helper()
	h := new(ears)
	return openSession(e, e.store.Backend(), h), h
}

// openSession opens a bare session of a backend, and closes it when the test ends.
func openSession(e *env, b backend.Backend, h backend.Handler) *raw {
	e.Helper()
	s, err := b.Open(h)
	e.fatalIf(err != nil, "Open: %v", err)
	e.Cleanup(func() { s.Close() })
	return &raw{Store: anykind.Store{Store: s}, e: e}
}

// bare opens a session whose events do not matter.
func (e *env) bare() *raw {
	e.Helper()
	s, _ := e.session()
	return s
}

// lock is Lock that must succeed within patience.
func (e leases) lock(l mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) *mortise.Lease {
	e.Helper()
	lease, err := l.Lock(ctx, name, append([]mortise.Option{mortise.WithWait(patience)}, opts...)...)
	e.fatalIf(err != nil, "Lock: %v", err)
	return lease
}

// brief is lock with a lease so short that it may be over before the grant is known, where
// this process stands still: then it is asked for anew.
func (e leases) brief(l mortise.Locker, name string, lease time.Duration) (got *mortise.Lease) {
	e.Helper()
	e.until("a lease is granted before it is over", func() bool {
		var err error
		got, err = l.Lock(background, name, mortise.WithWait(patience), mortise.WithLease(lease))
		e.fatalIf(err != nil && !errors.Is(err, mortise.ErrUnavailable), "Lock: %v", err)
		return err == nil
	})
	return got
}

// unlock is Unlock that must succeed, of one lease after the other.
func (e leases) unlock(all ...*mortise.Lease) {
	e.Helper()
	for _, l := range all {
		e.done("Unlock", l.Unlock(background))
	}
}

// unlockLast unlocks leases of one lock, of which the last frees it.
func (e leases) unlockLast(c *mortise.Client, all ...*mortise.Lease) {
	e.Helper()
	e.unlock(all...)
	e.free(c, all[0].Name())
}

// lockTwice has c lock n, and lock it again under that lease.
func (e leases) lockTwice(c *mortise.Client) (outer, inner *mortise.Lease) {
	e.Helper()
	outer = e.lock(c, background, "n", mortise.WithLease(long))
	return outer, e.lock(c, outer.Context(), "n", mortise.WithLease(long))
}

// heldByAnother has a session hold n as a:1, and opens a client that may wait for it.
func heldByAnother(e *env) (*raw, *mortise.Client, *Faults) {
	e.Helper()
	holder := e.bare()
	holder.take("n", "a:1", long)
	c, f := e.tapped()
	return holder, c, f
}

// inspect reads the record through c.
func (e leases) inspect(c *mortise.Client, name string) mortise.LockInfo {
	e.Helper()
	s, err := c.Inspect(background, name)
	e.fatalIf(err != nil, "Inspect: %v", err)
	return s
}

// holds checks how many holds the record of name has.
func (e leases) holds(c *mortise.Client, name string, want int) {
	e.Helper()
	s := e.inspect(c, name)
	e.errorIf(s.Holds != want, "%s has %d holds, want %d: %+v", name, s.Holds, want, s)
}

// within waits for done.
func (e checks) within(what string, done <-chan struct{}) {
	e.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		e.Fatalf("%s: not within %v", what, patience)
	}
}

// free waits until none of the names has a holder. That must not be because a lease ran out,
// so those in such tests are long.
func (e leases) free(c *mortise.Client, names ...string) {
	e.Helper()
	for _, name := range names {
		e.until(name+" is free", func() bool {
			s, err := c.Inspect(background, name)
			return err == nil && !s.Held
		})
	}
}

// lost waits until the context of a lease or permit ends, and checks that it was lost.
func (e leases) lost(l interface {
	Context() context.Context
	Err() error
}) {
	e.Helper()
	receive(e, "the lease's context ends", l.Context().Done())
	e.is("Err", l.Err(), mortise.ErrLost)
}

// refuses waits until l refuses name with an error. A lease that is granted until then is unlocked.
func (e leases) refuses(what string, l mortise.Locker, name string, want error) {
	e.Helper()
	e.until(what, func() bool {
		lease, err := l.TryLock(background, name)
		if err == nil {
			e.unlock(lease)
		}
		return errors.Is(err, want)
	})
}

// inside runs work under a lock that is acquired within patience.
func (e leases) inside(l mortise.Locker, ctx context.Context, name string, work func(*mortise.Lease)) error {
	lease, err := l.Lock(ctx, name, mortise.WithWait(patience))
	if err != nil {
		return err
	}
	work(lease)
	return lease.Unlock(background)
}

// turns has n goroutines take so many turns each, all at once, and waits for them. An error ends a goroutine's turns.
func (e checks) turns(n, each int, turn func(g, i int) error) {
	e.Helper()
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() {
			for i := range each {
				if err := turn(g, i); err != nil {
					e.Errorf("turn %d of goroutine %d: %v", i, g, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// abandon calls lock, cancels its context once a call of these operations was sent, and returns the error of lock.
func (e checks) abandon(f *Faults, parent context.Context, lock func(context.Context) error, ops ...Op) error {
	e.Helper()
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	got := async(func() error { return lock(ctx) })
	e.until("it was sent", func() bool { return f.Count(ops...) > 0 })
	cancel()
	return receive(e, "a caller that leaves returns at once", got)
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}

// several is what n calls of f return.
func several[T any](n int, f func() T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = f()
	}
	return all
}

// merged receives one value of each channel.
func merged[T any](all ...<-chan T) <-chan T {
	ch := make(chan T, len(all))
	for _, one := range all {
		go func() { ch <- <-one }()
	}
	return ch
}

// servedAll checks that each waiter is granted the lock, in any order, and unlocks it.
func (e leases) servedAll(what string, waiting ...<-chan result) {
	e.Helper()
	all := merged(waiting...)
	for range waiting {
		e.unlock(e.granted(what, all).lease)
	}
}

// until waits for a condition.
func (e checks) until(what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		e.fatalIf(time.Now().After(end), "not within %v: %s", patience, what)
	}
}

// always checks that a condition goes on to hold for a while, where that time is
// the subject.
func (e checks) always(d time.Duration, what string, cond func() bool) {
	e.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		e.fatalIf(!cond(), "no longer so: %s", what)
	}
}

// receive waits for a value, or for ch to be closed.
func receive[T any](e testing.TB, what string, ch <-chan T) T {
	e.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		e.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// async runs f and returns what will receive its result.
func async[T any](f func() T) <-chan T {
	ch := make(chan T, 1)
	go func() { ch <- f() }()
	return ch
}

// result is what Lock returned.
type result struct {
	lease *mortise.Lease
	err   error
	at    time.Time
}

// granted waits for a result of Lock, which must be a lease.
func (e leases) granted(what string, got <-chan result) result {
	e.Helper()
	r := receive(e, what, got)
	e.fatalIf(r.err != nil, "%s: %v", what, r.err)
	return r
}

// locking runs Lock in a goroutine.
func locking(l mortise.Locker, ctx context.Context, name string, opts ...mortise.Option) <-chan result {
	return async(func() result {
		lease, err := l.Lock(ctx, name, opts...)
		return result{lease, err, time.Now()}
	})
}

// locks is Lock, for a test of its error.
func locks(l mortise.Locker, name string, opts ...mortise.Option) func(context.Context) error {
	return func(ctx context.Context) error { return second(l.Lock(ctx, name, opts...)) }
}

// is checks that err wraps all of the targets.
func (e checks) is(what string, err error, targets ...error) {
	e.Helper()
	for _, x := range targets {
		if !errors.Is(err, x) {
			e.Errorf("%s: got %q, want an error that wraps %q", what, fmt.Sprint(err), x)
		}
	}
}

// named checks that err names the operation and the lock, and wraps sentinel.
func (e checks) named(err error, op, name string, sentinel error) {
	e.Helper()
	e.is(op, err, sentinel)
	var x *mortise.Error
	if !errors.As(err, &x) || x.Op != op || x.Name != name {
		e.Errorf("%s %q: got %#v, want a *mortise.Error with that Op and Name", op, name, err)
	}
	if err != nil && (!strings.Contains(err.Error(), op) || !strings.Contains(err.Error(), name)) {
		e.Errorf("%s %q: the text does not name both: %v", op, name, err)
	}
}

// refusedFor checks the error of a call for n, which is held, and that it says what is left of the lease: up to most.
func (e checks) refusedFor(what string, err error, op string, most time.Duration) {
	e.Helper()
	e.named(err, op, "n", mortise.ErrNotAcquired)
	if x, is := errors.AsType[*mortise.Error](err); is && (x.Remaining <= 0 || x.Remaining > most) {
		e.Errorf("%s: Remaining is %v, want up to %v", what, x.Remaining, most)
	}
}

// allNamed checks several errors, by the operation that each must name.
func (e checks) allNamed(name string, sentinel error, all map[string]error) {
	e.Helper()
	for op, err := range all {
		e.named(err, op, name, sentinel)
	}
}

// raw is a session without its errors: an operation that fails fails the test.
type raw struct {
	anykind.Store
	e *env
}

// call runs an operation, which must succeed.
func call[Q, R any](e *env, op func(context.Context, Q) (R, error), q Q) R {
	e.Helper()
	r, err := op(background, q)
	e.fatalIf(err != nil, "%T%.200v: %v", q, q, err)
	return r
}

// renewed sends one renewal, which must be answered, and reports whether the lease is held.
func renewed(e *env, s anykind.Store, q anykind.RenewRequest) bool {
	e.Helper()
	out := make([]backend.RenewResult, 1)
	s.Renew(background, []anykind.RenewRequest{q}, out)
	e.fatalIf(out[0].Err != nil, "Renew(%+v): %v", q, out[0].Err)
	return out[0].Held
}

// renewsExactly has q ask for 10 s of a lease of so long, without Exact and with it.
func renewsExactly(e *env, s anykind.Store, q anykind.RenewRequest, lasts time.Duration) {
	e.Helper()
	q.Lease = 10 * time.Second
	out := make([]backend.RenewResult, 1)
	s.Renew(background, []anykind.RenewRequest{q}, out)
	r := out[0]
	e.errorIf(!r.Held || r.Remaining < lasts-10*time.Second || r.Remaining > lasts,
		"a renewal that asks for less than is left: %+v, want it to say what is left of %v", r, lasts)
	q.Exact = true
	s.Renew(background, []anykind.RenewRequest{q}, out)
	r = out[0]
	e.errorIf(!r.Held || r.Remaining != 0 || r.Err != nil, "an exact renewal: %+v", r)
}

func (s *raw) acquire(name, owner string, lease time.Duration) anykind.AcquireReply {
	s.e.Helper()
	return call(s.e, s.Acquire, anykind.AcquireRequest{Name: name, Owner: owner, Lease: lease})
}

// tries reports whether a request is granted, where the store may not be available.
func (s *raw) tries(r anykind.AcquireRequest) bool {
	reply, err := s.Acquire(background, r)
	return err == nil && reply.Granted
}

func (s *raw) take(name, owner string, lease time.Duration) {
	s.e.Helper()
	r := s.acquire(name, owner, lease)
	s.e.fatalIf(!r.Granted, "Acquire(%.80q, %s): %+v, want it granted", name, owner, r)
}

func (s *raw) fenced(name, owner string) int64 {
	s.e.Helper()
	r, err := s.Acquire(background, anykind.AcquireRequest{Name: name, Owner: owner, Lease: long, Fenced: true})
	s.e.fatalIf(err != nil || !r.Granted, "Acquire(%q, %s) fenced: %+v, %v", name, owner, r, err)
	return r.Token
}

func (s *raw) reenter(name, owner string, holds int, lease time.Duration) bool {
	s.e.Helper()
	return call(s.e, s.SetHolds, anykind.HoldsRequest{Name: name, Owner: owner, Holds: holds, Lease: lease}).Held
}

func (s *raw) release(name, owner string, keep int) bool {
	s.e.Helper()
	return call(s.e, s.Release, anykind.ReleaseRequest{Name: name, Owner: owner, Keep: keep}).Held
}

// takeAndRelease has an owner take a lock and release it.
func (s *raw) takeAndRelease(name, owner string) {
	s.e.Helper()
	s.take(name, owner, long)
	s.release(name, owner, 0)
}

func (s *raw) renew(name, owner string, lease time.Duration) bool {
	s.e.Helper()
	return renewed(s.e, s.Store, anykind.RenewRequest{Name: name, Owner: owner, Lease: lease})
}

func (s *raw) record(name string) backend.Record {
	s.e.Helper()
	r, err := s.Inspect(background, topic(name))
	s.e.fatalIf(err != nil, "Inspect(%.80q): %v", name, err)
	return r
}

// isFree checks that there is no record of name.
func (s *raw) isFree(name string) {
	s.e.Helper()
	rec := s.record(name)
	s.e.errorIf(rec.Held || rec.Reserved, "%s is held, or reserved: %+v", name, rec)
}

// heldBy checks the owner and the hold count of name.
func (s *raw) heldBy(name, owner string, holds int) {
	s.e.Helper()
	rec := s.record(name)
	s.e.errorIf(rec.Owner != owner || rec.Holds != holds,
		"the record of %s is %+v, want %d holds of %s", name, rec, holds, owner)
}

// remains checks how long the record of name still lives.
func (s *raw) remains(name string, least, most time.Duration) {
	s.e.Helper()
	rec := s.record(name)
	s.e.errorIf(rec.Remaining < least || rec.Remaining > most,
		"the record of %s is %+v, want it to remain for %v to %v", name, rec, least, most)
}

func topic(name string) backend.Topic { return backend.Topic{Kind: backend.KindLock, Name: name} }

// owned is the topic of ForceRelease of an owner.
func owned(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindLock, Name: name, Owner: owner}
}

// ears is a Handler that counts what it hears.
type ears struct {
	mu    sync.Mutex
	heard map[string]int
}

func (h *ears) add(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.heard == nil {
		h.heard = make(map[string]int)
	}
	h.heard[what]++
}

func (h *ears) Watching(t backend.Topic) { h.add("watching " + said(t)) }
func (h *ears) Released(t backend.Topic) { h.add("released " + said(t)) }
func (h *ears) Changed(t backend.Topic)  { h.add("changed " + said(t)) }
func (h *ears) ChangedAll()              { h.add("changed all") }

// said is a topic as tests name it: a lock's name, and the owner that waits for it if that is told.
func said(t backend.Topic) string {
	if t.Owner != "" {
		return t.Name + " " + t.Owner
	}
	return t.Name
}

func (h *ears) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard = nil
}

func (h *ears) count(what string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[what]
}

// watch has the session watch name and waits until it does.
func (s *raw) watch(h *ears, name string) {
	s.e.Helper()
	before := h.count("watching " + name)
	s.Subscribe(topic(name))
	s.e.until("watching "+name, func() bool { return h.count("watching "+name) > before })
}

// label is the key of the label that a test's goroutines carry.
const label = "mortise test"

var labelled = regexp.MustCompile(`^(\d+) @.*\n# labels: (.*)\n`)

// goroutines counts the goroutines that this test started, directly or not,
// itself included, and describes them.
func (e checks) goroutines() (int, string) {
	var b bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&b, 1)
	mine := fmt.Sprintf("%q:%q", label, e.Name())
	n := 0
	var which strings.Builder
	for _, g := range strings.Split(b.String(), "\n\n") {
		if _, after, ok := strings.Cut(g, "goroutine profile: "); ok {
			_, g, _ = strings.Cut(after, "\n")
		}
		m := labelled.FindStringSubmatch(g)
		if m == nil || !strings.Contains(m[2], mine) {
			continue
		}
		k, _ := strconv.Atoi(m[1])
		n += k
		which.WriteString(g + "\n\n")
	}
	return n, which.String()
}

// noMoreGoroutines waits until at most so many goroutines are left. If they are not, it describes them.
func (e checks) noMoreGoroutines(what string, before, most int) {
	e.Helper()
	var n int
	var which string
	defer func() {
		if e.Failed() {
			e.Logf("%d goroutines before, %d in the end, want at most %d:\n%s", before, n, most, which)
		}
	}()
	e.until(what, func() bool { n, which = e.goroutines(); return n <= most })
}
