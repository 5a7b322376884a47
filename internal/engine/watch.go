package engine

import (
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

// watchIdle is for how long a plain lock is watched though nothing waits: a waiter that comes soon after another need
// not ask again once it is watched.
const watchIdle = time.Second

// watches are the topics that the session was asked to watch.
type watches struct {
	order sync.Mutex // orders calls of Watch and Unwatch; taken before the engine's mutex
	all   map[backend.Topic]*watch
}

// watch is a topic that the session was asked to watch.
type watch struct {
	confirmed bool // the session has told so
	expiring  bool // it is given up when idle is due
	idle      timerq.Timer
}

// watch makes the session watch t if and only if a waiter needs another process's release of it, or did just now. It
// is called with the mutex; the session is called outside of it, and in order.
func (e *Engine) watch(t backend.Topic) {
	if !e.watchSettled(t) {
		e.after(func() { e.syncWatch(t) })
	}
}

func (e *Engine) syncWatch(t backend.Topic) {
	s := &e.names.watches
	s.order.Lock()
	defer s.order.Unlock()
	e.lock()
	if e.watchSettled(t) {
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

// watchSettled reports whether t is watched as it is to be. It has a watch that is not wanted any more looked at
// again.
func (e *Engine) watchSettled(t backend.Topic) bool {
	w := e.names.watches.all[t]
	switch {
	case e.wantsWatch(t):
		if w != nil {
			e.renewer.timers.Remove(&w.idle)
			w.expiring = false
		}
		return w != nil
	case w == nil:
		return true
	case t.Kind != backend.KindLock || e.store.can.Queue == nil || e.calls.shut:
		e.renewer.timers.Remove(&w.idle)
		return false
	case !w.expiring:
		w.expiring = true
		expire := timerq.Func(func(clock.Instant) { e.after(func() { e.syncWatch(t) }) })
		e.renewer.timers.Put(&w.idle, e.Now().Mono+int64(watchIdle), expire)
		return true
	}
	return w.idle.Waits() // otherwise its time is over
}

func (e *Engine) wantsWatch(t backend.Topic) bool {
	if e.calls.shut {
		return false
	}
	l := e.names.lines[t.Name]
	switch {
	case t.Kind == backend.KindFair:
		return l != nil && l.kept[t] != nil
	case l != nil && t.Kind == backend.KindLock:
		return true // releases of the plain lock are announced there
	}
	n := e.names.records[t]
	return n.first() != nil && n.refused
}

// confirmed reports whether the session has confirmed that it watches t.
func (s *watches) confirmed(t backend.Topic) bool {
	w := s.all[t]
	return w != nil && w.confirmed
}
