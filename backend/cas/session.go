package cas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/record"
)

// New returns a backend on drivers: open makes the driver of a session, without I/O. If the driver has a method
// Close() error, the session calls it in the end.
func New(open func() (Driver, error)) backend.Backend { return opener(open) }

type opener func() (Driver, error)

// Open implements [backend.Backend].
func (open opener) Open(h backend.Handler) (backend.Store, error) {
	if h == nil {
		return nil, errors.New("cas: nil Handler")
	}
	d, err := open()
	if err != nil {
		return nil, err
	}
	x := &session{
		driver: d, limits: d.Limits(), handler: h, id: record.Session(rand.Uint64() | 1), keys: make(map[string]*key),
	}
	x.queue, _ = h.(backend.QueueHandler)
	x.ctx, x.end = context.WithCancel(context.Background())
	return &port{record.Over(x), x}, nil
}

// session is a client's session.
type session struct {
	driver  Driver
	limits  Limits
	handler backend.Handler
	queue   backend.QueueHandler // the handler; nil if it has no queues
	id      record.Session
	clock   clock
	wrote   atomic.Uint64
	// ctx ends when the session has closed. Running has its goroutines.
	ctx     context.Context
	end     context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	keys   map[string]*key
	ready  []*flight
	lanes  int
	topics int // that are watched
	// listener ends the listener; nil if none runs. Listening: what is sent to the session arrives.
	listener  context.CancelFunc
	listening bool
	closed    bool
	// events are not yet delivered to the handler, oldest first. Delivering: a goroutine does.
	events     []event
	delivering bool
}

func sessionName(x record.Session) string { return "s" + strconv.FormatUint(uint64(x), 36) }

// event is a call of the handler.
type event struct {
	what  func(backend.Handler, backend.Topic)
	topic backend.Topic
}

var (
	watching = backend.Handler.Watching
	released = backend.Handler.Released
)

// tell queues an event for the handler. A goroutine that lives while events are queued calls the handler, never under
// session.mu. Session.mu is locked.
func (x *session) tell(e event) {
	if x.closed {
		return
	}
	x.events = append(x.events, e)
	if !x.delivering {
		x.delivering = true
		x.running.Go(x.deliver)
	}
}

func (x *session) deliver() {
	for {
		x.mu.Lock()
		events := x.events
		x.events = nil
		if len(events) == 0 || x.closed {
			x.delivering = false
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		for _, e := range events {
			e.what(x.handler, e.topic)
		}
	}
}

// keyOf returns the key of a name. Session.mu is locked.
func (x *session) keyOf(name string) *key {
	at := KeyOf(name)
	k := x.keys[at]
	if k == nil {
		k = &key{name: name, key: at}
		x.keys[at] = k
	}
	return k
}

// begin queues a call for a name.
func (x *session) begin(ctx context.Context, name string, c *call) *key {
	c.done = make(chan struct{})
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.Err = x.refuses(ctx); c.Err != nil {
		close(c.done)
		return nil
	}
	k := x.keyOf(name)
	x.queueUp(k, c)
	return k
}

// refuses returns the error of every call at present.
func (x *session) refuses(ctx context.Context) error {
	switch {
	case x.closed:
		return closedErr()
	case ctx.Err() != nil:
		return &backend.Fault{Err: ctx.Err(), Temporary: true}
	}
	return nil
}

func closedErr() error {
	return &backend.Fault{Err: fmt.Errorf("cas: %w", backend.ErrSessionClosed), Remedy: "open another client"}
}

// queueUp queues a call for a key. Session.mu is locked.
func (x *session) queueUp(k *key, c *call) {
	if k.pend = append(k.pend, c); !k.busy {
		k.busy = true
		x.toLane(&flight{key: k})
	}
}

// toLane gives a flight to a lane. Session.mu is locked.
func (x *session) toLane(t *flight) {
	if x.ready = append(x.ready, t); x.lanes < max(x.limits.Lanes, 1) {
		x.lanes++
		x.running.Go(x.lane)
	}
}

// end waits for the end of a call. A caller whose context ends leaves the call: it may still be carried out, unless it
// is not under way.
func (x *session) wait(ctx context.Context, k *key, c *call) error {
	select {
	case <-c.done:
		return c.Err
	case <-ctx.Done():
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	f := &backend.Fault{Err: ctx.Err(), Temporary: true, MayHaveRun: true}
	if k == nil {
		return f
	}
	if at := slices.Index(k.pend, c); at >= 0 {
		k.pend = slices.Delete(k.pend, at, at+1)
		close(c.done)
		f.MayHaveRun = false
	}
	return f
}

// lane sends batches while there are some.
func (x *session) lane() {
	for {
		flights := x.take()
		if flights == nil {
			return
		}
		if u, can := x.driver.(Updater); can && len(flights) == 1 && flights[0].contended() {
			flights = x.update(u, flights[0])
		} else {
			flights = x.send(x.ctx, flights)
		}
		x.mu.Lock()
		for _, t := range flights {
			if t.kept > 0 {
				x.running.Go(func() { x.later(t) })
			} else {
				x.toLane(t)
			}
		}
		x.mu.Unlock()
	}
}

// keptPause is how long a flight pauses that a transaction of the store holds up, at first and at most. It keeps no
// lane meanwhile, and no batch waits for it.
const (
	keptPause     = 5 * time.Millisecond
	keptPauseMost = 100 * time.Millisecond
)

// later gives a flight to a lane after a pause, or at once when the session ends.
func (x *session) later(t *flight) {
	select {
	case <-time.After(min(keptPause<<min(t.kept-1, 10), keptPauseMost)):
	case <-x.ctx.Done():
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.toLane(t)
}

// take takes a batch for a lane, in the order of keys; nil if there is none, and the lane ends.
func (x *session) take() []*flight {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.ready) == 0 {
		x.lanes--
		return nil
	}
	flights := slices.Clone(x.ready[:min(len(x.ready), max(x.limits.Batch, 1))])
	if _, can := x.driver.(Updater); can && flights[0].contended() {
		flights = flights[:1] // by itself
	}
	x.ready = slices.Delete(x.ready, 0, len(flights))
	for _, t := range flights {
		if t.lost == 0 {
			t.calls = append(t.calls, t.pend...)
			t.pend = nil
		}
	}
	slices.SortFunc(flights, func(a, b *flight) int { return strings.Compare(a.key.key, b.key.key) })
	return flights
}

// contended reports whether other clients are always quicker, so that a lock of the store helps. Where a write may
// still come late, a swap has to meet it.
func (t *flight) contended() bool { return t.tries > 1 && t.lost == 0 }

// next has the key's further calls go on, after a flight has ended. Session.mu is locked.
func (x *session) next(k *key) {
	switch k.busy = len(k.pend) > 0; {
	case k.busy:
		x.toLane(&flight{key: k})
	case len(k.watched) == 0 && !k.mine && !k.doubt && (k.cur.Value == nil || len(x.keys) > mostKeys):
		delete(x.keys, k.key)
	}
}

// mostKeys bounds the names whose values are remembered without a need.
const mostKeys = 4096

// update carries out a flight under a lock of the store.
func (x *session) update(u Updater, t *flight) []*flight {
	ctx, cancel := context.WithTimeout(x.ctx, patience)
	defer cancel()
	t.sent = time.Now()
	out, err := u.Update(ctx, t.key.key, func(cur Swapped) Swap {
		x.note(reading{t.sent, time.Now(), cur.Now})
		t.see(&cur)
		x.plan(t)
		return t.swap
	})
	if err == nil && out.Err == nil {
		x.note(reading{t.sent, time.Now(), out.Now})
	}
	if x.settle(t, &out, err) {
		return nil
	}
	return []*flight{t}
}

// port is a session with the operations of package record. The store lacks Batch, Age, Partitions, Leaver and Replicas.
type port struct {
	record.Locks
	*session
}

// Capabilities implements [backend.Store].
func (x *port) Capabilities() backend.Capabilities {
	c := x.Locks.Capabilities()
	c.Check, c.List = checks{x.session}, x.lister()
	return c
}

// Renew implements [backend.Store].
func (x *port) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	x.Locks.Renew(ctx, in, out)
}

// Ask implements [record.Asker].
func (x *session) Ask(ctx context.Context, in ...*record.Call) {
	keys, calls := make([]*key, len(in)), make([]*call, len(in))
	for i, c := range in {
		calls[i] = &call{Call: *c}
		keys[i] = x.begin(ctx, c.Name, calls[i])
	}
	for i, c := range in {
		c.Err = x.wait(ctx, keys[i], calls[i])
	}
}

// Ping implements [backend.Store].
func (x *session) Ping(ctx context.Context) error {
	x.mu.Lock()
	err := x.refuses(ctx)
	x.mu.Unlock()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	defer context.AfterFunc(x.ctx, cancel)()
	return x.driver.Swap(ctx, nil, nil)
}

// Close implements [backend.Store]. It returns after the handler's last call, so a handler must not call Close.
func (x *session) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		x.running.Wait()
		return nil
	}
	x.closed = true
	x.events = nil
	if x.listener != nil {
		x.listener()
	}
	var left []*call
	for _, k := range x.keys {
		clear(k.watched)
		for _, c := range k.pend {
			c.Err = closedErr()
			close(c.done)
		}
		if k.pend = nil; k.busy || k.mine { // what a lane has under way may give the session something, too
			c := &call{record.Call{Run: forget}, make(chan struct{})}
			x.queueUp(k, c)
			left = append(left, c)
		}
	}
	x.mu.Unlock()
	late := time.NewTimer(closing)
	defer late.Stop()
	for _, c := range left {
		select {
		case <-c.done:
		case <-late.C:
			late.Reset(0)
		}
	}
	x.end()
	x.running.Wait()
	if d, is := x.driver.(interface{ Close() error }); is {
		return d.Close()
	}
	return nil
}

// closing is how long Close waits until the session's entries are removed. What is left costs others a while.
const closing = time.Second

// forget removes what a session has in a name.
func forget(n *record.Name, s *record.Step) error {
	n.Forget(s, s.By)
	return nil
}
