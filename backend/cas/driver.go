// Package cas makes a backend of a store that can keep one small value for each key, and replace the value only if no
// other client has: a [Driver]. The rules of locks are those of package record; the value is a [record.Name].
//
// What a driver must do is in the comments of [Driver]; package castest holds a driver to it. The rest is here:
// requests of a client for one name go out as one swap, and swaps of several names as one batch; conflicts are
// repeated, unknown outcomes are resolved, sessions watch, and notices are sent to those that wait.
//
// # Time
//
// The store's clock decides, and no client's clock enters a value. A lease that begins is kept as a length: it counts
// from the version's stamp, which the store writes. Another client may end it when the store's clock has reached its
// end. That is when the store's clock was read, and what has passed since by the client's monotonic clock. A store's
// clock that jumps by more than half a second is noticed by the clients that read it before and after: to them, a
// version from before the jump ages by their own monotonic clocks, from when they first saw it.
package cas

import (
	"context"
	"time"
)

// Driver keeps one small value for each key and replaces it only if no other client has. Its methods may be called
// concurrently.
type Driver interface {
	// Swap carries out each swap of in on its own, in one round trip if the store can, and writes its outcome to the
	// same index of out, which has the same length. Keys are sorted and distinct. No swaps: Swap asks for a sign of life.
	//
	// A swap is durable, and seen by all later swaps, once Swap returns. The notices of a swap are sent if it is Done,
	// and not before it can be seen; they may be lost, come late, or twice.
	//
	// An error is about all swaps, Swapped.Err about one. Errors are a *backend.Fault: MayHaveRun is false only if
	// nothing of it was, or will be, carried out. Swap sends nothing twice.
	Swap(ctx context.Context, in []Swap, out []Swapped) error
	// Listen passes on what is sent to a session, until ctx ends or the connection breaks, and returns why. It first
	// calls hear with the zero Heard: what is sent from then on arrives. Hear is called by one goroutine at a time, and
	// returns at once.
	Listen(ctx context.Context, session string, hear func(Heard)) error
	// Limits returns always the same, without I/O.
	Limits() Limits
}

// Versions of a key for Swap.Version. Versions of values are above zero.
const (
	// None: there is no value.
	None int64 = 0
	// Look only reads.
	Look int64 = -1
)

// Swap replaces the value of a key if it has a version.
type Swap struct {
	// Key is UTF-8 without control characters, 200 bytes at most.
	Key string
	// Version is what the value must be: None, Look, or the version of an earlier Swapped.
	Version int64
	// Value is the new value; nil removes the value.
	Value []byte
	// Stamp is kept with the value by a store without a clock, to the nanosecond. Other drivers ignore it.
	Stamp time.Duration
	// Owner is the lock's owner if it has a single one; for stores whose transactions can be guarded.
	Owner   string
	Notices []Notice
}

// Notice is for another session that waits.
type Notice struct {
	Session string // lower-case letters and digits, 20 at most
	// Text is printable ASCII without spaces, 4,000 bytes at most.
	Text string
}

// Swapped is the value of a key after a Swap.
type Swapped struct {
	// Done reports that the swap was carried out. Value is then not set. A swap is not Done although the value has its
	// Version only if a transaction of the store keeps the value as it is: the swap is sent again later.
	Done bool
	// Version is that of the value; None if there is none. A version is never that of another value of the key, even if
	// the value was removed meanwhile.
	Version int64
	Value   []byte
	// Stamp is when the version was written, and Now when it was read or written, by the store's clock, since the Unix
	// epoch. Of a key without a value there is no Stamp. Without a clock, Stamp is that of the swap, and Now is Stamp and
	// as much as has passed at least since Swap was called with it, in any process; of a key without a value Now is the
	// last version that the store has given to any value, by NoClockStep.
	Stamp, Now time.Duration
	// Err is an error of this swap alone.
	Err error
}

// Heard is a notice that arrives.
type Heard struct {
	Text string
	// Stamp is that of the version of the notice's swap; zero if the driver does not know it.
	Stamp time.Duration
}

// Limits says what a store can take.
type Limits struct {
	// Value is the length of the longest value in bytes.
	Value int
	// Batch is the largest number of swaps at once, and Lanes of batches at once.
	Batch, Lanes int
	// NoClock: the store has no clock that tells when a value was written. Its versions rise over all keys.
	NoClock bool
}

// NoClockStep is what a version is as a time, for a key without a value in a store without a clock. A swap grants far
// fewer fencing tokens than the step has milliseconds.
const NoClockStep = 100 * time.Millisecond

// Lister may be implemented by a driver whose store can list its keys in order.
type Lister interface {
	// List returns the first values, most at most, whose keys begin with prefix and come after a key, in the order of the
	// keys' bytes. Both may be empty. Done is never set. Errors are as of Swap.
	List(ctx context.Context, prefix, after string, most int) ([]Kept, error)
}

// Kept is a value that a store has.
type Kept struct {
	Key string
	Swapped
}

// Updater may be implemented by a driver whose store can lock a value for a read and a write: for a key whose swaps
// fail because other clients swap it, too.
type Updater interface {
	// Update reads a key's value, calls f with it, and carries out the swap that f returns, as one transaction: no other
	// client changes the value meanwhile. F returns Look to change nothing. Errors are as of Swap.
	Update(ctx context.Context, key string, f func(Swapped) Swap) (Swapped, error)
}
