package quorum

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// Calls that wait do so in the queue of the same store, the first that refuses them: its grant is the turn. A release
// gives the turn away, and leaves the lock in the other stores free for whoever asks there. Two rules keep a caller
// that locks again at once from being first there each time: a call that gets a majority without the turn gives it back
// once, and a call that has the turn asks the others some times before it gives the turn back.
//
// The owner in the first store may be another than that of the majority, for example a dead one, and releases nothing.
// So a call that has waited for a second has a place in another store too, each second in the next.

// roundsOfTurn is how often a call that has the turn asks the other stores.
const roundsOfTurn = 8

// yields reports whether a call that has got a majority gives it back: another owner has the turn, and is about to ask
// the other stores, or is a dead one. A call does so once.
func (x *rounds) yields(t *tally, votes []vote) bool {
	if x.Try || x.yielded || x.outer != nil || len(t.refused) == 0 {
		return false
	}
	x.yielded = t.refused[0] < slices.IndexFunc(votes, func(v vote) bool { return v.lease != nil })
	return x.yielded
}

// keeps reports whether a call that got no majority keeps its turns for another round. It does not if a store before
// them refuses: the owner there has the turn.
func (x *rounds) keeps(t *tally, turns []vote) bool {
	x.kept++
	return x.kept < roundsOfTurn && t.answered >= x.majority && x.wait.Err() == nil &&
		(len(t.refused) == 0 || t.refused[0] > turns[0].node)
}

// place is a call's place in the queue of a store.
type place struct {
	node   int
	answer chan vote // has room for the vote
	leave  context.CancelFunc
}

// end leaves the queue, and returns the vote that has come meanwhile, if one has.
func (p *place) end() vote {
	p.leave()
	return <-p.answer
}

// enqueue takes a place in the queue of a store.
func (x *rounds) enqueue(node int) *place {
	ctx, cancel := context.WithCancel(x.wait)
	p := &place{node: node, answer: make(chan vote, 1), leave: cancel}
	c := *x.call // the place is of the call as it is now
	go answer(p.answer, node, func() vote { return c.ask(ctx, node, false) })
	return p
}

// awaitTurn waits for the lock in the queues of stores that refused it. It returns without it after a second or more,
// since a store may fail, and keeps the place in the first store.
func (x *rounds) awaitTurn(refused []int) error {
	if x.place == nil {
		x.place = x.enqueue(refused[0])
		x.from = x.place.node + 1
	} else if x.beside == nil {
		x.besides(refused)
	}
	var beside chan vote // of none comes nothing
	if x.beside != nil {
		beside = x.beside.answer
	}
	t := time.NewTimer(time.Second + rand.N(500*time.Millisecond))
	defer t.Stop()
	select {
	case v := <-x.place.answer:
		p := x.place
		x.place = nil
		p.leave()
		return x.heard(v)
	case v := <-beside:
		return x.heard(x.leaveBeside(v))
	case <-t.C:
		if x.beside == nil {
			return nil
		}
		v := x.leaveBeside(x.beside.end())
		if v.lease == nil && v.panicked == nil {
			return nil
		}
		return x.heard(v)
	case <-x.wait.Done():
		return fail.Gone(x.wait)
	}
}

// besides takes a place in another store, if another refused.
func (x *rounds) besides(refused []int) {
	others := slices.DeleteFunc(slices.Clone(refused), func(i int) bool { return i == x.place.node })
	if len(others) == 0 {
		return
	}
	i, _ := slices.BinarySearch(others, x.from)
	x.beside = x.enqueue(others[i%len(others)])
}

// leaveBeside forgets the place beside, whose vote is v.
func (x *rounds) leaveBeside(v vote) vote {
	x.beside.leave()
	x.from = x.beside.node + 1
	x.beside = nil
	return v
}

// heard takes the vote of a store in whose queue the call was. If the call has the turn, it leaves the queue beside,
// with what it has got there. A grant beside is no reason to leave the queue of the turn.
func (x *rounds) heard(v vote) error {
	if v.lease == nil {
		x.repanic(x.wait, []vote{v})
		if x.wait.Err() != nil {
			return fail.Gone(x.wait)
		}
		// The request failed at once, and would fail again: pause.
		return sleep(x.wait, 20*time.Millisecond+rand.N(100*time.Millisecond))
	}
	x.kept = 0
	x.turns = []vote{v}
	if x.place == nil {
		x.turns = append(x.endQueues(), v)
	}
	x.repanic(x.wait, x.turns)
	x.turns = slices.DeleteFunc(x.turns, func(v vote) bool { return v.lease == nil })
	slices.SortFunc(x.turns, func(a, b vote) int { return a.node - b.node })
	if x.place != nil { // who has the turn asks first
		return sleep(x.wait, 3*time.Millisecond)
	}
	return nil
}

// endQueues leaves the queues, and returns the votes that have come meanwhile.
func (x *rounds) endQueues() (votes []vote) {
	for _, p := range []*place{x.place, x.beside} {
		if p != nil {
			votes = append(votes, p.end())
		}
	}
	x.place, x.beside = nil, nil
	return votes
}

// leaveQueues leaves the queues, and gives back what the call has got there meanwhile. If one of its requests has
// panicked, it gives back votes too, and panics with the same value.
func (x *rounds) leaveQueues(votes []vote) {
	got := x.endQueues()
	if len(got) == 0 {
		return
	}
	x.repanic(x.wait, slices.Concat(votes, got))
	x.giveBack(x.wait, got)
}
