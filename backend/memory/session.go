package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// session is one client's way into the store. What belongs to a kind of lock is a component.
type session struct {
	*client
	counts  counts
	permits permits
	sided   sided
	fair    fair
	nested  nested
	multi   multi
	relay   relay
}

func newSession(c *client) *session {
	return &session{c, counts{c}, permits{counts{c}}, sided{c}, fair{c}, nested{c}, multi{c}, relay{c}}
}

// Capabilities implements [backend.Store]: it has all but replicas, nodes and calls that can be left.
func (x *session) Capabilities() backend.Capabilities {
	return backend.Capabilities{
		ReadWrite: x.sided, Fair: x.fair, Batch: x.multi, Semaphores: x.counts, Latches: x.counts, Permits: x.permits,
		Delegation: x.nested, Queue: x.relay, Age: x,
	}
}

// locked runs an operation under the store's mutex, unless the session refuses it.
func locked[R any](ctx context.Context, x *client, run func(s *Store) (R, error)) (R, error) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	if err := x.refuses(ctx); err != nil {
		var none R
		return none, err
	}
	return run(x.store)
}

// Acquire implements [backend.Store].
func (x *session) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.AcquireReply, error) {
		switch q.Kind {
		case backend.KindPermits:
			return x.permits.acquire(q)
		case backend.KindRead:
			return x.sided.acquireRead(q)
		case backend.KindWrite:
			return x.sided.acquireWrite(q)
		case backend.KindFair:
			return x.fair.acquire(q)
		}
		r, err := s.lookup(q.Kind, q.Name)
		if left := x.young(q, r); left > 0 {
			return backend.AcquireReply{Young: true, Remaining: left}, nil
		}
		switch {
		case err != nil:
			return backend.AcquireReply{}, err
		case r == nil:
			s.grant(q, x.client)
		case !r.of(q.Owner):
			return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
		}
		return backend.AcquireReply{Granted: true, Token: s.tokens.draw(q.Fenced, q.Name)}, nil
	})
}

// Reenter implements [backend.Store].
func (x *session) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.HoldsReply, error) {
		if isSide(q.Kind) {
			return x.sided.reenterWrite(q)
		}
		r, err := s.held(q.Name, q.Owner)
		if r == nil {
			return backend.HoldsReply{}, err
		}
		r.holds, r.holder = q.Holds, x.client
		s.extend(r, q.Lease)
		return backend.HoldsReply{Held: true, Token: s.tokens.draw(q.Fenced, q.Name)}, nil
	})
}

// Release implements [backend.Store].
func (x *session) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.ReleaseReply, error) {
		switch q.Kind {
		case backend.KindPermits:
			return x.permits.release(q)
		case backend.KindRead, backend.KindWrite:
			return x.sided.release(q)
		case backend.KindDelegated:
			return x.nested.release(q)
		}
		r, err := s.held(q.Name, q.Owner)
		if r == nil {
			return backend.ReleaseReply{}, err
		}
		switch {
		case q.Keep > 0:
			r.holds = q.Keep
		case !s.leave(r, q.Owner):
		case q.Kind == backend.KindFair:
			s.tellFirst(q.Name)
		default:
			s.released(r)
		}
		return backend.ReleaseReply{Held: true}, nil
	})
}

// Renew implements [backend.Store].
func (x *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	err := x.refuses(ctx)
	for i, q := range in {
		if out[i] = (backend.RenewResult{Err: err}); err == nil {
			out[i].Held = x.renew(q)
		}
	}
}

func (x *session) renew(q backend.RenewRequest) bool {
	switch q.Kind {
	case backend.KindPermits:
		return x.permits.renew(q)
	case backend.KindRead, backend.KindWrite:
		return x.sided.renew(q)
	case backend.KindDelegated:
		return x.nested.renew(q)
	}
	// Foreign data is not held, as in the script; it is no error here.
	r, _ := x.store.held(q.Name, q.Owner)
	if r != nil && q.Lease > 0 {
		r.holder = x.client
		x.store.extend(r, q.Lease)
	}
	return r != nil
}

// Inspect implements [backend.Store].
func (x *session) Inspect(ctx context.Context, t backend.Topic) (backend.Record, error) {
	return locked(ctx, x.client, func(s *Store) (backend.Record, error) {
		r, err := s.lookup(t.Kind, t.Name)
		switch {
		case r == nil:
			return backend.Record{}, err
		case r.sides != nil:
			return r.inspectSides(), nil
		}
		return backend.Record{Held: true, Owner: r.owner, Holds: r.holds, Remaining: remaining(r.deadline)}, nil
	})
}

// ForceRelease implements [backend.Store].
func (x *session) ForceRelease(ctx context.Context, t backend.Topic) (bool, error) {
	return locked(ctx, x.client, func(s *Store) (bool, error) {
		r, err := s.lookup(t.Kind, t.Name)
		if r == nil {
			return false, err
		}
		s.remove(r)
		for _, p := range r.nest {
			s.watchers.tell(released, nestTopic(t.Name, p.owner))
		}
		if r.sides != nil {
			s.released(r)
		} else {
			s.releasedToAll(r)
		}
		r.tellHolders(nil)
		return true, nil
	})
}

// KnowsAge implements [backend.AgeStore]. A new store has lost nothing, so it is of any age until
// [Store.Flush].
func (x *session) KnowsAge() bool { return true }

// young returns for how long the store is still too young for q; zero if it is old enough.
func (x *session) young(q backend.AcquireRequest, r *record) time.Duration {
	if q.Age == nil || x.store.lost.IsZero() || r != nil && r.of(q.Owner) {
		return 0
	}
	end := x.store.lost.Add(q.Age.Least)
	if !time.Now().Before(end) {
		return 0
	}
	return remaining(end)
}

// client is what all components of a session share. All of it is guarded by store.mu.
type client struct {
	store   *Store
	handler backend.Handler
	watched map[backend.Topic]struct{}
	closed  bool
	// queue holds the events that the handler has not been told yet, in order.
	queue []event
	// done is closed when the goroutine that empties the queue ends; nil if none runs.
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

// tell queues an event. The handler is called on a goroutine that lives for as
// long as there is something to tell: never under store.mu and never inside
// a call of the client, which may hold a mutex that its handler takes.
func (x *client) tell(e event) {
	if x.closed {
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

// refuses returns why no operation can run; nil if one can.
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
	if s.down == nil {
		x.tell(event{watching, t})
	}
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

// Close waits until the handler is left alone; it is not to be called from one.
func (x *client) Close() error {
	s := x.store
	s.mu.Lock()
	if !x.closed {
		x.closed = true
		for t := range x.watched {
			s.watchers.drop(t, x)
		}
		delete(s.sessions, x)
		x.queue = nil
	}
	done := x.done
	s.mu.Unlock()
	if done != nil {
		<-done
	}
	return nil
}

// watchers are the sessions that watch each topic.
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

// tell tells the sessions that watch t of an event, and reports whether there are any.
func (w watchers) tell(what func(backend.Handler, backend.Topic), t backend.Topic) bool {
	for x := range w[t] {
		x.tell(event{what, t})
	}
	return len(w[t]) > 0
}

// turn tells an owner in the queue of a fair lock that it may have the lock, and reports whether a
// session hears it.
func (w watchers) turn(name, owner string) bool { return w.tell(released, fairTopic(name, owner)) }
