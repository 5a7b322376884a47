package lease

import (
	"slices"
	"time"
)

// Order runs the re-entries and releases of a tenure, and of readers that entered under the tenure, one at a time,
// because their requests set absolute hold counts. The other operations wait in line, oldest first. A re-entry also
// waits until its hold is the innermost.
type Order struct {
	busy     bool // an operation is running
	entered  bool // a re-entry was begun, successful or not
	longest  time.Duration
	entering *Turn   // the running operation if it is a re-entry, otherwise nil
	line     []*Turn // the waiting operations, oldest first
	top      *Hold   // the innermost live hold; Hold.below leads to the others
}

// Turn is an operation in an Order: a re-entry from a hold, or a release.
type Turn struct {
	Hold    *Hold         // the hold that the re-entry comes from; nil: a release
	Shared  bool          // the re-entry takes the read lock
	Lease   time.Duration // the lease that the re-entry asks for
	Ready   chan struct{} // closed when the operation may run, or when Hold has ended
	granted bool
}

// Granted reports whether the operation may run, or has run.
func (t *Turn) Granted() bool { return t.granted }

// Idle reports whether no operation is running or in line.
func (o *Order) Idle() bool { return !o.busy && !o.Waited() }

// Waited reports whether an operation is in line.
func (o *Order) Waited() bool { return len(o.line) > 0 }

// Entered reports whether a re-entry was begun, successful or not.
func (o *Order) Entered() bool { return o.entered }

// Longest returns the longest lease that a re-entry asked for: the record in the store may last as long.
func (o *Order) Longest() time.Duration { return o.longest }

// Innermost reports whether a call that comes from h may enter: each live hold is h, or a hold that h was entered
// under. A call that enters to read (shared) ignores readers' holds. One pass suffices: a hold is newer than the hold
// that it was entered under, and both lists are in this order.
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
// innermost, or another re-entry is running, or in line for the same hold. A running release does not count: it ends
// as soon as the store answers.
func (o *Order) Taken(t *Turn) bool {
	if t.granted {
		return false
	}
	for _, x := range o.line {
		if x != t && !(t.Shared && x.Shared) && x.Hold == t.Hold {
			return true
		}
	}
	return !o.Innermost(t.Hold, t.Shared) || o.entering != nil && !(t.Shared && o.entering.Shared)
}

// TryBegin begins a release if the order is idle, and reports whether it did. Leave ends the release.
func (o *Order) TryBegin() bool {
	if !o.Idle() {
		return false
	}
	o.busy = true
	return true
}

// BeginAlone begins an operation beside which no other may run, ahead of those in line, unless one is running. Leave
// ends it.
func (o *Order) BeginAlone() bool {
	if o.busy {
		return false
	}
	o.busy = true
	return true
}

// Enter begins t if t can run now, and otherwise puts t in line. It reports whether t has begun; if not, t.Ready is
// closed when t begins, or when t.Hold has ended.
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

// Leave ends the running operation, and begins the next.
func (o *Order) Leave() {
	o.busy, o.entering = false, nil
	o.advance()
}

// Quit takes t out of the line, or ends t if t has begun.
func (o *Order) Quit(t *Turn) {
	if t.granted {
		o.Leave()
		return
	}
	o.line = slices.DeleteFunc(o.line, func(x *Turn) bool { return x == t })
}

// advance begins the first operation in line that can run: a release, or a re-entry whose hold is the innermost. A
// re-entry whose hold has ended leaves the line without having begun.
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
