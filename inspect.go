package mortise

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/engine"
)

// LockInfo is what a store knows about a name. What the store does not know is the zero value.
type LockInfo struct {
	Name string
	// Kind is "lock", "read-write", "semaphore" or "count"; empty if nothing has the name. The record of
	// a plain, fenced, fair or delegated lock is a "lock". A "semaphore" has permits in use; a
	// "count" is a latch, a counting semaphore or a semaphore whose permits are all free: the store does not
	// tell these apart.
	Kind string
	// Held reports whether the lock has a holder, or the semaphore permits in use. If not, the fields
	// below are zero, except Reserved, Waiters and Queue, and Holds of a count.
	Held bool
	// Reserved reports whether the lock is free and reserved, for a second at most after a release,
	// for the client at the head of its queue.
	Reserved bool
	// Owner is the holder in the store, "client:number"; from Redisson, "uuid:thread". If services
	// have entered the lock (package delegation), Owner is the first of the owners still there. Of
	// a semaphore it is the id of the permit whose lease ends last.
	Owner string
	// Client is the holder's client: Owner without its number. A default id has the host and the
	// process: "host/pid/random". Host and PID are those; empty and zero for an id of another form.
	Client string
	Host   string
	PID    int
	// Holds is the owner's hold count; of a semaphore, the number of permits in use; of a count, the
	// count.
	Holds int
	// Token is the last fencing token of the name: the holder's, if it holds the lock by [Fenced].
	Token int64
	// Since is when the owner got the lock, by the store's clock; zero if the store does not know. Redis
	// knows it of plain, fenced and fair locks once a lease was renewed: 50 ms after a grant to a client that
	// waited, a third of the watchdog timeout after another one, and never with [WithLease] and without a
	// wait.
	Since time.Time
	// Remaining is the rest of the lease; negative if the lease has no end.
	Remaining time.Duration
	// Mine reports whether Client is this client.
	Mine bool
	// Readers is the number of leases that hold a read-write lock for reading. Without a writer, Owner
	// is one of them.
	Readers int
	// Writing reports whether Owner holds a read-write lock for writing.
	Writing bool
	// Waiters is the number of entries in the store's queue: one for each client with waiters; for a
	// fair lock, one for each waiter. Waiters of Redisson count for fair locks only.
	Waiters int
	// Queue has the first waiters, at most 100, in the order in which they are served.
	Queue []LockWaiter
}

// LockWaiter is a waiter in a store's queue. What the store does not know is the zero value.
type LockWaiter struct {
	// Owner is the owner that waits, as in [LockInfo]. Client, Host and PID are those of the owner.
	Owner  string
	Client string
	Host   string
	PID    int
	// Tag is a name for the client's session with the store, where the owner is not known. It is the same
	// in all queues.
	Tag string
	// Since is when the client took its place in the queue, by the store's clock.
	Since time.Time
}

// inspected is how many waiters Inspect reads.
const inspected = 100

// Inspect reads what the store knows about a lock, a semaphore or a latch. It is for operators and
// tools: the answer may be outdated on arrival. Errors are those of Lock; [ErrWrongKind] for the name of
// other data. Cost: one command. What a user of Redis may not read is unknown: see
// docs/reference/deployments.md.
func (c *Client) Inspect(ctx context.Context, name string) (LockInfo, error) {
	full := engine.FullName(c.inner(), name)
	if e := c.inner(); e != nil && e.Capabilities().Operator != nil {
		d, err := e.Describe(ctx, backend.DescribeRequest{Name: full, Entries: inspected})
		if err != nil {
			return LockInfo{Name: full}, err
		}
		return c.described(full, d), nil
	}
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

// inspect reads the record of a lock of one kind.
func (c *Client) inspect(ctx context.Context, family backend.Kind, name string) (LockInfo, error) {
	rec, err := c.inner().Inspect(ctx, family, name)
	if err != nil {
		return LockInfo{Name: name}, err
	}
	return c.described(name, backend.Description{Record: rec, Exists: rec.Held || rec.Reserved}), nil
}

// described is the LockInfo of a name.
func (c *Client) described(name string, d backend.Description) LockInfo {
	s := LockInfo{Name: name, Held: d.Held, Reserved: d.Reserved, Holds: d.Holds, Waiters: d.Waiting}
	if d.Exists {
		s.Kind = recordKinds[d.Kind]
	}
	for _, w := range d.Queue {
		q := LockWaiter{Owner: w.Owner, Tag: w.Session, Since: w.Since}
		q.Client, q.Host, q.PID = clientIn(w.Kind, w.Owner)
		s.Queue = append(s.Queue, q)
	}
	if !d.Held {
		return s
	}
	s.Owner, s.Remaining, s.Token, s.Since = d.Owner, d.Remaining, d.Token, d.Since
	s.Client, s.Host, s.PID = clientIn(d.Kind, d.Owner)
	s.Mine = s.Client == c.ID()
	s.Readers, s.Writing = d.Readers, d.Kind == backend.KindWrite
	return s
}

// recordKinds are the values of [LockInfo].Kind.
var recordKinds = map[backend.Kind]string{
	backend.KindLock: "lock", backend.KindRead: "read-write", backend.KindWrite: "read-write",
	backend.KindSemaphore: "semaphore", backend.KindCountingSemaphore: "count",
}

// clientIn returns the client of an owner, and the host and the process that a default id has. The owner of permits is
// their ids, joined.
func clientIn(k backend.Kind, owner string) (client, host string, pid int) {
	if client = engine.ClientOf(owner); k == backend.KindSemaphore {
		first, _, _ := strings.Cut(owner, ",")
		client = engine.PermitClient(first)
	}
	host, pid = engine.ProcessOf(client)
	return client, host, pid
}

// Locks lists the locks that are held, or reserved, and whose names begin with prefix; of semaphores those
// with permits in use. An empty prefix lists all; a client's own prefix ([WithPrefix]) comes before it, as
// before a name. A [LockInfo] is as from [Client.Inspect], without the Queue. Latches and free semaphores
// have no holder, and are not listed.
//
//	for info, err := range locks.Locks(ctx, "orders:") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(info.Name, info.Kind, info.Owner)
//	}
//
// It is for operators and tools. The list is read page by page while the loop runs: a lock that is held
// from the beginning to the end is listed, in any order, perhaps twice; others may be. The memory needed is
// that of a page, whatever the number of locks. After an error, which is listed last, begin again: errors
// are those of Inspect, and [ErrInvalid] if the backend cannot list.
//
// Cost on Redis: SCAN twice over all keys of each server, a command for each 1,000 keys, and a command for
// each hash, and each semaphore in use, whose name has the prefix. A hash of other data is left out: each
// field of a lock's is an owner with a count. The Redis user needs SCAN: see docs/reference/deployments.md.
// Elsewhere a page is one request for some hundred locks.
func (c *Client) Locks(ctx context.Context, prefix string) iter.Seq2[LockInfo, error] {
	return func(yield func(LockInfo, error) bool) {
		e := c.inner()
		r := backend.ListRequest{Prefix: prefix}
		if e != nil {
			r.Prefix = e.Config.Prefix + prefix
		}
		for {
			page, err := e.List(ctx, r)
			if err != nil {
				yield(LockInfo{}, err)
				return
			}
			for _, x := range page.Locks {
				if !yield(c.described(x.Name, x.Description), nil) {
					return
				}
			}
			if r.Cursor = page.Next; r.Cursor == "" {
				return
			}
		}
	}
}

// ForceUnlock removes a lock of any kind that owner holds, and wakes its waiters; it reports whether
// it removed one. The owner is that of [LockInfo]: the store compares and removes in one step, so the lock
// of another owner, which got it since, stays. An empty owner removes the lock whatever its owner.
//
// Of a read-write lock, ForceUnlock removes the side that owner holds: other readers go on. A lock that
// services have entered (package delegation) is removed with all of its owners.
//
// ForceUnlock breaks exclusion: the holder learns of the removal at its next renewal only, or at once
// with client-side caching, and waiters of the holder's own client wait until it does. It is for
// operators that know that the holder is gone. Errors are those of Lock; [ErrWrongKind] for the name of a
// semaphore, a latch or other data. Cost: one command; for a read-write lock one more, and another one
// with an owner. On Redis a read-write lock needs a permission of its own: see
// docs/reference/deployments.md.
func (c *Client) ForceUnlock(ctx context.Context, name, owner string) (bool, error) {
	full := engine.FullName(c.inner(), name)
	return ofEitherKind(c, func(k backend.Kind) (bool, error) { return c.inner().ForceUnlock(ctx, k, full, owner) })
}
