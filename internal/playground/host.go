package playground

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Host answers the requests of services. It has the store of locks, and a ledger. Its methods may be called
// concurrently.
type Host struct {
	store  backend.Backend
	ledger *Ledger
	began  time.Time

	mu   sync.Mutex
	line []waiter // in the order of enrolment
}

// now returns the host's time, by which it tells its guests when a lock was granted.
func (h *Host) now() time.Duration { return time.Since(h.began) }

// waiter is an entry in the store's queue, as known from messages.
type waiter struct {
	guest *Guest
	lock  string
	owner string
}

// NewHost makes a host. The ledger may be nil if no service uses it.
func NewHost(store backend.Backend, ledger *Ledger) *Host {
	return &Host{store: store, ledger: ledger, began: time.Now()}
}

// Guest is the answering end of a link.
type Guest struct {
	name  string
	host  *Host
	send  func(message []byte)
	store backend.Store // nil before open
}

// Accept takes a connection of a service. Pass each message of the service to [Guest.Receive], in order.
func (h *Host) Accept(name string, send func(message []byte)) *Guest {
	return &Guest{name: name, host: h, send: send}
}

// Close ends the guest's session, as a store does after its client has gone. Locks of the guest stay held until their
// leases end.
func (g *Guest) Close() {
	g.host.mu.Lock()
	g.host.line = slices.DeleteFunc(g.host.line, func(w waiter) bool { return w.guest == g })
	g.host.mu.Unlock()
	if g.store != nil {
		g.store.Close()
	}
}

// Receive takes a message of the service.
func (g *Guest) Receive(message []byte) {
	var f frame
	if err := json.Unmarshal(message, &f); err != nil {
		panic(err)
	}
	answer, known := ops[f.Op]
	if !known {
		panic(fmt.Sprintf("playground: unknown request %q", f.Op))
	}
	body, err := answer(g, f.Body)
	if f.ID != 0 {
		g.send(encode(frame{ID: f.ID, Fault: faultOf(err)}, body))
	}
}

// op answers a request.
type op func(g *Guest, body json.RawMessage) (any, error)

// with returns an op whose request is an A.
func with[A, R any](answer func(g *Guest, in A) (R, error)) op {
	return func(g *Guest, body json.RawMessage) (any, error) {
		var in A
		if err := json.Unmarshal(body, &in); err != nil {
			return nil, err
		}
		return answer(g, in)
	}
}

// on returns an op that the guest's store answers.
func on[A, R any](answer func(s backend.Store, ctx context.Context, in A) (R, error)) op {
	return with(func(g *Guest, in A) (R, error) { return answer(g.store, context.Background(), in) })
}

// doing returns an op without a result.
func doing[A any](do func(g *Guest, in A)) op {
	return with(func(g *Guest, in A) (any, error) { do(g, in); return nil, nil })
}

var ops map[string]op

func init() { // a literal would be a cycle: an op may receive
	ops = map[string]op{
		"open":        with(func(g *Guest, in opening) (any, error) { return nil, g.open(in) }),
		"close":       doing(func(g *Guest, _ any) { g.Close() }),
		"acquire":     on(backend.Store.Acquire),
		"holds":       on(backend.Store.SetHolds),
		"release":     on(backend.Store.Release),
		"inspect":     on(backend.Store.Inspect),
		"force":       on(backend.Store.ForceRelease),
		"ping":        with(func(g *Guest, _ any) (any, error) { return nil, g.store.Ping(context.Background()) }),
		"renew":       with((*Guest).renew),
		"subscribe":   doing(func(g *Guest, t backend.Topic) { g.store.Subscribe(t) }),
		"unsubscribe": doing(func(g *Guest, t backend.Topic) { g.store.Unsubscribe(t) }),
		"enrol":       with((*Guest).enrol),
		"serve":       with((*Guest).serve),
		"leave":       with(func(g *Guest, q backend.LeaveEntryRequest) (any, error) { return nil, g.leave(q) }),
		"read":        with(func(g *Guest, _ any) (int, error) { return g.host.ledger.Read(), nil }),
		"write":       with(func(g *Guest, in Write) (bool, error) { return g.host.ledger.write(g.name, in), nil }),
	}
}

func (g *Guest) open(in opening) (err error) {
	h := handler{g}
	if in.Queues {
		g.store, err = g.host.store.Open(queueHandler{h})
	} else {
		g.store, err = g.host.store.Open(h)
	}
	return err
}

func (g *Guest) renew(in []backend.RenewRequest) ([]renewal, error) {
	out := make([]backend.RenewResult, len(in))
	g.store.Renew(context.Background(), in, out)
	all := make([]renewal, len(out))
	for i, r := range out {
		all[i] = renewal{r.Held, r.Remaining, faultOf(r.Err)}
	}
	return all, nil
}

func (g *Guest) enrol(q backend.EnrolRequest) (enrolled, error) {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	r, err := g.store.Capabilities().Queue.Enrol(context.Background(), q)
	if err == nil {
		g.note(waiter{g, q.Name, q.Instead}, false)
		g.note(waiter{g, q.Name, q.Owner}, r.Enrolled)
	}
	return enrolled{r, g.host.now()}, err
}

func (g *Guest) serve(q backend.ServeRequest) (backend.ServeReply, error) {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	r, err := g.store.Capabilities().Queue.Serve(context.Background(), q)
	if err == nil {
		g.note(waiter{g, q.Name, q.Instead}, false)
		g.note(waiter{g, q.Name, q.Next}, r.Enrolled)
	}
	return r, err
}

func (g *Guest) leave(q backend.LeaveEntryRequest) error {
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	g.note(waiter{g, q.Name, q.Owner}, false)
	return g.store.Capabilities().Queue.Leave(context.Background(), q)
}

// note records whether w is in the store's queue. The caller holds the host's mutex.
func (g *Guest) note(w waiter, in bool) {
	h := g.host
	at := slices.Index(h.line, w)
	switch {
	case in && at < 0:
		h.line = append(h.line, w)
	case !in && at >= 0:
		h.line = slices.Delete(h.line, at, at+1)
	}
}

// handler sends the events of a guest's session to the guest.
type handler struct{ guest *Guest }

func (h handler) tell(op string, n news) { h.guest.send(encode(frame{Op: op}, n)) }

// Watching implements [backend.Handler].
func (h handler) Watching(t backend.Topic) { h.tell("watching", news{Topic: t}) }

// Released implements [backend.Handler].
func (h handler) Released(t backend.Topic) { h.tell("released", news{Topic: t}) }

// Changed implements [backend.Handler].
func (h handler) Changed(t backend.Topic) { h.tell("changed", news{Topic: t}) }

// ChangedAll implements [backend.Handler].
func (h handler) ChangedAll() { h.tell("changedAll", news{}) }

// queueHandler is the handler of a guest that enrols.
type queueHandler struct{ handler }

var _ backend.QueueHandler = queueHandler{}

// Freed implements [backend.QueueHandler].
func (h queueHandler) Freed(t backend.Topic) { h.tell("freed", news{Topic: t}) }

// Granted implements [backend.QueueHandler].
func (h queueHandler) Granted(t backend.Topic, g backend.Grant) {
	host := h.guest.host
	host.mu.Lock()
	h.guest.note(waiter{h.guest, t.Name, g.Owner}, false)
	host.mu.Unlock()
	at := host.now() - time.Since(g.From)
	h.tell("granted", news{Topic: t, Owner: g.Owner, Token: g.Token, At: at, Lease: g.Lease})
}

// Reserved implements [backend.QueueHandler]. The store in memory grants, and reserves nothing for an entry.
func (queueHandler) Reserved(backend.Topic, uint64) {}

// First implements [backend.QueueHandler].
func (h queueHandler) First(t backend.Topic, entry uint64, after time.Duration) {
	h.tell("first", news{Topic: t, Entry: entry, After: after.Milliseconds()})
}

// Wanted implements [backend.QueueHandler].
func (h queueHandler) Wanted(t backend.Topic, entry uint64) {
	h.tell("wanted", news{Topic: t, Entry: entry})
}

// State is a lock and the ledger, as the page shows them.
type State struct {
	Held      bool     `json:"held"`
	Holder    string   `json:"holder"`    // the service
	Owner     string   `json:"owner"`     // the owner's id in the record
	Remaining int64    `json:"remaining"` // milliseconds
	Queue     []string `json:"queue"`     // the waiting services, in the order of enrolment
	Balance   int      `json:"balance"`
	Newest    int64    `json:"newest"` // the largest fencing token that has written
	Fenced    bool     `json:"fenced"`
}

// Observer watches a lock. Close ends it.
type Observer struct {
	host  *Host
	store backend.Store
}

// Observe opens a session that reads the lock's record.
func (h *Host) Observe() (*Observer, error) {
	s, err := h.store.Open(handler{h.Accept("", func([]byte) {})})
	return &Observer{h, s}, err
}

// Close ends the session.
func (o *Observer) Close() error { return o.store.Close() }

// State reads a lock's record, its queue, and the ledger.
func (o *Observer) State(lock string) (State, error) {
	r, err := o.store.Inspect(context.Background(), lock)
	if err != nil {
		return State{}, err
	}
	s := State{Held: r.Held, Owner: r.Owner, Remaining: r.Remaining.Milliseconds(), Queue: []string{}}
	s.Holder, _, _ = strings.Cut(r.Owner, ":")
	o.host.mu.Lock()
	defer o.host.mu.Unlock()
	for _, w := range o.host.line {
		if w.lock == lock {
			s.Queue = append(s.Queue, w.guest.name)
		}
	}
	s.Balance, s.Newest, s.Fenced = o.host.ledger.state()
	return s, nil
}

func millis(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
