package redisproto

import (
	"context"
	"time"
)

// JointCommands are the scripts that do for several callers at once what others do for one.
type JointCommands interface {
	//mortise:script joint batch
	Joint(ctx context.Context, a JointArgs, items []JointItem, out []BatchReply)
}

// JointArgs are the arguments of scripts/joint.lua that all items share.
type JointArgs struct {
	Publish string
}

// JointItem is what scripts/joint.lua takes for each lock: an acquisition, or, where Lease is zero, a release.
type JointItem struct {
	Lock    string
	Channel string
	Owner   string
	Lease   time.Duration
}
