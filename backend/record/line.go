package record

import (
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Line is the queue of a semaphore or a read-write lock, oldest first. A release grants the owner in an entry. The
// session of an entry without an owner is told to ask, and has a second for its request. Meanwhile its permits, or its
// side, are kept for it.
type Line []Waiter

// Waiter is an entry in a Line.
type Waiter struct {
	Session Session
	Number  uint64       // of the session's wait
	Kind    backend.Kind // of the topic on which the session is told
	Writes  bool
	Wants   int64 // the fewest permits that the session waits for
	// Owner, if not empty, is the next owner of the session: a release grants it Size permits, or the side.
	Owner    string
	Size     int64
	Lease    time.Duration // that the owner asked for
	Claimant string        // whose claim a grant of the writing side ends
	// Until is when what is kept is not kept any more; 0 while the session was not told to ask.
	Until Time
	Came  Time // when the place was taken
}

// waiter returns the entry of a request with an enrolment. Owner and lease are what the request asks for.
func (s *Step) waiter(k backend.Kind, q backend.Enrolment, owner string, lease time.Duration) Waiter {
	w := Waiter{Session: s.By, Number: q.Entry, Kind: k}
	if q.Grants && q.Entry != 0 {
		w.Owner, w.Lease = owner, lease
	}
	return w
}

// is reports whether both are the same entry: of the same owner, or without one, of the same number.
func (w *Waiter) is(x Waiter) bool {
	return w.Session == x.Session && w.Owner == x.Owner && (w.Owner != "" || w.Number == x.Number)
}

// lease returns the lease of a grant to the entry's owner, which lasts until the session has renewed it.
func (w *Waiter) lease() time.Duration { return min(w.Lease, backend.FirstLease) }

// at returns the index of an entry; -1 if it is not there.
func (l Line) at(x Waiter) int {
	return slices.IndexFunc(l, func(w Waiter) bool { return w.is(x) })
}

// replace gives the entry of an owner that its session asks for no more to x's owner, with its place.
func (l Line) replace(instead string, x Waiter) {
	if instead == "" || x.Owner == "" || l.at(x) >= 0 {
		return
	}
	if at := l.at(Waiter{Session: x.Session, Owner: instead}); at >= 0 {
		w := &l[at]
		w.Number, w.Owner, w.Size, w.Lease, w.Claimant = x.Number, x.Owner, x.Size, x.Lease, x.Claimant
	}
}

// next returns the first entry whose session was not told to ask; nil if there is none.
func (l Line) next() *Waiter {
	at := slices.IndexFunc(l, func(w Waiter) bool { return w.Until == 0 })
	if at < 0 {
		return nil
	}
	return &l[at]
}

// told returns the entries, except one, whose sessions were told to ask and have time left for it.
func (l Line) told(s *Step, but Waiter) (all []Waiter) {
	for _, w := range l {
		if s.Now < w.Until && !w.is(but) {
			all = append(all, w)
		}
	}
	return all
}

// kept returns how many permits are kept for the entries that told returns.
func (l Line) kept(s *Step, but Waiter) (permits int64) {
	for _, w := range l.told(s, but) {
		permits += w.Wants
	}
	return permits
}

// refused puts the entry of a refused request into the line, or keeps its place there. An entry whose session was told
// to ask goes to the front.
func (l *Line) refused(s *Step, w Waiter) backend.QueueReply {
	if w.Number == 0 || !s.Hears(w.Session, s.topic(w.Kind)) {
		return backend.QueueReply{}
	}
	at := l.at(w)
	if w.Came = s.Now; at >= 0 {
		w.Came = (*l)[at].Came
	}
	switch {
	case at < 0:
		*l = append(*l, w)
	case (*l)[at].Until == 0:
		(*l)[at] = w
	default:
		*l = slices.Insert(slices.Delete(*l, at, at+1), 0, w)
	}
	next := l.next()
	return backend.QueueReply{Enrolled: true, First: next != nil && next.is(w)}
}

// keep keeps the permits of an entry for a second, as if its session had been told to ask.
func (l Line) keep(s *Step, x Waiter) {
	if at := l.at(x); at >= 0 {
		l[at].Until = s.Now + wire.Reservation
	}
}

// served takes an entry out of the line. With stays it puts the entry at the end instead; an entry outside the line
// then joins it, unless the line is empty or its number is 0. Told reports whether the entry's session had been told
// to ask; if not, the session of the first waiting entry is told that its entry is the first.
func (l *Line) served(s *Step, w Waiter, stays bool) (reply backend.QueueReply, told bool) {
	at := l.at(w)
	if at < 0 {
		if stays && w.Number != 0 && len(*l) > 0 && s.Hears(w.Session, s.topic(w.Kind)) {
			w.Wants, w.Came = 1, s.Now
			*l = append(*l, w)
			return backend.QueueReply{Enrolled: true}, false
		}
		return reply, false
	}
	w = (*l)[at]
	told, w.Until = w.Until != 0, 0
	*l = slices.Delete(*l, at, at+1)
	if stays {
		w.Came = s.Now
		*l = append(*l, w)
	}
	if next := l.next(); !told && next != nil {
		s.first(next, wire.Reservation)
	}
	return backend.QueueReply{Enrolled: stays}, told
}

// first tells the session of an entry that the entry is the first that waits, and to ask after the given time.
func (s *Step) first(w *Waiter, after time.Duration) {
	s.tellEntry(w.Session, Notice{What: First, Topic: s.topic(w.Kind), Entry: w.Number, After: after})
}

// offer is what a waiting entry gets of what is free.
type offer uint8

const (
	nothing offer = iota
	aTurn         // its session is told to ask
	aGrant        // its owner has it: the notice is the grant
)

// tell offers each waiting entry to take, in the line's order. It takes out the entries whose owners take has granted,
// and tells the sessions of other accepted entries to ask. It reports whether it told one; served says that one was
// told before. In either case the first other entry for which second returns a time is told that it is the first, and
// to ask after that time. Nothing is told where nothing is granted.
func (l *Line) tell(s *Step, served bool, take func(*Waiter) offer, second func(*Waiter) time.Duration) bool {
	if s.NoGrants {
		return served
	}
	*l = slices.DeleteFunc(*l, func(w Waiter) bool {
		return w.Until != 0 && s.Now >= w.Until || !s.Hears(w.Session, s.topic(w.Kind))
	})
	all, rest := *l, (*l)[:0]
	next, after := Waiter{}, time.Duration(0)
	for _, w := range all {
		got := nothing
		if w.Until == 0 {
			got = take(&w)
		}
		switch {
		case got == aGrant:
			served = true
			s.tellEntry(w.Session, Notice{What: Granted, Topic: s.topic(w.Kind), Owner: w.Owner, Lease: w.lease()})
			continue
		case got == aTurn:
			served, w.Until = true, s.Now+wire.Reservation
			s.tellEntry(w.Session, Notice{What: Reserved, Topic: s.topic(w.Kind), Entry: w.Number})
		case w.Until == 0 && after == 0:
			if after = second(&w); after > 0 {
				next = w
			}
		}
		rest = append(rest, w)
	}
	clear(all[len(rest):])
	if *l = rest; served && after > 0 {
		s.first(&next, after)
	}
	return served
}

// release tells the sessions that watch a topic of a release. If an entry was served, only those that cannot enrol are
// told.
func (s *Step) release(k backend.Kind, served bool) {
	s.tell(Notice{What: Released, Topic: s.topic(k), All: !served, Strangers: served})
}

// forget removes the entries of a session that has ended, one after the other: leave is called behind each.
func (l *Line) forget(x Session, leave func(Waiter)) {
	for _, w := range slices.Clone(*l) {
		if w.Session == x {
			leave(w)
		}
	}
}
