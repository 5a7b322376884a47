package mortise

import "github.com/mortise-go/mortise/backend"

// RWLocker has the two sides of read-write locks: under a name, any number of leases of Read, or one
// lease of Write. [Client.RW] makes an RWLocker; a test can make one of two fakes: RWLocker{Read: r,
// Write: w}. It shares its record with Redisson's RReadWriteLock.
//
// # Re-entry
//
// With the context of a write lease, both Write and Read enter again; with the context of a read
// lease, only Read does. A read lease is independent of its outer lease: it has its own time and its
// own Unlock. So a writer becomes a reader by locking Read and then unlocking its write lease, and no
// other writer gets in between (a downgrade). The context of the read lease goes on then: it follows
// the context that was given to Lock of Write.
//
// Write with the context of a read lease would wait for itself, and returns [ErrInvalid] at once,
// unless the read lease was entered under a write lease. Two read leases under one write lease whose
// contexts both lock Write wait for each other: bound the wait. Goroutines that share a context and
// lock Write take turns, also with goroutines that lock Read; goroutines that only lock Read do not.
//
// # What waits for what
//
// Readers do not starve a waiting writer: while a writer waits, a Lock or TryLock of Read by any
// client of this package waits behind the writer. So lock Read with the context of your lease, as
// with any Go RWMutex: with a fresh context you would wait for a writer that waits for you. When a
// writer unlocks, the client at the head of the queue is served: its writer, or the readers of all
// clients. In a client, calls are served in their order. A writer whose process died while waiting
// keeps fresh readers out for at most the watchdog timeout. Redisson's readers do not see waiting
// writers, so a stream of them starves writers, as it does in Redisson. Redisson's writers leave no
// sign in the store while they wait, so a stream of readers starves them.
//
// # Leases
//
// Each read lease is renewed, and ends, by itself. The record lives as long as the longest lease. A
// renewal by a reader of Redisson's cuts the record's time to the reader's own timeout; up to Redisson
// 3.52 it cuts the time of every reader. So a read lease with a [WithLease] longer than the watchdog
// timeout is asserted again every third of the timeout; and the watchdog timeouts of mortise and
// Redisson should be equal.
//
// Options and errors are those of [Locker], but for [Fair], [Fenced], [NonReentrant] and [Polling], which
// are ErrInvalid, as is every call with a backend without read-write locks. A
// name of another kind of lock is [ErrWrongKind].
//
// Cost: one command for each Lock and Unlock without a wait; none for a TryLock that is refused because
// of a lease of this client. A writer that waits for readers sends a command each third of the
// watchdog timeout, to keep new readers out, and another when it leaves without the lock.
type RWLocker struct {
	// Read takes read leases, any number for a name. Write takes a write lease, which excludes all
	// other leases.
	Read, Write Locker
}

// RW returns the client's read-write locks, with options for all calls: see [Client.With]. RW does no I/O.
// With a backend without read-write locks, the methods of the two sides return [ErrInvalid].
func (c *Client) RW(opts ...Option) RWLocker {
	return RWLocker{c.locker(backend.KindRead, opts), c.locker(backend.KindWrite, opts)}
}

func (c *Client) hasRW() error {
	e := c.inner()
	return e.Can(e != nil && e.Capabilities().ReadWrite != nil, "read-write locks")
}
