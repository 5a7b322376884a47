package memory

import (
	"context"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// now returns the store's time.
func (s *Store) now() record.Time { return time.Since(s.epoch) }

// begin begins a step of a name for a session; x is nil if only time has passed. The rules are those of package record.
func (s *Store) begin(x *client, name string) (*stored, *record.Step) {
	r, st := s.open(x, name)
	r.Begin(st)
	return r, st
}

// open is begin without an end of what is over. There is one step at a time.
func (s *Store) open(x *client, name string) (*stored, *record.Step) {
	r := s.names[name]
	if last := len(s.spare) - 1; r == nil && last >= 0 {
		r, s.spare = s.spare[last], s.spare[:last]
	}
	if r == nil {
		r = &stored{index: -1}
	}
	r.name = name
	now, st := time.Now(), &s.step
	*st = record.Step{
		World: (*world)(s), Name: name, Now: now.Sub(s.epoch), Wall: now.UnixMilli(), Down: s.down != nil,
		Notices: st.Notices[:0],
	}
	if x != nil {
		st.By = x.id
	}
	return r, st
}

// end keeps what a step has left, and tells sessions.
func (s *Store) end(r *stored, st *record.Step) {
	for i := range st.Notices {
		s.tell(&st.Notices[i], s.epoch.Add(st.Now))
	}
	empty := r.Empty(st.Now)
	s.expireAt(r, empty, r.Ends())
	switch {
	case !empty:
		s.names[r.name] = r
		return
	case s.names[r.name] == r:
		delete(s.names, r.name)
	}
	if len(s.spare) < mostSpare {
		r.Reset()
		s.spare = append(s.spare, r)
	}
}

// mostSpare bounds the names that are kept for the next ones: a lock that is taken and released needs one.
const mostSpare = 64

// run runs a step of a name when only time has passed.
func (s *Store) run(name string, step func(*record.Name, *record.Step)) {
	r, st := s.begin(nil, name)
	step(&r.Name, st)
	s.end(r, st)
}

// Lock implements [record.Holder].
func (x *client) Lock(ctx context.Context) error {
	x.store.mu.Lock()
	err := x.refuses(ctx)
	if err != nil {
		x.store.mu.Unlock()
	}
	return err
}

// Unlock implements [record.Holder].
func (x *client) Unlock() { x.store.mu.Unlock() }

// Begin implements [record.Holder].
func (x *client) Begin(name string) (*record.Name, *record.Step) {
	r, st := x.store.begin(x, name)
	x.under = r
	return &r.Name, st
}

// End implements [record.Holder].
func (x *client) End(_ *record.Name, st *record.Step) { x.store.end(x.under, st) }

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
