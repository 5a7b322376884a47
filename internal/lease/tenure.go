// Package lease is what a process knows of the records that it holds: tenures, their holds, when they end and when
// they are renewed. It is pure state: no I/O and no store; its caller guards it, but for the methods of Handle.
package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Keeper is what a tenure belongs to.
type Keeper interface {
	// Lock guards all tenures of a client; Unlock carries out what was noted meanwhile.
	Lock()
	Unlock()
	// Err is nil while h is live, and then its cause.
	Err(h *Hold) error
	// Release ends h and releases it in the store.
	Release(ctx context.Context, h *Hold) error
}

// Mode is how tenures of one record go together.
type Mode uint8

const (
	// Exclusive: no other tenure.
	Exclusive Mode = iota
	// Admitting is exclusive, and lets readers enter under it: a writer.
	Admitting
	// Shared goes with others of its kind: a reader.
	Shared
)

// State is how far a tenure is.
type State uint8

const (
	// Live: it has holds.
	Live State = iota
	// Releasing: its last hold was unlocked, and the store is being told.
	Releasing
	// Over: it is not in the client any more.
	Over
)

// Tenure is one owner's time in one record, from grant to release: held once or, by re-entry, several times.
type Tenure struct {
	*Order          // of its operations; that of another tenure where a reader entered under it
	own       Order // what Order points to, unless it is another's
	Keeper    Keeper
	Key       Key
	Owner     string // its id in the store
	Fence     Fence
	TTL       time.Duration // the longest lease that was asked for
	Deadline  clock.Instant // the end of the lease as the store has it, less the margin
	Plan      Plan
	Live      int32 // holds
	State     State
	Mode      Mode
	Stale     bool        // the hold count in the store may be higher than that of the live holds
	Delegated atomic.Bool // a delegation of it was given out, or it entered under one. Set under the lock
	First     Hold        // with which it began: most tenures have no other
}

// Fence is a fencing token, or none.
type Fence struct {
	Token int64
	Drawn bool
}

// Under has the tenure's operations ordered with those of another; nil for an order of its own.
func (t *Tenure) Under(outer *Tenure) {
	if t.Order = &t.own; outer != nil {
		t.Order = outer.Order
	}
}

// Hold is one Lock of a tenure; its Handle is what the user has.
type Hold struct {
	Handle  Handle
	Tenure  *Tenure
	Number  uint64          // numbers the client's holds
	below   *Hold           // the next of the order's, further out
	Outer   *Hold           // the one that it was entered under; it may have ended
	Under   context.Context // what Lock was given
	ctx     atomic.Pointer[Context]
	Since   clock.Instant
	MaxHold time.Duration // from Since; 0: no bound
	Cause   error         // why it ended; nil while it is live
	OnLost  func()        // announces its loss, where that came before its acquisition was announced
	Level   int32         // from one: the tenure's hold count while it is the innermost
	Family  uint8         // what was asked for, in the keeper's terms
	Marks   Marks
	Site    uintptr // the program counter of the call; 0 if that is of no use
}

// Marks are what is true of a hold.
type Marks struct {
	Fenced    bool // it has the tenure's token
	Watchdog  bool // it wants renewal
	Announced bool // the observer knows that it was acquired
	Unlocked  bool
	Long      bool // the log says that it lasts long
	Proclaims bool // it has said something of itself: it may last long
	Texts     bool // the store was asked to keep, or to remove, a text of its owner
}

// Until is the end of MaxHold, if there is one.
func (h *Hold) Until() (end clock.Instant, bounded bool) {
	return h.Since.Add(h.MaxHold), h.MaxHold > 0
}

// Shared tells a reader's hold.
func (h *Hold) Shared() bool { return h.Tenure.Mode == Shared }

// Writer is the innermost hold that is no reader's of those that h is, or was entered under; nil if there is none.
func (h *Hold) Writer() *Hold {
	for ; h != nil; h = h.Outer {
		if !h.Shared() {
			return h
		}
	}
	return nil
}

// Attach makes h a live hold of t, the innermost.
func (t *Tenure) Attach(h *Hold) {
	h.Handle.held = h
	h.Tenure, h.Marks.Fenced = t, t.Fence.Drawn
	h.below, t.top = t.top, h
	t.Live++
	h.Level = t.Live
}

// Detach takes a hold that ends, and why, out of the live ones.
func (t *Tenure) Detach(h *Hold, cause error) {
	h.Cause = cause
	for at := &t.top; *at != nil; at = &(*at).below {
		if *at == h {
			*at, h.below = h.below, nil
			t.Live--
			break
		}
	}
	t.advance()
}

// All are t's live holds, the innermost first. One that it is given may be detached.
func (t *Tenure) All(yield func(*Hold) bool) {
	for h := t.top; h != nil; {
		next := h.below
		if h.Tenure == t && !yield(h) {
			return
		}
		h = next
	}
}

// Readers reports whether readers that entered under t live.
func (t *Tenure) Readers() bool {
	for h := t.top; h != nil; h = h.below {
		if h.Shared() {
			return true
		}
	}
	return false
}

// Delegate has t's holds keep their levels from now on: a delegation of one that has ended then fits no other.
func (t *Tenure) Delegate() {
	level := t.Live
	for h := range t.All {
		h.Level = level
		level--
	}
	t.Delegated.Store(true)
}

// Count is what the hold count in the store is to be: how many live, or once it was delegated the level of the
// innermost.
func (t *Tenure) Count() int {
	if !t.Delegated.Load() {
		return int(t.Live)
	}
	for h := range t.All {
		return int(h.Level)
	}
	return 0
}

// Asked reports whether a lease that runs out now does so because Lock was asked for no more.
func (t *Tenure) Asked(now clock.Instant) bool {
	for h := range t.All {
		if end, bounded := h.Until(); h.Marks.Watchdog && !(bounded && end.Reached(now)) {
			return false
		}
	}
	return true
}
