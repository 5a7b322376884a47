package redisproto

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// sinceShared is the key that says since when a server has its data. All locks of a scope share a key: with a key
	// for each lock, every new name would look like a lock whose record was lost.
	sinceShared = "mortise:1:since"
	// sinceKept is the time to live of the key. It is set again when half of it is over.
	sinceKept = 2 * 366 * 24 * time.Hour
)

// sinceKey returns the key of a scope. A Redis user that may write the key can keep the scope's Quorum out of the
// server, or switch the rejoin delay off.
func sinceKey(scope string) string {
	if scope == "" {
		return sinceShared
	}
	return sinceShared + ":" + scope
}

// KnowsAge implements [backend.AgeStore]. A cluster knows no age: a script may read keys of its own slot only.
func (s agedLock) KnowsAge() bool { return !s.adapter.Features().Cluster }

// aged is KnowsAge once the client is connected: a client that connects at the first command may turn out to be a
// client of a cluster.
func (s agedLock) aged(ctx context.Context) (bool, error) {
	if s.adapter.Features().Unsettled {
		if err := s.adapter.Ping(ctx); err != nil {
			return false, s.fault(err)
		}
	}
	return s.KnowsAge(), nil
}

// AcquireAged implements [backend.AgeStore].
func (s agedLock) AcquireAged(ctx context.Context, r backend.AgedRequest) (out backend.AgedReply, err error) {
	if err := s.ready(ctx); err != nil {
		return out, err
	}
	if aged, err := s.aged(ctx); err != nil {
		return out, err
	} else if !aged {
		out.AcquireReply, err = (&session{s.core}).Acquire(ctx, r.AcquireRequest)
		return out, err
	}
	if reply, held := refusedByCache(s.core, r.AcquireRequest); held {
		return backend.AgedReply{AcquireReply: reply}, nil
	}
	sent, query := time.Now(), s.seen.Begin(r.Name)
	reply, err := s.adapter.AgedAcquire(ctx, AgedAcquireKeys{
		Lock: r.Name, Since: sinceKey(r.Scope),
	}, AgedAcquireArgs{
		Owner: r.Owner, Lease: r.Lease, Age: r.Least, Keep: sinceKept, Track: s.adapter.Features().Tracking,
	})
	if err == nil && (len(reply) != 2 || reply[0] < -1 || reply[1] < 0 || reply[1] > 1) {
		err = strange("aged_acquire", reply)
	}
	if err != nil {
		s.seen.End(query)
		return out, s.fault(err)
	}
	out.Granted, out.Young = reply[0] == 0, reply[1] == 1
	if !out.Granted {
		out.Remaining = remaining(reply[0])
	}
	if !out.Granted && !out.Young && s.adapter.Features().Tracking {
		s.seen.Refused(query, sent, out.Remaining)
		return out, nil
	}
	s.seen.End(query)
	if out.Granted {
		s.seen.Forget(r.Name)
	}
	return out, nil
}
