package memory

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// enrolled is an entry in the queue of a semaphore or a read-write lock.
type enrolled struct {
	entry
	topic  backend.Topic
	writes bool
	wants  int64     // how many permits the entry waits for
	until  time.Time // when the reservation ends, after the session was told to ask; zero while the entry waits
}

// enrolments has the queues of semaphores and read-write locks, each oldest entry first. A session that was told to ask
// has a second for its request. Meanwhile its permits, or its side, are kept for it.
type enrolments struct {
	store *Store
	lines map[backend.Topic][]*enrolled
}

// queueOf returns the key of a topic's queue. Both kinds of semaphores share a queue.
func queueOf(t backend.Topic) backend.Topic {
	if t.Kind == backend.KindCountingSemaphore {
		t.Kind = backend.KindSemaphore
	}
	return t
}

// told returns the entries of a topic, except one, whose sessions were told to ask and have time left for it.
func (k enrolments) told(t backend.Topic, but entry) (all []*enrolled) {
	now := time.Now()
	for _, w := range k.lines[queueOf(t)] {
		if now.Before(w.until) && w.entry != but {
			all = append(all, w)
		}
	}
	return all
}

// kept returns how many permits are kept for the entries that told returns.
func (k enrolments) kept(t backend.Topic, but entry) (permits int64) {
	for _, w := range k.told(t, but) {
		permits += w.wants
	}
	return permits
}

// refused puts the entry of a refused request into its queue, or keeps its place there. An entry whose session was told
// to ask goes to the front.
func (k enrolments) refused(w enrolled) (reply backend.QueueReply) {
	if !w.session.hears(w.topic) || w.number == 0 {
		return reply
	}
	q := queueOf(w.topic)
	line := k.lines[q]
	switch at := slices.IndexFunc(line, func(x *enrolled) bool { return x.entry == w.entry }); {
	case at < 0:
		line = append(line, &w)
	case line[at].until.IsZero():
		*line[at] = w
	default:
		line = slices.Insert(slices.Delete(line, at, at+1), 0, &w)
	}
	k.lines[q] = line
	waits := slices.IndexFunc(line, func(x *enrolled) bool { return x.until.IsZero() })
	return backend.QueueReply{Enrolled: true, First: waits >= 0 && line[waits].entry == w.entry}
}

// toldToRead reports whether e is a reader's entry whose session was told to ask.
func (k enrolments) toldToRead(t backend.Topic, e entry) bool {
	at := slices.IndexFunc(k.lines[t], func(w *enrolled) bool { return w.entry == e })
	return at >= 0 && !k.lines[t][at].writes && !k.lines[t][at].until.IsZero()
}

// keep keeps the permits of an entry for a second, as if its session had been told to ask.
func (k enrolments) keep(t backend.Topic, e entry) {
	for _, w := range k.lines[queueOf(t)] {
		if w.entry == e {
			w.until = time.Now().Add(reservation)
		}
	}
}

// served takes an entry out of its queue. With stays it puts the entry at the end instead; an entry outside the queue
// then joins it, unless the queue is empty or its number is 0. Told reports whether the entry's session had been
// told to ask; if not, the session of the first waiting entry is told that its entry is the first.
func (k enrolments) served(t backend.Topic, e entry, stays bool) (reply backend.QueueReply, told bool) {
	q := queueOf(t)
	line := k.lines[q]
	at := slices.IndexFunc(line, func(x *enrolled) bool { return x.entry == e })
	joins := e.number != 0 && len(line) > 0 && e.session.hears(t)
	switch {
	case at < 0 && stays && joins:
		k.lines[q] = append(line, &enrolled{entry: e, topic: t, wants: 1})
		return backend.QueueReply{Enrolled: true}, false
	case at < 0:
		return reply, false
	}
	w := *line[at]
	told, w.until = !w.until.IsZero(), time.Time{}
	line = slices.Delete(line, at, at+1)
	if stays {
		line = append(line, &w)
	}
	setLine(k.lines, q, line)
	if next := slices.IndexFunc(line, func(x *enrolled) bool { return x.until.IsZero() }); !told && next >= 0 {
		line[next].first(reservation)
	}
	return backend.QueueReply{Enrolled: stays}, told
}

// first tells the session of an entry that the entry is the first that waits, and to ask after the given time.
func (w *enrolled) first(after time.Duration) {
	number := w.number
	w.session.tell(event{func(h backend.Handler, t backend.Topic) {
		h.(backend.QueueHandler).First(t, number, after)
	}, w.topic})
}

// tell offers each waiting entry to take, in the queue's order, and tells the sessions of the accepted entries to ask.
// It reports whether it told one; served says that one was told before. In either case the first other entry for which
// second returns a time is told that it is the first, and to ask after that time.
func (k enrolments) tell(
	t backend.Topic, served bool, take func(*enrolled) bool, second func(*enrolled) time.Duration,
) bool {
	q, now := queueOf(t), time.Now()
	line := slices.DeleteFunc(k.lines[q], func(w *enrolled) bool {
		return !w.until.IsZero() && !now.Before(w.until) || !w.session.hears(w.topic)
	})
	setLine(k.lines, q, line)
	next, after := (*enrolled)(nil), time.Duration(0)
	for _, w := range line {
		switch {
		case !w.until.IsZero():
		case take(w):
			served, w.until = true, now.Add(reservation)
			number := w.number
			w.session.tell(event{func(h backend.Handler, t backend.Topic) {
				h.(backend.QueueHandler).Reserved(t, number)
			}, w.topic})
		case next == nil:
			if after = second(w); after > 0 {
				next = w
			}
		}
	}
	if served && next != nil {
		next.first(after)
	}
	return served
}

// tellTakers gives the free permits to the waiting entries, except one: in the queue's order, the session of each entry
// that wants no more than the rest of the free permits is told to ask.
func (k enrolments) tellTakers(t backend.Topic, free int64, but entry) bool {
	take := func(w *enrolled) bool {
		if w.wants > free || w.entry == but {
			return false
		}
		free -= w.wants
		return true
	}
	return k.tell(t, false, take, func(w *enrolled) time.Duration {
		if w.entry == but {
			return 0
		}
		return reservation
	})
}

// tellSides tells the entries of a read-write lock that can be served to ask: one writer, or readers. The lock has no
// writer; reading reports whether it has readers. Readers that were told before, and have time left, count as readers.
func (k enrolments) tellSides(name string, reading bool) bool {
	told := k.told(rwTopic(name), entry{})
	for _, w := range told {
		if w.writes {
			return true
		}
	}
	reading = reading || len(told) > 0
	_, claimed := k.store.claims.standing(name)
	decided, writes, writer := reading || claimed, claimed && !reading, false
	take := func(w *enrolled) bool {
		if decided && writes != w.writes || writer || claimed && reading {
			return false
		}
		decided, writes, writer = true, w.writes, w.writes
		return true
	}
	return k.tell(rwTopic(name), len(told) > 0, take, func(w *enrolled) time.Duration {
		if writes || claimed {
			return reservation
		}
		return reservation / 50 // the entry is a writer: its request is refused, and so leaves a claim
	})
}

// announce tells the sessions that watch a topic of a release. If an entry was served, only those that do not enrol are
// told.
func (k enrolments) announce(t backend.Topic, served bool) {
	for x := range k.store.watchers[t] {
		if _, enrols := x.handler.(backend.QueueHandler); !served || !enrols {
			x.tell(event{released, t})
		}
	}
}

// forget takes the entries of a closed session out of the queues.
func (k enrolments) forget(x *client) {
	for _, line := range maps.Clone(k.lines) {
		for _, w := range slices.Clone(line) {
			if w.session == x {
				k.leave(w.topic, w.entry)
			}
		}
	}
}

// leave takes an entry out of its queue. Permits, or a side, that were kept for the entry go to the next entries.
func (k enrolments) leave(t backend.Topic, e entry) {
	_, told := k.served(t, e, false)
	r := k.store.find(t.Name)
	switch {
	case !told:
	case t.Kind != backend.KindWrite:
		k.tellTakers(t, r.counted()-k.kept(t, entry{}), entry{})
	case r == nil || r.sides != nil && r.sides.writer == "":
		k.tellSides(t.Name, r != nil)
	}
}

// hears reports whether the session receives messages for its entries of a topic: it enrols, and watches the topic.
func (x *client) hears(t backend.Topic) bool {
	_, hears := x.handler.(backend.QueueHandler)
	_, watches := x.watched[t]
	return hears && watches
}

// LeaveQueue implements [backend.EnrolmentStore].
func (x enrolling) LeaveQueue(ctx context.Context, t backend.Topic, number uint64) error {
	_, err := locked(ctx, x.client, func(s *Store) (struct{}, error) {
		s.enrolments.leave(t, entry{x.client, number})
		return struct{}{}, nil
	})
	return err
}

// enrolling implements [backend.EnrolmentStore].
type enrolling struct{ *client }
