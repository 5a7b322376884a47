package memory

import (
	"context"
	"fmt"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// session is a client's connection to the store, with the operations of plain locks. The operations of other kinds are
// in components: types that share the session's client.
type session struct{ *client }

// Capabilities implements [backend.Store]. The store lacks Partitions, Leaver and Replicas.
func (x *session) Capabilities() backend.Capabilities {
	c, n := x.client, counts{x.client}
	return backend.Capabilities{
		ReadWrite: sided{c}, Fair: fair{c}, Batch: multi{c}, CountingSemaphores: semaphores{n}, CountDownLatches: n,
		Semaphores: permits{semaphores{n}}, Delegation: delegated{c}, Queue: queue{x}, Enrolments: enrolling{c}, Age: aged{x},
		Ticks: ticks{c}, Proclamations: proclaimed{c},
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

// Acquire implements [backend.Store].
func (x *session) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.AcquireReply, error) {
		r, err := s.queues.asked(q.Name)
		if err != nil {
			return backend.AcquireReply{}, err
		}
		return x.acquire(q, r), nil
	})
}

// acquire takes a plain lock for q.Owner. The lock's record is r; nil if there is none.
func (x *session) acquire(q backend.AcquireRequest, r *record) backend.AcquireReply {
	s := x.store
	switch {
	case r == nil:
		s.grant(q, x.client)
	case !r.of(q.Owner):
		return refused(r.deadline)
	}
	return s.tokens.granted(q.Fenced, q.Name)
}

// granted returns the reply of a grant, with a new token if fenced.
func (k *tokens) granted(fenced bool, name string) backend.AcquireReply {
	return backend.AcquireReply{Granted: true, Token: k.draw(fenced, name)}
}

// refused returns the refusal of a lock that is held until deadline.
func refused(deadline time.Time) backend.AcquireReply {
	return backend.AcquireReply{Remaining: remaining(deadline)}
}

// SetHolds implements [backend.Store].
func (x *session) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.HoldsReply, error) {
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
	return x.release(ctx, q, (*Store).released)
}

// release sets the owner's hold count to q.Keep. At zero the owner leaves; if the lock is then free, release calls
// announce.
func (x *client) release(ctx context.Context, q backend.ReleaseRequest,
	announce func(*Store, *record)) (backend.ReleaseReply, error) {
	return locked(ctx, x, func(s *Store) (backend.ReleaseReply, error) {
		r, err := s.held(q.Name, q.Owner)
		if r == nil {
			return backend.ReleaseReply{}, err
		}
		if q.Keep > 0 {
			r.holds = q.Keep
		} else if s.leave(r, q.Owner) {
			announce(s, r)
		}
		return backend.ReleaseReply{Held: true}, nil
	})
}

// Renew implements [backend.Store].
func (x *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.renewEach(ctx, in, out, func(q backend.RenewRequest) bool {
		// Foreign data counts as not held, as in the script on Redis: the error is dropped.
		r, _ := x.store.held(q.Name, q.Owner)
		if r != nil && q.Lease > 0 {
			r.holder = x.client
			x.store.extend(r, q.Lease)
		}
		return r != nil
	})
}

// renewEach answers each renewal by renew, all under one locking of the store's mutex.
func (x *client) renewEach(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult,
	renew func(backend.RenewRequest) bool) {
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	err := x.refuses(ctx)
	for i, q := range in {
		out[i] = backend.RenewResult{Held: err == nil && renew(q), Err: err}
	}
}

// Inspect implements [backend.Store].
func (x *session) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return locked(ctx, x.client, func(s *Store) (backend.Record, error) {
		r, err := s.lookup(backend.KindLock, name)
		if r == nil {
			return backend.Record{}, err
		}
		if r.reserved != (entry{}) {
			return backend.Record{Reserved: true}, nil
		}
		if s.live(r) == nil {
			return backend.Record{}, nil
		}
		return backend.Record{Held: true, Owner: r.owner, Holds: r.holds, Remaining: remaining(r.deadline)}, nil
	})
}

// ForceRelease implements [backend.Store].
func (x *session) ForceRelease(ctx context.Context, name string) (bool, error) {
	return x.forceRelease(ctx, backend.KindLock, name, (*Store).releasedToAll)
}

// forceRelease removes the record of a lock of kind k, and announces a release.
func (x *client) forceRelease(ctx context.Context, k backend.Kind, name string,
	announce func(*Store, *record)) (bool, error) {
	return locked(ctx, x, func(s *Store) (bool, error) {
		r, err := s.lookup(k, name)
		if r == nil {
			return false, err
		}
		s.remove(r)
		for _, p := range r.parts {
			s.watchers.tell(released, delegatedTopic(name, p.owner))
		}
		announce(s, r)
		r.tellHolders(nil)
		return true, nil
	})
}

// aged implements [backend.AgeStore].
type aged struct{ *session }

// KnowsAge implements [backend.AgeStore]. A new store has lost no data: until [Store.Flush] it is old enough for each
// request.
func (x aged) KnowsAge() bool { return true }

// AcquireAged implements [backend.AgeStore].
func (x aged) AcquireAged(ctx context.Context, q backend.AgedRequest) (backend.AgedReply, error) {
	return locked(ctx, x.client, func(s *Store) (backend.AgedReply, error) {
		r, err := s.lookup(backend.KindLock, q.Name)
		if end := s.lost.Add(q.Least); !s.lost.IsZero() && time.Now().Before(end) && (r == nil || !r.of(q.Owner)) {
			return backend.AgedReply{Young: true, AcquireReply: refused(end)}, nil
		}
		if err == nil {
			r, err = s.queues.asked(q.Name)
		}
		if err != nil {
			return backend.AgedReply{}, err
		}
		return backend.AgedReply{AcquireReply: x.acquire(q.AcquireRequest, r)}, nil
	})
}

// client is the state that all components of a session share. store.mu guards all fields.
type client struct {
	store   *Store
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
		s.queues.forget(x)
		s.enrolments.forget(x)
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

// tell queues an event for each session that watches t, and reports whether there is one.
func (w watchers) tell(what func(backend.Handler, backend.Topic), t backend.Topic) bool {
	for x := range w[t] {
		x.tell(event{what, t})
	}
	return len(w[t]) > 0
}

// first tells an owner in the queue of a fair lock to ask, and reports whether a session watches the owner's topic.
func (w watchers) first(name, owner string) bool { return w.tell(released, fairTopic(name, owner)) }
