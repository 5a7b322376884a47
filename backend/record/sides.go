package record

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Sides is what is kept of a read-write lock. The zero Sides is free.
type Sides struct {
	// Writer holds the writing side if its ID is not empty. It does until End: its own Ends is not used.
	Writer Owner
	// Readers hold the reading side; also beside Writer, under it. Their IDs are the keys.
	Readers map[string]Owner
	// End is when both sides are free; 0 if they are.
	End Time
	// Claim keeps new readers out for the sake of a waiting writer.
	Claim Claim
	Line  Line
}

// Claim is a waiting writer's claim.
type Claim struct {
	By    string
	Until Time
}

// Empty reports whether nothing has to be kept.
func (l *Sides) Empty(now Time) bool { return l.End == 0 && len(l.Line) == 0 && now >= l.Claim.Until }

// Ends returns when both sides are free if nothing happens until then; 0 if they are.
func (l *Sides) Ends() Time { return l.End }

// Pass ends what is over. Each step begins with Pass.
func (l *Sides) Pass(s *Step) {
	if l.End != 0 && s.Now >= l.End {
		l.Delete(s)
	}
}

// Delete removes the owners as another program would: nothing is released.
func (l *Sides) Delete(s *Step) {
	gone := l.clear()
	s.tell(Notice{What: Changed, Topic: s.topic(backend.KindWrite), To: gone, All: true})
}

// clear removes all owners, and returns their sessions.
func (l *Sides) clear() (gone []Session) {
	all := slices.SortedFunc(maps.Values(l.Readers), func(a, b Owner) int { return cmp.Compare(a.ID, b.ID) })
	if l.Writer.ID != "" {
		all = append(all, l.Writer)
	}
	l.Writer, l.Readers, l.End = Owner{}, nil, 0
	return sessions(all)
}

// reads reports whether an owner holds the reading side.
func (l *Sides) reads(s *Step, owner string) bool {
	o, is := l.Readers[owner]
	return is && s.Now < o.Ends
}

// writes reports whether an owner holds the writing side.
func (l *Sides) writes(owner string) bool { return l.Writer.ID != "" && l.Writer.ID == owner }

// claimed reports whether a claim stands.
func (l *Sides) claimed(s *Step) bool { return s.Now < l.Claim.Until }

// AcquireRead is [backend.ReadWriteStore].AcquireRead.
func (l *Sides) AcquireRead(s *Step, q backend.ReadRequest) (reply backend.ReadReply) {
	l.Pass(s)
	held := l.End != 0
	switch {
	case l.reads(s, q.Owner):
		if q.Grants { // a release may have granted it, for a first lease
			l.RenewRead(s, backend.RenewRequest{Owner: q.Owner, Lease: q.Lease})
		}
		reply.Granted = true
		return reply
	case q.Under != "":
		if q.UnderWriter && !l.writes(q.Under) || !q.UnderWriter && !l.reads(s, q.Under) {
			return backend.ReadReply{Absent: true}
		}
	default:
		w := s.waiter(backend.KindWrite, q.Enrolment, q.Owner, q.Lease)
		l.Line.replace(q.Instead, w)
		if until := l.keepsOut(s, w); until > 0 {
			reply.Remaining, reply.QueueReply = s.Left(until), l.Line.refused(s, w)
			if !held {
				l.tell(s, false)
			}
			return reply
		}
		told := l.toldToRead(w)
		l.Line.served(s, w, false)
		if !told {
			defer l.tell(s, true)
		}
	}
	l.enter(s, s.By, q.Owner, q.Lease)
	reply.Granted = true
	return reply
}

// enter makes owner a reader.
func (l *Sides) enter(s *Step, by Session, owner string, lease time.Duration) {
	if l.Readers == nil {
		l.Readers = make(map[string]Owner)
	}
	l.Readers[owner] = Owner{ID: owner, Holds: 1, Ends: s.Now + lease, Session: by, Since: s.Now}
	l.End = max(l.End, s.Now+lease)
}

// keepsOut returns when a new reader may enter that is kept out; 0 if it may.
func (l *Sides) keepsOut(s *Step, w Waiter) Time {
	if l.Writer.ID != "" {
		return l.End
	}
	if l.claimed(s) && !l.toldToRead(w) {
		return l.Claim.Until
	}
	for _, x := range l.Line.told(s, w) {
		if x.Writes {
			return x.Until
		}
	}
	return 0
}

// toldToRead reports whether w is a reader's entry whose session was told to ask.
func (l *Sides) toldToRead(w Waiter) bool {
	at := l.Line.at(w)
	return at >= 0 && !l.Line[at].Writes && l.Line[at].Until != 0
}

// AcquireWrite is [backend.ReadWriteStore].AcquireWrite.
func (l *Sides) AcquireWrite(s *Step, q backend.WriteRequest) (reply backend.WriteReply) {
	l.Pass(s)
	w := s.waiter(backend.KindWrite, q.Enrolment, q.Owner, q.Lease)
	w.Writes, w.Claimant = true, q.Claimant
	l.Line.replace(q.Instead, w)
	kept := l.Line.told(s, w)
	switch {
	case l.End == 0 && len(kept) > 0:
		reply.Remaining, reply.QueueReply = s.Left(kept[0].Until), l.Line.refused(s, w)
	case l.End == 0:
		l.Line.served(s, w, false)
		l.write(s, s.By, q.Owner, q.Claimant, q.Lease)
		reply.Granted = true
	case l.writes(q.Owner):
		if q.Grants {
			l.RenewWrite(s, backend.RenewRequest{Owner: q.Owner, Lease: q.Lease})
		}
		reply.Granted = true
	default:
		reply.Remaining, reply.QueueReply = s.Left(l.End), l.Line.refused(s, w)
		if reply.Claimed = l.Writer.ID == "" && q.Claim > 0; reply.Claimed {
			l.Claim = Claim{q.Claimant, s.Now + q.Claim}
		}
	}
	return reply
}

// write makes owner the writer of the free lock, and ends the claim of its claimant.
func (l *Sides) write(s *Step, by Session, owner, claimant string, lease time.Duration) {
	if l.Claim.By == claimant {
		l.Claim = Claim{}
	}
	l.Writer, l.End = Owner{ID: owner, Holds: 1, Session: by, Since: s.Now}, s.Now+lease
}

// SetWriteHolds is [backend.ReadWriteStore].SetWriteHolds.
func (l *Sides) SetWriteHolds(s *Step, q backend.HoldsRequest) backend.HoldsReply {
	l.Pass(s)
	if !l.writes(q.Owner) {
		return backend.HoldsReply{}
	}
	l.Writer.Holds, l.Writer.Session, l.End = q.Holds, s.By, max(l.End, s.Now+q.Lease)
	return backend.HoldsReply{Held: true}
}

// ReleaseRead is [backend.ReadWriteStore].ReleaseRead.
func (l *Sides) ReleaseRead(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	l.Pass(s)
	held := l.reads(s, q.Owner) || q.Undo && l.drop(s, q.Owner)
	if _, is := l.Readers[q.Owner]; is {
		delete(l.Readers, q.Owner)
		if l.Writer.ID == "" && !l.settle(s) {
			l.release(s)
		}
	}
	return backend.ReleaseReply{Held: held}
}

// ReleaseWrite is [backend.ReadWriteStore].ReleaseWrite.
func (l *Sides) ReleaseWrite(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	l.Pass(s)
	switch {
	case !l.writes(q.Owner):
		return backend.ReleaseReply{Held: q.Undo && l.drop(s, q.Owner)}
	case q.Keep > 0:
		l.Writer.Holds = q.Keep
	default:
		l.Writer = Owner{}
		l.settle(s)
		l.release(s)
	}
	return backend.ReleaseReply{Held: true}
}

// settle sets the end to the latest of the readers' leases, without a writer. It reports whether a reader is left.
func (l *Sides) settle(s *Step) bool {
	if l.End = l.last(); l.End <= s.Now {
		l.Readers, l.End = nil, 0
	}
	return l.End != 0
}

// last returns the latest end of a reader's lease.
func (l *Sides) last() (end Time) {
	for _, o := range l.Readers {
		end = max(end, o.Ends)
	}
	return end
}

// RenewRead is [backend.ReadWriteStore].RenewReads for one lease.
func (l *Sides) RenewRead(s *Step, q backend.RenewRequest) backend.RenewResult {
	l.Pass(s)
	if !l.reads(s, q.Owner) {
		return backend.RenewResult{}
	}
	r := backend.RenewResult{Held: true}
	if o := l.Readers[q.Owner]; q.Lease > 0 {
		o.Session = s.By
		o.Ends, r.Remaining = s.renewed(o.Ends, q)
		l.Readers[q.Owner] = o
		if q.Exact && l.Writer.ID == "" {
			l.settle(s)
		} else {
			l.End = max(l.End, s.Now+q.Lease)
		}
	}
	return r
}

// RenewWrite is [backend.ReadWriteStore].RenewWrites for one lease.
func (l *Sides) RenewWrite(s *Step, q backend.RenewRequest) backend.RenewResult {
	l.Pass(s)
	if !l.writes(q.Owner) {
		return backend.RenewResult{}
	}
	r := backend.RenewResult{Held: true}
	if q.Lease > 0 {
		l.Writer.Session = s.By
		l.End, r.Remaining = s.renewed(l.End, q)
		l.End = max(l.End, l.last())
	}
	return r
}

// Inspect is [backend.ReadWriteStore].InspectRW.
func (l *Sides) Inspect(s *Step) backend.Record {
	if l.Pass(s); l.End == 0 {
		return backend.Record{}
	}
	rec := backend.Record{Held: true, Kind: backend.KindRead, Remaining: s.Left(l.End)}
	if l.Writer.ID != "" {
		rec.Kind, rec.Owner, rec.Holds = backend.KindWrite, l.Writer.ID, l.Writer.Holds
	}
	for owner := range l.Readers {
		if !l.reads(s, owner) {
			continue
		}
		rec.Readers++
		if rec.Kind == backend.KindRead && (rec.Owner == "" || owner < rec.Owner) {
			rec.Owner, rec.Holds = owner, 1
		}
	}
	return rec
}

// ForceRelease is [backend.ReadWriteStore].ForceReleaseRW.
func (l *Sides) ForceRelease(s *Step, q backend.ForceRequest) bool {
	l.Pass(s)
	var gone []Session
	switch one := (backend.ReleaseRequest{Owner: q.Owner}); {
	case l.End == 0:
		return false
	case q.Owner == "":
		gone = l.clear()
		l.release(s)
	case l.reads(s, q.Owner):
		gone = []Session{l.Readers[q.Owner].Session}
		l.ReleaseRead(s, one)
	case l.writes(q.Owner):
		gone = []Session{l.Writer.Session}
		l.ReleaseWrite(s, one)
	default:
		return false
	}
	s.tell(Notice{What: Changed, Topic: s.topic(backend.KindWrite), To: gone})
	return true
}

// Withdraw is [backend.ReadWriteStore].Withdraw.
func (l *Sides) Withdraw(s *Step, claimant string) {
	l.Pass(s)
	if l.claimed(s) && l.Claim.By == claimant {
		l.Claim = Claim{}
		s.release(backend.KindWrite, l.Writer.ID == "" && l.tell(s, l.End != 0))
	}
}

// release serves the line behind the release of a side.
func (l *Sides) release(s *Step) { s.release(backend.KindWrite, l.tell(s, l.End != 0)) }

// tell serves the entries that can be: one writer, or readers. It grants the owner in an entry, and tells the session
// of an entry without one to ask. There is no writer; reading reports whether there are readers. Readers that were told
// before, and have time left, count as readers.
func (l *Sides) tell(s *Step, reading bool) bool {
	told := l.Line.told(s, Waiter{})
	for _, w := range told {
		if w.Writes {
			return true
		}
	}
	reading = reading || len(told) > 0
	claimed := l.claimed(s)
	decided, writes, writer := reading || claimed, claimed && !reading, false
	take := func(w *Waiter) offer {
		if decided && writes != w.Writes || writer || claimed && reading {
			return nothing
		}
		decided, writes, writer = true, w.Writes, w.Writes
		switch {
		case w.Owner == "":
			return aTurn
		case w.Writes:
			l.write(s, w.Session, w.Owner, w.Claimant, w.lease())
		default:
			l.enter(s, w.Session, w.Owner, w.lease())
		}
		return aGrant
	}
	return l.Line.tell(s, len(told) > 0, take, func(*Waiter) time.Duration {
		if writes || claimed {
			return wire.Reservation
		}
		return wire.AsksSoonest // the entry is a writer: its request is refused, and so leaves a claim
	})
}

// Leave is [backend.EnrolmentStore].LeaveQueue. A side that the entry's owner has, or that was kept for the entry, goes
// to the next entries.
func (l *Sides) Leave(s *Step, number uint64, owner string) {
	l.Pass(s)
	l.leave(s, Waiter{Session: s.By, Number: number, Owner: owner})
	if owner != "" {
		q := backend.ReleaseRequest{Owner: owner}
		l.ReleaseRead(s, q)
		l.ReleaseWrite(s, q)
	}
}

// drop takes the entry of an owner out of the line, and reports whether there was one.
func (l *Sides) drop(s *Step, owner string) bool {
	w := Waiter{Session: s.By, Owner: owner}
	if l.Line.at(w) < 0 {
		return false
	}
	l.leave(s, w)
	return true
}

// leave takes an entry out of the line.
func (l *Sides) leave(s *Step, w Waiter) {
	if _, told := l.Line.served(s, w, false); told && l.Writer.ID == "" {
		l.tell(s, l.End != 0)
	}
}

// Forget removes the entries of a session that has ended.
func (l *Sides) Forget(s *Step, x Session) {
	l.Line.forget(x, func(w Waiter) { l.leave(s, w) })
}
