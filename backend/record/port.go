package record

import (
	"context"

	"github.com/mortise-go/mortise/backend"
)

// Locks has the operations of plain locks of [backend.Store]. The operations of other kinds are in components: types
// that share the session.
type Locks struct{ by *session }

// Over returns the operations of a session whose store is elsewhere.
func Over(a Asker) Locks { return Locks{&session{asker: a, known: new(Known)}} }

// Within returns the operations of a session whose store is in the same process, and knows k.
func Within(h Holder, k *Known) Locks { return Locks{&session{holder: h, known: k}} }

// Capabilities returns the components of all kinds.
func (x Locks) Capabilities() backend.Capabilities {
	s, c := x.by, counts{x.by}
	return backend.Capabilities{
		ReadWrite: sides{s}, Fair: fair{s}, Delegation: delegated{s}, Queue: queue{s}, Grants: true, Enrolments: enrolling{s},
		CountDownLatches: c, CountingSemaphores: semaphores{c}, Semaphores: permits{semaphores{c}},
		Ticks: ticks{s}, Proclamations: proclaimed{s}, Operator: operator{s},
	}
}

// Acquire implements [backend.Store].
func (x Locks) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return on(ctx, ofLock(x.by, backend.KindLock, q.Name), q, (*Lock).Acquire)
}

// SetHolds implements [backend.Store].
func (x Locks) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return on(ctx, ofLock(x.by, AnyLock, q.Name), q, (*Lock).SetHolds)
}

// Release implements [backend.Store].
func (x Locks) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, ofLock(x.by, AnyLock, q.Name), q, (*Lock).Release)
}

// Renew implements [backend.Store].
func (x Locks) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.by.Renew(ctx, in, out)
}

// Renew implements [backend.DelegationStore], and that of plain locks.
func (x *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renew(ctx, ofLock(x, AnyData, ""), in, out, (*Lock).Renew)
}

// Inspect implements [backend.Store].
func (x Locks) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return on(ctx, ofLock(x.by, backend.KindLock, name), none{},
		func(l *Lock, s *Step, _ none) backend.Record { return l.Inspect(s) })
}

// ForceRelease implements [backend.Store].
func (x Locks) ForceRelease(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return on(ctx, ofLock(x.by, backend.KindLock, q.Name), q, (*Lock).ForceRelease)
}

// operator implements [backend.OperatorStore].
type operator struct{ *session }

// Describe implements [backend.OperatorStore].
func (x operator) Describe(ctx context.Context, q backend.DescribeRequest) (backend.Description, error) {
	return on(ctx, ofName(x.session, AnyRecord, q.Name), q.Entries, (*Name).Describe)
}

// queue implements [backend.QueueStore].
type queue struct{ *session }

// Enrol implements [backend.QueueStore].
func (x queue) Enrol(ctx context.Context, q backend.EnrolRequest) (backend.EnrolReply, error) {
	return on(ctx, ofLock(x.session, backend.KindLock, q.Name), q, (*Lock).Enrol)
}

// Serve implements [backend.QueueStore].
func (x queue) Serve(ctx context.Context, q backend.ServeRequest) (backend.ServeReply, error) {
	return on(ctx, ofLock(x.session, AnyLock, q.Name), q, (*Lock).Serve)
}

// Leave implements [backend.QueueStore].
func (x queue) Leave(ctx context.Context, q backend.LeaveEntryRequest) error {
	_, err := on(ctx, ofLock(x.session, AnyData, q.Name), q, func(l *Lock, s *Step, q backend.LeaveEntryRequest) none {
		l.Leave(s, q.Owner)
		return none{}
	})
	return err
}

// fair implements [backend.FairStore].
type fair struct{ *session }

// Acquire implements [backend.FairStore].
func (x fair) Acquire(ctx context.Context, q backend.FairRequest) (backend.FairReply, error) {
	return on(ctx, ofLock(x.session, backend.KindLock, q.Name), q, (*Lock).AcquireFair)
}

// Release implements [backend.FairStore].
func (x fair) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, ofLock(x.session, AnyLock, q.Name), q, (*Lock).ReleaseFair)
}

// Leave implements [backend.FairStore]. Data that is no lock counts as not held, as in the script on Redis.
func (x fair) Leave(ctx context.Context, q backend.LeaveRequest) (backend.LeaveReply, error) {
	return on(ctx, ofLock(x.session, AnyData, q.Name), q,
		func(l *Lock, s *Step, q backend.LeaveRequest) backend.LeaveReply { return l.LeaveFair(s, q.Owner) })
}

// delegated implements [backend.DelegationStore].
type delegated struct{ *session }

// Enter implements [backend.DelegationStore].
func (x delegated) Enter(ctx context.Context, q backend.EnterRequest) (backend.EnterReply, error) {
	return on(ctx, ofLock(x.session, backend.KindLock, q.Name), q, (*Lock).Enter)
}

// Release implements [backend.DelegationStore].
func (x delegated) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, ofLock(x.session, backend.KindLock, q.Name), q, (*Lock).ReleaseDelegated)
}

// sides implements [backend.ReadWriteStore].
type sides struct{ *session }

// AcquireRead implements [backend.ReadWriteStore]. An owner of another kind of lock holds no side to enter under.
func (x sides) AcquireRead(ctx context.Context, q backend.ReadRequest) (backend.ReadReply, error) {
	kind := backend.KindRead
	if q.Under != "" {
		kind = AnyLock
	}
	return on(ctx, ofSides(x.session, kind, q.Name), q, (*Sides).AcquireRead)
}

// AcquireWrite implements [backend.ReadWriteStore].
func (x sides) AcquireWrite(ctx context.Context, q backend.WriteRequest) (backend.WriteReply, error) {
	return on(ctx, ofSides(x.session, backend.KindWrite, q.Name), q, (*Sides).AcquireWrite)
}

// SetWriteHolds implements [backend.ReadWriteStore].
func (x sides) SetWriteHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return on(ctx, ofSides(x.session, AnyLock, q.Name), q, (*Sides).SetWriteHolds)
}

// ReleaseRead implements [backend.ReadWriteStore].
func (x sides) ReleaseRead(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, ofSides(x.session, AnyLock, q.Name), q, (*Sides).ReleaseRead)
}

// ReleaseWrite implements [backend.ReadWriteStore].
func (x sides) ReleaseWrite(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return on(ctx, ofSides(x.session, AnyLock, q.Name), q, (*Sides).ReleaseWrite)
}

// RenewReads implements [backend.ReadWriteStore].
func (x sides) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renew(ctx, ofSides(x.session, AnyData, ""), in, out, (*Sides).RenewRead)
}

// RenewWrites implements [backend.ReadWriteStore].
func (x sides) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	renew(ctx, ofSides(x.session, AnyData, ""), in, out, (*Sides).RenewWrite)
}

// InspectRW implements [backend.ReadWriteStore].
func (x sides) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	return on(ctx, ofSides(x.session, backend.KindWrite, name), none{},
		func(l *Sides, s *Step, _ none) backend.Record { return l.Inspect(s) })
}

// ForceReleaseRW implements [backend.ReadWriteStore].
func (x sides) ForceReleaseRW(ctx context.Context, q backend.ForceRequest) (bool, error) {
	return on(ctx, ofSides(x.session, backend.KindWrite, q.Name), q, (*Sides).ForceRelease)
}

// Withdraw implements [backend.ReadWriteStore].
func (x sides) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := on(ctx, ofSides(x.session, AnyData, name), claimant, func(l *Sides, s *Step, claimant string) none {
		l.Withdraw(s, claimant)
		return none{}
	})
	return err
}

// enrolling implements [backend.EnrolmentStore].
type enrolling struct{ *session }

// LeaveQueue implements [backend.EnrolmentStore].
func (x enrolling) LeaveQueue(ctx context.Context, t backend.Topic, entry uint64, owner string) (err error) {
	if t.Kind == backend.KindWrite {
		_, err = on(ctx, ofSides(x.session, AnyData, t.Name), owner, func(l *Sides, s *Step, owner string) none {
			l.Leave(s, entry, owner)
			return none{}
		})
		return err
	}
	_, err = on(ctx, ofPermits(x.session, AnyData, t.Name), owner, func(p *Permits, s *Step, owner string) none {
		p.Leave(s, entry, owner)
		return none{}
	})
	return err
}

// proclaimed implements [backend.ProclamationStore]. The text is a part of the lock's name.
type proclaimed struct{ *session }

// Proclaim implements [backend.ProclamationStore].
func (x proclaimed) Proclaim(ctx context.Context, q backend.ProclaimRequest) (bool, error) {
	return on(ctx, ofName(x.session, AnyLock, q.Name), q, func(n *Name, s *Step, q backend.ProclaimRequest) bool {
		held := n.Lock.Left(s, q.Owner) > 0
		if held {
			n.Said.Proclaim(s, q)
		}
		return held
	})
}

// Proclaimed implements [backend.ProclamationStore].
func (x proclaimed) Proclaimed(ctx context.Context, name string) (backend.Proclamation, error) {
	return on(ctx, ofName(x.session, AnyLock, name), none{}, func(n *Name, s *Step, _ none) (p backend.Proclamation) {
		if left := n.Lock.Left(s, n.Said.Owner); left > 0 && n.Said.Text != "" {
			p = backend.Proclamation{Owner: n.Said.Owner, Token: n.Said.Token, Text: n.Said.Text, Remaining: left}
		}
		return p
	})
}

// ticks implements [backend.TickStore]. A schedule has a name of its own.
type ticks struct{ *session }

// ClaimTick implements [backend.TickStore].
func (x ticks) ClaimTick(ctx context.Context, q backend.TickRequest) (backend.TickReply, error) {
	return on(ctx, ofName(x.session, backend.KindLock, "mortise:1:tick:{"+q.Name+"}"), q,
		func(n *Name, s *Step, q backend.TickRequest) backend.TickReply { return n.Tick.Claim(s, q, s.Wall) })
}
