package backend

import (
	"context"
	"time"
)

// HoldsLook bounds EnterReply.AskAfter if Enter is refused because the outer owner has more holds
// than EnterRequest.Holds: the end of a hold that began before the first Enter may not be announced.
const HoldsLook = time.Second

// DelegationStore lets an owner enter a plain or fair lock under another owner of the lock: a called
// service enters its caller's lock. The owners of a lock then form a chain, in which each owner
// entered under the one before. DelegationStore is a capability: [Capabilities.Delegation].
// Subscribe and Unsubscribe then take [KindDelegated]; its record is the record of KindLock. The
// obligations are those of [Store] and these:
//
//   - The lock is held as long as one of its owners holds it. It is free after the release, or
//     the end of the lease, of the last owner left. The end of an owner does not end the others.
//   - An owner that entered under another, or that another entered under, is released and renewed
//     by the methods here, and never entered again by SetHolds. Renew sets the remaining time of
//     the owner's own lease.
//   - The release of the lock is announced only with the release of the last owner left.
//   - Watchers of the Topic of KindDelegated with an Owner wait to enter under the Owner. They are
//     notified when the owners after it in the chain are gone, when its hold count was set, and
//     when the Owner itself is gone. The end of a lease is not announced.
//   - To KindLock and KindFair the lock is held, for the remaining time of the longest lease.
//     Inspect shows one of the owners: the first in the chain, if present. ForceRelease removes
//     all owners, also with the Owner of one of them.
type DelegationStore interface {
	// Enter enters the lock under the owner r.Under, which holds it by any of KindLock, KindFair
	// and KindDelegated. Enter is granted if r.Under is the last owner in the chain and has r.Holds
	// holds. The new owner has a lease of its own. If other owners come after r.Under, Enter is
	// refused; Remaining is the time until their leases end. If r.Under has more holds, Enter is
	// refused with AskAfter, at most [HoldsLook]. If r.Under holds nothing, or less than r.Holds,
	// or if r.Drawn is larger than every token of the name, Enter answers Absent. A repeated
	// request counts once.
	Enter(ctx context.Context, r EnterRequest) (EnterReply, error)
	// Release is [Store].Release for an owner that entered under another, or that another entered
	// under. It never raises the hold count: a Release that arrives late would make holds that have
	// ended good again for Enter.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew is [Store].Renew for such owners.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
}

// EnterRequest asks for a lock under another owner of the lock.
type EnterRequest struct {
	Name  string
	Owner string
	// Lease is the owner's lease: it ends then unless renewed.
	Lease time.Duration
	// Under is the owner to enter under, and Holds its hold count.
	Under string
	Holds int
	// Drawn is the fencing token of Under that the new owner is to use; zero for none.
	Drawn int64
	// Fenced asks for a new fencing token.
	Fenced bool
	Replication
}

// EnterReply answers an EnterRequest.
type EnterReply struct {
	AcquireReply
	// AskAfter is as in FairReply.
	AskAfter time.Duration
	// Absent reports that the request is not granted because Under holds nothing, or less than
	// Holds, or because Drawn is larger than every token of the name.
	Absent bool
}
