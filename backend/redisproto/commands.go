package redisproto

import (
	"context"
	"time"
)

// Commands is one method per script, in an interface for each kind of lock. Adapters do not write
// it: cmd/mortise-gen generates an implementation from this interface, the scripts' headers and the
// client's profile.
//
// A method takes the script's keys and arguments in structs whose fields bear the
// header's names, and returns its reply. Errors come as the client library gave
// them; [Adapter.ServerError] tells those that the server sent from the rest.
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
}

// LockCommands are the scripts of plain locks.
type LockCommands interface {
	//mortise:script acquire
	Acquire(ctx context.Context, k AcquireKeys, a AcquireArgs) (int64, error)
	//mortise:script acquire_fenced
	AcquireFenced(ctx context.Context, k AcquireFencedKeys, a AcquireArgs) ([]int64, error)
	//mortise:script reenter
	Reenter(ctx context.Context, k ReenterKeys, a ReenterArgs) ([]int64, error)
	//mortise:script release
	Release(ctx context.Context, k ReleaseKeys, a ReleaseArgs) (int64, error)
	// Renew sends one script for all items, or on a cluster one per slot, pipelined.
	//mortise:script renew batch split
	Renew(ctx context.Context, a RenewArgs, items []RenewItem, out []BatchReply)
	//mortise:script inspect
	Inspect(ctx context.Context, k InspectKeys) ([]string, error)
	//mortise:script force_release
	ForceRelease(ctx context.Context, k ForceReleaseKeys, a ForceReleaseArgs) (int64, error)
}

// AcquireKeys are the keys of scripts/acquire.lua.
type AcquireKeys struct {
	Lock string
}

// AcquireFencedKeys are the keys of scripts/acquire_fenced.lua.
type AcquireFencedKeys struct {
	Lock  string
	Token string
}

// AcquireArgs are the arguments of scripts/acquire.lua and acquire_fenced.lua.
type AcquireArgs struct {
	Owner string
	Lease time.Duration
}

// ReenterKeys are the keys of scripts/reenter.lua.
type ReenterKeys struct {
	Lock  string
	Token string
}

// ReenterArgs are the arguments of scripts/reenter.lua.
type ReenterArgs struct {
	Owner  string
	Holds  int64
	Lease  time.Duration
	Fenced bool
	Track  bool
}

// ReleaseKeys are the keys of scripts/release.lua.
type ReleaseKeys struct {
	Lock    string
	Channel string
}

// ReleaseArgs are the arguments of scripts/release.lua.
type ReleaseArgs struct {
	Owner   string
	Keep    int64
	Publish string
}

// RenewArgs are the arguments of scripts/renew.lua that all items share.
type RenewArgs struct {
	Track bool
}

// RenewItem is what scripts/renew.lua takes for each lock.
type RenewItem struct {
	Lock  string
	Owner string
	Lease time.Duration
}

// BatchReply is what a script answers for each item of a batch.
type BatchReply struct {
	Value int64
	Err   error
}

// InspectKeys are the keys of scripts/inspect.lua.
type InspectKeys struct {
	Lock string
}

// ForceReleaseKeys are the keys of scripts/force_release.lua.
type ForceReleaseKeys struct {
	Lock    string
	Channel string
	Queue   string
}

// ForceReleaseArgs are the arguments of scripts/force_release.lua.
type ForceReleaseArgs struct {
	Publish string
}
