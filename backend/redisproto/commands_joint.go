package redisproto

import (
	"context"
	"time"
)

// JointCommands are the scripts that do for several callers at once what Acquire and Release do for one.
type JointCommands interface {
	//mortise:script acquire_many batch split
	AcquireMany(ctx context.Context, a AcquireManyArgs, items []AcquireManyItem, out []JointReply)
	//mortise:script release_many batch
	ReleaseMany(ctx context.Context, a ReleaseManyArgs, items []ReleaseManyItem, out []JointReply)
}

// AcquireManyArgs are the arguments of scripts/acquire_many.lua that all items share.
type AcquireManyArgs struct {
	Track bool
}

// AcquireManyItem is what scripts/acquire_many.lua takes for each lock.
type AcquireManyItem struct {
	Lock  string
	Owner string
	Lease time.Duration
}

// ReleaseManyArgs are the arguments of scripts/release_many.lua that all items share.
type ReleaseManyArgs struct {
	Publish string
}

// ReleaseManyItem is what scripts/release_many.lua takes for each lock.
type ReleaseManyItem struct {
	Lock    string
	Channel string
	Owner   string
}

// JointReply is what scripts/acquire_many.lua and release_many.lua answer for each lock.
type JointReply struct {
	Value int64
	Err   error
}
