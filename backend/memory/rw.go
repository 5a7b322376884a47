package memory

import (
	"container/heap"
	"context"
	"maps"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// sides is the part of a record that makes it a read-write lock. The record's own owner stays empty, so an owner of
// another kind of lock never matches.
type sides struct {
	writer  string // the owner that holds the write side; "" if there is none
	holds   int    // the hold count of writer
	by      *client
	readers map[string]*reader
}

type reader struct {
	deadline time.Time
	by       *client
}

// claim keeps new readers out for the sake of a waiting writer.
type claim struct {
	by    string
	until time.Time
}

// rwTopic returns the topic of a read-write lock. Both sides share the topic.
func rwTopic(name string) backend.Topic {
	return backend.Topic{Kind: backend.KindWrite, Name: name}
}

func isSide(k backend.Kind) bool { return k == backend.KindRead || k == backend.KindWrite }

// sided implements [backend.ReadWriteStore].
type sided struct{ *client }

// AcquireRead implements [backend.ReadWriteStore].
func (x sided) AcquireRead(ctx context.Context, q backend.ReadRequest) (backend.ReadReply, error) {
	return locked(ctx, x.client, func(*Store) (backend.ReadReply, error) { return x.acquireRead(q) })
}

func (x sided) acquireRead(q backend.ReadRequest) (backend.ReadReply, error) {
	s := x.store
	granted := backend.ReadReply{AcquireReply: backend.AcquireReply{Granted: true}}
	r, err := s.lookup(backend.KindRead, q.Name)
	if err != nil {
		if r := s.find(q.Name); q.Under != "" && r != nil && !r.foreign {
			return backend.ReadReply{Absent: true}, nil // another kind of lock: Under holds no side of it
		}
		return backend.ReadReply{}, err
	}
	switch {
	case r != nil && r.reads(q.Owner):
		return granted, nil
	case q.Under != "":
		if r == nil || !(q.UnderWriter && r.sides.writer == q.Under || !q.UnderWriter && r.reads(q.Under)) {
			return backend.ReadReply{Absent: true}, nil
		}
	default:
		e := entry{x.client, q.Entry}
		if until := x.keepsOut(q.Name, r, e); !until.IsZero() {
			reply := s.enrolments.refused(enrolled{entry: e, topic: rwTopic(q.Name)})
			if r == nil {
				s.enrolments.tellSides(q.Name, false)
			}
			return backend.ReadReply{AcquireReply: refused(until), QueueReply: reply}, nil
		}
		if !s.enrolments.toldToRead(rwTopic(q.Name), e) {
			defer s.enrolments.tellSides(q.Name, true)
		}
		s.enrolments.served(rwTopic(q.Name), e, false)
	}
	hold := &reader{deadline: time.Now().Add(q.Lease), by: x.client}
	if r == nil {
		s.put(&record{name: q.Name, sides: &sides{readers: map[string]*reader{q.Owner: hold}}}, q.Lease)
		return granted, nil
	}
	r.sides.readers[q.Owner] = hold
	s.extend(r, q.Lease)
	return granted, nil
}

// keepsOut returns the time until which a new reader, whose entry is e, is kept out; zero if it may enter.
func (x sided) keepsOut(name string, r *record, e entry) time.Time {
	if r != nil && r.sides.writer != "" {
		return r.deadline
	}
	if c, ok := x.store.claims.standing(name); ok && !x.store.enrolments.toldToRead(rwTopic(name), e) {
		return c.until
	}
	for _, w := range x.store.enrolments.told(rwTopic(name), e) {
		if w.writes {
			return w.until
		}
	}
	return time.Time{}
}

// AcquireWrite implements [backend.ReadWriteStore].
func (x sided) AcquireWrite(ctx context.Context, q backend.WriteRequest) (backend.WriteReply, error) {
	return locked(ctx, x.client, func(s *Store) (reply backend.WriteReply, err error) {
		r, err := s.lookup(backend.KindWrite, q.Name)
		k, e, t := s.enrolments, entry{x.client, q.Entry}, rwTopic(q.Name)
		kept := k.told(t, e)
		switch {
		case err != nil:
			return reply, err
		case r == nil && len(kept) > 0:
			reply.AcquireReply = refused(kept[0].until)
			reply.QueueReply = k.refused(enrolled{entry: e, topic: t, writes: true})
		case r == nil:
			k.served(t, e, false)
			if s.claims[q.Name].by == q.Claimant {
				delete(s.claims, q.Name)
			}
			held := &sides{writer: q.Owner, holds: 1, by: x.client, readers: make(map[string]*reader)}
			s.put(&record{name: q.Name, sides: held}, q.Lease)
			reply.Granted = true
		case r.sides.writer == q.Owner:
			reply.Granted = true
		default:
			reply.AcquireReply = refused(r.deadline)
			reply.QueueReply = k.refused(enrolled{entry: e, topic: t, writes: true})
			if reply.Claimed = r.sides.writer == "" && q.Claim > 0; reply.Claimed {
				s.claims.write(q.Name, claim{q.Claimant, time.Now().Add(q.Claim)})
			}
		}
		return reply, nil
	})
}

// claims are the claims of waiting writers, by name.
type claims map[string]claim

// write stores a claim, and removes expired claims.
func (c claims) write(name string, by claim) {
	now := time.Now()
	maps.DeleteFunc(c, func(_ string, c claim) bool { return !now.Before(c.until) })
	c[name] = by
}

// standing returns the claim on a name, and reports whether there is one with time left.
func (c claims) standing(name string) (claim, bool) {
	by, ok := c[name]
	return by, ok && time.Now().Before(by.until)
}

// recordOf returns the read-write lock of name; nil if there is none. It returns an error for foreign data.
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

// SetWriteHolds implements [backend.ReadWriteStore].
func (x sided) SetWriteHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.HoldsReply, error) {
		r, err := x.recordOf(q.Name)
		if r == nil || r.sides.writer != q.Owner {
			return backend.HoldsReply{}, err
		}
		r.sides.holds, r.sides.by = q.Holds, x.client
		s.extend(r, q.Lease)
		return backend.HoldsReply{Held: true}, nil
	})
}

// ReleaseRead implements [backend.ReadWriteStore].
func (x sided) ReleaseRead(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.ReleaseReply, error) {
		r, err := x.recordOf(q.Name)
		if r == nil || r.sides.readers[q.Owner] == nil {
			return backend.ReleaseReply{}, err
		}
		h := r.sides.readers[q.Owner]
		delete(r.sides.readers, q.Owner)
		if r.sides.writer == "" && !s.settle(r) {
			s.remove(r)
			s.released(r)
		}
		return backend.ReleaseReply{Held: time.Now().Before(h.deadline)}, nil
	})
}

// ReleaseWrite implements [backend.ReadWriteStore].
func (x sided) ReleaseWrite(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.ReleaseReply, error) {
		r, err := x.recordOf(q.Name)
		switch {
		case r == nil || r.sides.writer != q.Owner:
			return backend.ReleaseReply{}, err
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
	})
}

// settle sets the deadline of r to the latest of its readers' deadlines. It reports whether a reader is left.
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

// RenewReads implements [backend.ReadWriteStore].
func (x sided) RenewReads(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, func(q backend.RenewRequest) bool {
		r, _ := x.recordOf(q.Name)
		if r == nil || !r.reads(q.Owner) {
			return false
		}
		if h := r.sides.readers[q.Owner]; q.Lease > 0 {
			h.by = x.client
			if d := time.Now().Add(q.Lease); d.After(h.deadline) {
				h.deadline = d
			}
			x.store.extend(r, q.Lease)
		}
		return true
	})
}

// RenewWrites implements [backend.ReadWriteStore].
func (x sided) RenewWrites(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, func(q backend.RenewRequest) bool {
		r, _ := x.recordOf(q.Name)
		if r == nil || r.sides.writer != q.Owner {
			return false
		}
		if q.Lease > 0 {
			r.sides.by = x.client
			x.store.extend(r, q.Lease)
		}
		return true
	})
}

// reads reports whether an owner holds the read side of r.
func (r *record) reads(owner string) bool {
	h := r.sides.readers[owner]
	return h != nil && time.Now().Before(h.deadline)
}

// InspectRW implements [backend.ReadWriteStore].
func (x sided) InspectRW(ctx context.Context, name string) (backend.Record, error) {
	return locked(ctx, x.client, func(s *Store) (backend.Record, error) {
		r, err := s.lookup(backend.KindWrite, name)
		if r == nil {
			return backend.Record{}, err
		}
		return r.inspectSides(), nil
	})
}

// ForceReleaseRW implements [backend.ReadWriteStore].
func (x sided) ForceReleaseRW(ctx context.Context, name string) (bool, error) {
	return x.forceRelease(ctx, backend.KindWrite, name, (*Store).released)
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
func (x sided) Withdraw(ctx context.Context, name, claimant string) error {
	_, err := locked(ctx, x.client, func(s *Store) (struct{}, error) {
		if c, ok := s.claims.standing(name); ok && c.by == claimant {
			delete(s.claims, name)
			r := s.find(name)
			free := r == nil || r.sides != nil && r.sides.writer == ""
			s.enrolments.announce(rwTopic(name), free && s.enrolments.tellSides(name, r != nil))
		}
		return struct{}{}, nil
	})
	return err
}
