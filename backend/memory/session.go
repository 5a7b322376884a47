package memory

import (
	"context"
	"fmt"

	"github.com/mortise-go/mortise/backend"
)

// session is one client's way into the store. All of it is guarded by store.mu.
type session struct {
	store   *Store
	handler backend.Handler
	watched map[backend.Topic]struct{}
	closed  bool
	// queue holds what the handler is still to be told, in order.
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
func (x *session) tell(e event) {
	if x.closed {
		return
	}
	x.queue = append(x.queue, e)
	if x.done == nil {
		x.done = make(chan struct{})
		go x.deliver(x.done)
	}
}

func (x *session) deliver(done chan struct{}) {
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

// enter locks the store for an operation and tells why it cannot run, if so.
// The caller unlocks in any case.
func (x *session) enter(ctx context.Context) error {
	x.store.mu.Lock()
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

func (x *session) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.AcquireReply{}, err
	}
	switch q.Kind {
	case backend.KindPermits:
		return x.acquirePermit(q)
	case backend.KindRead:
		return x.acquireRead(q)
	case backend.KindWrite:
		return x.acquireWrite(q)
	case backend.KindFair:
		return x.acquireFair(q)
	case backend.KindNested:
		return x.acquireNested(q)
	}
	r := s.find(q.Name)
	if left := s.young(q, r); left > 0 {
		return backend.AcquireReply{Young: true, Remaining: left}, nil
	}
	switch {
	case r == nil:
		s.put(&record{name: q.Name, owner: q.Owner, holds: 1, holder: x}, q.Lease)
	case r.foreign, r.sides != nil:
		return backend.AcquireReply{}, wrongKind(r)
	case !r.of(q.Owner):
		return backend.AcquireReply{Remaining: remaining(r.deadline)}, nil
	}
	reply := backend.AcquireReply{Granted: true}
	if q.Fenced {
		reply.Token = s.tokens.next(q.Name)
	}
	return reply, nil
}

func (x *session) Reenter(ctx context.Context, q backend.ReenterRequest) (backend.ReenterReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.ReenterReply{}, err
	}
	if sided(q.Kind) {
		return x.reenterWrite(q)
	}
	r, err := s.held(q.Name, q.Owner)
	if r == nil {
		return backend.ReenterReply{}, err
	}
	reply := backend.ReenterReply{Held: true}
	if q.Fenced {
		reply.Token = s.tokens.next(q.Name)
	}
	r.holds = q.Holds
	r.holder = x
	s.extend(r, q.Lease)
	return reply, nil
}

func (x *session) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.ReleaseReply{}, err
	}
	switch q.Kind {
	case backend.KindPermits:
		return x.releasePermit(q)
	case backend.KindRead, backend.KindWrite:
		return x.releaseSide(q)
	case backend.KindNested:
		return x.releaseNested(q)
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
}

func (x *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	for i, q := range in {
		if err != nil {
			out[i] = backend.RenewResult{Err: err}
			continue
		}
		switch q.Kind {
		case backend.KindPermits:
			out[i] = backend.RenewResult{Held: x.renewPermit(q)}
			continue
		case backend.KindRead, backend.KindWrite:
			out[i] = backend.RenewResult{Held: x.renewSide(q)}
			continue
		case backend.KindNested:
			out[i] = backend.RenewResult{Held: x.renewNested(q)}
			continue
		}
		// Foreign data is not held, as in the script; it is no error here.
		r, _ := s.held(q.Name, q.Owner)
		if r != nil && q.Lease > 0 {
			r.holder = x
			s.extend(r, q.Lease)
		}
		out[i] = backend.RenewResult{Held: r != nil}
	}
}

// held returns the record of name if owner holds it, else nil, and an error if
// the name is in use for something else.
func (s *Store) held(name, owner string) (*record, error) {
	r := s.find(name)
	switch {
	case r == nil:
		return nil, nil
	case r.foreign:
		return nil, wrongKind(r)
	case !r.of(owner) || r.sides != nil:
		return nil, nil
	}
	return r, nil
}

func (x *session) Inspect(ctx context.Context, t backend.Topic) (backend.Record, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return backend.Record{}, err
	}
	if sided(t.Kind) {
		return x.inspectRW(t.Name)
	}
	r := s.find(t.Name)
	switch {
	case r == nil:
		return backend.Record{}, nil
	case r.foreign, r.sides != nil:
		return backend.Record{}, wrongKind(r)
	}
	return backend.Record{Held: true, Owner: r.owner, Holds: r.holds, Remaining: remaining(r.deadline)}, nil
}

func (x *session) ForceRelease(ctx context.Context, t backend.Topic) (bool, error) {
	s := x.store
	err := x.enter(ctx)
	defer s.mu.Unlock()
	if err != nil {
		return false, err
	}
	if sided(t.Kind) {
		return x.forceRW(t.Name)
	}
	r := s.find(t.Name)
	switch {
	case r == nil:
		return false, nil
	case r.foreign, r.sides != nil:
		return false, wrongKind(r)
	}
	s.remove(r)
	for _, p := range r.nest {
		s.tellReleased(nestTopic(t.Name, p.owner))
	}
	s.releasedToAll(r)
	r.tellOwners(nil)
	return true, nil
}

func (x *session) Watch(t backend.Topic) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.closed {
		return
	}
	x.watched[t] = struct{}{}
	if s.watchers[t] == nil {
		s.watchers[t] = make(map[*session]struct{})
	}
	s.watchers[t][x] = struct{}{}
	if s.down == nil {
		x.tell(event{watching, t})
	}
}

func (x *session) Unwatch(t backend.Topic) {
	s := x.store
	s.mu.Lock()
	defer s.mu.Unlock()
	x.unwatch(t)
}

func (x *session) unwatch(t backend.Topic) {
	delete(x.watched, t)
	w := x.store.watchers[t]
	delete(w, x)
	if len(w) == 0 {
		delete(x.store.watchers, t)
	}
}

func (x *session) Ping(ctx context.Context) error {
	err := x.enter(ctx)
	defer x.store.mu.Unlock()
	return err
}

// Close waits until the handler is left alone; it is not to be called from one.
func (x *session) Close() error {
	s := x.store
	s.mu.Lock()
	if !x.closed {
		x.closed = true
		for t := range x.watched {
			x.unwatch(t)
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
