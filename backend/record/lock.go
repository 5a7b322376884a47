package record

import (
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Lock is what is kept of the plain, fenced, fair and delegated locks of one name, which exclude each other. The zero
// Lock is free, and nobody waits for it.
type Lock struct {
	// Owners hold the lock. Each entered under the one before: the first is the outermost.
	Owners []Owner
	// KeptFair is until when the free lock is kept for the waiters for the fair lock; 0 if it is not.
	KeptFair Time
	// Queue has the entries of waiters for the plain lock, oldest first. An owner has one at most, and none once it was
	// granted the lock.
	Queue []Entry
	// Places has the waiters for the fair lock, oldest first.
	Places []Place
	// Turn is the number of tenures that are left in the turn of Places; if it is negative, in that of Queue.
	Turn int
	// Extra was granted the lock once more because no other session waited.
	Extra Extra
}

// Owner is a holder of a lock.
type Owner struct {
	ID    string
	Holds int
	Ends  Time
	// Session wrote the owner last. It is told if the owner goes by other means than its own release.
	Session Session
	// Since is when the owner got the lock, and Token its last fencing token; 0 if it has none.
	Since Time
	Token int64
}

// Empty reports whether the lock is as the zero Lock: nothing has to be kept.
func (l *Lock) Empty(Time) bool {
	return l.Free() && len(l.Queue) == 0 && len(l.Places) == 0 && l.Turn == 0
}

// Free reports whether the lock has no owner, and is kept for nobody.
func (l *Lock) Free() bool { return len(l.Owners) == 0 && l.KeptFair == 0 }

// Ends returns when the lock is free if nothing happens until then, and is to be looked at; 0 if it is free.
func (l *Lock) Ends() Time {
	end := l.KeptFair
	for _, o := range l.Owners {
		end = max(end, o.Ends)
	}
	return end
}

// find returns the index of an owner; -1 if it does not hold the lock.
func (l *Lock) find(owner string) int {
	return slices.IndexFunc(l.Owners, func(o Owner) bool { return o.ID == owner })
}

// Pass ends the leases that are over. If the lock is free then, its queue is served. Each step begins with Pass.
func (l *Lock) Pass(s *Step) {
	gone := l.Owners
	switch {
	case l.KeptFair != 0 && s.Now >= l.KeptFair: // none of the waiters for the fair lock came in time
		l.KeptFair, l.Turn = 0, 0
		l.changed(s, nil)
		l.serve(s)
	case len(gone) == 0:
	case s.Now >= l.Ends():
		l.clear()
		l.changed(s, gone)
		l.freed(s)
	case len(gone) > 1:
		l.Owners = slices.DeleteFunc(gone, func(o Owner) bool { return s.Now >= o.Ends })
	}
}

// clear removes all owners.
func (l *Lock) clear() { l.Owners, l.KeptFair, l.Extra = l.Owners[:0], 0, Extra{} }

// Reset makes the lock as the zero Lock, for reuse: it keeps memory.
func (l *Lock) Reset() {
	clear(l.Owners[:cap(l.Owners)])
	*l = Lock{Owners: l.Owners[:0]}
}

// changed tells those that watch the lock, and the sessions of the owners that are gone.
func (l *Lock) changed(s *Step, gone []Owner) {
	s.tell(Notice{What: Changed, Topic: s.topic(backend.KindLock), To: sessions(gone), All: true})
}

// sessions returns the sessions of owners, each once.
func sessions(of []Owner) (all []Session) {
	for _, o := range of {
		if !slices.Contains(all, o.Session) {
			all = append(all, o.Session)
		}
	}
	return all
}

// grant makes owner the owner of the free lock.
func (l *Lock) grant(s *Step, by Session, owner string, lease time.Duration) {
	l.Owners = append(l.Owners[:0], Owner{ID: owner, Holds: 1, Ends: s.Now + lease, Session: by, Since: s.Now})
}

// token draws a fencing token for an owner of the lock if one is asked for.
func (l *Lock) token(s *Step, owner string, asked bool) int64 {
	if !asked {
		return 0
	}
	o := &l.Owners[l.find(owner)]
	o.Token = s.Draw(s.Name)
	return o.Token
}

// Acquire is [backend.Store].Acquire.
func (l *Lock) Acquire(s *Step, q backend.AcquireRequest) backend.AcquireReply {
	if left := l.Ask(s, q.Owner); left > 0 {
		return backend.AcquireReply{Remaining: left}
	}
	return l.Take(s, q)
}

// Ask serves the queue of a free lock, and returns how long an owner without an entry would be refused; 0 if the lock
// is free, or the owner's.
func (l *Lock) Ask(s *Step, owner string) time.Duration {
	if l.Pass(s); l.Free() {
		l.serve(s)
	}
	if l.Free() && !s.NoGrants || l.find(owner) >= 0 {
		return 0
	}
	return s.Left(l.Ends())
}

// Take is Acquire behind Ask: it grants a lock that is free, or the owner's, and refuses any other. It ends no lease:
// what Ask found is still true, whatever time has passed.
func (l *Lock) Take(s *Step, q backend.AcquireRequest) backend.AcquireReply {
	switch {
	case l.Free():
		l.grant(s, s.By, q.Owner, q.Lease)
	case l.find(q.Owner) < 0:
		return backend.AcquireReply{Remaining: s.Left(l.Ends())}
	}
	return backend.AcquireReply{Granted: true, Token: l.token(s, q.Owner, q.Fenced)}
}

// SetHolds is [backend.Store].SetHolds.
func (l *Lock) SetHolds(s *Step, q backend.HoldsRequest) backend.HoldsReply {
	l.Pass(s)
	at := l.find(q.Owner)
	if at < 0 {
		return backend.HoldsReply{}
	}
	o := &l.Owners[at]
	o.Holds, o.Session, o.Ends = q.Holds, s.By, max(o.Ends, s.Now+q.Lease)
	return backend.HoldsReply{Held: true, Token: l.token(s, q.Owner, q.Fenced)}
}

// Release is [backend.Store].Release.
func (l *Lock) Release(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	return l.release(s, q, l.free)
}

// release sets the owner's hold count. If that frees the lock, release calls then.
func (l *Lock) release(s *Step, q backend.ReleaseRequest, then func(*Step)) backend.ReleaseReply {
	l.Pass(s)
	undone := q.Undo && l.drop(q.Owner)
	at := l.find(q.Owner)
	switch {
	case at < 0:
		return backend.ReleaseReply{Held: undone}
	case q.Keep > 0:
		l.Owners[at].Holds = q.Keep
	case l.remove(s, at):
		then(s)
	}
	return backend.ReleaseReply{Held: true}
}

// free serves the queue of a lock that was released. If nobody is served, all that watch the lock are told.
func (l *Lock) free(s *Step) {
	if !l.freed(s) {
		s.announce(s.topic(backend.KindLock))
	}
}

// freeAll is free for the waiters for the plain lock, and tells the first of those for the fair lock.
func (l *Lock) freeAll(s *Step) {
	l.free(s)
	if len(l.Places) > 0 {
		s.tellFair(l.Places[0].Owner)
	}
}

// Renew is [backend.Store].Renew, and [backend.DelegationStore].Renew.
func (l *Lock) Renew(s *Step, q backend.RenewRequest) backend.RenewResult {
	l.Pass(s)
	at := l.find(q.Owner)
	if at < 0 || q.Lease == 0 {
		return backend.RenewResult{Held: at >= 0}
	}
	o, r := &l.Owners[at], backend.RenewResult{Held: true}
	o.Session = s.By
	o.Ends, r.Remaining = s.renewed(o.Ends, q)
	return r
}

// Left returns the time that is left of an owner's lease; 0 if it does not hold the lock.
func (l *Lock) Left(s *Step, owner string) time.Duration {
	l.Pass(s)
	if at := l.find(owner); at >= 0 {
		return s.Left(l.Owners[at].Ends)
	}
	return 0
}

// Inspect is [backend.Store].Inspect.
func (l *Lock) Inspect(s *Step) backend.Record {
	l.Pass(s)
	if len(l.Owners) == 0 {
		return backend.Record{Reserved: !l.Free()}
	}
	o := l.Owners[0]
	return backend.Record{Held: true, Owner: o.ID, Holds: o.Holds, Remaining: s.Left(l.Ends())}
}

// ForceRelease is [backend.Store].ForceRelease.
func (l *Lock) ForceRelease(s *Step, q backend.ForceRequest) bool {
	l.Pass(s)
	if l.Free() || q.Owner != "" && l.find(q.Owner) < 0 {
		return false
	}
	holders := sessions(l.Owners)
	for _, o := range l.Owners {
		s.announce(s.under(o.ID))
	}
	l.clear()
	l.freeAll(s)
	s.tell(Notice{What: Changed, Topic: s.topic(backend.KindLock), To: holders})
	return true
}

// Delete removes the owners as another program would: nothing is released, and nobody is served.
func (l *Lock) Delete(s *Step) {
	l.Pass(s)
	if gone := l.Owners; !l.Free() {
		l.clear()
		l.changed(s, gone)
	}
}
