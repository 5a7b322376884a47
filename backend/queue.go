package backend

import (
	"context"
	"time"
)

// QueueStore has a queue for each plain lock, with an entry for each session that has waiters for the
// lock. QueueStore is a capability: [Capabilities.Queue]. Callers can leave Enrol and Serve if they
// can leave Acquire and Release: see [Leaver].
//
// The release of a lock with a queue serves the queue, in one of two ways: [Capabilities.Grants].
//
// A store that grants writes the owner of the first entry into the record, and notifies the session of
// the entry by [QueueHandler].Granted: the message is the grant. The lease is short at first, so that
// an owner whose session does not hear the message keeps the lock from others only briefly.
//
// A store that reserves keeps the lock for the first entry, and notifies the session by
// [QueueHandler].Reserved. The store grants the lock to no other session until the reservation ends,
// or the session has claimed the lock by Enrol.
//
// An entry is a number drawn by the engine, never twice in a session, so late requests of an earlier
// entry change nothing. Two sessions may draw the same number: a store tells entries apart by session
// and number.
type QueueStore interface {
	// Enrol is [Store.Acquire] for a waiting owner. A refusal puts the session's entry into the
	// lock's queue, or keeps its place there. The session watches the topic, and has reported
	// Handler.Watching.
	Enrol(ctx context.Context, r EnrolRequest) (EnrolReply, error)
	// Serve releases the lock, as [Store.Release] with Keep zero, and grants it to r.Next, a waiter
	// of the same session, in the same step, without an announcement. With r.Yield it may serve the
	// queue instead.
	Serve(ctx context.Context, r ServeRequest) (ServeReply, error)
	// Leave takes an entry that Enrol or Serve has put into the queue out of it. If the lock was
	// reserved for the entry, or granted to its owner, the next entry is served.
	Leave(ctx context.Context, r LeaveEntryRequest) error
}

// LeaveEntryRequest takes an entry out of the queue of a lock of KindLock.
type LeaveEntryRequest struct {
	Name  string
	Entry uint64
	// Owner is the owner that the session last asked for with the entry. The session neither holds the
	// lock as this owner nor waits any more.
	Owner string
}

// EnrolRequest asks for a lock of KindLock, and for a place in its queue. If it is refused, the owner
// may be granted the lock later: Owner, Lease and Fenced are kept in the entry. A repeated request of
// a waiting owner has the same Owner. If the owner has been granted the lock meanwhile, the request is
// granted, and the lease then lasts for Lease at least.
type EnrolRequest struct {
	AcquireRequest
	Entry uint64
	// Instead, if not empty, is the owner that the session last asked for with the entry, and asks for
	// no more. Owner takes over the entry's place, or the lock if Instead was granted it.
	Instead string
	// Heard reports that the session has called Handler.Released since it called
	// QueueHandler.First: a foreign client has had the lock meanwhile.
	Heard bool
	// Told has QueueHandler.First called whenever the entry becomes the first: EnrolReply.Untold is
	// zero. It is the same in all requests of an owner.
	Told bool
	// Polls, if not zero, is the interval at which the session asks without a notification. Such a
	// session need not watch the topic; the lock is then kept for its entry for two intervals at
	// most.
	Polls time.Duration
}

// EnrolReply answers [QueueStore.Enrol].
type EnrolReply struct {
	AcquireReply
	// Enrolled reports, if refused, that the entry is in the queue: the session is notified by a
	// [QueueHandler] when to ask.
	Enrolled bool
	// First reports, if Enrolled, that the entry is the first in the queue. It has the meaning of
	// QueueHandler.First, with Remaining as the time.
	First bool
	// Untold, if positive, says that the entry is new, and for how long the store need not call
	// QueueHandler.First for it: see [Untold].
	Untold time.Duration
	// Foreign reports, if granted, that a foreign client waits: a client of another library, which
	// does not enrol.
	Foreign bool
}

// ServeRequest releases a lock of KindLock, and grants it to a waiter of the same session.
type ServeRequest struct {
	Name  string
	Owner string
	// Next is the waiting owner, with Lease and Fenced as in AcquireRequest.
	Next   string
	Lease  time.Duration
	Fenced bool
	// Yield gives other sessions their turn: if another session may have waiters, the lock is
	// released as by Release, and not granted to Next. If no session has, Next is granted the lock,
	// and the session is notified when another enrols: QueueHandler.Wanted.
	Yield bool
	// Entry is the session's entry, which goes to the end of the queue if Yield released the lock, for
	// the owner Next.
	Entry uint64
	// Instead and Told are as in EnrolRequest: Next replaces Instead.
	Instead string
	Told    bool
}

// ServeReply answers a ServeRequest.
type ServeReply struct {
	// Held reports whether the owner held the lock when the request arrived. After Serve the owner
	// holds nothing.
	Held bool
	// Granted reports whether Next holds the lock; Token is set if Fenced, and Foreign is as in
	// EnrolReply.
	Granted bool
	Token   int64
	Foreign bool
	// Enrolled reports that the lock was released, and that the session's entry is in the queue: the
	// session is notified when to ask.
	Enrolled bool
	// Untold is as in EnrolReply.
	Untold time.Duration
}

// QueueHandler may be implemented by a [Handler]; the engine's handler implements it. The methods
// except Freed are called only for entries of the session.
type QueueHandler interface {
	// Granted reports that t was granted to the owner of an entry.
	Granted(t Topic, g Grant)
	// Reserved reports that t is reserved for an entry: the engine now claims t.
	Reserved(t Topic, entry uint64)
	// First reports that an entry is the first in the queue of t. The engine asks after a release
	// that served no entry, and after the given time at the latest. See also [Untold].
	First(t Topic, entry uint64, after time.Duration)
	// Wanted reports that another session has enrolled since Serve, with Yield and this entry,
	// granted t to this session: the session's turn is over.
	Wanted(t Topic, entry uint64)
	// Freed reports a release of t, as Released does, when no entry was in the queue. If the session
	// has an entry now, the entry came after the release, and the engine need not ask at once.
	Freed(t Topic)
}

// FirstLease is the longest lease of a grant by a message: for so long the lock is kept from others if the
// owner's session does not hear the message. The owner's engine renews the lease soon after the grant.
const FirstLease = time.Second

// Untold is how old an entry is when its session must be told that it has become the first, if the
// entry before it was granted the lock for FirstLease. For a younger entry the engine asks when it is a
// little older than that, in case that owner is dead: where waits are shorter, a handoff is one message.
const Untold = 750 * time.Millisecond

// Grant is a grant by a message: see [QueueStore].
type Grant struct {
	Owner string
	// Token is the fencing token, if the entry's request was Fenced.
	Token int64
	// The lock is the owner's for Lease, from From at the earliest. From is a time of this process's
	// monotonic clock that was read before the store made the grant.
	From  time.Time
	Lease time.Duration
}

// EnrolmentStore has a queue for each semaphore and read-write lock, with an entry for each session
// that has waiters: requests for these heed their [Enrolment]. EnrolmentStore is a capability:
// [Capabilities.Enrolments].
//
// A release of permits, or of a side, serves the first entries that can be: for a semaphore, as many
// entries as there are free permits; for a read-write lock, one writer or all readers. If an entry has
// an owner ([Enrolment.Grants]), the store grants the owner what it asks for, and notifies the session
// by [QueueHandler].Granted, as [QueueStore] does for a store that grants. The session of an entry
// without one, or of an entry whose owner cannot be granted, is notified by [QueueHandler].Reserved.
// The store reserves these permits, or this side, for the session until it has asked, for a second at
// most. If no entry is served, the release is announced to all watchers.
type EnrolmentStore interface {
	// LeaveQueue takes an entry out of the queue of a topic. Owner is the owner that the entry has, if
	// any; the session neither holds anything as this owner nor waits any more. What the owner was
	// granted is released. If the entry was notified before, the next entries are served.
	LeaveQueue(ctx context.Context, t Topic, entry uint64, owner string) error
}

// Enrolment is the session's entry in the queue of a request's topic. A refusal puts the entry into
// the queue, or keeps its place there; a grant removes it. The session watches the topic, and has
// reported Handler.Watching. The zero Enrolment has no entry.
type Enrolment struct {
	// Entry is as in EnrolRequest.
	Entry uint64
	// Grants has the store grant the request's owner by a release, for the request's lease or the first
	// lease. It needs [Capabilities.Grants]. The entry then is the owner's: a repeated request of the
	// waiting owner has the same owner, and if the owner has been granted meanwhile, its lease then
	// lasts for the request's lease at least. Stays is not heeded.
	Grants bool
	// Instead, if not empty, is the owner that the session last asked for with Grants, and asks for no
	// more. If it is in the queue, the request's owner takes over its place.
	Instead string
	// Stays lets a grant move the entry to the end of the queue instead, because the session has
	// more waiters. It is for permits only.
	Stays bool
	// Least is the smallest number of permits that a waiter of the session wants.
	Least int64
	// Heard is as in EnrolRequest.
	Heard bool
}

// QueueReply answers an Enrolment.
type QueueReply struct {
	// Enrolled reports whether the entry is in the queue: the session is notified when to ask.
	Enrolled bool
	// First reports, if Enrolled, whether the entry is the first in the queue: the engine then asks
	// after a release that served no entry.
	First bool
}
