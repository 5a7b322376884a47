// Package quorum holds a lock while it holds it in more than half of several independent stores: Redlock.
package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/bound"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Node is the engine of one store's client.
type Node interface {
	// Acquire takes the lock there: its lease's parent is ctx, and the waiting ends with wait.
	Acquire(ctx, wait context.Context, r engine.Request) (*lease.Handle, error)
	// Number is the Client of its leases' keys.
	Number() uint32
	// Now is the time by which the node's leases are judged.
	Now() clock.Instant
	// Watchdog is the lease of locks that are renewed.
	Watchdog() time.Duration
	// RejoinDelay is for how long the store has no vote after it lost its data; zero if it votes at once.
	RejoinDelay() time.Duration
	// KnowsAge reports whether the store can tell since when it has its data, in the scope.
	KnowsAge() (scope string, knows bool)
}

const (
	// countWithin bounds the age of the votes that a lease is made of, and countsAfter, which is longer, is when a
	// store that was locked again while it is barred counts again. Another call may have had its vote before it lost its
	// data; by then that one either holds the lock, and not this one, or has given up.
	countWithin = 2 * time.Second
	countsAfter = 3 * time.Second
	// roundsOfTrouble is how often a call asks all stores when too few answer.
	roundsOfTrouble = 3
)

// Quorum is several stores.
type Quorum struct {
	nodes    []Node
	majority int
	standing []standing // of the stores
	sites    bool       // a lock notes its call site
}

// New makes a quorum of an odd number of nodes; sites reports whether a node logs call sites.
func New(nodes []Node, sites bool) *Quorum {
	return &Quorum{nodes: nodes, majority: len(nodes)/2 + 1, standing: make([]standing, len(nodes)), sites: sites}
}

// call is one call of Lock or TryLock.
type call struct {
	*Quorum
	engine.Request // of the parts
	ctx            context.Context
	parent         context.Context // of the parts
	outer          *Lease          // the live one that it enters under, or nil
	patience       time.Duration   // for how long one store is waited for
}

// Acquire takes the lock in a majority.
func (q *Quorum) Acquire(ctx context.Context, r engine.Request) (*lease.Handle, error) {
	if ctx == nil {
		return nil, r.Fail(fail.NilContext)
	}
	ttl := r.Lease
	if ttl == 0 {
		ttl = q.nodes[0].Watchdog()
	}
	for i, n := range q.nodes {
		if out := n.RejoinDelay(); out > 0 && r.Lease > out {
			return nil, r.Fail(fail.Invalidf("WithLease(%v) is longer than store %d has no vote after it lost its data, %v; "+
				"give all clients WithRejoinDelay(%v)", r.Lease, i, out, r.Lease))
		}
	}
	// The parts live until they are unlocked or lost: the caller's context ends the lease's context, not what notices
	// a loss.
	c := &call{Quorum: q, Request: r, ctx: ctx, parent: context.WithoutCancel(ctx)}
	if q.sites {
		c.parent = engine.WithCallSite(c.parent)
	}
	c.patience = min(max(ttl/10, 50*time.Millisecond), time.Second)
	wait := ctx
	if r.Wait > 0 {
		var cancel context.CancelFunc
		wait, cancel = bound.Wait(ctx, r.Wait)
		defer cancel()
	}
	x := &rounds{call: c, wait: wait, left: -1}
	for {
		h, err := x.round()
		if h != nil || err != nil {
			return h, err
		}
	}
}

// rounds are the questions of one call to all stores.
type rounds struct {
	*call
	wait    context.Context
	first   *vote         // what is there already of the next round
	left    time.Duration // of the holder's lease; negative before the first answer
	last    error         // of the round before, if too few answered
	trouble time.Time     // since when too few answer
	failed  int           // rounds in which too few answered, one after the other
	waited  bool
}

// round asks all stores once, and waits for the next round. It returns a lease, or an error that is the call's.
func (x *rounds) round() (*lease.Handle, error) {
	start := time.Now()
	x.outer = x.enclosing()
	votes := x.collect(x.wait, x.first)
	x.first = nil
	t := x.tally(votes)
	if t.held >= x.majority && x.wait.Err() == nil {
		return x.lease(votes, start), nil
	}
	bound.Begins(x.wait)
	x.giveBack(x.wait, votes)
	if t.answered >= x.majority {
		x.answered(&t, len(votes))
	}
	if x.wait.Err() != nil {
		return nil, x.GaveUp(fail.Gone(x.wait), x.left, x.last)
	}
	var err error
	switch {
	case t.answered < x.majority:
		if err := x.tooFew(&t, start, len(votes)); err != nil {
			return nil, err
		}
		err = sleep(x.wait, min(time.Since(x.trouble)/2+10*time.Millisecond, time.Second))
	case x.Try && t.barred():
		return nil, x.Fail(fmt.Errorf("%w: %w", fail.Unavailable, x.last))
	case x.Try:
		return nil, x.Refused(t.left)
	case t.refused >= 0:
		x.waited = true
		x.first, err = x.await(x.wait, t.refused)
	case t.out > 0:
		x.waited = true
		err = sleep(x.wait, min(t.left, time.Second)+time.Millisecond)
	default: // votes that are too old
		err = sleep(x.wait, rand.N(20*time.Millisecond)+time.Millisecond)
	}
	if err != nil {
		return nil, x.GaveUp(err, x.left, x.last)
	}
	return nil, nil
}

// enclosing is the live lease of the same stores that the call's context comes from; nil if there is none.
func (x *rounds) enclosing() *Lease {
	outer, _ := x.ctx.Value(key{x.Name}).(*Lease)
	if outer == nil || !slices.Equal(outer.nodes, x.nodes) || outer.Err() != nil {
		return nil
	}
	return outer
}

// answered notes what a majority said.
func (x *rounds) answered(t *tally, stores int) {
	x.last, x.failed, x.left = nil, 0, max(t.left, 0)
	if t.barred() {
		x.last = fmt.Errorf("%d of %d stores are %w for another %v, until all leases that they may have forgotten are over; "+
			"wait for longer, or see WithRejoinDelay", t.out, stores, fail.NoVote, t.left.Round(time.Millisecond))
	}
}

// tooFew notes that too few stores answered; an error ends the call.
func (x *rounds) tooFew(t *tally, start time.Time, stores int) error {
	if len(t.hopeless) > len(x.nodes)-x.majority {
		return x.Fail(t.hopeless)
	}
	x.last = fmt.Errorf("%d of %d stores answered, %d are needed: %w", t.answered, stores, x.majority, t.failures)
	if x.failed++; x.failed == 1 {
		x.trouble = start
	}
	// A call that waits already sits an outage out, as long as a lease lives.
	more := x.failed < roundsOfTrouble || x.waited && time.Since(x.trouble) < x.nodes[0].Watchdog()
	if x.Try || !more || !t.passing {
		return x.Fail(fmt.Errorf("%w: %w", fail.Unavailable, x.last))
	}
	return nil
}

// sleep waits; it returns *fail.CallerGone if wait ends before.
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
