package engine

import (
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/clock"
	"github.com/mortise-go/mortise/internal/timerq"
)

// watchIdle is how long a topic that lingers stays watched after the last waiter has left. A waiter that comes
// meanwhile need not ask a second time once the watch has begun.
const watchIdle = time.Second

// watches are the topics that the session watches for this client.
type watches struct {
	engine *Engine
	order  sync.Mutex // orders calls of Subscribe and Unsubscribe; locked before the engine's mutex
	all    map[backend.Topic]*watch
}

// watch is a topic that the session watches.
type watch struct {
	confirmed bool // the session has called Handler.Watching
	expiring  bool // no waiter needs the topic: the watch ends when idle is due
	idle      timerq.Timer
}

// update starts or ends the watch of t as waiters need it: see settled. It is called with the mutex. The calls of the
// session come later, without the mutex, and in order.
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

// settled reports whether the watch of t is as it should be. For a topic that lingers, it starts and stops the timer
// that ends the watch watchIdle after the last waiter.
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
	return w.idle.Waits() // if idle is not in the queue of timers, it has fired: the watch is to end
}

// wantsWatch reports whether a waiter needs messages of t.
func (s *names) wantsWatch(t backend.Topic) bool {
	l := s.fair.all[t.Name]
	switch {
	case t.Kind == backend.KindFair:
		return l != nil && l.kept[t] != nil
	case l != nil && t.Kind == backend.KindLock:
		return true // waiters for the fair lock need releases of the plain lock, too: see barged
	}
	n := s.records[t]
	return n.first() != nil && n.needsMessages()
}

// needsMessages reports whether the client watches the topic for its waiters.
func (w *waiters) needsMessages() bool { return w.answered && w.listens }

// confirmed reports whether the session has called Handler.Watching for t.
func (s *watches) confirmed(t backend.Topic) bool {
	w := s.all[t]
	return w != nil && w.confirmed
}
