package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/asked"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// maxTogether bounds the locks of one command, and so how long the command occupies the store.
const maxTogether = 256

// Together reports whether one command can acquire the request's lock together with others: a plain lock that neither
// polls nor waits for replicas, if the store has backend.BatchStore.
func (e *Engine) Together(r *Request) bool {
	return e.Usable() == nil && e.store.can.Batch != nil &&
		r.Family == backend.KindLock && r.Polling == 0 && r.Replicas.N == 0
}

// Group returns the indexes of the names that one command can acquire together with the first name, the first
// included.
func (e *Engine) Group(names []string) []int {
	for _, group := range e.store.can.Batch.Groups(names) {
		if group[0] == 0 {
			return group[:min(len(group), maxTogether)]
		}
	}
	return nil
}

// Unanswered returns an error that says why a request about a name has had no answer for d: requests wait before they
// are sent, or the store failed meanwhile; nil if that is not known.
func (e *Engine) Unanswered(name string, d time.Duration) error {
	if busy := e.store.busy(name); busy != nil {
		return busy
	}
	if f := e.lastFailure.Load(); f != nil && e.Since(f.at) <= d {
		return f.err
	}
	return nil
}

// failure is a request's temporary failure. The request is repeated; its caller may leave before it is answered.
type failure struct {
	err error
	at  clock.Instant
}

// noteFailure keeps err, the outcome of a request, for Unanswered, if it is a temporary failure. The end of a request's
// own context is none that says more, and callers take it for the end of theirs.
func (e *Engine) noteFailure(err error) error {
	if err != nil && temporary(err) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		e.lastFailure.Store(&failure{err, e.Now()})
	}
	return err
}

// batch is several locks of one client that one command acquires, all or none. It is a pending command.
type batch struct {
	errand
	engine *Engine
	calls  []call
	wait   context.Context
	owners []string
	grant  grant                  // the outcome for all locks; reply and owner are not set
	all    []backend.AcquireReply // one reply for each lock
}

// AcquireAll acquires all locks or none, without waiting for a holder. If it fails, failed is the index of the lock
// that the error is about. Wait bounds the request. The context of the first lease is a child of ctx, and that of each
// other lease is a child of the one before.
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
	if b.all[i].Rest {
		sitOut(b.wait)
	}
	return nil, i, b.calls[i].Refused(b.all[i].Remaining)
}

// blocked returns the first lock that a tenure of this client holds, and for how long; -1 if there is none. It is
// called with the mutex.
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

// culprit returns the index of the lock that the store's error is about; 0 if the error does not say.
func (b *batch) culprit() int {
	if about, is := errors.AsType[*backend.RequestError](b.grant.err); is {
		return about.Index
	}
	return 0
}

// attempt sends the request for new owners once, and makes a grant leases, as attempt.run does for one lock.
func (b *batch) attempt(ctx context.Context) ([]*lease.Handle, error) {
	e, c := b.engine, &b.calls[0]
	if err := c.attempt.enterLimit(); err != nil {
		return nil, err
	}
	b.grant = grant{slot: c.attempt.grant.slot, err: c.attempt.grant.err}
	if c.attempt.grant = (grant{}); b.grant.err != nil {
		return nil, nil
	}
	b.owners = make([]string, len(b.calls))
	for i := range b.owners {
		b.owners[i] = e.OwnerID()
	}
	if err := e.carryOut(b.wait, b, false); err != nil {
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
	leases, err := b.makeLeases(ctx)
	if err != nil {
		b.grant.granted, b.grant.err = false, err
	}
	return leases, nil
}

// makeLeases makes the grant leases, each with a context that is a child of the one before. If one of them fails, or an
// observer panics, all locks are released.
func (b *batch) makeLeases(ctx context.Context) ([]*lease.Handle, error) {
	leases := make([]*lease.Handle, 0, len(b.owners))
	unused := 0 // the first lock that has had no tenure
	defer func() {
		if len(leases) < len(b.owners) {
			b.abandon(unused)
			UnlockAll(b.wait, b.wait, leases)
		}
	}()
	for i, owner := range b.owners {
		q := &b.calls[i].attempt
		q.grant = b.grant
		q.grant.owner, q.grant.reply.Token = owner, b.all[i].Token
		unused = i + 1 // if the observer panics, makeLease unlocks the lease: the record may be another tenure's then
		h, err := q.makeLease(ctx)
		if err != nil {
			unused = i
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
			// As in attempt.send: the held cache may know of a hold because a first request got it.
			Unasked: c.Try && !b.grant.wasSent() && !asked.Is(c.under),
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
	b.grant.resume(&b.calls[0], b, err)
	return nil
}

func (b *batch) dispose() { b.abandon(0) }

func (b *batch) abort() {
	b.grant.blame(errPanicked, b.calls[0].ttl)
	b.grant.leave()
	b.abandon(0)
}

// abandon releases, in the background, the locks from index i on that the request got or may still get.
func (b *batch) abandon(i int) {
	b.engine.lock()
	defer b.engine.unlock()
	for ; i < len(b.owners); i++ {
		c := &b.calls[i]
		b.engine.renewer.abandon(&c.Request, &b.grant, debt{family: c.Family, name: c.Name, owner: b.owners[i]})
	}
}

// UnlockAll unlocks leases at the same time, with the plain locks of one engine in as few commands as the store
// allows. A node that hangs does not delay the releases of the other nodes. The i-th error is that of the i-th lease.
// Leases of other Lockers are unlocked with the context others: after the end of a context they may not send the
// release.
func UnlockAll(ctx, others context.Context, leases []*lease.Handle) []error {
	errs := make([]error, len(leases))
	type lane struct {
		*Engine
		node int
	}
	together := make(map[lane][]int)
	var jobs []func()
	for i, l := range leases {
		h, own := l.Holding().(*lease.Hold)
		if own && of(h).family == backend.KindLock && of(h).engine.store.can.Batch != nil {
			at := lane{of(h).engine, of(h).engine.store.node(of(h).Key.Name)}
			together[at] = append(together[at], i)
			continue
		}
		bounds := others
		if _, leaves := l.Holding().(lease.Leaver); leaves {
			bounds = ctx
		}
		jobs = append(jobs, func() { errs[i] = l.Holding().Unlock(bounds) })
	}
	for at, which := range together {
		jobs = append(jobs, func() {
			holds := make([]*lease.Hold, len(which))
			for n, i := range which {
				holds[n] = leases[i].Holding().(*lease.Hold)
			}
			for n, err := range unlockTogether(at.Engine, ctx, holds) {
				errs[which[n]] = err
			}
		})
	}
	atOnce(jobs)
	return errs
}

// atOnce runs jobs at the same time, the first on the caller's goroutine, and waits for all. If a job panics, atOnce
// panics with the same value.
func atOnce(jobs []func()) {
	if len(jobs) < 2 {
		for _, job := range jobs {
			job()
		}
		return
	}
	ends := make(chan any, len(jobs))
	for _, job := range jobs[1:] {
		go func() {
			defer func() { ends <- recover() }()
			job()
		}()
	}
	defer func() {
		var panicked any
		for range jobs[1:] {
			panicked = cmp.Or(panicked, <-ends)
		}
		if panicked != nil {
			panic(panicked)
		}
	}()
	jobs[0]()
}

// unlockTogether unlocks holds of one engine in one call of BatchStore.ReleaseAll.
func unlockTogether(e *Engine, ctx context.Context, holds []*lease.Hold) []error {
	if len(holds) == 1 {
		return []error{holds[0].Unlock(ctx)}
	}
	errs := make([]error, len(holds))
	us := make([]unlocking, len(holds))
	var sent []*batched
	e.lock()
	for i, h := range holds {
		us[i].hold = h
		if us[i].begin(); us[i].err == nil {
			x := &batched{at: i, releasing: releasing{tenure: of(h), live: us[i].ended == nil}}
			if !x.live {
				x.owes()
			}
			sent = append(sent, x)
		}
	}
	if len(sent) > 0 {
		e.calls.running++ // leases that were lost do not count in calls.held any more
		defer e.end()
	}
	e.unlock()
	for i := range us {
		if us[i].err == nil {
			us[i].endContext()
		}
	}
	if len(sent) > 0 {
		gone := e.SendOff(ctx, func() error { (&releaseBatch{engine: e, todo: sent}).release(); return nil }, nil)
		for _, x := range sent {
			if us[x.at].result = gone; gone == nil { // otherwise the goroutine that sends the releases uses x now
				us[x.at].keep, us[x.at].result = x.keep, x.err
			}
		}
	}
	finishAll(us, errs)
	return errs
}

// finishAll sets the results, and reports each to the observer, even if the observer panics.
func finishAll(us []unlocking, errs []error) {
	if len(us) == 0 {
		return
	}
	defer finishAll(us[1:], errs[1:])
	errs[0] = us[0].finish()
}

// releaseBatch is the releases of one client that are sent together.
type releaseBatch struct {
	engine *Engine
	todo   []*batched
	alone  []*batched // to be sent after todo, each by itself
}

// batched is a release of a releaseBatch.
type batched struct {
	releasing
	at  int   // index among the holds of unlockTogether
	err error // the result
}

// release sends all releases, and retries those with a temporary failure. Each one is settled as soon as it is
// answered, so a waiter of this process need not wait for all. A release that must wait for another operation of its
// tenure is sent afterwards, by itself.
func (g *releaseBatch) release() {
	e := g.engine
	g.prepare()
	sending := true
	defer abortIf(&sending, g)
	for attempts := e.retry.Since(time.Now()); len(g.todo) > 0; {
		if passing := g.send(); len(g.todo) > 0 && !attempts.Again(e.base, passing) {
			for _, x := range g.todo {
				x.err = x.settle(x.err)
			}
			break
		}
	}
	for len(g.alone) > 0 {
		x := g.alone[0]
		g.alone = g.alone[1:] // run aborts x itself after a panic
		x.err = x.run(context.Background())
	}
	sending = false
}

// abort ends the releases after a panic of the backend: those that were sent have an unknown outcome, and the others
// are sent in the background.
func (g *releaseBatch) abort() {
	for _, x := range g.todo {
		x.abort()
	}
	for _, x := range g.alone {
		g.engine.begin()
		go func() {
			defer g.engine.end()
			_ = x.run(context.Background())
		}()
	}
}

// prepare begins the releases that can run now. The others go to alone.
func (g *releaseBatch) prepare() {
	all := g.todo
	g.todo = make([]*batched, 0, len(all))
	g.engine.lock()
	defer g.engine.unlock()
	for _, x := range all {
		if t := x.tenure; !t.Idle() || t.Delegated.Load() || t.hasText {
			g.alone = append(g.alone, x)
			continue
		}
		x.tenure.TryBegin()
		if x.prepareForAll(); !x.done {
			g.todo = append(g.todo, x)
		}
	}
}

// send sends all releases once, and settles those that succeeded or cannot be retried. The others stay in g.todo;
// passing is the error of one of them.
func (g *releaseBatch) send() (passing error) {
	in := make([]backend.ReleaseRequest, len(g.todo))
	out := make([]backend.ReleaseResult, len(g.todo))
	for i, x := range g.todo {
		t := x.tenure
		in[i] = backend.ReleaseRequest{Name: t.Key.Name, Owner: t.Owner, Keep: x.keep}
	}
	g.engine.store.can.Batch.ReleaseAll(g.engine.base, in, out)
	var again []*batched
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
