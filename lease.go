package mortise

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Lease is a lock that is held. Its methods may be called concurrently, and on a
// nil *Lease, which is one that holds nothing.
type Lease lease.Handle

// held is what stands behind l; nil if nothing does.
func (l *Lease) held() lease.Holding { return (*lease.Handle)(l).Holding() }

// Name is the lock's name.
func (l *Lease) Name() string {
	h := l.held()
	if h == nil {
		return ""
	}
	return h.Name()
}

// Context is a child of the context that Lock was given. It ends when the lease
// does; context.Cause then wraps [ErrReleased] after Unlock, [ErrLost] when the
// lock was lost, [ErrClosed] when the client was shut down. Work that must not go on without the
// lock runs under it. Passed to Lock, it enters the lock again (see [Locker]).
//
// It also ends with its parent, which does not end the lease: see [Lease.Err].
func (l *Lease) Context() context.Context {
	h := l.held()
	if h == nil {
		return endedContext
	}
	return h.Context()
}

// Err is nil while the lock is held, and then says why it is not: [ErrReleased],
// [ErrLost] or [ErrClosed]. It compares the clocks itself, so it is right even when a
// pause of the process kept Context from ending in time. It costs no command.
func (l *Lease) Err() error {
	h := l.held()
	if h == nil {
		return errNilLease
	}
	return h.Err()
}

// Token is the fencing token, and whether there is one: for leases taken with
// []LockerOption{Fenced()}, and re-entries of those. Of two leases of one name the later has the
// larger token. Send it along with each write, and let the store that is written
// to refuse a token smaller than one it has seen.
func (l *Lease) Token() (token int64, fenced bool) {
	h := l.held()
	if h == nil {
		return 0, false
	}
	return h.Token()
}

// Proclaim has the store keep a text of the lock's owner, an address for one, for processes that do
// not hold the lock: [Client.Proclamations] gives it to them, and tells them of changes. The text is
// 1 to 256 bytes of UTF-8 without control characters. The next Proclaim replaces it, an empty text
// removes it, and it is gone when the lease ends. The store keeps it for an hour: proclaim it again
// within that time if the lease may last longer.
//
// Errors: [ErrNotHeld] if the lease is over, [ErrUnavailable], [ErrClosed], ctx's own; [ErrInvalid]
// for another text, for a lease of [LockAll], [Quorum], [Client.RW] or a delegation, and with a
// backend that keeps no texts. A lease made by [NewLease] ignores it.
//
// Cost: one command.
func (l *Lease) Proclaim(ctx context.Context, text string) error {
	h := l.held()
	if h == nil {
		return fail.New("proclaim", "", errNilLease)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	switch h := h.(type) {
	case *lease.Hold:
		return engine.Proclaim(ctx, h, text)
	case *lease.StandIn:
		return nil
	}
	return fail.New("proclaim", h.Name(), fail.Invalidf("a lease of several locks has no owner that could proclaim"))
}

// Unlock ends the lease and releases the lock, or one hold of it. The lease's
// context ends before the release is sent.
//
// A ctx that is cancelled, even beforehand, bounds how long Unlock waits for the
// store's answer; the release is sent all the same, and retried in the background
// until it is confirmed or the lease has run out.
//
// Errors: [ErrNotHeld] if the lock was not held by this lease: together with
// [ErrReleased] on a second Unlock, with [ErrLost] if it was lost before. Then
// no lock was touched. [ErrUnavailable], [ErrClosed] or ctx's own error if the release
// is not confirmed; the lock frees itself, at the latest when its lease runs out.
//
// Cost: one command; none where the lock is passed on to a waiter of this client, both leases are renewed ones
// (neither [WithLease] nor [WithMaxHold]), without a token, and the store has confirmed the lease within a
// quarter of a second.
func (l *Lease) Unlock(ctx context.Context) error {
	h := l.held()
	if h == nil {
		return fail.New("unlock", "", errNilLease)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return h.Unlock(ctx)
}

var errNilLease = fmt.Errorf("%w: the lease is nil; check the error that Lock returned", ErrNotHeld)

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNilLease)
	return ctx
}()

// LeaseOption adds to a lease made by [NewLease].
type LeaseOption func(*lease.StandIn)

// LeaseToken gives the lease a fencing token.
func LeaseToken(token int64) LeaseOption {
	return func(s *lease.StandIn) { s.Number, s.Fenced = token, true }
}

// NewLease makes a lease that no [*Client] stands behind, for fakes, mocks and
// other implementations of [Locker]. Its Context is a child of ctx; Unlock ends it
// with [ErrReleased] and then calls unlock, which may be nil. To fake a loss, cancel
// ctx with a cause that wraps [ErrLost]: Err then returns that cause.
func NewLease(ctx context.Context, name string, unlock func(context.Context) error, opts ...LeaseOption) *Lease {
	s := lease.NewStandIn(ctx, name, unlock)
	for _, o := range opts {
		o(s)
	}
	return (*Lease)(lease.NewHandle(s))
}
