package redisproto

import (
	"context"
	"time"
)

// FairCommands are the scripts of fair locks.
type FairCommands interface {
	//mortise:script fair_acquire
	FairAcquire(ctx context.Context, k FairAcquireKeys, a FairAcquireArgs) ([]int64, error)
	//mortise:script fair_release
	FairRelease(ctx context.Context, k FairKeys, a FairReleaseArgs) (int64, error)
	//mortise:script fair_leave
	FairLeave(ctx context.Context, k FairKeys, a FairLeaveArgs) (int64, error)
}

// FairAcquireKeys are the keys of scripts/fair_acquire.lua.
type FairAcquireKeys struct {
	Lock     string
	Queue    string
	Timeouts string
	Token    string
	Channel  string
}

// FairAcquireArgs are the arguments of scripts/fair_acquire.lua.
type FairAcquireArgs struct {
	Owner   string
	Lease   time.Duration
	Wait    time.Duration
	Fenced  bool
	Track   bool
	Absence time.Duration
	Counts  bool
	Publish string
}

// FairKeys are the keys of scripts/fair_release.lua and fair_leave.lua.
type FairKeys struct {
	Lock     string
	Queue    string
	Timeouts string
	Channel  string
}

// FairReleaseArgs are the arguments of scripts/fair_release.lua.
type FairReleaseArgs struct {
	Owner   string
	Keep    int64
	Absence time.Duration
	Counts  bool
	Publish string
}

// FairLeaveArgs are the arguments of scripts/fair_leave.lua.
type FairLeaveArgs struct {
	Owner   string
	Wait    time.Duration
	Absence time.Duration
	Counts  bool
	Publish string
}
