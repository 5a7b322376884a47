package delegation

import (
	"context"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/bridge"
	"github.com/mortise-go/mortise/internal/fail"
	"github.com/mortise-go/mortise/internal/lease"
)

var (
	held     = bridge.Delegations.(func(ctx context.Context, most int) (delegations []lease.Delegation, without int))
	delegate = bridge.Delegate.(func(
		ctx context.Context, c *mortise.Client, most int, delegations []lease.Delegation,
	) (context.Context, error))
)

// ErrEnded: the hold of the delegation ([NewContext]) under which Lock or TryLock was called was unlocked or lost, or
// ran out. Nothing was locked. To compete for the lock as any other call does, use a context without the delegation.
var ErrEnded error

func init() { ErrEnded = fail.DelegationEnded }

// Delegation lets a called service, in another process, enter a lock of its caller: a delegation
// names a hold of the caller. [FromContext] makes delegations from a context;
// [NewContext] puts delegations into a context. A Delegation is plain data: it is
// comparable, and can be sent in any encoding. By itself it proves nothing: the called service must
// know that the delegation comes, unaltered, from a service that has the right to give it (see
// docs/explanation/threat-model.md).
//
// A delegation is valid while its hold is live and the innermost hold of its owner. Once the hold has
// ended, the delegation is never valid again.
type Delegation struct {
	// Name is the lock's name.
	Name string
	// Owner is the holder in the store, as in [mortise.LockInfo.Owner], without control characters.
	Owner string
	// Hold is the number of the owner's hold: the owner's hold count in the store while this hold is
	// the innermost. At least one.
	Hold int
	// Token is the fencing token of the caller's lease; zero without a token. A fenced lease under the
	// delegation has the same token: a larger token would make the caller's own writes stale.
	Token int64
	// Expires is the end of the caller's lease without further renewals, by the caller's clock: UTC,
	// whole milliseconds; zero if it is not known. For services that send delegations and bound their
	// life; Lock ignores Expires, since the store decides.
	Expires time.Time
}

// FromContext returns delegations of the locks that ctx holds: of the live leases whose contexts
// ctx descends from, of any [mortise.Client], innermost first, one for each client and name, at most
// [MaxDelegations]. There are delegations of the reentrant lock in all its kinds (plain, fenced,
// fair, polling, non-reentrant) and of LockAll's parts; not of read-write locks, permits and Quorum.
// A delegation that ctx carries by [NewContext], and under which nothing is locked, is
// included unchanged until it expires, and always if its Expires is zero: so a service without locks of its own can
// pass delegations on. The result is empty if ctx holds nothing. It costs no command. If a re-entry or the Unlock of
// one had an unknown outcome (a lost reply), at most the innermost lease of the lock has a delegation.
//
// The leases stay marked as delegated until they end. A re-entry, by this process or another, is
// then an owner of its own in the store, one at a time; and a release does not hand the lock to the
// next waiter of the process.
func FromContext(ctx context.Context) []Delegation {
	inner, _ := held(ctx, MaxDelegations)
	if len(inner) == 0 {
		return nil
	}
	delegations := make([]Delegation, len(inner))
	for i, x := range inner {
		delegations[i] = Delegation(x)
	}
	return delegations
}

// NewContext returns a context that carries delegations. Lock and TryLock of the client and of
// its Lockers then enter the locks of the delegations, as if the context were the caller's own:
//
//   - Only one call at a time enters under a hold, whatever its process; other calls wait for their
//     turn, and so does the caller's own re-entry. TryLock returns [mortise.ErrNotAcquired] instead.
//   - The result is a lease of this client, with a time of its own: renewed here, and released by its
//     Unlock. The lock is free for other owners when the caller and all entered services have released
//     it. If the caller unlocks, dies or loses its lease, the entered services keep theirs; nor does the
//     end of their leases end the caller's. If the lock itself is lost (its record is removed, the
//     store is emptied), all of them lose it.
//   - If the hold has ended, Lock and TryLock return [ErrEnded], but wait for an inner hold that
//     outlives it, as for any other. For a [mortise.NonReentrant] lock they return [mortise.ErrInvalid].
//
// Names without a delegation are locked as with ctx. Of several delegations of a name the first
// counts. It also counts before a lease on the name that ctx carries already. NewContext does not
// check where the delegations come from: see [Delegation].
//
// A delegation whose token is larger than every token of the name counts as ended.
//
// Errors wrap [mortise.ErrInvalid]: for a nil client, a malformed delegation, more than [MaxDelegations], or a backend
// without delegations. NewContext costs no command; a Lock under a delegation costs one command,
// and its Unlock one.
func NewContext(ctx context.Context, c *mortise.Client, delegations ...Delegation) (context.Context, error) {
	inner := make([]lease.Delegation, len(delegations))
	for i, x := range delegations {
		inner[i] = lease.Delegation(x)
	}
	return delegate(ctx, c, MaxDelegations, inner)
}
