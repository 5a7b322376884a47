package engine

import (
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

// watchIdle is for how long a topic that lingers is watched though nothing waits: a waiter that comes soon after
// another need not ask again once it is watched.
const watchIdle = time.Second

// watches are the topics that the session was asked to watch.
type watches struct {
	engine *Engine
	order  sync.Mutex // orders calls of Watch and Unwatch; taken before the engine's mutex
	all    map[backend.Topic]*watch
}

// watch is a topic that the session was asked to watch.
type watch struct {
	confirmed bool // the session has told so
	expiring  bool // it is given up when idle is due
	idle      timerq.Timer
}

// update makes the session watch t if and only if a waiter needs another process's release of it, or did just now. It
// is called with the mutex; the session is called outside of it, and in order.
func (s *watches) update(t backend.Topic) {
	if !s.settled(t) {
		s.engine.after(func() { s.sync(t) })
	}
}

func (s *watches) sync(t backend.Topic) {
	e := s.engine
	s.order.Lock()
	defer s.order.Unlock()
	e.lock()
	if s.settled(t) {
		e.unlock()
		return
	}
	w := s.all[t]
	if w == nil {
		s.all[t] = new(watch)
	} else {
		delete(s.all, t)
	}
	e.unlock()
	if w == nil {
		e.store.Subscribe(t)
	} else {
		e.store.Unsubscribe(t)
	}
}

// settled reports whether t is watched as it is to be. It has a watch that is not wanted any more looked at again.
func (s *watches) settled(t backend.Topic) bool {
	e, w := s.engine, s.all[t]
	switch {
	case !e.calls.shut && e.names.wantsWatch(t):
		if w != nil {
			e.renewer.timers.Remove(&w.idle)
			w.expiring = false
		}
		return w != nil
	case w == nil:
		return true
	case !e.store.lingers(t.Kind) || e.calls.shut:
		e.renewer.timers.Remove(&w.idle)
		return false
	case !w.expiring:
		w.expiring = true
		expire := timerq.Func(func(clock.Instant) { e.after(func() { s.sync(t) }) })
		e.renewer.timers.Put(&w.idle, e.Now().Mono+int64(watchIdle), expire)
		return true
	}
	return w.idle.Waits() // otherwise its time is over
}

// wantsWatch reports whether a waiter needs releases of t.
func (s *names) wantsWatch(t backend.Topic) bool {
	l := s.fair.all[t.Name]
	switch {
	case t.Kind == backend.KindFair:
		return l != nil && l.kept[t] != nil
	case l != nil && t.Kind == backend.KindLock:
		return true // releases of the plain lock are announced there
	}
	n := s.records[t]
	return n.first() != nil && n.refused
}

// confirmed reports whether the session has confirmed that it watches t.
func (s *watches) confirmed(t backend.Topic) bool {
	w := s.all[t]
	return w != nil && w.confirmed
}
