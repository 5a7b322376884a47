package redisproto

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// queueKey returns the key of a fair lock's queue: the list of its waiting owners. timesKey returns the key of the zset
// with the times at which their places are given up.
func queueKey(name string) string { return tagged("redisson_lock_queue:", name) }
func timesKey(name string) string { return tagged("redisson_lock_timeout:", name) }

// fairChannel returns the channel on which a waiting owner of a fair lock is told to ask.
func fairChannel(name, owner string) string { return channelOf(name) + ":" + owner }

func fairKeys(name string) FairReleaseKeys {
	return FairReleaseKeys{Lock: name, Queue: queueKey(name), Timeouts: timesKey(name), Channel: channelOf(name)}
}

// Acquire implements [backend.FairStore].
func (s fairLock) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.FairReply{}, err
	}
	if reply, held := refusedByCache(s.core, r.AcquireRequest); held {
		return backend.FairReply{AcquireReply: reply}, nil
	}
	c, w := s.by(r.Replication)
	if w != nil {
		reply, err := s.acquire(ctx, c, r)
		return reply, s.replicated(r.Name, w, &reply.AcquireReply, err)
	}
	return learning(s.core, r.Name, func(r backend.FairReply) backend.AcquireReply { return r.AcquireReply },
		func() (backend.FairReply, error) { return s.acquire(ctx, c, r) })
}

func (s fairLock) acquire(ctx context.Context, c Commands, r backend.FairRequest) (out backend.FairReply, err error) {
	k := fairKeys(r.Name)
	reply, err := c.FairAcquire(ctx,
		FairAcquireKeys{Lock: k.Lock, Queue: k.Queue, Timeouts: k.Timeouts, Token: tokenKey(r.Name),
			Channel: k.Channel},
		FairAcquireArgs{
			Owner: r.Owner, Lease: r.Lease, Wait: r.Wait, Fenced: r.Fenced, Track: s.adapter.Features().Tracking,
			Absence: backend.Absence, Counts: s.counts(), Publish: s.publish(),
		})
	if err != nil {
		// The script may write before it finds a key of a wrong type.
		return out, s.faultOf(err, true)
	}
	if len(reply) != 4 || reply[0] != 0 && reply[0] != 1 || reply[1] < -1 || reply[2] < -1 {
		return out, strange("fair_acquire", reply)
	}
	if out.Granted = reply[0] == 1; out.Granted {
		if r.Fenced {
			out.Token = reply[1]
		}
		return out, nil
	}
	out.Remaining, out.AskAfter, out.Joined = -1, -1, reply[3] == 1
	if reply[1] >= 0 && reply[1] <= maxMillis {
		out.Remaining = millis(reply[1])
	}
	if reply[2] >= 0 && reply[2] <= maxMillis {
		out.AskAfter = millis(reply[2])
	}
	return out, nil
}

// Release implements [backend.FairStore].
func (s fairLock) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if err := s.ready(ctx); err != nil {
		return backend.ReleaseReply{}, err
	}
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
	reply, err := s.adapter.FairLeave(ctx, FairLeaveKeys(fairKeys(r.Name)), FairLeaveArgs{
		Owner: r.Owner, Wait: r.Wait, Absence: backend.Absence, Counts: s.counts(), Publish: s.publish(),
	})
	if err == nil && (reply < 0 || reply > 3) {
		return backend.LeaveReply{}, strange("fair_leave", reply)
	}
	held, err := s.wrote(r.Name, "fair_leave", reply>>1, s.faultOf(err, true))
	return backend.LeaveReply{Queued: err == nil && reply&1 == 1, Held: held}, err
}
