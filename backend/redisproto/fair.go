package redisproto

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// queueKey is the list of the waiters for a fair lock, timesKey the zset of when
// their places are given up.
func queueKey(name string) string { return tagged("redisson_lock_queue:", name) }
func timesKey(name string) string { return tagged("redisson_lock_timeout:", name) }

// fairChannel is where a waiter for a fair lock is told that it is next.
func fairChannel(name, owner string) string { return channelOf(name) + ":" + owner }

// recheck is when a waiter asks again though the lock is held, where the store cannot count the clients that it told: those
// before it may all be dead, and the release may have reached none.
const recheck = 5 * time.Second

func fairKeys(name string) FairKeys {
	return FairKeys{Lock: name, Queue: queueKey(name), Timeouts: timesKey(name), Channel: channelOf(name)}
}

func (s fairLock) acquireFair(ctx context.Context, c Commands, r backend.AcquireRequest,
	track bool) (backend.AcquireReply, error) {
	k := fairKeys(r.Name)
	reply, err := c.FairAcquire(ctx,
		FairAcquireKeys{Lock: k.Lock, Queue: k.Queue, Timeouts: k.Timeouts, Token: tokenKey(r.Name),
			Channel: k.Channel},
		FairAcquireArgs{
			Owner: r.Owner, Lease: r.Lease, Wait: r.Wait, Fenced: r.Fenced, Track: track,
			Absence: backend.Absence, Counts: s.counts(), Publish: s.publish(),
		})
	if err != nil {
		// It writes before it can meet a key of a wrong type.
		return backend.AcquireReply{}, s.faultOf(err, true)
	}
	if len(reply) != 3 || reply[0] != 0 && reply[0] != 1 || reply[1] < -1 || reply[2] < -1 {
		return backend.AcquireReply{}, strange("fair_acquire", reply)
	}
	if reply[0] == 1 {
		out := backend.AcquireReply{Granted: true}
		if r.Fenced {
			out.Token = reply[1]
		}
		return out, nil
	}
	out := backend.AcquireReply{Remaining: -1, Look: -1}
	if reply[1] >= 0 && reply[1] <= maxMillis {
		out.Remaining = millis(reply[1])
	}
	if reply[2] >= 0 && reply[2] <= maxMillis {
		out.Look = millis(reply[2])
	}
	if !s.counts() && reply[1] != reply[2] && out.Look > recheck { // it is not the first
		out.Look = recheck
	}
	return out, nil
}

func (s fairLock) releaseFair(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	reply, err := s.adapter.FairRelease(ctx, fairKeys(r.Name), FairReleaseArgs{
		Owner: r.Owner, Keep: int64(r.Keep), Absence: backend.Absence, Counts: s.counts(), Publish: s.publish(),
	})
	held, err := s.wrote(r.Name, "fair_release", reply, s.faultOf(err, true))
	return backend.ReleaseReply{Held: held}, err
}

// Leave implements [backend.FairStore].
func (s fairLock) Leave(ctx context.Context, r backend.LeaveRequest) (backend.LeaveReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.LeaveReply{}, err
	}
	reply, err := s.adapter.FairLeave(ctx, fairKeys(r.Name), FairLeaveArgs{
		Owner: r.Owner, Wait: r.Wait, Absence: backend.Absence, Counts: s.counts(), Publish: s.publish(),
	})
	if err == nil && (reply < 0 || reply > 3) {
		return backend.LeaveReply{}, strange("fair_leave", reply)
	}
	held, err := s.wrote(r.Name, "fair_leave", reply>>1, s.faultOf(err, true))
	return backend.LeaveReply{Queued: err == nil && reply&1 == 1, Held: held}, err
}
