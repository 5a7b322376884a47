package backend

// Capabilities lists the optional interfaces of a [Store]. A field is nil, or false, if the store
// lacks the capability. Calls of users that need it then fail, unless the field's comment says
// otherwise, and the suite in backend/backendtest skips its tests.
type Capabilities struct {
	ReadWrite          ReadWriteStore         // KindRead and KindWrite
	Fair               FairStore              // KindFair
	Delegation         DelegationStore        // KindDelegated
	Semaphores         SemaphoreStore         // KindSemaphore
	CountingSemaphores CountingSemaphoreStore // KindCountingSemaphore
	CountDownLatches   CountDownLatchStore    // KindCountDownLatch
	Batch              BatchStore             // several locks in one step; if nil, LockAll takes lock after lock
	Queue              QueueStore             // queues of plain locks; if nil, a release wakes all waiting clients
	Enrolments         EnrolmentStore         // queues of semaphores and read-write locks; if nil, as for Queue
	Age                AgeStore               // rejoin delay of Quorum; if nil, there is none
	Partitions         PartitionStore         // if nil, the store is a single part
	Ticks              TickStore              // schedules
	Proclamations      ProclamationStore      // KindProclamation
	Check              CheckStore             // if nil, a check only asks for an answer
	Busy               BusyStore              // if nil, nothing is known of requests that wait in this process
	Operator           OperatorStore          // what an operator asks; if nil, Inspect tells less
	List               ListStore              // lists of locks; if nil, Client.Locks fails
	Leaver             Leaver                 // if nil, a call whose context can end needs a goroutine
	// Grants reports that a release grants a plain lock to the first entry in its queue, and notifies
	// the entry's session by [QueueHandler].Granted. Otherwise it reserves the lock for the entry. If
	// there are Enrolments, too, they heed [Enrolment.Grants].
	Grants bool
	// Replicas reports whether the store heeds the [Replication] of a request. The store then
	// replies to a grant once the requested number of replicas has the grant, or after ReplicaWait;
	// the reply has the number reached. The grant stands even if the number is too small: the
	// engine releases the lock. A repeated request waits for the replicas again, and counts only
	// replicas that have the grant, whichever of the requests was granted. A refusal may take as
	// long as a grant.
	Replicas bool
}
