package redisproto

import (
	"context"
	"time"
)

// RWCommands are the scripts of read-write locks. A writer's Reenter and Renew are
// those of a lock.
type RWCommands interface {
	//mortise:script read_acquire
	ReadAcquire(ctx context.Context, k ReadAcquireKeys, a ReadAcquireArgs) (int64, error)
	//mortise:script read_enter
	ReadEnter(ctx context.Context, k ReadEnterKeys, a ReadEnterArgs) (int64, error)
	//mortise:script read_release
	ReadRelease(ctx context.Context, k ReadReleaseKeys, a ReadReleaseArgs) (int64, error)
	// ReadRenew sends one script for all items, or on a cluster one per slot, pipelined.
	//mortise:script read_renew batch split
	ReadRenew(ctx context.Context, a RenewArgs, items []ReadRenewItem, out []BatchReply)

	//mortise:script write_acquire
	WriteAcquire(ctx context.Context, k WriteAcquireKeys, a WriteAcquireArgs) ([]int64, error)
	//mortise:script write_release
	WriteRelease(ctx context.Context, k RWReleaseKeys, a WriteReleaseArgs) (int64, error)

	//mortise:script rw_force_release
	RWForceRelease(ctx context.Context, k RWReleaseKeys, a ForceReleaseArgs) (int64, error)
	//mortise:script rw_inspect
	RWInspect(ctx context.Context, k RWInspectKeys) ([]string, error)
	//mortise:script rw_withdraw
	RWWithdraw(ctx context.Context, k RWWithdrawKeys, a RWWithdrawArgs) (int64, error)
}

// ReadAcquireKeys are the keys of scripts/read_acquire.lua.
type ReadAcquireKeys struct {
	Lock    string
	Timeout string
	Writer  string
}

// ReadEnterKeys are the keys of scripts/read_enter.lua.
type ReadEnterKeys struct {
	Lock    string
	Timeout string
	Proof   string
}

// ReadAcquireArgs are the arguments of scripts/read_acquire.lua.
type ReadAcquireArgs struct {
	Owner string
	Lease time.Duration
	Track bool
}

// ReadEnterArgs are the arguments of scripts/read_enter.lua.
type ReadEnterArgs struct {
	Owner string
	Under string
	Lease time.Duration
	Track bool
}

// ReadReleaseKeys are the keys of scripts/read_release.lua.
type ReadReleaseKeys struct {
	Lock    string
	Timeout string
	Prefix  string
	Channel string
}

// WriteReleaseArgs are the arguments of scripts/write_release.lua.
type WriteReleaseArgs struct {
	Owner   string
	Keep    int64
	Publish string
}

// ReadReleaseArgs are the arguments of scripts/read_release.lua.
type ReadReleaseArgs struct {
	Owner   string
	Publish string
}

// ReadRenewItem is what scripts/read_renew.lua takes for each reader.
type ReadRenewItem struct {
	Lock    string
	Timeout string
	Owner   string
	Lease   time.Duration
}

// WriteAcquireKeys are the keys of scripts/write_acquire.lua.
type WriteAcquireKeys struct {
	Lock   string
	Writer string
}

// WriteAcquireArgs are the arguments of scripts/write_acquire.lua.
type WriteAcquireArgs struct {
	Owner    string
	Lease    time.Duration
	Claimant string
	Claim    time.Duration
	Track    bool
}

// RWReleaseKeys are the keys of scripts/write_release.lua and rw_force_release.lua.
type RWReleaseKeys struct {
	Lock    string
	Prefix  string
	Channel string
}

// RWInspectKeys are the keys of scripts/rw_inspect.lua.
type RWInspectKeys struct {
	Lock   string
	Prefix string
}

// RWWithdrawKeys are the keys of scripts/rw_withdraw.lua.
type RWWithdrawKeys struct {
	Writer  string
	Channel string
}

// RWWithdrawArgs are the arguments of scripts/rw_withdraw.lua.
type RWWithdrawArgs struct {
	Claimant string
	Publish  string
}
