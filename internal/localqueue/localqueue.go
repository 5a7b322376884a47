// Package localqueue decides which waiter of this process asks the store next. It is pure state: no I/O, no
// goroutine, no clock, no lock; its caller guards it. Times are monotonic nanoseconds.
package localqueue

import (
	"time"

	"github.com/mortise-go/mortise/internal/clock"
)

// A record goes on within the process, while others wait, for as often and as long as this.
const (
	maxHandoffs = 32
	maxTenure   = 250 * time.Millisecond
)

// Queue is the waiters of this process for one name, in the order in which they came. Only the first asks the
// store, and only when something happened since it last asked: that keeps the number of commands independent of the
// number of waiters. The zero value is not ready: see New.
type Queue struct {
	line

	held bool // the record is held in this process, so no waiter asks
	// events counts what may have freed the lock; asked is events as of the last ask.
	events, asked uint64
	// retryAt is when the first is to ask though nothing happened; recheckAt likewise, because the record
	// changed, or because another client was told of a release and may stay silent.
	retryAt, recheckAt int64
	// ends is when the holder's lease ends, as the store last said.
	ends int64
	// sleeps is until when the first sleeps.
	sleeps int64
	// free is how many permits of a semaphore there were when the first was last refused, least what its waiters wanted
	// at the least when it last asked.
	free, least int64
}

// Wish is what a call asks of the queue.
type Wish struct {
	// Wants is how many permits of a semaphore it waits for; zero elsewhere.
	Wants int64
}

// New makes a queue that nothing waits in. Held tells that the record is held in this process.
func New(held bool) *Queue {
	q := &Queue{held: held, events: 1}
	q.retryAt, q.ends, q.recheckAt = clock.Never, clock.Never, clock.Never
	return q
}

// Join appends a waiter.
func (q *Queue) Join(t *Ticket) {
	q.join(t)
	if t.Wants > 0 && t != q.first && (t.Wants <= q.free || t.Wants < q.least) {
		q.Notify() // what is free is not enough for the first, but may be for this one
	}
}

// Leave takes a waiter out; the next first is then told to look.
func (q *Queue) Leave(t *Ticket) {
	wasFirst := q.first == t
	q.leave(t)
	if wasFirst {
		q.Wake()
	}
}

// First is the waiter that asks; nil if nothing waits.
func (q *Queue) First() *Ticket {
	if q == nil {
		return nil
	}
	return q.first
}

// Len is the number of waiters.
func (q *Queue) Len() int {
	if q == nil {
		return 0
	}
	return q.length
}

// Next is the waiter that is to ask now; nil if none is. WakeAt is when the first is to look again; Never if only
// an event will help.
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

// Asks notes that the first asks now. Retry is when it would have asked, for Granted.
func (q *Queue) Asks() (retry int64) {
	retry = q.retryAt
	q.asked = q.events
	q.retryAt, q.ends, q.recheckAt = clock.Never, clock.Never, clock.Never
	return retry
}

// Asking reports whether the first asks just now.
func (q *Queue) Asking() bool { return q.retryAt == clock.Never }

// Refused notes that the holder's lease ends at ends, and that the first asks again at retry though nothing happened.
func (q *Queue) Refused(ends, retry int64) { q.ends, q.retryAt = ends, retry }

// RetryAt has the first ask at a time though nothing happens.
func (q *Queue) RetryAt(at int64) { q.retryAt = at }

// RetryBy has the first ask at a time at the latest.
func (q *Queue) RetryBy(at int64) {
	if q.retryAt > at {
		q.retryAt = at
		q.Wake()
	}
}

// Recheck has the first ask at a time, though it may not be told.
func (q *Queue) Recheck(at int64) {
	if q.recheckAt = at; at < q.sleeps {
		q.Wake()
	}
}

// RechecksBefore reports whether the first rechecks before a time.
func (q *Queue) RechecksBefore(at int64) bool { return q.recheckAt <= at }

// Sleeps notes until when t, which is about to sleep, will not look.
func (q *Queue) Sleeps(t *Ticket, wakeAt int64) {
	if t == q.first {
		q.sleeps = wakeAt
	}
}

// Ends is what is left of the holder's lease; negative if that is not known.
func (q *Queue) Ends(now int64) time.Duration {
	if q.ends == clock.Never {
		return -1
	}
	return time.Duration(max(q.ends-now, 0))
}

// Notify notes that the lock may be free and has the first look, unless the record is held here: then the first
// looks when it no longer is.
func (q *Queue) Notify() {
	if q != nil {
		q.events++
		q.Wake()
	}
}

// Pass notes an event without waking: what a leaving first was told is the next one's.
func (q *Queue) Pass() { q.events++ }

// Heard notes that an event before now was about what is known already.
func (q *Queue) Heard(events uint64) { q.asked = max(q.asked, events) }

// Events counts what may have freed the lock.
func (q *Queue) Events() uint64 { return q.events }

// Wake has the first look.
func (q *Queue) Wake() {
	if q != nil && q.first != nil && !q.held {
		q.first.tell()
	}
}

// Hold notes whether the record is held in this process. A new tenure settles what was told before.
func (q *Queue) Hold(held bool) {
	if q == nil {
		return
	}
	if q.held = held; held {
		q.asked = q.events
	}
}

// Serve tells all waiters up to a ticket's number that what they wait for is so.
func (q *Queue) Serve(number uint64) {
	for t := q.First(); t != nil && t.number <= number; t = t.next {
		t.Serve()
	}
}

// Taker is the first waiter behind the first that wants no more permits than are free; nil if there is none.
func (q *Queue) Taker(free int64) *Ticket {
	if q.First() == nil {
		return nil
	}
	q.free = free
	for t := q.first.next; t != nil && free > 0; t = t.next {
		if !t.served && t.Wants > 0 && t.Wants <= free {
			return t
		}
	}
	return nil
}

// Advance has a waiter behind the first ask now, before the first.
func (q *Queue) Advance(t *Ticket) {
	q.remove(t)
	q.insert(t, nil)
	q.Notify()
}

// Least is how many permits of a semaphore the waiters want at the least, as the first asks.
func (q *Queue) Least() int64 {
	q.least = q.first.Wants
	for t := q.first; t != nil && q.least > 1; t = t.next {
		if !t.served {
			q.least = min(q.least, t.Wants)
		}
	}
	return q.least
}

// Budget is how many more times a record goes on within the process before others have their turn, and until when
// (monotonic). It outlives the waiters: a waiter that comes after them does not begin anew.
type Budget struct {
	handoffs int
	until    int64
	extra    bool // others had their turn, and did not want it
}

// Refill gives a tenure that begins now its budget: the waiters of now may follow within the process, those that come
// later do not keep others out.
func (b *Budget) Refill(q *Queue, now int64) {
	*b = Budget{handoffs: min(max(q.Len(), 1), maxHandoffs), until: now + int64(maxTenure)}
}

// Extra marks a budget that goes to a tenure since nothing else waits, and Wanted ends such a one: something does.
func (b *Budget) Extra() { b.extra = true }

// Wanted is described at Extra.
func (b *Budget) Wanted() {
	if b.extra {
		*b = Budget{}
	}
}

// Spend notes that a record goes on within the process.
func (b *Budget) Spend() { b.handoffs-- }

// Left reports whether a record may go on within the process.
func (b *Budget) Left(now int64) bool { return b.handoffs > 0 && now < b.until }
