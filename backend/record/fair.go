package record

import (
	"slices"
	"strings"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Place is an owner's place in the queue of a fair lock.
type Place struct {
	Owner string
	// Until is when the place is given up, if it is then the first.
	Until Time
}

// tellFair tells an owner that waits for the fair lock to ask, and reports whether a session watches its topic.
func (s *Step) tellFair(owner string) bool {
	t := s.fair(owner)
	hears := s.Watched(t)
	if hears {
		s.announce(t)
	}
	return hears
}

// fair is the topic of an owner that waits for the fair lock.
func (s *Step) fair(owner string) backend.Topic {
	return backend.Topic{Kind: backend.KindFair, Name: s.Name, Owner: owner}
}

// place returns the index of an owner's place; -1 if it has none.
func (l *Lock) place(owner string) int {
	return slices.IndexFunc(l.Places, func(p Place) bool { return p.Owner == owner })
}

// AcquireFair is [backend.FairStore].Acquire.
func (l *Lock) AcquireFair(s *Step, q backend.FairRequest) backend.FairReply {
	l.Pass(s)
	for len(l.Places) > 0 && l.Places[0].Owner != q.Owner && l.Places[0].Until <= s.Now {
		s.tellFair(l.Places[0].Owner) // a live owner asks again, and gets the last place
		l.Places = slices.Delete(l.Places, 0, 1)
	}
	at, free := l.place(q.Owner), len(l.Owners) == 0
	stood := len(l.Places)
	switch {
	case l.find(q.Owner) >= 0:
		return backend.FairReply{AcquireReply: l.Take(s, q.AcquireRequest)}
	case free && (stood == 0 || at == 0):
		l.KeptFair = 0
		if at == 0 {
			l.Places = slices.Delete(l.Places, 0, 1)
		}
		return backend.FairReply{AcquireReply: l.Take(s, q.AcquireRequest)}
	case free:
		l.enqueue(q, s.Now)
		return backend.FairReply{AskAfter: l.wakeAhead(s, q.Owner), Joined: len(l.Places) > stood}
	}
	at = l.enqueue(q, l.Ends())
	left := s.Left(l.Ends())
	reply := backend.FairReply{
		AcquireReply: backend.AcquireReply{Remaining: left}, Joined: len(l.Places) > stood, AskAfter: left,
	}
	if at != 0 {
		reply.AskAfter += backend.Absence / wire.LaterParts // the first owner, if alive, asks earlier
	}
	return reply
}

// enqueue gives an owner the last place, or more time in the place that it has. It returns the index of the place; -1
// if the owner has none, and q.Wait asks for none. Ends is the end of the holder's lease; now if the lock is free.
func (l *Lock) enqueue(q backend.FairRequest, ends Time) int {
	at := l.place(q.Owner)
	switch until := ends + q.Wait; {
	case q.Wait <= 0:
	case at < 0:
		l.Places = append(l.Places, Place{q.Owner, until})
		return len(l.Places) - 1
	default:
		l.Places[at].Until = max(l.Places[at].Until, until)
	}
	return at
}

// wakeAhead tells the first reachable owner before another one that the lock is free. The unreachable owners before it
// have [backend.Absence] left to ask. It returns the time after which the other one asks again.
func (l *Lock) wakeAhead(s *Step, owner string) time.Duration {
	limit := s.Now + backend.Absence
	for i, p := range l.Places {
		if p.Owner == owner {
			break
		}
		if s.tellFair(p.Owner) {
			if i == 0 {
				// The first owner is reachable, and yet the lock is free: its process may be stopped.
				l.Places[0].Until = min(p.Until, s.Now+backend.Patience)
				return backend.Patience
			}
			break
		}
		l.absent(s, p, limit)
	}
	return s.Left(min(limit, l.Places[0].Until))
}

// LeaveFair is [backend.FairStore].Leave.
func (l *Lock) LeaveFair(s *Step, owner string) (reply backend.LeaveReply) {
	l.Pass(s)
	if at := l.find(owner); at >= 0 {
		reply.Held = true
		l.remove(s, at)
	}
	at, kept := l.place(owner), false
	if at >= 0 {
		reply.Queued = true
		l.Places = slices.Delete(l.Places, at, at+1)
		kept = l.KeptFair != 0 // perhaps for this owner
	}
	if kept {
		l.KeptFair = 0
	}
	if free := l.Free() && !s.NoGrants; reply.Held || kept || at == 0 && free {
		l.freeFair(s)
	}
	return reply
}

// ReleaseFair is [backend.FairStore].Release.
func (l *Lock) ReleaseFair(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	return l.release(s, q, l.freeFair)
}

// freeFair tells the first reachable owner that waits for the fair lock of its release; if there is none, the waiters
// for the plain lock. If these have entries, the two queues take turns: see freedFair.
func (l *Lock) freeFair(s *Step) {
	if l.freedFair(s) {
		return
	}
	limit := s.Now + backend.Absence
	for i := 0; i < len(l.Places); {
		p := l.Places[i]
		switch told := s.tellFair(p.Owner); {
		case told:
			l.Places[i].Until = max(p.Until, limit)
			return
		case i == 0 && p.Until <= s.Now:
			l.Places = slices.Delete(l.Places, 0, 1)
			continue
		}
		l.absent(s, p, limit)
		i++
	}
	if !l.serve(s) {
		s.announce(s.topic(backend.KindLock))
	}
}

// client returns the part of an owner's id that all owners of its client share: up to the last colon. It is empty
// without a colon.
func client(owner string) string { return owner[:strings.LastIndexByte(owner, ':')+1] }

// absent gives an unreachable owner, and all other unreachable owners of its client, until limit to ask. A place that
// ends earlier keeps its time.
func (l *Lock) absent(s *Step, of Place, limit Time) {
	if of.Until <= limit {
		return
	}
	with := client(of.Owner)
	for i, p := range l.Places {
		if p.Owner == of.Owner || with != "" && strings.HasPrefix(p.Owner, with) && !s.Watched(s.fair(p.Owner)) {
			l.Places[i].Until = min(p.Until, limit)
		}
	}
}
