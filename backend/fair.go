package backend

import (
	"context"
	"time"
)

// FairStore has fair locks: waiters for one stand in a queue in the store
// and get it in the order in which they asked. It is a capability:
// [Capabilities.Fair].
//
// The record of a fair lock is that of the plain lock; the queue stands beside it. SetHolds, Renew, Inspect
// and ForceRelease are those of [Store], except that ForceRelease also tells the first in
// the queue. [Store.Acquire] and [Store.Release] do not look at the queue.
//
// Acquire grants a lock that is free to the first in the queue, or to any owner
// if the queue is empty. Where it refuses and Wait is set, the owner has a place
// from then on: the last, or the one it had. Asking again never loses or moves a place.
// Where the lock is free and another is first, it tells that one.
//
// Release and Leave tell the first in the queue, under its own topic
// (KindFair, the name, and the waiting owner), and no other. Where no session watches that
// topic, its owner has [Absence] to ask; until then the next is told too, and so on.
// A store that cannot tell whether a message reached a waiter tells the first and one of another client;
// once an owner that is not the first finds the lock free, those before it have Absence to ask.
// An owner that has not asked by then loses its place when it comes to the front, and so do others
// of its client (what stands before an owner's last colon) whose topics no session
// watches at that time: a dead process costs [Absence] once, and not for each place.
// So does one whose Wait is over; and one that can be reached, and yet has not asked five times
// Absence after another found the lock free. Where no waiter in the queue can be
// reached, the watchers of the lock's topic of KindLock are told.
type FairStore interface {
	// Acquire takes the lock for an owner that holds nothing and is first, or refuses. It counts once.
	Acquire(ctx context.Context, r FairRequest) (FairReply, error)
	// Release is that of [Store], and tells the first in the queue.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Leave takes an owner out of the queue, and releases the lock if it holds it:
	// what undoes an Acquire, whatever it came to. If that was the first, and
	// the lock is free, the next is told. Where it has no place and holds nothing it
	// changes nothing.
	Leave(ctx context.Context, r LeaveRequest) (LeaveReply, error)
}

// Absence is how long the place of a waiter that cannot be reached is kept for it.
const Absence = time.Second

// FairRequest asks for a fair lock.
type FairRequest struct {
	AcquireRequest
	// Wait is for how long a place in the queue is kept, from the end of the lease that the holder has when the owner
	// asks; a store may keep it for longer. Zero asks for no place. It is the same each time that an owner asks.
	Wait time.Duration
}

// FairReply answers a FairRequest. Remaining is zero where no owner holds the lock and others are before.
type FairReply struct {
	AcquireReply
	// AskAfter is, where refused, when to ask again though nothing was announced: because the holder may be dead, or
	// the waiters before; negative if never.
	AskAfter time.Duration
	// Joined reports whether the owner got a place by this request. An owner that had one before had lost it: its place
	// is the last now.
	Joined bool
}

// LeaveRequest gives up a place in a queue.
type LeaveRequest struct {
	Name  string
	Owner string
	// Wait is that of the Acquire which got the place; zero where it asked for none.
	Wait time.Duration
}

// LeaveReply answers a LeaveRequest.
type LeaveReply struct {
	Queued bool // the owner had a place
	Held   bool // the owner held the lock
}
