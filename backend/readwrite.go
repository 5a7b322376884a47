package backend

import (
	"context"
	"time"
)

// ReadWriteStore has read-write locks: any number of readers, or one writer and the readers that
// entered under it. ReadWriteStore is a capability: [Capabilities.ReadWrite]. Subscribe and
// Unsubscribe then take [KindRead] and [KindWrite]. The obligations are those of [Store] and these:
//
//   - Both sides share a record and the topic of KindWrite.
//   - Each reader has one hold and a lease of its own. The record lives as long as its longest
//     lease. The end of a reader does not end the others: ReleaseRead and RenewReads answer
//     Held: false to an expired reader, though the record lives.
//   - AcquireRead is refused while there is a writer, or a writer's claim (see
//     [WriteRequest.Claim]). A request with [ReadRequest.Under] is granted in spite of both; if the
//     owner Under holds nothing, AcquireRead answers Absent.
//   - AcquireWrite is refused while there is a reader or another writer, even if the caller of
//     AcquireWrite is a reader, too: there is no upgrade.
//   - ReleaseWrite at zero announces a release. The readers that entered under the writer stay (a
//     downgrade). ReleaseRead announces the release of the last reader, unless a writer holds the
//     lock.
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
	// ForceReleaseRW removes both sides, and reports whether there was a holder. With r.Owner it removes
	// the hold of this reader or writer only, if there is one, as ReleaseRead and ReleaseWrite do:
	// readers do not exclude each other, so the others go on.
	ForceReleaseRW(ctx context.Context, r ForceRequest) (bool, error)
	// Withdraw removes the claim of a claimant. If there was one, Withdraw announces a release, since
	// readers may be granted now.
	Withdraw(ctx context.Context, name, claimant string) error
}

// ReadRequest asks for the reading side.
type ReadRequest struct {
	Name  string
	Owner string
	Lease time.Duration
	// Under, if not empty, is the owner to enter under: a reader of the lock, or the writer if
	// UnderWriter is set.
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
	// Claim, if not zero, makes a claim when the request is refused because of readers: new readers
	// are refused for the duration Claim. Claimant owns the claim, which replaces that of another
	// claimant. A grant to the Claimant ends it.
	Claim    time.Duration
	Claimant string
	Enrolment
	Replication
}

// WriteReply answers a WriteRequest.
type WriteReply struct {
	AcquireReply
	// Claimed reports whether the refusal made a claim: WriteRequest.Claim.
	Claimed bool
	QueueReply
}
