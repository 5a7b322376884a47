package backend

// Capabilities is what a [Store] can do beyond its own methods. A field is nil, or false, where the store has no such
// thing; the client then says so to its callers, and the suite in backend/backendtest skips what is about it.
type Capabilities struct {
	ReadWrite          ReadWriteStore         // KindRead and KindWrite
	Fair               FairStore              // KindFair
	Delegation         DelegationStore        // KindDelegated
	Semaphores         SemaphoreStore         // KindSemaphore
	CountingSemaphores CountingSemaphoreStore // KindCountingSemaphore
	CountDownLatches   CountDownLatchStore    // KindCountDownLatch
	Batch              BatchStore             // several locks in one step
	Queue              QueueStore             // without it, each release is told to all that wait
	Enrolments         EnrolmentStore         // without it, releases of semaphores and read-write locks are told to all
	Age                AgeStore               // locks of a store that has all its data
	Partitions         PartitionStore         // without it, the store is one part
	Ticks              TickStore              // schedules
	Proclamations      ProclamationStore      // KindProclamation
	Leaver             Leaver                 // without it, the client needs a goroutine for each caller that may leave
	// Replicas reports that requests with a [Replication] heed it: what they grant is answered once that many
	// replicas have it, or ReplicaWait is over, and how many have it is in the reply. What is granted stays granted,
	// however few they are: the caller releases it. The same request a second time waits for the replicas again, and
	// counts none that has not heard of the grant, whichever of the two got it. A refusal may take as long as a grant.
	Replicas bool
}
