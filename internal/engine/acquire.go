package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/asked"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// grant is the outcome of an attempt: of the requests for one new owner.
type grant struct {
	owner     string // the new owner's id
	reply     reply
	sent      clock.Instant // before the first request that may have taken effect: the lease counts from here
	asked     clock.Instant // before the last request; zero if none was sent
	verifyAt  int64         // when to verify the grant, or to confirm it if first is set (monotonic); 0: not needed
	until     int64         // when the last request of unknown outcome can no longer take effect (monotonic)
	slot      *limiter
	err       error
	unknown   int32 // the number of requests of unknown outcome
	changes   int32 // if byHandoff: Record.Changes when the handoff began; if it differs later, the new tenure verifies
	first     int32 // the lease of a grant by a message that is not confirmed yet, in ms; 0: the lease that was asked for
	granted   bool
	byHandoff bool // the grant came by a handoff
	left      bool // the caller left while the request was on its way
	abandoned bool // what the owner has, or may get, is being released
}

// noteReply notes the answer to the last request.
func (g *grant) noteReply(reply *reply, err error, ttl time.Duration) {
	if g.err = err; err != nil {
		g.blame(err, ttl)
		return
	}
	g.reply, g.granted = *reply, reply.Granted
	g.verifyAt = verifyAt(g.asked, reply.VerifyAfter)
}

// verifyAt returns when to verify a grant that was asked for at asked: at the end of the next period of the length
// within. Grants of the same period get the same time, so that one command verifies many.
func verifyAt(asked clock.Instant, within time.Duration) int64 {
	if within <= 0 {
		return 0
	}
	period := int64(within)
	return (asked.Mono/period + 2) * period
}

// blame counts a failed request if it may have taken effect.
func (g *grant) blame(err error, ttl time.Duration) {
	if backend.FaultOf(err).MayHaveRun {
		g.unknown++
		g.until = g.asked.Mono + int64(ttl)
	}
}

// sending notes that a request is sent now.
func (g *grant) sending(now clock.Instant) {
	if g.asked = now; g.unknown == 0 {
		g.sent = now
	}
}

// wasSent reports whether a request was sent.
func (g *grant) wasSent() bool { return g.asked != clock.Instant{} }

// resume repeats p, whose first request returned err, while the failure is temporary, c's wait has not ended, and
// Shutdown has not begun, except for a call that enters under a hold. p notes the outcome in g.
func (g *grant) resume(c *call, p pending, err error) {
	if err == nil {
		return
	}
	e := c.engine
	policy, first := e.asking(), time.Now().Add(-e.Since(g.asked))
	if c.outer != nil {
		policy = e.retry
	}
	_ = policy.Resume(c.wait, e.noteFailure(err), first, func() error { return e.noteFailure(p.send(e.base)) })
}

// attempt is one try of a call to acquire: a request to the store, or the grant of a handoff. It is a pending command.
type attempt struct {
	errand
	entry uint32 // the waiters' entry in the store's queue
	*call
	// handoffGrant is the grant of a handoff that made the request needless; nil: send one. Guarded by the engine's mutex.
	handoffGrant *grant
	grant        grant // the outcome of the last request
}

// run asks the store once, for a new owner, and makes a grant a lease. It returns the lease; or nil if c.grant was
// refused or failed; or *fail.CallerGone.
func (c *attempt) run() (*lease.Hold, error) {
	defer c.panicked()
	if ctx, alone := c.prepare(); alone {
		return c.finishHere(c.send(ctx))
	}
	return c.runElsewhere()
}

// prepare prepares the request. If alone is true, the caller sends the request with ctx on its own goroutine, and then
// calls finishHere. Otherwise the caller calls runElsewhere.
func (c *attempt) prepare() (ctx context.Context, alone bool) {
	e := c.engine
	if c.handoffGrant != nil {
		return nil, false
	}
	if c.marks.sent = false; !c.marks.places { // begins has set it
		c.grant = grant{owner: c.owner()}
	}
	if err := c.enterLimit(); err != nil {
		c.grant.err = err
	}
	if c.grant.slot == nil {
		return nil, false
	}
	c.marks.sending, c.marks.sent = true, true
	return e.route(c.wait, c.Replicas.N == 0 && e.store.leaves(c.Family))
}

// owner returns the id of the new owner.
func (c *attempt) owner() string {
	if c.Family == backend.KindSemaphore {
		return newPermitIDs(c.engine.Config.ID, c.Wants)
	}
	return c.engine.OwnerID()
}

// finishHere finishes an attempt whose first send, on the caller's goroutine, returned err.
func (c *attempt) finishHere(err error) (*lease.Hold, error) {
	err = c.engine.sent(c.wait, c, err)
	if c.marks.sending = false; err != nil {
		return nil, err
	}
	return c.receive()
}

// runElsewhere takes the grant of a handoff, or sends the request from another goroutine.
func (c *attempt) runElsewhere() (*lease.Hold, error) {
	e := c.engine
	if g := c.handoffGrant; g != nil {
		c.grant = *g
		defer e.end() // waiter.give counted it as running
		return c.receive()
	}
	if g := &c.grant; g.slot == nil {
		if fail.IsGone(g.err) {
			return nil, g.err
		}
		return nil, nil
	}
	err := e.carryOutElsewhere(c.wait, c)
	if c.marks.sending = false; err != nil {
		return nil, err
	}
	return c.receive()
}

// panicked aborts the request if it is still being sent.
func (c *attempt) panicked() { abortIf(&c.marks.sending, c) }

// enterLimit takes a slot of the in-flight limiter. It returns *fail.CallerGone; other errors are in c.grant.err.
func (c *attempt) enterLimit() error {
	e := c.engine
	slot := e.limits.of(e.store.node(c.Name), c.Replicas.N > 0)
	waited, err := slot.enter(c.wait, e.calls.closing)
	if waited {
		c.marks.fresh = false // the lease must count from the time of the request, not from the time of the call
	}
	if err != nil {
		if fail.IsGone(err) {
			return err
		}
		if busy := e.store.busy(c.Name); busy != nil && !errors.Is(err, fail.Closing) {
			err = fmt.Errorf("%w; %w", err, busy)
		}
		c.grant.err = err
		return nil
	}
	c.grant.slot = slot
	return nil
}

// send sends one request.
func (c *attempt) send(ctx context.Context) error {
	q := backend.AcquireRequest{
		Name: c.Name, Owner: c.grant.owner, Lease: c.ttl, Fenced: c.Fenced, Replication: c.replication(),
		// The held cache may know of a hold because a first request got it. So only the first request is refused by
		// the cache.
		Unasked: c.Try && !c.grant.wasSent() && !asked.Is(c.under),
	}
	if c.grant.sending(c.ready()); c.marks.places { // each request for a granted owner extends its lease
		c.grant.sent = c.grant.asked
	}
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
		c.grant.noteReply(&r, err, c.ttl)
	}
	return err
}

func (c *attempt) left(err error) func() error {
	return leftBehind(err, func(reply reply, err error) {
		c.grant.left = true
		c.grant.noteReply(&reply, err, c.ttl)
	})
}

// finish repeats a request after a temporary failure, unless the caller has left. The same request counts once,
// however often it arrives. finish releases the slot of the in-flight limiter.
func (c *attempt) finish(err error) error {
	defer c.grant.leave()
	if !c.grant.left {
		c.grant.resume(c.call, c, err)
	}
	c.require()
	return nil
}

// dispose releases a grant whose caller has left, with the entry and the claim that the request may have left.
func (c *attempt) dispose() {
	if c.grant.reply.Enrolled {
		c.engine.names.enrolledBehind(c.topic(), c.entry, c.grant.owner, c.keeps())
		if c.marks.places && c.grant.unknown > 0 { // the entry counts as well
			c.grant.unknown++
		}
	}
	c.abandon()
	if c.marks.claims {
		c.withdrawClaim() // the request may have made the claim after the call withdrew it
	}
}

// keeps reports whether the store keeps permits for the entry, for the waiter that wanted the fewest when the request
// was made.
func (c *attempt) keeps() bool {
	return !c.grant.granted && 0 < c.marks.least && int64(c.marks.least) <= c.grant.reply.Available
}

func (c *attempt) abort() {
	c.replyLost()
	c.dispose()
}

// replyLost notes that the request has an unknown outcome, and releases the slot of the in-flight limiter.
func (c *attempt) replyLost() {
	c.grant.noteReply(nil, errPanicked, c.ttl)
	c.grant.granted, c.grant.reply.Enrolled = false, c.marks.enrols
	c.grant.leave()
}

// receive makes a grant a lease, or releases the grant if the caller's wait has ended.
func (c *attempt) receive() (*lease.Hold, error) {
	if !c.grant.granted {
		if !c.marks.places || c.grant.abandoned { // otherwise the owner is asked for again
			c.abandon()
		}
		return nil, nil
	}
	if c.wait.Err() != nil {
		c.abandon()
		return nil, fail.Gone(c.wait)
	}
	h, err := c.makeLease(c.under)
	if err != nil {
		c.abandon()
		c.grant.granted, c.grant.err = false, err
	}
	return h, nil
}

// makeLease makes a grant a live tenure with its first hold. The context of the lease is a child of ctx.
func (c *attempt) makeLease(ctx context.Context) (*lease.Hold, error) {
	e := c.engine
	t := c.tenure()
	h := &t.First
	c.hold(h, ctx, c.grant.sent)
	now := e.Now()
	switch {
	case c.grant.byHandoff:
		h.Since = c.grant.asked
	case c.grant.first > 0:
		h.Since = now
	}
	t.Start(c.grant.sent, now, h)
	e.lock()
	if err := e.calls.admit(t, c.outer != nil, now); err != nil {
		e.unlock()
		return nil, err
	}
	c.admit(t, now)
	t.Attach(h)
	if c.grant.byHandoff && c.grant.changes != t.name.Changes {
		t.verify()
	}
	t.confirmLater(&c.grant, now)
	t.reschedule()
	e.unlock()
	c.acquired(h, 1)
	return h, nil
}

// tenure makes the tenure of a grant. It is not live yet.
func (c *attempt) tenure() *tenure {
	e, g := c.engine, &c.grant
	t := &tenure{engine: e, family: c.Family, keepFor: c.keepFor}
	t.Keeper, t.Owner, t.TTL = t, g.owner, c.ttl
	t.Key = keyOf(e, topicOf(c.Family, c.Name))
	t.Deadline = clock.Deadline(g.sent, cmp.Or(g.lease(), c.ttl))
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
	if g.unknown > 0 {
		t.trouble = &trouble{tenure: t, unknown: g.unknown, until: g.until}
	}
	if g.verifyAt != 0 && g.first == 0 {
		t.Plan.VerifyAt = g.verifyAt
	}
	return t
}

// admit adds a new tenure to the engine's state. It is called with the mutex.
func (c *attempt) admit(t *tenure, now clock.Instant) {
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
		if !c.grant.byHandoff {
			n.refill(c.grant.reply.Foreign, now.Mono)
		}
	}
	if c.Family == backend.KindDelegated {
		e.names.addCallee(t)
	}
	e.calls.held++
}

// supersede handles x, a tenure of this process in the record that the store has granted to t. Replies may arrive in
// another order than the grants. If x was asked for before t, x is lost. Otherwise either may be the later one: the
// store is asked whether x is still held. In both cases it is asked whether t is.
func (c *attempt) supersede(t, x *tenure, now clock.Instant, why string) {
	if x.First.Since.Mono < c.grant.sent.Mono {
		if x.State == lease.Releasing && c.grant.first > 0 && !c.grant.byHandoff {
			return // the store granted the lock when it released x
		}
		x.lose(now, why)
	} else {
		x.verify()
	}
	t.Plan.Verify, t.Plan.RenewAt = true, now.Mono // as verify does; t is not live yet
}

// require releases a grant with fewer replicas than the call wants.
func (c *attempt) require() {
	g := &c.grant
	if g.err != nil || !g.granted {
		return
	}
	lacks := c.lacks(g.reply.Replicas)
	if lacks == nil {
		return
	}
	g.granted, g.abandoned, g.err = false, true, lacks
	q := backend.ReleaseRequest{Name: c.Name, Owner: g.owner}
	if _, _, err := c.engine.SendRelease(c.Family, q); err != nil {
		g.unknown, g.until = g.unknown+1, max(g.until, c.engine.Now().Mono+int64(c.ttl))
	}
}
