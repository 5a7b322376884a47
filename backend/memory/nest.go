package memory

import (
	"container/heap"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.NestSession = (*session)(nil)

// part is one of several owners of a record.
type part struct {
	owner    string
	holds    int
	deadline time.Time
	holder   *session
}

// Nests implements [backend.NestSession].
func (x *session) Nests() bool { return true }

func nestTopic(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindNested, Name: name, Owner: owner}
}

// of tells whether an owner is among r's.
func (r *record) of(owner string) bool { return r.owner == owner || find(r.nest, owner) >= 0 }

// alone is the one owner of a record that has no others.
func (r *record) alone() part { return part{r.owner, r.holds, r.deadline, r.holder} }

// parts are the owners of a lock, in the order in which they came. Those whose leases are over are
// taken out. There may be none: then the record is gone.
func (s *Store) parts(r *record) []part {
	if r.nest == nil {
		return []part{r.alone()}
	}
	now := time.Now()
	over := func(p part) bool { return !now.Before(p.deadline) }
	if !slices.ContainsFunc(r.nest, over) {
		return r.nest
	}
	live := slices.DeleteFunc(slices.Clone(r.nest), over)
	if len(live) == 0 {
		s.remove(r)
		s.changed(r)
		return nil
	}
	s.setParts(r, live)
	return live
}

// setParts has r be of these owners, one at least: its time is the longest of theirs.
func (s *Store) setParts(r *record, parts []part) {
	first := parts[0]
	r.owner, r.holds, r.holder, r.deadline = first.owner, first.holds, first.holder, first.deadline
	for _, p := range parts {
		if p.deadline.After(r.deadline) {
			r.deadline = p.deadline
		}
	}
	if r.nest = parts; len(parts) == 1 {
		r.nest = nil
	}
	heap.Fix(&s.expiries, r.index)
	s.arm()
}

// find tells where an owner is among parts; -1 if it is not.
func find(parts []part, owner string) int {
	return slices.IndexFunc(parts, func(p part) bool { return p.owner == owner })
}

// lock is the live record of a reentrant lock, or nil, and an error if name is in use for something else.
func (s *Store) lock(name string) (*record, error) {
	r := s.find(name)
	if r != nil && (r.foreign || r.sides != nil) {
		return nil, wrongKind(r)
	}
	return r, nil
}

func (x *session) acquireNested(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r, err := s.lock(q.Name)
	if err != nil {
		return backend.AcquireReply{}, err
	}
	absent := backend.AcquireReply{Absent: true}
	if r == nil {
		return absent, nil
	}
	parts := s.parts(r)
	granted := func() (backend.AcquireReply, error) {
		reply := backend.AcquireReply{Granted: true}
		if q.Fenced {
			reply.Token = s.tokens.next(q.Name)
		}
		return reply, nil
	}
	if find(parts, q.Owner) >= 0 {
		return granted()
	}
	at := find(parts, q.Under)
	switch {
	case at < 0, parts[at].holds < q.UnderHolds, q.UnderToken > s.tokens.drawn(q.Name):
		return absent, nil
	case at+1 < len(parts):
		var last time.Time
		for _, p := range parts[at+1:] {
			if p.deadline.After(last) {
				last = p.deadline
			}
		}
		return backend.AcquireReply{Remaining: remaining(last)}, nil
	case parts[at].holds > q.UnderHolds:
		left := remaining(parts[at].deadline)
		return backend.AcquireReply{Remaining: left, Look: min(left, backend.HoldsLook)}, nil
	}
	s.setParts(r, append(slices.Clone(parts), part{q.Owner, 1, time.Now().Add(q.Lease), x}))
	return granted()
}

func (x *session) releaseNested(q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	s := x.store
	r, err := s.lock(q.Name)
	if r == nil {
		return backend.ReleaseReply{}, err
	}
	parts := slices.Clone(s.parts(r))
	at := find(parts, q.Owner)
	if at < 0 {
		return backend.ReleaseReply{}, nil
	}
	if q.Keep > 0 {
		parts[at].holds = q.Keep
		s.setParts(r, parts)
		s.tellReleased(nestTopic(q.Name, q.Owner))
		return backend.ReleaseReply{Held: true}, nil
	}
	if s.drop(r, parts, at) {
		s.releasedToAll(r)
	}
	return backend.ReleaseReply{Held: true}, nil
}

// drop takes one of its owners out of r, and tells whether it was the last: then the lock is free.
func (s *Store) drop(r *record, parts []part, at int) (last bool) {
	owner := parts[at].owner
	parts = slices.Delete(slices.Clone(parts), at, at+1)
	s.tellReleased(nestTopic(r.name, owner))
	if len(parts) == 0 {
		s.remove(r)
		return true
	}
	s.setParts(r, parts)
	s.tellReleased(nestTopic(r.name, parts[len(parts)-1].owner))
	return false
}

// leave takes an owner out of r that does not know of others, and tells whether the lock is free.
func (s *Store) leave(r *record, owner string) (free bool) {
	parts := s.parts(r)
	at := find(parts, owner)
	return at < 0 || s.drop(r, parts, at)
}

func (x *session) renewNested(q backend.RenewRequest) bool {
	s := x.store
	r, _ := s.lock(q.Name) // foreign data is not held, as in the script
	if r == nil {
		return false
	}
	parts := slices.Clone(s.parts(r))
	at := find(parts, q.Owner)
	if at < 0 {
		return false
	}
	if d := time.Now().Add(q.Lease); q.Lease > 0 && d.After(parts[at].deadline) {
		parts[at].deadline, parts[at].holder = d, x
		s.setParts(r, parts)
	}
	return true
}
