package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

var _ backend.FairSession = (*session)(nil)

// place is where an owner stands in the queue of a fair lock.
type place struct {
	owner string
	// until is when it is given up, if it comes to the front.
	until time.Time
}

func fairTopic(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindFair, Name: name, Owner: owner}
}

func (x *session) acquireFair(q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	r := s.find(q.Name)
	if r != nil && (r.foreign || r.sides != nil) {
		return backend.AcquireReply{}, wrongKind(r)
	}
	now := time.Now()
	line := s.places[q.Name]
	for len(line) > 0 && line[0].owner != q.Owner && !line[0].until.After(now) {
		s.turn(q.Name, line[0].owner) // if it lives, it comes again, at the end
		line = line[1:]
	}
	defer func() { s.setPlaces(q.Name, line) }()
	at := slices.IndexFunc(line, func(p place) bool { return p.owner == q.Owner })
	held := r != nil && r.of(q.Owner)
	if held || r == nil && (len(line) == 0 || at == 0) {
		reply := backend.AcquireReply{Granted: true}
		if q.Fenced {
			reply.Token = s.tokens.next(q.Name)
		}
		if !held {
			s.put(&record{name: q.Name, owner: q.Owner, holds: 1, holder: x}, q.Lease)
			if at == 0 {
				line = line[1:]
				lower(line, q.Wait, now.Add(q.Lease+q.Wait))
			}
		}
		return reply, nil
	}
	var reply backend.AcquireReply
	ends := now
	if r != nil {
		ends = r.deadline
		reply.Remaining = remaining(r.deadline)
	}
	switch {
	case q.Wait <= 0:
	case at < 0:
		until := ends
		if n := len(line); n > 0 && line[n-1].until.After(until) {
			until = line[n-1].until
		}
		at = len(line)
		line = append(line, place{q.Owner, until.Add(q.Wait)})
	case line[at].until.Before(ends.Add(q.Wait)):
		line[at].until = ends.Add(q.Wait * time.Duration(at+1))
	}
	switch {
	case at == 0:
		reply.Look = reply.Remaining
	case r != nil:
		reply.Look = reply.Remaining + backend.Absence/10 // the first asks before, if it lives
	default:
		limit := now.Add(backend.Absence)
		for i, p := range line {
			if p.owner == q.Owner {
				break
			}
			if s.turn(q.Name, p.owner) {
				if i == 0 {
					// It hears of it, and yet the lock is free: its process may be stopped.
					reply.Look = 5 * backend.Absence
					if last := now.Add(reply.Look); p.until.After(last) {
						line[0].until = last
					}
					return reply, nil
				}
				break
			}
			if p.until.After(limit) {
				s.absent(q.Name, line, p.owner, limit)
			}
		}
		if line[0].until.Before(limit) {
			limit = line[0].until
		}
		reply.Look = remaining(limit)
	}
	return reply, nil
}

// lower takes wait off the times of those in line, who need not wait any more for one
// who was before them; yet none goes below floor by that.
func lower(line []place, wait time.Duration, floor time.Time) {
	for i, p := range line {
		least := p.until
		if least.After(floor) {
			least = floor
		}
		if line[i].until = p.until.Add(-wait); line[i].until.Before(least) {
			line[i].until = least
		}
	}
}

// Leave implements [backend.FairSession].
func (x *session) Leave(ctx context.Context, q backend.LeaveRequest) (backend.LeaveReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.LeaveReply{}, err
	}
	r, _ := s.held(q.Name, q.Owner) // foreign data is not held, as in the script
	reply := backend.LeaveReply{Held: r != nil}
	if r != nil {
		s.leave(r, q.Owner)
	}
	line := s.places[q.Name]
	at := slices.IndexFunc(line, func(p place) bool { return p.owner == q.Owner })
	holder := s.find(q.Name)
	if at >= 0 {
		reply.Queued = true
		ends := time.Now()
		if holder != nil && !holder.foreign && holder.sides == nil {
			ends = holder.deadline
		}
		lower(line[at+1:], q.Wait, ends.Add(q.Wait))
		s.setPlaces(q.Name, slices.Delete(line, at, at+1))
	}
	if reply.Held || at == 0 && holder == nil {
		s.tellFirst(q.Name)
	}
	return reply, nil
}

// releasedToAll announces a release of r to those who wait for the plain lock, and to the first in the
// fair one's queue.
func (s *Store) releasedToAll(r *record) {
	s.released(r)
	if line := s.places[r.name]; len(line) > 0 {
		s.turn(r.name, line[0].owner)
	}
}

// tellFirst announces a release of name to the first in its queue, and to the next
// where that one cannot be reached; where nobody stands there who can, as a plain release.
func (s *Store) tellFirst(name string) {
	now := time.Now()
	limit := now.Add(backend.Absence)
	line := s.places[name]
	for i := 0; i < len(line); {
		told := s.turn(name, line[i].owner)
		switch {
		case told:
			if line[i].until.Before(limit) {
				line[i].until = limit
			}
			s.setPlaces(name, line)
			return
		case i == 0 && !line[0].until.After(now):
			line = line[1:]
			continue
		case line[i].until.After(limit):
			s.absent(name, line, line[i].owner, limit)
		}
		i++
	}
	s.setPlaces(name, line)
	s.tellReleased(lockTopic(name)) // nobody heard it
}

// absent gives an owner who cannot be reached until limit to ask, and all others of its
// client whom nobody listens for either.
func (s *Store) absent(name string, line []place, owner string, limit time.Time) {
	client := owner[:strings.LastIndexByte(owner, ':')+1]
	for i, p := range line {
		of := client != "" && strings.HasPrefix(p.owner, client) && len(s.watchers[fairTopic(name, p.owner)]) == 0
		if (of || p.owner == owner) && p.until.After(limit) {
			line[i].until = limit
		}
	}
}

// turn tells an owner that it may have the lock, and reports whether anybody heard it.
func (s *Store) turn(name, owner string) bool { return s.tellReleased(fairTopic(name, owner)) }

func (s *Store) tellReleased(t backend.Topic) (heard bool) {
	for x := range s.watchers[t] {
		x.tell(event{released, t})
		heard = true
	}
	return heard
}

func (s *Store) setPlaces(name string, line []place) {
	if len(line) == 0 {
		delete(s.places, name)
		return
	}
	s.places[name] = line
}
