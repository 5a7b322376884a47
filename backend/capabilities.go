package backend

// Capabilities is what a [Store] can do beyond its own methods. A field is nil, or false, where the store has no such
// thing; the client then says so to its callers, and the suite in backend/backendtest skips what is about it.
type Capabilities struct {
	ReadWrite  ReadWriteStore  // requests of KindRead and KindWrite
	Fair       FairStore       // requests of KindFair
	Batch      BatchStore      // several locks in one step
	Semaphores SemaphoreStore  // counts of KindSemaphore
	Latches    LatchStore      // counts of KindLatch
	Permits    PermitStore     // requests and counts of KindPermits
	Delegation DelegationStore // requests of KindDelegated
	Queue      QueueStore      // without it, each release is told to all that wait
	Age        AgeStore        // AcquireRequest.Age
	Nodes      NodeStore       // without it, the store is one node
	Leaver     Leaver          // without it, the client needs a goroutine for each caller that may leave
	// Replicas reports that [Store.Acquire] of KindLock, KindFair, KindRead and KindWrite, without Age, Enter and
	// SetHolds heed Replicas: what they grant is answered once that many replicas have it, or ReplicaWait is over, and how
	// many have it is in the reply. What is granted stays granted, however few they are: the caller releases it. The same
	// request a second time waits for the replicas again, and counts none that has not heard of the grant, whichever of
	// the two got it. A refusal may take as long as a grant.
	Replicas bool
}
