package engine

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// maxTogether bounds how long one command for many locks occupies the store.
const maxTogether = 256

// Together reports whether a request for a lock can be taken together with others: those of the plain record whose
// waiters are told of releases.
func (e *Engine) Together(r *Request) bool {
	return e.Usable() == nil && e.store.can.Batch != nil &&
		r.Family == backend.KindLock && r.Polling == 0 && r.Replicas.N == 0
}

// Group is those of names that one command takes together with the first: their indexes, the first's among them.
// Fewer than two where there are none.
func (e *Engine) Group(names []string) []int {
	for _, group := range e.store.can.Batch.Groups(names) {
		if group[0] == 0 {
			return group[:min(len(group), maxTogether)]
		}
	}
	return nil
}

// batch is several locks of one client that one command takes, all or none: a pending command.
type batch struct {
	errand
	engine *Engine
	calls  []call
	wait   context.Context
	owners []string
	grant  grant                  // of all of them
	all    []backend.AcquireReply // one for each
}

// AcquireAll takes all locks, or says which one could not be had. It does not wait for any. Wait bounds the question,
// the leases' parent is ctx; each is the parent of the next.
func (e *Engine) AcquireAll(ctx, wait context.Context, rs []Request) (leases []*lease.Handle, failed int, err error) {
	b := &batch{engine: e, calls: make([]call, len(rs)), wait: wait}
	site := siteOf(ctx, e)
	for i := range rs {
		b.calls[i].begin(e, ctx, wait, rs[i])
		b.calls[i].site = site
	}
	if leases, failed, err = b.try(ctx); err != nil {
		b.calls[failed].notAcquired(err)
	}
	return leases, failed, err
}

func (b *batch) try(ctx context.Context) ([]*lease.Handle, int, error) {
	e, c := b.engine, &b.calls[0]
	e.lock()
	shut := e.calls.shut
	i, left := b.blocked()
	e.calls.running++
	e.unlock()
	defer e.end()
	switch {
	case shut:
		return nil, 0, c.Fail(fail.Closed)
	case i >= 0:
		return nil, i, b.calls[i].Refused(left)
	}
	leases, err := b.attempt(ctx)
	switch {
	case err != nil:
		return nil, 0, c.Fail(err)
	case leases != nil:
		return leases, 0, nil
	case b.grant.err != nil:
		i := b.culprit()
		return nil, i, b.calls[i].Fail(e.Explain(b.grant.err))
	}
	i = max(slices.IndexFunc(b.all, func(r backend.AcquireReply) bool { return r.Remaining != 0 }), 0)
	return nil, i, b.calls[i].Refused(b.all[i].Remaining)
}

// blocked finds a lock that a holder of this client stands in the way of; -1 if there is none. It is called with the
// mutex.
func (b *batch) blocked() (i int, left time.Duration) {
	now := b.engine.Now()
	for i := range b.calls {
		if n := b.engine.names.records[b.calls[i].topic()]; n != nil {
			if left := n.Blocks(true, now); left > 0 {
				return i, left
			}
		}
	}
	return -1, 0
}

// culprit is the lock that an error is about: the first, if it does not say.
func (b *batch) culprit() int {
	if about, is := errors.AsType[*backend.RequestError](b.grant.err); is {
		return about.Index
	}
	return 0
}

// attempt sends one acquisition for new owners and settles what becomes of it, as call.attempt does for one.
func (b *batch) attempt(ctx context.Context) ([]*lease.Handle, error) {
	e, c := b.engine, &b.calls[0]
	if err := c.asks.enterLimit(); err != nil {
		return nil, err
	}
	b.grant = grant{slot: c.asks.grant.slot, err: c.asks.grant.err}
	if c.asks.grant = (grant{}); b.grant.err != nil {
		return nil, nil
	}
	b.owners = make([]string, len(b.calls))
	for i := range b.owners {
		b.owners[i] = e.OwnerID()
	}
	returned := false
	defer b.grant.leaveUnless(&returned)
	err := e.carryOut(b.wait, b, false)
	if returned = true; err != nil {
		return nil, err
	}
	if !b.grant.granted {
		b.abandon(0)
		return nil, nil
	}
	if b.wait.Err() != nil {
		b.abandon(0)
		return nil, fail.Gone(b.wait)
	}
	leases, err := b.settle(ctx)
	if err != nil {
		b.grant.granted, b.grant.err = false, err
	}
	return leases, nil
}

// settle makes the grants leases, each under the one before. Where one cannot be, or an observer panics, all are
// given back.
func (b *batch) settle(ctx context.Context) ([]*lease.Handle, error) {
	leases := make([]*lease.Handle, 0, len(b.owners))
	defer func() {
		if n := len(leases); n < len(b.owners) {
			b.abandon(n)
			UnlockAll(b.wait, b.wait, leases)
		}
	}()
	for i, owner := range b.owners {
		q := &b.calls[i].asks
		q.grant = b.grant
		q.grant.owner, q.grant.token = owner, b.all[i].Token
		h, err := q.settle(ctx)
		if err != nil {
			return nil, err
		}
		leases = append(leases, &h.Handle)
		ctx = h.Context()
	}
	return leases, nil
}

func (b *batch) send(ctx context.Context) error {
	in := make([]backend.AcquireRequest, len(b.owners))
	for i := range in {
		c := &b.calls[i]
		in[i] = backend.AcquireRequest{
			Name: c.Name, Owner: b.owners[i], Lease: c.ttl, Fenced: c.Fenced,
			// What the session knows after a first request may be that this one got the lock.
			Unasked: c.Try && b.grant.first == 0,
		}
	}
	g := &b.grant
	g.sending(b.engine.Now())
	replies, err := b.engine.store.can.Batch.AcquireAll(ctx, in)
	if g.err = err; err != nil {
		g.blame(err, b.calls[0].ttl)
		return err
	}
	b.all, g.granted = replies, replies[0].Granted
	return nil
}

func (*batch) left(error) func() error { return nil }

func (b *batch) finish(err error) error {
	defer b.grant.leave()
	b.grant.resume(b.engine, b, err)
	return nil
}

func (b *batch) dispose() { b.abandon(0) }

// abandon releases, in the background, what the locks from the i-th on got, or may yet get.
func (b *batch) abandon(i int) {
	b.engine.lock()
	defer b.engine.unlock()
	for ; i < len(b.owners); i++ {
		c := &b.calls[i]
		b.engine.renewer.abandon(&c.Request, &b.grant, debt{family: c.Family, name: c.Name, owner: b.owners[i]})
	}
}

// UnlockAll unlocks leases of engines: those of one engine that can be released together in one command for each
// slot. The i-th error is of the i-th lease. Leases of other Lockers are unlocked under others, which may know
// no better than to leave a lock behind when their context has ended. All of that is done at the same time.
func UnlockAll(ctx, others context.Context, leases []*lease.Handle) []error {
	errs := make([]error, len(leases))
	together := make(map[*Engine][]int)
	var jobs []func()
	for i, l := range leases {
		h, own := l.Holding().(*lease.Hold)
		if own && of(h).family == backend.KindLock && of(h).engine.store.can.Batch != nil {
			together[of(h).engine] = append(together[of(h).engine], i)
			continue
		}
		bounds := others
		if _, leaves := l.Holding().(lease.Leaver); leaves {
			bounds = ctx
		}
		jobs = append(jobs, func() { errs[i] = l.Holding().Unlock(bounds) })
	}
	for e, which := range together {
		jobs = append(jobs, func() {
			holds := make([]*lease.Hold, len(which))
			for n, i := range which {
				holds[n] = leases[i].Holding().(*lease.Hold)
			}
			for n, err := range unlockTogether(e, ctx, holds) {
				errs[which[n]] = err
			}
		})
	}
	AtOnce(jobs)
	return errs
}

// AtOnce does jobs at the same time, the first in the caller's goroutine.
func AtOnce(jobs []func()) {
	var wg sync.WaitGroup
	for _, job := range jobs[min(1, len(jobs)):] {
		wg.Go(job)
	}
	if len(jobs) > 0 {
		jobs[0]()
	}
	wg.Wait()
}

// unlockTogether is Unlock for several.
func unlockTogether(e *Engine, ctx context.Context, holds []*lease.Hold) []error {
	if len(holds) == 1 {
		return []error{holds[0].Unlock(ctx)}
	}
	errs := make([]error, len(holds))
	us := make([]unlocking, len(holds))
	var sent []*releasing
	e.lock()
	for i, h := range holds {
		us[i].hold = h
		us[i].begin()
		if errs[i] = us[i].err; errs[i] == nil {
			sent = append(sent, &releasing{tenure: of(h), live: us[i].ended == nil, at: i})
		}
	}
	e.unlock()
	for i := range us {
		if us[i].err == nil {
			us[i].endContext()
		}
	}
	if len(sent) == 0 {
		return errs
	}
	err := e.SendOff(ctx, func() error { (&releaseBatch{e, sent}).release(); return nil }, nil)
	for _, x := range sent {
		if err != nil { // the caller has left, and sent is not its own any more
			errs[x.at] = us[x.at].finish(0, err)
		} else {
			errs[x.at] = us[x.at].finish(x.keep, x.err)
		}
	}
	return errs
}

// releaseBatch is releases of one client that are sent in the same commands.
type releaseBatch struct {
	engine *Engine
	todo   []*releasing
}

// release sends all. One whose tenure has an operation on its way comes afterwards, by itself. The others are settled
// as soon as they are answered, so that a waiter for one here need not wait for all.
func (g *releaseBatch) release() {
	e := g.engine
	alone := g.prepare()
	first := time.Now()
	for n := 0; len(g.todo) > 0; n++ {
		if passing := g.send(); len(g.todo) > 0 && !e.retry.Again(passing, n, first) {
			for _, x := range g.todo {
				x.err = x.settle(x.err)
			}
			break
		}
	}
	for _, x := range alone {
		x.err = x.run(context.Background())
	}
}

// prepare keeps those that can go now, and returns those that cannot.
func (g *releaseBatch) prepare() (alone []*releasing) {
	all := g.todo
	g.todo = make([]*releasing, 0, len(all))
	g.engine.lock()
	defer g.engine.unlock()
	for _, x := range all {
		if t := x.tenure; !t.Idle() || t.Delegated.Load() {
			alone = append(alone, x)
			continue
		}
		x.tenure.TryBegin()
		if x.prepareForAll(); !x.done {
			g.todo = append(g.todo, x)
		}
	}
	return alone
}

// send sends all once, settles those that need not be repeated, and returns the failure of one of the others.
func (g *releaseBatch) send() (passing error) {
	in := make([]backend.ReleaseRequest, len(g.todo))
	out := make([]backend.ReleaseResult, len(g.todo))
	for i, x := range g.todo {
		t := x.tenure
		in[i] = backend.ReleaseRequest{Name: t.Key.Name, Owner: t.Owner, Keep: x.keep}
	}
	g.engine.store.can.Batch.ReleaseAll(g.engine.base, in, out)
	var again []*releasing
	for i, x := range g.todo {
		err := out[i].Err
		if x.held = out[i].Held; err != nil {
			f := backend.FaultOf(err)
			x.unsure = x.unsure || f.MayHaveRun
			if f.Temporary {
				again, passing, x.err = append(again, x), err, err
				continue
			}
		}
		x.err = x.settle(err)
	}
	g.todo = again
	return passing
}
