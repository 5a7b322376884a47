package mortise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// RW returns the two sides of read-write locks: under one name, any number of leases of
// read, or one of write. It is Redisson's RReadWriteLock, and shares its record.
//
// # Re-entry
//
// With the context of a lease of write, write enters again and read does too; with
// that of a lease of read, read does. A lease of read is independent of the one it was
// entered under: its time is its own, and so is its Unlock. So a writer becomes a reader
// by locking read and then unlocking write, while no other writer gets in (a downgrade);
// the context of its lease of read then goes on, with the context that write was locked
// with. The reverse, write with the context of a lease of read, would wait for itself:
// it is refused at once with [ErrInvalid]. Goroutines that share a context and both lock write
// take turns, also with those that lock read; those that lock read do not.
//
// # Who waits for whom
//
// A writer that waits is not starved by readers: as long as it waits, a Lock or TryLock
// of read by any client of this package waits behind it. So lock read with the context of
// the lease that you have, as with any Go RWMutex: with a fresh context you would wait for a
// writer that waits for you. Readers who waited and writers who wait compete for
// what a writer releases. In a client all wait in the order in which they came. A writer whose process died
// while it waited keeps fresh readers out for at most the watchdog timeout. Redisson's
// readers know nothing of writers who wait: a stream of them starves writers, here as
// there; its writers leave no sign that they wait, so a stream of readers starves them.
//
// # Leases
//
// Each lease of read is renewed, and ends, by itself. The record lives as long as the
// longest. A reader of Redisson's that renews cuts that down to its own timeout, and up to
// Redisson 3.52 the time of every reader: so a [WithLease] of read that is longer than the watchdog timeout is
// asserted again every third of it, and the two sides' watchdog timeouts should be alike.
//
// Options and errors are those of [Locker]; ErrInvalid where the backend has no read-write
// locks. A name that is in use for another kind of lock is [ErrWrongKind].
//
// Cost: one command for each Lock and Unlock that need not wait; TryLock of write is refused without
// a command where a reader of this client is known, and either where a writer is. A
// writer that waits for readers sends one each third of the watchdog timeout, to say
// that it still does, and one when it leaves without the lock.
func (c *Client) RW() (read, write Locker) {
	return &side{c, backend.KindRead}, &side{c, backend.KindWrite}
}

// side is a side of read-write locks.
type side struct {
	client *Client
	family backend.Kind
}

func (s *side) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.lock(ctx, name, false, opts)
}

func (s *side) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return s.lock(ctx, name, true, opts)
}

func (s *side) lock(ctx context.Context, name string, try bool, opts []Option) (*Lease, error) {
	r, err := newRequest(name, try, Kind{}, opts)
	if err != nil {
		return nil, err
	}
	r.family = s.family
	if _, err := s.client.rwSession(); err != nil {
		return nil, r.fail(err)
	}
	return s.client.serve(ctx, ctx, r)
}

func (c *Client) rwSession() (backend.RWSession, error) {
	return capable[backend.RWSession](c, "read-write locks")
}

// InspectRW is [Client.Inspect] for a read-write lock.
func (c *Client) InspectRW(ctx context.Context, name string) (State, error) {
	if _, err := c.rwSession(); err != nil {
		return State{Name: name}, &Error{Op: "inspect", Name: name, Err: err}
	}
	return c.inspect(ctx, topicOf(backend.KindWrite, name))
}

// ForceUnlockRW is [Client.ForceUnlock] for a read-write lock: its writer's hold, or those of all
// its readers.
func (c *Client) ForceUnlockRW(ctx context.Context, name string) (bool, error) {
	if _, err := c.rwSession(); err != nil {
		return false, &Error{Op: "forceunlock", Name: name, Err: err}
	}
	return c.forceUnlock(ctx, topicOf(backend.KindWrite, name))
}

var errUpgrade = fmt.Errorf("%w: the context's lease holds the read lock, and a reader cannot become a writer: two who tried would wait for each other; unlock it first", ErrInvalid)

// enter takes the lock under h, the hold that ctx comes from. It reports ended if h has
// ended: it then confers nothing.
func (c *Client) enter(ctx, wait context.Context, r *request, h *hold) (lease *Lease, ended bool, err error) {
	switch r.family {
	case backend.KindRead:
		return c.enterToRead(ctx, wait, r, h)
	case backend.KindWrite:
		c.mu.Lock()
		var w *owner
		for x := h; x != nil && w == nil; x = x.outer {
			if !x.shared() && x.cause == nil {
				w = x.owner
			}
		}
		ended := h.cause != nil
		c.mu.Unlock()
		if ended {
			return nil, true, nil
		}
		if w == nil {
			return nil, h.err() != nil, r.fail(errUpgrade)
		}
		return c.reenter(ctx, wait, r, h, w)
	}
	return c.reenter(ctx, wait, r, h, h.owner)
}

// enterToRead takes the read lock under h, a reader's hold or a writer's. The new owner is
// one of its own; in the line of h's chain it waits only for writers of other
// contexts, and for what is on its way there.
func (c *Client) enterToRead(ctx, wait context.Context, r *request, h *hold) (lease *Lease, ended bool, err error) {
	o := h.owner
	t := &turn{hold: h, shared: true}
	ended, err = c.takeTurn(wait, r, o, t)
	if ended || err != nil {
		return nil, ended, err
	}
	r.outer, r.fresh = h, false
	c.mu.Lock()
	c.setOff(r) // also while the client shuts down: those who hold it already are to finish
	c.mu.Unlock()
	defer c.settled(r)
	lease, g, err := c.request(ctx, wait, r)
	now := c.now()
	var fx effects
	c.mu.Lock()
	if g.absent {
		o.lose(now, &fx, noRecord)
	}
	o.leave()
	c.mu.Unlock()
	fx.run()
	switch {
	case err != nil:
		return nil, false, r.gaveUp(err, 0, nil)
	case lease != nil:
		return lease, false, nil
	case g.err != nil:
		return nil, false, r.fail(c.explain(g.err))
	case g.absent:
		return nil, false, r.fail(o.lost("it was gone from the store when it was to be entered again"))
	}
	return nil, false, r.refused(g.remaining)
}

// chainOf is what a new owner's operations are ordered by.
func (r *request) chainOf(o *owner) *chain {
	if r.outer != nil && r.family != backend.KindNested {
		return r.outer.owner.chain
	}
	return &o.own
}

// side adds to what the store is asked what it wants to know of a side.
func (r *request) side(q *backend.AcquireRequest, c *Client) {
	if r.family == backend.KindRead && r.outer != nil {
		q.Under, q.UnderKind = r.outer.owner.id, r.outer.owner.family
	}
	if r.claims {
		q.Claim, q.Claimant = c.watchdog, c.id
	}
}

// claimAgain is when one who was refused has to repeat its claim; 0 if it has none.
func (c *Client) claimAgain(g *grant) time.Duration {
	if !g.claimed {
		return 0
	}
	return c.watchdog / 3
}

// withdraw takes back, in the background, the claim of a writer that leaves without the
// lock. The claims of one client are one: another writer that waits makes it anew.
func (c *Client) withdraw(t backend.Topic) {
	s, err := c.rwSession()
	if err != nil {
		return
	}
	c.begin()
	go func() {
		defer c.end()
		// Where it fails, the claim ends by itself.
		c.insist(func() error { return s.Withdraw(c.base, t, c.id) })
		c.mu.Lock()
		if q := c.queues[t]; q != nil {
			q.stir()
		}
		c.mu.Unlock()
	}()
}

// admit notes a new owner. What the store granted shows that those who stand in its way
// here have lost the lock.
func (q *queue) admit(o *owner, now instant, fx *effects) {
	if o.family == backend.KindRead {
		if w := q.holder; w != nil && w.chain != o.chain {
			w.lose(now, fx, "a reader has acquired it: its record was removed by somebody")
		}
		if q.readers == nil {
			q.readers = make(map[*owner]struct{})
		}
		q.readers[o] = struct{}{}
		return
	}
	if old := q.holder; old != nil {
		old.lose(now, fx, "another owner has acquired it: its record was removed by somebody")
	}
	for reader := range q.readers {
		reader.lose(now, fx, "a writer has acquired it: its record was removed by somebody")
	}
	q.holder = o
	if q.waiters != nil {
		q.seen = q.events
	}
}

// dismiss takes an owner out, and tells whether the lock may be free now.
func (q *queue) dismiss(o *owner) bool {
	if q.holder == o {
		q.holder = nil
		return true
	}
	if _, reads := q.readers[o]; reads {
		delete(q.readers, o)
		return len(q.readers) == 0
	}
	return false
}

func (q *queue) inUse() bool { return q.holder != nil || len(q.readers) > 0 }

// blocks tells for how long a holder of this client stands in r's way, 0 if none does.
func (q *queue) blocks(r *request, now instant) (left time.Duration) {
	if o := q.holder; o != nil && o.state == ownerLive {
		left = o.deadline.until(now)
	}
	if r.family == backend.KindWrite {
		for o := range q.readers {
			if o.state == ownerLive {
				left = max(left, o.deadline.until(now))
			}
		}
	}
	return max(left, 0)
}

const (
	// hintsApart is how often a change of the record makes a waiter ask. Each renewal of each reader
	// is one.
	hintsApart = 250 * time.Millisecond
	// checkWithin is when a reader, told of a change, asks whether it still holds.
	// Its question changes nothing, or readers would tell each other for ever.
	checkWithin = time.Second
)

// changedRW is changed for a read-write lock, which changes as often as its readers renew.
func (c *Client) changedRW(q *queue) {
	now := c.now()
	if q.holder != nil {
		q.holder.ask()
	}
	for o := range q.readers {
		if o.state == ownerLive && o.checkAt == never {
			o.checkAt = now.mono + int64(checkWithin*3/4+rand.N(checkWithin/4))
			c.reschedule(o)
		}
	}
	if q.first() == nil || q.hint.pos != 0 {
		return
	}
	switch at := q.hinted + int64(hintsApart); {
	case now.mono >= at || q.hinted == 0:
		q.hinted = now.mono
		q.stir()
	default:
		q.hint.fire = func(now instant, _ *effects) {
			q.hinted = now.mono
			q.stir()
		}
		c.put(&q.hint, at)
	}
}

// outliving makes the context of one who reads under outer. If a writer's hold is above
// it, ctx will end when that is unlocked, the new one does not: it goes on with the
// context that the writer's Lock was given.
func outliving(ctx context.Context, outer *hold) (context.Context, context.CancelCauseFunc) {
	w := outer.writer()
	if w == nil {
		return context.WithCancelCause(ctx)
	}
	child, end := context.WithCancelCause(context.WithoutCancel(ctx))
	follow(child, end, ctx, w)
	return child, end
}

// follow ends child when ctx ends, but for the Unlock of w or of a writer's hold above it.
func follow(child context.Context, end context.CancelCauseFunc, ctx context.Context, w *hold) {
	stop := context.AfterFunc(ctx, func() {
		cause := context.Cause(ctx)
		for ; w != nil; w = w.outer.writer() {
			if errors.Is(cause, ErrReleased) && errors.Is(context.Cause(w.context()), ErrReleased) {
				follow(child, end, w.under, w.outer.writer())
				return
			}
		}
		end(cause)
	})
	context.AfterFunc(child, func() { stop() })
}

// writer is the innermost writer's hold that h is, or was entered under; nil if there
// is none.
func (h *hold) writer() *hold {
	for ; h != nil; h = h.outer {
		if !h.shared() {
			return h
		}
	}
	return nil
}
