package mortise

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
)

// LockInfo is what the store says of a lock.
type LockInfo struct {
	Name string
	// Held is false without a holder; all further fields but Reserved are zero then.
	Held bool
	// Reserved reports whether the lock was just released, and only the client that has waited longest
	// gets it in the next second.
	Reserved bool
	// Owner is the holder in the store, "client:number"; from Redisson, "uuid:thread". If services
	// have entered the lock ([Client.WithDelegations]), Owner is the first of the owners still there.
	Owner string
	// Client is the holder's client, Owner without its number. The default has host and process:
	// "host/pid/random".
	Client string
	// Holds is the owner's hold count.
	Holds int
	// Remaining is the rest of the lease; negative without an end.
	Remaining time.Duration
	// Mine reports whether Client is this client.
	Mine bool
	// Readers is the number of leases that hold a read-write lock for reading. Without a writer, Owner
	// is one of them.
	Readers int
	// Writing reports whether Owner holds a read-write lock for writing.
	Writing bool
}

// Inspect reads the holder of a lock of any kind, for people and tools: the answer may be outdated
// on arrival. Errors are those of Lock; [ErrWrongKind] for the name of a semaphore, a latch or
// other data. Cost: one command, for a read-write lock two; see [RWLocker.Inspect].
func (c *Client) Inspect(ctx context.Context, name string) (LockInfo, error) {
	full := engine.FullName(c.inner(), name)
	info, err := c.inspect(ctx, backend.KindLock, full)
	if errors.Is(err, ErrWrongKind) && c.hasRW() == nil {
		if rw, wrong := c.inspect(ctx, backend.KindWrite, full); wrong == nil {
			return rw, nil
		}
	}
	return info, err
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

// ForceUnlock removes a lock, whatever its owner, and wakes its waiters; it reports whether there
// was a lock. ForceUnlock breaks exclusion: the holder is told at its next renewal only, or at once
// with client-side caching. For operators, when the holder is known to be gone. Errors are those of
// Lock. Cost: one command.
func (c *Client) ForceUnlock(ctx context.Context, name string) (bool, error) {
	return c.inner().ForceUnlock(ctx, backend.KindLock, engine.FullName(c.inner(), name))
}
