package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/mortise-go/mortise/internal/fail"
)

// Handle is what a user has of a lease: package mortise's Lease is this type. The zero Handle holds nothing.
type Handle struct{ held Holding }

// Holding is what stands behind a handle: a hold, several, or a stand-in.
type Holding interface {
	Name() string
	Context() context.Context
	Token() (token int64, fenced bool)
	Err() error
	Unlock(ctx context.Context) error
}

// Leaver is a Holding that its caller may leave: Unlock sends the release though the context has ended.
type Leaver interface{ Leaves() }

// NewHandle is a handle on what is not a Hold.
func NewHandle(h Holding) *Handle { return &Handle{h} }

// Holding is what stands behind l; nil if nothing does.
func (l *Handle) Holding() Holding {
	if l == nil {
		return nil
	}
	return l.held
}

// Name is the lock's name.
func (h *Hold) Name() string { return h.Tenure.Key.Name }

// Token is the fencing token, if there is one.
func (h *Hold) Token() (token int64, fenced bool) {
	if !h.Marks.Fenced {
		return 0, false
	}
	return h.Tenure.Fence.Token, true
}

// Err is nil while the hold is live, and then its cause.
func (h *Hold) Err() error { return h.Tenure.Keeper.Err(h) }

// Leaves marks a Leaver.
func (h *Hold) Leaves() {}

// Unlock ends the hold.
func (h *Hold) Unlock(ctx context.Context) error { return h.Tenure.Keeper.Release(ctx, h) }

// Facts are what a lease that is no hold of a client's says of itself.
type Facts struct {
	Of     string
	Ctx    context.Context
	Number int64
	Fenced bool
}

// Name is the lock's name.
func (f *Facts) Name() string { return f.Of }

// Context is the lease's context.
func (f *Facts) Context() context.Context { return f.Ctx }

// Token is the fencing token, if there is one.
func (f *Facts) Token() (token int64, fenced bool) { return f.Number, f.Fenced }

// StandIn is behind a lease that no client stands behind: for fakes, mocks and other Lockers.
type StandIn struct {
	Facts
	cancel  context.CancelCauseFunc
	release func(context.Context) error
	done    atomic.Bool // Unlock was called
}

// NewStandIn makes a stand-in whose context is a child of ctx; release may be nil.
func NewStandIn(ctx context.Context, name string, release func(context.Context) error) *StandIn {
	if ctx == nil {
		ctx = context.Background()
	}
	child, cancel := context.WithCancelCause(ctx)
	return &StandIn{Facts: Facts{Of: name, Ctx: child}, cancel: cancel, release: release}
}

// Err is nil while the stand-in is held, and then why it is not.
func (s *StandIn) Err() error {
	// Not Released: that may be another lease's, whose context this one was made under.
	if cause := context.Cause(s.Ctx); errors.Is(cause, fail.Lost) || errors.Is(cause, fail.Closed) {
		return cause
	}
	if s.done.Load() {
		return fail.Released
	}
	return nil
}

// Unlock ends the stand-in's context and calls its release.
func (s *StandIn) Unlock(ctx context.Context) error {
	lost := s.Err()
	if s.done.Swap(true) {
		return fail.New("unlock", s.Of, fail.Twice)
	}
	s.cancel(fail.Released)
	var err error
	if s.release != nil {
		err = s.release(ctx)
	}
	if lost != nil {
		return fail.New("unlock", s.Of, fmt.Errorf("%w: %w", fail.NotHeld, lost))
	}
	return err
}
