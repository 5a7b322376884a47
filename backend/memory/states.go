package memory

import (
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// state is the state of a name, of one kind: that of package record.
type state[T any] interface {
	*T
	Empty(record.Time) bool
}

// step runs a step of the state of a name, of the kind whose states are all, for a session; x is nil if only time has
// passed.
func step[T any, P state[T]](s *Store, x *client, all map[string]P, name string, run func(P, *record.Step)) {
	l, st := begin(s, x, all, name)
	run(l, st)
	end(s, all, l, st)
}

// begin begins a step. The rules are those of package record.
func begin[T any, P state[T]](s *Store, x *client, all map[string]P, name string) (P, *record.Step) {
	l := all[name]
	if last := len(s.spare) - 1; l == nil && last >= 0 {
		if l, _ = any(s.spare[last]).(P); l != nil {
			s.spare = s.spare[:last]
		}
	}
	if l == nil {
		l = new(T)
	}
	st := s.steps
	if s.steps = nil; st == nil {
		st = new(record.Step)
	}
	r := s.records[name]
	*st = record.Step{
		World: (*world)(s), Name: name, Now: time.Since(s.epoch), NoGrants: s.down != nil || r != nil && r.state != any(l),
		Notices: st.Notices[:0],
	}
	if x != nil {
		st.By = x.id
	}
	return l, st
}

// end keeps the state that a step has left, and tells sessions.
func end[T any, P state[T]](s *Store, all map[string]P, l P, st *record.Step) {
	empty := l.Empty(st.Now)
	if all[st.Name] = l; empty {
		delete(all, st.Name)
	}
	s.keep(st.Name, l)
	for i := range st.Notices {
		s.tell(&st.Notices[i], s.epoch.Add(st.Now))
	}
	s.steps = st
	if lock, is := any(l).(*record.Lock); is && empty && len(s.spare) < mostSpare {
		lock.Reset()
		s.spare = append(s.spare, lock)
	}
}

// mostSpare bounds the states that are kept for the next names: a lock that is taken and released needs one.
const mostSpare = 64

// keep writes down what data a state has under the name, and until when.
func (s *Store) keep(name string, l any) {
	switch l := l.(type) {
	case *record.Lock:
		s.keepUntil(name, l, l.Ends())
	case *record.Sides:
		s.keepUntil(name, l, l.Ends())
	case *record.Permits:
		s.keepIf(name, l, l.Counts)
		if l.Out != nil {
			s.keepIf(outName(name), (*out)(l), len(l.Out) > 0)
		}
	}
}

// keepUntil keeps data that ends at a time, not 0.
func (s *Store) keepUntil(name string, l any, ends record.Time) {
	r, deadline := s.records[name], s.epoch.Add(ends)
	switch {
	case ends == 0:
		s.keepIf(name, l, false)
	case r == nil:
		s.put(&stored{name: name, state: l}, deadline)
	case r.state == l && !r.deadline.Equal(deadline):
		s.end(r, deadline)
	}
}

// keepIf keeps data without an end, or none.
func (s *Store) keepIf(name string, l any, kept bool) {
	switch r := s.records[name]; {
	case r == nil && kept:
		s.records[name] = &stored{name: name, state: l, index: -1}
	case r != nil && r.state == l && !kept:
		s.remove(r)
	}
}

// pass ends what is over in r, and serves the queue of the plain lock.
func (s *Store) pass(r *stored) {
	switch r.state.(type) {
	case *record.Lock:
		step(s, nil, s.locks, r.name, (*record.Lock).Pass)
		return
	case *record.Sides:
		step(s, nil, s.sides, r.name, (*record.Sides).Pass)
	default:
		s.remove(r)
		s.changed(r.name)
	}
	step(s, nil, s.locks, r.name, func(l *record.Lock, st *record.Step) { l.Ask(st, "") })
}

// forget removes the entries of a session that has ended.
func (s *Store) forget(x *client) {
	for name := range s.locks {
		step(s, nil, s.locks, name, func(l *record.Lock, _ *record.Step) { l.Forget(x.id) })
	}
	for name := range s.sides {
		step(s, nil, s.sides, name, func(l *record.Sides, st *record.Step) { l.Forget(st, x.id) })
	}
	for name := range s.permits {
		step(s, nil, s.permits, name, func(p *record.Permits, st *record.Step) { p.Forget(st, x.id) })
	}
}

// world is the store, as package record sees it.
type world Store

// Hears implements [record.World].
func (w *world) Hears(x record.Session, t backend.Topic) bool {
	c := w.sessions[x]
	return c != nil && c.enrols() && c.watches(t)
}

// Watched implements [record.World].
func (w *world) Watched(t backend.Topic) bool { return len(w.watchers[t]) > 0 }

// Strangers implements [record.World].
func (w *world) Strangers(t backend.Topic, but record.Session) bool {
	for x := range w.watchers[t] {
		if x.id != but && !x.enrols() {
			return true
		}
	}
	return false
}

// Draw implements [record.World].
func (w *world) Draw(name string) int64 { return w.tokens.next(name) }

// Drawn implements [record.World].
func (w *world) Drawn(name string) int64 { return w.tokens.drawn(name) }

// tell queues a notice for its sessions, once for each. At is the time of its step.
func (s *Store) tell(n *record.Notice, at time.Time) {
	e := event{callOf(n, at), n.Topic}
	for x := range s.watchers[n.Topic] {
		if n.All || n.Strangers && !x.enrols() {
			x.tell(e)
		}
	}
	for _, to := range n.To {
		if x := s.sessions[to]; x != nil && !(n.All && x.watches(n.Topic)) {
			x.tell(e)
		}
	}
}

// callOf returns the call of a handler that a notice stands for. A grant begins at the time of its step: a later time
// would let the owner's lease last longer than the store keeps the lock.
func callOf(n *record.Notice, at time.Time) func(backend.Handler, backend.Topic) {
	entry, after := n.Entry, n.After
	queued := func(call func(backend.QueueHandler, backend.Topic)) func(backend.Handler, backend.Topic) {
		return func(h backend.Handler, t backend.Topic) { call(h.(backend.QueueHandler), t) }
	}
	switch n.What {
	case record.Granted:
		g := backend.Grant{Owner: n.Owner, Token: n.Token, From: at, Lease: n.Lease}
		return queued(func(h backend.QueueHandler, t backend.Topic) { h.Granted(t, g) })
	case record.Reserved:
		return queued(func(h backend.QueueHandler, t backend.Topic) { h.Reserved(t, entry) })
	case record.First:
		return queued(func(h backend.QueueHandler, t backend.Topic) { h.First(t, entry, after) })
	case record.Wanted:
		return queued(func(h backend.QueueHandler, t backend.Topic) { h.Wanted(t, entry) })
	case record.Changed:
		return changed
	}
	return released
}
