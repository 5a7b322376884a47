//go:build linux

package chaos

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// The lock as porcupine is told it: somebody takes it when it is free, with a token larger than
// all before; and somebody's lease ends, by Unlock, by time, or because the store
// forgot it. A visit is those two. When the second was is known from its two sides: not before the
// lease last said that it is held, and, where Unlock returned nil, not after that.
type (
	record struct {
		holder int64 // 1 + the index of a visit; 0: free
		token  int64 // the largest that was given out
	}
	step struct {
		takes bool
		visit int64 // 1 + its index
		token int64
	}
)

var model = porcupine.Model{
	Init: func() any { return record{} },
	Step: func(state, input, _ any) (bool, any) {
		r, s := state.(record), input.(step)
		if !s.takes {
			return r.holder == s.visit, record{0, r.token}
		}
		if r.holder != 0 || s.token != 0 && s.token <= r.token {
			return false, r
		}
		return true, record{s.visit, max(r.token, s.token)}
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(step)
		if s.takes {
			return fmt.Sprintf("visit %d takes it with token %d", s.visit-1, s.token)
		}
		return fmt.Sprintf("visit %d has it no more", s.visit-1)
	},
}

// history is what porcupine is asked about: visits of one name and segment.
func history(name []claim) (all []porcupine.Operation) {
	for _, c := range name {
		client := len(all) / 2
		id := c.index + 1
		over := int64(math.MaxInt64)
		if c.end == released && !c.cut {
			over = c.freed
		}
		all = append(all,
			porcupine.Operation{ClientId: client, Input: step{true, id, c.token}, Call: c.begun, Return: c.first},
			porcupine.Operation{ClientId: client, Input: step{false, id, 0}, Call: c.until, Return: over})
	}
	return all
}

// linearize has porcupine check each name's history.
func (v *verdict) linearize(visits []visit, faults []fault) {
	type part struct {
		name    int64
		segment int
	}
	parts := map[part][]claim{}
	for _, c := range claims(visits, faults) {
		if !c.excused {
			p := part{c.name, c.segment}
			parts[p] = append(parts[p], c)
		}
	}
	for p, name := range parts {
		h := history(name)
		v.checked++
		v.events += len(h)
		switch porcupine.CheckOperationsTimeout(model, h, 5*time.Minute) {
		case porcupine.Illegal:
			v.violations = append(v.violations, fmt.Sprintf("porcupine: the history of name %d is no lock's, in %d visits from %v on", p.name, len(name), name[0]))
		case porcupine.Unknown:
			v.violations = append(v.violations, fmt.Sprintf("porcupine: the history of name %d, %d visits, was not decided", p.name, len(name)))
		}
	}
}
