package backend

import "context"

// ReadWriteStore has read-write locks: any number of readers, or one writer, which may read
// as well. Acquire, SetHolds, Release, Renew, Inspect, ForceRelease, Subscribe and Unsubscribe then
// take [KindRead] and [KindWrite], under the obligations of [Store] and these:
//
//   - Both sides share one record, and one topic: that of KindWrite.
//   - Each reader has one hold and a lease of its own; there is no SetHolds of KindRead, and
//     Release ignores Keep. The record lives as long as the longest lease in it. One reader's
//     end is not another's: Release and Renew answer Held: false to one whose lease is over,
//     though the record lives.
//   - Acquire of KindRead is refused while there is a writer, or a claim of one (see
//     [AcquireRequest.Claim]). With [AcquireRequest.Under] neither matters; where the
//     owner that it names holds nothing, it answers Absent.
//   - Acquire of KindWrite is refused while there is a reader or another writer, also one
//     whose lease it was to enter under: there is no upgrade.
//   - Release of KindWrite at zero announces a release and leaves those reading that
//     entered under it (a downgrade). Release of KindRead announces the last
//     reader's, not one under a writer.
//   - Operations of other kinds on such a record, and of these on others, answer
//     [ErrWrongKind], or that the owner holds nothing.
type ReadWriteStore interface {
	// Withdraw takes back a claim, if it is still the claimant's, and announces a
	// release: fresh readers may try again.
	Withdraw(ctx context.Context, t Topic, claimant string) error
}
