package backend

import (
	"context"
	"time"
)

// FairStore has fair locks: the waiters for a fair lock have places in a queue in the store, and get
// the lock in FIFO order. FairStore is a capability: [Capabilities.Fair].
//
// The record of a fair lock is the record of the plain lock; the queue is kept beside the record.
// SetHolds, Renew, Inspect and ForceRelease are those of [Store], except that ForceRelease also
// notifies the first in the queue. [Store.Acquire] and [Store.Release] ignore the queue.
//
// Acquire grants a free lock to the first in the queue, or to any owner if the queue is empty. If
// Acquire refuses and Wait is set, the owner gets the last place, or keeps the place that it has. A
// repeated request never loses or moves a place. If the lock is free and another owner is first,
// Acquire notifies the first.
//
// Release and Leave notify the first in the queue, and no other, under its own topic: KindFair, the
// name, and the waiting owner. If no session watches this topic, the owner is unreachable: the store
// notifies the next owner too, and so on. A store that cannot tell whether a topic is watched
// notifies the first, and an owner of another client. If no owner in the queue is reachable, the
// watchers of the lock's topic of KindLock are notified.
//
// An owner at the front of the queue loses its place
//   - if it is unreachable, and sends no request within [Absence] after the store tried to notify
//     it. The other unreachable owners of its client lose their places then, too, on reaching the
//     front: a dead process delays the queue by Absence once, and not for each place. The client is
//     the text before an owner's last colon;
//   - if it is reachable, and sends no request within [Patience] after another owner found the
//     lock free;
//   - if its Wait is over.
type FairStore interface {
	// Acquire takes the lock for an owner that holds nothing and is first, or refuses. A repeated
	// request counts once.
	Acquire(ctx context.Context, r FairRequest) (FairReply, error)
	// Release is [Store].Release, and notifies the first in the queue.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Leave takes an owner out of the queue, and releases the lock if the owner holds it: Leave
	// undoes an Acquire of any outcome. If the owner was first, and the lock is free, the next
	// owner is notified. If the owner has no place and holds nothing, Leave changes nothing.
	Leave(ctx context.Context, r LeaveRequest) (LeaveReply, error)
}

// Absence is how long the store keeps the place of an unreachable owner at the front of the queue.
const Absence = time.Second

// Patience is how long the store keeps the place of a reachable owner at the front of the queue of a
// free lock, if the owner sends no request.
const Patience = 5 * Absence

// FairRequest asks for a fair lock.
type FairRequest struct {
	AcquireRequest
	// Wait is how long the store keeps the owner's place, counted from the end of the holder's lease
	// as it is at the request; a store may keep the place for longer. Zero asks for no place. Wait
	// is the same in each request of an owner.
	Wait time.Duration
}

// FairReply answers a FairRequest. Remaining is zero if the lock is free, and refused because other
// owners are before in the queue.
type FairReply struct {
	AcquireReply
	// AskAfter is, if refused, when to ask again without a notification, because the holder, or the
	// owners before in the queue, may be dead; negative if never.
	AskAfter time.Duration
	// Joined reports whether the owner got the last place by this request. If it had a place
	// before, the store had dropped that place.
	Joined bool
}

// LeaveRequest gives up a place in a queue.
type LeaveRequest struct {
	Name  string
	Owner string
	// Wait is the Wait of the Acquire for the place; zero if Acquire asked for none.
	Wait time.Duration
}

// LeaveReply answers a LeaveRequest.
type LeaveReply struct {
	Queued bool // the owner had a place
	Held   bool // the owner held the lock
}
