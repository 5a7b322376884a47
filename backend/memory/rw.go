package memory

import (
	"container/heap"
	"context"
	"errors"
	"maps"
	"time"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.RWSession = (*session)(nil)

// sides is what a record holds that is a read-write lock. To a lock's operations it
// is a record with no owner.
type sides struct {
	writer  string // who holds it for writing; "" if nobody does
	holds   int    // by writer
	by      *session
	readers map[string]*reader
}

type reader struct {
	deadline time.Time
	by       *session
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

func sided(k backend.Kind) bool { return k == backend.KindRead || k == backend.KindWrite }

// findRW finds the read-write lock of name; nil if there is none, and an error if name
// is in use for something else.
func (s *Store) findRW(name string) (*record, error) {
	r := s.find(name)
	if r != nil && r.sides == nil {
		return nil, wrongKind(r)
	}
	return r, nil
}

func (x *session) acquireRead(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r, err := s.findRW(q.Name)
	if err != nil {
		if r := s.find(q.Name); q.Under != "" && r != nil && !r.foreign {
			return backend.AcquireReply{Absent: true}, nil // a lock: nobody holds it by a side
		}
		return backend.AcquireReply{}, err
	}
	switch {
	case r != nil && r.reads(q.Owner):
		return backend.AcquireReply{Granted: true}, nil
	case q.Under != "":
		if r == nil || q.UnderKind == backend.KindWrite && r.sides.writer != q.Under || q.UnderKind != backend.KindWrite && !r.reads(q.Under) {
			return backend.AcquireReply{Absent: true}, nil
		}
	case r != nil && r.sides.writer != "":
		return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
	default:
		if c, ok := s.claims[q.Name]; ok && time.Now().Before(c.until) {
			return backend.AcquireReply{Remaining: remaining(c.until)}, nil
		}
	}
	hold := &reader{deadline: time.Now().Add(q.Lease), by: x}
	if r == nil {
		s.put(&record{name: q.Name, sides: &sides{readers: map[string]*reader{q.Owner: hold}}}, q.Lease)
		return backend.AcquireReply{Granted: true}, nil
	}
	r.sides.readers[q.Owner] = hold
	s.extend(r, q.Lease)
	return backend.AcquireReply{Granted: true}, nil
}

func (x *session) acquireWrite(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r, err := s.findRW(q.Name)
	switch {
	case err != nil:
		return backend.AcquireReply{}, err
	case r == nil:
		if s.claims[q.Name].by == q.Claimant {
			delete(s.claims, q.Name)
		}
		s.put(&record{name: q.Name, sides: &sides{writer: q.Owner, holds: 1, by: x, readers: map[string]*reader{}}}, q.Lease)
		return backend.AcquireReply{Granted: true}, nil
	case r.sides.writer == q.Owner:
		return backend.AcquireReply{Granted: true}, nil
	case r.sides.writer == "" && q.Claim > 0:
		s.claim(q.Name, q.Claimant, q.Claim)
		return backend.AcquireReply{Remaining: remaining(r.deadline), Claimed: true}, nil
	}
	return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
}

// claim writes a claim down, and drops those that are over.
func (s *Store) claim(name, by string, d time.Duration) {
	now := time.Now()
	maps.DeleteFunc(s.claims, func(_ string, c claim) bool { return !now.Before(c.until) })
	if s.claims == nil {
		s.claims = make(map[string]claim)
	}
	s.claims[name] = claim{by: by, until: now.Add(d)}
}

func (x *session) reenterWrite(q backend.ReenterRequest) (backend.ReenterReply, error) {
	r := x.store.find(q.Name)
	switch {
	case q.Kind == backend.KindRead:
		return backend.ReenterReply{}, &backend.Fault{Err: errors.New("a reader enters again as another owner, with Acquire under it")}
	case r != nil && r.foreign:
		return backend.ReenterReply{}, wrongKind(r)
	case r == nil || r.sides == nil || r.sides.writer != q.Owner:
		return backend.ReenterReply{}, nil
	}
	r.sides.holds, r.sides.by = q.Holds, x
	x.store.extend(r, q.Lease)
	return backend.ReenterReply{Held: true}, nil
}

func (x *session) releaseSide(q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	s := x.store
	r := s.find(q.Name)
	switch {
	case r == nil:
		return backend.ReleaseReply{}, nil
	case r.foreign:
		return backend.ReleaseReply{}, wrongKind(r)
	case r.sides == nil:
		return backend.ReleaseReply{}, nil
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

// settle has r live as long as the longest of its readers, and tells whether there is one.
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

func (x *session) renewSide(q backend.RenewRequest) bool {
	s := x.store
	r := s.find(q.Name)
	if r == nil || r.sides == nil {
		return false
	}
	if q.Kind == backend.KindWrite {
		if r.sides.writer != q.Owner {
			return false
		}
		if q.Lease > 0 {
			r.sides.by = x
			s.extend(r, q.Lease)
		}
		return true
	}
	if !r.reads(q.Owner) {
		return false
	}
	if h := r.sides.readers[q.Owner]; q.Lease > 0 {
		h.by = x
		if d := time.Now().Add(q.Lease); d.After(h.deadline) {
			h.deadline = d
		}
		s.extend(r, q.Lease)
	}
	return true
}

// reads tells whether an owner holds r for reading.
func (r *record) reads(owner string) bool {
	h := r.sides.readers[owner]
	return h != nil && time.Now().Before(h.deadline)
}

func (x *session) inspectRW(name string) (backend.Record, error) {
	r, err := x.store.findRW(name)
	if r == nil {
		return backend.Record{}, err
	}
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
	return rec, nil
}

func (x *session) forceRW(name string) (bool, error) {
	s := x.store
	r, err := s.findRW(name)
	if r == nil {
		return false, err
	}
	s.remove(r)
	s.released(r)
	r.tellHolders(nil)
	return true, nil
}

// tellHolders tells those who hold r, or did, that it is gone, but those who were told.
func (r *record) tellHolders(told map[*session]struct{}) {
	t := rwTopic(r.name)
	tell := func(x *session) {
		if _, twice := told[x]; x != nil && !twice {
			x.tell(event{changed, t})
		}
	}
	tell(r.sides.by)
	seen := map[*session]bool{r.sides.by: true}
	for _, h := range r.sides.readers {
		if !seen[h.by] {
			seen[h.by] = true
			tell(h.by)
		}
	}
}

// Withdraw implements [backend.RWSession].
func (x *session) Withdraw(ctx context.Context, t backend.Topic, claimant string) error {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return err
	}
	if c, ok := s.claims[t.Name]; ok && c.by == claimant && time.Now().Before(c.until) {
		delete(s.claims, t.Name)
		s.announceRW(t.Name)
	}
	return nil
}

func (s *Store) announceRW(name string) {
	t := rwTopic(name)
	for x := range s.watchers[t] {
		x.tell(event{released, t})
	}
}
