package mortise

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// owner holds a lock in the store, once or, by re-entry, several times. It belongs
// to one outermost lease, and its id is never used again: whatever of it is still on its way
// when it is over (a renewal, a release) can touch nobody else. Guarded by Client.mu.
type owner struct {
	*chain
	own    chain // what chain points to, unless it is another's
	client *Client
	queue  *queue
	family backend.Kind
	id     string
	state  ownerState
	holds  []*hold // live, outermost first
	only   [1]*hold
	token  int64
	fenced bool
	ttl    time.Duration // the longest lease that it asked for
	place  time.Duration // for how long it asked for a place in the queue of a fair lock

	// deadline is the end of the lease as the store has it, less the margin.
	deadline instant
	acquired instant
	renewAt  int64 // monotonic; never if no hold wants renewal
	checkAt  int64 // monotonic; when a reader asks whether it still holds
	renewing bool  // a renewal is on its way
	verify   bool  // ask whether it is held, even if nothing needs renewal
	failures int   // renewals failed in a row
	trouble  error // of the last of them

	// lateUntil: an acquire whose outcome is unknown may take effect until then.
	late      int
	lateUntil int64

	freed bool        // a release set the count to zero, for all holds that had ended by then
	lent  atomic.Bool // a claim on it was given out, or it was entered under one: see nested.go; set under the mutex

	timed timed
}

// record is the kind of what is renewed: the record of a fair lock is the plain one's.
func (o *owner) record() backend.Kind {
	if k := o.kind(); k != backend.KindFair {
		return k
	}
	return backend.KindLock
}

// chain is what orders the operations of an owner, and of those readers that entered
// under it.
type chain struct {
	// busy: an operation that sets the hold count is on its way. Others line up,
	// so that they reach the store in the order in which they were begun.
	busy     bool
	entering *turn // where that operation is a re-entry
	line     []*turn
	// nest are the live holds, outermost first.
	nest []*hold
	only [1]*hold // what nest begins with: most owners have one hold
}

type ownerState uint8

const (
	ownerLive ownerState = iota
	ownerReleasing
	ownerOver
)

// hold is one Lock of an owner; its lease is what the user sees.
type hold struct {
	lease    Lease
	number   uint64 // numbers the client's holds
	owner    *owner
	family   backend.Kind    // that was asked for; a fair lock enters a plain one, and the reverse
	outer    *hold           // the one it was entered under; it may have ended
	under    context.Context // what Lock was given
	ctx      holdContext     // the lease's
	end      context.CancelCauseFunc
	since    instant
	watchdog bool    // wants renewal
	bounded  bool    // by until: WithMaxHold
	until    instant // valid if bounded
	cause    error   // why it ended; nil while it is live
	told     bool    // the observer knows that it was acquired
	lost     func()  // tells the observer that it was lost, where that came first
	unlocked bool
}

// holdKey is what a lease's context is asked for its hold by: with a pointer to it, which
// costs no memory.
type holdKey struct {
	client *Client
	topic  backend.Topic
}

// holdContext is the context of a lease. It carries the lease's hold.
type holdContext struct {
	context.Context
	key  holdKey
	hold *hold
}

func (x *holdContext) Value(key any) any {
	switch k := key.(type) {
	case *holdKey:
		if *k == x.key {
			return x.hold
		}
	case claimsKey:
		return x
	}
	return x.Context.Value(key)
}

// String keeps what prints contexts from looking into the hold.
func (x *holdContext) String() string {
	return fmt.Sprintf("%v.WithLease(%q)", x.Context, x.key.topic.Name)
}

// newHold makes a hold whose context is a child of ctx. It is not yet live.
func (c *Client) newHold(ctx context.Context, r *request, since instant) *hold {
	h := &hold{number: c.leases.Add(1), family: r.family, since: since, watchdog: r.lease == 0, outer: r.outer, under: ctx}
	if r.maxHold > 0 {
		h.bounded, h.until = true, since.add(r.maxHold)
	}
	var lctx context.Context
	if r.family == backend.KindRead && r.outer != nil {
		lctx, h.end = outliving(ctx, r.outer)
	} else {
		lctx, h.end = context.WithCancelCause(ctx)
	}
	if r.family != backend.KindPermits { // which are not entered again
		h.ctx = holdContext{Context: lctx, key: holdKey{c, topicOf(r.family, r.name)}, hold: h}
		lctx = &h.ctx
	}
	h.lease = Lease{name: r.name, held: h, ctx: lctx}
	return h
}

// attach makes h a live hold of o, the innermost.
func (o *owner) attach(h *hold) {
	h.owner = o
	h.lease.token, h.lease.fenced = o.token, o.fenced
	if o.holds == nil {
		o.holds = o.only[:0]
	}
	if o.nest == nil {
		o.nest = o.chain.only[:0]
	}
	o.holds = append(o.holds, h)
	o.nest = append(o.nest, h)
}

// detach takes a hold that ends out of the live ones.
func (o *owner) detach(h *hold, cause error) {
	h.cause = cause
	is := func(x *hold) bool { return x == h }
	o.holds = slices.DeleteFunc(o.holds, is)
	o.nest = slices.DeleteFunc(o.nest, is)
	o.advance()
}

// innermost tells whether one that comes from h may enter: every live hold is among
// those that h was entered under, save that readers do not mind each other.
func (o *chain) innermost(h *hold, shared bool) bool {
	for _, x := range o.nest {
		if !(shared && x.shared()) && !h.within(x) {
			return false
		}
	}
	return true
}

// within tells whether h is x, or was entered under it.
func (h *hold) within(x *hold) bool {
	for ; h != nil; h = h.outer {
		if h == x {
			return true
		}
	}
	return false
}

// shared tells a reader's hold.
func (h *hold) shared() bool { return h.owner.family == backend.KindRead }

// taken tells that t's hold cannot be entered from without waiting for others who do: it
// is not the innermost, or one of them comes first. A release that is on its way is
// nobody to wait for: it is over as soon as the store answers.
func (o *chain) taken(t *turn) bool {
	before := func(x *turn) bool { return !(t.shared && x.shared) && x.hold == t.hold }
	return !o.innermost(t.hold, t.shared) || o.entering != nil && !(t.shared && o.entering.shared) || slices.ContainsFunc(o.line, before)
}

// turn is a place in a chain's line: of a re-entry from hold, or of a release.
type turn struct {
	hold    *hold // nil: a release
	shared  bool  // it enters to read
	ready   chan struct{}
	granted bool
}

// enter takes the chain for an operation, or puts t into the line.
func (o *chain) enter(t *turn) bool {
	if !o.busy && len(o.line) == 0 && (t.hold == nil || o.innermost(t.hold, t.shared)) {
		o.begin(t)
		return true
	}
	t.ready = make(chan struct{})
	o.line = append(o.line, t)
	o.advance()
	return t.granted
}

func (o *chain) begin(t *turn) {
	o.busy = true
	if t.hold != nil {
		o.entering = t
	}
}

// leave ends the operation.
func (o *chain) leave() {
	o.busy, o.entering = false, nil
	o.advance()
}

// quit takes t out of the line, or gives back what it was granted.
func (o *chain) quit(t *turn) {
	if t.granted {
		o.leave()
		return
	}
	for i, x := range o.line {
		if x == t {
			o.line = append(o.line[:i], o.line[i+1:]...)
			return
		}
	}
}

// advance gives the chain to the first in line who can have it: a release always, a
// re-entry if its hold is the innermost. One whose hold has ended is sent away.
func (o *chain) advance() {
	for i := 0; i < len(o.line); {
		t := o.line[i]
		ended := t.hold != nil && t.hold.cause != nil
		able := !o.busy && (t.hold == nil || o.innermost(t.hold, t.shared))
		if !ended && !able {
			i++
			continue
		}
		o.line = append(o.line[:i], o.line[i+1:]...)
		if !ended {
			o.begin(t)
			t.granted = true
		}
		close(t.ready)
	}
}

// renewal says for how long the owner wants its lease renewed; 0 not at all.
func (o *owner) renewal(now instant) time.Duration {
	// It may have been cut a third of the timeout ago, since the last assertion.
	if left := o.deadline.until(now); o.upholds() && left > o.client.watchdog*2/3 {
		return outlasting(left)
	}
	var want time.Duration
	for _, h := range o.holds {
		switch {
		case !h.watchdog:
		case !h.bounded:
			return o.client.watchdog
		default:
			left := h.until.until(now)
			want = max(want, min(o.client.watchdog, outlasting(left)))
		}
	}
	return want
}

// upholds tells a reader whose lease is never renewed. Redisson's readers that renew cut the
// time of the record down to their own timeout, and Redisson 3.x that of every reader in it: what is left of a
// longer lease is asserted again, and never becomes more by that.
func (o *owner) upholds() bool {
	return o.family == backend.KindRead && len(o.holds) == 1 && !o.holds[0].watchdog
}

// expire ends what has run out by now: the owner, or holds with a bound.
func (o *owner) expire(now instant, fx *effects) {
	if o.state != ownerLive {
		return
	}
	if o.deadline.reached(now) {
		why := "its lease ran out before it was renewed; the store was away, or the process was paused or starved"
		if o.trouble != nil {
			why = fmt.Sprintf("%s; the last renewal failed: %v", why, o.trouble)
		}
		o.stepDown(now)
		o.lose(now, fx, why)
		return
	}
	for i := 0; i < len(o.holds); {
		h := o.holds[i]
		if !h.bounded || !h.until.reached(now) {
			i++
			continue
		}
		cause := o.lost("it was held for as long as WithMaxHold allows")
		o.finish(h, cause, now, fx)
	}
	if len(o.holds) == 0 {
		o.stepDown(now)
		o.over(fx)
	}
}

// stepDown has a writer whose time is over released where readers who entered under it live
// on: their leases are the record's, so it would not end there by itself.
func (o *owner) stepDown(now instant) {
	if o.family == backend.KindWrite && slices.ContainsFunc(o.nest, (*hold).shared) {
		o.late, o.lateUntil = o.late+1, max(o.lateUntil, now.mono+int64(o.client.watchdog))
	}
}

// lose ends the owner and all its holds: the lock is not ours any more.
func (o *owner) lose(now instant, fx *effects, why string) {
	if o.state != ownerLive {
		return
	}
	o.endAll(o.lost(why), now, fx)
}

func (o *owner) endAll(cause error, now instant, fx *effects) {
	for len(o.holds) > 0 {
		o.finish(o.holds[len(o.holds)-1], cause, now, fx)
	}
	o.over(fx)
}

// finish ends one hold that nobody unlocked.
func (o *owner) finish(h *hold, cause error, now instant, fx *effects) {
	o.detach(h, cause)
	c := o.client
	fx.then(func() {
		h.end(cause)
		if c.log != nil {
			c.log.Warn("mortise: lease ended without Unlock", "name", o.queue.topic.Name, "owner", o.id, "cause", cause)
		}
		f := c.observer.Lost
		if f == nil {
			return
		}
		lost := func() {
			f(LostEvent{Subject: h.subject(), Held: time.Duration(now.mono - h.since.mono), Err: cause})
		}
		if c.observer.Acquired != nil {
			c.mu.Lock()
			early := !h.told
			if early { // it is told that the lease began, and then that it is over
				h.lost = lost
			}
			c.mu.Unlock()
			if early {
				return
			}
		}
		lost()
	})
}

// over takes the owner out of the client once its holders have been told.
func (o *owner) over(fx *effects) {
	o.state = ownerOver
	o.client.sched.remove(&o.timed)
	fx.then(func() {
		o.client.mu.Lock()
		o.sweep()
		o.client.vacate(o, true)
		o.client.mu.Unlock()
		o.client.syncWatch(o.queue.topic)
	})
}

// sweep takes back acquisitions of o that were sent before the one that got the
// lock, that were given up, and that may yet arrive.
func (o *owner) sweep() {
	if o.late > 0 {
		o.client.compensateLocked(o.family, o.queue.topic.Name, o.id, o.place, o.late, o.lateUntil)
		o.late = 0
	}
}

// noRecord is why one is lost who is not in the store.
const noRecord = "the store has no record of it any more: it was removed by somebody, or the store was flushed or restarted empty"

func (o *owner) lost(why string) error {
	return &Error{Op: "lease", Name: o.queue.topic.Name, Err: fmt.Errorf("%w: %s", ErrLost, why)}
}

// vacate ends o's place as the local holder; the first waiter asks, if it is to, or has been handed the lock.
func (c *Client) vacate(o *owner, ask bool) {
	c.held--
	delete(c.permits, o.id)
	c.part(o)
	q := o.queue
	switch {
	case !q.dismiss(o):
	case ask:
		q.stir()
	default:
		q.wake() // it has a time to look at now
	}
	c.tidy(q)
	c.checkIdle()
}

func (h *hold) err() error {
	o := h.owner
	c := o.client
	now := c.now()
	var fx effects
	c.mu.Lock()
	if h.cause == nil {
		o.expire(now, &fx)
	}
	cause := h.cause
	c.mu.Unlock()
	fx.run()
	return cause
}
