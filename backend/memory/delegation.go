package memory

import (
	"container/heap"
	"context"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// part is one of the owners of a record.
type part struct {
	owner    string
	holds    int
	deadline time.Time
	holder   *client
}

// delegated implements [backend.DelegationStore]: owners that enter a lock under its owner.
type delegated struct{ *client }

func delegatedTopic(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindDelegated, Name: name, Owner: owner}
}

// of reports whether owner is one of r's owners.
func (r *record) of(owner string) bool { return r.owner == owner || find(r.parts, owner) >= 0 }

// alone returns the owner of a record with a single owner.
func (r *record) alone() part { return part{r.owner, r.holds, r.deadline, r.holder} }

// live returns the owners of a lock, oldest first. It removes the owners whose leases have ended, and the record if no
// owner is left.
func (s *Store) live(r *record) []part {
	if r.parts == nil {
		return []part{r.alone()}
	}
	now := time.Now()
	over := func(p part) bool { return !now.Before(p.deadline) }
	if !slices.ContainsFunc(r.parts, over) {
		return r.parts
	}
	live := slices.DeleteFunc(slices.Clone(r.parts), over)
	if len(live) == 0 {
		s.ended(r)
		return nil
	}
	s.setParts(r, live)
	return live
}

// setParts sets the owners of r, at least one. The deadline of r becomes the latest of theirs.
func (s *Store) setParts(r *record, parts []part) {
	first := parts[0]
	r.owner, r.holds, r.holder, r.deadline = first.owner, first.holds, first.holder, latest(parts)
	if r.parts = parts; len(parts) == 1 {
		r.parts = nil
	}
	heap.Fix(&s.expiries, r.index)
	s.arm()
}

// latest returns the latest deadline of parts.
func latest(parts []part) time.Time {
	return slices.MaxFunc(parts, func(a, b part) int { return a.deadline.Compare(b.deadline) }).deadline
}

// find returns the index of an owner in parts; -1 if it is not there.
func find(parts []part, owner string) int {
	return slices.IndexFunc(parts, func(p part) bool { return p.owner == owner })
}

// Enter implements [backend.DelegationStore].
func (x delegated) Enter(ctx context.Context, q backend.EnterRequest) (backend.EnterReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.EnterReply, error) { return x.enter(s, q) })
}

func (x delegated) enter(s *Store, q backend.EnterRequest) (backend.EnterReply, error) {
	r, err := s.lookup(backend.KindDelegated, q.Name)
	if err != nil {
		return backend.EnterReply{}, err
	}
	if r == nil {
		return backend.EnterReply{Absent: true}, nil
	}
	parts := s.live(r)
	if find(parts, q.Owner) < 0 {
		at := find(parts, q.Under)
		switch {
		case at < 0, parts[at].holds < q.Holds, q.Drawn > s.tokens.drawn(q.Name):
			return backend.EnterReply{Absent: true}, nil
		case at+1 < len(parts):
			return backend.EnterReply{AcquireReply: refused(latest(parts[at+1:]))}, nil
		case parts[at].holds > q.Holds:
			reply := backend.EnterReply{AcquireReply: refused(parts[at].deadline)}
			reply.AskAfter = min(reply.Remaining, backend.HoldsLook)
			return reply, nil
		}
		s.setParts(r, append(slices.Clone(parts), part{q.Owner, 1, time.Now().Add(q.Lease), x.client}))
	}
	return backend.EnterReply{AcquireReply: s.tokens.granted(q.Fenced, q.Name)}, nil
}

// Release implements [backend.DelegationStore].
func (x delegated) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.ReleaseReply, error) {
		r, err := s.lookup(backend.KindDelegated, q.Name)
		if r == nil {
			return backend.ReleaseReply{}, err
		}
		parts := slices.Clone(s.live(r))
		at := find(parts, q.Owner)
		switch {
		case at < 0:
			return backend.ReleaseReply{}, nil
		case q.Keep > 0:
			parts[at].holds = min(parts[at].holds, q.Keep) // a release that arrives late must not raise the count
			s.setParts(r, parts)
			s.watchers.tell(released, delegatedTopic(q.Name, q.Owner))
		case s.drop(r, parts, at):
			s.releasedToAll(r)
		}
		return backend.ReleaseReply{Held: true}, nil
	})
}

// drop removes the owner parts[at] from r. It reports whether that was the last owner: the lock is then free.
func (s *Store) drop(r *record, parts []part, at int) (last bool) {
	owner := parts[at].owner
	parts = slices.Delete(slices.Clone(parts), at, at+1)
	s.watchers.tell(released, delegatedTopic(r.name, owner))
	if len(parts) == 0 {
		s.remove(r)
		return true
	}
	s.setParts(r, parts)
	s.watchers.tell(released, delegatedTopic(r.name, parts[len(parts)-1].owner))
	return false
}

// leave removes an owner from r, for operations that know of one owner only. It reports whether the lock is free.
func (s *Store) leave(r *record, owner string) (free bool) {
	parts := s.live(r)
	at := find(parts, owner)
	return at >= 0 && s.drop(r, parts, at)
}

// Renew implements [backend.DelegationStore].
func (x delegated) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, x.renew)
}

func (x delegated) renew(q backend.RenewRequest) bool {
	s := x.store
	r, _ := s.lookup(backend.KindDelegated, q.Name) // foreign data is not held, as in the script
	if r == nil {
		return false
	}
	parts := slices.Clone(s.live(r))
	at := find(parts, q.Owner)
	if at < 0 {
		return false
	}
	if d := time.Now().Add(q.Lease); q.Lease > 0 && d.After(parts[at].deadline) {
		parts[at].deadline, parts[at].holder = d, x.client
		s.setParts(r, parts)
	}
	return true
}
