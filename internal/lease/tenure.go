// Package lease keeps the state of a process's leases: tenures, their holds, when they end and when they are renewed.
// It is pure state: no I/O and no store. The caller guards it with the lock of the Keeper; only the methods of a
// Handle's Holding may be called without.
package lease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/internal/callsite"
	"github.com/mortise-go/mortise/internal/clock"
)

// Keeper guards the tenures of a client, and releases their holds in the store.
type Keeper interface {
	// Lock guards all tenures of a client. Unlock also carries out the effects noted under the lock.
	Lock()
	Unlock()
	// Now returns the time by the client's clock.
	Now() clock.Instant
	// Err returns nil while h is live, and then the cause of its end. It reads the clocks: h may end by that.
	Err(h *Hold) error
	// Release ends h and releases it in the store.
	Release(ctx context.Context, h *Hold) error
}

// Mode says which other tenures a record may have beside a tenure.
type Mode uint8

const (
	// Exclusive: no other tenure.
	Exclusive Mode = iota
	// Admitting is a writer: no other tenure, except for readers that enter under it.
	Admitting
	// Shared is a reader: beside any number of readers.
	Shared
)

// State is the stage of a tenure.
type State uint8

const (
	// Live: the tenure has holds.
	Live State = iota
	// Releasing: the last hold was unlocked, and the release has not ended.
	Releasing
	// Over: the tenure has ended.
	Over
)

// Tenure is one owner's time in one record, from grant to release: held once or, by re-entry, several times.
type Tenure struct {
	*Order          // a reader that entered under another tenure has the Order of that tenure
	own       Order // used unless the Order is another tenure's
	Keeper    Keeper
	Key       Key
	Owner     string // the owner's id in the store
	Fence     Fence
	TTL       time.Duration // the longest lease that was asked for
	Deadline  clock.Instant // the end of the lease in the store, less clock.Margin
	Plan      Plan
	Live      int32 // the number of live holds
	State     State
	Mode      Mode
	Stale     bool        // the hold count in the store may be too high
	Delegated atomic.Bool // a delegation was given out, or the tenure entered under one. Set under the lock
	First     Hold        // the first hold; most tenures have no other
}

// Fence is a fencing token, if one was drawn.
type Fence struct {
	Token int64
	Drawn bool
}

// Under gives the tenure the Order of outer, or its own if outer is nil.
func (t *Tenure) Under(outer *Tenure) {
	if t.Order = &t.own; outer != nil {
		t.Order = outer.Order
	}
}

// Hold is one Lock of a tenure.
type Hold struct {
	Handle  Handle // the user's lease points to it
	Tenure  *Tenure
	Number  uint64          // unique among the client's holds
	below   *Hold           // the next live hold of the Order, further out
	Outer   *Hold           // the hold that it was entered under; it may have ended
	Under   context.Context // the context given to Lock
	ctx     atomic.Pointer[Context]
	Since   clock.Instant
	MaxHold time.Duration // from Since; 0: no bound
	Cause   error         // why the hold ended; nil while it is live
	OnLost  func()        // announces the loss, if the hold was lost before its acquisition was announced
	Level   int32         // the tenure's hold count while the hold is the innermost; from 1
	Family  uint8         // the kind that was asked for, in the engine's terms
	Marks   Marks
	Site    callsite.Site // of the call to Lock, for the log; 0 if unknown or not needed
}

// Marks are flags of a hold.
type Marks struct {
	Fenced    bool // the hold has the tenure's token
	Watchdog  bool // the watchdog renews the hold
	Announced bool // the observer was told of the acquisition
	Unlocked  bool // Unlock was called
	Asked     bool // the hold ended without Unlock, as WithLease or WithMaxHold asked
	Long      bool // the log has warned that the hold lasts long
	Proclaims bool // the owner has proclaimed a text: the log does not warn if the hold lasts long
	Texts     bool // the store was asked to keep or to remove a text of the owner
}

// Until returns the time at which MaxHold ends the hold; bounded is false if there is no MaxHold.
func (h *Hold) Until() (end clock.Instant, bounded bool) {
	return h.Since.Add(h.MaxHold), h.MaxHold > 0
}

// Shared reports whether the hold is a reader's.
func (h *Hold) Shared() bool { return h.Tenure.Mode == Shared }

// Writer returns the innermost hold, of h and the holds that h was entered under, that is not a reader's; nil if there
// is none. The hold may have ended.
func (h *Hold) Writer() *Hold {
	for ; h != nil; h = h.Outer {
		if !h.Shared() {
			return h
		}
	}
	return nil
}

// Attach makes h a live hold of t, and the innermost one.
func (t *Tenure) Attach(h *Hold) {
	h.Handle.held = h
	h.Tenure, h.Marks.Fenced = t, t.Fence.Drawn
	h.below, t.top = t.top, h
	t.Live++
	h.Level = t.Live
}

// Detach ends h with a cause, and begins the operation that can run now.
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

// All yields t's live holds, the innermost first. The loop may detach the hold that it was given.
func (t *Tenure) All(yield func(*Hold) bool) {
	for h := t.top; h != nil; {
		next := h.below
		if h.Tenure == t && !yield(h) {
			return
		}
		h = next
	}
}

// Readers reports whether readers that entered under t are live.
func (t *Tenure) Readers() bool {
	for h := t.top; h != nil; h = h.below {
		if h.Shared() {
			return true
		}
	}
	return false
}

// Delegate marks t as delegated, and fixes the levels of its live holds. From now on no hold takes the level of one
// that has ended, so a delegation of an ended hold fits no other hold.
func (t *Tenure) Delegate() {
	level := t.Live
	for h := range t.All {
		h.Level = level
		level--
	}
	t.Delegated.Store(true)
}

// Count returns the hold count that the store is to have: the number of live holds, or once t is delegated the level
// of the innermost hold.
func (t *Tenure) Count() int {
	if !t.Delegated.Load() {
		return int(t.Live)
	}
	for h := range t.All {
		return int(h.Level)
	}
	return 0
}

// Asked reports whether a lease that runs out now ends as Lock asked (WithLease, WithMaxHold): the watchdog was to
// renew no live hold past now.
func (t *Tenure) Asked(now clock.Instant) bool {
	for h := range t.All {
		if end, bounded := h.Until(); h.Marks.Watchdog && !(bounded && end.Reached(now)) {
			return false
		}
	}
	return true
}
