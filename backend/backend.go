// Package backend is the port between mortise and a store: the operations that a store must have, in
// the terms of locks. The engine of mortise decides when to wait, to retry and to renew. A backend
// keeps the record of each lock, and carries out each request on the record in one atomic step.
//
// Users do not call this package: they pass a [Backend] to mortise.New. An implementation has these
// obligations, which the suite in backend/backendtest tests:
//
//   - Each operation of a [Store] is one atomic step, by the store's clock.
//   - An expired lease is over, even if its record has not been deleted yet.
//   - Requests are absolute (an owner, a hold count to set): the same request twice counts once.
//   - An error has a [Fault], which says whether the operation may have taken effect. Neither the
//     backend nor its client library retries an operation that may have run: the engine does.
//   - After [Handler].Watching no release is missed. The methods of a Handler are called in order,
//     without a lock of the backend held.
//   - Each fencing token of a name is larger than all earlier tokens of the name.
//   - [Capabilities] says what else the store can do. All of it is optional.
package backend

import (
	"context"
	"time"
)

// Backend is a store for locks. Adapters return a Backend (redisgo.New, rueidis.New, memory.New),
// and mortise.New takes a Backend.
type Backend interface {
	// Open starts a session for one client; h receives the session's notifications. Open does no
	// I/O: if the store is unreachable, the first operation fails. Open returns an error for a bad
	// configuration, such as a nil client. Open may be called more than once; the sessions then
	// share the store.
	Open(h Handler) (Store, error)
}

// Topic identifies what a session watches: the releases of a lock, or of another record of a kind.
// Each kind has its own topics; only the sides of a read-write lock share one, of KindWrite.
type Topic struct {
	Kind Kind
	Name string
	// Owner is empty except for two kinds. For KindFair it is the waiting owner: each waiter is
	// notified under a topic of its own. For KindDelegated it is the owner to enter under.
	Owner string
}

// Kind is the kind of a lock or another record.
type Kind uint8

const (
	// KindLock is the reentrant lock; plain and fenced locks share a record.
	KindLock Kind = iota
	// KindCountDownLatch is a count down to zero: [CountDownLatchStore].
	KindCountDownLatch
	// KindCountingSemaphore is a count of free permits: [CountingSemaphoreStore].
	KindCountingSemaphore
	// KindSemaphore is a count of free permits, and the permits in use: [SemaphoreStore].
	KindSemaphore
	// KindRead is the reading side of a read-write lock: [ReadWriteStore].
	KindRead
	// KindWrite is the writing side of a read-write lock.
	KindWrite
	// KindFair is the reentrant lock with a queue: [FairStore].
	KindFair
	// KindDelegated is the reentrant lock, entered under another owner of the lock:
	// [DelegationStore].
	KindDelegated
	// KindProclamation is the text of the lock's owner: [ProclamationStore]. A change of the text
	// is announced as a release.
	KindProclamation
)

// Handler receives the notifications of a session. The engine implements it. Its methods return at
// once, may be called from any goroutine, and never call back into the session. A Handler may also
// implement [WatchFailer] and [QueueHandler].
type Handler interface {
	// Watching reports that the session watches t: each later release is followed by a call of
	// Released, or of a method of [QueueHandler]. Watching is called after each [Store.Subscribe],
	// and after each interruption of the watch. Earlier releases may have been missed, so the
	// engine then sends its waiters' requests again.
	Watching(t Topic)
	// Released reports a release of t, perhaps by this session.
	Released(t Topic)
	// Changed reports that the record of t was changed or removed by other means: expiry, deletion,
	// a renewal by another session. Changed is a hint from backends with client-side caching: a
	// backend may never call it.
	Changed(t Topic)
	// ChangedAll reports that any record may have changed: the store was flushed, or the session
	// lost contact with the store for a while.
	ChangedAll()
}

// WatchFailer may be implemented by a [Handler].
type WatchFailer interface {
	// WatchFailed reports that t cannot be watched, for a reason that does not pass by itself: for
	// example, the store's user has no permission for the channel. Waiters then end with err
	// instead of waiting for a release. The session keeps trying to watch t.
	WatchFailed(t Topic, err error)
}

// Store is a client's session with a store. Its own methods are those of plain locks; the other
// kinds are in [Capabilities]. All methods may be called concurrently. Durations are whole
// milliseconds, at least one, unless said otherwise. Names and owners are not empty. An owner uses a
// name with one kind only (KindLock and KindFair count as one), so a session need not distinguish
// the holds of an owner by kind.
//
// An operation takes effect as a whole or not at all. A failed operation returns an error with a
// [*Fault] in its chain, and the fault says whether the operation may have taken effect. Neither
// the session nor the client library sends an operation twice, unless the first attempt is known
// not to have run (a script not loaded).
type Store interface {
	// Capabilities returns the store's optional interfaces. Capabilities does no I/O, and always
	// returns the same.
	Capabilities() Capabilities
	// Acquire takes the lock for an owner without a hold, or refuses. A repeated request by the
	// current owner changes nothing and is granted again: both count once.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)
	// SetHolds sets the hold count of the lock's owner and sets the remaining lease to
	// max(remaining, r.Lease). If the owner holds nothing, SetHolds changes nothing and answers
	// Held: false.
	SetHolds(ctx context.Context, r HoldsRequest) (HoldsReply, error)
	// Release sets the hold count of an owner to r.Keep. At zero, Release removes the record and
	// announces the release to all watchers, this session's watch included. The remaining lease does
	// not change. If the owner holds nothing, Release changes nothing, announces nothing, and
	// answers Held: false.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew sets the remaining time of each lease to max(remaining, Lease), if the owner still
	// holds the lock. A request with Lease 0 only asks whether the lock is held. The result of
	// in[i] goes to out[i], its own error included; in and out have the same length. Requests are
	// independent: a failed request does not affect the others.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// Inspect reads the record of a name.
	Inspect(ctx context.Context, name string) (Record, error)
	// ForceRelease removes the record of a name, with all of its owners, and announces a release. It
	// reports whether it removed a record. With r.Owner it compares and removes in one step: another
	// owner's record stays.
	ForceRelease(ctx context.Context, r ForceRequest) (bool, error)

	// Subscribe starts to watch t, until Unsubscribe. Subscribe returns at once; Handler.Watching
	// reports when the watch begins. While the store is unavailable the session keeps trying. One
	// Unsubscribe ends the watch, however often Subscribe was called.
	Subscribe(t Topic)
	// Unsubscribe ends the watch of t. Unsubscribe returns at once.
	Unsubscribe(t Topic)

	// Ping checks that the store answers, and prepares the store: the Redis backends load their
	// scripts. Operations must also work without a Ping before.
	Ping(ctx context.Context) error
	// Close ends the session with its goroutines and connections. Close removes no record, and
	// leaves a client passed to the adapter open. Later operations fail.
	Close() error
}

// AcquireRequest asks for a lock for an owner without a hold.
type AcquireRequest struct {
	Name  string
	Owner string
	// Lease is the lifetime of the record unless renewed.
	Lease time.Duration
	// Fenced asks for a fencing token, larger than all earlier tokens of the name.
	Fenced bool
	// Unasked allows the session to refuse by its own cache, without a request to the store. The
	// cache may be wrong for as long as a message from the store takes to arrive, for a second at most
	// if the message does not arrive, and not after a release by this process. A session never grants
	// without a request.
	Unasked bool
	Replication
}

// Replication says how many replicas a grant waits for: [Capabilities.Replicas]. The zero
// Replication waits for none.
type Replication struct {
	// Replicas is the number of replicas, and ReplicaWait bounds the wait.
	Replicas    int
	ReplicaWait time.Duration
}

// AcquireReply answers a request for a lock.
type AcquireReply struct {
	Granted bool
	// Rest reports, if refused by the session's own cache, that callers spin: the engine lets the caller
	// rest for [Rest] before it passes the refusal on, so that messages of the store are read.
	Rest bool
	// Token is the fencing token, if Granted and Fenced.
	Token int64
	// Remaining is, if refused, the remaining time of the holder's lease; negative if the record
	// has no end.
	Remaining time.Duration
	// Replicas is the number of replicas with the grant at the time of the reply, if the request
	// has a Replication.
	Replicas int
	// VerifyAfter is, if granted, the least time after which the engine verifies the grant, by
	// Renew. It is for client-side caching: the server reports changes (Handler.Changed) only of
	// records that the session has read, and the grant has not read the record. Zero: no
	// verification is needed.
	VerifyAfter time.Duration
}

// Rest is how long a caller rests after a refusal with [AcquireReply].Rest.
const Rest = time.Millisecond

// HoldsRequest asks for a further hold by an owner.
type HoldsRequest struct {
	Name  string
	Owner string
	// Holds is the hold count to set, two or more. The count is absolute, so a duplicate or late
	// request counts once.
	Holds int
	Lease time.Duration
	// Fenced asks for a fencing token: the owner's earlier holds have none. A read-write lock has
	// no tokens.
	Fenced bool
	Replication
}

// HoldsReply answers a HoldsRequest.
type HoldsReply struct {
	Held  bool
	Token int64
	// Replicas is the number of replicas with the count at the time of the reply, if the request
	// has a Replication.
	Replicas int
}

// ReleaseRequest gives up holds.
type ReleaseRequest struct {
	Name  string
	Owner string
	// Keep is the hold count to set; zero releases the lock. A lease without hold counts (a reader,
	// a permit) has no Keep.
	Keep int
	// Undo reports that the request compensates an acquisition of unknown outcome: the owner may
	// never have held the lock. A store that grants ([Capabilities.Grants]) also takes the owner's entry
	// out of the lock's queue, and then answers Held. Other stores may treat it as any other release.
	Undo bool
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Held reports whether the owner held the lock when the request arrived.
	Held bool
}

// ForceRequest removes a record.
type ForceRequest struct {
	Name string
	// Owner, if not empty, has the record removed only if this owner holds the lock. An owner whose lease
	// is over does not.
	Owner string
}

// RenewRequest asks to renew a lease: the lease then lasts for the longer of what is left and Lease. A record without
// an end gets one.
type RenewRequest struct {
	Name  string
	Owner string
	Lease time.Duration // zero only verifies
	// Exact asks that the lease lasts for Lease, also if more is left. The record never ends before the lease of
	// another owner; where another owner's lease is not known, the record's end stays as it is.
	Exact bool
	// Had is for how long the owner has had the lock, by the client's clock; zero if unknown. A store that does not
	// note the time of a grant may note it now, for [OperatorStore].
	Had time.Duration
}

// RenewResult answers a RenewRequest.
type RenewResult struct {
	Held bool
	// Remaining is the remaining time of a lease that lasts longer than was asked for without Exact; zero for any other.
	Remaining time.Duration
	Err       error
}

// Record is the store's data about a name.
type Record struct {
	// Held is false if the lock has no owner; all other fields but Reserved are then zero.
	Held bool
	// Reserved reports that the lock has no owner, and is reserved for the client at the head of
	// its queue.
	Reserved bool
	// Kind is KindRead or KindWrite, by the holder, for a read-write lock.
	Kind Kind
	// Owner is the holder; if only readers hold the lock, the first reader in the order of names. Of
	// several owners it is one whose lease is not over: see [DelegationStore].
	Owner string
	// Holds is the owner's hold count, by Kind.
	Holds int
	// Readers is the number of owners with the reading side.
	Readers int
	// Remaining is the remaining time of the lease; negative if the record has no end.
	Remaining time.Duration
}
