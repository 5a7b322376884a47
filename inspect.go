package mortise

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// State is what the store says of a lock.
type State struct {
	Name string
	// Held is false where nobody holds it; what follows is then zero.
	Held bool
	// Owner is the holder as the store knows it, "client:number"; from Redisson,
	// "uuid:thread". Where others have entered its lock from elsewhere ([Client.Adopt]), it is the first who came, of
	// those that are there.
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
	// Readers is how many leases hold a read-write lock for reading; see
	// [Client.InspectRW]. Where there is no writer, Owner is one of them.
	Readers int
	// Writing tells that Owner holds a read-write lock for writing.
	Writing bool
}

// Inspect reads who holds a lock. It is for people and tools: what it says may be
// outdated when it arrives. Errors are those of Lock. It costs one command.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	return c.inspect(ctx, lockTopic(name))
}

func (c *Client) inspect(ctx context.Context, t backend.Topic) (State, error) {
	s := State{Name: t.Name}
	rec := new(backend.Record)
	err := c.manage(ctx, "inspect", t.Name, func() (err error) {
		*rec, err = c.session.Inspect(c.base, t)
		return err
	})
	if err != nil || !rec.Held {
		return s, err
	}
	s.Held, s.Owner, s.Client = true, rec.Owner, clientOf(rec.Owner)
	s.Holds, s.Remaining = rec.Holds, rec.Remaining
	s.Mine = s.Client == c.id
	s.Readers, s.Writing = rec.Readers, rec.Kind == backend.KindWrite
	return s, nil
}

// ForceUnlock removes a lock, whoever holds it, and wakes its waiters; it reports
// whether there was one. It breaks exclusion: the holder learns of it at its next
// renewal only, or at once where its client caches. It is for operators, when a holder is known to be gone.
// Errors are those of Lock. It costs one command.
func (c *Client) ForceUnlock(ctx context.Context, name string) (bool, error) {
	return c.forceUnlock(ctx, lockTopic(name))
}

func (c *Client) forceUnlock(ctx context.Context, t backend.Topic) (bool, error) {
	removed := new(bool)
	err := c.manage(ctx, "forceunlock", t.Name, func() (err error) {
		before := make(map[*owner]bool)
		c.mu.Lock()
		if q := c.queues[t]; q != nil {
			before[q.holder] = true
			for reader := range q.readers {
				before[reader] = true
			}
		}
		if t.Kind == backend.KindLock {
			for o := range c.nested[t.Name] {
				before[o] = true
			}
		}
		c.mu.Unlock()
		*removed, err = c.session.ForceRelease(c.base, t)
		if err != nil || !*removed {
			return err
		}
		var fx effects
		now := c.now()
		c.mu.Lock()
		for o := range before {
			if o != nil {
				o.lose(now, &fx, "ForceUnlock removed it")
			}
		}
		if q := c.queues[t]; q != nil {
			q.changes++
			if o := q.holder; o != nil && !before[o] {
				o.ask() // it came before the removal, or after
			}
			for o := range q.readers {
				if !before[o] {
					o.ask()
				}
			}
		}
		c.askNested(t)
		c.mu.Unlock()
		fx.run()
		return nil
	})
	return err == nil && *removed, err
}

// manage runs an operation on a name that is not a lock of ours.
func (c *Client) manage(ctx context.Context, op, name string, f func() error) error {
	fail := func(err error) error { return &Error{Op: op, Name: name, Err: err} }
	if err := c.usable(); err != nil {
		return fail(err)
	}
	if err := checkName(name); err != nil {
		return fail(err)
	}
	if !c.beginUnlessShut() {
		return fail(ErrClosed)
	}
	defer c.end()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := await(c, ctx, f, nil); err != nil {
		return fail(c.explain(err))
	}
	return nil
}
