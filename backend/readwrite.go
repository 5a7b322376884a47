package backend

import (
	"context"
	"time"
)

// ReadWriteStore has read-write locks: any number of readers, or a single writer with a read side
// of its own. ReadWriteStore is a capability: [Capabilities.ReadWrite]. Subscribe and Unsubscribe
// then take [KindRead] and [KindWrite]. The obligations are those of [Store] and these:
//
//   - Both sides share a record and the topic of KindWrite.
//   - Each reader has one hold and a lease of its own. The record lives as long as its longest
//     lease. The end of a reader does not end the others: ReleaseRead and RenewReads answer
//     Held: false to an expired reader, though the record lives.
//   - AcquireRead is refused while there is a writer, or a writer's claim (see
//     [WriteRequest.Claim]). With [ReadRequest.Under] neither matters; if the named owner holds
//     nothing, AcquireRead answers Absent.
//   - AcquireWrite is refused while there is a reader or another writer, even for a writer
//     under a reader's lease: there is no upgrade.
//   - ReleaseWrite at zero announces a release, and keeps the readers under the writer (a
//     downgrade). ReleaseRead announces the release of the last reader, except under a writer.
//   - Operations of other kinds on such a record, and operations of these kinds on other
//     records, answer [ErrWrongKind], or that the owner holds nothing.
type ReadWriteStore interface {
	// AcquireRead and AcquireWrite take a side of the lock for an owner without a hold, or refuse.
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
	// Withdraw removes a claim, if the claim is still the claimant's, and announces a release: new
	// readers may try again.
	Withdraw(ctx context.Context, name, claimant string) error
}

// ReadRequest asks for the reading side.
type ReadRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Under, if not empty, is the owner to enter under: a reader of the lock, or with UnderWriter
	// its writer.
	Under       string
	UnderWriter bool
	Enrolment
	Replication
}

// ReadReply answers a ReadRequest.
type ReadReply struct {
	AcquireReply
	// Absent reports whether Under holds nothing; the request is then not granted.
	Absent bool
	QueueReply
}

// WriteRequest asks for the writing side.
type WriteRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Claim is how long a refusal because of readers keeps new readers out, in Claimant's name; a
	// claim replaces another claimant's. Zero for no claim. A grant to the Claimant ends the claim.
	Claim    time.Duration
	Claimant string
	Enrolment
	Replication
}

// WriteReply answers a WriteRequest.
type WriteReply struct {
	AcquireReply
	// Claimed reports whether the refusal left a claim: WriteRequest.Claim.
	Claimed bool
	QueueReply
}
