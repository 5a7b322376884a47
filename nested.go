package mortise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// A lock is entered from another process by an owner of its own, nested in the store under the one whose
// claim came with the call: counts being absolute, two processes that raised one would both be in. The
// process that gave a claim out does likewise from then on, so that a count that was lent never
// rises: no later hold can be taken for the one that the claim is about, and one order in the store is that of all who enter. See
// docs/decisions/0032.

// nests tells whether the store has locks that several owners hold, each under another.
func (c *Client) nests() bool {
	s, is := c.session.(backend.NestSession)
	return is && s.Nests()
}

// nestable tells an owner whose record is the reentrant lock's.
func (o *owner) nestable() bool {
	switch o.family {
	case backend.KindLock, backend.KindFair, backend.KindNested:
		return true
	}
	return false
}

// kind is what the store is asked by: an owner that was lent is not alone in its record.
func (o *owner) kind() backend.Kind {
	if o.lent.Load() {
		return backend.KindNested
	}
	return o.family
}

// lend makes a claim on h, if it is live and of a kind that is entered from elsewhere.
func (h *hold) lend() (Claim, bool) {
	o := h.owner
	c := o.client
	if !o.nestable() || !c.nests() || h.err() != nil {
		return Claim{}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.cause != nil {
		return Claim{}, false // meanwhile
	}
	if !o.lent.Load() {
		o.number()
		o.lent.Store(true)
		if o.stale {
			o.repairSoon(c.now().mono)
			c.reschedule(o)
		}
	}
	ends := o.deadline.wall
	if until, bounded := h.until(); bounded {
		ends = min(ends, until.wall)
	}
	claim := h.claim()
	claim.Expires = time.Unix(0, ends).UTC().Truncate(time.Millisecond)
	return claim, true
}

// number gives o's live holds the levels that they keep once it is lent: a claim on one that has ended then
// fits no other.
func (o *owner) number() {
	level := o.live
	for h := range o.all {
		h.level = level
		level--
	}
}

// count is what o's hold count in the store is to be: how many live, or once it was lent the level of
// the innermost.
func (o *owner) count() int {
	if !o.lent.Load() {
		return int(o.live)
	}
	for h := range o.all {
		return int(h.level)
	}
	return 0
}

// countIsStale notes that the store's hold count may be higher than o's. Where o was lent, callees
// wait for the count to fall, so it is set at once; else the next operation that sets it will do.
func (o *owner) countIsStale(now instant) {
	if o.stale = true; o.lent.Load() {
		o.repairSoon(now.mono)
		o.client.reschedule(o)
	}
}

// settled notes that the store has confirmed a hold count. A hold that ran out meanwhile has made it
// too high already.
func (o *owner) settled(count int) {
	if count != o.count() {
		return
	}
	o.stale = false
	if t := o.trouble; t != nil {
		t.repairAt, t.repairs = 0, 0
	}
}

// repairSoon has the store's hold count set right at a time, unless that is due already.
func (o *owner) repairSoon(at int64) {
	if t := o.troubled(); t.repairAt == 0 {
		t.repairAt = at
	}
}

// repairLater has the store's hold count set again after a failure, with backoff.
func (o *owner) repairLater(now instant) {
	o.stale = true
	t := o.troubled()
	t.repairs++
	o.repairSoon(now.mono + int64(min(25*time.Millisecond<<min(t.repairs, 10), time.Second)))
	o.client.reschedule(o)
}

// repair sets the store's hold count to what is live, in the owner's turn. It does not wait for
// that: it is sent by one of few goroutines.
func (o *owner) repair() {
	c := o.client
	x := letting{owner: o, live: true}
	c.mu.Lock()
	if o.stale && o.state == ownerLive { // else the operation before has set it, or the owner is over
		if t := new(turn); o.enter(t) {
			x.prepare()
		} else {
			o.quit(t)
			o.repairLater(c.now())
		}
	}
	c.mu.Unlock()
	if x.ready {
		_, _ = x.run(context.Background()) // a failure is followed by another repair
	}
}

func (h *hold) claim() Claim {
	x := Claim{Name: h.name(), Owner: h.owner.id, Hold: int(h.level)}
	x.Token, _ = h.fence()
	return x
}

// enters tells whether one who locks with ctx does not compete.
func (c *Client) enters(ctx context.Context, key *holdKey) bool {
	switch x := ctx.Value(key).(type) {
	case *hold:
		return x.err() == nil
	case *Claim:
		return true
	}
	return false
}

// nestUnder takes the lock under h, whose owner was lent. It reports ended if h has ended.
func (c *Client) nestUnder(ctx, wait context.Context, r *request, h *hold) (lease *Lease, ended bool, err error) {
	o, family := h.owner, r.family
	r.outer = h
	if h.err() == nil {
		lease, err = c.nest(ctx, wait, r, h.claim())
		if !errors.Is(err, ErrClaimEnded) {
			return lease, false, err
		}
		var fx effects
		now := c.now()
		c.mu.Lock()
		o.expire(now, &fx)
		lost := h.cause == nil // it lives here, and the store knows of no such hold
		if lost {
			o.lose(now, &fx, noRecord)
		}
		c.mu.Unlock()
		fx.run()
		if lost {
			return nil, false, r.fail(o.lost("it was gone from the store when it was to be entered again"))
		}
	}
	r.outer, r.claim, r.family = nil, nil, family
	return nil, true, nil
}

// nest takes the lock under a claim.
func (c *Client) nest(ctx, wait context.Context, r *request, x Claim) (*Lease, error) {
	if r.kind.NonReentrant {
		return nil, r.fail(fmt.Errorf("%w: the call comes from a holder of this lock, and Kind{NonReentrant} does not enter again; unlock it first, or use the reentrant lock", ErrInvalid))
	}
	r.family, r.claim = backend.KindNested, &x
	c.mu.Lock()
	shut := c.shut
	c.mu.Unlock()
	if r.try || shut && r.outer != nil { // those who hold it already are to finish
		lease, err := c.tryOnce(ctx, wait, r)
		if shut && errors.Is(err, ErrNotAcquired) {
			err = r.fail(ErrClosed)
		}
		return lease, err
	}
	var lease *Lease
	err := c.stand(wait, r.topic(), r, func() (answer, error) {
		var g grant
		var err error
		lease, g, err = c.request(ctx, wait, r)
		if err == nil && g.absent {
			err = r.claimEnded()
		}
		return answer{got: lease != nil, left: g.remaining, look: g.look, failure: g.err}, err
	})
	return lease, err
}

func (r *request) claimEnded() error {
	return fmt.Errorf("%w: %q does not hold the lock any more, or not by the hold that the call comes from; that hold was unlocked or lost, its lease ran out, or the claim's token is none", ErrClaimEnded, shorten(r.claim.Owner))
}

// nested is what the store is to know of one who enters under a claim.
func (r *request) nested(q *backend.AcquireRequest) {
	if x := r.claim; x != nil {
		q.Under, q.UnderHolds = x.Owner, x.Hold
		if r.outer == nil { // it came from elsewhere
			q.UnderToken = x.Token
		}
		q.Fenced = r.kind.Fenced && x.Token == 0
		q.Cached = false
	}
}

// fencing is the token of a lease, and whether it has one.
func (r *request) fencing(g *grant) (token int64, fenced bool) {
	if r.claim != nil && r.claim.Token != 0 {
		return r.claim.Token, true
	}
	return g.token, r.kind.Fenced
}

// join and part keep who is nested in this client, by name: to be asked when a record has changed.
func (c *Client) join(o *owner) {
	name := o.queue.topic.Name
	if c.nested[name] == nil {
		if c.nested == nil {
			c.nested = make(map[string]map[*owner]struct{})
		}
		c.nested[name] = make(map[*owner]struct{})
	}
	c.nested[name][o] = struct{}{}
}

func (c *Client) part(o *owner) {
	if len(c.nested) == 0 {
		return
	}
	name := o.queue.topic.Name
	delete(c.nested[name], o)
	if len(c.nested[name]) == 0 {
		delete(c.nested, name)
	}
}

// askNested has the store asked whether those who are nested still hold what they hold.
func (c *Client) askNested(t backend.Topic) {
	if t.Kind != backend.KindLock {
		return
	}
	for o := range c.nested[t.Name] {
		o.hinted()
	}
}

// hinted has the store asked whether o still holds what it holds, since its record has changed. That of one who
// was lent changes each time that somebody enters or leaves, and when another of them renews: it is asked at most once a second, by a question
// that changes nothing, or they would tell each other for ever.
func (o *owner) hinted() {
	switch {
	case !o.lent.Load():
		o.ask()
	case o.state == ownerLive && o.checkAt == never:
		o.checkAt = o.client.now().mono + int64(checkWithin*3/4+rand.N(checkWithin/4))
		o.client.reschedule(o)
	}
}
