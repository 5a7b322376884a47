package mortise

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Lock implements [Locker] with the reentrant lock.
func (c *Client) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, name, false, Kind{}, opts)
}

// TryLock implements [Locker] with the reentrant lock.
func (c *Client) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return c.lock(ctx, name, true, Kind{}, opts)
}

func (c *Client) lock(ctx context.Context, name string, try bool, kind Kind, opts []Option) (*Lease, error) {
	return c.lockUntil(ctx, ctx, name, try, kind, opts)
}

// lockUntil is lock with a context for the lease, ctx, and one that bounds the waiting.
func (c *Client) lockUntil(ctx, wait context.Context, name string, try bool, kind Kind, opts []Option) (*Lease, error) {
	r, err := newRequest(name, try, kind, opts)
	if err != nil {
		return nil, err
	}
	return c.serve(ctx, wait, r)
}

// serve is a call whose options are applied.
func (c *Client) serve(ctx, wait context.Context, r *request) (*Lease, error) {
	if err := c.usable(); err != nil {
		return nil, r.fail(err)
	}
	if ctx == nil {
		return nil, r.fail(fmt.Errorf("%w: the context is nil; use context.Background()", ErrInvalid))
	}
	if r.lease == 0 {
		r.ttl = c.watchdog
		if r.maxHold > 0 {
			r.ttl = min(r.ttl, outlasting(r.maxHold))
		}
	} else {
		r.ttl = r.lease
	}
	if err := c.canReplicate(r); err != nil {
		return nil, r.fail(err)
	}
	r.since, r.fresh, r.under = c.now(), true, ctx
	lease, err := c.take(ctx, wait, r)
	if err != nil {
		if f := c.observer.NotAcquired; f != nil {
			f(NotAcquiredEvent{Subject: r.subject(), Waited: c.since(r.since), Contended: r.contended, Err: err})
		}
		return nil, err
	}
	return lease, nil
}

func (c *Client) since(i instant) time.Duration { return time.Duration(c.now().mono - i.mono) }

// take is Lock and TryLock. The waiting ends with wait, the lease's parent is ctx.
func (c *Client) take(ctx, wait context.Context, r *request) (*Lease, error) {
	if r.wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = boundWait(wait, r.wait)
		defer cancel()
	}
	if r.family != backend.KindPermits {
		r.key = holdKey{c, r.topic()}
		switch x := ctx.Value(&r.key).(type) {
		case *hold:
			lease, ended, err := c.enter(ctx, wait, r, x)
			if !ended {
				return lease, err
			}
		case *Claim:
			return c.nest(ctx, wait, r, *x)
		}
	}
	if r.try {
		return c.tryOnce(ctx, wait, r)
	}
	if r.family == backend.KindFair {
		return c.standInLine(ctx, wait, r)
	}
	return c.queueUp(ctx, wait, r)
}

// grant is what asking the store for a lock came to.
type grant struct {
	granted   bool
	remaining time.Duration
	token     int64
	sent      instant       // before the first request that may have got the lease
	asked     instant       // before the last request
	available int64         // permits that are left
	claimed   bool          // the refusal keeps fresh readers out for a while
	absent    bool          // what it was to enter under is gone
	young     bool          // the store stays out for what remains
	passed    bool          // by the holder before: see handover.go
	changes   int           // of the record, that were told before it was passed
	waits     bool          // the refusal left a place: see turn.go
	look      time.Duration // when to ask again, of a fair lock
	replicas  int           // that have it, where asked for
	confirm   int64         // monotonic; when to ask whether it is held: see confirmAt; 0 if it need not be
	late      int           // requests whose outcome is unknown
	lateUntil int64         // when the last of them can no longer take effect
	err       error
}

// ask asks the store, again if it fails for a reason that may pass: the same
// request counts once however often it arrives. g is what the owner's requests
// before this one came to, if there were any.
func (c *Client) ask(r *request, owner string, g grant) grant {
	first := c.ready(r)
	ctx := c.base
	if c.leavable(r) {
		ctx = c.inPlace(r.family)
	}
	err := c.askOnce(ctx, r, owner, &g, 0, first)
	return c.askAgain(r, owner, g, err, first)
}

// askAgain goes on with ask after the first request, at first, which came to g and err.
func (c *Client) askAgain(r *request, owner string, g grant, err error, first instant) grant {
	for n := 0; err != nil && c.again(err, n, first); n++ {
		err = c.askOnce(c.base, r, owner, &g, n+1, c.now())
	}
	c.require(r, owner, &g)
	return g
}

// askOnce sends the n-th request, from zero, at a time just past.
func (c *Client) askOnce(ctx context.Context, r *request, owner string, g *grant, n int, sent instant) error {
	req := backend.AcquireRequest{Kind: r.family, Name: r.name, Owner: owner, Lease: r.ttl, Fenced: r.kind.Fenced, Cached: r.try, Wait: r.queue, Age: r.age, Waits: r.waits,
		Replicas: r.replicas.n, ReplicaWait: r.replicas.timeout}
	r.side(&req, c)
	r.nested(&req)
	if n > 0 {
		req.Cached = false // what the session knows may be that the first one got it
	}
	g.asked = sent
	if g.late == 0 {
		g.sent = sent
	}
	reply, err := c.session.Acquire(ctx, req)
	g.heard(&reply, err, r.ttl)
	return err
}

// heard settles what the last request came to.
func (g *grant) heard(reply *backend.AcquireReply, err error, ttl time.Duration) {
	if g.err = err; err != nil {
		g.blame(err, g.asked, ttl)
		return
	}
	g.granted, g.remaining, g.token = reply.Granted, reply.Remaining, reply.Token
	g.available, g.claimed, g.absent, g.look = reply.Available, reply.Claimed, reply.Absent, reply.Look
	g.young, g.waits, g.replicas = reply.Young, reply.Waits, reply.Replicas
	g.confirm = confirmAt(g.asked, reply.Confirm)
}

// confirmAt is when one who was asked for then is to be asked after. Those of one period are asked after together.
func confirmAt(asked instant, within time.Duration) int64 {
	if within <= 0 {
		return 0
	}
	period := int64(within)
	return (asked.mono/period + 2) * period
}

func (g *grant) blame(err error, sent instant, ttl time.Duration) {
	if backend.FaultOf(err).MayHaveRun {
		g.late++
		g.lateUntil = sent.mono + int64(ttl)
	}
}

// again tells whether a command that failed is worth repeating, and waits before that.
func (c *Client) again(err error, n int, first instant) bool {
	const most = 3
	if n+1 >= most || !backend.FaultOf(err).Temporary || c.since(first) > patience/2 {
		return false
	}
	return c.pause(10 * time.Millisecond << (2 * n))
}

// insist repeats a command that failed for a reason that may pass.
func (c *Client) insist(send func() error) error {
	first := c.now()
	return c.insistAfter(send(), first, send)
}

// insistAfter is insist for a command that was sent before, at first, and came to err.
func (c *Client) insistAfter(err error, first instant, send func() error) error {
	for n := 0; err != nil && c.again(err, n, first); n++ {
		err = send()
	}
	return err
}

// pause waits; it is false if the client is closed meanwhile.
func (c *Client) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.base.Done():
		return false
	}
}

// request sends one acquisition for a new owner and settles what becomes of it, between
// setOff and arrived. It returns a lease, or a grant that was refused or failed. err is *callerGone.
func (c *Client) request(ctx, wait context.Context, r *request) (*Lease, grant, error) {
	if h := r.handed; h != nil {
		r.handed = nil
		defer c.end() // begun where it was handed over
		return c.receive(ctx, wait, r, h.owner, h.grant)
	}
	var owner string
	if r.family == backend.KindPermits {
		owner = newPermitID()
	} else {
		owner = c.newOwnerID()
	}
	if err := c.place(wait, r); err != nil {
		if _, left := errors.AsType[*callerGone](err); left {
			return nil, grant{}, err
		}
		return nil, grant{err: err}, nil
	}
	g, err := c.askUnder(wait, r, owner)
	if err != nil {
		return nil, grant{}, err
	}
	return c.receive(ctx, wait, r, owner, g)
}

// ready is the time just past: without a look at the clock, if r has not waited since it was called.
func (c *Client) ready(r *request) instant {
	if r.fresh {
		r.fresh = false
		return r.since
	}
	return c.now()
}

// receive settles what an acquisition came to, for a caller who may have left.
func (c *Client) receive(ctx, wait context.Context, r *request, owner string, g grant) (*Lease, grant, error) {
	if !g.granted {
		c.abandon(r, owner, &g)
		return nil, g, nil
	}
	if wait.Err() != nil {
		c.abandon(r, owner, &g)
		return nil, grant{}, gone(wait)
	}
	lease, err := c.settle(ctx, r, owner, &g)
	if err != nil {
		c.abandon(r, owner, &g)
		g.granted, g.err = false, err
	}
	return lease, g, nil
}

// askUnder is ask for a caller who may leave meanwhile. Whoever then finds the reply has r's
// place at the gate.
func (c *Client) askUnder(wait context.Context, r *request, owner string) (g grant, err error) {
	if wait.Done() == nil {
		return c.ask(r, owner, grant{}), nil
	}
	var a *asking
	if c.leavable(r) {
		// No goroutine, unless something goes wrong.
		first := c.ready(r)
		err := c.askOnce(wait, r, owner, &g, 0, first)
		if err == nil {
			return g, nil
		}
		r.placed = false
		if left, is := errors.AsType[*backend.Left[backend.AcquireReply]](err); is {
			c.askedBehind(r, owner, g.sent, left)
			return grant{}, gone(wait)
		}
		a = &asking{client: c, request: r, owner: owner, grant: g, failure: err, first: first}
	} else {
		r.placed = false
		a = &asking{client: c, request: r, owner: owner}
	}
	if err := sendOff(c, wait, a); err != nil {
		return grant{}, err
	}
	return a.grant, nil
}

// inPlace is the context of a command that its caller cannot leave. A session that lets callers leave
// ends it itself when it is closed, and can do without a goroutine if it sees that nobody leaves.
func (c *Client) inPlace(family backend.Kind) context.Context {
	if c.leaves(family) {
		return context.Background()
	}
	return c.base
}

func (c *Client) leaves(family backend.Kind) bool { return c.leaver != nil && c.leaver.Leaves(family) }

// askedBehind settles an acquisition, sent at a time, whose caller has left.
func (c *Client) askedBehind(r *request, owner string, sent instant, left *backend.Left[backend.AcquireReply]) {
	leftBehind(c, left, func(reply backend.AcquireReply, err error) {
		defer c.passed(c.gateOf(r))
		a := asking{client: c, request: r, owner: owner, grant: grant{sent: sent, asked: sent}}
		a.grant.heard(&reply, err, r.ttl)
		a.orphan()
	})
}

// asking is one acquisition on its way, for a caller who may leave.
type asking struct {
	claimable
	client  *Client
	request *request
	owner   string
	grant   grant
	failure error   // of the first request, if it was sent before
	first   instant // when
}

func (a *asking) do() error {
	c := a.client
	defer c.passed(c.gateOf(a.request))
	if a.failure != nil {
		a.grant = c.askAgain(a.request, a.owner, a.grant, a.failure, a.first)
	} else {
		a.grant = c.ask(a.request, a.owner, grant{})
	}
	return nil
}

func (a *asking) orphan() {
	if a.grant.waits {
		a.client.waitsBehind(a.request.topic())
	}
	a.client.abandon(a.request, a.owner, &a.grant)
	if a.request.claims {
		a.client.withdraw(a.request.topic()) // it may have been made after its owner left
	}
}

// abandon gives back, in the background, what an acquisition got, or may yet get,
// that nobody wants.
func (c *Client) abandon(r *request, owner string, g *grant) {
	c.mu.Lock()
	c.abandonLocked(r, owner, g)
	c.mu.Unlock()
}

func (c *Client) abandonLocked(r *request, owner string, g *grant) {
	late, until := g.late, g.lateUntil
	if g.granted {
		until = max(until, c.now().mono+int64(r.ttl))
		if late > 0 { // the grant is found as well
			late++
		}
	}
	if g.granted || late > 0 {
		c.compensateLocked(r.family, r.name, owner, r.queue, late, until)
	}
}

// settle makes a grant a lease.
func (c *Client) settle(ctx context.Context, r *request, id string, g *grant) (*Lease, error) {
	o := &owner{client: c, id: id, family: r.family, place: r.queue, renewAt: never, checkAt: never}
	o.token, o.fenced = r.fencing(g)
	o.lent.Store(r.family == backend.KindNested)
	h := &o.first
	since := g.sent
	if g.passed {
		since = g.asked
	}
	h.begin(ctx, r, c.leases.Add(1), since)
	o.chain = r.chainOf(o)
	o.timed = timed{of: o}
	o.ttl = r.ttl
	o.deadline = deadlineOf(g.sent, r.ttl)
	if g.late > 0 {
		o.trouble = &trouble{late: g.late, until: g.lateUntil}
	}
	if h.watchdog || r.family == backend.KindRead && r.lease > c.watchdog {
		o.renewAt = g.sent.mono + int64(c.watchdog/3)
	}
	if g.confirm != 0 {
		o.checkAt = g.confirm
	}
	now := c.now()

	var fx effects
	c.mu.Lock()
	shut := c.over || c.shut && r.outer == nil
	if shut || o.deadline.reached(now) {
		c.mu.Unlock()
		if shut {
			return nil, errClosing
		}
		return nil, &backend.Fault{
			Err:       errors.New("the store granted the lock after its lease had run out"),
			Remedy:    "take a longer lease, or look why the store or this process is so slow",
			Temporary: true,
		}
	}
	q := c.queueOf(r.topic())
	o.queue = q
	if r.family == backend.KindPermits {
		c.permits[id] = o
		c.tidy(q)
	} else {
		q.admit(o, now, &fx)
		if q.waiters != nil {
			q.trouble = time.Time{}
		}
		if !g.passed {
			q.quota = q.turns()
		}
	}
	if r.family == backend.KindNested {
		c.join(o)
	}
	c.held++
	o.attach(h)
	if g.passed && g.changes != q.changes {
		o.ask()
	}
	c.reschedule(o)
	c.mu.Unlock()
	fx.run()
	c.acquired(r, h, 1)
	return &h.lease, nil
}

func (c *Client) acquired(r *request, h *hold, holds int) {
	f := c.observer.Acquired
	if f == nil {
		return
	}
	contended := r.contended
	token, _ := h.fence()
	r.contended = false // one of LockAll's that is given back may wait once more
	if r.placed {       // a slow observer keeps no place at the gate
		r.placed = false
		c.passed(c.gateOf(r))
	}
	f(AcquiredEvent{Subject: h.subject(), Waited: c.since(r.since), Contended: contended, Holds: holds, Token: token})
	c.mu.Lock()
	h.told = true
	lost := h.lost
	c.mu.Unlock()
	if lost != nil {
		c.teller.event(lost)
	}
}

func (c *Client) tryOnce(ctx, wait context.Context, r *request) (*Lease, error) {
	now := c.now()
	c.mu.Lock()
	if c.shut && r.outer == nil {
		c.mu.Unlock()
		return nil, r.fail(ErrClosed)
	}
	if q := c.queues[r.topic()]; q != nil {
		if left := q.blocks(r, now); left > 0 {
			c.mu.Unlock()
			return nil, r.refused(left)
		}
	}
	c.setOff(r)
	c.mu.Unlock()
	defer c.settled(r)
	lease, g, err := c.request(ctx, wait, r)
	switch {
	case err != nil:
		return nil, r.fail(err)
	case lease != nil:
		return lease, nil
	case g.err != nil:
		return nil, r.fail(c.explain(g.err))
	case g.young:
		return nil, &Error{Op: r.op(), Name: r.name, Remaining: g.remaining, Err: errYoung}
	case g.absent:
		return nil, r.fail(r.claimEnded())
	}
	return nil, r.refused(g.remaining)
}

func (r *request) refused(remaining time.Duration) error {
	return r.notAcquired(remaining, r.missing("holds"))
}

// missing says what stands in the way.
func (r *request) missing(holds string) string {
	if r.short != "" {
		return r.short
	}
	return "somebody else " + holds + " it"
}

func (r *request) notAcquired(remaining time.Duration, why string) error {
	if r.family == backend.KindSemaphore || r.family == backend.KindLatch {
		remaining = 0 // there is no lease that could end
	}
	return &Error{Op: r.op(), Name: r.name, Remaining: remaining, Err: fmt.Errorf("%w: %s", ErrNotAcquired, why)}
}
