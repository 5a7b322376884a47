package quorum

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// vote is the answer of one store.
type vote struct {
	node  int
	lease *lease.Handle
	// counts is when the vote may count at the earliest; zero if it counts.
	counts   time.Time
	err      error
	panicked any // the value of a panic of the observer or the backend; nil if there was none
}

// errEnded is the error of a vote whose goroutine ended before the answer: by a panic, or by runtime.Goexit.
var errEnded = errors.New("the observer or the backend ended the goroutine of the request")

// answer sends the vote of ask to answers. It recovers a panic of ask: the goroutine of the user's call panics with the
// same value.
func answer(answers chan<- vote, node int, ask func() vote) {
	v := vote{node: node, err: errEnded}
	defer func() {
		v.panicked = recover()
		answers <- v
	}()
	v = ask()
}

// collect asks all stores at the same time; had, if not nil, is a vote that the call has already. Once the outcome is
// clear, collect waits for the other stores only a little longer. If a request panics, collect gives the other stores'
// grants back, and panics with the same value.
func (r *call) collect(wait context.Context, had *vote) []vote {
	bound, cancel := context.WithTimeout(wait, r.patience)
	defer cancel()
	start := time.Now()
	votes := make([]vote, len(r.nodes))
	answers := make(chan vote, len(r.nodes))
	suspects := r.suspects()
	trusted := 0 // stores that are no suspects and have not answered yet
	for i := range r.nodes {
		if !suspects[i] {
			trusted++
		}
		if had != nil && had.node == i {
			answers <- *had
			continue
		}
		if suspects[i] {
			if err := r.standing[i].probe(); err != nil {
				answers <- vote{node: i, err: err}
				continue
			}
		}
		go answer(answers, i, func() vote { return r.ask(bound, i, true) })
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
		case trusted == 0: // a suspect that works again answers about as fast as the others did
			grace = 3*took + 10*time.Millisecond
		case held >= r.majority, refused > len(votes)-r.majority:
			grace = max(2*took, r.patience/10)
		}
		if cut == nil && grace > 0 {
			cut = time.AfterFunc(grace, cancel)
			defer cut.Stop()
		}
	}
	r.repanic(wait, votes)
	for i, v := range votes {
		if fail.IsGone(v.err) {
			if wait.Err() != nil {
				continue
			}
			// The store was too slow: the caller's own wait has not ended.
			votes[i].err = r.silent(i, time.Since(start))
		}
		r.standing[i].heard(votes[i])
	}
	return votes
}

// silent returns the error of a store that has not answered within d.
func (r *call) silent(node int, d time.Duration) error {
	d = d.Round(time.Millisecond)
	if why := r.nodes[node].Unanswered(r.Name, d); why != nil {
		return fmt.Errorf("no answer within %v: %w", d, why)
	}
	return &backend.Fault{
		Err:       fmt.Errorf("no answer within %v", d),
		Remedy:    "look whether the store is overloaded, frozen, or behind a broken network",
		Temporary: true,
	}
}

// ask asks one store for the lock. A store that lost its data less than its rejoin delay ago refuses with fail.Barred.
func (r *call) ask(bound context.Context, node int, try bool) vote {
	n := r.nodes[node]
	v := vote{node: node}
	if r.outer != nil {
		// A re-entry asks only stores that the outer lease holds. When the outer lease gets another, the re-entry
		// follows: see Lease.follow.
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
	if r.outer != nil { // the outer lease may have a new part meanwhile, and the call has entered under that
		if counts, _ := r.outer.has(node); counts.After(v.counts) {
			v.counts = counts
		}
	}
	return v
}

// question returns the request for one store.
func (r *call) question(try bool) engine.Request {
	q := r.Request
	q.Try, q.Wait, q.MaxWaiters = try, 0, 0 // Quorum counts its own waiters
	return q
}

// tally is the result of a round's votes.
type tally struct {
	held, answered int           // the number of votes that count; the number of stores that answered
	refused        []int         // the indexes of the stores in which another owner holds the lock
	out            int           // the number of barred stores
	left           time.Duration // until a majority may be free without a release; negative if never or unknown
	failures       fail.List
	hopeless       fail.List // the failures that another round will not change
	passing        bool      // a failure is temporary
}

// barred reports whether no store refused the lock for another owner, and some are barred.
func (t *tally) barred() bool { return len(t.refused) == 0 && t.out > 0 }

func (r *call) tally(votes []vote) tally {
	t := tally{left: -1}
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
			t.refused = append(t.refused, i)
			if e := fail.Of(v.err); e != nil {
				t.left = max(t.left, e.Remaining)
			}
		default:
			t.failures = append(t.failures, fmt.Errorf("store %d: %w", i, fail.Bare(r.Name, v.err)))
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

// repanic panics if one of the requests of a round did. It first gives back what the other requests got.
func (r *call) repanic(wait context.Context, votes []vote) {
	for _, v := range votes {
		if v.panicked != nil {
			defer panic(v.panicked)
			r.giveBack(wait, votes)
			return
		}
	}
}

// giveBack releases the locks that a round got. It does not await the stores' answers beyond the end of wait. If a
// release panics, giveBack panics with the same value after all have ended.
func (r *call) giveBack(wait context.Context, votes []vote) {
	// A release that is not confirmed in this time goes on in the background.
	short, cancel := context.WithTimeout(wait, r.patience)
	defer cancel()
	answers := make(chan vote, len(votes))
	asked := 0
	for _, v := range votes {
		if v.lease != nil {
			asked++
			go answer(answers, v.node, func() vote { return vote{err: v.lease.Holding().Unlock(short)} })
		}
	}
	var panicked any
	for range asked {
		panicked = cmp.Or(panicked, (<-answers).panicked)
	}
	if panicked != nil {
		panic(panicked)
	}
}
