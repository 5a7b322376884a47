package engine

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// store is the session, with its capabilities and the methods for the leases of each kind.
type store struct {
	backend.Store
	can   backend.Capabilities
	kinds [backend.KindDelegated + 1]kindCalls
}

// kindCalls are the store's methods for leases of one kind; nil if the store lacks the kind.
type kindCalls struct {
	setHolds     func(context.Context, backend.HoldsRequest) (backend.HoldsReply, error)
	release      func(context.Context, backend.ReleaseRequest) (backend.ReleaseReply, error)
	renew        func(context.Context, []backend.RenewRequest, []backend.RenewResult)
	inspect      func(context.Context, string) (backend.Record, error)
	forceRelease func(context.Context, backend.ForceRequest) (bool, error)
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

// renew renews leases of several kinds, sorted by kind, with one call for each kind.
func (s *store) renew(ctx context.Context, kinds []backend.Kind, in []backend.RenewRequest, out []backend.RenewResult) {
	for n := 0; len(in) > 0; kinds, in, out = kinds[n:], in[n:], out[n:] {
		n = 1
		for n < len(in) && kinds[n] == kinds[0] {
			n++
		}
		s.kinds[kinds[0]].renew(ctx, in[:n], out[:n])
	}
}

// busy returns an error that says why requests about a name wait before they are sent; nil if that is not known.
func (s *store) busy(name string) error {
	if s.can.Busy == nil {
		return nil
	}
	return s.can.Busy.Busy(name)
}

// queues reports whether the store has a queue for topics of a kind.
func (s *store) queues(k backend.Kind) bool {
	return k == backend.KindLock && s.can.Queue != nil || s.enrols(k)
}

// lingers reports whether topics of a kind stay watched for watchIdle after the last waiter has left: topics with a
// queue, and topics of proclamations, whose waiters come again.
func (s *store) lingers(k backend.Kind) bool { return s.queues(k) || k == backend.KindProclamation }

// enrols reports whether the store has a queue, by backend.EnrolmentStore, for topics of a kind.
func (s *store) enrols(k backend.Kind) bool {
	switch k {
	case backend.KindWrite, backend.KindCountingSemaphore, backend.KindSemaphore:
		return s.can.Enrolments != nil
	}
	return false
}

// grants reports whether a release grants a topic of a kind to the owner in an entry of its queue.
func (s *store) grants(k backend.Kind) bool { return k == backend.KindLock && s.can.Grants }

// reply is the answer to a request that acquires: the fields of all replies, and fields that only some kinds have.
type reply struct {
	backend.AcquireReply
	AskAfter  time.Duration // KindFair and KindDelegated: when to ask again without a message. KindLock: EnrolReply.Untold
	Available int64         // the number of free permits
	Joined    bool          // KindFair: the request got the last place in the queue
	Claimed   bool          // KindWrite: the refusal made a claim
	Absent    bool          // the owner to enter under holds nothing
	Young     bool          // the store is younger than the request's Age
	Foreign   bool          // a foreign client waits
	backend.QueueReply
}

// replication returns the replicas that a grant is to wait for.
func (c *call) replication() backend.Replication {
	return backend.Replication{Replicas: c.Replicas.N, ReplicaWait: c.Replicas.Timeout}
}

// request sends the request of a call that is not a plain Acquire; q has the fields that they share.
func (c *attempt) request(ctx context.Context, q backend.AcquireRequest) (r reply, err error) {
	s, replicas := &c.engine.store, q.Replication
	switch {
	case c.delegation != nil:
		x, err := s.can.Delegation.Enter(ctx, c.entering(replicas))
		return ofEnter(x), raised(err, ofEnter)
	case c.Family == backend.KindFair:
		x, err := s.can.Fair.Acquire(ctx, backend.FairRequest{AcquireRequest: q, Wait: c.keepFor})
		return reply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Joined: x.Joined}, err
	case c.Family == backend.KindSemaphore:
		x, err := c.Limit.declare(func(declare bool) (backend.PermitReply, error) {
			return s.can.Semaphores.Acquire(ctx, backend.PermitRequest{
				Name: q.Name, Owner: q.Owner, Lease: q.Lease, Limit: c.Limit.N.Load(), Declare: declare,
				Enrolment: c.enrolment(),
			})
		})
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
	enrol := backend.EnrolRequest{
		AcquireRequest: q, Entry: uint64(c.attempt.entry), Heard: c.marks.heard, Polls: c.Polling,
	}
	if s.can.Grants {
		enrol.Instead, enrol.Told = c.engine.names.asks(c.topic(), q.Owner)
	}
	x, err := s.can.Queue.Enrol(ctx, enrol)
	return ofEnrol(x), raised(err, ofEnrol)
}

func ofPlain(x backend.AcquireReply) reply { return reply{AcquireReply: x} }

func ofEnrol(x backend.EnrolReply) reply {
	return reply{
		AcquireReply: x.AcquireReply, Foreign: x.Foreign, AskAfter: x.Untold,
		QueueReply: backend.QueueReply{Enrolled: x.Enrolled, First: x.First},
	}
}

func ofEnter(x backend.EnterReply) reply {
	return reply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Absent: x.Absent}
}

// raised returns err. A *backend.Left for a reply of the backend becomes one for the engine's reply.
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

// entering returns the request to enter under the owner of the call's delegation.
func (c *attempt) entering(replicas backend.Replication) backend.EnterRequest {
	x := c.delegation
	q := backend.EnterRequest{
		Name: c.Name, Owner: c.grant.owner, Lease: c.ttl, Under: x.Owner, Holds: x.Hold, Fenced: c.Fenced && x.Token == 0,
		Replication: replicas,
	}
	if c.outer == nil { // the delegation came from another process: the store checks its token
		q.Drawn = x.Token
	}
	return q
}
