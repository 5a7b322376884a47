package backend

import (
	"context"
	"time"
)

// QueueStore is a store whose plain locks go from one waiter to the next. Its
// HandOver can be left where its Release can: see [Leaver].
type QueueStore interface {
	// HandOver is Release, Keep being zero, and grants the lock to r.Successor in the
	// same step, if the owner held it. That is not announced.
	HandOver(ctx context.Context, r HandOverRequest) (HandOverReply, error)
	// StepBack takes back that the session waits for t: AcquireReply.Waits, HandOverReply.Waits.
	// If it was told of a release, and t is free, another is.
	StepBack(ctx context.Context, t Topic) error
}

// HandOverRequest releases a lock of KindLock for a successor.
type HandOverRequest struct {
	Name      string
	Owner     string
	Successor string
	// Lease and Fenced are the successor's, as in AcquireRequest.
	Lease  time.Duration
	Fenced bool
	// Yield asks that it be released for all, as by Release, if others than this session
	// may be waiting.
	Yield bool
	// Waits tells, for Yield, that the session has owners that wait: it then waits as after
	// a refused AcquireRequest with Waits.
	Waits bool
}

// HandOverReply answers a HandOverRequest.
type HandOverReply struct {
	// Held tells whether the owner held the lock when the request arrived. It does not any more.
	Held bool
	// Granted tells that the successor holds it, with Token where Fenced.
	Granted bool
	Token   int64
	// Waits tells that it was released, and that the session will be told when it is its turn.
	Waits bool
}

// TurnHandler may be implemented by a [Handler]. The others are told Released for every release.
type TurnHandler interface {
	// Passed tells that t, of KindLock, was released, and that another session is to ask for it.
	Passed(t Topic, next Turn)
}

// Turn is what a session is told of a release that another one is to ask after.
type Turn struct {
	// Second tells that this one is to ask, if the other stays silent.
	Second bool
	// Waiting is how many sessions were told, about.
	Waiting int
}
