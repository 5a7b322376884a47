package lease

import (
	"slices"
	"time"
)

// Order is what orders the operations of a tenure, and of readers that entered under it: one at a time sets the
// hold count in the store, and a re-entry comes from the innermost hold. Others line up, so that they reach the store
// in the order in which they were begun.
type Order struct {
	busy     bool // an operation that sets the hold count is on its way
	entered  bool // there has been a re-entry, or an attempt
	longest  time.Duration
	entering *Turn   // where that operation is a re-entry
	line     []*Turn // in the order in which they came
	top      *Hold   // of the live ones, the innermost: it leads to the others
}

// Turn is a place in an Order's line: of a re-entry from a hold, or of a release.
type Turn struct {
	Hold    *Hold // nil: a release
	Shared  bool  // it enters to read
	Lease   time.Duration
	Ready   chan struct{}
	granted bool
}

// Granted reports whether the turn has come.
func (t *Turn) Granted() bool { return t.granted }

// Idle reports whether no operation is on its way or in line.
func (o *Order) Idle() bool { return !o.busy && !o.Waited() }

// Waited reports whether an operation is in line.
func (o *Order) Waited() bool { return len(o.line) > 0 }

// Entered reports whether there has been a re-entry, or an attempt.
func (o *Order) Entered() bool { return o.entered }

// Longest is the longest lease that a re-entry asked for: the record may last so long.
func (o *Order) Longest() time.Duration { return o.longest }

// Innermost reports whether a call that comes from h may enter: every live hold is among those that h was entered
// under, save that readers do not mind each other. Both are looked at at once, since they are in one order: a hold
// under another came after it.
func (o *Order) Innermost(h *Hold, shared bool) bool {
	for x := o.top; x != nil; x = x.below {
		if shared && x.Shared() {
			continue
		}
		for h != x {
			if h = h.Outer; h == nil {
				return false
			}
		}
	}
	return true
}

// Taken reports whether a re-entry from t.Hold would have to wait for another re-entry: the hold is not the
// innermost, or another call comes first. A release on its way does not count: it is over as soon as the store
// answers.
func (o *Order) Taken(t *Turn) bool {
	for _, x := range o.line {
		if !(t.Shared && x.Shared) && x.Hold == t.Hold {
			return true
		}
	}
	return !o.Innermost(t.Hold, t.Shared) || o.entering != nil && !(t.Shared && o.entering.Shared)
}

// TryBegin takes the order for a release if it is idle.
func (o *Order) TryBegin() bool {
	if !o.Idle() {
		return false
	}
	o.busy = true
	return true
}

// Enter takes the order for an operation, or puts t into the line: t.Ready is closed when its turn has come.
func (o *Order) Enter(t *Turn) bool {
	if o.Idle() && (t.Hold == nil || o.Innermost(t.Hold, t.Shared)) {
		o.begin(t)
		return true
	}
	t.Ready = make(chan struct{})
	o.line = append(o.line, t)
	o.advance()
	return t.granted
}

func (o *Order) begin(t *Turn) {
	o.busy = true
	if t.Hold != nil {
		o.entering, o.entered, o.longest = t, true, max(o.longest, t.Lease)
	}
}

// Leave ends the operation.
func (o *Order) Leave() {
	o.busy, o.entering = false, nil
	o.advance()
}

// Quit takes t out of the line, or ends the operation that it was granted.
func (o *Order) Quit(t *Turn) {
	if t.granted {
		o.Leave()
		return
	}
	o.line = slices.DeleteFunc(o.line, func(x *Turn) bool { return x == t })
}

// advance gives the order to the first in line that can have it: a release always, a re-entry if its hold is the
// innermost. One whose hold has ended is sent away.
func (o *Order) advance() {
	o.line = slices.DeleteFunc(o.line, func(t *Turn) bool {
		ended := t.Hold != nil && t.Hold.Cause != nil
		if !ended {
			if o.busy || t.Hold != nil && !o.Innermost(t.Hold, t.Shared) {
				return false
			}
			o.begin(t)
			t.granted = true
		}
		close(t.Ready)
		return true
	})
}
