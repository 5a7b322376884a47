package mortise

import (
	"errors"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// ErrNotReplicated: fewer replicas than [WithReplicas] asks for had the lock in time, and it was given
// back. An error that is this one is [ErrUnavailable] too, never [ErrNotAcquired].
var ErrNotReplicated = errors.New("not replicated")

// WithReplicas has Lock and TryLock return once n replicas of the store have the lock, so that a failover
// to one of them does not lose it. If fewer have it after timeout, the lock is given back, and the
// error is [ErrNotReplicated]. n is at least one; timeout, rounded up to whole milliseconds, is
// positive and less than the lease, of which it takes its part: the lease counts from before the request was
// sent, as ever. Redisson: checkLockSyncedSlaves.
//
// It is about the acquisition, and about re-entry. Renewals are not waited for: the replicas have the lock for
// as long as the lease was when it was acquired, or last entered again, and for longer
// if they hear of renewals, as they do unless they are cut off. Neither are releases: one that the new master
// has not heard of leaves the lock held there until its lease is over. docs/guarantees.md says what a failover can
// still lose. A fencing token that was drawn for a lock that is given back stays drawn.
//
// For all kinds of locks, in [LockAll] for each part, which then costs a request of its own. Not for
// [Red], whose majority does without, permits, semaphores and latches. [ErrInvalid] for those, and with a
// backend that has no replicas.
//
// Cost: a second command, WAIT, in the same round trip, and the time that replication takes. A
// refusal costs as much; that of TryLock which needs no command is as quick as ever. A request occupies a connection
// while it is on its way: on go-redis of its pool, of which half is used for that at most, on
// rueidis and valkey-go of those for commands that block. Who waits with this option is not handed the lock inside
// its client, but asks for it when it is released.
func WithReplicas(n int, timeout time.Duration) Option {
	return replicasOption{n, timeout}
}

type replicasOption struct {
	n       int
	timeout time.Duration
}

func (o replicasOption) apply(r *request) error {
	switch {
	case o.n < 1:
		return fmt.Errorf("%w: WithReplicas(%d, %v): at least one replica; leave it out to wait for none", ErrInvalid, o.n, o.timeout)
	case o.timeout <= 0 || o.timeout > MaxLease:
		return fmt.Errorf("%w: WithReplicas(%d, %v): the timeout is positive and less than the lease", ErrInvalid, o.n, o.timeout)
	}
	switch r.family {
	case backend.KindLatch, backend.KindSemaphore, backend.KindPermits:
		return fmt.Errorf("%w: WithReplicas does not apply to %s, only to locks", ErrInvalid, r.op())
	}
	r.replicas = replicasOption{o.n, ceilMilli(o.timeout)}
	return nil
}

// canReplicate tells what stands in the way of a call that wants replicas, once its lease is known.
func (c *Client) canReplicate(r *request) error {
	if r.replicas.n == 0 {
		return nil
	}
	if s, can := c.session.(backend.ReplicaSession); !can || !s.Replicates() {
		return fmt.Errorf("%w: WithReplicas does not apply: the backend (%T) has no replicas that can be waited for; those of redisgo (with a *redis.Client or *redis.ClusterClient), rueidis and valkey have", ErrInvalid, c.session)
	}
	if r.replicas.timeout >= r.ttl {
		return fmt.Errorf("%w: WithReplicas(%d, %v): the timeout is to be less than the lease, which is %v", ErrInvalid, r.replicas.n, r.replicas.timeout, r.ttl)
	}
	return nil
}

// lacks is why a request that was granted has not got the replicas that it wants; nil if it has.
func (r *request) lacks(replicas int) error {
	if replicas >= r.replicas.n {
		return nil
	}
	return &backend.Fault{
		Err:    fmt.Errorf("%w: %d of %d replicas had it within %v, so it was given back", ErrNotReplicated, replicas, r.replicas.n, r.replicas.timeout),
		Remedy: "INFO replication on the master tells how many there are and how far behind; bring them back, or ask for fewer, or give them more time",
	}
}

// require gives back what an owner was granted, if too few replicas have it.
func (c *Client) require(r *request, owner string, g *grant) {
	if g.err != nil || !g.granted {
		return
	}
	lacks := r.lacks(g.replicas)
	if lacks == nil {
		return
	}
	g.granted, g.err = false, lacks
	if _, _, err := c.sendRelease(backend.ReleaseRequest{Kind: r.family, Name: r.name, Owner: owner}); err != nil {
		g.late, g.lateUntil = g.late+1, max(g.lateUntil, c.now().mono+int64(r.ttl))
	}
}

// replicaGateWidth bounds the acquisitions on their way that wait for replicas. They have a gate of their
// own: replicas that do not answer hold up nobody else.
const replicaGateWidth = 64

// gateOf is the gate that an acquisition goes through, always the same for one call.
func (c *Client) gateOf(r *request) *gate {
	if r.gate != nil {
		return r.gate
	}
	key := gateKey{c.node(r.name), r.replicas.n > 0}
	if key == (gateKey{}) {
		r.gate = &c.gate
		return r.gate
	}
	g, ok := c.gates.Load(key)
	if !ok {
		width := gateWidth
		if key.replicas {
			width = replicaGateWidth
		}
		g, _ = c.gates.LoadOrStore(key, &gate{width: width})
	}
	r.gate = g.(*gate)
	return r.gate
}

// gateKey names what a gate is for.
type gateKey struct {
	node     int
	replicas bool
}

// leavable tells whether a request's caller can leave the session.
func (c *Client) leavable(r *request) bool { return r.replicas.n == 0 && c.leaves(r.family) }
