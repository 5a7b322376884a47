package backend

import (
	"context"
	"iter"
	"strings"
	"time"
)

// Remembered is how long a store remembers a [CountRequest] at the least, from when
// it carried it out.
const Remembered = 2 * time.Minute

// CountRequest changes a count. Unlike a hold count, a count has no owner that could
// set it absolutely, so the request itself has an identity: one that the store has
// carried out, under the same name and ID, within [Remembered] changes nothing and
// announces nothing, and is answered as the first was; where the answer is a count,
// perhaps with the count as it is now. DrainCount tells what the first took.
type CountRequest struct {
	Topic Topic
	// ID is never used for another request.
	ID string
	// N is how many, where the operation takes a number; at most [MaxCount] either
	// way, and not zero except in SetCount.
	N int64
	// Again tells that this request was sent before, and may have been carried out. Only
	// TakeCount may heed it: where it is false and there are too few, it need not
	// look whether it remembers the request.
	Again bool
	// Enrolment is heeded by TakeCount.
	Enrolment
}

// MaxCount bounds the counts of semaphores, which Redisson keeps in 32 bits.
const MaxCount = 1<<31 - 1

// MaxLatch bounds the counts of latches: Redis's scripts count in doubles.
const MaxLatch = 1 << 53

// CountDownLatchStore has latches: a count that goes down to zero, and is gone then.
// Operations answer ErrWrongKind where the name holds something else than a count.
type CountDownLatchStore interface {
	// SetCount makes a count of r.N, one to MaxLatch, and announces it; where there is
	// one it changes nothing and reports false.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	// Count reads the count, zero where there is none.
	Count(ctx context.Context, t Topic) (int64, error)
	// CountDown takes one off the count, if there is one, and returns what is left.
	// At zero it removes it, and announces that.
	CountDown(ctx context.Context, r CountRequest) (int64, error)
	// DeleteCount removes the count and announces that; it reports whether there was one.
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
}

// CountingSemaphoreStore has semaphores: a count of free permits. Permits that are
// taken have no owner, and nothing gives them back by itself.
type CountingSemaphoreStore interface {
	// SetCount makes a count of r.N and announces it, if it is above zero; where
	// there is one it changes nothing and reports false.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	// Count reads the count, zero where there is none. It may be negative.
	Count(ctx context.Context, t Topic) (int64, error)
	// AddCount adds r.N, which may be negative, to the count, or to zero where there
	// is none, and returns the sum. It announces a sum above zero if r.N is.
	AddCount(ctx context.Context, r CountRequest) (int64, error)
	// TakeCount takes r.N from the count, if it has as many, or refuses. A refusal
	// is not remembered: a request that may have arrived is to be cancelled then.
	TakeCount(ctx context.Context, r CountRequest) (TakeReply, error)
	// CancelTake undoes the TakeCount of the same ID and r.N, and announces that: if
	// it was carried out and is still remembered, what it took is given back, once;
	// if it was not, it will be refused should it still arrive.
	CancelTake(ctx context.Context, r CountRequest) error
	// DrainCount sets the count to zero and returns what it was.
	DrainCount(ctx context.Context, r CountRequest) (int64, error)
	// DeleteCount removes the count and announces nothing; it reports whether there was one.
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
}

// TakeReply answers CountingSemaphoreStore.TakeCount.
type TakeReply struct {
	Granted bool
	// Available is the count after the operation, less what is reserved for others.
	Available int64
	QueueReply
}

// SemaphoreStore has permits that expire: a count of free ones, and for each that is
// out an id and the end of its lease by the store's clock. It is a capability:
// [Capabilities.Semaphores].
//
// The obligations are those of a lock's, except that others may be out at the same time. Acquire, SetLimit and Count
// first add to the count the permits that have ended, and announce that; Release does not find them, and Renew does
// not revive them. There is no re-entry.
//
// An owner is the ids of the permits that one request takes, joined by commas: [PermitIDs]. An id is an even number of
// lower-case hexadecimal digits, at least 32, drawn at random and never used again; those of one owner have the
// same length. There are [MaxPermits] at most.
type SemaphoreStore interface {
	// SetCount, Count and AddCount are as in CountingSemaphoreStore. DeleteCount is too, and removes the permits
	// that are out: their owners hold nothing.
	SetCount(ctx context.Context, r CountRequest) (bool, error)
	Count(ctx context.Context, t Topic) (int64, error)
	AddCount(ctx context.Context, r CountRequest) (int64, error)
	DeleteCount(ctx context.Context, r CountRequest) (bool, error)
	// SetLimit sets the count to r.N less the permits that are out, and announces it if it is above zero and above
	// what it was. It returns the count.
	SetLimit(ctx context.Context, r CountRequest) (int64, error)
	// Acquire takes all permits of the owner, or refuses.
	Acquire(ctx context.Context, r PermitRequest) (PermitReply, error)
	// Release puts those permits of the owner back that are out. Held tells that all were.
	Release(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// Renew is that of [Store]. An owner is held if all its permits are out.
	Renew(ctx context.Context, in []RenewRequest, out []RenewResult)
	// InspectPermits reads the count and the permits that are out, of which it lists most at the most, those that
	// end first.
	InspectPermits(ctx context.Context, name string, most int) (PermitsRecord, error)
}

// MaxPermits bounds the permits that one request takes: the store does something for each of them.
const MaxPermits = 128

// PermitIDs are the ids of an owner's permits.
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
	// Limit, if it is not zero, is set as by SetLimit before, where there is no count, and, with Declare, where there
	// is one. A request that is granted again changes nothing.
	Limit   int64
	Declare bool
	Enrolment
}

// PermitReply answers a PermitRequest. Remaining is the time after which the first of the permits that are out ends
// unless renewed.
type PermitReply struct {
	AcquireReply
	// Available is how many permits are free after the operation, less what is reserved for others.
	Available int64
	QueueReply
}

// PermitsRecord is what a store says of a semaphore. Permits whose leases have ended count as free.
type PermitsRecord struct {
	Free int64 // negative if the limit was lowered below what is out
	Out  int64
	List []PermitRecord
}

// PermitRecord is a permit that is out.
type PermitRecord struct {
	ID        string
	Remaining time.Duration // negative if it does not end
}
