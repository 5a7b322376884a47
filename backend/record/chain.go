package record

import (
	"slices"

	"github.com/mortise-go/mortise/backend"
)

// Enter is [backend.DelegationStore].Enter.
func (l *Lock) Enter(s *Step, q backend.EnterRequest) backend.EnterReply {
	l.Pass(s)
	if l.find(q.Owner) < 0 {
		at := l.find(q.Under)
		switch {
		case at < 0, l.Owners[at].Holds < q.Holds, q.Drawn > s.Drawn(s.Name):
			return backend.EnterReply{Absent: true}
		case at+1 < len(l.Owners):
			behind := Lock{Owners: l.Owners[at+1:]}
			return backend.EnterReply{AcquireReply: backend.AcquireReply{Remaining: s.Left(behind.Ends())}}
		case l.Owners[at].Holds > q.Holds:
			left := s.Left(l.Owners[at].Ends)
			return backend.EnterReply{
				AcquireReply: backend.AcquireReply{Remaining: left}, AskAfter: min(left, backend.HoldsLook),
			}
		}
		l.Owners = append(l.Owners, Owner{ID: q.Owner, Holds: 1, Ends: s.Now + q.Lease, Session: s.By, Since: s.Now})
	}
	return backend.EnterReply{AcquireReply: backend.AcquireReply{Granted: true, Token: l.token(s, q.Owner, q.Fenced)}}
}

// ReleaseDelegated is [backend.DelegationStore].Release.
func (l *Lock) ReleaseDelegated(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	l.Pass(s)
	at := l.find(q.Owner)
	switch {
	case at < 0:
		return backend.ReleaseReply{}
	case q.Keep > 0:
		o := &l.Owners[at]
		o.Holds = min(o.Holds, q.Keep) // a release that arrives late must not raise the count
		s.announce(s.under(q.Owner))
	case l.remove(s, at):
		l.freeAll(s)
	}
	return backend.ReleaseReply{Held: true}
}

// remove removes an owner, by its index. It reports whether that was the last one: the lock is then free.
func (l *Lock) remove(s *Step, at int) (last bool) {
	s.announce(s.under(l.Owners[at].ID))
	if len(l.Owners) == 1 {
		l.clear()
		return true
	}
	l.Owners = slices.Delete(l.Owners, at, at+1)
	s.announce(s.under(l.Owners[len(l.Owners)-1].ID))
	return false
}
