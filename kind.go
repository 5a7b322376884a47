package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// LockerOption is a property of the locks of a [Client.Locker]. Locks of all these properties share a
// record in the store: they exclude each other on a name, and a Lock of one re-enters a lease of
// another. Options are comparable values.
type LockerOption struct {
	fair, fenced, nonReentrant, polling bool
	pause                               time.Duration
}

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
func Fair() LockerOption { return LockerOption{fair: true} }

// Fenced draws a fencing token ([Lease.Token]) with each acquisition, in the same command.
// Redisson: RFencedLock.
func Fenced() LockerOption { return LockerOption{fenced: true} }

// NonReentrant makes Lock return [ErrInvalid] at once if ctx carries a lease on the name, where the
// reentrant lock would enter again.
func NonReentrant() LockerOption { return LockerOption{nonReentrant: true} }

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
func Polling(pause time.Duration) LockerOption { return LockerOption{polling: true, pause: pause} }

// Locker returns a [Locker] for locks with all the given properties; without options it returns the
// client itself, for plain reentrant locks. The Locker shares everything else with the client. An
// error wraps [ErrInvalid].
func (c *Client) Locker(opts ...LockerOption) (Locker, error) {
	var k LockerOption
	for _, o := range opts {
		k = k.and(o)
	}
	err := c.usable()
	switch {
	case err != nil:
	case k == (LockerOption{}):
		return c, nil
	case k.polling && (k.pause < time.Millisecond || k.pause > time.Minute):
		err = fail.Invalidf("Polling(%v): between 1ms and 1m; leave it out to be told of releases", k.pause)
	case k.fair && k.polling:
		err = fail.Invalidf("Fair and Polling: a waiter in a queue is told of its turn and does not ask; take one of them")
	case k.fair:
		err = c.engine.Can(c.engine.Capabilities().Fair != nil, "fair locks")
	}
	if err != nil {
		return nil, fail.New("locker", "", err)
	}
	return &kinded{client: c, kind: k}, nil
}

// and combines two options; of two pauses the later one counts.
func (k LockerOption) and(o LockerOption) LockerOption {
	if o.polling {
		k.pause = o.pause
	}
	k.fair, k.fenced = k.fair || o.fair, k.fenced || o.fenced
	k.nonReentrant, k.polling = k.nonReentrant || o.nonReentrant, k.polling || o.polling
	return k
}

type kinded struct {
	client *Client
	kind   LockerOption
}

// request returns the request for a lock with the properties k.
func (k LockerOption) request(name string, try bool) engine.Request {
	r := engine.Request{Name: name, Try: try, Fenced: k.fenced, NonReentrant: k.nonReentrant, Polling: k.pause}
	if k.fair {
		r.Family = backend.KindFair
	}
	return r
}

func (k *kinded) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return k.client.acquire(ctx, k.kind.request(name, false), opts)
}

func (k *kinded) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return k.client.acquire(ctx, k.kind.request(name, true), opts)
}
