package mortise

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// mostTogether bounds how long one command for many locks occupies the store.
const mostTogether = 256

// bundle is several locks of one client that one command takes, all or none.
type bundle struct {
	client  *Client
	session backend.MultiSession
	reqs    []request
}

// plainOf is the client whose locks can be taken together with others: those of the plain
// record whose waiters are told of releases.
func plainOf(l Locker) (c *Client, kind Kind, ok bool) {
	c, kind, own := lockerOf(l)
	return c, kind, own && !kind.Fair && kind.Spin == 0
}

// multi is the client's session, if it takes several locks at once.
func (c *Client) multi() backend.MultiSession {
	s, _ := c.session.(backend.MultiSession)
	return s
}

// take takes all locks of b, or says which one could not be had. It waits, unless try is set,
// for one lock at a time: where it is free and another is held, it goes to wait
// for that one. The waiting ends with wait, the leases' parent is ctx; each is the
// parent of the next.
func (b *bundle) take(ctx, wait context.Context, try bool) (leases []*Lease, failed int, err error) {
	c := b.client
	since := c.now()
	for i := range b.reqs {
		r := &b.reqs[i]
		r.since, r.under, r.ttl, r.try = since, ctx, r.lease, try
		if r.lease == 0 {
			r.ttl = c.watchdog
			if r.maxHold > 0 {
				r.ttl = min(r.ttl, outlasting(r.maxHold))
			}
		}
	}
	if try {
		leases, failed, err = b.tryOnce(ctx, wait)
	} else {
		leases, failed, err = b.queueUp(ctx, wait)
	}
	if f := c.observer.NotAcquired; err != nil && f != nil {
		for i := range b.reqs {
			if r := &b.reqs[i]; i == failed || r.contended { // each Waiting is followed
				f(NotAcquiredEvent{Subject: r.subject(), Waited: c.since(since), Contended: r.contended, Err: err})
			}
		}
	}
	return leases, failed, err
}

func (b *bundle) tryOnce(ctx, wait context.Context) ([]*Lease, int, error) {
	c := b.client
	r := &b.reqs[0]
	c.mu.Lock()
	shut := c.shut
	i, left := b.blockedLocked()
	if !shut && i < 0 {
		c.setOff(r)
	}
	c.mu.Unlock()
	switch {
	case shut:
		return nil, 0, r.fail(ErrClosed)
	case i >= 0:
		return nil, i, b.reqs[i].refused(left)
	}
	defer c.settled(r)
	leases, g, err := b.request(ctx, wait, r)
	switch {
	case err != nil:
		return nil, 0, r.fail(err)
	case leases != nil:
		return leases, 0, nil
	case g.err != nil:
		i := culprit(g.err)
		return nil, i, b.reqs[i].fail(c.explain(g.err))
	}
	i, left = g.obstacle(0)
	return nil, i, b.reqs[i].refused(left)
}

// errElsewhere ends a wait in one lock's queue: another lock is what is held.
var errElsewhere = errors.New("another of the locks is held")

func (b *bundle) queueUp(ctx, wait context.Context) (leases []*Lease, failed int, err error) {
	c := b.client
	for at := 0; ; {
		r := &b.reqs[at]
		next := at
		err := c.stand(wait, r.topic(), r, func() (answer, error) {
			c.mu.Lock()
			i, _ := b.blockedLocked()
			c.mu.Unlock()
			if i >= 0 && i != at {
				next = i
				return answer{}, errElsewhere
			}
			var (
				g   *manyGrant
				err error
			)
			leases, g, err = b.request(ctx, wait, r)
			if err != nil || leases != nil {
				return answer{got: leases != nil}, err
			}
			if g.err != nil {
				next = at
				if about := (*backend.RequestError)(nil); errors.As(g.err, &about) {
					next = about.Index
				}
				return answer{failure: g.err}, nil
			}
			i, left := g.obstacle(at)
			if i != at {
				next = i
				return answer{}, errElsewhere
			}
			return answer{left: left}, nil
		})
		switch {
		case err == nil:
			return leases, 0, nil
		case errors.Is(err, errElsewhere):
			at = next
			b.reqs[at].refusedBefore = true
			continue
		case next != at: // the store's answer is about another of them
			var e *Error
			if errors.As(err, &e) {
				err = b.reqs[next].fail(e.Err)
			}
		}
		return nil, next, err
	}
}

// blockedLocked finds a lock that a holder of this client stands in the way of; -1 if there is none.
func (b *bundle) blockedLocked() (i int, left time.Duration) {
	now := b.client.now()
	for i := range b.reqs {
		r := &b.reqs[i]
		if q := b.client.queues[r.topic()]; q != nil {
			if left := q.blocks(r, now); left > 0 {
				return i, left
			}
		}
	}
	return -1, 0
}

// manyGrant is what asking the store for several locks came to.
type manyGrant struct {
	grant                          // of all of them
	replies []backend.AcquireReply // one for each
}

// obstacle is one of the locks that were refused: at, if that is among them, else the first.
func (g *manyGrant) obstacle(at int) (i int, left time.Duration) {
	if left := g.replies[at].Remaining; left != 0 {
		return at, left
	}
	for i, r := range g.replies {
		if r.Remaining != 0 {
			return i, r.Remaining
		}
	}
	return at, 0
}

func culprit(err error) int {
	if about := (*backend.RequestError)(nil); errors.As(err, &about) {
		return about.Index
	}
	return 0
}

// request sends one acquisition for new owners and settles what becomes of it, as
// Client.request does for one; r is who asks.
func (b *bundle) request(ctx, wait context.Context, r *request) ([]*Lease, *manyGrant, error) {
	c := b.client
	if err := c.place(wait, r); err != nil {
		if caller := (*callerGone)(nil); errors.As(err, &caller) {
			return nil, nil, err
		}
		return nil, &manyGrant{grant: grant{err: err}}, nil
	}
	r.placed = false
	owners := make([]string, len(b.reqs))
	for i := range owners {
		owners[i] = c.newOwnerID()
	}
	g := new(manyGrant)
	err := dispatch(c, wait, func() error {
		defer c.passed(c.gateOf(r))
		b.ask(owners, g)
		return nil
	}, func() { b.abandon(owners, 0, g) })
	if err != nil {
		return nil, nil, err
	}
	if !g.granted {
		b.abandon(owners, 0, g)
		return nil, g, nil
	}
	if wait.Err() != nil {
		b.abandon(owners, 0, g)
		return nil, nil, gone(wait)
	}
	leases := make([]*Lease, 0, len(owners))
	for i, owner := range owners {
		one := g.grant
		one.token = g.replies[i].Token
		lease, err := c.settle(ctx, &b.reqs[i], owner, &one)
		if err != nil {
			b.abandon(owners, i, g)
			unlockAll(wait, wait, leases)
			g.granted, g.err = false, err
			return nil, g, nil
		}
		leases = append(leases, lease)
		ctx = lease.Context()
	}
	return leases, g, nil
}

// ask asks the store, again if it fails for a reason that may pass, as Client.ask does for one.
func (b *bundle) ask(owners []string, g *manyGrant) {
	c := b.client
	in := make([]backend.AcquireRequest, len(owners))
	for i := range in {
		r := &b.reqs[i]
		in[i] = backend.AcquireRequest{Kind: r.family, Name: r.name, Owner: owners[i], Lease: r.ttl, Fenced: r.kind.Fenced, Cached: r.try}
	}
	first := c.now()
	for n := 0; ; n++ {
		sent := first
		if n > 0 {
			sent = c.now()
			for i := range in {
				in[i].Cached = false // what the session knows may be that the first one got it
			}
		}
		g.asked = sent
		if g.late == 0 {
			g.sent = sent
		}
		replies, err := b.session.AcquireAll(c.base, in)
		if err == nil {
			g.replies, g.granted, g.err = replies, replies[0].Granted, nil
			return
		}
		g.err = err
		if g.blame(err, sent, b.reqs[0].ttl); !c.again(err, n, first) {
			return
		}
	}
}

// abandon gives back, in the background, what those from the i-th on got, or may yet get,
// that nobody wants.
func (b *bundle) abandon(owners []string, i int, g *manyGrant) {
	for ; i < len(owners); i++ {
		b.client.abandon(&b.reqs[i], owners[i], &g.grant)
	}
}

// unlockAll unlocks leases at the same time, those of one client that can be
// released together in one command for each slot. An error is of the lease at its place.
// Leases of other Lockers are unlocked under others, which may know no better than to
// leave a lock behind when their context has ended.
func unlockAll(ctx, others context.Context, leases []*Lease) []error {
	errs := make([]error, len(leases))
	var jobs []func()
	together := make(map[*Client][]int)
	for i, l := range leases {
		h, own := l.held.(*hold)
		switch {
		case !own:
			jobs = append(jobs, func() { errs[i] = l.Unlock(others) })
		case h.owner.family == backend.KindLock && h.owner.client.multi() != nil:
			c := h.owner.client
			together[c] = append(together[c], i)
		default:
			jobs = append(jobs, func() { errs[i] = l.Unlock(ctx) })
		}
	}
	for c, which := range together {
		jobs = append(jobs, func() {
			if len(which) == 1 {
				errs[which[0]] = leases[which[0]].Unlock(ctx)
				return
			}
			holds := make([]*hold, len(which))
			for n, i := range which {
				holds[n] = leases[i].held.(*hold)
			}
			for n, err := range c.unlockTogether(ctx, holds) {
				errs[which[n]] = err
			}
		})
	}
	var wg sync.WaitGroup
	for _, job := range jobs[min(1, len(jobs)):] {
		wg.Go(job)
	}
	if len(jobs) > 0 {
		jobs[0]()
	}
	wg.Wait()
	return errs
}

// unlockTogether is hold.unlock for several.
func (c *Client) unlockTogether(ctx context.Context, holds []*hold) []error {
	errs := make([]error, len(holds))
	us := make([]unlocking, len(holds))
	var fx effects
	var sent []releasing
	c.mu.Lock()
	for i, h := range holds {
		us[i].hold = h
		us[i].begin(&fx)
		if errs[i] = us[i].err; errs[i] == nil {
			sent = append(sent, releasing{at: i, owner: h.owner, live: us[i].ended == nil})
		}
	}
	c.mu.Unlock()
	fx.run()
	for i := range us {
		us[i].endContext()
	}
	if len(sent) == 0 {
		return errs
	}
	err := dispatch(c, ctx, func() error { c.releaseTogether(sent); return nil }, nil)
	if err != nil { // the caller has left, and sent is not its own any more
		for i := range us {
			if us[i].err == nil {
				errs[i] = us[i].finish(0, err)
			}
		}
		return errs
	}
	for _, r := range sent {
		errs[r.at] = us[r.at].finish(r.keep, r.err)
	}
	return errs
}

// releasing is one of several releases.
type releasing struct {
	at    int // its place among those of the call
	owner *owner
	live  bool // the hold was live when Unlock was called

	keep   int
	waits  bool // for an operation that its owner has on its way
	done   bool
	held   bool
	unsure bool // one whose reply was lost may have done it
	err    error
}

func (r *releasing) settle() {
	r.err = r.owner.released(r.live, r.keep, r.held, r.unsure, nil, r.err)
}

// releaseTogether is owner.release for several. One whose owner has an operation on
// its way comes afterwards, by itself.
func (c *Client) releaseTogether(rs []releasing) {
	c.mu.Lock()
	for i := range rs {
		r := &rs[i]
		if r.waits = r.owner.busy || r.owner.line != nil || r.owner.lent.Load(); r.waits {
			continue
		}
		r.owner.enter(&turn{})
		r.keep, r.done = r.owner.keep(r.live)
	}
	c.mu.Unlock()

	c.sendReleases(rs)
	for i := range rs {
		if r := &rs[i]; r.waits {
			x := letting{owner: r.owner, live: r.live}
			r.keep, r.err = x.run(context.Background())
		}
	}
}

// sendReleases is sendRelease for several; it repeats those that failed for a reason that may
// pass. The others are settled meanwhile, so that who waits for them here need not wait for all.
func (c *Client) sendReleases(rs []releasing) {
	todo := make([]*releasing, 0, len(rs))
	for i := range rs {
		if r := &rs[i]; !r.waits && !r.done {
			todo = append(todo, r)
		}
	}
	session := c.multi()
	first := c.now()
	for n := 0; len(todo) > 0; n++ {
		in := make([]backend.ReleaseRequest, len(todo))
		out := make([]backend.ReleaseResult, len(todo))
		for i, r := range todo {
			in[i] = backend.ReleaseRequest{Kind: r.owner.family, Name: r.owner.queue.topic.Name, Owner: r.owner.id, Keep: r.keep}
		}
		session.ReleaseAll(c.base, in, out)
		var left []*releasing
		var passing error
		for i, r := range todo {
			if r.held, r.err = out[i].Held, out[i].Err; r.err == nil {
				r.settle()
				continue
			}
			f := backend.FaultOf(r.err)
			r.unsure = r.unsure || f.MayHaveRun
			if f.Temporary {
				left, passing = append(left, r), r.err
				continue
			}
			r.settle()
		}
		if len(left) > 0 && !c.again(passing, n, first) {
			for _, r := range left {
				r.settle()
			}
			return
		}
		todo = left
	}
}
