package backend

import (
	"context"
	"time"
)

// QueueStore has a queue of the clients that wait for a plain lock. It is a capability:
// [Capabilities.Queue]. Enrol and Serve can be left where Acquire and Release can: see [Leaver].
//
// A release of a lock that has a queue reserves the lock for the first entry: until the session of the entry claims
// it, by Enrol, or the reservation ends, it is granted to no other. An entry is a number that the engine draws, and
// never draws again for the same name: what is late of an earlier one changes nothing.
type QueueStore interface {
	// Enrol is [Store.Acquire] of an owner that waits. A refusal puts the session's entry into the lock's queue, or
	// keeps its place there. The topic is watched, and was confirmed to be.
	Enrol(ctx context.Context, r EnrolRequest) (EnrolReply, error)
	// Serve is [Store.Release], Keep being zero, by a session that has a waiter: it grants the lock to r.Next in the
	// same step, if the owner held it, and announces nothing; or serves the queue, where r.Yield asks for that.
	Serve(ctx context.Context, r ServeRequest) (ServeReply, error)
	// Leave takes an entry of the session out of the queue of a name: EnrolReply.Enrolled, ServeReply.Enrolled.
	// If the lock was reserved for it, the next is served.
	Leave(ctx context.Context, name string, entry uint64) error
}

// EnrolRequest asks for a lock of KindLock, and a place in its queue.
type EnrolRequest struct {
	AcquireRequest
	Entry uint64
	// Heard tells that the session has told Released since it told First: a foreign client has had the lock.
	Heard bool
	// Polls, if it is not zero, is how soon the session asks again by itself: it watches nothing, is told
	// nothing, and the lock is reserved for it for two such times.
	Polls time.Duration
}

// EnrolReply answers [QueueStore.Enrol].
type EnrolReply struct {
	AcquireReply
	// Enrolled tells, where refused, that the session will be told when it is to ask, by a [QueueHandler].
	Enrolled bool
	// First tells, where Enrolled, that the entry is the first: as QueueHandler.First, with Remaining.
	First bool
	// Foreign tells, where granted, that a client waits that does not enrol: one of another library.
	Foreign bool
}

// ServeRequest releases a lock of KindLock for the next owner.
type ServeRequest struct {
	Name  string
	Owner string
	// Next is a waiter of this session, Lease and Fenced what it asks for, as in AcquireRequest.
	Next   string
	Lease  time.Duration
	Fenced bool
	// Yield asks that it be released for all, as by Release, if others than this session
	// may be waiting.
	Yield bool
	// Entry enters the session into the queue, behind the others, where Yield released it.
	Entry uint64
}

// ServeReply answers a ServeRequest.
type ServeReply struct {
	// Held tells whether the owner held the lock when the request arrived. It does not any more.
	Held bool
	// Granted tells that Next holds it, with Token where Fenced, and Foreign as in EnrolReply.
	Granted bool
	Token   int64
	Foreign bool
	// Enrolled tells that it was released, and that the session, which watches the topic, will be told when it is to
	// ask.
	Enrolled bool
}

// QueueHandler is implemented by the [Handler] of an engine whose calls enrol. Without entries of its
// session it is told nothing here.
type QueueHandler interface {
	// Reserved tells that t is reserved for an entry of the session: it is to claim it now.
	Reserved(t Topic, entry uint64)
	// First tells that an entry is the first in the queue of t: the session is to ask when it hears of a release,
	// which has served no entry, and after a time.
	First(t Topic, entry uint64, after time.Duration)
	// Freed tells that t was released, as Released does, while no entry was in its queue: one that is there now came
	// later, and its session need not ask.
	Freed(t Topic)
}

// EnrolmentStore has queues of the clients that wait for semaphores and read-write locks: requests for these heed
// their [Enrolment]. It is a capability: [Capabilities.Enrolments].
//
// What sets permits or a side free tells the first entries that can be served, and no others, by a [QueueHandler]: of
// permits as many as there are permits for, of a read-write lock one writer or all readers. For a second at the most
// what they were told of is granted to no other session, unless it asked first. It is announced to all
// where no entry was told.
type EnrolmentStore interface {
	// LeaveQueue takes an entry of the session out of the queue of a topic: QueueReply.Enrolled.
	// If it had been told, the next are.
	LeaveQueue(ctx context.Context, t Topic, entry uint64) error
}

// Enrolment asks that a request which is refused put an entry of the session into the queue of its topic, or keep its
// place there, and that one which is granted remove it. The topic is watched, and was confirmed to be. The zero value
// asks for nothing.
type Enrolment struct {
	// Entry is as in EnrolRequest.
	Entry uint64
	// Stays asks that a grant put the entry to the end instead: the session has more waiters. Of permits only.
	Stays bool
	// Least is how many permits the session's waiters want at the least.
	Least int64
}

// QueueReply answers an Enrolment.
type QueueReply struct {
	// Enrolled tells that the entry is in the queue: the session will be told when it is to ask.
	Enrolled bool
	// First tells, where Enrolled, that the entry is the first that waits: the session is to ask when it
	// hears of a release.
	First bool
}
