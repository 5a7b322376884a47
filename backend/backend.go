// Package backend is the port between mortise and a store: the operations required of a store, in
// the terms of locks. Package mortise holds all the logic of waiting, owners, leases and renewal; a
// backend holds the record of owners, and answers each request about the record in one atomic step.
//
// Users never call this package; users pass a [Backend] to mortise.New. An implementation has these
// obligations, and proves them by the suite in backend/backendtest:
//
//   - Each operation of a [Store] is one atomic step, by the store's clock.
//   - An expired lease is over, even if its record has not been deleted yet.
//   - Owners and hold counts are absolute: the same request twice counts once.
//   - A [Fault] says whether the operation may have taken effect; nothing is retried below
//     mortise.
//   - After [Handler].Watching no release is missed. Handlers are called in order and outside
//     of locks.
//   - Fencing tokens of a name rise, and never start again.
//   - [Capabilities] says what else the store can do; a nil field is no fault.
package backend

import (
	"context"
	"time"
)

// Backend is a store for locks. Adapters return a Backend (redisgo.New, rueidis.New, memory.New),
// and mortise.New takes a Backend.
type Backend interface {
	// Open starts a session for one client. Open does no I/O: an unreachable store shows in the
	// first operation. Bad configuration, such as a nil client, is an error here. Open may be
	// called more than once; the sessions then share the store.
	Open(h Handler) (Store, error)
}

// Topic names something to watch: a lock, or another record named by Kind. Releases of each kind
// are announced separately, so the kinds are different topics.
type Topic struct {
	Kind Kind
	Name string
	// Owner is the waiter for KindFair, where each waiter hears only of its own arrival at the front;
	// for KindDelegated, the owner to enter under.
	Owner string
}

// Kind is the family of a record.
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
	// KindWrite is its writing side.
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

// Handler receives what a session learns without a request. Its methods return at once, may be
// called from any goroutine, and never call back into the session.
type Handler interface {
	// Watching reports that t is watched: each later release is followed by a call of Released.
	// Watching is called after each [Store.Subscribe], and after each interruption of the watch.
	// Earlier events may have been missed, so waiters try again.
	Watching(t Topic)
	// Released reports a release of t, perhaps by this session.
	Released(t Topic)
	// Changed reports that the record of t was changed or removed by other means: expiry, deletion,
	// a renewal by another session. Changed is a hint from backends with client-side caching;
	// nothing relies on the hint.
	Changed(t Topic)
	// ChangedAll reports that any record may have changed: the store was flushed, or the session
	// lost contact with the store for a while.
	ChangedAll()
}

// WatchFailer may be implemented by a [Handler] to hear of a topic with a persistent failure: a
// user without permission for the channel, say. The topic's waiters would wait for Handler.Watching
// forever. The session keeps trying all the same.
type WatchFailer interface {
	WatchFailed(t Topic, err error)
}

// Store is a client's session with a store, and its plain locks: [Capabilities] has the rest. All
// methods may be called concurrently. Durations are whole milliseconds, at least one, unless said
// otherwise. Names and owners are not empty. An owner asks for a name by one kind only (KindLock
// and KindFair count as one kind); a session need not distinguish holds of an owner by kind.
//
// An operation takes effect as a whole or not at all. A failed operation returns an error with a
// [*Fault] in its chain, and the fault says whether the operation may have taken effect. Neither
// the session nor the client library sends an operation twice, unless the first attempt is known
// not to have run (a script not loaded).
type Store interface {
	// Capabilities returns the further abilities of the store. Capabilities does no I/O, and the
	// answer never changes.
	Capabilities() Capabilities
	// Acquire takes the lock for an owner without a hold, or refuses. A repeated request by the
	// current owner changes nothing and is granted again: both count once.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)
	// SetHolds sets the hold count of the lock's owner and sets the remaining lease to
	// max(remaining, r.Lease). If the owner holds nothing, SetHolds changes nothing and answers
	// Held: false.
	SetHolds(ctx context.Context, r HoldsRequest) (HoldsReply, error)
	// Release sets the hold count of an owner to r.Keep. At zero, Release removes the record and
	// announces the release to all watchers. The remaining lease does not change. If the owner
	// holds nothing, Release changes nothing, announces nothing, and answers Held: false.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew sets the remaining time of each lease to max(remaining, Lease), if the owner still
	// holds the lock. A request with Lease 0 only asks whether the lock is held. The result of
	// in[i] goes to out[i], its own error included; in and out have the same length. Requests are
	// independent: a failed request does not affect the others.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// Inspect reads the record of a name.
	Inspect(ctx context.Context, name string) (Record, error)
	// ForceRelease removes the record of a name, whichever owner holds the lock, and announces a
	// release. ForceRelease reports whether there was a record.
	ForceRelease(ctx context.Context, name string) (bool, error)

	// Subscribe asks for t's releases until Unsubscribe. Subscribe returns at once;
	// Handler.Watching reports when the watch begins. While the store is unavailable the session
	// keeps trying. A session watches a topic once, however often Subscribe is called.
	Subscribe(t Topic)
	// Unsubscribe ends the watch of t. Unsubscribe returns at once.
	Unsubscribe(t Topic)

	// Ping checks that the store answers, and prepares the store (loads scripts).
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
	// Unasked allows the session to refuse from its own knowledge, without a request to the store.
	// Such a refusal may be wrong for as long as a message from the store takes to arrive. The
	// session never grants without a request.
	Unasked bool
	Replication
}

// Replication is the number of replicas to wait for after a write: [Capabilities.Replicas]. The
// zero Replication waits for none.
type Replication struct {
	// Replicas is the number of replicas, and ReplicaWait bounds the wait.
	Replicas    int
	ReplicaWait time.Duration
}

// AcquireReply answers a request for a lock.
type AcquireReply struct {
	Granted bool
	// Token is set where Granted and Fenced.
	Token int64
	// Remaining is, where refused, the remaining time of the holder's lease; negative if the record
	// has no end.
	Remaining time.Duration
	// Replicas is the number of replicas with the grant at the time of the reply, where asked for.
	Replicas int
	// VerifyAfter is, where granted, the delay before a verification of the grant (Renew): the
	// session hears only of later changes to the record. Zero: no verification is needed.
	VerifyAfter time.Duration
}

// HoldsRequest asks for a further hold by an owner.
type HoldsRequest struct {
	Name  string
	Owner string
	// Holds is the hold count to set, two or more. The count is absolute, so a duplicate or late
	// request counts once.
	Holds int
	Lease time.Duration
	// Fenced asks for a new token; the owner's first hold took none. A read-write lock has no
	// tokens.
	Fenced bool
	Replication
}

// HoldsReply answers a HoldsRequest.
type HoldsReply struct {
	Held  bool
	Token int64
	// Replicas is the number of replicas with the count at the time of the reply, where asked for.
	Replicas int
}

// ReleaseRequest gives up holds.
type ReleaseRequest struct {
	Name  string
	Owner string
	// Keep is the hold count to set; zero releases the lock. A lease without hold counts (a reader,
	// a permit) has no Keep.
	Keep int
	// Undo reports that the owner may never have held the lock: the outcome of its acquisition is
	// unknown. If nothing is released, no announcement is needed.
	Undo bool
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Held reports whether the owner held the lock when the request arrived.
	Held bool
}

// RenewRequest asks for more time.
type RenewRequest struct {
	Name  string
	Owner string
	Lease time.Duration
}

// RenewResult answers a RenewRequest.
type RenewResult struct {
	Held bool
	Err  error
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
	// Owner is the holder; if only readers hold the lock, the first reader in the order of names.
	Owner string
	// Holds is the owner's hold count, by Kind.
	Holds int
	// Readers is the number of owners with the reading side.
	Readers int
	// Remaining is the remaining time of the lease; negative if the record has no end.
	Remaining time.Duration
}
