package backend

import (
	"context"
	"time"
)

// FairStore has fair locks: waiters for a fair lock stand in a queue in the store, and get the lock
// in FIFO order. FairStore is a capability: [Capabilities.Fair].
//
// The record of a fair lock is the record of the plain lock; the queue stands beside the record.
// SetHolds, Renew, Inspect and ForceRelease are those of [Store], except that ForceRelease also
// notifies the first in the queue. [Store.Acquire] and [Store.Release] ignore the queue.
//
// Acquire grants a free lock to the first in the queue, or to any owner if the queue is empty. If
// Acquire refuses and Wait is set, the owner has a place from then on: the last place, or the place
// from an earlier request. A repeated request never loses or moves a place. If the lock is free and
// another owner is first, Acquire notifies the first owner.
//
// Release and Leave notify the first in the queue, under its own topic (KindFair, the name, and the
// waiting owner), and no other. If no session watches the topic, the topic's owner has [Absence]
// for its next request; until then the next owner is notified too, and so on. A store without
// knowledge of delivery notifies the first, and an owner of another client; once an owner behind
// the first finds the lock free, the owners before have Absence for a request.
//
// An owner without a request in this time loses its place on reaching the front, and so do others of
// its client (the client is the text before an owner's last colon) without a watched topic at the
// time: a dead process costs [Absence] once, and not for each place. An owner whose Wait is over
// loses its place, too; and so does a reachable owner without a request within five times Absence
// after another found the lock free. If no waiter in the queue can be reached, the watchers of the
// lock's topic of KindLock are notified.
type FairStore interface {
	// Acquire takes the lock for an owner that holds nothing and is first, or refuses. A repeated
	// request counts once.
	Acquire(ctx context.Context, r FairRequest) (FairReply, error)
	// Release is [Store].Release, and notifies the first in the queue.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Leave takes an owner out of the queue, and releases the lock if the owner holds the lock:
	// Leave undoes an Acquire of any outcome. If the owner was first, and the lock is free, the
	// next owner is notified. If the owner has no place and holds nothing, Leave changes nothing.
	Leave(ctx context.Context, r LeaveRequest) (LeaveReply, error)
}

// Absence is how long the store keeps the place of an unreachable waiter.
const Absence = time.Second

// Patience is how long the store keeps the place of a reachable waiter that asks nothing.
const Patience = 5 * Absence

// FairRequest asks for a fair lock.
type FairRequest struct {
	AcquireRequest
	// Wait is how long the store keeps a place in the queue, from the end of the holder's lease as
	// of the request; a store may keep the place for longer. Zero asks for no place. Wait is the
	// same in each request of an owner.
	Wait time.Duration
}

// FairReply answers a FairRequest. Remaining is zero if the lock is free and other owners are
// before.
type FairReply struct {
	AcquireReply
	// AskAfter is, where refused, the delay before the next request without an announcement,
	// because the holder may be dead, or the waiters before; negative if never.
	AskAfter time.Duration
	// Joined reports whether the owner got a place by this request. An owner with an earlier place
	// has lost the earlier place, and is now last.
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
