package redisproto

import "context"

//go:generate go run ../../gen/cmd/mortise-gen structs ../../scripts
//go:generate go run ../../gen/cmd/mortise-gen commands -profile testdata/fake.tmpl -o commands_gen_test.go

// Commands sends the scripts, each by a method of its own. A method takes the script's keys and
// arguments in structs, whose fields are named in the script's header, and returns the script's reply.
// Errors come unchanged from the client library; [Adapter.ServerError] recognizes the server's error
// replies.
type Commands interface {
	LockCommands
	CountCommands
	LatchCommands
	SemaphoreCommands
	PermitCommands
	RWCommands
	QueueCommands
	FairCommands
	MultiCommands
	AgeCommands
	DelegationCommands
	JointCommands
	TickCommands
	ProclamationCommands
}

// LockCommands are the scripts of plain locks.
type LockCommands interface {
	//mortise:script acquire
	Acquire(ctx context.Context, k AcquireKeys, a AcquireArgs) (int64, error)
	//mortise:script acquire_fenced
	AcquireFenced(ctx context.Context, k AcquireFencedKeys, a AcquireFencedArgs) ([]int64, error)
	//mortise:script reenter
	Reenter(ctx context.Context, k ReenterKeys, a ReenterArgs) ([]int64, error)
	//mortise:script release
	Release(ctx context.Context, k ReleaseKeys, a ReleaseArgs) (int64, error)
	// Renew sends one script for all items, or, on a cluster, a script per slot, pipelined.
	//mortise:script renew batch split
	Renew(ctx context.Context, a RenewArgs, items []RenewItem, out []BatchReply)
	//mortise:script describe
	Describe(ctx context.Context, k DescribeKeys, a DescribeArgs) ([]string, error)
	//mortise:script inspect
	Inspect(ctx context.Context, k InspectKeys) ([]string, error)
	//mortise:script force_release
	ForceRelease(ctx context.Context, k ForceReleaseKeys, a ForceReleaseArgs) (int64, error)
}

// CountCommands read a count.
type CountCommands interface {
	//mortise:script count
	Count(ctx context.Context, k CountKeys) (int64, error)
}

// LatchCommands are the scripts of latches.
type LatchCommands interface {
	//mortise:script latch_set
	LatchSet(ctx context.Context, k LatchSetKeys, a LatchSetArgs) (int64, error)
	//mortise:script latch_count_down
	LatchCountDown(ctx context.Context, k LatchCountDownKeys, a LatchCountDownArgs) (int64, error)
	//mortise:script latch_delete
	LatchDelete(ctx context.Context, k LatchDeleteKeys, a LatchDeleteArgs) (int64, error)
}

// SemaphoreCommands are the scripts of semaphores. The same scripts make a semaphore of permits,
// and change its size.
type SemaphoreCommands interface {
	//mortise:script semaphore_set
	SemaphoreSet(ctx context.Context, k SemaphoreSetKeys, a SemaphoreSetArgs) (int64, error)
	//mortise:script semaphore_take
	SemaphoreTake(ctx context.Context, k SemaphoreTakeKeys, a SemaphoreTakeArgs) ([]int64, error)
	//mortise:script rw_leave
	RWLeave(ctx context.Context, k RwLeaveKeys, a RwLeaveArgs) (int64, error)
	//mortise:script semaphore_leave
	SemaphoreLeave(ctx context.Context, k SemaphoreLeaveKeys, a SemaphoreLeaveArgs) (int64, error)
	//mortise:script semaphore_cancel
	SemaphoreCancel(ctx context.Context, k SemaphoreCancelKeys, a SemaphoreCancelArgs) (int64, error)
	//mortise:script semaphore_add
	SemaphoreAdd(ctx context.Context, k SemaphoreAddKeys, a SemaphoreAddArgs) (int64, error)
	//mortise:script semaphore_drain
	SemaphoreDrain(ctx context.Context, k SemaphoreDrainKeys, a SemaphoreDrainArgs) (int64, error)
	//mortise:script semaphore_delete
	SemaphoreDelete(ctx context.Context, k SemaphoreDeleteKeys, a SemaphoreDeleteArgs) (int64, error)
}

// PermitCommands are the scripts of permits with expiry.
type PermitCommands interface {
	//mortise:script permits_acquire
	PermitsAcquire(ctx context.Context, k PermitsAcquireKeys, a PermitsAcquireArgs) ([]int64, error)
	//mortise:script permits_release
	PermitsRelease(ctx context.Context, k PermitsReleaseKeys, a PermitsReleaseArgs) (int64, error)
	// PermitsRenew sends one script for all items, or, on a cluster, a script per slot, pipelined.
	//mortise:script permits_renew batch split
	PermitsRenew(ctx context.Context, items []PermitsRenewItem, out []BatchReply)
	//mortise:script permits_count
	PermitsCount(ctx context.Context, k PermitsCountKeys, a PermitsCountArgs) (int64, error)
	//mortise:script permits_set
	PermitsSet(ctx context.Context, k PermitsSetKeys, a PermitsSetArgs) (int64, error)
	//mortise:script permits_inspect
	PermitsInspect(ctx context.Context, k PermitsInspectKeys, a PermitsInspectArgs) ([]string, error)
}

// RWCommands are the scripts of read-write locks. A writer's Reenter is the script of a lock.
type RWCommands interface {
	//mortise:script read_acquire
	ReadAcquire(ctx context.Context, k ReadAcquireKeys, a ReadAcquireArgs) ([]int64, error)
	//mortise:script read_enter
	ReadEnter(ctx context.Context, k ReadEnterKeys, a ReadEnterArgs) (int64, error)
	//mortise:script read_release
	ReadRelease(ctx context.Context, k ReadReleaseKeys, a ReadReleaseArgs) (int64, error)
	// ReadRenew sends one script for all items, or, on a cluster, a script per slot, pipelined.
	//mortise:script read_renew batch split
	ReadRenew(ctx context.Context, a ReadRenewArgs, items []ReadRenewItem, out []BatchReply)

	//mortise:script write_acquire
	WriteAcquire(ctx context.Context, k WriteAcquireKeys, a WriteAcquireArgs) ([]int64, error)
	//mortise:script write_release
	WriteRelease(ctx context.Context, k WriteReleaseKeys, a WriteReleaseArgs) (int64, error)
	// WriteRenew is ReadRenew for writers.
	//mortise:script write_renew batch split
	WriteRenew(ctx context.Context, a WriteRenewArgs, items []WriteRenewItem, out []BatchReply)

	//mortise:script rw_force_release
	RWForceRelease(ctx context.Context, k RwForceReleaseKeys, a RwForceReleaseArgs) (int64, error)
	//mortise:script rw_inspect
	RWInspect(ctx context.Context, k RwInspectKeys) ([]string, error)
	//mortise:script rw_withdraw
	RWWithdraw(ctx context.Context, k RwWithdrawKeys, a RwWithdrawArgs) (int64, error)
}

// QueueCommands are the scripts to pass a lock on to the next client in its queue.
type QueueCommands interface {
	//mortise:script enrol
	Enrol(ctx context.Context, k EnrolKeys, a EnrolArgs) ([]int64, error)
	//mortise:script serve
	Serve(ctx context.Context, k ServeKeys, a ServeArgs) ([]int64, error)
	//mortise:script leave_queue
	LeaveQueue(ctx context.Context, k LeaveQueueKeys, a LeaveQueueArgs) (int64, error)
}

// FairCommands are the scripts of fair locks.
type FairCommands interface {
	//mortise:script fair_acquire
	FairAcquire(ctx context.Context, k FairAcquireKeys, a FairAcquireArgs) ([]int64, error)
	//mortise:script fair_release
	FairRelease(ctx context.Context, k FairReleaseKeys, a FairReleaseArgs) (int64, error)
	//mortise:script fair_leave
	FairLeave(ctx context.Context, k FairLeaveKeys, a FairLeaveArgs) (int64, error)
}

// MultiCommands are the scripts for several locks at once.
type MultiCommands interface {
	// AcquireAll is a single script if the locks share a slot; across slots the script could not
	// take all or none.
	//mortise:script acquire_all batch
	AcquireAll(ctx context.Context, a AcquireAllArgs, items []AcquireAllItem, out []BatchReply)
	// ReleaseAll sends one script for all items, or, on a cluster, a script per slot, pipelined.
	//mortise:script release_all batch
	ReleaseAll(ctx context.Context, a ReleaseAllArgs, items []ReleaseAllItem, out []BatchReply)
}

// AgeCommands is the script of locks with a minimum age of the server.
type AgeCommands interface {
	//mortise:script aged_acquire
	AgedAcquire(ctx context.Context, k AgedAcquireKeys, a AgedAcquireArgs) ([]int64, error)
}

// DelegationCommands are the scripts of locks with several owners, each under another.
type DelegationCommands interface {
	//mortise:script delegate_enter
	DelegateEnter(ctx context.Context, k DelegateEnterKeys, a DelegateEnterArgs) ([]int64, error)
	//mortise:script delegate_release
	DelegateRelease(ctx context.Context, k DelegateReleaseKeys, a DelegateReleaseArgs) (int64, error)
	// DelegateRenew is Renew for such locks.
	//mortise:script delegate_renew batch split
	DelegateRenew(ctx context.Context, a DelegateRenewArgs, items []DelegateRenewItem, out []BatchReply)
}

// JointCommands are the scripts for several callers at once; each does the work of another script
// for one caller.
type JointCommands interface {
	//mortise:script joint batch
	Joint(ctx context.Context, a JointArgs, items []JointItem, out []BatchReply)
}

// TickCommands is the script of schedules.
type TickCommands interface {
	//mortise:script claim_tick
	ClaimTick(ctx context.Context, k ClaimTickKeys, a ClaimTickArgs) ([]int64, error)
}

// ProclamationCommands are the scripts of the texts of locks' owners.
type ProclamationCommands interface {
	//mortise:script proclaim
	Proclaim(ctx context.Context, k ProclaimKeys, a ProclaimArgs) (int64, error)
	//mortise:script proclaimed
	Proclaimed(ctx context.Context, k ProclaimedKeys, a ProclaimedArgs) ([]string, error)
}

// BatchReply is the reply of a script for an item of a batch.
type BatchReply struct {
	Value int64
	Err   error
}
