package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Fair serves waiters in FIFO order, among all processes, Java's included: the store has a queue of
// the waiters, and a release wakes only the first. Redisson: RFairLock, with the same lock and queue.
//
// Cost: while other calls wait, a Lock and its Unlock are three commands together, whatever the
// number of waiters, and a fraction of a command for subscriptions; one to three more if no call of
// this client has waited for the name lately. Beside waiters of Redisson the store needs time for an
// acquisition that grows with the queue, as for Redisson's own.
//
// A waiter that leaves gives up its place. The places of a dead process delay the other waiters by a
// second at most, whatever their number, because no client is subscribed for them. A stopped process
// is still subscribed: when its place is first, it keeps the place for five seconds, counted from the
// next request of another waiter after the end of the last holder's lease. A waiter whose connection
// is broken for longer when its place is first goes to the end of the queue. A waiter of Redisson's
// loses its place when Redisson's own fairLockWaitTimeout runs out.
//
// TryLock does not jump the queue: it is refused while another call waits. The plain lock ignores
// the queue, here as in Redisson: a Lock or TryLock of another kind on the same name may get the lock
// in between. Fair and [Polling] exclude each other. The names "n" and "{n}" share a queue on Redis: see [Locker].
func Fair() Option { return Option{is: isFair} }

// Fenced draws a fencing token ([Lease.Token]) with each acquisition, in the same command.
// Redisson: RFencedLock.
func Fenced() Option { return Option{is: isFenced} }

// NonReentrant makes Lock return [ErrInvalid] at once if ctx carries a lease on the name, where the
// reentrant lock would enter again.
func NonReentrant() Option { return Option{is: isNonReentrant} }

// Polling makes waiters ask the store again after pauses of about this time, instead of subscribing
// to releases. It saves subscriptions if there are short waits for very many names, and costs
// commands; it also waits where SUBSCRIBE is missing, as behind some proxies. The pause is between a
// millisecond and a minute. In a process only the first waiter for a name asks.
//
// With a pause of 20 ms or less the client has a place in the lock's queue, among clients that do not
// poll: the lock is kept for it for two pauses. With a longer pause a waiter gets the lock only
// if the lock is free when the waiter asks, and so may wait for long beside other waiters; its pauses
// double up to 64 times the first. Unlock announces the release all the same; Redisson's
// RedissonSpinLock does not.
func Polling(pause time.Duration) Option { return Option{is: isPolling, d: pause} }

// applyKind changes a request for the reentrant lock.
func (o Option) applyKind(r *engine.Request) error {
	if !r.Reentrant() {
		of := r.Op()
		if r.Family == backend.KindRead || r.Family == backend.KindWrite {
			of = "read-write locks"
		}
		return fail.Invalidf("%s does not apply to %s, only to the reentrant lock", kindNames[o.is], of)
	}
	switch o.is {
	case isFair:
		r.Family = backend.KindFair
	case isFenced:
		r.Fenced = true
	case isNonReentrant:
		r.NonReentrant = true
	case isPolling:
		if o.d < time.Millisecond || o.d > time.Minute {
			return fail.Invalidf("Polling(%v): between 1ms and 1m; leave it out to be told of releases", o.d)
		}
		r.Polling = o.d
	}
	return nil
}

var kindNames = map[option]string{
	isFair: "Fair", isFenced: "Fenced", isNonReentrant: "NonReentrant", isPolling: "Polling",
}

// With returns a [Locker] whose calls have options: for example client.With(mortise.Fenced()) for code that
// takes a Locker, and needs tokens. [Option] says which option counts if a call has others. [WithWait] and
// [WithMaxWaiters] apply to the calls of Lock. The Locker shares everything else with the client.
//
// With does no I/O. If an option is wrong, or the backend has no fair locks, each call of the Locker returns
// [ErrInvalid], and so does [Client.Check].
func (c *Client) With(opts ...Option) Locker { return c.locker(backend.KindLock, opts) }

// locker is a [Locker] of a client: the reentrant lock, or a side of read-write locks, with options.
type locker struct {
	client *Client
	base   engine.Request // has the options
	err    error          // of the options
}

func (c *Client) locker(family backend.Kind, opts []Option) *locker {
	l := &locker{client: c}
	l.base, l.err = with(engine.Request{Name: "any", Family: family}, opts)
	switch {
	case l.err != nil:
		l.err = fail.Of(l.err).Err
	case c.usable() == nil:
		l.err = c.has(&l.base)
	}
	if c.usable() == nil && l.err != nil && len(opts) > 0 {
		c.misuse.CompareAndSwap(nil, &l.err)
	}
	return l
}

// has returns an error if the backend has no locks of the kind that a request is for.
func (c *Client) has(r *engine.Request) error {
	switch r.Family {
	case backend.KindFair:
		e := c.inner()
		return e.Can(e != nil && e.Capabilities().Fair != nil, "fair locks")
	case backend.KindRead, backend.KindWrite:
		return c.hasRW()
	}
	return nil
}

func (l *locker) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name}, opts)
}

func (l *locker) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return l.acquire(ctx, engine.Request{Name: name, Try: true}, opts)
}

// family returns the kind of the Locker's requests before its options are applied.
func (l *locker) family() backend.Kind {
	if l.base.Reentrant() {
		return backend.KindLock
	}
	return l.base.Family
}

func (l *locker) acquire(ctx context.Context, r engine.Request, opts []Option) (*Lease, error) {
	r, err := l.request(r, opts)
	if err != nil {
		return nil, err
	}
	return public(l.client.inner().Acquire(ctx, ctx, r))
}

// request adds the client's prefix, the options of the call, of the Locker and of the client to a request.
func (l *locker) request(r engine.Request, opts []Option) (engine.Request, error) {
	r.Name, r.Family = engine.FullName(l.client.inner(), r.Name), l.family()
	if l.err != nil {
		return r, r.Fail(l.err)
	}
	r, err := with(r, opts)
	if err != nil {
		return r, err
	}
	return l.client.complete(r.Over(&l.base))
}
