package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/cmd/mortise/internal/group"
	"github.com/mortise-go/mortise/once"
	"github.com/mortise-go/mortise/semaphore"
)

// session is a backend that keeps its client's session with the store: run asks for more than a client tells.
type session struct {
	backend.Backend
	store backend.Store
}

// Open implements [backend.Backend].
func (s *session) Open(h backend.Handler) (store backend.Store, err error) {
	s.store, err = s.Backend.Open(h)
	return s.store, err
}

// acquirer acquires what a command runs under.
type acquirer struct {
	flags   *runFlags
	name    string
	locks   *mortise.Client
	session session
	owner   string // of what was acquired
}

// open makes the client.
func (a *acquirer) open(s *settings) (err error) {
	a.locks, err = s.clientOf(func(opts ...mortise.ClientOption) (*mortise.Client, error) {
		b, err := backend.ByURL(s.store)
		if err != nil {
			return mortise.Open(s.store, opts...) // its error has the remedy
		}
		a.session.Backend = b
		return mortise.New(&a.session, opts...)
	}, mortise.WithWatchdogTimeout(a.flags.lease), mortise.WithObserver(mortise.Observer{
		Acquired: func(e mortise.Event) { a.owner = cmp.Or(e.Owner, a.owner) }, // the event of a tick has none
	}))
	return err
}

// await acquires. A signal that ends a program ends the wait, too, and is returned.
func (a *acquirer) await(ctx context.Context, signals <-chan os.Signal) (g *grant, ended unix.Signal, err error) {
	waits, stop := context.WithCancel(ctx) // it is the grant's, too, and ends with ctx
	context.AfterFunc(ctx, stop)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g, err = a.acquire(waits)
	}()
	for {
		select {
		case <-done:
			if ended != 0 && g != nil {
				g.release(context.Background())
			}
			return g, ended, err
		case s := <-signals:
			switch s {
			case unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT:
				ended = s.(unix.Signal)
				stop()
			}
		}
	}
}

// acquire claims the tick, if there is one to claim, and then takes the lock, or permits.
func (a *acquirer) acquire(ctx context.Context) (*grant, error) {
	tick, err := a.claim(ctx)
	if err != nil {
		return nil, err
	}
	var g *grant
	if a.flags.given("of") {
		g, err = a.permits(ctx)
	} else {
		g, err = a.lock(ctx)
	}
	switch {
	case err != nil && a.flags.every > 0:
		return nil, fmt.Errorf("%w; the tick of %s is not run", err, timeOf(tick))
	case err != nil:
		return nil, err
	}
	g.owner, g.tick = a.owner, tick
	return g, nil
}

// claim claims a tick, with --every.
func (a *acquirer) claim(ctx context.Context) (time.Time, error) {
	f := a.flags
	if f.every == 0 {
		return time.Time{}, nil
	}
	began := time.Now()
	t, err := once.TryTick(ctx, a.locks, a.name, once.TickRequest{ID: rand.Text(), Interval: f.every, Offset: f.offset})
	if err != nil || t.Claimed {
		return t.At, err
	}
	return time.Time{}, fmt.Errorf("%w: %s", mortise.ErrNotAcquired, a.taken(ctx, began, t.Next))
}

// taken says which tick is taken, and who holds the lock: as a rule the one that the tick was given.
func (a *acquirer) taken(ctx context.Context, asked time.Time, next time.Duration) string {
	f := a.flags
	if next > f.every {
		return fmt.Sprintf("%s: the last tick that was started is ahead of the store's clock; the next is in %v",
			a.name, next.Round(time.Second))
	}
	// The nearest tick: this machine's clock need not be the store's.
	at := asked.Add(next - f.offset).Round(f.every).Add(f.offset)
	text := fmt.Sprintf("%s: the tick of %s is taken, or its schedule is new; the next is that of %s, in %v",
		a.name, timeOf(at.Add(-f.every)), timeOf(at), next.Round(time.Millisecond))
	return text + a.holder(ctx)
}

// looking bounds how long a refusal waits for who the holder is.
const looking = 250 * time.Millisecond

// holder says who holds the lock, and since when if the store knows; empty if nobody does.
func (a *acquirer) holder(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, looking)
	defer cancel()
	info, err := a.locks.Inspect(ctx, a.name)
	switch {
	case err != nil || !info.Held:
		return ""
	case info.Since.IsZero():
		return "; held by " + printable(info.Owner)
	}
	return "; held by " + printable(info.Owner) + " since " + info.Since.UTC().Format(time.RFC3339)
}

// timeOf is the time of a tick.
func timeOf(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// lock takes a lock, or a side of a read-write lock.
func (a *acquirer) lock(ctx context.Context) (*grant, error) {
	f, store := a.flags, a.session.store
	var l mortise.Locker = a.locks
	renew := store.Renew
	if f.shared || f.exclusive {
		sides, rw := a.locks.RW(), store.Capabilities().ReadWrite
		switch {
		case rw == nil: // Lock fails
			l = sides.Read
		case f.shared:
			l, renew = sides.Read, rw.RenewReads
		default:
			l, renew = sides.Write, rw.RenewWrites
		}
	}
	opts := a.options()
	if f.fair {
		opts = append(opts, mortise.Fair())
	}
	if f.fenced {
		opts = append(opts, mortise.Fenced())
	}
	take := l.Lock
	if f.try {
		take = l.TryLock
	}
	lease, err := take(ctx, a.name, opts...)
	if said, is := errors.AsType[*mortise.Error](err); is && said.Owner == "" && errors.Is(err, mortise.ErrNotAcquired) {
		return nil, fmt.Errorf("%w%s", err, a.holder(ctx))
	}
	if err != nil {
		return nil, err
	}
	return &grant{held: lease, token: lease.Token(), release: lease.Unlock, renew: renew}, nil
}

// permits takes permits.
func (a *acquirer) permits(ctx context.Context) (*grant, error) {
	f := a.flags
	take := semaphore.New(a.locks, a.name, f.of).Acquire
	if f.try {
		take = semaphore.New(a.locks, a.name, f.of).TryAcquire
	}
	p, err := take(ctx, f.permits, a.options()...)
	if err != nil {
		return nil, err
	}
	a.owner = strings.Join(p.IDs(), ",")
	return &grant{held: p, release: p.Release, renew: a.session.store.Capabilities().Semaphores.Renew}, nil
}

func (a *acquirer) options() []mortise.Option {
	if a.flags.wait > 0 {
		return []mortise.Option{mortise.WithWait(a.flags.wait)}
	}
	return nil
}

// grant is what a command runs under: a lock, or permits.
type grant struct {
	held interface { // a Lease, or a Permit
		Context() context.Context
		Name() string
		Err() error
	}
	owner   string // in the store
	token   int64
	tick    time.Time
	release func(ctx context.Context) error
	renew   func(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult)
}

// errNotHeld: the store says that another has the lock, or none has.
var errNotHeld = errors.New("the store no longer has it")

// extend renews the lease, as the client does each third of it, and returns an instant until when the grant is this
// program's, as far as the store says it: counted from before the question.
func (g *grant) extend(ctx context.Context, lease time.Duration) (group.Instant, error) {
	ctx, cancel := context.WithTimeout(ctx, lease)
	defer cancel()
	lease = lease.Truncate(time.Millisecond)
	out := make([]backend.RenewResult, 1)
	asked := group.Now()
	g.renew(ctx, []backend.RenewRequest{{Name: g.held.Name(), Owner: g.owner, Lease: lease}}, out)
	switch {
	case out[0].Err != nil:
		return 0, out[0].Err
	case !out[0].Held:
		return 0, errNotHeld
	}
	return asked.Add(lease - margin(lease)), nil
}

// margin is how long before the end of the lease the group is killed: the guardian may get the processor late, and two
// clocks may differ in their rate.
func margin(left time.Duration) time.Duration {
	return min(max(left/10, 50*time.Millisecond), 2*time.Second)
}
