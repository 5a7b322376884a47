package redisproto

import (
	"context"
	"time"
)

// DelegationCommands are those of locks that several owners hold, each under another.
type DelegationCommands interface {
	//mortise:script delegate_enter
	DelegateEnter(ctx context.Context, k DelegateEnterKeys, a DelegateEnterArgs) ([]int64, error)
	//mortise:script delegate_release
	DelegateRelease(ctx context.Context, k DelegateReleaseKeys, a DelegateReleaseArgs) (int64, error)
	// DelegateRenew is Renew for them.
	//mortise:script delegate_renew batch split
	DelegateRenew(ctx context.Context, a RenewArgs, items []DelegateRenewItem, out []BatchReply)
}

// DelegateEnterKeys are the keys of scripts/delegate_enter.lua.
type DelegateEnterKeys struct {
	Lock  string
	Nest  string
	Token string
}

// DelegateEnterArgs are the arguments of scripts/delegate_enter.lua.
type DelegateEnterArgs struct {
	Owner  string
	Under  string
	Holds  int64
	Drawn  int64
	Lease  time.Duration
	Fenced bool
	Track  bool
}

// DelegateReleaseKeys are the keys of scripts/delegate_release.lua.
type DelegateReleaseKeys struct {
	Lock    string
	Nest    string
	Channel string
	Next    string
	Queue   string
}

// DelegateReleaseArgs are the arguments of scripts/delegate_release.lua.
type DelegateReleaseArgs struct {
	Owner   string
	Keep    int64
	Publish string
	Counts  bool
}

// DelegateRenewItem is what scripts/delegate_renew.lua takes for each lock.
type DelegateRenewItem struct {
	Lock  string
	Nest  string
	Owner string
	Lease time.Duration
}
