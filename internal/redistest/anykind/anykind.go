// Package anykind lets a test say the kind of a lock in its request: one test then goes through all kinds. The port
// has a request for each kind, and this package finds the call that belongs to it.
package anykind

import (
	"context"
	"errors"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Store is a session.
type Store struct{ backend.Store }

// AcquireRequest is a request of Kind, with what any kind may ask for besides.
type AcquireRequest struct {
	Kind        backend.Kind
	Name, Owner string
	Lease       time.Duration
	Fenced      bool
	Unasked     bool
	Enrols      bool          // KindLock
	Age         *backend.Age  // KindLock
	Wait        time.Duration // KindFair
	Under       string        // KindRead
	UnderKind   backend.Kind
	Claim       time.Duration // KindWrite
	Claimant    string
	Replicas    int
	ReplicaWait time.Duration
}

// AcquireReply is what the replies of all kinds say.
type AcquireReply struct {
	backend.AcquireReply
	AskAfter                         time.Duration
	Joined                           bool
	Available                        int64
	Claimed, Absent, Young, Enrolled bool
}

// ReleaseRequest is a release of Kind.
type ReleaseRequest struct {
	Kind        backend.Kind
	Name, Owner string
	Keep        int
	Undo        bool
}

// RenewRequest is a renewal of Kind.
type RenewRequest struct {
	Kind        backend.Kind
	Name, Owner string
	Lease       time.Duration
	Exact       bool
	Had         time.Duration
}

// HoldsRequest is a re-entry of Kind.
type HoldsRequest struct {
	Kind        backend.Kind
	Name, Owner string
	Holds       int
	Lease       time.Duration
	Fenced      bool
	Replicas    int
	ReplicaWait time.Duration
}

// errLacks is the error of a call that the kind, or the store, does not have.
var errLacks = &backend.Fault{Err: errors.New("the store has no such call for this kind")}

// Plain is the request for a plain lock.
func (r AcquireRequest) Plain() backend.AcquireRequest {
	return backend.AcquireRequest{Name: r.Name, Owner: r.Owner, Lease: r.Lease, Fenced: r.Fenced, Unasked: r.Unasked,
		Replication: backend.Replication{Replicas: r.Replicas, ReplicaWait: r.ReplicaWait}}
}

// Acquire sends a request.
func (s Store) Acquire(ctx context.Context, r AcquireRequest) (out AcquireReply, err error) {
	can, q := s.Capabilities(), r.Plain()
	switch {
	case r.Kind == backend.KindSemaphore:
		x, err := can.Semaphores.Acquire(ctx, backend.PermitRequest{Name: r.Name, Owner: r.Owner, Lease: r.Lease})
		return AcquireReply{AcquireReply: x.AcquireReply, Available: x.Available}, err
	case r.Kind == backend.KindFair:
		x, err := can.Fair.Acquire(ctx, backend.FairRequest{AcquireRequest: q, Wait: r.Wait})
		return AcquireReply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Joined: x.Joined}, err
	case r.Kind == backend.KindRead:
		x, err := can.ReadWrite.AcquireRead(ctx, backend.ReadRequest{Name: r.Name, Owner: r.Owner, Lease: r.Lease,
			Under: r.Under, UnderWriter: r.UnderKind == backend.KindWrite, Replication: q.Replication})
		return AcquireReply{AcquireReply: x.AcquireReply, Absent: x.Absent}, err
	case r.Kind == backend.KindWrite:
		x, err := can.ReadWrite.AcquireWrite(ctx, backend.WriteRequest{Name: r.Name, Owner: r.Owner, Lease: r.Lease,
			Claim: r.Claim, Claimant: r.Claimant, Replication: q.Replication})
		return AcquireReply{AcquireReply: x.AcquireReply, Claimed: x.Claimed}, err
	case r.Age != nil:
		x, err := can.Age.AcquireAged(ctx, backend.AgedRequest{AcquireRequest: q, Age: *r.Age})
		return AcquireReply{AcquireReply: x.AcquireReply, Young: x.Young}, err
	case r.Enrols:
		x, err := can.Queue.Enrol(ctx, backend.EnrolRequest{AcquireRequest: q, Entry: 1})
		return AcquireReply{AcquireReply: x.AcquireReply, Enrolled: x.Enrolled}, err
	}
	x, err := s.Store.Acquire(ctx, q)
	return AcquireReply{AcquireReply: x}, err
}

// Enter enters under another owner.
func (s Store) Enter(ctx context.Context, r backend.EnterRequest) (AcquireReply, error) {
	x, err := s.Capabilities().Delegation.Enter(ctx, r)
	return AcquireReply{AcquireReply: x.AcquireReply, AskAfter: x.AskAfter, Absent: x.Absent}, err
}

// SetHolds sets a hold count.
func (s Store) SetHolds(ctx context.Context, r HoldsRequest) (backend.HoldsReply, error) {
	q := backend.HoldsRequest{Name: r.Name, Owner: r.Owner, Holds: r.Holds, Lease: r.Lease, Fenced: r.Fenced,
		Replication: backend.Replication{Replicas: r.Replicas, ReplicaWait: r.ReplicaWait}}
	switch r.Kind {
	case backend.KindRead, backend.KindSemaphore:
		return backend.HoldsReply{}, errLacks
	case backend.KindWrite:
		return s.Capabilities().ReadWrite.SetWriteHolds(ctx, q)
	}
	return s.Store.SetHolds(ctx, q)
}

// Release sends a release.
func (s Store) Release(ctx context.Context, r ReleaseRequest) (backend.ReleaseReply, error) {
	release, can := s.Store.Release, s.Capabilities()
	switch r.Kind {
	case backend.KindSemaphore:
		release = can.Semaphores.Release
	case backend.KindFair:
		release = can.Fair.Release
	case backend.KindRead:
		release = can.ReadWrite.ReleaseRead
	case backend.KindWrite:
		release = can.ReadWrite.ReleaseWrite
	case backend.KindDelegated:
		release = can.Delegation.Release
	}
	return release(ctx, backend.ReleaseRequest{Name: r.Name, Owner: r.Owner, Keep: r.Keep, Undo: r.Undo})
}

// Renew sends renewals, those of one kind that stand together by one call.
func (s Store) Renew(ctx context.Context, in []RenewRequest, out []backend.RenewResult) {
	can := s.Capabilities()
	for n := 0; len(in) > 0; in, out = in[n:], out[n:] {
		var same []backend.RenewRequest
		for n = 0; n < len(in) && in[n].Kind == in[0].Kind; n++ {
			same = append(same, backend.RenewRequest{Name: in[n].Name, Owner: in[n].Owner, Lease: in[n].Lease,
				Exact: in[n].Exact, Had: in[n].Had})
		}
		renew := s.Store.Renew
		switch in[0].Kind {
		case backend.KindSemaphore:
			renew = can.Semaphores.Renew
		case backend.KindRead:
			renew = can.ReadWrite.RenewReads
		case backend.KindWrite:
			renew = can.ReadWrite.RenewWrites
		case backend.KindDelegated:
			renew = can.Delegation.Renew
		}
		renew(ctx, same, out[:n])
	}
}

// Inspect reads a record.
func (s Store) Inspect(ctx context.Context, t backend.Topic) (backend.Record, error) {
	if sided(t) {
		return s.Capabilities().ReadWrite.InspectRW(ctx, t.Name)
	}
	return s.Store.Inspect(ctx, t.Name)
}

// ForceRelease removes a record; with t.Owner only if this owner holds the lock.
func (s Store) ForceRelease(ctx context.Context, t backend.Topic) (bool, error) {
	r := backend.ForceRequest{Name: t.Name, Owner: t.Owner}
	if sided(t) {
		return s.Capabilities().ReadWrite.ForceReleaseRW(ctx, r)
	}
	return s.Store.ForceRelease(ctx, r)
}

func sided(t backend.Topic) bool { return t.Kind == backend.KindRead || t.Kind == backend.KindWrite }

// counts is what counts of every kind have, but that latches only count down.
type counts interface {
	SetCount(context.Context, backend.CountRequest) (bool, error)
	Count(context.Context, backend.Topic) (int64, error)
}

func (s Store) counts(k backend.Kind) counts {
	switch can := s.Capabilities(); k {
	case backend.KindCountDownLatch:
		return can.CountDownLatches
	case backend.KindSemaphore:
		return can.Semaphores
	default:
		return can.CountingSemaphores
	}
}

// SetCount makes a count.
func (s Store) SetCount(ctx context.Context, r backend.CountRequest) (bool, error) {
	return s.counts(r.Topic.Kind).SetCount(ctx, r)
}

// Count reads a count.
func (s Store) Count(ctx context.Context, t backend.Topic) (int64, error) {
	return s.counts(t.Kind).Count(ctx, t)
}

// AddCount changes a count of permits.
func (s Store) AddCount(ctx context.Context, r backend.CountRequest) (int64, error) {
	if r.Topic.Kind == backend.KindSemaphore {
		return s.Capabilities().Semaphores.AddCount(ctx, r)
	}
	return s.Capabilities().CountingSemaphores.AddCount(ctx, r)
}
