package redisproto

import (
	"context"
	"time"
)

// CountCommands read a count.
type CountCommands interface {
	//mortise:script count
	Count(ctx context.Context, k CountKeys) (int64, error)
}

// LatchCommands are the scripts of latches.
type LatchCommands interface {
	//mortise:script latch_set
	LatchSet(ctx context.Context, k LatchKeys, a LatchSetArgs) (int64, error)
	//mortise:script latch_count_down
	LatchCountDown(ctx context.Context, k LatchKeys, a LatchArgs) (int64, error)
	//mortise:script latch_delete
	LatchDelete(ctx context.Context, k LatchKeys, a LatchArgs) (int64, error)
}

// SemaphoreCommands are the scripts of semaphores. A semaphore of permits is made, and changed in
// size, by them too.
type SemaphoreCommands interface {
	//mortise:script semaphore_set
	SemaphoreSet(ctx context.Context, k SemaphoreKeys, a SemaphoreArgs) (int64, error)
	//mortise:script semaphore_take
	SemaphoreTake(ctx context.Context, k SemaphoreTakeKeys, a SemaphoreTakeArgs) ([]int64, error)
	//mortise:script semaphore_cancel
	SemaphoreCancel(ctx context.Context, k SemaphoreKeys, a SemaphoreArgs) (int64, error)
	//mortise:script semaphore_add
	SemaphoreAdd(ctx context.Context, k SemaphoreKeys, a SemaphoreArgs) (int64, error)
	//mortise:script semaphore_drain
	SemaphoreDrain(ctx context.Context, k SemaphoreTakeKeys, a SemaphoreDrainArgs) (int64, error)
}

// PermitCommands are the scripts of permits that expire.
type PermitCommands interface {
	//mortise:script permits_acquire
	PermitsAcquire(ctx context.Context, k PermitsKeys, a PermitsAcquireArgs) ([]int64, error)
	//mortise:script permits_release
	PermitsRelease(ctx context.Context, k PermitsKeys, a PermitsReleaseArgs) (int64, error)
	// PermitsRenew sends one script for all items, or on a cluster one per slot, pipelined.
	//mortise:script permits_renew batch split
	PermitsRenew(ctx context.Context, items []PermitsRenewItem, out []BatchReply)
	//mortise:script permits_count
	PermitsCount(ctx context.Context, k PermitsKeys, a PermitsCountArgs) (int64, error)
}

// CountKeys are the keys of scripts/count.lua.
type CountKeys struct {
	Count string
}

// LatchKeys are the keys of scripts/latch_set.lua, latch_count_down.lua and latch_delete.lua.
type LatchKeys struct {
	Latch string
	Once  string
}

// LatchSetArgs are the arguments of scripts/latch_set.lua.
type LatchSetArgs struct {
	Count   int64
	Keep    time.Duration
	Publish string
}

// LatchArgs are the arguments of scripts/latch_count_down.lua and latch_delete.lua.
type LatchArgs struct {
	Keep    time.Duration
	Publish string
}

// SemaphoreKeys are the keys of scripts/semaphore_set.lua, semaphore_cancel.lua and
// semaphore_add.lua.
type SemaphoreKeys struct {
	Semaphore string
	Once      string
	Channel   string
}

// SemaphoreArgs are the arguments of scripts/semaphore_set.lua, semaphore_cancel.lua and
// semaphore_add.lua.
type SemaphoreArgs struct {
	Permits int64
	Keep    time.Duration
	Publish string
}

// SemaphoreTakeKeys are the keys of scripts/semaphore_take.lua and semaphore_drain.lua.
type SemaphoreTakeKeys struct {
	Semaphore string
	Once      string
}

// SemaphoreTakeArgs are the arguments of scripts/semaphore_take.lua.
type SemaphoreTakeArgs struct {
	Permits int64
	Keep    time.Duration
	Again   bool
}

// SemaphoreDrainArgs are the arguments of scripts/semaphore_drain.lua.
type SemaphoreDrainArgs struct {
	Keep time.Duration
}

// PermitsKeys are the keys of scripts/permits_acquire.lua, permits_release.lua and
// permits_count.lua.
type PermitsKeys struct {
	Permits  string
	Timeouts string
	Channel  string
}

// PermitsAcquireArgs are the arguments of scripts/permits_acquire.lua.
type PermitsAcquireArgs struct {
	ID      string
	Lease   time.Duration
	Publish string
}

// PermitsReleaseArgs are the arguments of scripts/permits_release.lua.
type PermitsReleaseArgs struct {
	ID      string
	Publish string
}

// PermitsRenewItem is what scripts/permits_renew.lua takes for each permit.
type PermitsRenewItem struct {
	Timeouts string
	ID       string
	Lease    time.Duration
}

// PermitsCountArgs are the arguments of scripts/permits_count.lua.
type PermitsCountArgs struct {
	Publish string
}
