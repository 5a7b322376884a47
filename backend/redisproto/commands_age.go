package redisproto

import (
	"context"
	"time"
)

// AgeCommands is the script of locks that ask for a server's age.
type AgeCommands interface {
	//mortise:script aged_acquire
	AgedAcquire(ctx context.Context, k AgedAcquireKeys, a AgedAcquireArgs) ([]int64, error)
}

// AgedAcquireKeys are the keys of scripts/aged_acquire.lua.
type AgedAcquireKeys struct {
	Lock  string
	Since string
}

// AgedAcquireArgs are the arguments of scripts/aged_acquire.lua.
type AgedAcquireArgs struct {
	Owner string
	Lease time.Duration
	Age   time.Duration
	Keep  time.Duration
	Track bool
}
