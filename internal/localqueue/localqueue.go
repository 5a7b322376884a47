// Package localqueue decides which waiter of this process sends the next request to the store, and when. It is pure
// state: no I/O, no goroutine, no clock, no lock; its caller guards it. Times are monotonic nanoseconds.
package localqueue

import (
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// Limits of a handoff budget: the number of local handoffs, and the time since Refill.
const (
	maxHandoffs = 32
	maxTenure   = 250 * time.Millisecond
)

// Queue is the waiters of this process for one name, oldest first, but those of a greater depth before others. Only the
// first waiter asks the store, and only if the lock may have been freed since it last asked, or if a time has come. So
// the number of commands does not depend on the number of waiters. Use New: the zero value is not ready.
type Queue struct {
	line

	held bool // this process holds the record, so no waiter asks
	// events counts the events that may have freed the lock; asked is the count at the time of the last request.
	events, asked uint64
	// retryAt is when the first waiter asks without an event. recheckAt is another such time: the record has changed,
	// or another client was told of a release and may not act on it.
	retryAt, recheckAt int64
	// ends is when the holder's lease ends, by the store's last refusal.
	ends int64
	// Endless: by that refusal, only a release helps.
	Endless bool
	// sleeps is the time until which the first waiter sleeps without an event.
	sleeps int64
	// free is the number of free permits of a semaphore at the last refusal of the first waiter. least is the smallest
	// number that a waiter wanted at the time of the last request.
	free, least int64
}

// Wish is the part of a waiter's request that the queue needs.
type Wish struct {
	// Wants is the number of a semaphore's permits that the waiter wants; zero for other kinds.
	Wants int32
	// MaxWaiters is the number of waiters behind which the waiter does not join; zero: any number.
	MaxWaiters int32
}

// New returns an empty queue. Held: this process holds the record.
func New(held bool) *Queue {
	q := &Queue{held: held, events: 1}
	q.retryAt, q.ends, q.recheckAt = clock.Never, clock.Never, clock.Never
	return q
}

// Join adds a waiter.
func (q *Queue) Join(t *Ticket) {
	q.join(t)
	if t.Depth > q.first.Depth {
		q.Notify() // t asks after the answer to the first waiter: Overtake
	}
	if wants := int64(t.Wants); wants > 0 && t != q.first && (wants <= q.free || wants < q.least) {
		q.Notify() // the free permits are too few for the first waiter, and may be enough for t
	}
	if t.Declares && t == declarer(q) {
		q.Notify() // the first waiter may wait for just this limit
	}
}

// Leave takes a waiter out. If it was the first, the next one becomes the first, and is woken.
func (q *Queue) Leave(t *Ticket) {
	wasFirst := q.first == t
	q.leave(t)
	if wasFirst {
		q.Wake()
	}
}

// First returns the waiter that asks the store; nil if nothing waits.
func (q *Queue) First() *Ticket {
	if q == nil {
		return nil
	}
	return q.first
}

// Len returns the number of waiters.
func (q *Queue) Len() int {
	if q == nil {
		return 0
	}
	return q.length
}

// Full reports whether w does not join the queue behind a number of waiters.
func (w Wish) Full(waiters int) bool { return w.MaxWaiters > 0 && waiters >= int(w.MaxWaiters) }

// Next returns the waiter that is to ask the store now; nil if none is to. WakeAt is when the first waiter is to ask
// without an event; clock.Never if only an event makes it ask.
func (q *Queue) Next(now int64) (ask *Ticket, wakeAt int64) {
	if q.first == nil || q.held {
		return nil, clock.Never
	}
	wakeAt = min(q.retryAt, q.recheckAt)
	if q.events != q.asked || now >= wakeAt {
		return q.first, wakeAt
	}
	return nil, wakeAt
}

// Asks notes that the first waiter asks the store now. It returns the time at which that waiter would have asked
// without an event.
func (q *Queue) Asks() (retry int64) {
	retry = q.retryAt
	q.asked = q.events
	q.retryAt, q.ends, q.recheckAt = clock.Never, clock.Never, clock.Never
	return retry
}

// Asking reports whether the answer to the first waiter's request is still to come, or the first waiter has not asked
// yet: an answer that leaves it waiting sets the time of its next request.
func (q *Queue) Asking() bool { return q.retryAt == clock.Never }

// Refused notes the end of the holder's lease, and when the first waiter asks again without an event.
func (q *Queue) Refused(ends, retry int64) { q.ends, q.retryAt = ends, retry }

// RetryAt sets when the first waiter asks again without an event.
func (q *Queue) RetryAt(at int64) { q.retryAt = at }

// RetryBy makes the first waiter ask without an event at the given time, or earlier if it was to.
func (q *Queue) RetryBy(at int64) {
	if q.retryAt > at {
		q.retryAt = at
		q.Wake()
	}
}

// Recheck makes the first waiter ask without an event at the given time, besides the time of its retry.
func (q *Queue) Recheck(at int64) {
	if q.recheckAt = at; at < q.sleeps {
		q.Wake()
	}
}

// RechecksBefore reports whether the first waiter rechecks at the given time or before.
func (q *Queue) RechecksBefore(at int64) bool { return q.recheckAt <= at }

// Sleeps notes that t goes to sleep until wakeAt. Recheck wakes the first waiter if it would sleep for too long.
func (q *Queue) Sleeps(t *Ticket, wakeAt int64) {
	if t == q.first {
		q.sleeps = wakeAt
	}
}

// Ends returns the rest of the holder's lease at now; negative if the rest is unknown.
func (q *Queue) Ends(now int64) time.Duration {
	if q.ends == clock.Never {
		return -1
	}
	return time.Duration(max(q.ends-now, 0))
}

// Notify notes that the lock may be free, and wakes the first waiter to ask the store. While this process holds the
// record the first waiter sleeps on.
func (q *Queue) Notify() {
	if q != nil {
		q.events++
		q.Wake()
	}
}

// Pass notes an event without waking a waiter. A waiter that leaves passes on the event that woke it, so that the next
// one asks: no event is lost.
func (q *Queue) Pass() { q.events++ }

// Heard notes that the events up to a count, which Events has returned before, need no request.
func (q *Queue) Heard(events uint64) { q.asked = max(q.asked, events) }

// Events returns the number of events that may have freed the lock.
func (q *Queue) Events() uint64 { return q.events }

// Wake wakes the first waiter, unless this process holds the record. The waiter then calls Next.
func (q *Queue) Wake() {
	if q != nil && q.first != nil && !q.held {
		q.first.tell()
	}
}

// WakeAll wakes all waiters. Each then calls Next.
func (q *Queue) WakeAll() {
	for t := range q.All {
		t.tell()
	}
}

// Hold notes whether this process holds the record. Events before a new tenure began need no request.
func (q *Queue) Hold(held bool) {
	if q == nil {
		return
	}
	if q.held = held; held {
		q.asked = q.events
	}
}

// Serve serves all waiters up to a ticket's number.
func (q *Queue) Serve(number uint64) {
	for t := q.First(); t != nil && t.number <= number; t = t.next {
		t.Serve()
	}
}

// Taker notes how many permits are free, and returns the oldest waiter behind the first that wants no more than those;
// nil if there is none.
func (q *Queue) Taker(free int64) *Ticket {
	if q.First() == nil {
		return nil
	}
	q.free = free
	for t := q.first.next; t != nil && free > 0; t = t.next {
		if !t.served && t.Wants > 0 && int64(t.Wants) <= free {
			return t
		}
	}
	return nil
}

// declarer returns the oldest waiter that declares a limit, if the first declares none and was told that there are no
// permits: the semaphore may be new, or have lost its data. It returns nil otherwise.
func declarer(q *Queue) *Ticket {
	if !q.Endless || q.first == nil || q.first.Declares {
		return nil
	}
	for t := q.first.next; t != nil; t = t.next {
		if t.Declares && !t.served {
			return t
		}
	}
	return nil
}

// Overtake puts a waiter before the first, to ask the store now, if the store may serve it though it has refused the
// first: the second, if its depth is greater, or one that declares a limit. It is called after the answer to the first.
func (q *Queue) Overtake() {
	t := q.first.next
	if t != nil && t.Depth <= q.first.Depth {
		t = declarer(q)
	}
	if t != nil {
		q.Advance(t)
	}
}

// Advance puts a waiter before the first, and wakes it to ask the store now.
func (q *Queue) Advance(t *Ticket) {
	q.remove(t)
	q.insert(t, nil)
	q.Notify()
}

// Least returns the smallest number of permits that a waiter wants; Join compares later waiters with it. The queue is
// not empty.
func (q *Queue) Least() int64 {
	q.least = int64(q.first.Wants)
	for t := q.first; t != nil && q.least > 1; t = t.next {
		if !t.served {
			q.least = min(q.least, int64(t.Wants))
		}
	}
	return q.least
}

// Budget is the handoff budget of a record: how many local handoffs are left, and until when (monotonic), before other
// clients have their turn. It outlives the waiters: a waiter that comes after them gets no new budget.
type Budget struct {
	handoffs int
	until    int64
	extra    bool // given because no other client waited
}

// Refill sets the budget of a tenure that begins now: a handoff for each waiter of now, so that later waiters do not
// keep other clients out.
func (b *Budget) Refill(q *Queue, now int64) {
	*b = Budget{handoffs: min(max(q.Len(), 1), maxHandoffs), until: now + int64(maxTenure)}
}

// Extra marks a budget that was given because no other client waited.
func (b *Budget) Extra() { b.extra = true }

// Wanted notes that another client waits: it ends an extra budget.
func (b *Budget) Wanted() {
	if b.extra {
		*b = Budget{}
	}
}

// Spend takes a handoff from the budget.
func (b *Budget) Spend() { b.handoffs-- }

// Left reports whether another local handoff is allowed.
func (b *Budget) Left(now int64) bool { return b.handoffs > 0 && now < b.until }
