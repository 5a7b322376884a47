package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// vote is one store's answer.
type vote struct {
	node  int
	lease *lease.Handle
	// counts is from when on it may count; zero if it does.
	counts time.Time
	err    error
}

// collect asks all stores at once. first is a vote that is there already. When the
// outcome is clear, the rest have a moment to answer and are not waited for.
func (r *call) collect(wait context.Context, first *vote) []vote {
	bound, cancel := context.WithTimeout(wait, r.patience)
	defer cancel()
	start := time.Now()
	votes := make([]vote, len(r.nodes))
	answers := make(chan vote, len(r.nodes))
	suspects := r.suspects()
	trusted := 0 // that have not answered yet
	for i := range r.nodes {
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
		case errors.Is(v.err, fail.NotAcquired):
			refused++
		}
		if !suspects[v.node] {
			trusted--
		}
		grace := time.Duration(0)
		switch took := time.Since(start); {
		case trusted == 0: // a suspect that is back is as quick as they were
			grace = 3*took + 10*time.Millisecond
		case held >= r.majority, refused > len(votes)-r.majority:
			grace = max(2*took, r.patience/10)
		}
		if cut == nil && grace > 0 {
			cut = time.AfterFunc(grace, cancel)
			defer cut.Stop()
		}
	}
	for i, v := range votes {
		if fail.IsGone(v.err) {
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
	return &backend.Fault{
		Err:       fmt.Errorf("no answer within %v", d.Round(time.Millisecond)),
		Remedy:    "look whether the store is overloaded, frozen, or behind a broken network",
		Temporary: true,
	}
}

// ask asks one store, which must be old enough.
func (r *call) ask(bound context.Context, node int, try bool) vote {
	n := r.nodes[node]
	v := vote{node: node}
	if r.outer != nil {
		// What enters again does so where the outer lease is; elsewhere it follows it.
		var has bool
		if v.counts, has = r.outer.has(node); !has {
			v.err = errOuterAway
			return v
		}
	}
	q := r.question(try)
	if scope, knows := n.KnowsAge(); knows && n.RejoinDelay() > 0 {
		q.Age = &backend.Age{Least: n.RejoinDelay(), Scope: scope}
	}
	v.lease, v.err = n.Acquire(r.parent, bound, q)
	if r.outer != nil { // its part may have been healed just now, and then that is what was entered
		if counts, _ := r.outer.has(node); counts.After(v.counts) {
			v.counts = counts
		}
	}
	return v
}

// question is what one store is asked.
func (r *call) question(try bool) engine.Request {
	q := r.Request
	q.Try, q.Wait = try, 0
	return q
}

// tally is what votes come to.
type tally struct {
	held, answered int
	refused        int           // the lowest store that another holds; -1 if none
	out            int           // stores without a vote
	left           time.Duration // until enough may be had without a release; negative if never
	failures       fail.List
	hopeless       fail.List // those of them that no other round will change
	passing        bool      // a failure may pass
}

// barred reports whether nothing stands in the way but stores that have no vote for a while.
func (t *tally) barred() bool { return t.refused < 0 && t.out > 0 }

func (r *call) tally(votes []vote) tally {
	t := tally{refused: -1, left: -1}
	var young []time.Duration
	for i, v := range votes {
		switch {
		case v.lease != nil:
			t.answered++
			h := v.lease.Holding().(*lease.Hold)
			if h.Err() == nil && !h.Since.Add(countWithin).Reached(r.nodes[v.node].Now()) && v.counts.IsZero() {
				t.held++
			}
		case errors.Is(v.err, fail.Barred):
			t.answered++
			if e := fail.Of(v.err); e != nil {
				young = append(young, e.Remaining)
			}
		case errors.Is(v.err, fail.NotAcquired):
			t.answered++
			if t.refused < 0 {
				t.refused = i
			}
			if e := fail.Of(v.err); e != nil {
				t.left = max(t.left, e.Remaining)
			}
		default:
			t.failures = append(t.failures, fmt.Errorf("store %d: %w", i, v.err))
			switch {
			case errors.Is(v.err, fail.Closed), errors.Is(v.err, fail.WrongKind):
				t.hopeless = append(t.hopeless, t.failures[len(t.failures)-1])
			case backend.FaultOf(v.err).Temporary:
				t.passing = true
			}
		}
	}
	if t.out = len(young); t.barred() {
		slices.Sort(young)
		t.left = young[min(max(r.majority-t.held, 1), len(young))-1]
	}
	return t
}

// giveBack releases what a round got.
func (r *call) giveBack(wait context.Context, votes []vote) {
	// What is not confirmed in this time is released in the background.
	short, cancel := context.WithTimeout(wait, r.patience)
	defer cancel()
	var wg sync.WaitGroup
	for _, v := range votes {
		if v.lease != nil {
			wg.Go(func() { _ = v.lease.Holding().Unlock(short) })
		}
	}
	wg.Wait()
}

// await waits until the lock is free in one store that refused it: waiters
// then queue in the same one, and wake by its releases. It returns with that store's
// lock, or without after a while, since the store may fail.
func (r *call) await(wait context.Context, node int) (*vote, error) {
	bound, cancel := context.WithTimeout(wait, time.Second+rand.N(500*time.Millisecond))
	defer cancel()
	v := r.ask(bound, node, false)
	switch {
	case v.err == nil:
		return &v, nil
	case wait.Err() != nil:
		return nil, fail.Gone(wait)
	case bound.Err() != nil:
		return nil, nil
	}
	// It failed at once, so it would again.
	return nil, sleep(wait, 20*time.Millisecond+rand.N(100*time.Millisecond))
}
