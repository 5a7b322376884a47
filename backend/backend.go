// Package backend is the port between mortise and a store: what a store must be
// able to do, in the lock's own terms. Package mortise holds all the logic of
// waiting, owners, leases and renewal; a backend holds the record of which owner has
// what, and answers each question about it in one atomic step.
//
// Users never call this package; they pass a [Backend] to mortise.New. An implementation
// keeps these obligations, and proves them by running the suite in backend/backendtest:
//
//   - Each operation of a [Store] is one atomic step, by the store's clock.
//   - A lease that is over is over, though its record has not been deleted yet.
//   - Owners and hold counts are absolute: the same request twice counts once.
//   - A [Fault] says whether the operation may have taken effect; nothing is retried below mortise.
//   - After [Handler].Watching no release is missed. Handlers are called in order and outside of locks.
//   - Fencing tokens of a name rise for good.
//   - [Capabilities] says what else the store can do; a nil field is no fault.
package backend

import (
	"context"
	"time"
)

// Backend is a store that locks can live in. It is what adapters return
// (redisgo.New, rueidis.New, memory.New) and what mortise.New takes.
type Backend interface {
	// Open starts a session for one client. It does no I/O: a store that cannot
	// be reached shows in the first operation. Bad configuration, a nil client
	// for one, is an error here. Open may be called more than once; the sessions
	// then share the store.
	Open(h Handler) (Store, error)
}

// Topic names what can be watched: a lock, or what else Kind says. Releases of
// each kind are announced elsewhere, so they are different topics.
type Topic struct {
	Kind Kind
	Name string
	// Owner is the waiter, for KindFair, where each hears only that it is first; for KindDelegated, the owner that
	// is to be entered under.
	Owner string
}

// Kind says which family a record belongs to.
type Kind uint8

const (
	// KindLock is the reentrant lock: plain or fenced, they share one record.
	KindLock Kind = iota
	// KindCountDownLatch is a count that goes down to zero: [CountDownLatchStore].
	KindCountDownLatch
	// KindCountingSemaphore is a count of free permits: [CountingSemaphoreStore].
	KindCountingSemaphore
	// KindSemaphore is a count of free permits, and those that are out: [SemaphoreStore].
	KindSemaphore
	// KindRead is the reading side of a read-write lock: [ReadWriteStore].
	KindRead
	// KindWrite is its writing side.
	KindWrite
	// KindFair is the reentrant lock with a queue: [FairStore].
	KindFair
	// KindDelegated is the reentrant lock, entered under another owner that holds it: [DelegationStore].
	KindDelegated
	// KindProclamation is what the owner of a lock says of itself: [ProclamationStore]. A change of it is announced as
	// a release.
	KindProclamation
)

// Handler receives what a session learns unasked. Its methods return at once,
// may be called from any goroutine, and never call back into the session.
type Handler interface {
	// Watching tells that t is watched from now on: each release after this call
	// is followed by a call of Released. It is called after each [Store.Subscribe],
	// and again whenever watching was interrupted and works again. Whatever
	// happened before it may have been missed, so waiters try again.
	Watching(t Topic)
	// Released tells that t was released, perhaps by this session.
	Released(t Topic)
	// Changed tells that the record of t was changed or removed by other means:
	// it expired, was deleted, was renewed by another. It is a hint that only
	// some backends can give (see client-side caching); nothing relies on it.
	Changed(t Topic)
	// ChangedAll tells that any record may have changed: the store was flushed,
	// or the session lost sight of it for a while.
	ChangedAll()
}

// WatchFailer may be implemented by a [Handler] that wants to hear that a
// topic cannot be watched for a reason that will not pass by itself: a user
// without permission for the channel, say. Its waiters would wait for
// Handler.Watching for ever. The session keeps trying all the same.
type WatchFailer interface {
	WatchFailed(t Topic, err error)
}

// Store is one client's session with a store, and its plain locks: [Capabilities] has the rest. All methods may be
// called concurrently. Durations are whole milliseconds, at least one, unless said
// otherwise. Names and owners are not empty. An owner asks for one name by one kind
// only, KindLock and KindFair being one; a session need not tell its holds of two kinds apart.
//
// An operation either takes effect as a whole or not at all. One that failed
// returns an error that is or wraps a [*Fault], and the fault says whether the
// operation may have taken effect. An operation is never sent twice by the session or
// by the client library under it, except where the first is known not to have
// run (a script that was not loaded).
type Store interface {
	// Capabilities returns what the store can do besides. It does no I/O, and the answer never changes.
	Capabilities() Capabilities
	// Acquire takes the lock for an owner that holds nothing, or refuses.
	// The same request a second time while the owner holds it changes nothing
	// and is granted again: it counts once.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)
	// SetHolds sets the hold count of an owner that holds the lock already and
	// sets what remains of its lease to max(remaining, r.Lease). Where the owner
	// holds nothing, it changes nothing and answers Held: false.
	SetHolds(ctx context.Context, r HoldsRequest) (HoldsReply, error)
	// Release sets the hold count of an owner to r.Keep. At zero it removes the
	// record and announces the release to all that watch. It leaves the lease's
	// time alone. Where the owner holds nothing, it changes nothing, announces
	// nothing, and answers Held: false.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew sets what remains of each lease to max(remaining, Lease), for those
	// owners that hold their lock. A request with Lease 0 asks only whether it is
	// held. The result of in[i] goes to out[i], its own error included; the two
	// have one length. Requests are independent: one that fails spoils no other.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// Inspect reads the record of a name.
	Inspect(ctx context.Context, name string) (Record, error)
	// ForceRelease removes the record of a name, whichever owner holds it, and announces a release.
	// It reports whether there was one.
	ForceRelease(ctx context.Context, name string) (bool, error)

	// Subscribe asks to be told of t's releases, until Unsubscribe. It returns at once;
	// Handler.Watching tells when it is so. While the store is unavailable the session
	// keeps trying. A session watches a topic once, however often it is asked.
	Subscribe(t Topic)
	// Unsubscribe ends it. It returns at once.
	Unsubscribe(t Topic)

	// Ping asks the store for a sign of life and prepares it (loads scripts).
	Ping(ctx context.Context) error
	// Close ends the session, its goroutines and connections, but no record and
	// no client that was given to the adapter ready-made. Operations after it fail.
	Close() error
}

// AcquireRequest asks for a lock that the owner does not hold yet.
type AcquireRequest struct {
	Name  string
	Owner string
	// Lease is how long the record lives unless renewed.
	Lease time.Duration
	// Fenced asks for a fencing token, larger than any that this name had before.
	Fenced bool
	// Unasked allows the session to refuse from what it believes to know, without
	// asking the store. It may be wrong for as long as a message from the store
	// takes to arrive. It never grants that way.
	Unasked bool
	Replication
}

// Replication is how many replicas are to have what a request writes: [Capabilities.Replicas]. The zero
// Replication waits for none.
type Replication struct {
	// Replicas is how many, and ReplicaWait how long they are waited for at most.
	Replicas    int
	ReplicaWait time.Duration
}

// AcquireReply answers a request that acquires.
type AcquireReply struct {
	Granted bool
	// Token is set where Granted and Fenced.
	Token int64
	// Remaining is, where refused, what is left of the holder's lease; negative
	// if the record has no end.
	Remaining time.Duration
	// Replicas is how many replicas had the grant by then, where asked for.
	Replicas int
	// VerifyAfter is, where granted, after which time the session is to be asked whether it is held (Renew): it
	// hears of changes to the record from then on only. Zero: it need not be.
	VerifyAfter time.Duration
}

// HoldsRequest asks for one more hold by an owner.
type HoldsRequest struct {
	Name  string
	Owner string
	// Holds is the hold count to set, two or more. Being absolute, a request
	// that arrives twice, or late, counts once.
	Holds int
	Lease time.Duration
	// Fenced asks for a new token; the first hold of this owner took none. A read-write lock has no tokens.
	Fenced bool
	Replication
}

// HoldsReply answers a HoldsRequest.
type HoldsReply struct {
	Held  bool
	Token int64
	// Replicas is how many replicas had the count by then, where asked for.
	Replicas int
}

// ReleaseRequest gives up holds.
type ReleaseRequest struct {
	Name  string
	Owner string
	// Keep is the hold count to set; zero releases the lock. What has no hold counts, a reader or a permit, has
	// no Keep.
	Keep int
	// Undo tells that the owner may never have held the lock: its acquisition has an unknown
	// outcome. Where nothing is released, nothing need be announced.
	Undo bool
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Held tells whether the owner held the lock when the request arrived.
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

// Record is what the store holds on a name.
type Record struct {
	// Held is false where no owner holds it; all else but Reserved is zero then.
	Held bool
	// Reserved tells that no owner holds it, and that the client at the head of its queue is to be the next.
	Reserved bool
	// Kind is KindRead or KindWrite, by its holder, where it is a read-write lock.
	Kind Kind
	// Owner is the holder; where only readers hold it, the first of them in the order
	// of their names.
	Owner string
	// Holds is how many times Owner holds it, by Kind.
	Holds int
	// Readers is how many owners hold it for reading.
	Readers int
	// Remaining is what is left of the lease; negative if the record has no end.
	Remaining time.Duration
}
