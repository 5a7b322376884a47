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
// So a call that has waited for a second also stands in the queue of another store, each second in the next. A grant
// there is no turn: the call gives it back, and asks all stores a little later than the one that has the turn.

// roundsOfTurn is how often a call that has the turn asks the other stores.
const roundsOfTurn = 16

// yields reports whether a call that has got a majority gives it back: another owner has the turn, and is about to ask
// the other stores, or is a dead one. A call does so in one round, and not in the next.
func (x *rounds) yields(t *tally, votes []vote) bool {
	return !x.Try && !x.yielded && x.outer == nil && len(t.refused) > 0 &&
		t.refused[0] < slices.IndexFunc(votes, func(v vote) bool { return v.lease != nil })
}

// keeps reports whether a call that got no majority keeps its turn for another round. It does not if a store before
// that of its turn refuses: the owner there has the turn.
func (x *rounds) keeps(t *tally, turn *vote) bool {
	x.kept++
	return x.kept < roundsOfTurn && t.answered >= x.majority && x.wait.Err() == nil &&
		(len(t.refused) == 0 || t.refused[0] > turn.node)
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

// enqueue takes a place in the first store of some from an index on, or in the first of all.
func (x *rounds) enqueue(stores []int, index int) *place {
	i, _ := slices.BinarySearch(stores, index)
	ctx, cancel := context.WithCancel(x.wait)
	p := &place{node: stores[i%len(stores)], answer: make(chan vote, 1), leave: cancel}
	c := *x.call // the place is of the call as it is now
	go answer(p.answer, p.node, func() vote { return c.ask(ctx, p.node, false) })
	return p
}

// awaitTurn waits for the lock in the queues of stores that refused it. It returns without it after a second or more,
// since a store may fail, and keeps the place in the first store.
func (x *rounds) awaitTurn(refused []int) error {
	if x.place == nil {
		x.place = x.enqueue(refused, x.at)
		x.from = x.place.node + 1
	} else if x.second && x.beside == nil {
		others := slices.DeleteFunc(slices.Clone(refused), func(i int) bool { return i == x.place.node })
		if len(others) > 0 {
			x.beside = x.enqueue(others, x.from)
			x.from = x.beside.node + 1
		}
	}
	x.second = false
	var beside chan vote // of none comes nothing
	if x.beside != nil {
		beside = x.beside.answer
	}
	t := time.NewTimer(time.Second + rand.N(500*time.Millisecond))
	defer t.Stop()
	for {
		select {
		case v := <-x.place.answer:
			return x.heard(v)
		case v := <-beside:
			beside = nil
			x.beside.leave()
			if x.beside = nil; x.returned(v) { // the owner there has gone
				x.yielded = true
				return x.givesWay(3*time.Millisecond + rand.N(2*time.Millisecond))
			}
		case <-t.C:
			x.second = true
			if x.beside != nil {
				v := x.beside.end()
				x.beside = nil
				x.returned(v)
			}
			return nil
		case <-x.wait.Done():
			return fail.Gone(x.wait)
		}
	}
}

// givesWay waits for d, or until it is the call itself that has the turn.
func (x *rounds) givesWay(d time.Duration) error {
	if x.place == nil {
		return sleep(x.wait, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case v := <-x.place.answer:
		return x.heard(v)
	case <-t.C:
		return nil
	case <-x.wait.Done():
		return fail.Gone(x.wait)
	}
}

// heard takes the vote of the store in whose queue the call was.
func (x *rounds) heard(v vote) error {
	x.place.leave()
	x.place = nil
	if v.lease != nil {
		x.turn, x.kept = &v, 0
		x.leaveQueues(nil)
		return nil
	}
	x.at = v.node + 1 // nobody can wait there, or this user cannot
	x.returned(v)
	if x.wait.Err() != nil {
		return fail.Gone(x.wait)
	}
	return sleep(x.wait, 20*time.Millisecond+rand.N(100*time.Millisecond))
}

// returned gives back what a vote granted, if it granted something.
func (x *rounds) returned(v vote) bool {
	x.repanic(x.wait, []vote{v})
	if v.lease == nil {
		return false
	}
	x.giveBack(x.wait, []vote{v})
	return true
}

// leaveQueues leaves the queues, and gives back what the call has got there meanwhile. If one of its requests has
// panicked, it gives back votes too, and panics with the same value.
func (x *rounds) leaveQueues(votes []vote) {
	var got []vote
	for _, p := range []*place{x.place, x.beside} {
		if p != nil {
			got = append(got, p.end())
		}
	}
	if x.place, x.beside = nil, nil; len(got) > 0 {
		x.repanic(x.wait, slices.Concat(votes, got))
		x.giveBack(x.wait, got)
	}
}
