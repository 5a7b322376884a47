package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// store is the session: what it can do besides plain locks, and by which calls leases of each kind go.
type store struct {
	backend.Store
	can   backend.Capabilities
	kinds [backend.KindDelegated + 1]kindCalls
}

// kindCalls are the calls for leases of one kind. A kind that the store lacks has none.
type kindCalls struct {
	setHolds     func(context.Context, backend.HoldsRequest) (backend.HoldsReply, error)
	release      func(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error)
	renew        func(context.Context, []backend.RenewRequest, []backend.RenewResult)
	inspect      func(context.Context, string) (backend.Record, error)
	forceRelease func(context.Context, string) (bool, error)
}

func newStore(s backend.Store) store {
	x := store{Store: s, can: s.Capabilities()}
	plain := kindCalls{s.SetHolds, s.Release, s.Renew, s.Inspect, s.ForceRelease}
	x.kinds[backend.KindLock], x.kinds[backend.KindFair], x.kinds[backend.KindDelegated] = plain, plain, plain
	if c := x.can.Fair; c != nil {
		x.kinds[backend.KindFair].release = c.Release
	}
	if c := x.can.Delegation; c != nil {
		x.kinds[backend.KindDelegated].release, x.kinds[backend.KindDelegated].renew = c.Release, c.Renew
	}
	if c := x.can.Semaphores; c != nil {
		x.kinds[backend.KindSemaphore] = kindCalls{release: c.Release, renew: c.Renew}
	}
	if c := x.can.ReadWrite; c != nil {
		x.kinds[backend.KindRead] = kindCalls{release: c.ReleaseRead, renew: c.RenewReads}
		x.kinds[backend.KindWrite] = kindCalls{c.SetWriteHolds, c.ReleaseWrite, c.RenewWrites, c.InspectRW, c.ForceReleaseRW}
	}
	return x
}

// renew asks for more time for leases of several kinds; those of one kind stand together.
func (s *store) renew(ctx context.Context, kinds []backend.Kind, in []backend.RenewRequest, out []backend.RenewResult) {
	for n := 0; len(in) > 0; kinds, in, out = kinds[n:], in[n:], out[n:] {
		n = 1
		for n < len(in) && kinds[n] == kinds[0] {
			n++
		}
		s.kinds[kinds[0]].renew(ctx, in[:n], out[:n])
	}
}

// queues reports whether the store has a queue of the clients that wait for a topic of a kind.
func (s *store) queues(k backend.Kind) bool {
	return k == backend.KindLock && s.can.Queue != nil || s.enrols(k)
}

// lingers reports whether a topic of a kind is watched for a while though nothing waits: one with a
// queue, and one whose waiters come again.
func (s *store) lingers(k backend.Kind) bool { return s.queues(k) || k == backend.KindProclamation }

// enrols reports whether the store has a queue of the clients that wait for a topic of a kind, not that of plain locks.
func (s *store) enrols(k backend.Kind) bool {
	switch k {
	case backend.KindWrite, backend.KindCountingSemaphore, backend.KindSemaphore:
		return s.can.Enrolments != nil
	}
	return false
}

// reply is what a request that acquires came to: what all replies say, and what the replies of some kinds say besides.
type reply struct {
	backend.AcquireReply
	AskAfter  time.Duration // for fair locks and under another owner
	Available int64         // permits
	Joined    bool          // a fair lock's queue, by this request
	Claimed   bool          // by a waiting writer
	Absent    bool          // the owner that was to be entered under
	Young     bool          // the store
	Foreign   bool          // a client waits that does not enrol
	backend.QueueReply
}

// replication is what is wanted of replicas.
func (c *call) replication() backend.Replication {
	return backend.Replication{Replicas: c.Replicas.N, ReplicaWait: c.Replicas.Timeout}
}

// request sends the request of a kind that is not the plain one; q is what it has in common with that.
func (c *question) request(ctx context.Context, q backend.AcquireRequest) (r reply, err error) {
	s, replicas := &c.engine.store, q.Replication
	switch {
	case c.delegation != nil:
		x, err := s.can.Delegation.Enter(ctx, c.entering(replicas))
		return ofEnter(x), raised(err, ofEnter)
	case c.Family == backend.KindFair:
		x, err := s.can.Fair.Acquire(ctx, backend.FairRequest{AcquireRequest: q, Wait: c.place})
		return reply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Joined: x.Joined}, err
	case c.Family == backend.KindSemaphore:
		declared := &c.Limit.Declared
		x, err := s.can.Semaphores.Acquire(ctx, backend.PermitRequest{
			Name: q.Name, Owner: q.Owner, Lease: q.Lease, Limit: c.Limit.N, Declare: !declared.Load(),
			Enrolment: c.enrolment(),
		})
		if err == nil { // a refusal, too: a waiter that asks again does not undo a later limit
			declared.Store(true)
		}
		return reply{AcquireReply: x.AcquireReply, Available: x.Available, QueueReply: x.QueueReply}, err
	case c.Family == backend.KindRead:
		read := backend.ReadRequest{
			Name: q.Name, Owner: q.Owner, Lease: q.Lease, Enrolment: c.enrolment(), Replication: replicas,
		}
		if c.outer != nil {
			read.Under, read.UnderWriter = c.outer.Tenure.Owner, of(c.outer).family == backend.KindWrite
		}
		x, err := s.can.ReadWrite.AcquireRead(ctx, read)
		return reply{AcquireReply: x.AcquireReply, Absent: x.Absent, QueueReply: x.QueueReply}, err
	case c.Family == backend.KindWrite:
		write := backend.WriteRequest{
			Name: q.Name, Owner: q.Owner, Lease: q.Lease, Enrolment: c.enrolment(), Replication: replicas,
		}
		if c.marks.claims {
			write.Claim, write.Claimant = c.engine.Config.Watchdog, c.engine.Config.ID
		}
		x, err := s.can.ReadWrite.AcquireWrite(ctx, write)
		return reply{AcquireReply: x.AcquireReply, Claimed: x.Claimed, QueueReply: x.QueueReply}, err
	case c.Age != nil:
		x, err := s.can.Age.AcquireAged(ctx, backend.AgedRequest{AcquireRequest: q, Age: *c.Age})
		return reply{AcquireReply: x.AcquireReply, Young: x.Young}, err
	}
	x, err := s.can.Queue.Enrol(ctx, backend.EnrolRequest{
		AcquireRequest: q, Entry: uint64(c.asks.entry), Heard: c.marks.heard, Polls: c.Polling,
	})
	return ofEnrol(x), raised(err, ofEnrol)
}

func ofPlain(x backend.AcquireReply) reply { return reply{AcquireReply: x} }

func ofEnrol(x backend.EnrolReply) reply {
	return reply{
		AcquireReply: x.AcquireReply, Foreign: x.Foreign,
		QueueReply: backend.QueueReply{Enrolled: x.Enrolled, First: x.First},
	}
}

func ofEnter(x backend.EnterReply) reply {
	return reply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Absent: x.Absent}
}

// raised is err, with a reply of the engine's where err says that the caller has left.
func raised[R any](err error, of func(R) reply) error {
	if err == nil {
		return nil
	}
	left, is := errors.AsType[*backend.Left[R]](err)
	if !is {
		return err
	}
	return &backend.Left[reply]{Wait: func() (reply, error) {
		x, err := left.Wait()
		return of(x), err
	}}
}

// entering is what the store is asked for a lock that another owner holds.
func (c *question) entering(replicas backend.Replication) backend.EnterRequest {
	x := c.delegation
	q := backend.EnterRequest{
		Name: c.Name, Owner: c.grant.owner, Lease: c.ttl, Under: x.Owner, Holds: x.Hold, Fenced: c.Fenced && x.Token == 0,
		Replication: replicas,
	}
	if c.outer == nil { // it came from elsewhere
		q.Drawn = x.Token
	}
	return q
}
