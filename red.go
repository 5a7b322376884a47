package mortise

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Red returns a [Locker] over an odd number, three or more, of independent stores: it holds a
// lock while it holds it in more than half of them, so it survives the failure of
// the others. It follows the Redlock algorithm: each store is asked at the same time
// and for a short time only, what it got counts from before it was asked and less
// a margin for the clocks' drift, a minority is given back at once. It is
// Redisson's RedLock.
//
// Each part is renewed by its own client's watchdog. A store that came back empty, or
// was away, is locked again while the lease lives, within a third of the watchdog
// timeout. The lease ends when fewer than a majority of its parts live.
//
// A store that lost its data, or may have, has no vote for one longest lease: A holds 1,
// 2, 3; 3 comes back empty; B could get 3, 4, 5. On Redis a key says since when the server has
// its data, and of which run of it that is true, so restarts, fail-overs to a replica and FLUSHALL are
// noticed; see [WithStayOut]. To such a server a new one looks the same: the very first
// Lock on new stores waits for one watchdog timeout, and TryLock answers
// [ErrUnavailable] until then, as Lock does whose [WithWait] is shorter. The rule is not kept for stores that are clusters, nor by Redisson's
// clients: there, keep a server that lost its data down for as long. Single records that vanish,
// by DEL or eviction, are noticed by nobody but their holder.
//
// The clients should have one watchdog timeout, and connect to stores that share
// nothing. Options and errors are those of [Locker]; [ErrUnavailable] when too few
// stores answered, which takes Lock a few seconds at most, and names each that failed. [WithLease]
// may not be longer than WithStayOut. The kind is the reentrant lock, without fencing tokens.
//
// Cost: one command to each store for Lock and for Unlock. One who waits asks all again
// each time that the lock was released, and about every second.
func Red(clients ...*Client) (Locker, error) {
	fail := func(format string, args ...any) (Locker, error) {
		return nil, &Error{Op: "red", Err: fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)}
	}
	if len(clients) < 3 || len(clients)%2 == 0 {
		return fail("Red over %d clients; an odd number from three up survives failures", len(clients))
	}
	seen := make(map[*Client]bool)
	for i, c := range clients {
		if c == nil {
			return fail("client %d is nil", i)
		}
		if err := c.usable(); err != nil {
			return nil, &Error{Op: "red", Err: fmt.Errorf("client %d: %w", i, err)}
		}
		if seen[c] {
			return fail("client %d is there twice; each votes once", i)
		}
		seen[c] = true
		if out := c.outTime(); out > 0 && out < c.watchdog {
			return fail("client %d: WithStayOut(%v) is shorter than its watchdog timeout, %v; a store must stay out for the longest lease", i, out, c.watchdog)
		}
	}
	return &red{clients: slices.Clone(clients), quorum: len(clients)/2 + 1, standing: make([]standing, len(clients))}, nil
}

type red struct {
	clients  []*Client
	quorum   int
	standing []standing // of the stores
}

// standing is what is known about a store: whoever contends for a lock must not hold a minority
// of it for as long as a dead store takes to fail.
type standing struct {
	mu     sync.Mutex
	err    error     // its last failure; nil after an answer
	failed time.Time // when that was
	asked  time.Time // when it was asked last, since
}

const (
	// suspected is for how long a store that failed is not waited for, and probed how
	// often it is asked meanwhile, as long as the others are a majority.
	suspected = 10 * time.Second
	probed    = 250 * time.Millisecond
)

// suspects tells which stores failed lately; none if too few would be left.
func (r *red) suspects() []bool {
	out, left := make([]bool, len(r.clients)), len(r.clients)
	for i := range r.standing {
		s := &r.standing[i]
		s.mu.Lock()
		out[i] = s.err != nil && time.Since(s.failed) < suspected
		s.mu.Unlock()
		if out[i] {
			left--
		}
	}
	if left < r.quorum {
		clear(out)
	}
	return out
}

// probe tells whether a suspect is to be asked now, and otherwise how it failed.
func (s *standing) probe() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && time.Since(s.asked) < probed {
		return s.err
	}
	s.asked = time.Now()
	return nil
}

// heard notes what came of asking.
func (s *standing) heard(v vote) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case v.err == nil, errors.Is(v.err, ErrNotAcquired), errors.Is(v.err, ErrWrongKind):
		s.err = nil
	case v.err != errOuterAway && v.err != s.err: // that was told by probe
		s.err, s.failed = v.err, time.Now()
	}
}

const (
	// countWithin bounds the age of the votes that a lease is made of, and
	// countsAfter, which is longer, is when a store that was locked again while it stays out counts
	// again. Somebody may have had its vote before it lost its data; by then that one
	// either holds the lock, and not this one, or has given up.
	countWithin = 2 * time.Second
	countsAfter = 3 * time.Second
	// roundsOfTrouble is how often a Lock asks all stores when too few answer.
	roundsOfTrouble = 3
)

func (r *red) Lock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return r.lock(ctx, name, false, opts)
}

func (r *red) TryLock(ctx context.Context, name string, opts ...Option) (*Lease, error) {
	return r.lock(ctx, name, true, opts)
}

// redCall is one call of Lock or TryLock.
type redCall struct {
	*red
	*request
	ctx    context.Context
	parent context.Context // of the parts
	opts   []Option        // of the parts
	outer  *redLease       // the live one that it enters under, or nil
	// patience is for how long one store is waited for.
	patience time.Duration
}

func (r *red) lock(ctx context.Context, name string, try bool, opts []Option) (*Lease, error) {
	req, err := newRequest(name, try, Kind{}, opts)
	if err != nil {
		return nil, err
	}
	if req.replicas.n > 0 {
		return nil, req.fail(fmt.Errorf("%w: WithReplicas does not apply to Red, whose majority of stores does without", ErrInvalid))
	}
	if ctx == nil {
		return nil, req.fail(fmt.Errorf("%w: the context is nil; use context.Background()", ErrInvalid))
	}
	// The parts live until they are unlocked or lost: the caller's context ends the
	// lease's context, not what notices a loss.
	call := &redCall{red: r, request: req, ctx: ctx, parent: context.WithoutCancel(ctx), opts: make([]Option, 0, len(opts)+1)}
	for _, o := range opts {
		if _, ok := o.(waitOption); !ok {
			call.opts = append(call.opts, o)
		}
	}
	ttl := req.lease
	if ttl == 0 {
		ttl = r.clients[0].watchdog
	}
	call.patience = min(max(ttl/10, 50*time.Millisecond), time.Second)
	for i, c := range r.clients {
		if out := c.outTime(); out > 0 && req.lease > out {
			return nil, req.fail(fmt.Errorf("%w: WithLease(%v) is longer than store %d stays out after it lost its data, %v; give all clients WithStayOut(%v)", ErrInvalid, req.lease, i, out, req.lease))
		}
	}
	wait := ctx
	if req.wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = boundWait(ctx, req.wait)
		defer cancel()
	}
	return call.run(wait)
}

func (r *redCall) run(wait context.Context) (*Lease, error) {
	var (
		first   *vote
		left    = time.Duration(-1) // of the holder's lease; negative before the first answer
		last    error               // of the round before, if too few answered
		trouble time.Time           // since when too few answer
		rounds  int                 // in which too few answered, in a row
		waited  bool
	)
	for {
		start := time.Now()
		r.outer, _ = r.ctx.Value(redKey{r.name}).(*redLease)
		if r.outer != nil && (!slices.Equal(r.outer.red.clients, r.clients) || r.outer.err() != nil) {
			r.outer = nil
		}
		votes := r.collect(wait, first)
		first = nil
		t := r.tally(votes)
		if t.held >= r.quorum && wait.Err() == nil {
			return r.lease(votes, start), nil
		}
		nowWaits(wait)
		r.giveBack(votes, wait.Err() != nil)
		if t.answered >= r.quorum {
			last, rounds, left = nil, 0, max(t.left, 0)
			if t.barred() {
				last = fmt.Errorf("%d of %d stores are %w for another %v, until all leases that they may have forgotten are over; wait for longer, or see WithStayOut",
					t.out, len(votes), errBarred, t.left.Round(time.Millisecond))
			}
		}
		if wait.Err() != nil {
			return nil, r.gaveUp(gone(wait), left, last)
		}
		var err error
		switch {
		case t.answered < r.quorum:
			if len(t.hopeless) > len(r.clients)-r.quorum {
				return nil, r.fail(t.hopeless)
			}
			last = fmt.Errorf("%d of %d stores answered, %d are needed: %w", t.answered, len(votes), r.quorum, t.failures)
			if rounds++; rounds == 1 {
				trouble = start
			}
			// One who waits already sits an outage out, as long as a lease lives.
			more := rounds < roundsOfTrouble || waited && time.Since(trouble) < r.clients[0].watchdog
			if r.try || !more || !t.passing {
				return nil, r.fail(fmt.Errorf("%w: %w", ErrUnavailable, last))
			}
			err = sleep(wait, min(time.Since(trouble)/2+10*time.Millisecond, time.Second))
		case r.try && t.barred():
			return nil, r.fail(fmt.Errorf("%w: %w", ErrUnavailable, last))
		case r.try:
			return nil, r.refused(t.left)
		case t.refused >= 0:
			waited = true
			first, err = r.await(wait, t.refused)
		case t.out > 0:
			waited = true
			err = sleep(wait, min(t.left, time.Second)+time.Millisecond)
		default: // votes that are too old
			err = sleep(wait, rand.N(20*time.Millisecond)+time.Millisecond)
		}
		if err != nil {
			return nil, r.gaveUp(err, left, last)
		}
	}
}

// sleep waits; it returns *callerGone if wait ends before.
func sleep(wait context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-wait.Done():
		return gone(wait)
	}
}

// vote is one store's answer.
type vote struct {
	node  int
	lease *Lease
	// counts is from when on it may count; zero if it does.
	counts time.Time
	err    error
}

// collect asks all stores at once. first is a vote that is there already. When the
// outcome is clear, the rest have a moment to answer and are not waited for.
func (r *redCall) collect(wait context.Context, first *vote) []vote {
	bound, cancel := context.WithTimeout(wait, r.patience)
	defer cancel()
	start := time.Now()
	votes := make([]vote, len(r.clients))
	answers := make(chan vote, len(r.clients))
	suspects := r.suspects()
	trusted := 0 // that have not answered yet
	for i := range r.clients {
		if !suspects[i] {
			trusted++
		}
		if first != nil && first.node == i {
			answers <- *first
			continue
		}
		if suspects[i] {
			if err := r.standing[i].probe(); err != nil {
				answers <- vote{node: i, err: err}
				continue
			}
		}
		go func() { answers <- r.ask(bound, i, true) }()
	}
	held, refused := 0, 0
	var cut *time.Timer
	for range votes {
		v := <-answers
		votes[v.node] = v
		switch {
		case v.lease != nil:
			held++
		case errors.Is(v.err, ErrNotAcquired):
			refused++
		}
		if !suspects[v.node] {
			trusted--
		}
		grace := time.Duration(0)
		switch took := time.Since(start); {
		case trusted == 0: // a suspect that is back is as quick as they were
			grace = 3*took + 10*time.Millisecond
		case held >= r.quorum, refused > len(votes)-r.quorum:
			grace = max(2*took, r.patience/10)
		}
		if cut == nil && grace > 0 {
			cut = time.AfterFunc(grace, cancel)
			defer cut.Stop()
		}
	}
	for i, v := range votes {
		if caller := (*callerGone)(nil); errors.As(v.err, &caller) {
			if wait.Err() != nil {
				continue
			}
			// What is not heard by then is not the caller's fault, if its own time is not over.
			votes[i].err = silent(time.Since(start))
		}
		r.standing[i].heard(votes[i])
	}
	return votes
}

func silent(d time.Duration) error {
	return &backend.Fault{Err: fmt.Errorf("no answer within %v", d.Round(time.Millisecond)), Remedy: "is it overloaded, frozen, or behind a broken network?", Temporary: true}
}

// ask asks one store, which must be old enough.
func (r *redCall) ask(bound context.Context, node int, try bool) vote {
	c := r.clients[node]
	v := vote{node: node}
	if r.outer != nil {
		// What enters again does so where the outer lease is; elsewhere it follows it.
		var has bool
		if v.counts, has = r.outer.has(node); !has {
			v.err = errOuterAway
			return v
		}
	}
	opts := r.opts
	if out := c.outTime(); out > 0 && c.knowsAge() {
		opts = append(opts[:len(opts):len(opts)], ageOption{Least: out, Scope: c.outScope})
	}
	v.lease, v.err = c.lockUntil(r.parent, bound, r.name, try, Kind{}, opts)
	if r.outer != nil { // its part may have been healed just now, and then that is what was entered
		if counts, _ := r.outer.has(node); counts.After(v.counts) {
			v.counts = counts
		}
	}
	return v
}

var errOuterAway = &backend.Fault{Err: errors.New("the lease that it was entered under does not hold this store"), Temporary: true}

// tally is what votes come to.
type tally struct {
	held, answered int
	refused        int           // the lowest store that another holds; -1 if none
	out            int           // stores that stay out
	left           time.Duration // until enough may be had without a release; negative if never
	failures       reasons
	hopeless       reasons // those of them that no other round will change
	passing        bool    // a failure may pass
}

// errBarred is why TryLock is told of an unavailable store that is available after a while.
var errBarred = errors.New("new, were restarted or lost their data, and have no vote")

// barred reports whether nothing stands in the way but stores that have no vote for a while.
func (t *tally) barred() bool { return t.refused < 0 && t.out > 0 }

func (r *redCall) tally(votes []vote) tally {
	t := tally{refused: -1, left: -1}
	var young []time.Duration
	for i, v := range votes {
		var e *Error
		switch {
		case v.lease != nil:
			t.answered++
			h := v.lease.held.(*hold)
			now := h.owner.client.now()
			if v.lease.Err() == nil && !h.since.add(countWithin).reached(now) && v.counts.IsZero() {
				t.held++
			}
		case errors.Is(v.err, errYoung):
			t.answered++
			if errors.As(v.err, &e) {
				young = append(young, e.Remaining)
			}
		case errors.Is(v.err, ErrNotAcquired):
			t.answered++
			if t.refused < 0 {
				t.refused = i
			}
			if errors.As(v.err, &e) {
				t.left = max(t.left, e.Remaining)
			}
		default:
			t.failures = append(t.failures, fmt.Errorf("store %d: %w", i, v.err))
			switch {
			case errors.Is(v.err, ErrClosed), errors.Is(v.err, ErrWrongKind):
				t.hopeless = append(t.hopeless, t.failures[len(t.failures)-1])
			case backend.FaultOf(v.err).Temporary:
				t.passing = true
			}
		}
	}
	if t.out = len(young); t.barred() {
		slices.Sort(young)
		t.left = young[min(max(r.quorum-t.held, 1), len(young))-1]
	}
	return t
}

// reasons are errors on one line.
type reasons []error

func (r reasons) Error() string {
	texts := make([]string, len(r))
	for i, err := range r {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (r reasons) Unwrap() []error { return r }

// giveBack releases what a round got. hurry does not wait for it.
func (r *redCall) giveBack(votes []vote, hurry bool) {
	// What is not confirmed in this time is released in the background.
	short, cancel := context.WithTimeout(context.Background(), r.patience)
	defer cancel()
	if hurry {
		cancel()
	}
	var wg sync.WaitGroup
	for _, v := range votes {
		if v.lease != nil {
			wg.Go(func() { v.lease.Unlock(short) })
		}
	}
	wg.Wait()
}

// await waits until the lock is free in one store that refused it: those who wait
// then queue in the same one, and wake by its releases. It returns with that store's
// lock, or without after a while, since the store may fail.
func (r *redCall) await(wait context.Context, node int) (*vote, error) {
	bound, cancel := context.WithTimeout(wait, time.Second+rand.N(500*time.Millisecond))
	defer cancel()
	v := r.ask(bound, node, false)
	switch {
	case v.err == nil:
		return &v, nil
	case wait.Err() != nil:
		return nil, gone(wait)
	case bound.Err() != nil:
		return nil, nil
	}
	// It failed at once, so it would again.
	return nil, sleep(wait, 20*time.Millisecond+rand.N(100*time.Millisecond))
}

// redLease stands behind a lease of Red.
type redLease struct {
	facts
	redCall
	end   context.CancelCauseFunc
	heals bool      // with a watchdog
	until time.Time // of WithMaxHold; zero without it

	mu       sync.Mutex
	parts    []redPart   // by store
	inner    []*redLease // live ones that follow it
	cause    error
	unlocked bool
}

// redPart is one store's share of a lease. All of it is guarded by redLease.mu.
type redPart struct {
	lease   *Lease      // nil where it is not held
	counts  time.Time   // it may count from then on; zero if it does
	why     error       // it ended last
	healing bool        // a lock of this store is on its way, or due
	failed  int         // how many of those failed in a row
	timer   *time.Timer // until that is due, or it may count
}

func (r *redCall) lease(votes []vote, start time.Time) *Lease {
	lctx, end := context.WithCancelCause(r.ctx)
	x := &redLease{redCall: *r, end: end, heals: r.request.lease == 0, parts: make([]redPart, len(votes))}
	if r.maxHold > 0 {
		x.until = start.Add(r.maxHold)
	}
	x.mu.Lock()
	for i, v := range votes {
		switch {
		case v.lease != nil:
			x.joinLocked(v)
		case errors.Is(v.err, ErrNotAcquired):
			x.healLocked(i, r.clients[i].watchdog/3)
		default:
			x.parts[i].why = v.err
			x.healLocked(i, r.clients[i].watchdog/30)
		}
	}
	x.mu.Unlock()
	if o := x.outer; o != nil {
		o.mu.Lock()
		o.inner = append(o.inner, x)
		o.mu.Unlock()
	}
	x.facts = facts{of: r.name, ctx: redContext{lctx, x}}
	return &Lease{x}
}

// redKey is the key under which a lease's context carries it.
type redKey struct{ name string }

// redContext carries the holds of all parts, so that each store enters again.
type redContext struct {
	context.Context
	lease *redLease
}

func (c redContext) Value(key any) any {
	x := c.lease
	switch k := key.(type) {
	case redKey:
		if k.name == x.of {
			return x
		}
	case *holdKey:
		if k.topic != lockTopic(x.of) {
			break
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for i, client := range x.clients {
			if client != k.client {
				continue
			}
			if l := x.parts[i].lease; l != nil {
				return l.held
			}
			if x.cause != nil { // it confers nothing, nor does what it was entered under
				return nil
			}
		}
	}
	return c.Context.Value(key)
}

// has tells whether a store's part is held, and from when it may count; zero if it does.
func (x *redLease) has(node int) (counts time.Time, has bool) {
	x.mu.Lock()
	p := x.parts[node]
	x.mu.Unlock()
	return p.counts, p.lease != nil && p.lease.Err() == nil // which may call an observer
}

func (x *redLease) joinLocked(v vote) {
	p := &x.parts[v.node]
	p.lease, p.counts, p.failed, p.why = v.lease, v.counts, 0, nil
	if !p.counts.IsZero() {
		p.timer = time.AfterFunc(time.Until(p.counts), func() { x.err() })
	}
	context.AfterFunc(v.lease.Context(), func() { x.partEnded(v.node, v.lease) })
	for _, in := range x.inner {
		go in.follow(v.node)
	}
}

// partEnded notes that a store's part is gone, and locks that store again.
func (x *redLease) partEnded(node int, l *Lease) {
	x.mu.Lock()
	p := &x.parts[node]
	if mine := p.lease == l && x.cause == nil && !x.unlocked; mine {
		p.why = l.Err()
	}
	x.mu.Unlock()
	if x.err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if p.lease == l {
		p.lease = nil
		x.healLocked(node, 0)
	}
}

// healLocked has a store locked after a while.
func (x *redLease) healLocked(node int, after time.Duration) {
	p := &x.parts[node]
	if !x.heals || p.healing || x.cause != nil || x.unlocked {
		return
	}
	p.healing = true
	p.timer = time.AfterFunc(after, func() { x.heal(node) })
}

// follow has a store locked at once, where that is due: the lease that x was entered
// under has it now, or has ended.
func (x *redLease) follow(node int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := &x.parts[node]
	if p.lease == nil && p.healing && p.timer.Stop() {
		p.healing = false
		x.healLocked(node, 0)
	}
}

// within is the innermost live lease that x was entered under, or nil, and a context that
// carries it.
func (x *redLease) within() (*redLease, context.Context) {
	var live *redLease
	root := x
	for root.outer != nil {
		if root = root.outer; live == nil && root.err() == nil {
			live = root
		}
	}
	if live == nil {
		return nil, root.parent
	}
	return live, redContext{root.parent, live}
}

func (x *redLease) heal(node int) {
	if x.err() != nil {
		return
	}
	third := x.clients[node].watchdog / 3
	call := x.redCall
	call.outer, call.parent = x.within()
	if o := call.outer; o != nil {
		if _, has := o.has(node); !has {
			x.mu.Lock()
			x.parts[node].healing = false
			x.healLocked(node, third)
			x.mu.Unlock()
			if _, has := o.has(node); has || o.err() != nil { // it would not tell again
				x.follow(node)
			}
			return
		}
	}
	if !x.until.IsZero() { // the bound counts from when the whole was acquired
		left := time.Until(x.until)
		if left < MinLease {
			return
		}
		call.opts = slices.Clone(call.opts)
		for i, o := range call.opts {
			if _, ok := o.(maxHoldOption); ok {
				call.opts[i] = WithMaxHold(left)
			}
		}
	}
	bound, cancel := context.WithTimeout(context.Background(), x.patience)
	defer cancel()
	v := call.ask(bound, node, true)
	if errors.Is(v.err, errYoung) {
		// It keeps others out while the store stays out, and counts when nobody else can
		// count on what the store has forgotten.
		v.lease, v.err = x.clients[node].lockUntil(call.parent, bound, x.of, true, Kind{}, call.opts)
		v.counts = time.Now().Add(countsAfter)
	}
	if caller := (*callerGone)(nil); errors.As(v.err, &caller) {
		v.err = silent(x.patience)
	}
	x.standing[node].heard(v)
	over := x.err() != nil

	x.mu.Lock()
	p := &x.parts[node]
	p.healing = false
	if over = over || x.unlocked || x.cause != nil; !over { // drop looks at the parts once
		if v.err == nil {
			x.joinLocked(v)
		} else if !errors.Is(v.err, ErrClosed) {
			p.failed++
			x.healLocked(node, min(third/10<<min(p.failed, 10), third))
		}
	}
	x.mu.Unlock()
	if over && v.lease != nil {
		v.lease.Unlock(context.Background())
	}
}

func (x *redLease) err() error {
	x.mu.Lock()
	if x.cause != nil {
		defer x.mu.Unlock()
		return x.cause
	}
	parts := slices.Clone(x.parts)
	x.mu.Unlock()
	live, young := 0, 0
	var why reasons
	now := time.Now()
	for i, p := range parts {
		err := p.why
		if p.lease != nil {
			err = p.lease.Err()
		}
		switch {
		case err != nil:
			why = append(why, fmt.Errorf("store %d: %w", i, err))
		case p.lease == nil:
		case !p.counts.IsZero():
			young++
		default:
			live++
		}
	}
	if live >= x.quorum {
		if young > 0 {
			x.admit(parts, now)
		}
		return nil
	}
	cause := fmt.Errorf("%w: %d of %d stores still hold it, %d are needed", ErrLost, live, len(parts), x.quorum)
	if young > 0 {
		cause = fmt.Errorf("%w; %d that lost their data do not count yet", cause, young)
	}
	if len(why) > 0 {
		cause = fmt.Errorf("%w: %w", cause, why)
	}
	x.finish(&Error{Op: "lease", Name: x.of, Err: cause})
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cause
}

// admit has those of parts count that may by now. It is called where the lease lives without
// them: a lease that had ended by then, unnoticed, while this process stood still, is not revived.
func (x *redLease) admit(parts []redPart, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, was := range parts {
		if p := &x.parts[i]; p.lease == was.lease && !now.Before(was.counts) {
			p.counts = time.Time{}
		}
	}
}

// finish ends the lease, once.
func (x *redLease) finish(cause error) {
	x.mu.Lock()
	first := x.cause == nil
	if first {
		x.cause = cause
		for _, p := range x.parts {
			if p.timer != nil {
				p.timer.Stop()
			}
		}
	}
	inner := slices.Clone(x.inner)
	x.mu.Unlock()
	if !first {
		return
	}
	x.end(cause)
	if errors.Is(cause, ErrLost) {
		// The holder was told. What is left in the minority would stand in others' way
		// until it unlocks.
		go x.drop()
	}
	for o := x.outer; o != nil; o = o.outer {
		o.mu.Lock()
		o.inner = slices.DeleteFunc(o.inner, func(in *redLease) bool { return in == x })
		if o == x.outer {
			o.inner = append(o.inner, inner...) // they follow that one now
		}
		o.mu.Unlock()
	}
	for _, in := range inner {
		for node := range x.parts {
			in.follow(node)
		}
	}
}

// drop releases the parts that are left of a lease that was lost.
func (x *redLease) drop() {
	x.mu.Lock()
	parts := slices.Clone(x.parts)
	x.mu.Unlock()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, p := range parts {
		if p.lease != nil && p.lease.Err() == nil {
			p.lease.Unlock(over) // it is sent all the same
		}
	}
}

func (x *redLease) unlock(ctx context.Context) error {
	lost := x.err()
	x.mu.Lock()
	again := x.unlocked
	x.unlocked = true
	leases := make([]*Lease, len(x.parts))
	for i, p := range x.parts {
		leases[i] = p.lease
	}
	x.mu.Unlock()
	if again {
		return &Error{Op: "unlock", Name: x.of, Err: errTwice}
	}
	x.finish(ErrReleased)
	// When enough stores have confirmed it, the rest have a moment to, and are then left to
	// the background.
	bound, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		node int
		err  error
	}
	answers := make(chan answer, len(leases))
	asked, start := 0, time.Now()
	for i, l := range leases {
		if l != nil {
			asked++
			go func() { answers <- answer{i, l.Unlock(bound)} }()
		}
	}
	done := 0
	var failed reasons
	for range asked {
		a := <-answers
		if a.err != nil {
			failed = append(failed, fmt.Errorf("store %d: %w", a.node, a.err))
			continue
		}
		if done++; done == x.quorum {
			t := time.AfterFunc(max(2*time.Since(start), x.patience/10), cancel)
			defer t.Stop()
		}
	}
	switch {
	case lost != nil:
		return &Error{Op: "unlock", Name: x.of, Err: fmt.Errorf("%w: %w", ErrNotHeld, lost)}
	case done < x.quorum:
		// Enough stores must have let it go for others to get it.
		return &Error{Op: "unlock", Name: x.of, Err: failed}
	}
	return nil
}
