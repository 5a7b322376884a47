package redisproto

import (
	"context"
	"time"
)

// QueueCommands are those by which a lock goes from one to the next.
type QueueCommands interface {
	//mortise:script enrol
	Enrol(ctx context.Context, k EnrolKeys, a EnrolArgs) ([]int64, error)
	//mortise:script serve
	Serve(ctx context.Context, k ServeKeys, a ServeArgs) ([]int64, error)
	//mortise:script leave_queue
	LeaveQueue(ctx context.Context, k LeaveQueueKeys, a LeaveQueueArgs) (int64, error)
}

// EnrolKeys are the keys of scripts/enrol.lua.
type EnrolKeys struct {
	Lock  string
	Next  string
	Token string
}

// EnrolArgs are the arguments of scripts/enrol.lua.
type EnrolArgs struct {
	Owner  string
	Lease  time.Duration
	Fenced bool
	Track  bool
	Tag    string
	Keep   time.Duration
}

// ServeKeys are the keys of scripts/serve.lua.
type ServeKeys struct {
	Lock    string
	Channel string
	Next    string
	Token   string
}

// ServeArgs are the arguments of scripts/serve.lua.
type ServeArgs struct {
	Owner     string
	Successor string
	Lease     time.Duration
	Fenced    bool
	Track     bool
	Yield     bool
	Tag       string
	Own       int64
	Keep      time.Duration
	Publish   string
	Counts    bool
}

// LeaveQueueKeys are the keys of scripts/leave_queue.lua.
type LeaveQueueKeys struct {
	Lock    string
	Channel string
	Next    string
}

// LeaveQueueArgs are the arguments of scripts/leave_queue.lua.
type LeaveQueueArgs struct {
	Tag     string
	Publish string
}
