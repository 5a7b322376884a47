package mortise

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
)

// LockInfo is the record of a lock in the store.
type LockInfo struct {
	Name string
	// Held reports whether the lock has a holder; if not, all further fields except Reserved are zero.
	Held bool
	// Reserved reports whether the lock is free and reserved, for a second at most after a release,
	// for the client at the head of its queue.
	Reserved bool
	// Owner is the holder in the store, "client:number"; from Redisson, "uuid:thread". If services
	// have entered the lock ([Client.WithDelegations]), Owner is the first of the owners still there.
	Owner string
	// Client is the holder's client: Owner without its number. A default id has the host and the
	// process: "host/pid/random".
	Client string
	// Holds is the owner's hold count.
	Holds int
	// Remaining is the rest of the lease; negative if the lease has no end.
	Remaining time.Duration
	// Mine reports whether Client is this client.
	Mine bool
	// Readers is the number of leases that hold a read-write lock for reading. Without a writer, Owner
	// is one of them.
	Readers int
	// Writing reports whether Owner holds a read-write lock for writing.
	Writing bool
}

// Inspect reads the record of a lock of any kind. It is for operators and tools: the answer may be
// outdated on arrival. Errors are those of Lock; [ErrWrongKind] for the name of a semaphore, a latch
// or other data. Cost: one command, for a read-write lock two; see [RWLocker.Inspect].
func (c *Client) Inspect(ctx context.Context, name string) (LockInfo, error) {
	full := engine.FullName(c.inner(), name)
	return ofEitherKind(c, func(k backend.Kind) (LockInfo, error) { return c.inspect(ctx, k, full) })
}

// ofEitherKind calls f for a lock, and if the name is of another kind, for a read-write lock.
func ofEitherKind[R any](c *Client, f func(backend.Kind) (R, error)) (R, error) {
	r, err := f(backend.KindLock)
	if errors.Is(err, ErrWrongKind) && c.hasRW() == nil {
		if rw, second := f(backend.KindWrite); !errors.Is(second, ErrWrongKind) {
			return rw, second
		}
	}
	return r, err
}

func (c *Client) inspect(ctx context.Context, family backend.Kind, name string) (LockInfo, error) {
	s := LockInfo{Name: name}
	rec, err := c.inner().Inspect(ctx, family, name)
	if s.Reserved = rec.Reserved; err != nil || !rec.Held {
		return s, err
	}
	s.Held, s.Owner, s.Client = true, rec.Owner, engine.ClientOf(rec.Owner)
	s.Holds, s.Remaining = rec.Holds, rec.Remaining
	s.Mine = s.Client == c.ID()
	s.Readers, s.Writing = rec.Readers, rec.Kind == backend.KindWrite
	return s, nil
}

// ForceUnlock removes a lock of any kind that owner holds, and wakes its waiters; it reports whether
// it removed one. The owner is that of [LockInfo]: the store compares and removes in one step, so the lock
// of another owner, which got it since, stays. An empty owner removes the lock whatever its owner.
//
// Of a read-write lock, ForceUnlock removes the side that owner holds: other readers go on. A lock that
// services have entered ([Client.WithDelegations]) is removed with all of its owners.
//
// ForceUnlock breaks exclusion: the holder learns of the removal at its next renewal only, or at once
// with client-side caching, and waiters of the holder's own client wait until it does. It is for
// operators that know that the holder is gone. Errors are those of Lock; [ErrWrongKind] for the name of a
// semaphore, a latch or other data. Cost: one command; for a read-write lock one more, and another one
// with an owner.
func (c *Client) ForceUnlock(ctx context.Context, name, owner string) (bool, error) {
	full := engine.FullName(c.inner(), name)
	return ofEitherKind(c, func(k backend.Kind) (bool, error) { return c.inner().ForceUnlock(ctx, k, full, owner) })
}
