package redisproto

import (
	"context"
	"time"
)

// TurnCommands are those by which a lock goes from one to the next.
type TurnCommands interface {
	//mortise:script waiter_acquire
	WaiterAcquire(ctx context.Context, k WaiterAcquireKeys, a WaiterAcquireArgs) ([]int64, error)
	//mortise:script hand_over
	HandOver(ctx context.Context, k HandOverKeys, a HandOverArgs) ([]int64, error)
	//mortise:script step_back
	StepBack(ctx context.Context, k StepBackKeys, a StepBackArgs) (int64, error)
}

// WaiterAcquireKeys are the keys of scripts/waiter_acquire.lua.
type WaiterAcquireKeys struct {
	Lock  string
	Next  string
	Token string
}

// WaiterAcquireArgs are the arguments of scripts/waiter_acquire.lua.
type WaiterAcquireArgs struct {
	Owner  string
	Lease  time.Duration
	Fenced bool
	Track  bool
	Tag    string
	Keep   time.Duration
}

// HandOverKeys are the keys of scripts/hand_over.lua.
type HandOverKeys struct {
	Lock    string
	Channel string
	Next    string
	Token   string
}

// HandOverArgs are the arguments of scripts/hand_over.lua.
type HandOverArgs struct {
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

// StepBackKeys are the keys of scripts/step_back.lua.
type StepBackKeys struct {
	Lock    string
	Channel string
	Next    string
}

// StepBackArgs are the arguments of scripts/step_back.lua.
type StepBackArgs struct {
	Tag     string
	Publish string
}
