package mortise

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/lockset"
)

// Part is a lock of [LockAll].
type Part struct {
	// Locker takes the lock: a client, a kind, a wrapper. Parts may differ.
	Locker Locker
	// Name is the lock's name.
	Name string
}

// Parts are locks of a Locker, for [LockAll].
func Parts(l Locker, names ...string) []Part {
	parts := make([]Part, len(names))
	for i, n := range names {
		parts[i] = Part{l, n}
	}
	return parts
}

// LockAll takes several locks of this client, all or none, as one lease: see the function
// [LockAll]. With [Parts] the function takes options, other kinds of lock and locks of several
// clients.
func (c *Client) LockAll(ctx context.Context, names ...string) (*Lease, error) {
	return LockAll(ctx, Parts(c, names...))
}

// LockAll takes several locks, all or none, as one lease. It does not deadlock, whatever the order
// of the parts in this and other calls. If a part is held, LockAll waits for the parts in turn, in
// the order of their names, with a place in the queue of each. It keeps its parts for 250 ms while
// it waits for the next, longer after several failed rounds, up to 4 s; then it releases all and
// begins with the held part. LockAll and Redisson's MultiLock exclude each other.
//
// The lease ends as soon as a part is lost; its Unlock then still releases the others. Its context
// carries all parts, so any of them can be entered again with it, and a part that ctx holds
// already, or that is named twice, is entered again. The lease has no fencing token; take fenced
// parts singly. Two clients of a store exclude each other: a name in parts of both is never
// acquired.
//
// Options are those of Lock; WithWait bounds the whole. Errors are those of Lock, and name the
// part. They wrap [ErrUnavailable] also if a part was lost before the others were acquired.
//
// Cost: one command for the locks of a [*Client], [Fenced] and [NonReentrant] locks included, on a
// cluster one for each slot, and as many to release them. Other parts (fair, polling, read-write,
// other Lockers) and re-entries cost a command each. If a part is held, each part costs what Lock
// does, as often as it is taken.
func LockAll(ctx context.Context, parts []Part, opts ...Option) (*Lease, error) {
	set, wait, err := partsOf(ctx, parts, false, opts)
	if err != nil {
		return nil, fail.New("lockall", lockset.Name(set), err)
	}
	return public(lockset.LockAll(ctx, set, wait))
}

// TryLockAll takes several locks, all or none, as one lease, or returns [ErrNotAcquired] for the
// first held part, without waiting for its holder. Parts acquired before are released. All else is
// as in the function [LockAll]; [WithWait] does not apply.
//
// Redisson: tryLock of RedissonMultiLock. Cost: as LockAll of free parts.
func TryLockAll(ctx context.Context, parts []Part, opts ...Option) (*Lease, error) {
	set, _, err := partsOf(ctx, parts, true, opts)
	if err != nil {
		return nil, fail.New("trylockall", lockset.Name(set), err)
	}
	return public(lockset.TryLockAll(ctx, set))
}

// partsOf reads the options, and refuses what can be seen to be wrong before anything is locked.
func partsOf(
	ctx context.Context, parts []Part, try bool, opts []Option,
) (set []lockset.Part, wait time.Duration, err error) {
	for _, p := range parts {
		set = append(set, lockset.Part{Name: p.Name, Of: fmt.Sprintf("%T", p.Locker)})
	}
	if ctx == nil {
		return set, 0, fail.NilContext
	}
	probe, err := with(engine.Request{Name: "any", Try: try}, opts)
	if err != nil {
		return set, 0, fail.Of(err).Err
	}
	if len(parts) == 0 {
		return set, 0, fail.Invalidf("LockAll without parts")
	}
	var rest []Option // but WithWait
	for _, o := range opts {
		if _, waits := o.(waitOption); !waits {
			rest = append(rest, o)
		}
	}
	for i, p := range parts {
		if err := partOf(p, rest, &set[i]); err != nil {
			return set, 0, err
		}
		wait = cmp.Or(wait, set[i].Request.Wait) // the client's default
	}
	return set, cmp.Or(probe.Wait, wait), nil
}

// partOf completes x by p.
func partOf(p Part, opts []Option, x *lockset.Part) error {
	c, kind, own := lockerOf(p.Locker)
	switch {
	case p.Locker == nil, own && c == nil:
		return fail.Invalidf("the Locker of part %q is nil", fail.Shorten(p.Name))
	case own:
		x.Name = engine.FullName(c.inner(), p.Name)
		x.Acquirer, x.Request = c.engine, kind.request(p.Name, false)
		if err := engine.CheckName(x.Name); err != nil {
			return fmt.Errorf("part %q: %w", fail.Shorten(x.Name), err)
		}
		var err error
		if x.Request, err = c.with(x.Request, opts); err != nil { // an option that not every kind of lock has
			return fmt.Errorf("part %q: %w", fail.Shorten(x.Name), fail.Of(err).Err)
		}
		return nil
	}
	x.Other = func(ctx context.Context, try bool, wait time.Duration) (*lease.Handle, error) {
		if try {
			l, err := p.Locker.TryLock(ctx, p.Name, opts...)
			return (*lease.Handle)(l), err
		}
		opts := opts
		if wait > 0 {
			opts = append(opts[:len(opts):len(opts)], WithWait(wait))
		}
		l, err := p.Locker.Lock(ctx, p.Name, opts...)
		return (*lease.Handle)(l), err
	}
	return nil
}

// lockerOf is the client behind a Locker of this package, and the kind of its locks.
func lockerOf(l Locker) (c *Client, kind LockerOption, own bool) {
	switch l := l.(type) {
	case *Client:
		return l, kind, true
	case *kinded:
		if l != nil {
			return l.client, l.kind, true
		}
		return nil, kind, true
	}
	return nil, kind, false
}
