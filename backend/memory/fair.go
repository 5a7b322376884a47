package memory

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// place is an owner's place in the queue of a fair lock.
type place struct {
	owner string
	// until is the time at which the place is given up, if it is then the first.
	until time.Time
}

func fairTopic(name, owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindFair, Name: name, Owner: owner}
}

// placeOf returns the index of owner's place in line; -1 if it has none.
func placeOf(line []place, owner string) int {
	return slices.IndexFunc(line, func(p place) bool { return p.owner == owner })
}

// fair implements [backend.FairStore].
type fair struct{ *client }

// Acquire implements [backend.FairStore].
func (x fair) Acquire(ctx context.Context, q backend.FairRequest) (backend.FairReply, error) {
	return locked(ctx, x.client, func(*Store) (backend.FairReply, error) { return x.acquire(q) })
}

// Release implements [backend.FairStore].
func (x fair) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return x.release(ctx, q, func(s *Store, r *record) { s.tellFirst(r.name) })
}

func (x fair) acquire(q backend.FairRequest) (backend.FairReply, error) {
	s := x.store
	r, err := s.lookup(backend.KindFair, q.Name)
	if err != nil {
		return backend.FairReply{}, err
	}
	now := time.Now()
	line := s.places[q.Name]
	for len(line) > 0 && line[0].owner != q.Owner && !line[0].until.After(now) {
		s.watchers.first(q.Name, line[0].owner) // a live owner asks again, and gets the last place
		line = line[1:]
	}
	defer func() { setLine(s.places, q.Name, line) }()
	at := placeOf(line, q.Owner)
	held, kept := r != nil && r.of(q.Owner), r != nil && r.reserved == fairWaiters
	free := r == nil || kept
	switch {
	case held || free && (len(line) == 0 || at == 0):
		if kept {
			s.remove(r)
		}
		if !held {
			s.grant(q.AcquireRequest, x.client)
			if at == 0 {
				line = line[1:]
			}
		}
		return backend.FairReply{AcquireReply: s.tokens.granted(q.Fenced, q.Name)}, nil
	case free:
		stood := len(line)
		line, _ = enqueue(line, q, now)
		return backend.FairReply{AskAfter: x.wakeAhead(q, line, now), Joined: len(line) > stood}, nil
	}
	stood := len(line)
	line, at = enqueue(line, q, r.deadline)
	reply := backend.FairReply{AcquireReply: refused(r.deadline), Joined: len(line) > stood}
	if reply.AskAfter = reply.Remaining; at != 0 {
		reply.AskAfter += backend.Absence / 10 // the first owner, if alive, asks earlier
	}
	return reply, nil
}

// enqueue gives the owner of q the last place in line, or more time in the place that it has. It returns line, and the
// index of the place; -1 if the owner has none and q.Wait asks for none. Ends is the end of the holder's lease; now if
// the lock is free.
func enqueue(line []place, q backend.FairRequest, ends time.Time) ([]place, int) {
	at := placeOf(line, q.Owner)
	until := ends.Add(q.Wait)
	switch {
	case q.Wait <= 0:
	case at < 0:
		return append(line, place{q.Owner, until}), len(line)
	case line[at].until.Before(until):
		line[at].until = until
	}
	return line, at
}

// wakeAhead tells the first reachable owner before that of q that the lock is free. The unreachable owners before it
// have [backend.Absence] left to ask. It returns the time after which the owner of q asks again.
func (x fair) wakeAhead(q backend.FairRequest, line []place, now time.Time) time.Duration {
	s := x.store
	limit := now.Add(backend.Absence)
	for i, p := range line {
		if p.owner == q.Owner {
			break
		}
		if s.watchers.first(q.Name, p.owner) {
			if i == 0 {
				// The first owner is reachable, and yet the lock is free: its process may be stopped.
				look := backend.Patience
				if last := now.Add(look); p.until.After(last) {
					line[0].until = last
				}
				return look
			}
			break
		}
		if p.until.After(limit) {
			s.watchers.absent(q.Name, line, p.owner, limit)
		}
	}
	if line[0].until.Before(limit) {
		limit = line[0].until
	}
	return remaining(limit)
}

// Leave implements [backend.FairStore].
func (x fair) Leave(ctx context.Context, q backend.LeaveRequest) (backend.LeaveReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.LeaveReply, error) {
		r, _ := s.held(q.Name, q.Owner) // foreign data counts as not held, as in the script
		reply := backend.LeaveReply{Held: r != nil}
		if r != nil {
			s.leave(r, q.Owner)
		}
		line := s.places[q.Name]
		at := placeOf(line, q.Owner)
		holder := s.find(q.Name)
		kept := at >= 0 && holder != nil && holder.reserved == fairWaiters
		if kept {
			s.remove(holder) // the owner that leaves may be the one that was told
		}
		if at >= 0 {
			reply.Queued = true
			setLine(s.places, q.Name, slices.Delete(line, at, at+1))
		}
		if reply.Held || kept || at == 0 && holder == nil {
			s.tellFirst(q.Name)
		}
		return reply, nil
	})
}

// releasedToAll announces a release of r to the waiters for the plain lock, and to the first owner in the queue of the
// fair lock.
func (s *Store) releasedToAll(r *record) {
	s.released(r)
	if line := s.places[r.name]; len(line) > 0 {
		s.watchers.first(r.name, line[0].owner)
	}
}

// tellFirst announces a release of the fair lock to the first reachable owner in its queue; if there is none, to the
// waiters for the plain lock. If the plain lock has entries, the two queues take turns: see freedFair.
func (s *Store) tellFirst(name string) {
	if s.queues.freedFair(name) {
		return
	}
	now := time.Now()
	limit := now.Add(backend.Absence)
	line := s.places[name]
	for i := 0; i < len(line); {
		told := s.watchers.first(name, line[i].owner)
		switch {
		case told:
			if line[i].until.Before(limit) {
				line[i].until = limit
			}
			setLine(s.places, name, line)
			return
		case i == 0 && !line[0].until.After(now):
			line = line[1:]
			continue
		case line[i].until.After(limit):
			s.watchers.absent(name, line, line[i].owner, limit)
		}
		i++
	}
	setLine(s.places, name, line)
	if !s.queues.serve(name) {
		s.watchers.tell(released, lockTopic(name))
	}
}

// clientOf returns the part of an owner's id that all owners of its client share: up to the last colon. It is empty
// without a colon.
func clientOf(owner string) string { return owner[:strings.LastIndexByte(owner, ':')+1] }

// absent gives an unreachable owner, and all other unreachable owners of its client, until limit to ask. A place that
// ends earlier keeps its time.
func (w watchers) absent(name string, line []place, owner string, limit time.Time) {
	client := clientOf(owner)
	for i, p := range line {
		of := client != "" && strings.HasPrefix(p.owner, client) && len(w[fairTopic(name, p.owner)]) == 0
		if (of || p.owner == owner) && p.until.After(limit) {
			line[i].until = limit
		}
	}
}
