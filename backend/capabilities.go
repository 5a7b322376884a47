package backend

// Capabilities lists the abilities of a [Store] beyond its own methods. A field is nil, or false,
// if the store lacks the ability; the client then says so to its callers, and the suite in
// backend/backendtest skips the tests of the ability.
type Capabilities struct {
	ReadWrite          ReadWriteStore         // KindRead and KindWrite
	Fair               FairStore              // KindFair
	Delegation         DelegationStore        // KindDelegated
	Semaphores         SemaphoreStore         // KindSemaphore
	CountingSemaphores CountingSemaphoreStore // KindCountingSemaphore
	CountDownLatches   CountDownLatchStore    // KindCountDownLatch
	Batch              BatchStore             // several locks in one step
	Queue              QueueStore             // if nil, each release is announced to all waiters
	Enrolments         EnrolmentStore         // queues of semaphores and read-write locks; if nil, all waiters are told
	Age                AgeStore               // locks of a store with all its data
	Partitions         PartitionStore         // if nil, the store is a single part
	Ticks              TickStore              // schedules
	Proclamations      ProclamationStore      // KindProclamation
	Leaver             Leaver                 // if nil, each caller that may leave costs the client a goroutine
	// Replicas reports whether requests heed their [Replication]: a grant is answered once the
	// requested number of replicas has the grant, or after ReplicaWait; the reply has the number
	// reached. A grant stands, however few replicas have the grant: the caller releases the lock. A
	// repeated request waits for the replicas again, and counts only replicas with the grant,
	// whichever request was granted. A refusal may take as long as a grant.
	Replicas bool
}
