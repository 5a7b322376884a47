package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// LockerOption is a property of locks of a [Client.Locker]. All kinds of lock share a record in the
// store, so they exclude each other on a name, and enter each other's leases again. Options are
// comparable values.
type LockerOption struct {
	fair, fenced, nonReentrant, polling bool
	pause                               time.Duration
}

// Fair serves waiters in FIFO order, in all processes and with Java's: waiters stand in a queue in
// the store, and a release wakes the first of them only. Redisson: RFairLock, with the same lock
// and queue.
//
// Cost: while other calls wait, Lock and Unlock together are three commands, however many wait, and
// a fraction of a command for listening; one to three more if no call of this client has waited for
// the name lately. Beside Redisson's waiters an acquisition takes the store time that grows with
// the queue, as Redisson's does.
//
// A waiter that leaves gives up its place. Places of a dead process delay the others by a second at
// most, however many they are: no client listens at the first place's turn. A client that listens
// and does not come, because its process was stopped, has five seconds from another waiter's
// request after the end of the last holder's lease. A waiter whose connection is broken for longer
// at its turn goes to the end of the queue. A waiter of Redisson's loses its place when Redisson's
// own fairLockWaitTimeout runs out.
//
// TryLock does not jump the queue: it is refused while another call waits. The plain lock ignores
// the queue, here as in Redisson: a Lock or TryLock of another kind on the same name may come in
// between. Not together with [Polling].
func Fair() LockerOption { return LockerOption{fair: true} }

// Fenced draws a fencing token with each acquisition, [Lease.Token], without a further command.
// Redisson: RFencedLock.
func Fenced() LockerOption { return LockerOption{fenced: true} }

// NonReentrant refuses a Lock with a context whose lease holds the name
// already, at once and with [ErrInvalid], where the reentrant lock would enter again.
func NonReentrant() LockerOption { return LockerOption{nonReentrant: true} }

// Polling makes waiters ask again after pauses of about this time, instead of subscribing to
// releases. Polling saves subscriptions if very many names are waited for briefly, and costs
// commands. The pause is between a millisecond and a minute. With a pause of 20 ms or less a waiter
// has its turn among waiters that do not poll: the lock is reserved for the waiter for two pauses.
// With a longer pause a waiter takes a lock when it finds the lock free, and so may wait for long
// beside other waiters; its pauses double up to 64 times the first. In a process only the first
// waiter of a name asks. Unlock announces the release all the same; Redisson's RedissonSpinLock
// does not.
func Polling(pause time.Duration) LockerOption { return LockerOption{polling: true, pause: pause} }

// Locker returns a [Locker] for locks with these properties, which combine; without options the
// client itself, the plain reentrant lock. The Locker shares everything else with the client. An
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

// and has what both have; of two pauses the later.
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

// request is what a lock of the kind asks for.
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
