package redisproto

import (
	"context"
	"time"
)

// NestCommands are those of locks that several owners hold, each under another.
type NestCommands interface {
	//mortise:script nest_enter
	NestEnter(ctx context.Context, k NestEnterKeys, a NestEnterArgs) ([]int64, error)
	//mortise:script nest_release
	NestRelease(ctx context.Context, k NestReleaseKeys, a NestReleaseArgs) (int64, error)
	// NestRenew is Renew for them.
	//mortise:script nest_renew batch split
	NestRenew(ctx context.Context, a RenewArgs, items []NestRenewItem, out []BatchReply)
}

// NestEnterKeys are the keys of scripts/nest_enter.lua.
type NestEnterKeys struct {
	Lock  string
	Nest  string
	Token string
}

// NestEnterArgs are the arguments of scripts/nest_enter.lua.
type NestEnterArgs struct {
	Owner  string
	Under  string
	Holds  int64
	Drawn  int64
	Lease  time.Duration
	Fenced bool
	Track  bool
}

// NestReleaseKeys are the keys of scripts/nest_release.lua.
type NestReleaseKeys struct {
	Lock    string
	Nest    string
	Channel string
	Next    string
	Queue   string
}

// NestReleaseArgs are the arguments of scripts/nest_release.lua.
type NestReleaseArgs struct {
	Owner   string
	Keep    int64
	Publish string
	Counts  bool
}

// NestRenewItem is what scripts/nest_renew.lua takes for each lock.
type NestRenewItem struct {
	Lock  string
	Nest  string
	Owner string
	Lease time.Duration
}
