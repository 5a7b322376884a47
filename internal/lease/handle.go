package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
)

// Handle is a lease as users have it: mortise.Lease is defined as this type. The zero Handle holds nothing.
type Handle struct{ held Holding }

// Holding implements a Handle: a Hold, a lease of several locks, a quorum's lease, or a StandIn.
type Holding interface {
	Name() string
	Context() context.Context
	Token() (token int64, fenced bool)
	Err() error
	Unlock(ctx context.Context) error
}

// Leaver is a Holding whose Unlock a caller may leave: Unlock sends the release even if ctx has ended.
type Leaver interface{ Leaves() }

// NewHandle returns a handle for a Holding that is not a Hold: a Hold contains its handle.
func NewHandle(h Holding) *Handle { return &Handle{h} }

// Holding returns the implementation of l; nil if l is nil or the zero Handle.
func (l *Handle) Holding() Holding {
	if l == nil {
		return nil
	}
	return l.held
}

// Name returns the lock's name.
func (h *Hold) Name() string { return h.Tenure.Key.Name }

// Token returns the fencing token; fenced reports whether the hold has one.
func (h *Hold) Token() (token int64, fenced bool) {
	if !h.Marks.Fenced {
		return 0, false
	}
	return h.Tenure.Fence.Token, true
}

// Err returns nil while the hold is live, and then the cause of its end.
func (h *Hold) Err() error { return h.Tenure.Keeper.Err(h) }

// Left returns what is left of the lease by the holder's clocks; zero or less if it is over.
func (h *Hold) Left() time.Duration {
	t := h.Tenure
	now := t.Keeper.Now()
	t.Keeper.Lock()
	defer t.Keeper.Unlock()
	return t.Deadline.Until(now)
}

// Leaves implements Leaver.
func (h *Hold) Leaves() {}

// Unlock ends the hold and releases it in the store.
func (h *Hold) Unlock(ctx context.Context) error { return h.Tenure.Keeper.Release(ctx, h) }

// Facts are the name, the context and the token of a Holding that is not a Hold.
type Facts struct {
	Of     string
	Ctx    context.Context
	Number int64
	Fenced bool
}

// Name returns the lock's name.
func (f *Facts) Name() string { return f.Of }

// Context returns the lease's context.
func (f *Facts) Context() context.Context { return f.Ctx }

// Token returns the fencing token; fenced reports whether the lease has one.
func (f *Facts) Token() (token int64, fenced bool) { return f.Number, f.Fenced }

// StandIn is a Holding without a client, for fakes, mocks and other implementations of Locker.
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

// Err returns nil while the stand-in is held, and then the reason why it is not.
func (s *StandIn) Err() error {
	// Not fail.Released: it may be the cause of another lease, whose context is the parent of s.Ctx.
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
		return fail.New("unlock", s.Of, lost)
	}
	return err
}
