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
	wants  int64     // permits
	until  time.Time // when its session is to have asked, that was told to; zero while the entry waits
}

// enrolments are the queues of semaphores and read-write locks, each in the order of arrival. A session that was told
// to ask has a second, in which what it was told of is granted to no other.
type enrolments struct {
	store *Store
	lines map[backend.Topic][]*enrolled
}

// queueOf is what a queue is found by: both kinds of semaphores have one.
func queueOf(t backend.Topic) backend.Topic {
	if t.Kind == backend.KindCountingSemaphore {
		t.Kind = backend.KindSemaphore
	}
	return t
}

// told are the entries of a topic whose sessions are to ask just now, but for one.
func (k enrolments) told(t backend.Topic, but entry) (all []*enrolled) {
	now := time.Now()
	for _, w := range k.lines[queueOf(t)] {
		if now.Before(w.until) && w.entry != but {
			all = append(all, w)
		}
	}
	return all
}

// kept is how many permits are kept for sessions that were told to ask, but for the session of one entry.
func (k enrolments) kept(t backend.Topic, but entry) (permits int64) {
	for _, w := range k.told(t, but) {
		permits += w.wants
	}
	return permits
}

// refused puts an entry into its queue, or keeps its place there. One that was told to ask, and asked, goes to the
// front.
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

// toldToRead reports whether an entry of a reader was told to ask.
func (k enrolments) toldToRead(t backend.Topic, e entry) bool {
	at := slices.IndexFunc(k.lines[t], func(w *enrolled) bool { return w.entry == e })
	return at >= 0 && !k.lines[t][at].writes && !k.lines[t][at].until.IsZero()
}

// keep keeps what an entry waits for, as if it had been told to ask.
func (k enrolments) keep(t backend.Topic, e entry) {
	for _, w := range k.lines[queueOf(t)] {
		if w.entry == e {
			w.until = time.Now().Add(reservation)
		}
	}
}

// served takes an entry out of its queue, or puts it to the end. It reports whether the entry had been told to ask; if
// not, the next is told that it is the first.
func (k enrolments) served(t backend.Topic, e entry, stays bool) (reply backend.QueueReply, told bool) {
	q := queueOf(t)
	line := k.lines[q]
	at := slices.IndexFunc(line, func(x *enrolled) bool { return x.entry == e })
	switch {
	case at < 0 && stays && len(line) > 0 && e.session.hears(t):
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

// first tells the session of an entry that it is the first that waits.
func (w *enrolled) first(after time.Duration) {
	number := w.number
	w.session.tell(event{func(h backend.Handler, t backend.Topic) {
		h.(backend.QueueHandler).First(t, number, after)
	}, w.topic})
}

// tell tells the sessions of the waiting entries that take accepts, in order, to ask, and the first of the others that
// second accepts to ask after a time. It reports whether there was one to tell; served tells that one was told before.
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

// tellTakers tells those that want no more permits than are free; not the session of one entry.
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

// tellSides tells those of a read-write lock without a writer that can be served; reading tells that it is being read.
// Readers that were told before, and have time left to come, count as readers that hold it.
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
		return reservation / 50 // a writer, which then claims
	})
}

// announce tells all that watch a topic of a release, but for sessions that enrol where an entry was served.
func (k enrolments) announce(t backend.Topic, served bool) {
	for x := range k.store.watchers[t] {
		if _, enrols := x.handler.(backend.QueueHandler); !served || !enrols {
			x.tell(event{released, t})
		}
	}
}

// forget takes the entries of a session out of the queues.
func (k enrolments) forget(x *client) {
	for _, line := range maps.Clone(k.lines) {
		for _, w := range slices.Clone(line) {
			if w.session == x {
				k.leave(w.topic, w.entry)
			}
		}
	}
}

// leave takes an entry out of its queue. What it was told of is the next ones'.
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

// hears reports whether the session is told what concerns its entries of a topic.
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

// enrolling has what sessions that wait for a semaphore or a read-write lock do besides asking.
type enrolling struct{ *client }
