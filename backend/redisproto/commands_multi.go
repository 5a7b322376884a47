package redisproto

import (
	"context"
	"time"
)

// MultiCommands are the scripts that take and release several locks.
type MultiCommands interface {
	// AcquireAll is one script if the locks are of one slot; else it would not be all or none.
	//mortise:script acquire_all batch
	AcquireAll(ctx context.Context, a AcquireAllArgs, items []AcquireAllItem, out []BatchReply)
	// ReleaseAll sends one script for all items, or on a cluster one per slot, pipelined.
	//mortise:script release_all batch
	ReleaseAll(ctx context.Context, a ReleaseAllArgs, items []ReleaseAllItem, out []BatchReply)
}

// AcquireAllArgs are the arguments of scripts/acquire_all.lua that all items share.
type AcquireAllArgs struct {
	Track bool
}

// AcquireAllItem is what scripts/acquire_all.lua takes for each lock.
type AcquireAllItem struct {
	Lock   string
	Token  string
	Owner  string
	Lease  time.Duration
	Fenced bool
}

// ReleaseAllArgs are the arguments of scripts/release_all.lua that all items share.
type ReleaseAllArgs struct {
	Publish string
}

// ReleaseAllItem is what scripts/release_all.lua takes for each lock.
type ReleaseAllItem struct {
	Lock    string
	Channel string
	Owner   string
	Keep    int64
}
