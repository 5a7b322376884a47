package backend

import (
	"context"
	"time"
)

// QueueStore has a queue of the clients with waiters for a plain lock. QueueStore is a capability:
// [Capabilities.Queue]. Callers can leave Enrol and Serve where they can leave Acquire and Release:
// see [Leaver].
//
// A release of a lock with a queue reserves the lock for the first entry: until the session of the
// entry claims the lock, by Enrol, or the reservation ends, the store grants the lock to no other.
// An entry is a number drawn by the engine, never twice for the same name: late requests of an
// earlier entry change nothing.
type QueueStore interface {
	// Enrol is [Store.Acquire] of a waiting owner. A refusal puts the session's entry into the
	// lock's queue, or keeps its place there. The topic is watched, and the watch was confirmed
	// before.
	Enrol(ctx context.Context, r EnrolRequest) (EnrolReply, error)
	// Serve is [Store.Release], Keep being zero, by a session with a waiter: if the owner held the
	// lock, Serve grants the lock to r.Next in the same step, and announces nothing; or serves the
	// queue, where r.Yield says so.
	Serve(ctx context.Context, r ServeRequest) (ServeReply, error)
	// Leave takes an entry of the session out of the queue of a name: EnrolReply.Enrolled,
	// ServeReply.Enrolled. If the lock was reserved for the entry, the next entry is served.
	Leave(ctx context.Context, name string, entry uint64) error
}

// EnrolRequest asks for a lock of KindLock, and a place in its queue.
type EnrolRequest struct {
	AcquireRequest
	Entry uint64
	// Heard reports that the session has called Released since its call of First: a foreign client
	// has had the lock.
	Heard bool
	// Polls, if not zero, is the interval at which the session asks without a message: the session
	// watches nothing, is told nothing, and the lock is reserved for the entry for two intervals.
	Polls time.Duration
}

// EnrolReply answers [QueueStore.Enrol].
type EnrolReply struct {
	AcquireReply
	// Enrolled reports, where refused, that the session hears by a [QueueHandler] when to ask.
	Enrolled bool
	// First reports, where Enrolled, whether the entry is first: as QueueHandler.First, with
	// Remaining.
	First bool
	// Foreign reports, where granted, that a foreign waiter exists: a client without enrolment, of
	// another library.
	Foreign bool
}

// ServeRequest releases a lock of KindLock for the next owner.
type ServeRequest struct {
	Name  string
	Owner string
	// Next is a waiter of this session, with Lease and Fenced as in AcquireRequest.
	Next   string
	Lease  time.Duration
	Fenced bool
	// Yield asks for a release for all, as by Release, if other sessions may have waiters. If none
	// has, a later entry of another is told to the session: QueueHandler.Wanted.
	Yield bool
	// Entry enters the session into the queue, behind the others, if Yield released the lock.
	Entry uint64
}

// ServeReply answers a ServeRequest.
type ServeReply struct {
	// Held reports whether the owner held the lock when the request arrived. After Serve the owner
	// holds nothing.
	Held bool
	// Granted reports whether Next holds the lock, with Token where Fenced, and Foreign as in
	// EnrolReply.
	Granted bool
	Token   int64
	Foreign bool
	// Enrolled reports that the lock was released, and that the session, a watcher of the topic,
	// hears when to ask.
	Enrolled bool
}

// QueueHandler is implemented by the [Handler] of an engine with enrolment. Without entries of its
// session, a QueueHandler is told nothing here.
type QueueHandler interface {
	// Reserved reports that t is reserved for an entry of the session; the session now claims t.
	Reserved(t Topic, entry uint64)
	// First reports that an entry is the first in the queue of t: the session asks after a release
	// without a served entry, and after a time.
	First(t Topic, entry uint64, after time.Duration)
	// Wanted reports that an entry of another session waits, the first since Serve with Yield let
	// this session, with this entry, go on with t: its turn is over.
	Wanted(t Topic, entry uint64)
	// Freed reports a release of t, as Released does, at a time without entries in the queue: an
	// entry now in the queue came later, and its session need not ask.
	Freed(t Topic)
}

// EnrolmentStore has queues of the clients with waiters for semaphores and read-write locks:
// requests for these heed their [Enrolment]. EnrolmentStore is a capability:
// [Capabilities.Enrolments].
//
// A release of permits or of a side notifies, by a [QueueHandler], the first entries with a chance
// of a grant, and no others: as many entries as there are free permits; for a read-write lock, a
// writer or all readers. For at most a second, the store grants the announced permits or side to no
// other session, unless an announced session asked first. Without an announced entry, the release
// is announced to all.
type EnrolmentStore interface {
	// LeaveQueue takes an entry of the session out of the queue of a topic: QueueReply.Enrolled. If
	// the entry was notified before, the next entries are notified.
	LeaveQueue(ctx context.Context, t Topic, entry uint64) error
}

// Enrolment asks a refused request to put an entry of the session into the queue of its topic, or
// to keep its place there, and a granted request to remove the entry. The topic is watched, and the
// watch was confirmed before. The zero value asks for nothing.
type Enrolment struct {
	// Entry is as in EnrolRequest.
	Entry uint64
	// Stays asks a grant to move the entry to the end instead, because the session has more
	// waiters. For permits only.
	Stays bool
	// Least is the smallest number of permits wanted by the session's waiters.
	Least int64
	// Heard is as in EnrolRequest.
	Heard bool
}

// QueueReply answers an Enrolment.
type QueueReply struct {
	// Enrolled reports whether the entry is in the queue; the session then hears when to ask.
	Enrolled bool
	// First reports, where Enrolled, whether the entry is the first in the queue; the session then
	// asks after a release.
	First bool
}
