package record

import (
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Entry is a waiter in the queue of a plain lock: the owner of the next lease of a session.
type Entry struct {
	Session Session
	Number  uint64 // of the session's wait
	Owner   string
	Lease   time.Duration // that the owner asked for
	Fenced  bool
	Polls   time.Duration // the interval at which the session asks untold; zero if it does not
	Came    Time          // when the place was taken
}

// Extra identifies the wait of a session that goes on alone.
type Extra struct {
	Session Session
	Number  uint64
}

// live reports whether an entry's session would learn of a grant: it is told, or polls.
func (e *Entry) live(s *Step) bool {
	return e.Polls > 0 || s.Hears(e.Session, s.topic(backend.KindLock))
}

// lease returns the lease of a grant to an entry, which lasts until the session has renewed it.
func (e *Entry) lease(s *Step) time.Duration {
	if s.Hears(e.Session, s.topic(backend.KindLock)) {
		return min(e.Lease, backend.FirstLease)
	}
	return min(e.Lease, 2*e.Polls, wire.PolledReservation)
}

// first returns the first live entry, and removes those before it; nil if there is none.
func (l *Lock) first(s *Step) *Entry {
	dead := 0
	for dead < len(l.Queue) && !l.Queue[dead].live(s) {
		dead++
	}
	l.Queue = slices.Delete(l.Queue, 0, dead)
	if len(l.Queue) == 0 {
		return nil
	}
	return &l.Queue[0]
}

// isFirst reports whether the first live entry is one of owner.
func (l *Lock) isFirst(s *Step, owner string) bool {
	e := l.first(s)
	return e != nil && e.Owner == owner
}

// at returns the index of an owner's entry; -1 if it has none.
func (l *Lock) at(owner string) int {
	return slices.IndexFunc(l.Queue, func(e Entry) bool { return e.Owner == owner })
}

// drop takes an owner's entry out of the queue, and reports whether there was one.
func (l *Lock) drop(owner string) bool {
	at := l.at(owner)
	if at >= 0 {
		l.Queue = slices.Delete(l.Queue, at, at+1)
	}
	return at >= 0
}

// enter puts an entry at the end of the queue, or at the place of the owner that it replaces. It reports false, and
// puts nothing, if the session is not told and does not poll.
func (l *Lock) enter(s *Step, e Entry, instead string) bool {
	if !e.live(s) {
		return false
	}
	at := l.at(instead)
	if at < 0 {
		at = l.at(e.Owner)
	}
	if at < 0 {
		l.Queue = append(l.Queue, e)
	} else {
		e.Came = l.Queue[at].Came
		l.Queue[at] = e
	}
	return true
}

// serve grants a free lock to the first entry, and tells its session: the message is the grant. It reports whether the
// lock is not free then.
func (l *Lock) serve(s *Step) bool {
	if !l.Free() || s.NoGrants {
		return true
	}
	first := l.first(s)
	if first == nil {
		return false
	}
	e, lease := *first, first.lease(s)
	l.drop(e.Owner)
	l.grant(s, e.Session, e.Owner, lease)
	n := Notice{What: Granted, Topic: s.topic(backend.KindLock), Owner: e.Owner, Lease: lease}
	n.Token = l.token(s, e.Owner, e.Fenced)
	s.tellEntry(e.Session, n)
	return true
}

// tellFirst tells the session of the first entry that it is the first, and to ask after the given time. It reports
// whether there is an entry.
func (l *Lock) tellFirst(s *Step, after time.Duration) bool {
	e := l.first(s)
	if e != nil {
		s.tellEntry(e.Session, Notice{What: First, Topic: s.topic(backend.KindLock), Entry: e.Number, After: after})
	}
	return e != nil
}

// Enrol is [backend.QueueStore].Enrol.
func (l *Lock) Enrol(s *Step, q backend.EnrolRequest) (reply backend.EnrolReply) {
	l.Pass(s)
	switch first := l.isFirst(s, q.Owner) || q.Instead != "" && l.isFirst(s, q.Instead); {
	case l.Free():
		if !first {
			l.serve(s)
		}
	case q.Instead != "" && l.find(q.Instead) >= 0:
		l.remove(s, l.find(q.Instead))
	}
	if at := l.find(q.Owner); at >= 0 {
		l.Owners[at].Ends = max(l.Owners[at].Ends, s.Now+q.Lease)
	}
	if reply.AcquireReply = l.Take(s, q.AcquireRequest); reply.Granted {
		l.drop(q.Owner)
		l.drop(q.Instead)
		return reply
	}
	reply.Enrolled = l.enter(s, Entry{s.By, q.Entry, q.Owner, q.Lease, q.Fenced, q.Polls, s.Now}, q.Instead)
	if reply.First = reply.Enrolled && l.isFirst(s, q.Owner); reply.First && l.Extra.Session != 0 {
		s.tellEntry(l.Extra.Session, Notice{What: Wanted, Topic: s.topic(backend.KindLock), Entry: l.Extra.Number})
		l.Extra = Extra{}
	}
	return reply
}

// Serve is [backend.QueueStore].Serve.
func (l *Lock) Serve(s *Step, q backend.ServeRequest) backend.ServeReply {
	l.Pass(s)
	at := l.find(q.Owner)
	reply := backend.ServeReply{Held: at >= 0}
	if at < 0 || !l.remove(s, at) {
		return reply
	}
	if q.Yield && l.others(s) {
		if l.first(s) != nil {
			l.drop(q.Instead)
			reply.Enrolled = l.enter(s, Entry{s.By, q.Entry, q.Next, q.Lease, q.Fenced, 0, s.Now}, "")
		}
		l.free(s)
		return reply
	}
	l.drop(q.Instead)
	l.grant(s, s.By, q.Next, q.Lease)
	if q.Yield {
		l.Extra = Extra{s.By, q.Entry}
	}
	reply.Granted, reply.Token = true, l.token(s, q.Next, q.Fenced)
	return reply
}

// others reports whether the lock may have other waiters than those of the step's session.
func (l *Lock) others(s *Step) bool {
	waits := func(e Entry) bool { return e.Session != s.By && e.live(s) }
	return s.Strangers(s.topic(backend.KindLock), s.By) || len(l.Places) > 0 || slices.ContainsFunc(l.Queue, waits)
}

// Leave is [backend.QueueStore].Leave.
func (l *Lock) Leave(s *Step, owner string) {
	l.Pass(s)
	first := l.isFirst(s, owner)
	l.drop(owner)
	at := l.find(owner)
	switch {
	case l.Free():
		l.serve(s)
	case at >= 0:
		if l.remove(s, at) {
			l.free(s)
		}
	case first:
		l.tellFirst(s, min(s.Left(l.Ends()), wire.Reservation))
	}
}

// Forget removes the entries of a session that has ended.
func (l *Lock) Forget(x Session) {
	l.Queue = slices.DeleteFunc(l.Queue, func(e Entry) bool { return e.Session == x })
}
