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
	// Held is false where no owner holds it; what follows, but Reserved, is then zero.
	Held bool
	// Reserved tells that it was released just now, and that only the client that has waited longest gets it in the
	// next second.
	Reserved bool
	// Owner is the holder as the store knows it, "client:number"; from Redisson,
	// "uuid:thread". Where others have entered its lock from elsewhere ([Client.WithDelegations]), it is the first
	// that came, of those that are there.
	Owner string
	// Client is the holder's client, Owner without its number. By default it names
	// host and process: "host/pid/random".
	Client string
	// Holds is how many times the owner holds it.
	Holds int
	// Remaining is what is left of the lease; negative if it has no end.
	Remaining time.Duration
	// Mine tells that Client is this client.
	Mine bool
	// Readers is how many leases hold a read-write lock for reading. Where there is no writer, Owner is one of
	// them.
	Readers int
	// Writing tells that Owner holds a read-write lock for writing.
	Writing bool
}

// Inspect reads which owner holds a lock of any kind. It is for people and tools: what it says may be outdated when
// it arrives. Errors are those of Lock; [ErrWrongKind] where the name is that of a semaphore, a latch or other data.
// It costs one command, for a read-write lock two; see [RWLocker.Inspect].
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

// ForceUnlock removes a lock, whichever owner holds it, and wakes its waiters; it reports
// whether there was one. It breaks exclusion: the holder learns of it at its next
// renewal only, or at once where its client caches. It is for operators, when a holder is known to be gone.
// Errors are those of Lock. It costs one command.
func (c *Client) ForceUnlock(ctx context.Context, name string) (bool, error) {
	return c.inner().ForceUnlock(ctx, backend.KindLock, engine.FullName(c.inner(), name))
}
