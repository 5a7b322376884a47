package record

import (
	"cmp"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Permits is what is kept of a latch or a semaphore: a count, and for a semaphore with leases the permits in use. The
// zero Permits has none.
type Permits struct {
	// Counts: there is a count, N.
	Counts bool
	N      int64
	// Out has the permits in use: when the lease of each ends, by its id.
	Out  map[string]Time
	Line Line
}

// Empty reports whether nothing has to be kept.
func (p *Permits) Empty(Time) bool { return !p.Counts && len(p.Out) == 0 && len(p.Line) == 0 }

// Set is SetCount of [backend.CountDownLatchStore] and [backend.CountingSemaphoreStore], by kind.
func (p *Permits) Set(s *Step, k backend.Kind, n int64) bool {
	switch {
	case p.Counts:
		return false
	case p.add(n) <= 0:
	case k == backend.KindCountDownLatch:
		s.release(k, false)
	default:
		p.announce(s)
	}
	return true
}

// CountDown is [backend.CountDownLatchStore].CountDown.
func (p *Permits) CountDown(s *Step) int64 {
	if p.Counts && p.add(-1) <= 0 {
		p.DeleteLatch(s)
	}
	return p.N
}

// DeleteLatch is [backend.CountDownLatchStore].DeleteCount.
func (p *Permits) DeleteLatch(s *Step) bool {
	was := p.Counts
	if p.Counts, p.N = false, 0; was {
		s.release(backend.KindCountDownLatch, false)
	}
	return was
}

// Count is [backend.SemaphoreStore].Count.
func (p *Permits) Count(s *Step) int64 {
	if p.reclaim(s) && p.N > 0 {
		p.announce(s)
	}
	return p.N
}

// add adds n to the count, which it makes if there is none, and returns the sum.
func (p *Permits) add(n int64) int64 {
	p.Counts, p.N = true, p.N+n
	return p.N
}

// announce serves the line, and tells those that watch the semaphore, of either kind, that there are permits.
func (p *Permits) announce(s *Step) { p.release(s, p.tell(s, p.N-p.Line.kept(s, Waiter{}), Waiter{})) }

func (p *Permits) release(s *Step, served bool) {
	s.release(backend.KindCountingSemaphore, served)
	s.release(backend.KindSemaphore, served)
}

// tell gives the free permits to the waiting entries, except one, in the line's order: each owner that wants no more
// than the rest of the free permits is granted them, and the session of an entry without an owner is told to ask. So is
// that of an owner that wants more, if another of its waiters wants fewer.
func (p *Permits) tell(s *Step, free int64, but Waiter) bool {
	take := func(w *Waiter) offer {
		switch {
		case w.is(but):
			return nothing
		case w.Owner != "" && w.Size <= free:
			free -= w.Size
			p.out(s, w.lease(), slices.Collect(backend.PermitIDs(w.Owner)))
			return aGrant
		case w.Wants <= free:
			free -= w.Wants
			return aTurn
		}
		return nothing
	}
	return p.Line.tell(s, false, take, func(w *Waiter) time.Duration {
		if w.is(but) {
			return 0
		}
		return wire.Reservation
	})
}

// Add is [backend.CountingSemaphoreStore].AddCount.
func (p *Permits) Add(s *Step, n int64) int64 {
	if p.add(n) > 0 && n > 0 {
		p.announce(s)
	}
	return p.N
}

// Take is [backend.CountingSemaphoreStore].TakeCount.
func (p *Permits) Take(s *Step, q backend.CountRequest) (reply backend.TakeReply) {
	w := Waiter{Session: s.By, Number: q.Entry, Kind: q.Topic.Kind, Wants: max(q.Least, 1)}
	free := p.N - p.Line.kept(s, w)
	if reply.Granted = free >= q.N; reply.Granted {
		p.add(-q.N)
		free -= q.N
		reply.Available = free
		reply.QueueReply, _ = p.Line.served(s, w, q.Stays)
		p.tell(s, free, w)
		return reply
	}
	reply.Available = free
	for _, x := range p.Line.told(s, w) {
		reply.Remaining = max(reply.Remaining, s.Left(x.Until))
	}
	reply.QueueReply, free = p.refused(s, w, free)
	p.tell(s, free, w)
	return reply
}

// refused puts the entry of a refused request into the line. If fewer permits are enough for another waiter of its
// session, and are free, they are kept for it: the session asks again at once. It returns what is free besides.
func (p *Permits) refused(s *Step, w Waiter, free int64) (backend.QueueReply, int64) {
	reply := p.Line.refused(s, w)
	if reply.Enrolled && w.Wants <= free {
		p.Line.keep(s, w)
		reply.First = false
		free -= w.Wants
	}
	return reply, free
}

// Back gives back n permits that were taken, if there is a count.
func (p *Permits) Back(s *Step, n int64) {
	if p.Counts && p.add(n) > 0 {
		p.announce(s)
	}
}

// Drain is [backend.CountingSemaphoreStore].DrainCount.
func (p *Permits) Drain() (took int64) {
	took, p.N = p.N, 0
	return took
}

// Delete is [backend.CountingSemaphoreStore].DeleteCount. It announces nothing.
func (p *Permits) Delete() (was bool) {
	was, p.Counts, p.N = p.Counts, false, 0
	clear(p.Out)
	return was
}

// reclaim adds the expired permits to the count. It reports whether there were any.
func (p *Permits) reclaim(s *Step) (ended bool) {
	for id, end := range p.Out {
		if s.Now >= end {
			p.back(id)
			ended = true
		}
	}
	return ended
}

// back puts a permit back that is in use.
func (p *Permits) back(id string) {
	delete(p.Out, id)
	p.add(1)
}

// resize sets the number of permits, free and in use together. It reports whether the free permits grew.
func (p *Permits) resize(limit int64) bool {
	more := limit - int64(len(p.Out)) - p.N
	p.add(more)
	return more > 0
}

// Acquire is [backend.SemaphoreStore].Acquire.
func (p *Permits) Acquire(s *Step, q backend.PermitRequest) (reply backend.PermitReply) {
	more := p.reclaim(s)
	ids, again := slices.Collect(backend.PermitIDs(q.Owner)), p.Uses(q.Owner)
	if q.Limit > 0 && !again && (!p.Counts || q.Declare) {
		more = p.resize(q.Limit) || more
	}
	w := s.waiter(backend.KindSemaphore, q.Enrolment, q.Owner, q.Lease)
	w.Wants, w.Size = max(q.Least, 1), int64(len(ids))
	p.Line.replace(q.Instead, w)
	free, wants := p.N-p.Line.kept(s, w), w.Size
	switch {
	case again:
		if q.Grants { // a release may have granted them, for a first lease
			p.Renew(s, backend.RenewRequest{Owner: q.Owner, Lease: q.Lease})
		}
		reply.Granted, reply.Available = true, free
	case free >= wants:
		p.out(s, q.Lease, ids)
		free -= wants
		reply.Granted, reply.Available = true, free
		reply.QueueReply, _ = p.Line.served(s, w, q.Stays && w.Owner == "")
	default:
		reply.Available = free
		reply.QueueReply, free = p.refused(s, w, free)
		reply.Remaining = p.left(s, w)
	}
	if served := p.tell(s, free, w); more && p.N > 0 {
		p.release(s, served)
	}
	return reply
}

// Uses reports whether one of an owner's permits is in use, perhaps longer than its lease.
func (p *Permits) Uses(owner string) bool {
	for id := range backend.PermitIDs(owner) {
		if _, out := p.Out[id]; out {
			return true
		}
	}
	return false
}

// out notes that permits are in use. They end together.
func (p *Permits) out(s *Step, lease time.Duration, ids []string) {
	if p.Out == nil {
		p.Out = make(map[string]Time)
	}
	for _, id := range ids {
		p.Out[id] = s.Now + lease
	}
	p.add(-int64(len(ids)))
}

// left returns the time until a permit may become free without a release: the first end of a permit's lease, or of what
// is kept for another entry. Negative: never.
func (p *Permits) left(s *Step, w Waiter) time.Duration {
	first := Time(0)
	until := func(end Time) {
		if first == 0 || end < first {
			first = end
		}
	}
	for _, end := range p.Out {
		until(end)
	}
	for _, x := range p.Line.told(s, w) {
		until(x.Until)
	}
	if first == 0 {
		return -1
	}
	return s.Left(first)
}

// SetLimit is [backend.SemaphoreStore].SetLimit.
func (p *Permits) SetLimit(s *Step, limit int64) {
	ended := p.reclaim(s)
	if more := p.resize(limit); (more || ended) && p.N > 0 {
		p.announce(s)
	}
}

// Inspect is [backend.SemaphoreStore].InspectPermits.
func (p *Permits) Inspect(s *Step, most int) backend.PermitsRecord {
	r := backend.PermitsRecord{Free: p.N}
	for id, end := range p.Out {
		if s.Now >= end {
			r.Free++
			continue
		}
		r.Out++
		r.List = append(r.List, backend.PermitRecord{ID: id, Remaining: end - s.Now})
	}
	slices.SortFunc(r.List, func(a, b backend.PermitRecord) int {
		return cmp.Or(cmp.Compare(a.Remaining, b.Remaining), cmp.Compare(a.ID, b.ID))
	})
	r.List = r.List[:min(len(r.List), most)]
	return r
}

// Release is [backend.SemaphoreStore].Release.
func (p *Permits) Release(s *Step, q backend.ReleaseRequest) backend.ReleaseReply {
	if q.Undo && p.drop(s, q.Owner) {
		return backend.ReleaseReply{Held: true}
	}
	reply, some := backend.ReleaseReply{Held: true}, false
	for id := range backend.PermitIDs(q.Owner) {
		end, out := p.Out[id]
		reply.Held = reply.Held && out && s.Now < end
		if out {
			p.back(id)
			some = true
		}
	}
	if some && p.N > 0 {
		p.announce(s)
	}
	return reply
}

// Renew is [backend.SemaphoreStore].Renew for one lease.
func (p *Permits) Renew(s *Step, q backend.RenewRequest) backend.RenewResult {
	for id := range backend.PermitIDs(q.Owner) {
		if s.Now >= p.Out[id] {
			return backend.RenewResult{}
		}
	}
	r := backend.RenewResult{Held: true}
	for id := range backend.PermitIDs(q.Owner) {
		end, over := s.renewed(p.Out[id], q)
		p.Out[id], r.Remaining = end, max(r.Remaining, over)
	}
	return r
}

// Leave is [backend.EnrolmentStore].LeaveQueue. Permits that the entry's owner has, or that were kept for the entry, go
// to the next entries.
func (p *Permits) Leave(s *Step, number uint64, owner string) {
	p.leave(s, Waiter{Session: s.By, Number: number, Owner: owner})
	if owner != "" {
		p.Release(s, backend.ReleaseRequest{Owner: owner})
	}
}

// drop takes the entry of an owner out of the line, and reports whether there was one.
func (p *Permits) drop(s *Step, owner string) bool {
	w := Waiter{Session: s.By, Owner: owner}
	if p.Line.at(w) < 0 {
		return false
	}
	p.leave(s, w)
	return true
}

// leave takes an entry out of the line.
func (p *Permits) leave(s *Step, w Waiter) {
	if _, told := p.Line.served(s, w, false); told {
		p.tell(s, p.N-p.Line.kept(s, Waiter{}), Waiter{})
	}
}

// Forget removes the entries of a session that has ended.
func (p *Permits) Forget(s *Step, x Session) {
	p.Line.forget(x, func(w Waiter) { p.leave(s, w) })
}
