package backend

import (
	"context"
	"iter"
	"strings"
	"time"
)

// Remembered is the minimum time for which a store remembers a [CountRequest] after its execution.
const Remembered = 2 * time.Minute

// CountRequest changes a count. A count has no owner that could set it absolutely, so the request
// has an ID: if a request with the same name and ID was executed within [Remembered], the store
// changes nothing, announces nothing, and gives the first answer again. A count in that answer may
// be the present count instead, except in DrainCount's, which is the number that was taken.
type CountRequest struct {
	Topic Topic
	// ID is never used for another request.
	ID string
	// N is the number for operations with a number: at most [MaxCount] in absolute value, and not
	// zero except in SetCount.
	N int64
	// Again reports that the request was sent before, and may have been executed. It is for
	// TakeCount only: if Again is false and the count is too small, TakeCount may refuse without
	// checking whether the store remembers the request.
	Again bool
	// Enrolment is heeded by TakeCount.
	Enrolment
}

// MaxCount bounds the counts of semaphores; Redisson keeps them in 32 bits.
const MaxCount = 1<<31 - 1

// MaxLatch bounds the counts of latches: Redis's scripts count in doubles.
const MaxLatch = 1 << 53

// CountDownLatchStore has latches: a count down to zero, removed at zero. Operations answer
// ErrWrongKind if the name holds other data than a count.
type CountDownLatchStore interface {
	// SetCount makes a count of r.N, one to MaxLatch, and announces the change; if there is a
	// count, SetCount changes nothing and reports false.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	// Count reads the count, zero where there is none.
	Count(ctx context.Context, t Topic) (int64, error)
	// CountDown takes one off the count, if there is a count, and returns the rest. At zero,
	// CountDown removes the count and announces the removal.
	CountDown(ctx context.Context, r CountRequest) (int64, error)
	// DeleteCount removes the count, announces the removal, and reports whether there was a count.
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
}

// CountingSemaphoreStore has semaphores: a count of free permits. Permits in use have no owner, and
// do not expire.
type CountingSemaphoreStore interface {
	// SetCount makes a count of r.N and announces a count above zero; if there is a count, SetCount
	// changes nothing and reports false.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	// Count reads the count, zero where there is none. The count may be negative.
	Count(ctx context.Context, t Topic) (int64, error)
	// AddCount adds r.N, possibly negative, to the count, or to zero where there is none, and
	// returns the sum. AddCount announces a sum above zero if r.N is positive.
	AddCount(ctx context.Context, r CountRequest) (int64, error)
	// TakeCount takes r.N from the count, if the count suffices, or refuses. A refusal is not
	// remembered: a request of unknown outcome must be cancelled.
	TakeCount(ctx context.Context, r CountRequest) (TakeReply, error)
	// CancelTake undoes the TakeCount of the same ID and r.N. If the TakeCount was executed and is
	// still remembered, its permits are released, once, and the release is announced. Otherwise
	// the store refuses the TakeCount if it arrives later.
	CancelTake(ctx context.Context, r CountRequest) error
	// DrainCount sets the count to zero and returns the previous count.
	DrainCount(ctx context.Context, r CountRequest) (int64, error)
	// DeleteCount removes the count, announces nothing, and reports whether there was a count.
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
}

// TakeReply answers CountingSemaphoreStore.TakeCount.
type TakeReply struct {
	Granted bool
	// Available is the count after the operation, less the permits reserved for other sessions.
	Available int64
	// Remaining is, if refused while permits are reserved for other sessions, the time until the
	// last of these reservations ends; otherwise zero.
	Remaining time.Duration
	QueueReply
}

// SemaphoreStore has semaphores whose permits expire: a count of free permits, and for each permit in
// use an id and the end of its lease by the store's clock. SemaphoreStore is a capability:
// [Capabilities.Semaphores].
//
// The obligations are those of a lock, except that several owners may hold permits at the same time,
// and that there is no re-entry. Acquire, SetLimit and Count first return expired permits to the
// count, and announce the change. An expired permit is not held: Release does not find it, and Renew
// does not extend it.
//
// An owner is the ids of the permits of a request, joined by commas: [PermitIDs]. An id is an even
// number of lower-case hexadecimal digits, at least 32, drawn at random and never used again; the
// ids of an owner have the same length. An owner has at most [MaxPermits] ids.
type SemaphoreStore interface {
	// SetCount, Count and AddCount are as in CountingSemaphoreStore. DeleteCount also removes the
	// permits in use: their owners hold nothing.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	Count(ctx context.Context, t Topic) (int64, error)
	AddCount(ctx context.Context, r CountRequest) (int64, error)
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
	// SetLimit sets the count to r.N less the permits in use, and announces a count above both zero
	// and the previous count. SetLimit returns the count.
	SetLimit(ctx context.Context, r CountRequest) (int64, error)
	// Acquire takes all permits of the owner, or refuses.
	Acquire(ctx context.Context, r PermitRequest) (PermitReply, error)
	// Release frees the owner's permits still in use. Held reports whether all were in use.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew is [Store].Renew. An owner is held if all its permits are in use.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// InspectPermits reads the count and the permits in use, and lists at most most permits, the
	// earliest expiry first.
	InspectPermits(ctx context.Context, name string, most int) (PermitsRecord, error)
}

// MaxPermits bounds the permits of a request, because the store does work for each permit.
const MaxPermits = 128

// PermitIDs yields the ids of an owner's permits.
func PermitIDs(owner string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for more := true; more; {
			var id string
			if id, owner, more = strings.Cut(owner, ","); !yield(id) {
				return
			}
		}
	}
}

// PermitRequest asks for as many permits as Owner has ids.
type PermitRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Limit, if not zero, is set first, as by SetLimit, if there is no count; with Declare also if
	// there is one. A repeated request that is granted again does not set the limit.
	Limit   int64
	Declare bool
	Enrolment
}

// PermitReply answers a PermitRequest. Remaining is the time until the first expiry among the
// permits in use, unless renewed.
type PermitReply struct {
	AcquireReply
	// Available is the number of free permits after the operation, less the permits reserved for
	// other sessions.
	Available int64
	QueueReply
}

// PermitsRecord is the store's data about a semaphore. Expired permits count as free.
type PermitsRecord struct {
	Free int64 // negative if the limit was lowered below the permits in use
	Out  int64
	List []PermitRecord
}

// PermitRecord is a permit in use.
type PermitRecord struct {
	ID        string
	Remaining time.Duration // negative without an end
}
