package backend

import (
	"context"
	"time"
)

// ReadWriteStore has read-write locks: any number of readers, or one writer, which may read
// as well. It is a capability: [Capabilities.ReadWrite]. Subscribe and Unsubscribe then
// take [KindRead] and [KindWrite]. The obligations are those of [Store] and these:
//
//   - Both sides share one record, and one topic: that of KindWrite.
//   - Each reader has one hold and a lease of its own. The record lives as long as the longest lease in it.
//     One reader's end is not another's: ReleaseRead and RenewReads answer Held: false to one whose lease is over,
//     though the record lives.
//   - AcquireRead is refused while there is a writer, or a claim of one (see
//     [WriteRequest.Claim]). With [ReadRequest.Under] neither matters; where the
//     owner that it names holds nothing, it answers Absent.
//   - AcquireWrite is refused while there is a reader or another writer, also one
//     whose lease it was to enter under: there is no upgrade.
//   - ReleaseWrite at zero announces a release and leaves those reading that
//     entered under it (a downgrade). ReleaseRead announces the last
//     reader's, not one under a writer.
//   - Operations of other kinds on such a record, and of these on others, answer
//     [ErrWrongKind], or that the owner holds nothing.
type ReadWriteStore interface {
	// AcquireRead and AcquireWrite take a side of the lock for an owner that holds nothing, or refuse.
	AcquireRead(ctx context.Context, r ReadRequest) (ReadReply, error)
	AcquireWrite(ctx context.Context, r WriteRequest) (WriteReply, error)
	// SetWriteHolds is SetHolds of a writer.
	SetWriteHolds(ctx context.Context, r HoldsRequest) (HoldsReply, error)
	// ReleaseRead and ReleaseWrite give up a side.
	ReleaseRead(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	ReleaseWrite(ctx context.Context, r ReleaseRequest) (ReleaseReply, error)
	// RenewReads and RenewWrites renew leases of a side.
	RenewReads(ctx context.Context, in []RenewRequest, out []RenewResult)
	RenewWrites(ctx context.Context, in []RenewRequest, out []RenewResult)
	// InspectRW reads the record of both sides.
	InspectRW(ctx context.Context, name string) (Record, error)
	// ForceReleaseRW removes both sides.
	ForceReleaseRW(ctx context.Context, name string) (bool, error)
	// Withdraw takes back a claim, if it is still the claimant's, and announces a
	// release: fresh readers may try again.
	Withdraw(ctx context.Context, name, claimant string) error
}

// ReadRequest asks for the reading side.
type ReadRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Under, if not empty, is an owner that the request comes from: one that holds the lock for reading, or for
	// writing where UnderWriter.
	Under       string
	UnderWriter bool
	Enrolment
	Replication
}

// ReadReply answers a ReadRequest.
type ReadReply struct {
	AcquireReply
	// Absent tells that Under holds nothing: the request is not granted.
	Absent bool
	QueueReply
}

// WriteRequest asks for the writing side.
type WriteRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Claim is how long a refusal that readers are the reason of keeps fresh
	// readers out, in Claimant's name; a claim replaces that of another. Zero for no
	// claim. A grant ends the claim if it is Claimant's.
	Claim    time.Duration
	Claimant string
	Enrolment
	Replication
}

// WriteReply answers a WriteRequest.
type WriteReply struct {
	AcquireReply
	// Claimed tells that the refusal left a claim: WriteRequest.Claim.
	Claimed bool
	QueueReply
}
