package redisproto

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
)

const (
	// sinceShared says since when a server has its data. There is one for all locks of a scope: one for
	// each would make every new name look like one whose locks were lost.
	sinceShared = "mortise:1:since"
	// sinceKept is for how long it is kept; it is set anew when half of that is over.
	sinceKept = 2 * 366 * 24 * time.Hour
)

// sinceKey is the key of a scope. A user that may write it can keep the scope's Quorum out of the
// server, or switch the rule off.
func sinceKey(scope string) string {
	if scope == "" {
		return sinceShared
	}
	return sinceShared + ":" + scope
}

// KnowsAge implements [backend.AgeStore]. A cluster has no key that scripts on all
// slots may read.
func (s agedLock) KnowsAge() bool { return !s.adapter.Features().Cluster }

// aged is KnowsAge once it is known for good: a client that is built at the first command may
// turn out to be of a cluster.
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
	if left, held := s.known(r.AcquireRequest); held {
		out.Remaining = left
		return out, nil
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
