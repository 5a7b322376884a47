package backend

import (
	"context"
	"time"
)

// HoldsLook bounds EnterReply.AskAfter where Enter is refused because the owner that is entered under
// has more holds than EnterRequest.Holds: those that it took before it was known to be entered under
// may end without a word.
const HoldsLook = time.Second

// DelegationStore has locks that several owners hold, each under the one before it: the reentrant
// lock, entered from elsewhere. It is a capability: [Capabilities.Delegation].
// Subscribe and Unsubscribe then take [KindDelegated], whose record is that of KindLock. The
// obligations are those of [Store] and these:
//
//   - The lock is held as long as one of its owners holds it, and free when the last has gone, at its
//     release or the end of its lease. One's end is not another's.
//   - An owner that others enter under, and one that entered, is released and renewed by
//     the methods here, and not entered again by SetHolds. Renew sets what remains of the owner's own
//     lease.
//   - Release of one of several announces no release of the lock, and that of the last one does. It
//     announces to the watchers of the Topic of KindDelegated with an Owner that this one may be
//     entered under, or has gone: when those that came after it have gone, when its hold count was set,
//     and when it is gone. That its lease, or that of those after it, ran out is not announced.
//   - KindLock and KindFair see a lock that is held, for what is left of the longest lease. Inspect
//     shows one of the owners, the first that came if it is there. ForceRelease removes them all.
type DelegationStore interface {
	// Enter enters under an owner that holds the lock by any of KindLock, KindFair and KindDelegated. It
	// is granted if that owner's hold count is Holds, and if of all owners that hold the lock it is the
	// one that came last; a higher count is refused with AskAfter, at most [HoldsLook]. Each owner has a
	// lease of its own. A refusal tells in Remaining when the owners that came after it will have gone
	// if they are not renewed. Where the owner holds nothing, or less than Holds, Enter answers Absent,
	// likewise for a Drawn that no lease of this name has had. The same request a second time counts
	// once.
	Enter(ctx context.Context, r EnterRequest) (EnterReply, error)
	// Release is that of [Store], for an owner that entered, or is entered under.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew is that of [Store], for such owners.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
}

// EnterRequest asks for a lock that another owner holds.
type EnterRequest struct {
	Name  string
	Owner string
	// Lease is how long the owner's part of the record lives unless renewed.
	Lease time.Duration
	// Under is the owner that is entered under, and Holds its hold count.
	Under string
	Holds int
	// Drawn is a fencing token of that name that the owner will use; zero for none.
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
	// Absent tells that Under holds nothing, or less than Holds, or that Drawn is larger than any token that was
	// drawn: the request is not granted.
	Absent bool
}
