package memory

import (
	"context"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// reservation is how long a lock is reserved for an entry whose session was told.
const reservation = time.Second

// entry identifies a session, and one of its waits, in the queue of a plain lock. See also fairWaiters.
type entry struct {
	session *client
	number  uint64
}

// waiting is an entry in a queue.
type waiting struct {
	entry
	polls time.Duration // the interval at which the session asks untold; zero if it does not
}

// live reports whether the session of w would claim a lock that is reserved for w: it is told, or polls.
func (w waiting) live(name string) bool { return w.polls > 0 || w.session.hears(lockTopic(name)) }

// reservation returns how long a lock is reserved for w.
func (w waiting) reservation(name string) time.Duration {
	if w.session.hears(lockTopic(name)) {
		return reservation
	}
	return min(2*w.polls, reservation/10)
}

// queues has the queues of plain locks, by name, each oldest entry first. A reserved lock has a record without an
// owner; the entry that it is reserved for has left the queue.
type queues struct {
	store *Store
	lines map[string][]waiting
	// extra has the entries of sessions that were granted a lock once more because no other session waited.
	extra map[string]entry
	// turns has the number of tenures left in the turn of the waiters for a fair lock. A negative number is that of the
	// tenures in the turn of the entries.
	turns map[string]int
}

// first returns the first live entry of a queue, and removes the entries before it. Without a live entry it returns one
// with a nil session.
func (k queues) first(name string) (w waiting) {
	line := k.lines[name]
	for len(line) > 0 && !line[0].live(name) {
		line = line[1:]
	}
	setLine(k.lines, name, line)
	if len(line) > 0 {
		w = line[0]
	}
	return w
}

// at returns the index of an entry in a queue; -1 if it is not there.
func (k queues) at(name string, e entry) int {
	return slices.IndexFunc(k.lines[name], func(w waiting) bool { return w.entry == e })
}

// drop takes an entry out of a queue.
func (k queues) drop(name string, e entry) {
	if at := k.at(name, e); at >= 0 {
		setLine(k.lines, name, slices.Delete(k.lines[name], at, at+1))
	}
}

// enter puts an entry at the end of a queue, or keeps its place there. It reports false, and puts nothing, if the
// session is not told and does not poll.
func (k queues) enter(name string, w waiting) bool {
	at := k.at(name, w.entry)
	switch {
	case !w.live(name):
		return false
	case at < 0:
		k.lines[name] = append(k.lines[name], w)
	case w.polls > 0:
		k.lines[name][at].polls = w.polls
	}
	return true
}

// serve reserves a lock without a record for the first entry in its queue. It tells the sessions of this entry and of
// the next one, and the sessions that cannot enrol. It reports whether there is a record then.
func (k queues) serve(name string) bool {
	s := k.store
	if s.records[name] != nil || s.down != nil {
		return s.records[name] != nil
	}
	first := k.first(name)
	if first.session == nil {
		return false
	}
	k.drop(name, first.entry)
	lasts := first.reservation(name)
	s.put(&record{name: name, reserved: first.entry}, lasts)
	first.tell(name, func(h backend.QueueHandler, t backend.Topic) { h.Reserved(t, first.number) })
	k.tellFirst(name, lasts)
	for x := range s.watchers[lockTopic(name)] {
		if _, told := x.handler.(backend.QueueHandler); !told {
			x.tell(event{released, lockTopic(name)})
		}
	}
	return true
}

// asked is lookup for a request without an entry: it first reserves a free plain lock for the first entry in its queue.
func (k queues) asked(name string) (*record, error) {
	r, err := k.store.lookup(backend.KindLock, name)
	if r == nil && err == nil {
		k.serve(name)
		r = k.store.records[name]
	}
	return r, err
}

// tellFirst tells the session of the first entry that it is the first, and to ask after the given time. It reports
// whether there is an entry.
func (k queues) tellFirst(name string, after time.Duration) bool {
	first := k.first(name)
	if first.session == nil {
		return false
	}
	first.tell(name, func(h backend.QueueHandler, t backend.Topic) { h.First(t, first.number, after) })
	return true
}

// tell queues a call of the handler of an entry's session, if the session watches the lock.
func (e entry) tell(name string, what func(backend.QueueHandler, backend.Topic)) {
	if e.session.hears(lockTopic(name)) {
		say := func(h backend.Handler, t backend.Topic) { what(h.(backend.QueueHandler), t) }
		e.session.tell(event{say, lockTopic(name)})
	}
}

// want tells the session in extra, if there is one, that another session waits: its turn is over.
func (k queues) want(name string) {
	if e := k.extra[name]; e.session != nil {
		delete(k.extra, name)
		e.tell(name, func(h backend.QueueHandler, t backend.Topic) { h.Wanted(t, e.number) })
	}
}

// leave removes an entry from a queue, or a lock's reservation for it. If the lock is then free, it is served.
// Otherwise, if the entry was the first, the session of the new first entry is told so.
func (k queues) leave(name string, e entry) {
	s, first := k.store, k.first(name).entry == e
	k.drop(name, e)
	r := s.find(name)
	switch {
	case r == nil:
		k.serve(name)
	case r.reserved == e:
		s.remove(r)
		s.released(r)
	case first:
		k.tellFirst(name, min(remaining(r.deadline), reservation))
	}
}

// forget removes all entries of a closed session, and the reservations for them.
func (k queues) forget(x *client) {
	for name, line := range k.lines {
		setLine(k.lines, name, slices.DeleteFunc(line, func(w waiting) bool { return w.session == x }))
	}
	for _, r := range k.store.records {
		if r.reserved.session == x && k.store.down == nil {
			k.store.remove(r)
			k.store.released(r)
		}
	}
}

// setLine stores the queue of a name or a topic. It removes an empty queue.
func setLine[K comparable, T any](lines map[K][]T, of K, line []T) {
	if len(line) == 0 {
		delete(lines, of)
		return
	}
	lines[of] = line
}

// queue implements [backend.QueueStore].
type queue struct{ *session }

// Enrol implements [backend.QueueStore].
func (x queue) Enrol(ctx context.Context, q backend.EnrolRequest) (backend.EnrolReply, error) {
	return locked(ctx, x.client, func(s *Store) (reply backend.EnrolReply, err error) {
		r, err := s.lookup(backend.KindLock, q.Name)
		if err != nil {
			return reply, err
		}
		k, e := s.queues, entry{x.client, q.Entry}
		switch {
		case r == nil && k.first(q.Name).entry != e:
			k.serve(q.Name)
			r = s.records[q.Name]
		case r != nil && r.reserved == e:
			s.remove(r)
			r = nil
		}
		if reply.AcquireReply = x.acquire(q.AcquireRequest, r); reply.Granted {
			k.drop(q.Name, e)
			return reply, nil
		}
		reply.Enrolled = k.enter(q.Name, waiting{e, q.Polls})
		if reply.First = reply.Enrolled && k.first(q.Name).entry == e; reply.First {
			k.want(q.Name)
		}
		return reply, nil
	})
}

// Serve implements [backend.QueueStore].
func (x queue) Serve(ctx context.Context, q backend.ServeRequest) (backend.ServeReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.ServeReply, error) {
		r, err := s.held(q.Name, q.Owner)
		reply := backend.ServeReply{Held: r != nil}
		if r == nil || !s.leave(r, q.Owner) {
			return reply, err
		}
		if q.Yield && x.others(q.Name) {
			if k, e := s.queues, (entry{x.client, q.Entry}); k.first(q.Name).session != nil {
				k.drop(q.Name, e) // enter puts it at the end
				reply.Enrolled = k.enter(q.Name, waiting{entry: e})
			}
			s.released(r)
			return reply, nil
		}
		s.grant(backend.AcquireRequest{Name: q.Name, Owner: q.Next, Lease: q.Lease}, x.client)
		if q.Yield {
			s.queues.extra[q.Name] = entry{x.client, q.Entry}
		}
		reply.Granted, reply.Token = true, s.tokens.draw(q.Fenced, q.Name)
		return reply, nil
	})
}

// others reports whether a lock may have other waiters: another session with a live entry, an owner in the queue of the
// fair lock, or a session that watches the lock and cannot enrol.
func (x queue) others(name string) bool {
	s := x.store
	for w := range s.watchers[lockTopic(name)] {
		if _, told := w.handler.(backend.QueueHandler); w != x.client && !told {
			return true
		}
	}
	return len(s.places[name]) > 0 || slices.ContainsFunc(s.queues.lines[name], func(w waiting) bool {
		return w.session != x.client && w.live(name)
	})
}

// Leave implements [backend.QueueStore].
func (x queue) Leave(ctx context.Context, name string, number uint64) error {
	_, err := locked(ctx, x.client, func(s *Store) (struct{}, error) {
		s.queues.leave(name, entry{x.client, number})
		return struct{}{}, nil
	})
	return err
}
