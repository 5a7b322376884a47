// Package backend is the port between mortise and a store: what a store must be
// able to do, in the lock's own terms. Package mortise holds all the logic of
// waiting, owners, leases and renewal; a backend holds the record of who has
// what, and answers each question about it in one atomic step.
//
// Users never call this package. They pass a [Backend] to mortise.New. Those who
// write one follow the obligations below, and prove them by running the suite in
// backend/backendtest.
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
	Open(h Handler) (Session, error)
}

// Topic names what can be watched: a lock, or what else Kind says. Releases of
// each kind are announced elsewhere, so they are different topics.
type Topic struct {
	Kind Kind
	Name string
	// Owner is who waits, for KindFair, where each hears of its own turn only; for KindNested, who
	// is to be entered under.
	Owner string
}

// Kind says which family a record belongs to.
type Kind uint8

const (
	// KindLock is the reentrant lock: plain or fenced, they share one record.
	KindLock Kind = iota
	// KindLatch is a count that goes down to zero: [LatchStore].
	KindLatch
	// KindSemaphore is a count of free permits: [SemaphoreStore].
	KindSemaphore
	// KindPermits is a count of free permits, and those that are out: [PermitStore].
	KindPermits
	// KindRead and KindWrite are the two sides of a read-write lock: [ReadWriteStore].
	KindRead
	KindWrite
	// KindFair is the reentrant lock with a queue: [FairStore].
	KindFair
	// KindNested is the reentrant lock, entered under another owner that holds it: [DelegationStore].
	KindNested
)

// Handler receives what a session learns unasked. Its methods return at once,
// may be called from any goroutine, and never call back into the session.
type Handler interface {
	// Watching tells that t is watched from now on: each release after this call
	// is followed by a call of Released. It is called after each [Session.Watch],
	// and again whenever watching was interrupted and works again. Whatever
	// happened before it may have been missed, so waiters try again.
	Watching(t Topic)
	// Released tells that t was released by somebody, perhaps by this session.
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

// Session is one client's way into a store. All methods may be called
// concurrently. Durations are whole milliseconds, at least one, unless said
// otherwise. Names and owners are not empty. An owner asks for one name by one kind
// only, KindLock and KindFair being one; a session need not tell its holds of two kinds apart.
//
// An operation either takes effect as a whole or not at all. One that failed
// returns an error that is or wraps a [*Fault], and the fault says whether the
// operation may have taken effect. An operation is never sent twice by the session or
// by the client library under it, except where the first is known not to have
// run (a script that was not loaded).
type Session interface {
	// Capabilities returns what the session can do besides. It does no I/O, and the answer never changes.
	Capabilities() Capabilities
	// Acquire takes the lock for an owner that holds nothing, or refuses.
	// The same request a second time while the owner holds it changes nothing
	// and is granted again: it counts once.
	Acquire(ctx context.Context, r AcquireRequest) (AcquireReply, error)
	// Reenter sets the hold count of an owner that holds the lock already and
	// sets what remains of its lease to max(remaining, r.Lease). Where the owner
	// holds nothing, it changes nothing and answers Held: false.
	Reenter(ctx context.Context, r ReenterRequest) (ReenterReply, error)
	// Release sets the hold count of an owner to r.Keep. At zero it removes the
	// record and announces the release to all who watch. It leaves the lease's
	// time alone. Where the owner holds nothing, it changes nothing, announces
	// nothing, and answers Held: false.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew sets what remains of each lease to max(remaining, Lease), for those
	// owners that hold their lock. A request with Lease 0 asks only whether it is
	// held. The result of in[i] goes to out[i], its own error included; the two
	// have one length. Requests are independent: one that fails spoils no other.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// Inspect reads the record.
	Inspect(ctx context.Context, t Topic) (Record, error)
	// ForceRelease removes the record, whoever holds it, and announces a release.
	// It reports whether there was one.
	ForceRelease(ctx context.Context, t Topic) (bool, error)

	// Watch asks to be told of t's releases, until Unwatch. It returns at once;
	// Handler.Watching tells when it is so. While the store is away the session
	// keeps trying. A session watches a topic once, however often it is asked.
	Watch(t Topic)
	// Unwatch ends it. It returns at once.
	Unwatch(t Topic)

	// Ping asks the store for a sign of life and prepares it (loads scripts).
	Ping(ctx context.Context) error
	// Close ends the session, its goroutines and connections, but no record and
	// no client that was given to the adapter ready-made. Operations after it fail.
	Close() error
}

// NodeStore is a store that may consist of several nodes, each with a share of the names.
// A client then keeps what it sends to one apart from what it sends to others, so that a node that
// hangs holds up nothing elsewhere.
type NodeStore interface {
	// Node numbers the node that has a name, from one, as far as the session knows; 0 where there is one only, or it
	// does not know yet. Numbers are small, and stay those of their nodes. It neither blocks nor does I/O, nor
	// calls the Handler. That it is wrong costs promptness only.
	Node(name string) int
}

// Leaver is a store whose Acquire, Enter, Release and HandOver can be left: when their ctx ends, also if it had
// before the call, they return a [*Left] at once, and the operation goes on. A caller of another
// Session that wants to leave calls it in a goroutine of its own, and so does one who asks for replicas.
type Leaver interface {
	// Leaves tells whether that is so for a kind, as far as is known now. It does no I/O.
	Leaves(k Kind) bool
}

// Left is the error of an operation that was left.
type Left[R any] struct {
	// Wait waits until it is over and returns what became of it. It is called once.
	Wait func() (R, error)
}

func (*Left[R]) Error() string { return "the caller's context ended before the store answered" }

func (*Left[R]) Unwrap() error { return context.Canceled }

// QueueStore is a store whose plain locks go from one waiter to the next. Its
// HandOver can be left where its Release can: see [Leaver].
type QueueStore interface {
	// HandOver is Release, Keep being zero, and grants the lock to r.Successor in the
	// same step, if the owner held it. Nobody is told of that.
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

// AcquireRequest asks for a lock that the owner does not hold yet.
type AcquireRequest struct {
	// Kind is KindLock, or another kind of lock that the session is known to have.
	Kind  Kind
	Name  string
	Owner string
	// Lease is how long the record lives unless renewed.
	Lease time.Duration
	// Fenced asks for a fencing token, larger than any that this name had before.
	Fenced bool
	// Cached allows the session to refuse from what it believes to know, without
	// asking the store. It may be wrong for as long as a message from the store
	// takes to arrive. It never grants that way.
	Cached bool
	// Under, if not empty, is for KindRead an owner that the request comes from: one that
	// holds the lock by UnderKind, KindRead or KindWrite.
	Under     string
	UnderKind Kind
	// Claim is for KindWrite how long a refusal that readers are the reason of keeps fresh
	// readers out, in Claimant's name; a claim replaces that of another. Zero for no
	// claim. A grant ends the claim if it is Claimant's.
	Claim    time.Duration
	Claimant string
	// Wait is for how long a place in the queue is kept, from when the places before
	// it are gone; for KindFair. Zero asks for no place. It is the same each time that an owner asks.
	Wait time.Duration
	// Age is for KindLock how old the store must be: [AgeStore]. Nil for any age.
	Age *Age
	// Waits tells a [QueueStore] that the owner is one who waits, and that the topic is
	// watched and was confirmed to be. For KindLock without Age.
	Waits bool
	// Replicas is how many replicas are to have a grant before it is answered, and ReplicaWait how
	// long that is waited for at most: [Capabilities.Replicas].
	Replicas    int
	ReplicaWait time.Duration
}

// AcquireReply answers an AcquireRequest.
type AcquireReply struct {
	Granted bool
	// Token is set where Granted and Fenced.
	Token int64
	// Remaining is, where refused, what is left of the holder's lease; negative
	// if the record has no end. For KindFair it is zero where nobody holds it and
	// others are before.
	Remaining time.Duration
	// Look is, for KindFair and KindNested where refused, when to ask again though nothing was
	// announced: because the holder may be dead, or those who are before; negative if never.
	Look time.Duration
	// Available is how many permits are free after the operation, for KindPermits.
	Available int64
	// Claimed tells that the refusal left a claim: AcquireRequest.Claim.
	Claimed bool
	// Absent tells that Under holds nothing, or, for an [EnterRequest], less than Holds, or that
	// its Drawn is larger than any token that was drawn: the request is not granted.
	Absent bool
	// Young tells that the store is younger than AcquireRequest.Age: the request is not granted.
	Young bool
	// Waits tells, where refused, that the session will be told when it is its turn: releases
	// that tell another come as TurnHandler.Passed.
	Waits bool
	// Replicas is how many replicas had the grant by then, where asked for.
	Replicas int
	// Confirm is, where granted, after which time the session would be asked whether it is held (Renew): it
	// hears of changes to the record from then on only. Zero: it need not be.
	Confirm time.Duration
}

// ReenterRequest asks for one more hold by an owner.
type ReenterRequest struct {
	Kind  Kind
	Name  string
	Owner string
	// Holds is the hold count to set, two or more. Being absolute, a request
	// that arrives twice, or late, counts once.
	Holds int
	Lease time.Duration
	// Fenced asks for a new token; the first hold of this owner took none.
	Fenced bool
	// Replicas and ReplicaWait are as in AcquireRequest, of the count.
	Replicas    int
	ReplicaWait time.Duration
}

// ReenterReply answers a ReenterRequest.
type ReenterReply struct {
	Held  bool
	Token int64
	// Replicas is how many replicas had the count by then, where asked for.
	Replicas int
}

// ReleaseRequest gives up holds.
type ReleaseRequest struct {
	Kind Kind
	// Undo tells that the owner may never have held the lock: its acquisition has an unknown
	// outcome. Where nothing is released, nothing need be announced.
	Undo  bool
	Name  string
	Owner string
	// Keep is the hold count to set; zero releases the lock.
	Keep int
}

// ReleaseReply answers a ReleaseRequest.
type ReleaseReply struct {
	// Held tells whether the owner held the lock when the request arrived.
	Held bool
}

// RenewRequest asks for more time.
type RenewRequest struct {
	Kind  Kind
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
	// Held is false where there is no record; all else is zero then.
	Held bool
	// Kind is KindRead or KindWrite, by who holds it, where it is a read-write lock.
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
