package record

import (
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/wire"
)

// Line is the queue of a semaphore or a read-write lock, oldest first. A session that was told to ask has a second for
// its request. Meanwhile its permits, or its side, are kept for it.
type Line []Waiter

// Waiter is an entry in a Line.
type Waiter struct {
	Session Session
	Number  uint64       // of the session's wait
	Kind    backend.Kind // of the topic on which the session is told
	Writes  bool
	Wants   int64 // how many permits the session waits for
	// Until is when what is kept is not kept any more; 0 while the session was not told to ask.
	Until Time
	Came  Time // when the place was taken
}

func (w *Waiter) is(x Session, number uint64) bool { return w.Session == x && w.Number == number }

// at returns the index of an entry; -1 if it is not there.
func (l Line) at(x Session, number uint64) int {
	return slices.IndexFunc(l, func(w Waiter) bool { return w.is(x, number) })
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
func (l Line) told(s *Step, x Session, number uint64) (all []Waiter) {
	for _, w := range l {
		if s.Now < w.Until && !w.is(x, number) {
			all = append(all, w)
		}
	}
	return all
}

// kept returns how many permits are kept for the entries that told returns.
func (l Line) kept(s *Step, x Session, number uint64) (permits int64) {
	for _, w := range l.told(s, x, number) {
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
	at := l.at(w.Session, w.Number)
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
	return backend.QueueReply{Enrolled: true, First: next != nil && next.is(w.Session, w.Number)}
}

// keep keeps the permits of an entry for a second, as if its session had been told to ask.
func (l Line) keep(s *Step, x Session, number uint64) {
	if at := l.at(x, number); at >= 0 {
		l[at].Until = s.Now + wire.Reservation
	}
}

// served takes an entry out of the line. With stays it puts the entry at the end instead; an entry outside the line
// then joins it, unless the line is empty or its number is 0. Told reports whether the entry's session had been told
// to ask; if not, the session of the first waiting entry is told that its entry is the first.
func (l *Line) served(s *Step, w Waiter, stays bool) (reply backend.QueueReply, told bool) {
	at := l.at(w.Session, w.Number)
	if at < 0 {
		if stays && w.Number != 0 && len(*l) > 0 && s.Hears(w.Session, s.topic(w.Kind)) {
			w.Wants = 1
			*l = append(*l, w)
			return backend.QueueReply{Enrolled: true}, false
		}
		return reply, false
	}
	w = (*l)[at]
	told, w.Until = w.Until != 0, 0
	*l = slices.Delete(*l, at, at+1)
	if stays {
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

// tell offers each waiting entry to take, in the line's order, and tells the sessions of the accepted entries to ask.
// It reports whether it told one; served says that one was told before. In either case the first other entry for
// which second returns a time is told that it is the first, and to ask after that time. Nothing is told where nothing
// is granted.
func (l *Line) tell(s *Step, served bool, take func(*Waiter) bool, second func(*Waiter) time.Duration) bool {
	if s.NoGrants {
		return served
	}
	*l = slices.DeleteFunc(*l, func(w Waiter) bool {
		return w.Until != 0 && s.Now >= w.Until || !s.Hears(w.Session, s.topic(w.Kind))
	})
	next, after := (*Waiter)(nil), time.Duration(0)
	for i := range *l {
		w := &(*l)[i]
		switch {
		case w.Until != 0:
		case take(w):
			served, w.Until = true, s.Now+wire.Reservation
			s.tellEntry(w.Session, Notice{What: Reserved, Topic: s.topic(w.Kind), Entry: w.Number})
		case next == nil:
			if after = second(w); after > 0 {
				next = w
			}
		}
	}
	if served && next != nil {
		s.first(next, after)
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
