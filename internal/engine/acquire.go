package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// grant is what asking the store for a lock came to.
type grant struct {
	owner    string // for which it was asked
	reply    reply
	sent     clock.Instant // before the first request that may have got the lease
	asked    clock.Instant // before the last request; zero if none was sent
	verifyAt int64         // monotonic; when to ask whether it is held; 0 if it need not be
	until    int64         // when the last request of unknown outcome can no longer take effect (monotonic)
	slot     limiter
	err      error
	late     int32 // requests whose outcome is unknown
	changes  int32 // of the record, that were told before it was handed on
	granted  bool
	handed   bool // by the tenure before, within the process
	left     bool // its caller left while it was on its way
}

// heard notes what the last request came to.
func (g *grant) heard(reply *reply, err error, ttl time.Duration) {
	if g.err = err; err != nil {
		g.blame(err, ttl)
		return
	}
	g.reply, g.granted = *reply, reply.Granted
	g.verifyAt = verifyAt(g.asked, reply.VerifyAfter)
}

// verifyAt is when a grant that was asked for then is to be verified. Those of one period are verified together.
func verifyAt(asked clock.Instant, within time.Duration) int64 {
	if within <= 0 {
		return 0
	}
	period := int64(within)
	return (asked.Mono/period + 2) * period
}

// blame notes a request that may have taken effect.
func (g *grant) blame(err error, ttl time.Duration) {
	if backend.FaultOf(err).MayHaveRun {
		g.late++
		g.until = g.asked.Mono + int64(ttl)
	}
}

// sending notes that a request is sent now.
func (g *grant) sending(now clock.Instant) {
	if g.asked = now; g.late == 0 {
		g.sent = now
	}
}

// wasSent reports whether a request was sent.
func (g *grant) wasSent() bool { return g.asked != clock.Instant{} }

// resume repeats p, whose first request came to err, while that may pass. What it comes to is in g.
func (g *grant) resume(e *Engine, p pending, err error) {
	if err == nil {
		return
	}
	first := time.Now().Add(-e.Since(g.asked))
	_ = e.retry.Resume(err, first, func() error { return p.send(e.base) })
}

// question is what a call asks the store: a pending command.
type question struct {
	errand
	entry uint32 // of the client in the store's queue
	*call
	handed *grant // what a tenure of this process has got for the call; nil if it is to ask
	grant  grant  // what the last one came to
}

// ask asks the store once for a new owner, and makes a grant a lease. It returns a lease; or nil, with what it came
// to in c.grant; or *fail.CallerGone.
func (c *question) ask() (*lease.Hold, error) {
	defer c.panicked()
	if ctx, alone := c.open(); alone {
		return c.close(c.send(ctx))
	}
	return c.apart()
}

// open prepares a question. Where alone is true its caller sends it, with ctx, and closes it: no other goroutine is
// needed. Otherwise apart does what is to be done.
func (c *question) open() (ctx context.Context, alone bool) {
	e := c.engine
	if c.handed != nil {
		return nil, false
	}
	c.grant = grant{}
	if c.Family == backend.KindSemaphore {
		c.grant.owner = newPermitIDs(e.Config.ID, c.Wants)
	} else {
		c.grant.owner = e.OwnerID()
	}
	if err := c.enterLimit(); err != nil {
		c.grant.err = err
	}
	if c.grant.slot == nil {
		return nil, false
	}
	c.marks.sending = true
	return e.route(c.wait, c.Replicas.N == 0 && e.store.leaves(c.Family))
}

// close settles a question after a first send that came to err.
func (c *question) close(err error) (*lease.Hold, error) {
	err = c.engine.sent(c.wait, c, err)
	if c.marks.sending = false; err != nil {
		return nil, err
	}
	return c.receive()
}

// apart takes what was handed over, or sends from another goroutine.
func (c *question) apart() (*lease.Hold, error) {
	e := c.engine
	if g := c.handed; g != nil {
		c.grant, c.handed = *g, nil
		defer e.end() // begun where it was handed over
		return c.receive()
	}
	if g := &c.grant; g.slot == nil {
		if fail.IsGone(g.err) {
			return nil, g.err
		}
		return nil, nil
	}
	err := e.apart(c.wait, c)
	if c.marks.sending = false; err != nil {
		return nil, err
	}
	return c.receive()
}

// panicked gives the slot back where the backend panicked.
func (c *question) panicked() {
	if c.marks.sending {
		c.marks.sending = false
		c.grant.leave()
	}
}

// enterLimit takes a slot of the in-flight limiter. The error is *fail.CallerGone; another is in c.grant.
func (c *question) enterLimit() error {
	e := c.engine
	slot := e.limits.of(e.store.node(c.Name), c.Replicas.N > 0)
	waited, err := slot.enter(c.wait, e.calls.closing)
	if waited {
		c.marks.fresh = false // a lease counts from when its request is sent
	}
	if err != nil {
		if fail.IsGone(err) {
			return err
		}
		c.grant.err = err
		return nil
	}
	c.grant.slot = slot
	return nil
}

// send sends the next request.
func (c *question) send(ctx context.Context) error {
	q := backend.AcquireRequest{
		Name: c.Name, Owner: c.grant.owner, Lease: c.ttl, Fenced: c.Fenced, Replication: c.replication(),
		// What the session knows after a first request may be that this one got the lock.
		Unasked: c.Try && !c.grant.wasSent(),
	}
	c.grant.sending(c.ready())
	var r reply
	var err error
	if c.Family == backend.KindLock && c.Age == nil && !c.marks.enrols {
		var x backend.AcquireReply
		x, err = c.engine.store.Acquire(ctx, q)
		r, err = ofPlain(x), raised(err, ofPlain)
	} else {
		r, err = c.request(ctx, q)
	}
	if _, left := errors.AsType[*backend.Left[reply]](err); !left {
		c.grant.heard(&r, err, c.ttl)
	}
	return err
}

func (c *question) left(err error) func() error {
	return leftBehind(err, func(reply reply, err error) {
		c.grant.left = true
		c.grant.heard(&reply, err, c.ttl)
	})
}

// finish repeats a request that failed for a reason that may pass, unless the caller has left: the same request counts
// once however often it arrives. It gives the slot back.
func (c *question) finish(err error) error {
	defer c.grant.leave()
	if !c.grant.left {
		c.grant.resume(c.engine, c, err)
	}
	c.require()
	return nil
}

// dispose releases a grant whose caller has left.
func (c *question) dispose() {
	if c.grant.reply.Enrolled {
		c.engine.names.enrolledBehind(c.topic(), c.entry)
	}
	c.abandon()
	if c.marks.claims {
		c.withdrawClaim() // it may have been made after its owner left
	}
}

// receive settles what an acquisition came to, for a caller that may have left.
func (c *question) receive() (*lease.Hold, error) {
	if !c.grant.granted {
		c.abandon()
		return nil, nil
	}
	if c.wait.Err() != nil {
		c.abandon()
		return nil, fail.Gone(c.wait)
	}
	h, err := c.settle(c.under)
	if err != nil {
		c.abandon()
		c.grant.granted, c.grant.err = false, err
	}
	return h, nil
}

// settle makes a grant a lease whose context is a child of ctx.
func (c *question) settle(ctx context.Context) (*lease.Hold, error) {
	e := c.engine
	t := c.tenure()
	h := &t.First
	c.hold(h, ctx, c.grant.sent)
	if c.grant.handed {
		h.Since = c.grant.asked
	}
	t.Start(c.grant.sent, h)
	now := e.Now()
	e.lock()
	if err := e.calls.admit(t, c.outer != nil, now); err != nil {
		e.unlock()
		return nil, err
	}
	c.admit(t, now)
	t.Attach(h)
	if c.grant.handed && c.grant.changes != t.name.Changes {
		t.verify()
	}
	t.reschedule()
	e.unlock()
	c.acquired(h, 1)
	return h, nil
}

// tenure makes that of a grant. It is not yet live.
func (c *question) tenure() *tenure {
	e, g := c.engine, &c.grant
	t := &tenure{engine: e, family: c.Family, place: c.place}
	t.Keeper, t.Owner, t.TTL = t, g.owner, c.ttl
	t.Key = keyOf(e, topicOf(c.Family, c.Name))
	t.Deadline = clock.Deadline(g.sent, c.ttl)
	t.Plan = lease.NewPlan(e.Config.Watchdog)
	t.Fence = lease.Fence{Token: g.reply.Token, Drawn: c.Fenced}
	switch c.Family {
	case backend.KindRead:
		t.Mode = lease.Shared
	case backend.KindWrite:
		t.Mode = lease.Admitting
	case backend.KindDelegated:
		t.Delegated.Store(true)
		if c.delegation.Token != 0 {
			t.Fence = lease.Fence{Token: c.delegation.Token, Drawn: true}
		}
	}
	var outer *lease.Tenure
	if c.outer != nil && c.Family != backend.KindDelegated {
		outer = c.outer.Tenure
	}
	t.Under(outer)
	if g.late > 0 {
		t.trouble = &trouble{tenure: t, late: g.late, until: g.until}
	}
	if g.verifyAt != 0 {
		t.Plan.VerifyAt = g.verifyAt
	}
	return t
}

// admit enters a tenure into the client.
func (c *question) admit(t *tenure, now clock.Instant) {
	e := c.engine
	n := e.names.of(c.topic())
	t.name = n
	switch {
	case c.Family == backend.KindSemaphore:
		e.names.holds(t)
		e.names.tidy(n)
	default:
		lost, why := n.Admit(&t.Tenure)
		for _, x := range lost {
			c.supersede(t, ofTenure(x), now, why)
		}
		if n.waiters != nil {
			n.failing = 0
			if t.Mode != lease.Shared {
				n.Hold(true)
			}
		}
		if !c.grant.handed {
			n.refill(c.grant.reply.Foreign, now.Mono)
		}
	}
	if c.Family == backend.KindDelegated {
		e.names.join(t)
	}
	e.calls.held++
}

// supersede ends x, whose record is t's now. Replies do not come in the order of the grants: the store is asked of t,
// and of x, too, where x was asked for while t was.
func (c *question) supersede(t, x *tenure, now clock.Instant, why string) {
	if x.First.Since.Mono < c.grant.sent.Mono {
		x.lose(now, why)
	} else {
		x.verify()
	}
	t.Plan.Verify, t.Plan.RenewAt = true, now.Mono // as verify does: it is not live yet
}

// require releases a grant that too few replicas have.
func (c *question) require() {
	g := &c.grant
	if g.err != nil || !g.granted {
		return
	}
	lacks := c.lacks(g.reply.Replicas)
	if lacks == nil {
		return
	}
	g.granted, g.err = false, lacks
	q := backend.ReleaseRequest{Name: c.Name, Owner: g.owner}
	if _, _, err := c.engine.SendRelease(c.Family, q); err != nil {
		g.late, g.until = g.late+1, max(g.until, c.engine.Now().Mono+int64(c.ttl))
	}
}
