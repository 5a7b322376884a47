package memory

import (
	"context"
	"slices"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// reservation is for how long a lock is reserved for the entry of a session that was told.
const reservation = time.Second

// entry is what a session is called in the queue of a plain lock.
type entry struct {
	session *client
	number  uint64
}

// waiting is an entry in a queue.
type waiting struct {
	entry
	polls time.Duration // how soon the session asks by itself; zero if it does not
}

// live reports whether the session of an entry will claim a lock that is reserved for it.
func (w waiting) live(name string) bool { return w.polls > 0 || w.session.hears(lockTopic(name)) }

// reservation is for how long a lock is reserved for an entry.
func (w waiting) reservation(name string) time.Duration {
	if w.session.hears(lockTopic(name)) {
		return reservation
	}
	return min(2*w.polls, reservation/10)
}

// queues are the queues of plain locks, by name, each in the order of arrival. A reserved lock has a record without an
// owner, and its entry has left the queue.
type queues struct {
	store *Store
	lines map[string][]waiting
	// extra is the entry of the session that has a lock because nothing else waited.
	extra map[string]entry
	// turns are the tenures that are left in the turn of the waiters for a fair lock; below zero, in that of the entries.
	turns map[string]int
}

// first returns the first entry of a queue whose session still watches the lock, or polls, and removes those before it.
// Where there is none, the session is nil.
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

// at returns where an entry is in a queue; -1 if it is not.
func (k queues) at(name string, e entry) int {
	return slices.IndexFunc(k.lines[name], func(w waiting) bool { return w.entry == e })
}

// drop takes an entry out of a queue.
func (k queues) drop(name string, e entry) {
	if at := k.at(name, e); at >= 0 {
		setLine(k.lines, name, slices.Delete(k.lines[name], at, at+1))
	}
}

// enter puts an entry at the end of a queue, unless it is in there, and reports whether it is: a session that is not
// told, and does not poll, gets no entry.
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

// serve reserves a lock for the first entry in its queue. It reports whether there is a record then.
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

// asked is lookup for a request: a plain lock that is free, and has a queue, is reserved first.
func (k queues) asked(name string) (*record, error) {
	r, err := k.store.lookup(backend.KindLock, name)
	if r == nil && err == nil {
		k.serve(name)
		r = k.store.records[name]
	}
	return r, err
}

// tellFirst tells the session of the first entry that it is the first, and reports whether there is one.
func (k queues) tellFirst(name string, after time.Duration) bool {
	first := k.first(name)
	if first.session == nil {
		return false
	}
	first.tell(name, func(h backend.QueueHandler, t backend.Topic) { h.First(t, first.number, after) })
	return true
}

// tell tells the session of an entry, if it watches the lock.
func (e entry) tell(name string, what func(backend.QueueHandler, backend.Topic)) {
	if e.session.hears(lockTopic(name)) {
		say := func(h backend.Handler, t backend.Topic) { what(h.(backend.QueueHandler), t) }
		e.session.tell(event{say, lockTopic(name)})
	}
}

// want ends the turn of a session that went on while nothing else waited.
func (k queues) want(name string) {
	if e := k.extra[name]; e.session != nil {
		delete(k.extra, name)
		e.tell(name, func(h backend.QueueHandler, t backend.Topic) { h.Wanted(t, e.number) })
	}
}

// leave takes an entry out of a queue, and out of the lock that is reserved for it.
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

// forget takes all entries of a session that watches no topic any more out of the queues.
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

// setLine replaces the waiters of a name or a topic.
func setLine[K comparable, T any](lines map[K][]T, of K, line []T) {
	if len(line) == 0 {
		delete(lines, of)
		return
	}
	lines[of] = line
}

// queue has the operations of sessions that wait for a plain lock.
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
				k.drop(q.Name, e) // to the end
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

// others reports whether another session may wait for a lock: in its queue, in that of the fair lock, or untold.
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
