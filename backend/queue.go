package backend

import (
	"context"
	"time"
)

// QueueStore has a queue of the clients that wait for a plain lock. It is a capability:
// [Capabilities.Queue]. Enrol and Serve can be left where Acquire and Release can: see [Leaver].
type QueueStore interface {
	// Enrol is [Store.Acquire] of an owner that waits. A refusal enters the session into the lock's queue, or keeps
	// its entry. The topic is watched, and was confirmed to be.
	Enrol(ctx context.Context, r AcquireRequest) (EnrolReply, error)
	// Serve is [Store.Release], Keep being zero, by a session that has a waiter: it grants the lock to r.Next in the
	// same step, if the owner held it, and announces nothing; or serves the queue, where r.Yield asks for that.
	Serve(ctx context.Context, r ServeRequest) (ServeReply, error)
	// Leave takes the session out of the queue of a name: EnrolReply.Enrolled, ServeReply.Enrolled.
	// If it was told of a release, and the lock is free, another is.
	Leave(ctx context.Context, name string) error
}

// EnrolReply answers [QueueStore.Enrol].
type EnrolReply struct {
	AcquireReply
	// Enrolled tells, where refused, that the session will be told when it is to ask: releases
	// that tell another come as QueueHandler.Served.
	Enrolled bool
}

// ServeRequest releases a lock of KindLock for the next owner.
type ServeRequest struct {
	Name  string
	Owner string
	// Next is a waiter of this session, Lease and Fenced what it asks for, as in AcquireRequest.
	Next   string
	Lease  time.Duration
	Fenced bool
	// Yield asks that it be released for all, as by Release, if others than this session
	// may be waiting.
	Yield bool
	// Enrols tells, for Yield, that the session has owners that wait: it then has an entry in the queue, as after
	// a refused Enrol.
	Enrols bool
}

// ServeReply answers a ServeRequest.
type ServeReply struct {
	// Held tells whether the owner held the lock when the request arrived. It does not any more.
	Held bool
	// Granted tells that Next holds it, with Token where Fenced.
	Granted bool
	Token   int64
	// Enrolled tells that it was released, and that the session will be told when it is to ask.
	Enrolled bool
}

// QueueHandler may be implemented by a [Handler]. The others are told Released for every release.
type QueueHandler interface {
	// Served tells that t, of KindLock, was released, and that another session is to ask for it.
	Served(t Topic, p QueuePlace)
}

// QueuePlace is where a session stands in the queue behind the one that is to ask.
type QueuePlace struct {
	// Next tells that this one is to ask, if the other stays silent.
	Next bool
	// Waiting is how many sessions were told, about.
	Waiting int
}
