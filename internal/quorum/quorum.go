// Package quorum implements locks that are held in more than half of several independent stores: Redlock.
package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/callsite"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Node is the engine of the client of one store.
type Node interface {
	// Acquire takes the lock in the store. The lease's parent is ctx; the waiting ends with wait.
	Acquire(ctx, wait context.Context, r engine.Request) (*lease.Handle, error)
	// Number returns the lease.Key.Client of the node's leases.
	Number() uint32
	// Now returns the time on the clock of the node's leases.
	Now() clock.Instant
	// Watchdog returns the watchdog timeout.
	Watchdog() time.Duration
	// RejoinDelay returns for how long the store has no vote after it lost its data; zero if it votes at once.
	RejoinDelay() time.Duration
	// KnowsAge reports whether the store knows since when it has its data; the age is recorded under scope.
	KnowsAge() (scope string, knows bool)
	// Unanswered returns an error that says why a request about a name has had no answer for d: requests wait before they
	// are sent, or the store failed meanwhile; nil if that is not known.
	Unanswered(name string, d time.Duration) error
}

const (
	// countWithin bounds the age of the votes that a lease is made of. countsAfter, which is longer, is how long after a
	// live lease has locked a barred store again the store counts for the lease. The store may have given its vote to
	// another call before it lost its data: by then that call holds the lock, and this lease has lost its majority, or
	// that vote is too old.
	countWithin = 2 * time.Second
	countsAfter = 3 * time.Second
	// roundsOfTrouble is the number of rounds after which a call fails if too few stores answer in each.
	roundsOfTrouble = 3
)

// Quorum is a set of independent stores.
type Quorum struct {
	nodes    []Node
	majority int
	standing []standing // by index of the store
	sites    bool       // the call sites of Lock are noted

	mu      sync.Mutex
	waiting map[string]int // the number of waiting calls, by name; no entry for zero. Guarded by mu
}

// New returns a quorum of an odd number of nodes; sites: somebody asks for the call sites of a node.
func New(nodes []Node, sites bool) *Quorum {
	return &Quorum{
		nodes: nodes, majority: len(nodes)/2 + 1, standing: make([]standing, len(nodes)), sites: sites,
		waiting: make(map[string]int),
	}
}

// admit counts a call that begins to wait; release uncounts it. It returns the number of calls that wait already, and
// false if WithMaxWaiters refuses the call.
func (q *Quorum) admit(r *engine.Request) (waiters int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiters = q.waiting[r.Name]
	if r.Full(waiters) {
		return waiters, false
	}
	q.waiting[r.Name] = waiters + 1
	return waiters, true
}

func (q *Quorum) release(name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiting[name]--; q.waiting[name] == 0 {
		delete(q.waiting, name)
	}
}

// call is one call of Lock or TryLock.
type call struct {
	*Quorum
	engine.Request // the request for each store
	ctx            context.Context
	parent         context.Context // the parent of the parts' leases
	outer          *Lease          // the live lease that the call enters under; nil if none
	patience       time.Duration   // how long to wait for the answer of a store
}

// Acquire takes the lock in a majority of the stores.
func (q *Quorum) Acquire(ctx context.Context, r engine.Request) (*lease.Handle, error) {
	if ctx == nil {
		return nil, r.Fail(fail.NilContext)
	}
	for i, n := range q.nodes {
		if out := n.RejoinDelay(); out > 0 && r.Lease > out {
			return nil, r.Fail(fail.Invalidf("WithLease(%v) is longer than store %d has no vote after it lost its data, %v; "+
				"give all clients WithRejoinDelay(%v)", r.Lease, i, out, r.Lease))
		}
	}
	// The caller's context is not a parent of the parts' leases: its end ends the context of the quorum's lease, but
	// the contexts of the parts must go on, since they report the loss of a part.
	c := &call{Quorum: q, Request: r, ctx: ctx, parent: context.WithoutCancel(ctx)}
	if q.sites {
		c.parent = callsite.With(c.parent)
	}
	watchdog := q.nodes[0].Watchdog()
	c.patience = min(max(cmp.Or(r.Lease, watchdog)/10, 50*time.Millisecond), time.Second)
	c.patience = min(c.patience, r.TTL(watchdog)/2) // the grants must outlive their round
	wait := ctx
	if r.Wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = bound.Wait(ctx, r.Wait)
		defer cancel()
	}
	x := &rounds{call: c, wait: wait, left: -1}
	defer x.leave()
	for {
		h, err := x.round()
		if h != nil || err != nil {
			return h, err
		}
	}
}

// rounds is a call that asks all stores, round after round, until it has a majority.
type rounds struct {
	*call
	wait    context.Context
	turn    *vote         // the vote that the call has waited for, for the next round; or nil
	left    time.Duration // the rest of the holder's lease; negative before a majority has answered
	last    error         // why the last round failed, if too few stores answered or had a vote
	trouble time.Time     // the start of the first of the failed rounds
	failed  int           // the number of rounds in a row in which too few stores answered
	waited  bool          // the call has waited for a holder, or for barred stores
	counted bool          // the call is in Quorum.waiting
	place   *place        // the call's place in the queue of the first store that refused it; or nil
	at      int           // a place is taken in the first store that refuses, counted from this index on
	beside  *place        // a place in another store; or nil
	from    int           // as at, for the place beside
	second  bool          // the last wait was a whole one, of a second or more
	kept    int           // the number of rounds that had the turn and got no majority
	yielded bool          // the call has just given way to one that may have the turn, and does not in the next round
}

// round asks all stores once. It returns a lease; or the error of the call; or neither, after the pause before the next
// round.
func (x *rounds) round() (*lease.Handle, error) {
	start := time.Now()
	if outer := x.enclosing(); outer != x.outer {
		x.leaveQueues(nil)
		x.outer = outer
	}
	turn := x.turn
	x.turn = nil
	votes := x.collect(x.wait, turn)
	t := x.tally(votes)
	won := t.held >= x.majority
	x.yielded = won && x.yields(&t, votes)
	if won && !x.yielded && x.wait.Err() == nil {
		x.leaveQueues(votes)
		return x.lease(votes, start), nil
	}
	bound.Begins(x.wait)
	if turn != nil && !x.yielded && x.keeps(&t, turn) {
		x.turn, votes[turn.node].lease = turn, nil // not given back
	}
	x.giveBack(x.wait, votes)
	if t.answered >= x.majority {
		x.answered(&t, len(votes))
	}
	if x.wait.Err() != nil {
		return nil, x.gaveUp(fail.Gone(x.wait))
	}
	var err error
	switch took := time.Since(start); {
	case x.yielded:
		err = x.givesWay(2*took + 3*time.Millisecond + rand.N(3*time.Millisecond))
	case x.turn != nil:
		err = sleep(x.wait, took/2+300*time.Microsecond)
	case t.answered < x.majority:
		if err := x.tooFew(&t, start, len(votes)); err != nil {
			return nil, err
		}
		err = sleep(x.wait, min(time.Since(x.trouble)/2+10*time.Millisecond, time.Second))
	case x.Try && x.last != nil:
		return nil, x.Fail(fmt.Errorf("%w: %w", fail.Unavailable, x.last))
	case x.Try:
		return nil, x.Refused(t.left)
	case len(t.refused) > 0:
		if err := x.joins(); err != nil {
			return nil, err
		}
		x.waited = true
		err = x.awaitTurn(t.refused)
	case t.out > 0:
		x.waited = true
		err = sleep(x.wait, min(t.left, time.Second)+time.Millisecond)
	default: // some votes were too old to count
		err = sleep(x.wait, rand.N(20*time.Millisecond)+time.Millisecond)
	}
	if err != nil {
		return nil, x.gaveUp(err)
	}
	return nil, nil
}

// gaveUp is Request.GaveUp, which asks each node why its store has not answered.
func (x *rounds) gaveUp(err error) error {
	return x.GaveUp(err, x.left, x.last, func() error {
		var all fail.List
		for i, n := range x.nodes {
			if why := n.Unanswered(x.Name, x.Wait); why != nil {
				all = append(all, fmt.Errorf("store %d: %w", i, why))
			}
		}
		if len(all) == 0 {
			return nil
		}
		return all
	})
}

// joins counts the call among those that wait. It returns the error of a call that WithMaxWaiters refuses.
func (x *rounds) joins() error {
	if x.counted {
		return nil
	}
	waiters, ok := x.admit(&x.Request)
	if !ok {
		return x.Crowded(waiters, max(x.left, 0))
	}
	x.counted = true
	return nil
}

// leave undoes what an ended call has left.
func (x *rounds) leave() {
	if x.counted {
		x.release(x.Name)
	}
	if x.turn != nil {
		x.giveBack(x.wait, []vote{*x.turn})
	}
	x.leaveQueues(nil)
}

// enclosing returns the live lease of the same stores that the call's context carries; nil if there is none.
func (x *rounds) enclosing() *Lease {
	outer, _ := x.ctx.Value(key{x.Name}).(*Lease)
	if outer == nil || !slices.Equal(outer.nodes, x.nodes) || outer.Err() != nil {
		return nil
	}
	return outer
}

// answered notes the answers of a majority.
func (x *rounds) answered(t *tally, stores int) {
	x.last, x.failed, x.left = nil, 0, max(t.left, 0)
	switch {
	case t.barred():
		x.last = fmt.Errorf("%d of %d stores are %w for another %v, until all leases that they may have forgotten are over; "+
			"wait for longer, or see WithRejoinDelay", t.out, stores, fail.NoVote, t.left.Round(time.Millisecond))
	case len(t.refused) == 0 && t.held < x.majority:
		x.last = fmt.Errorf("%d of %d stores granted the lock, but only %d grants counted at the end of the round, %d are "+
			"needed; look whether a store is too slow for the lease", t.answered, stores, t.held, x.majority)
	}
}

// tooFew notes that too few stores answered. An error that it returns is the error of the call.
func (x *rounds) tooFew(t *tally, start time.Time, stores int) error {
	if len(t.hopeless) > len(x.nodes)-x.majority {
		return x.Fail(t.hopeless)
	}
	x.last = fmt.Errorf("%d of %d stores answered, %d are needed: %w", t.answered, stores, x.majority, t.failures)
	if x.failed++; x.failed == 1 {
		x.trouble = start
	}
	// A call that has waited goes on through an outage, for as long as a lease lasts.
	more := x.failed < roundsOfTrouble || x.waited && time.Since(x.trouble) < x.nodes[0].Watchdog()
	if x.Try || !more || !t.passing {
		return x.Fail(fmt.Errorf("%w: %w", fail.Unavailable, x.last))
	}
	return nil
}

// sleep waits for d. It returns *fail.CallerGone if wait ends before.
func sleep(wait context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-wait.Done():
		return fail.Gone(wait)
	}
}

var errOuterAway = &backend.Fault{
	Err: errors.New("the enclosing lease does not hold this store"), Temporary: true,
}
