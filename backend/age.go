package backend

import (
	"context"
	"time"
)

// AgeStore knows since when its store has kept all its data. It is a capability:
// [Capabilities.Age].
//
// The age of a store is the time since it was first asked for it after it had lost
// data, or may have: after it was emptied, started (though it read a file), or took over from
// another. It may be taken for younger than it is, and never for older. A store that was
// never asked is new: that cannot be told from one that lost all.
//
// A store may keep its age for each Age.Scope by itself; it is then new in a scope in which it was never asked.
type AgeStore interface {
	// KnowsAge reports whether an Age is heeded. The answer may depend on the server, and change when the
	// first command has found out which server there is. It does no I/O.
	KnowsAge() bool
	// AcquireAged is [Store.Acquire], refused as Young while the store is younger than r.Age, whichever owner
	// holds the lock. Remaining is then for how long it still is. An owner that holds the lock is granted
	// again all the same.
	AcquireAged(ctx context.Context, r AgedRequest) (AgedReply, error)
}

// Age is how old a store must be.
type Age struct {
	// Least is positive.
	Least time.Duration
	// Scope names whose record of the store's age is meant, where a store keeps it as data that clients can write:
	// each scope has a record of its own, and "" is one, too. A store that knows its age otherwise need not heed it.
	Scope string
}

// AgedRequest asks for a lock of a store that is old enough.
type AgedRequest struct {
	AcquireRequest
	Age
}

// AgedReply answers an AgedRequest.
type AgedReply struct {
	AcquireReply
	// Young tells that the store is younger than Age: the request is not granted.
	Young bool
}
