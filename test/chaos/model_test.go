//go:build linux

package chaos

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// A lock as porcupine is told it: somebody gets in when there is room, with a token larger than
// all before; and somebody's lease ends, by Unlock, by time, or because the store
// forgot it. A plain lock has room for one, a read-write lock for any number of readers or a writer,
// who takes it all, permits for as many as were made. A visit is those two. When the second was is known from its two sides: not before the
// lease last said that it is held, and, where Unlock returned nil, not after that.
type (
	record struct {
		used  int   // of the room
		token int64 // the largest that was given out
	}
	step struct {
		in          bool
		visit       int64
		takes, room int
		token       int64
	}
)

var model = porcupine.Model{
	Init: func() any { return record{} },
	Step: func(state, input, _ any) (bool, any) {
		r, s := state.(record), input.(step)
		if !s.in { // after it came: it is asked about in this order
			return true, record{r.used - s.takes, r.token}
		}
		if r.used+s.takes > s.room || s.token != 0 && s.token <= r.token {
			return false, r
		}
		return true, record{r.used + s.takes, max(r.token, s.token)}
	},
	DescribeOperation: func(input, _ any) string {
		s := input.(step)
		if s.in {
			return fmt.Sprintf("visit %d takes %d of %d with token %d", s.visit, s.takes, s.room, s.token)
		}
		return fmt.Sprintf("visit %d has it no more", s.visit)
	},
}

// history is what porcupine is asked about: visits of one name and segment. Where several may be in
// at once, each is said to have got in as late as it may have: earlier could only stand in others' way, so
// this makes no history wrong that was right, nor the reverse; and spares it all subsets of those who waited.
func history(name []harness.Claim) (all []porcupine.Operation) {
	for _, c := range name {
		client := len(all) / 2
		began := c.Begun
		if c.Shares() {
			began = c.First
		}
		in := step{true, c.Index, c.Takes, c.Room, c.Token}
		out := in
		out.in = false
		gone := c.Until + 1 // at until it is still in; else one who looked only once might have gone before it came
		over := int64(math.MaxInt64)
		if c.End == harness.Released && !c.Cut {
			over = max(c.Freed, gone)
		}
		all = append(all,
			porcupine.Operation{ClientId: client, Input: in, Call: began, Return: c.First},
			porcupine.Operation{ClientId: client, Input: out, Call: gone, Return: over})
	}
	return all
}

// linearize has porcupine check each name's history.
func linearize(v *harness.Verdict, visits []harness.Visit, faults []harness.Fault) {
	type part struct {
		name    int64
		segment int
	}
	parts := map[part][]harness.Claim{}
	for _, c := range harness.Claims(visits, faults) {
		if !c.Excused {
			p := part{c.Name, c.Segment}
			parts[p] = append(parts[p], c)
		}
	}
	for p, name := range parts {
		h := history(name)
		v.Checked++
		v.Events += len(h)
		switch porcupine.CheckOperationsTimeout(model, h, 5*time.Minute) {
		case porcupine.Illegal:
			v.Violations = append(v.Violations, fmt.Sprintf("porcupine: the history of name %d is no lock's, in %d visits from %v on", p.name, len(name), name[0]))
		case porcupine.Unknown:
			v.Violations = append(v.Violations, fmt.Sprintf("porcupine: the history of name %d, %d visits, was not decided", p.name, len(name)))
		}
	}
}
