package mortise

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mortise-go/mortise/internal/engine"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
	"github.com/mortise-go/mortise/internal/lockset"
)

// maxParts bounds the parts of a call. Their contexts are nested, and a lock is looked up in all of them: measured in
// memory, 1,000 parts take 0.1 s, 2,000 parts 0.7 s, 4,000 parts 9 s.
const maxParts = 1000

// Parts are locks of any Lockers, for one lease: fair and read-write locks, and locks of several clients.
// [Client.LockAll] is shorter for locks of one client. The zero Parts has none: see [Parts.And].
//
//	lease, err := mortise.Parts{}.And(orders, "42").And(stock.RW().Read, "x", "y").Lock(ctx)
type Parts struct{ all []part }

// part is one of the locks of Parts.
type part struct {
	locker Locker
	name   string
}

// And returns the parts and further ones, one for each name. The Locker is a [*Client], a Locker of
// [Client.With], or another implementation; parts may have different ones. And changes no other Parts.
func (p Parts) And(l Locker, names ...string) Parts {
	all := slices.Clip(p.all)
	for _, n := range names {
		all = append(all, part{l, n})
	}
	return Parts{all}
}

// LockAll takes several locks of this client, all or none, as one lease. It does not deadlock, whatever the
// order of the names in this and other calls. If another owner holds a part, LockAll takes the parts one
// after the other, in the order of their names, and waits for each as Lock does. While it waits for
// the next part, it keeps the parts that it has, for 250 ms, and after several failed rounds longer,
// up to 4 s, but at most for three quarters of [WithLease] or [WithMaxHold]. Then it releases all of
// them; every second round begins with the part that it waited for, and so does the round after a
// store failed. LockAll and Redisson's MultiLock exclude each other.
//
// The lease ends as soon as a part is lost; its Unlock still releases the other parts. Its context
// carries all parts: a Lock with it re-enters any of them. A part that ctx holds already, or that is
// named twice, is entered again. The lease has no fencing token; take fenced locks one by one.
//
// Options are those of Lock, for each part; WithWait bounds the waiting for all parts together. Errors are
// those of Lock, and name the part. They wrap [ErrUnavailable] also if a part was lost before the others
// were acquired. If the names are busy for longer at a time than three quarters of WithLease or WithMaxHold,
// LockAll may wait for long: take a longer lease. More than 1,000 parts are [ErrInvalid], because the
// time of a call grows with the square of their number: a tenth of a second for 1,000 parts in memory,
// nine seconds for 4,000.
//
// Cost: one command, [Fenced] and [NonReentrant] locks included, on a cluster one for each slot, and as
// many to release the locks. With [Fair], [Polling] or [WithReplicas], and for parts that are entered again,
// a command for each part. If another owner holds a part, each part costs what Lock does, each time that it
// is taken.
func (c *Client) LockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return Parts{}.And(c, names...).Lock(ctx, opts...)
}

// TryLockAll takes several locks of this client, all or none, as one lease. If another owner holds a part,
// it releases the parts that it has, and returns [ErrNotAcquired] for that part without waiting. All else is
// as in [Client.LockAll]; [WithWait] does not apply.
//
// Redisson: tryLock of RedissonMultiLock. Cost: as LockAll of free parts.
func (c *Client) TryLockAll(ctx context.Context, names []string, opts ...Option) (*Lease, error) {
	return Parts{}.And(c, names...).TryLock(ctx, opts...)
}

// Lock takes all parts, or none, as [Client.LockAll] does. Two clients of a store exclude each other: if
// parts of two clients have the same name, Lock never succeeds.
//
// Cost: one command for the plain, fenced and non-reentrant locks of each client, on a cluster one for each
// slot. Other parts (fair, polling, read-write, other implementations of [Locker]) cost a command each.
func (p Parts) Lock(ctx context.Context, opts ...Option) (*Lease, error) {
	set, wait, err := partsOf(ctx, p.all, false, opts)
	if err != nil {
		return nil, fail.New("lockall", lockset.Name(set), err)
	}
	return public(lockset.LockAll(ctx, set, wait))
}

// TryLock takes all parts, or none without waiting, as [Client.TryLockAll] does.
func (p Parts) TryLock(ctx context.Context, opts ...Option) (*Lease, error) {
	set, _, err := partsOf(ctx, p.all, true, opts)
	if err != nil {
		return nil, fail.New("trylockall", lockset.Name(set), err)
	}
	return public(lockset.TryLockAll(ctx, set))
}

// partsOf applies the options to the parts. It returns an error for wrong arguments, before anything is locked.
func partsOf(
	ctx context.Context, parts []part, try bool, opts []Option,
) (set []lockset.Part, wait time.Duration, err error) {
	if len(parts) > maxParts {
		return nil, 0, fail.Invalidf("%d parts; at most %d: take one lock for all of it, or some locks at a time",
			len(parts), maxParts)
	}
	for _, p := range parts {
		set = append(set, lockset.Part{Name: p.name, Of: fmt.Sprintf("%T", p.locker)})
	}
	if ctx == nil {
		return set, 0, fail.NilContext
	}
	probe, err := with(engine.Request{Name: "any", Try: try}, opts)
	if err != nil {
		return set, 0, fail.Of(err).Err
	}
	if len(parts) == 0 {
		return set, 0, fail.Invalidf("no names, or a zero Parts: name a lock at least")
	}
	var rest []Option // without WithWait
	for _, o := range opts {
		if o.is != isWait {
			rest = append(rest, o)
		}
	}
	for i, p := range parts {
		set[i].Request = probe
		if err := partOf(p, rest, &set[i]); err != nil {
			return set, 0, err
		}
		wait = cmp.Or(wait, set[i].Request.Wait) // the client's default
	}
	return set, cmp.Or(probe.Wait, wait), nil
}

// requester is the Locker of package quorum, which applies options as a client does.
type requester interface {
	Request(q engine.Request, opts []Option) (engine.Request, error)
}

// partOf fills in x for the part p.
func partOf(p part, opts []Option, x *lockset.Part) error {
	var request func(engine.Request, []Option) (engine.Request, error)
	var client *Client
	switch l := p.locker.(type) {
	case *Client:
		request, client = l.with, l
	case *locker:
		request, client = l.request, l.client
	case requester:
		request = l.Request
	}
	_, several := p.locker.(requester)
	own := request != nil && !several
	if p.locker == nil || own && client == nil {
		return fail.Invalidf("the Locker of part %q is nil", fail.Shorten(p.name))
	}
	if request != nil {
		r, err := request(engine.Request{Name: p.name}, opts)
		if x.Name = r.Name; err != nil { // of the name, or of an option that does not apply to this kind of lock
			return fmt.Errorf("part %q: %w", fail.Shorten(x.Name), fail.Of(err).Err)
		}
		x.Request = r
	}
	if own {
		x.Acquirer = client.engine
		return nil
	}
	tries := slices.DeleteFunc(slices.Clone(opts), func(o Option) bool { return o.is == isMaxWaiters })
	x.Other = func(ctx context.Context, try bool, wait time.Duration) (*lease.Handle, error) {
		if try {
			l, err := p.locker.TryLock(ctx, p.name, tries...)
			return (*lease.Handle)(l), err
		}
		opts := opts
		if wait > 0 {
			opts = append(opts[:len(opts):len(opts)], WithWait(wait))
		}
		l, err := p.locker.Lock(ctx, p.name, opts...)
		return (*lease.Handle)(l), err
	}
	return nil
}
