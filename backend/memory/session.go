package memory

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// Capabilities implements [backend.Store]. The store lacks Partitions, Leaver and Replicas.
func (x *client) Capabilities() backend.Capabilities {
	c := x.Locks.Capabilities()
	c.Batch, c.Age, c.Check, c.List = multi{x}, aged{x}, checks{x}, listing{x}
	return c
}

// client is a session: the operations of package record on the store's names. Store.mu guards all fields.
type client struct {
	record.Locks
	store   *Store
	id      record.Session
	handler backend.Handler
	watched map[backend.Topic]struct{}
	closed  bool
	// under is the name of the step that is under way.
	under *stored
	// queue has the events that are not yet delivered to the handler, oldest first.
	queue []event
	// done is closed when the goroutine that delivers the events ends; nil if none runs.
	done chan struct{}
}

type event struct {
	what  func(backend.Handler, backend.Topic)
	topic backend.Topic
}

var (
	watching   = backend.Handler.Watching
	released   = backend.Handler.Released
	changed    = backend.Handler.Changed
	changedAll = func(h backend.Handler, _ backend.Topic) { h.ChangedAll() }
)

// tell queues an event for the handler. A goroutine that lives while events are queued calls the handler: never under
// store.mu, and never inside a call of the client, which may hold a mutex that its handler takes. While the store is
// down, events are dropped: SetDown then tells of a change of everything.
func (x *client) tell(e event) {
	if x.closed || x.store.down != nil {
		return
	}
	x.queue = append(x.queue, e)
	if x.done == nil {
		x.done = make(chan struct{})
		go x.deliver(x.done)
	}
}

func (x *client) deliver(done chan struct{}) {
	defer close(done)
	for {
		x.store.mu.Lock()
		queue := x.queue
		x.queue = nil
		if len(queue) == 0 || x.closed {
			x.done = nil
			x.store.mu.Unlock()
			return
		}
		x.store.mu.Unlock()
		for _, e := range queue {
			e.what(x.handler, e.topic)
		}
	}
}

// refuses returns the error of every operation at present; nil if operations can run.
func (x *client) refuses(ctx context.Context) error {
	switch {
	case x.closed:
		return &backend.Fault{
			Err:    fmt.Errorf("memory: %w", backend.ErrSessionClosed),
			Remedy: "open another client",
		}
	case ctx.Err() != nil:
		return &backend.Fault{Err: ctx.Err(), Temporary: true}
	case x.store.down != nil:
		return &backend.Fault{
			Err:       fmt.Errorf("memory: the store is down: %w", x.store.down),
			Remedy:    "call Store.SetDown(nil)",
			Temporary: true,
		}
	}
	return nil
}

// Subscribe implements [backend.Store].
func (x *client) Subscribe(t backend.Topic) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.closed {
		return
	}
	x.watched[t] = struct{}{}
	s.watchers.add(t, x)
	x.tell(event{watching, t})
}

// Unsubscribe implements [backend.Store].
func (x *client) Unsubscribe(t backend.Topic) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	delete(x.watched, t)
	x.store.watchers.drop(t, x)
}

// Ping implements [backend.Store].
func (x *client) Ping(ctx context.Context) error {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	return x.refuses(ctx)
}

// Close implements [backend.Store]. It returns after the handler's last call, so a handler must not call Close.
func (x *client) Close() error {
	s := x.store
	s.mu.Lock()
	if !x.closed {
		x.closed = true
		for t := range x.watched {
			s.watchers.drop(t, x)
		}
		clear(x.watched)
		delete(s.sessions, x.id)
		for name := range s.names {
			s.run(name, func(n *record.Name, st *record.Step) { n.Forget(st, x.id) })
		}
		x.queue = nil
	}
	done := x.done
	s.mu.Unlock()
	if done != nil {
		<-done
	}
	return nil
}

// enrols reports whether the session has entries in queues.
func (x *client) enrols() bool {
	_, enrols := x.handler.(backend.QueueHandler)
	return enrols
}

func (x *client) watches(t backend.Topic) bool {
	_, watches := x.watched[t]
	return watches
}

// watchers has the sessions that watch each topic.
type watchers map[backend.Topic]map[*client]struct{}

func (w watchers) add(t backend.Topic, x *client) {
	if w[t] == nil {
		w[t] = make(map[*client]struct{})
	}
	w[t][x] = struct{}{}
}

func (w watchers) drop(t backend.Topic, x *client) {
	if delete(w[t], x); len(w[t]) == 0 {
		delete(w, t)
	}
}
