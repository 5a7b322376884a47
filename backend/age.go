package backend

import (
	"context"
	"time"
)

// AgeStore knows since when the store has kept all its data. AgeStore is a capability:
// [Capabilities.Age].
//
// The age of a store counts from the first request with an Age after a possible loss of data. A loss
// is possible when the store was emptied, was started (even if it read its data from a file), or
// took over from another server. So the recorded age may be less than the true age, and is never
// more. A store that never had a request with an Age is new: it cannot be distinguished from a store
// that lost its data.
//
// A store may keep a separate age for each Age.Scope; the store is then new in each scope without a
// request.
type AgeStore interface {
	// KnowsAge reports whether AcquireAged heeds an Age. The answer may depend on the server, and
	// may change once the first command has identified the server. KnowsAge does no I/O.
	KnowsAge() bool
	// AcquireAged is [Store.Acquire], refused as Young while the store is younger than r.Age,
	// whichever owner holds the lock. Remaining is then the time for which the store stays too
	// young. An owner of the lock is granted again in any case.
	AcquireAged(ctx context.Context, r AgedRequest) (AgedReply, error)
}

// Age is the age required of a store.
type Age struct {
	// Least is positive.
	Least time.Duration
	// Scope selects a record of the store's age, if the store keeps its age as data that clients
	// can write: each scope has a record of its own, and "" is a scope, too. A store with another
	// source for its age may ignore Scope.
	Scope string
}

// AgedRequest asks for a lock of a store with a minimum age.
type AgedRequest struct {
	AcquireRequest
	Age
}

// AgedReply answers an AgedRequest.
type AgedReply struct {
	AcquireReply
	// Young reports whether the store is younger than Age; the request is then not granted.
	Young bool
}
