package backend

// ReplicaSession has replicas of its store waited for. It is a capability, see [LatchSession].
//
// [Session.Acquire] of KindLock, KindFair, KindRead, KindWrite and KindNested, without Age, and Reenter then heed
// Replicas: what they grant is answered once that many replicas have it, or ReplicaWait is over, and
// how many have it is in the reply. What is granted stays granted, however few they are: the
// caller gives it back. The same request a second time waits for the replicas again, and counts none that
// has not heard of the grant, whichever of the two got it. A refusal may take as long as a grant.
type ReplicaSession interface {
	// Replicates tells whether that is so. It does no I/O.
	Replicates() bool
}
