package backend

import (
	"context"
	"time"
)

// HoldsLook bounds EnterReply.AskAfter if Enter is refused because the owner to enter under has
// more holds than EnterRequest.Holds: holds from before the first entry under the owner may end
// without an announcement.
const HoldsLook = time.Second

// DelegationStore has locks with several owners, each under the owner before: the reentrant lock,
// entered from elsewhere. DelegationStore is a capability: [Capabilities.Delegation]. Subscribe and
// Unsubscribe then take [KindDelegated]; its record is the record of KindLock. The obligations are
// those of [Store] and these:
//
//   - The lock is held as long as any of its owners holds the lock, and free after the release,
//     or the end of the lease, of the last owner. The end of an owner does not end the others.
//   - Both an owner with others under it, and an owner entered under another, are released and
//     renewed by the methods here, and not entered again by SetHolds. Renew sets the remaining
//     time of the owner's own lease.
//   - Release of an owner other than the last announces no release of the lock; the release of
//     the last owner does. An announcement to the watchers of the Topic of KindDelegated with
//     an Owner means: the Owner may be entered under, or is gone. The store sends the
//     announcement when the later owners are gone, when the Owner's hold count was set, and
//     when the Owner is gone. The expiry of its lease, or of the leases of later owners, is not
//     announced.
//   - KindLock and KindFair see a held lock, for the remaining time of the longest lease.
//     Inspect shows one of the owners: the first, if still present. ForceRelease removes all
//     owners.
type DelegationStore interface {
	// Enter enters under an owner with the lock by any of KindLock, KindFair and KindDelegated.
	// Enter is granted if the owner's hold count is Holds, and if the owner came last among all
	// owners of the lock; a higher count is refused with AskAfter, at most [HoldsLook]. Each owner
	// has a lease of its own. In a refusal, Remaining is the time until the later owners are gone
	// unless renewed. If the owner holds nothing, or less than Holds, Enter answers Absent,
	// likewise for a Drawn larger than every token of the name. A repeated request counts once.
	Enter(ctx context.Context, r EnterRequest) (EnterReply, error)
	// Release is [Store].Release, for an owner entered under another, or with others under it.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew is [Store].Renew, for such owners.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
}

// EnterRequest asks for a lock under another owner of the lock.
type EnterRequest struct {
	Name  string
	Owner string
	// Lease is the lifetime of the owner's part of the record unless renewed.
	Lease time.Duration
	// Under is the owner to enter under, and Holds its hold count.
	Under string
	Holds int
	// Drawn is a fencing token of the name for use by the owner; zero for none.
	Drawn int64
	// Fenced asks for a token of the owner's own.
	Fenced bool
	Replication
}

// EnterReply answers an EnterRequest.
type EnterReply struct {
	AcquireReply
	// AskAfter is as in FairReply.
	AskAfter time.Duration
	// Absent reports that Under holds nothing, or less than Holds, or that Drawn is larger than any
	// drawn token: the request is not granted.
	Absent bool
}
