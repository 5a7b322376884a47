package interop

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/semaphore"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// user is an owner of one thing, in either language: what a test does to it is the same
// in both.
type user interface {
	// take takes what is free: all there is of it. lease 0 is the watchdog.
	take(lease time.Duration)
	// refused asserts that it is not to be had.
	refused()
	// begin begins to wait for it.
	begin()
	// rest awaits that the waiter has asked at first, and again after it began to listen: what
	// it gets from then on was a message's doing.
	rest()
	// early is closed when the wait is over.
	early() <-chan struct{}
	// woken awaits that it got what it waits for.
	woken(event time.Time) time.Duration
	// give gives up what take or woken got.
	give()
	// owner is the one that asks, as the store knows it, or the client of those that do; "" where
	// requests have no owner.
	owner() string
}

// rested is a user that has begun to wait, and rests.
func rested[U user](u U) U {
	u.begin()
	u.rest()
	return u
}

// family is a kind of thing, as one holds it and others wait for it.
type family struct {
	name         string
	held, wanted string // Java's names of kinds
}

var families = []family{
	{"plain", "plain", "plain"},
	{"fenced", "fenced", "fenced"},
	{"fair", "fair", "fair"},
	{"reads", "read", "write"},
	{"writes", "write", "read"},
	{"two-writers", "write", "write"},
	{"semaphore", "semaphore", "semaphore"},
	{"permits", "permits", "permits"},
	{"latch", "latch", "latch"},
	// Java's spin lock announces nothing, so only a waiter that asks again and again hears of its release.
	{"spin", "spin", "spin"},
}

// javaUser is a Java thread.
type javaUser struct {
	*rlock
	since  int
	call   *call
	permit string
	p      *pair
}

func (p *pair) javaUser(c *redisson, kind, name, thread string) *javaUser {
	p.Helper()
	return &javaUser{rlock: c.thread(p.T, thread).lockOf(kind, name), p: p}
}

// asks is ask with more than a name.
func (u *javaUser) asks(op string, r request) request {
	r.Op, r.Kind, r.Name = op, u.kind, u.name
	return r
}

func (u *javaUser) owner() string {
	if ownerless(u.kind) {
		return ""
	}
	return u.thread.owner()
}

func (u *javaUser) take(lease time.Duration) {
	u.t.Helper()
	switch u.kind {
	case "latch":
		harness.FatalIf(u.t, !u.do(u.asks("set", request{Count: 1})).OK, "Java could not set the latch %s", u.name)
	case "semaphore", "permits":
		u.do(u.asks("set", request{Count: 1}))
		got := u.do(u.asks("acquire", request{Count: 1, Lease: lease.Milliseconds()}))
		harness.FatalIf(u.t, !got.OK, "Java could not take the permit of %s", u.name)
		u.permit = got.Text
	default:
		u.lock(lease)
	}
}

func (u *javaUser) refused() {
	u.t.Helper()
	switch u.kind {
	case "latch":
		n := u.do(u.ask("count")).Number
		harness.ErrorIf(u.t, n <= 0, "Java says that the count is %d", n)
	case "semaphore", "permits":
		harness.ErrorIf(u.t, u.do(u.asks("acquire", request{Count: 1, Lease: minutes.Milliseconds()})).OK,
			"Java got a permit of %s, whose only one is out", u.name)
	default:
		_, ok := u.tryLock(0, minutes)
		harness.ErrorIf(u.t, ok, "Java got the %s lock %s, which Go holds", u.kind, u.name)
	}
}

func (u *javaUser) begin() {
	u.t.Helper()
	u.p.site.settled(u.t)
	u.since = u.p.site.tries(u.name, u.owner())
	r := u.ask("lock")
	switch u.kind {
	case "latch":
		r = u.asks("await", request{Wait: -1})
	case "semaphore", "permits":
		r = u.asks("acquire", request{Wait: -1, Count: 1, Lease: minutes.Milliseconds()})
	case "multi", "red":
		panic("these wait in turns")
	}
	u.call = u.start(r)
}

// rest awaits for a read-write lock also that the thread sleeps. A writer's release, the message "1", wakes in
// Redisson only threads that do already: one that has just been refused, and is about to, sleeps through it.
func (u *javaUser) rest() {
	u.t.Helper()
	u.p.rest(u, u.kind, u.name, u.since)
	if u.kind != "read" && u.kind != "write" {
		return
	}
	until(u.t, fmt.Sprintf("Java's thread to sleep, waiting for %s", u.name), func() bool {
		return u.do(request{Op: "sleeps"}).OK
	})
}

func (u *javaUser) early() <-chan struct{} { return u.call.done }

func (u *javaUser) woken(event time.Time) time.Duration {
	u.t.Helper()
	d, got := u.await(u.call, event)
	u.permit = got.Text
	return d
}

func (u *javaUser) give() {
	u.t.Helper()
	switch u.kind {
	case "latch":
		u.do(u.ask("countDown"))
	case "semaphore", "permits":
		u.do(u.asks("release", request{Count: 1, Permit: u.permit}))
	default:
		u.unlock()
	}
}

// goUser is a Go client.
type goUser struct {
	*golang
	p          *pair
	kind, name string
	amount     int // of a semaphore's permits
	since      int
	wait       *waiting
	lease      *mortise.Lease
	permit     *semaphore.Permit
}

func (p *pair) goUser(g *golang, kind, name string) *goUser {
	return &goUser{golang: g, p: p, kind: kind, name: name, amount: 1}
}

// locker is the Locker of a kind, by Java's name.
func (g *golang) locker(kind string) mortise.Locker {
	g.t.Helper()
	read, write := g.RW().Read, g.RW().Write
	switch kind {
	case "plain":
		return g.Client
	case "fenced":
		return g.of(mortise.Fenced())
	case "fair":
		return g.of(mortise.Fair())
	case "spin":
		return g.of(mortise.Polling(5 * time.Millisecond))
	case "read":
		return read
	case "write":
		return write
	}
	g.t.Fatalf("no kind %q", kind)
	return nil
}

// force is ForceUnlock, whatever the owner.
func (g *golang) force(name string) bool {
	g.t.Helper()
	return harness.Must(g.ForceUnlock(context.Background(), name, ""))(g.t)
}

// must fails the test on an error.
func (g *golang) must(err error) {
	g.t.Helper()
	harness.OK(g.t, err)
}

func (u *goUser) owner() string {
	if ownerless(u.kind) {
		return ""
	}
	return u.ID()
}

// acquire takes what is free, or waits for it; try does not wait. What a waiter of a latch gets is
// that it is open.
func (u *goUser) acquire(ctx context.Context, try bool, opts ...mortise.Option) (err error) {
	switch u.kind {
	case "latch":
		return latch.New(u.Client, u.name).Wait(ctx, opts...)
	case "semaphore":
		if try {
			return semaphore.NewCounting(u.Client, u.name).TryAcquire(ctx, u.amount)
		}
		return semaphore.NewCounting(u.Client, u.name).Acquire(ctx, u.amount, opts...)
	case "permits":
		take := semaphore.New(u.Client, u.name, 0).Acquire
		if try {
			take = semaphore.New(u.Client, u.name, 0).TryAcquire
		}
		u.permit, err = take(ctx, 1, opts...)
		return err
	}
	take := u.locker(u.kind).Lock
	if try {
		take = u.locker(u.kind).TryLock
	}
	u.lease, err = take(ctx, u.name, opts...)
	return err
}

func (u *goUser) take(lease time.Duration) {
	u.t.Helper()
	ctx := context.Background()
	options := []mortise.Option{in(long)}
	if lease > 0 {
		options = append(options, mortise.WithLease(lease))
	}
	switch u.kind {
	case "latch":
		set, err := latch.New(u.Client, u.name).TrySet(ctx, 1)
		harness.FatalIf(u.t, err != nil || !set, "Go sets the latch %s: %v, %v", u.name, set, err)
		return
	case "semaphore":
		options = options[:1] // its permits have no lease
		harness.Must(semaphore.NewCounting(u.Client, u.name).TrySetPermits(ctx, 1))(u.t)
	case "permits":
		harness.Must(semaphore.New(u.Client, u.name, 0).TrySetPermits(ctx, 1))(u.t)
	}
	u.must(u.acquire(ctx, false, options...))
}

func (u *goUser) refused() {
	u.t.Helper()
	u.left()
}

// left asserts that it is not to be had, and returns what is said to be left of the lease.
func (u *goUser) left() time.Duration {
	u.t.Helper()
	if u.kind == "latch" {
		n, err := latch.New(u.Client, u.name).Count(context.Background())
		harness.ErrorIf(u.t, err != nil || n <= 0, "Go says that the count is %d, %v", n, err)
		return 0
	}
	err := u.acquire(context.Background(), true)
	var e *mortise.Error
	harness.FatalIf(u.t, !errors.Is(err, mortise.ErrNotAcquired) || !errors.As(err, &e),
		"Go tries to get what another holds, %s %s: %v", u.kind, u.name, err)
	return e.Remaining
}

func (u *goUser) begin() {
	u.t.Helper()
	u.p.site.settled(u.t)
	u.since = u.p.site.tries(u.name, u.owner())
	u.wait = &waiting{done: make(chan struct{})}
	opts := []mortise.Option{in(minutes)}
	if u.kind != "latch" && u.kind != "semaphore" {
		opts = append(opts, mortise.WithLease(minutes))
	}
	w := u.wait
	go func() {
		defer close(w.done)
		w.err = u.acquire(context.Background(), false, opts...)
		w.lease, w.permit, w.at = u.lease, u.permit, time.Now()
	}()
}

func (u *goUser) rest() { u.t.Helper(); u.p.rest(u, u.kind, u.name, u.since) }

func (u *goUser) early() <-chan struct{} { return u.wait.done }

func (u *goUser) woken(event time.Time) time.Duration {
	u.t.Helper()
	d, lease := u.await(u.wait, event)
	u.lease, u.permit = lease, u.wait.permit
	return d
}

func (u *goUser) give() {
	u.t.Helper()
	ctx := context.Background()
	switch u.kind {
	case "latch":
		u.must(latch.New(u.Client, u.name).CountDown(ctx))
	case "semaphore":
		u.must(semaphore.NewCounting(u.Client, u.name).Release(ctx, 1))
	case "permits":
		u.must(u.permit.Release(ctx))
	default:
		u.unlock(u.lease)
	}
}

// lost awaits the end of what it holds, which was taken away.
func (u *goUser) lost() {
	u.t.Helper()
	type held interface {
		Context() context.Context
		Err() error
	}
	h := held(u.lease)
	if u.permit != nil {
		h = u.permit
	}
	harness.Receive(u.t, long, "the holder of "+u.name+" learns that it is gone", h.Context().Done())
	harness.CheckIsf(u.t, h.Err(), mortise.ErrLost, "what was taken away says")
}

// rest is what users do to rest. A spinning one asks for ever and listens to nothing.
func (p *pair) rest(u user, kind, name string, since int) {
	p.Helper()
	until(p.T, fmt.Sprintf("the waiter %q for %s to have asked twice", u.owner(), name), func() bool {
		return p.site.tries(name, u.owner()) >= since+2 && (kind == "spin" || p.site.subscribers(p.T, name) > 0)
	})
	harness.ErrorIf(p, over(u), "a waiter for %s got it, or gave up, while it is held", name)
}

// over reports whether a wait is.
func over(u user) bool {
	select {
	case <-u.early():
		return true
	default:
		return false
	}
}

// gone deletes counts that tests leave on purpose, once they are what they should be.
func (p *pair) gone(name string, value int) {
	p.Helper()
	got := p.site.must(p.T, "GET", name)
	harness.ErrorIf(p, got != fmt.Sprint(value), "%s is %v at the end, not %d", name, got, value)
	p.site.must(p.T, "DEL", name)
}

// ownerless is whether requests for a kind name no owner.
func ownerless(kind string) bool { return counted(kind) || kind == "latch" }

// counted is whether a kind leaves its count in the store.
func counted(kind string) bool { return kind == "semaphore" || kind == "permits" }

// number is the number of the thread, or of the owner, at the end of a field.
func number(field string) string {
	field = strings.TrimSuffix(field, ":write")
	return field[strings.LastIndexByte(field, ':')+1:]
}
