package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
)

// Kind chooses a kind of lock. The zero Kind is the plain reentrant lock. Its
// fields combine. All these kinds share one record in the store, so they exclude
// each other on one name, and enter each other's leases again.
type Kind struct {
	// Fair serves waiters in all processes in the order in which they asked,
	// Java's too: they stand in a queue in the store, and a release tells the first of
	// them only. Redisson: RFairLock, with which it shares lock and queue.
	//
	// Cost: while others wait, Lock and Unlock together are three commands, however many
	// wait, and a fraction of one for listening; when no call of this
	// client has waited for the name lately, one to three more. An acquisition takes the
	// store time that grows with the queue, as Redisson's does.
	//
	// A waiter that leaves gives its place up. Those of a process that died hold the others up
	// for a second at most, however many they are: it is noticed at the first one's turn, because no client
	// listens. One that listens and does not come, because its process was stopped, has five
	// seconds from when another asks, which is when the last holder's lease would have been over. One
	// whose connection is broken for longer than that at its turn stands at the end of the queue then.
	// A waiter of Redisson's loses its place when Redisson's own fairLockWaitTimeout runs out.
	//
	// TryLock does not jump the queue: it is refused while another call waits. The plain lock does
	// not look at the queue, neither here nor in Redisson: a Lock or TryLock of
	// another kind on the same name may come in between. Not together with Spin.
	Fair bool
	// Fenced draws a fencing token with each acquisition, [Lease.Token]. It costs
	// no further command. Redisson: RFencedLock.
	Fenced bool
	// NonReentrant refuses a Lock with a context whose lease holds the name
	// already, at once and with [ErrInvalid], where the reentrant lock would enter again.
	NonReentrant bool
	// Spin, if positive, makes waiters ask again after pauses that begin with about
	// this time and double up to 64 times it, instead of having the release
	// announced to them. It saves the subscription where a great many names are
	// waited for briefly, and costs commands. At least a millisecond. In a process
	// still only the first waiter of a name asks. Its Unlock announces the release all the
	// same, for waiters that do not spin; Redisson's RedissonSpinLock does not.
	Spin time.Duration
}

// Kind returns a [Locker] for a kind of lock. It shares all else with the client. An
// error wraps [ErrInvalid].
func (c *Client) Kind(k Kind) (Locker, error) {
	err := c.usable()
	switch {
	case err != nil:
	case k == (Kind{}):
		return c, nil
	case k.Spin < 0 || k.Spin > 0 && k.Spin < time.Millisecond || k.Spin > time.Minute:
		err = fail.Invalidf("Kind{Spin: %v}: between 1ms and 1m, or 0 for none", k.Spin)
	case k.Fair && k.Spin > 0:
		err = fail.Invalidf("Kind{Fair, Spin}: a waiter in a queue is told of its turn and does not ask; take one of them")
	case k.Fair:
		err = c.engine.Can(c.engine.Capabilities().Fair != nil, "fair locks")
	}
	if err != nil {
		return nil, fail.New("kind", "", err)
	}
	return &kinded{client: c, kind: k}, nil
}

type kinded struct {
	client *Client
	kind   Kind
}

// request is what a lock of the kind asks for.
func (k Kind) request(name string, try bool) engine.Request {
	r := engine.Request{Name: name, Try: try, Fenced: k.Fenced, NonReentrant: k.NonReentrant, Polling: k.Spin}
	if k.Fair {
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
