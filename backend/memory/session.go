package memory

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// session is a client's connection to the store, with the operations of plain locks. The operations of other kinds are
// in components: types that share the session's client.
type session struct{ *client }

// Capabilities implements [backend.Store]. The store lacks Partitions, Leaver and Replicas.
func (x *session) Capabilities() backend.Capabilities {
	c, n := x.client, counts{x.client}
	return backend.Capabilities{
		ReadWrite: sided{c}, Fair: fair{c}, Batch: multi{c}, CountingSemaphores: semaphores{n}, CountDownLatches: n,
		Semaphores: permits{semaphores{n}}, Delegation: delegated{c}, Queue: queue{x}, Grants: true,
		Enrolments: enrolling{c}, Age: aged{x},
		Ticks: ticks{c}, Proclamations: proclaimed{c}, Check: checks{c}, Operator: operator{c}, List: operator{c},
	}
}

// locked runs an operation under the store's mutex, unless client.refuses returns an error.
func locked[R any](ctx context.Context, x *client, run func(s *Store) (R, error)) (R, error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	if err := x.refuses(ctx); err != nil {
		var none R
		return none, err
	}
	return run(x.store)
}

// renewEach answers each renewal by renew, all under one locking of the store's mutex.
func (x *client) renewEach(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult,
	renew func(backend.RenewRequest) backend.RenewResult) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	err := x.refuses(ctx)
	for i, q := range in {
		if out[i] = (backend.RenewResult{Err: err}); err == nil {
			out[i] = renew(q)
		}
	}
}

// renewing returns the renewal of leases of a kind. Other data counts as not held, as in the script on Redis.
func renewing[T any, P state[T]](x *client, all map[string]P,
	renew func(P, *record.Step, backend.RenewRequest) backend.RenewResult) func(backend.RenewRequest) backend.RenewResult {
	return func(q backend.RenewRequest) (r backend.RenewResult) {
		step(x.store, x, all, q.Name, func(l P, st *record.Step) { r = renew(l, st, q) })
		return r
	}
}

// client is the state that all components of a session share. store.mu guards all fields.
type client struct {
	store   *Store
	id      record.Session
	handler backend.Handler
	watched map[backend.Topic]struct{}
	closed  bool
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
		s.forget(x)
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

// tell queues an event for each session that watches t.
func (w watchers) tell(what func(backend.Handler, backend.Topic), t backend.Topic) {
	for x := range w[t] {
		x.tell(event{what, t})
	}
}
