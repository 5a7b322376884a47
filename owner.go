package mortise

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// owner holds a lock in the store, once or, by re-entry, several times. It belongs
// to one outermost lease. Its id is never used again, unless by one to whom the lock is passed on (pass.go), when nothing
// of it is on its way: whatever is still on its way when it is over (a renewal, a release) can touch nobody else. Guarded by Client.mu.
type owner struct {
	*chain
	own    chain // what chain points to, unless it is another's
	client *Client
	queue  *queue
	id     string
	token  int64
	ttl    time.Duration // the longest lease that it asked for
	place  time.Duration // for how long it asked for a place in the queue of a fair lock

	// deadline is the end of the lease as the store has it, less the margin.
	deadline instant
	renewAt  int64 // monotonic; never if no hold wants renewal
	checkAt  int64 // monotonic; when it asks whether it still holds, without a renewal
	timed    timed
	trouble  *trouble // nil as long as all goes well

	live     int32 // holds
	family   backend.Kind
	state    ownerState
	fenced   bool
	renewing bool        // a renewal is on its way
	verify   bool        // ask whether it is held, even if nothing needs renewal
	stale    bool        // the count in the store may be higher than that of its live holds
	passed   bool        // its record is another's now: see pass.go
	freed    bool        // a release set the count to zero, for all holds that had ended by then
	lent     atomic.Bool // a claim on it was given out, or it was entered under one: see nested.go. Set under the mutex

	first hold // with which it began: most owners have no other
}

// trouble is what few owners have.
type trouble struct {
	failures int   // renewals failed in a row
	last     error // of them
	// until: acquisitions whose outcome is unknown, late in number, may take effect until then.
	late  int
	until int64
	// repairAt is when the store's hold count is set right again (monotonic; zero if it need not
	// be), and repairs how often that was tried in a row.
	repairAt int64
	repairs  int
}

func (o *owner) troubled() *trouble {
	if o.trouble == nil {
		o.trouble = new(trouble)
	}
	return o.trouble
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
	entered  bool  // there has been a re-entry, or an attempt
	entering *turn // where that operation is a re-entry
	line     *turn // the first of it
	top      *hold // of those that live, the innermost: it leads to the others
}

type ownerState uint8

const (
	ownerLive ownerState = iota
	ownerReleasing
	ownerOver
)

// hold is one Lock of an owner; its lease is what the user sees.
type hold struct {
	lease   Lease
	number  uint64 // numbers the client's holds
	owner   *owner
	below   *hold           // the next of the chain's, further out
	outer   *hold           // the one it was entered under; it may have ended
	under   context.Context // what Lock was given
	ctx     atomic.Pointer[leaseContext]
	since   instant
	maxHold time.Duration // from since; 0: no bound
	cause   error         // why it ended; nil while it is live
	lost    func()        // tells the observer that it was lost, where that came first

	level    int32        // from one: the owner's hold count while it is the innermost
	family   backend.Kind // that was asked for; a fair lock enters a plain one, and the reverse
	fenced   bool         // it has the owner's token
	watchdog bool         // wants renewal
	told     bool         // the observer knows that it was acquired
	unlocked bool
}

// begin makes h a hold of r's whose context is a child of ctx. It is not yet live.
func (h *hold) begin(ctx context.Context, r *request, number uint64, since instant) {
	h.lease.held = h
	h.number, h.family, h.since, h.watchdog, h.maxHold = number, r.family, since, r.lease == 0, r.maxHold
	h.outer, h.under = r.outer, ctx
}

func (h *hold) name() string { return h.owner.queue.topic.Name }

func (h *hold) fence() (token int64, fenced bool) {
	if !h.fenced {
		return 0, false
	}
	return h.owner.token, true
}

// until is the end of WithMaxHold, if there is one.
func (h *hold) until() (end instant, bounded bool) {
	return h.since.add(h.maxHold), h.maxHold > 0
}

// attach makes h a live hold of o, the innermost.
func (o *owner) attach(h *hold) {
	h.owner, h.fenced = o, o.fenced
	h.below, o.top = o.top, h
	o.live++
	h.level = o.live
}

// detach takes a hold that ends out of the live ones.
func (o *owner) detach(h *hold, cause error) {
	h.cause = cause
	for at := &o.top; *at != nil; at = &(*at).below {
		if *at == h {
			*at, h.below = h.below, nil
			o.live--
			break
		}
	}
	o.advance()
}

// all are o's live holds, the innermost first. One that it is given may be detached.
func (o *owner) all(yield func(*hold) bool) {
	for h := o.top; h != nil; {
		next := h.below
		if h.owner == o && !yield(h) {
			return
		}
		h = next
	}
}

// innermost tells whether one that comes from h may enter: every live hold is among
// those that h was entered under, save that readers do not mind each other. Both are looked at once, since
// they are in one order: who is under another came after it.
func (o *chain) innermost(h *hold, shared bool) bool {
	for x := o.top; x != nil; x = x.below {
		if shared && x.shared() {
			continue
		}
		for h != x {
			if h = h.outer; h == nil {
				return false
			}
		}
	}
	return true
}

// shared tells a reader's hold.
func (h *hold) shared() bool { return h.owner.family == backend.KindRead }

// taken tells that t's hold cannot be entered from without waiting for others who do: it
// is not the innermost, or one of them comes first. A release that is on its way is
// nobody to wait for: it is over as soon as the store answers.
func (o *chain) taken(t *turn) bool {
	for x := o.line; x != nil; x = x.next {
		if !(t.shared && x.shared) && x.hold == t.hold {
			return true
		}
	}
	return !o.innermost(t.hold, t.shared) || o.entering != nil && !(t.shared && o.entering.shared)
}

// turn is a place in a chain's line: of a re-entry from hold, or of a release.
type turn struct {
	hold    *hold // nil: a release
	shared  bool  // it enters to read
	ready   chan struct{}
	granted bool
	next    *turn // in line
}

// enter takes the chain for an operation, or puts t into the line.
func (o *chain) enter(t *turn) bool {
	if !o.busy && o.line == nil && (t.hold == nil || o.innermost(t.hold, t.shared)) {
		o.begin(t)
		return true
	}
	t.ready = make(chan struct{})
	end := &o.line
	for *end != nil {
		end = &(*end).next
	}
	*end = t
	o.advance()
	return t.granted
}

func (o *chain) begin(t *turn) {
	o.busy = true
	if t.hold != nil {
		o.entering, o.entered = t, true
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
	for at := &o.line; *at != nil; at = &(*at).next {
		if *at == t {
			*at = t.next
			return
		}
	}
}

// advance gives the chain to the first in line who can have it: a release always, a
// re-entry if its hold is the innermost. One whose hold has ended is sent away.
func (o *chain) advance() {
	for at := &o.line; *at != nil; {
		t := *at
		ended := t.hold != nil && t.hold.cause != nil
		able := !o.busy && (t.hold == nil || o.innermost(t.hold, t.shared))
		if !ended && !able {
			at = &t.next
			continue
		}
		*at = t.next
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
	for h := range o.all {
		end, bounded := h.until()
		switch {
		case !h.watchdog:
		case !bounded:
			return o.client.watchdog
		default:
			left := end.until(now)
			want = max(want, min(o.client.watchdog, outlasting(left)))
		}
	}
	return want
}

// upholds tells a reader whose lease is never renewed. Redisson's readers that renew cut the
// time of the record down to their own timeout, and Redisson 3.x that of every reader in it: what is left of a
// longer lease is asserted again, and never becomes more by that.
func (o *owner) upholds() bool {
	return o.family == backend.KindRead && o.live == 1 && !o.first.watchdog
}

// expire ends what has run out by now: the owner, or holds with a bound.
func (o *owner) expire(now instant, fx *effects) {
	if o.state != ownerLive {
		return
	}
	if o.deadline.reached(now) {
		asked := o.askedFor(now)
		why := "its lease ran out before it was renewed; the store was unavailable, or the process was paused or starved"
		if t := o.trouble; asked {
			why = "its lease ran out, as WithLease or WithMaxHold asked"
		} else if t != nil && t.last != nil {
			why = fmt.Sprintf("%s; the last renewal failed: %v", why, t.last)
		}
		o.stepDown(now)
		o.endAll(o.lost(why), asked, now, fx)
		return
	}
	before := o.live
	for h := range o.all {
		if end, bounded := h.until(); bounded && end.reached(now) {
			o.finish(h, o.lost("it was held for as long as WithMaxHold allows"), true, now, fx)
		}
	}
	if o.live > 0 && o.live < before {
		o.countIsStale(now)
	}
	if o.live == 0 {
		o.stepDown(now)
		o.over(fx)
	}
}

// stepDown has a writer whose time is over released where readers who entered under it live
// on: their leases are the record's, so it would not end there by itself.
func (o *owner) stepDown(now instant) {
	if o.family != backend.KindWrite {
		return
	}
	for h := o.top; h != nil; h = h.below {
		if h.shared() {
			t := o.troubled()
			t.late, t.until = t.late+1, max(t.until, now.mono+int64(o.client.watchdog))
			return
		}
	}
}

// lose ends the owner and all its holds: the lock is not ours any more.
func (o *owner) lose(now instant, fx *effects, why string) {
	if o.state != ownerLive {
		return
	}
	o.endAll(o.lost(why), false, now, fx)
}

// endAll ends all holds, and the owner. asked: their ends are those that Lock was asked for.
func (o *owner) endAll(cause error, asked bool, now instant, fx *effects) {
	for h := range o.all {
		o.finish(h, cause, asked, now, fx)
	}
	o.over(fx)
}

// askedFor reports whether a lease that runs out now does so because Lock was asked for no more.
func (o *owner) askedFor(now instant) bool {
	for h := range o.all {
		if end, bounded := h.until(); h.watchdog && !(bounded && end.reached(now)) {
			return false
		}
	}
	return true
}

// finish ends one hold without an Unlock.
func (o *owner) finish(h *hold, cause error, asked bool, now instant, fx *effects) {
	o.detach(h, cause)
	fx.end(h, cause)
	c := o.client
	if c.log != nil {
		fx.then(func() {
			kind := sumLost
			if asked {
				kind = sumEnded
			}
			c.teller.sum(kind, "name", shorten(h.name()), "owner", o.id, "cause", cause)
		})
	}
	if f := c.observer.Lost; f != nil {
		held := time.Duration(now.mono - h.since.mono)
		fx.tell(c.teller, func() {
			h.tellLost(func() { f(LostEvent{Subject: h.subject(), Held: held, Err: cause}) })
		})
	}
}

// tellLost calls lost, or leaves that to the call that tells the observer that h was acquired,
// if that comes first.
func (h *hold) tellLost(lost func()) {
	c := h.owner.client
	if c.observer.Acquired != nil {
		c.mu.Lock()
		early := !h.told
		if early {
			h.lost = lost
		}
		c.mu.Unlock()
		if early {
			return
		}
	}
	lost()
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
	if t := o.trouble; t != nil && t.late > 0 {
		o.client.compensateLocked(o.family, o.queue.topic.Name, o.id, o.place, t.late, t.until)
		t.late = 0
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
