package memory

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// sides is what a record holds that is a read-write lock. To a lock's operations it
// is a record with no owner.
type sides struct {
	writer  string // the owner that holds it for writing; "" if there is none
	holds   int    // by writer
	by      *client
	readers map[string]*reader
}

type reader struct {
	deadline time.Time
	by       *client
}

// claim is a waiting writer's.
type claim struct {
	by    string
	until time.Time
}

// rwTopic is the topic of both sides.
func rwTopic(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindWrite, Name: name}
}

func isSide(k backend.Kind) bool { return k == backend.KindRead || k == backend.KindWrite }

// sided has the operations of the two sides of a read-write lock.
type sided struct{ *client }

func (x sided) acquireRead(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r, err := s.lookup(q.Kind, q.Name)
	if err != nil {
		if r := s.find(q.Name); q.Under != "" && r != nil && !r.foreign {
			return backend.AcquireReply{Absent: true}, nil // a lock: it is held by no side
		}
		return backend.AcquireReply{}, err
	}
	switch {
	case r != nil && r.reads(q.Owner):
		return backend.AcquireReply{Granted: true}, nil
	case q.Under != "":
		if r == nil || !r.heldBy(q.UnderKind, q.Under) {
			return backend.AcquireReply{Absent: true}, nil
		}
	case r != nil && r.sides.writer != "":
		return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
	default:
		if c, ok := s.claims[q.Name]; ok && time.Now().Before(c.until) {
			return backend.AcquireReply{Remaining: remaining(c.until)}, nil
		}
	}
	hold := &reader{deadline: time.Now().Add(q.Lease), by: x.client}
	if r == nil {
		s.put(&record{name: q.Name, sides: &sides{readers: map[string]*reader{q.Owner: hold}}}, q.Lease)
		return backend.AcquireReply{Granted: true}, nil
	}
	r.sides.readers[q.Owner] = hold
	s.extend(r, q.Lease)
	return backend.AcquireReply{Granted: true}, nil
}

func (x sided) acquireWrite(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r, err := s.lookup(q.Kind, q.Name)
	switch {
	case err != nil:
		return backend.AcquireReply{}, err
	case r == nil:
		if s.claims[q.Name].by == q.Claimant {
			delete(s.claims, q.Name)
		}
		held := &sides{writer: q.Owner, holds: 1, by: x.client, readers: make(map[string]*reader)}
		s.put(&record{name: q.Name, sides: held}, q.Lease)
		return backend.AcquireReply{Granted: true}, nil
	case r.sides.writer == q.Owner:
		return backend.AcquireReply{Granted: true}, nil
	case r.sides.writer == "" && q.Claim > 0:
		s.claims.write(q.Name, claim{q.Claimant, time.Now().Add(q.Claim)})
		return backend.AcquireReply{Remaining: remaining(r.deadline), Claimed: true}, nil
	}
	return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
}

// claims are the claims of waiting writers, by name.
type claims map[string]claim

// write writes a claim down, and drops the claims that are over.
func (c claims) write(name string, by claim) {
	now := time.Now()
	maps.DeleteFunc(c, func(_ string, c claim) bool { return !now.Before(c.until) })
	c[name] = by
}

// recordOf finds the read-write lock of name; nil if there is none, with an error if name is in use for
// data that is no lock.
func (x sided) recordOf(name string) (*record, error) {
	r := x.store.find(name)
	switch {
	case r != nil && r.foreign:
		return nil, wrongKind(r)
	case r != nil && r.sides == nil:
		return nil, nil
	}
	return r, nil
}

func (x sided) reenterWrite(q backend.HoldsRequest) (backend.HoldsReply, error) {
	if q.Kind == backend.KindRead {
		err := errors.New("a reader enters again as another owner, with Acquire under it")
		return backend.HoldsReply{}, &backend.Fault{Err: err}
	}
	r, err := x.recordOf(q.Name)
	if r == nil || r.sides.writer != q.Owner {
		return backend.HoldsReply{}, err
	}
	r.sides.holds, r.sides.by = q.Holds, x.client
	x.store.extend(r, q.Lease)
	return backend.HoldsReply{Held: true}, nil
}

func (x sided) release(q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	s := x.store
	r, err := x.recordOf(q.Name)
	if r == nil {
		return backend.ReleaseReply{}, err
	}
	if q.Kind == backend.KindRead {
		h := r.sides.readers[q.Owner]
		if h == nil {
			return backend.ReleaseReply{}, nil
		}
		delete(r.sides.readers, q.Owner)
		if r.sides.writer == "" && !s.settle(r) {
			s.remove(r)
			s.released(r)
		}
		return backend.ReleaseReply{Held: time.Now().Before(h.deadline)}, nil
	}
	switch {
	case r.sides.writer != q.Owner:
		return backend.ReleaseReply{}, nil
	case q.Keep > 0:
		r.sides.holds = q.Keep
		return backend.ReleaseReply{Held: true}, nil
	}
	r.sides.writer, r.sides.holds, r.sides.by = "", 0, nil
	if !s.settle(r) {
		s.remove(r)
	}
	s.released(r)
	return backend.ReleaseReply{Held: true}, nil
}

// settle sets the deadline of r to the latest of its readers, and reports whether there is one.
func (s *Store) settle(r *record) bool {
	var last time.Time
	for _, h := range r.sides.readers {
		if h.deadline.After(last) {
			last = h.deadline
		}
	}
	if !time.Now().Before(last) {
		return false
	}
	r.deadline = last
	heap.Fix(&s.expiries, r.index)
	s.arm()
	return true
}

func (x sided) renew(q backend.RenewRequest) bool {
	s := x.store
	r, _ := x.recordOf(q.Name)
	if r == nil || !r.heldBy(q.Kind, q.Owner) {
		return false
	}
	if q.Lease <= 0 {
		return true
	}
	if q.Kind == backend.KindWrite {
		r.sides.by = x.client
	} else {
		h := r.sides.readers[q.Owner]
		h.by = x.client
		if d := time.Now().Add(q.Lease); d.After(h.deadline) {
			h.deadline = d
		}
	}
	s.extend(r, q.Lease)
	return true
}

// reads reports whether an owner holds r for reading.
func (r *record) reads(owner string) bool {
	h := r.sides.readers[owner]
	return h != nil && time.Now().Before(h.deadline)
}

// heldBy reports whether an owner holds that side of r.
func (r *record) heldBy(side backend.Kind, owner string) bool {
	if side == backend.KindWrite {
		return r.sides.writer == owner
	}
	return r.reads(owner)
}

func (r *record) inspectSides() backend.Record {
	rec := backend.Record{Held: true, Kind: backend.KindRead, Remaining: remaining(r.deadline)}
	if r.sides.writer != "" {
		rec.Kind, rec.Owner, rec.Holds = backend.KindWrite, r.sides.writer, r.sides.holds
	}
	for owner := range r.sides.readers {
		if !r.reads(owner) {
			continue
		}
		rec.Readers++
		if rec.Kind == backend.KindRead && (rec.Owner == "" || owner < rec.Owner) {
			rec.Owner, rec.Holds = owner, 1
		}
	}
	return rec
}

// Withdraw implements [backend.ReadWriteStore].
func (x sided) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	_, err := locked(ctx, x.client, func(s *Store) (struct{}, error) {
		if c, ok := s.claims[t.Name]; ok && c.by == claimant && time.Now().Before(c.until) {
			delete(s.claims, t.Name)
			s.watchers.tell(released, rwTopic(t.Name))
		}
		return struct{}{}, nil
	})
	return err
}
