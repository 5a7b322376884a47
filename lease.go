package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

// Lease is the right to a lock until a deadline: the result of Lock. Its methods may be called
// concurrently, and on a nil *Lease, which holds nothing.
type Lease handle

type handle lease.Handle

// held returns the implementation of l; nil for a nil or zero Lease.
func (l *Lease) held() lease.Holding { return (*lease.Handle)(l).Holding() }

// Name returns the lock's name.
func (l *Lease) Name() string {
	h := l.held()
	if h == nil {
		return ""
	}
	return h.Name()
}

// Owner returns the holder in the store, as [LockInfo] and [Error] have it: "client:number". It is empty
// for a lease of several locks or of several stores, which has several, and for one of [NewLease].
func (l *Lease) Owner() string {
	h, is := l.held().(*lease.Hold)
	if !is {
		return ""
	}
	return h.Tenure.Owner
}

// Remaining returns what is left of the lease by the holder's clocks, if it is not renewed any more; zero when it is
// over, and for a lease of several locks or of several stores and one of [NewLease]. Cost: none.
func (l *Lease) Remaining() time.Duration {
	h, is := l.held().(*lease.Hold)
	if !is || h.Err() != nil {
		return 0
	}
	return max(h.Left(), 0)
}

// Context returns the lease's context, a child of the context given to Lock. It ends with the lease;
// context.Cause then wraps [ErrReleased] after Unlock, [ErrLost] when the lock was lost, [ErrClosed]
// when the client was shut down. Run work that must not go on without the lock under this context.
// A Lock with this context enters the lock again (see [Locker]).
//
// The context also ends with its parent, but the lease goes on then: see [Lease.Err].
func (l *Lease) Context() context.Context {
	h := l.held()
	if h == nil {
		return endedContext
	}
	return h.Context()
}

// Err returns nil while the lock is held, and afterwards the reason of the end: [ErrReleased],
// [ErrLost] or [ErrClosed]. Err reads the clock itself, so its answer is right even if a pause of the
// process kept the context from ending in time. It costs no command.
func (l *Lease) Err() error {
	h := l.held()
	if h == nil {
		return fail.NilLease
	}
	return h.Err()
}

// Token returns the fencing token; zero if there is none. Leases of [Fenced] locks have tokens, and so
// have their re-entries. Of two leases of a name the later has the larger token.
// Send the token along with each write, and let the data's store refuse a token smaller than the
// largest so far.
func (l *Lease) Token() int64 {
	h := l.held()
	if h == nil {
		return 0
	}
	token, _ := h.Token()
	return token
}

// Unlock ends the lease, and releases the lock, or one hold of it if the lock was entered again. The
// lease's context ends before the release is sent.
//
// A ctx that ends, even before the call, bounds how long Unlock waits for the store's answer. The
// release is sent all the same, and retried in the background until it is confirmed or the lease has
// run out.
//
// Errors: [ErrReleased] for a second Unlock, [ErrLost] if the lock was lost before: nothing was released
// then.
// [ErrUnavailable], [ErrClosed] or ctx's own error if the release is not confirmed; the lock frees
// itself, at the latest when its lease runs out.
//
// Cost: one command, and one before it to remove a text of leader.Proclaim. None if the lock is handed to the
// next waiter of this client: both leases are renewed ones (neither [WithLease] nor [WithMaxHold]) and
// have no token, this lease has no text of leader.Proclaim, and the store has confirmed this lease within the
// last quarter of a second.
func (l *Lease) Unlock(ctx context.Context) error {
	h := l.held()
	if h == nil {
		return fail.New("unlock", "", fail.NilLease)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	return h.Unlock(ctx)
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(fail.NilLease)
	return ctx
}()

// NewLease makes a lease without a [*Client], for fakes, mocks and other implementations of
// [Locker]. Its Context is a child of ctx, and token its fencing token; zero: none. Unlock ends the lease
// with [ErrReleased] and then calls unlock, which may be nil. To fake a loss, cancel ctx with a cause that
// wraps [ErrLost]: Err then returns this cause.
func NewLease(ctx context.Context, name string, token int64, unlock func(context.Context) error) *Lease {
	s := lease.NewStandIn(ctx, name, unlock)
	s.Number, s.Fenced = token, token != 0
	return (*Lease)(lease.NewHandle(s))
}
