package playground

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/mortise-go/mortise/backend"
)

// Remote is a store at the other end of a link: a [backend.Backend] of plain and fenced locks, with a queue. Each
// session has a link of its own, which Dial makes.
type Remote struct{ Dial func() (*Link, error) }

// Open implements [backend.Backend].
func (r Remote) Open(h backend.Handler) (backend.Store, error) {
	if h == nil {
		return nil, errors.New("playground: nil Handler")
	}
	l, err := r.Dial()
	if err != nil {
		return nil, err
	}
	s := &session{link: l}
	l.event = func(f frame) { s.told(h, f) }
	_, queues := h.(backend.QueueHandler)
	l.send(encode(frame{Op: "open"}, opening{Queues: queues}))
	return s, nil
}

// opening is the first message of a session.
type opening struct {
	Queues bool `json:"queues"` // its handler is a backend.QueueHandler
}

// news is the body of an event.
type news struct {
	Topic backend.Topic
	Entry uint64 `json:",omitempty"`
	After int64  `json:",omitempty"` // milliseconds
	// of a grant:
	Owner string        `json:",omitempty"`
	Token int64         `json:",omitempty"`
	At    time.Duration `json:",omitempty"` // by the host's clock
	Lease time.Duration `json:",omitempty"`
}

func (s *session) told(h backend.Handler, f frame) {
	var n news
	if err := json.Unmarshal(f.Body, &n); err != nil {
		panic(err)
	}
	switch f.Op {
	case "watching":
		h.Watching(n.Topic)
	case "released":
		h.Released(n.Topic)
	case "freed":
		h.(backend.QueueHandler).Freed(n.Topic)
	case "changed":
		h.Changed(n.Topic)
	case "changedAll":
		h.ChangedAll()
	case "granted":
		g := backend.Grant{Owner: n.Owner, Token: n.Token, Lease: n.Lease, From: s.clocks.local(n.At)}
		h.(backend.QueueHandler).Granted(n.Topic, g)
	case "first":
		h.(backend.QueueHandler).First(n.Topic, n.Entry, millis(n.After))
	case "wanted":
		h.(backend.QueueHandler).Wanted(n.Topic, n.Entry)
	}
}

// session is the calling end of a session of the host's store.
type session struct {
	link   *Link
	clocks clocks
}

// clocks has a time of the host, and a local time that was before it.
type clocks struct {
	mu    sync.Mutex
	sent  time.Time
	there time.Duration
}

func (c *clocks) note(sent time.Time, there time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.there = sent, there
}

// local returns a local time that was before a time of the host, which has passed.
func (c *clocks) local(there time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.sent.Add(there - c.there); at.Before(time.Now()) {
		return at
	}
	return time.Now()
}

// Capabilities implements [backend.Store].
func (s *session) Capabilities() backend.Capabilities {
	return backend.Capabilities{Queue: queue{s}, Grants: true}
}

// Acquire implements [backend.Store].
func (s *session) Acquire(ctx context.Context, q backend.AcquireRequest) (backend.AcquireReply, error) {
	return call[backend.AcquireRequest, backend.AcquireReply](ctx, s.link, "acquire", q)
}

// SetHolds implements [backend.Store].
func (s *session) SetHolds(ctx context.Context, q backend.HoldsRequest) (backend.HoldsReply, error) {
	return call[backend.HoldsRequest, backend.HoldsReply](ctx, s.link, "holds", q)
}

// Release implements [backend.Store].
func (s *session) Release(ctx context.Context, q backend.ReleaseRequest) (backend.ReleaseReply, error) {
	return call[backend.ReleaseRequest, backend.ReleaseReply](ctx, s.link, "release", q)
}

// renewal is a [backend.RenewResult] in a message.
type renewal struct {
	Held      bool
	Remaining time.Duration `json:",omitempty"`
	Fault     *fault        `json:",omitempty"`
}

// Renew implements [backend.Store].
func (s *session) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	all, err := call[[]backend.RenewRequest, []renewal](ctx, s.link, "renew", in)
	for i := range out {
		if err != nil {
			out[i] = backend.RenewResult{Err: err}
			continue
		}
		out[i] = backend.RenewResult{Held: all[i].Held, Remaining: all[i].Remaining, Err: all[i].Fault.err()}
	}
}

// Inspect implements [backend.Store].
func (s *session) Inspect(ctx context.Context, name string) (backend.Record, error) {
	return call[string, backend.Record](ctx, s.link, "inspect", name)
}

// ForceRelease implements [backend.Store].
func (s *session) ForceRelease(ctx context.Context, r backend.ForceRequest) (bool, error) {
	return call[backend.ForceRequest, bool](ctx, s.link, "force", r)
}

// Ping implements [backend.Store].
func (s *session) Ping(ctx context.Context) error {
	_, err := call[any, any](ctx, s.link, "ping", nil)
	return err
}

// Subscribe implements [backend.Store].
func (s *session) Subscribe(t backend.Topic) { s.link.send(encode(frame{Op: "subscribe"}, t)) }

// Unsubscribe implements [backend.Store].
func (s *session) Unsubscribe(t backend.Topic) { s.link.send(encode(frame{Op: "unsubscribe"}, t)) }

// Close implements [backend.Store].
func (s *session) Close() error { s.link.close(); return nil }

// queue is the calling end of a [backend.QueueStore].
type queue struct{ *session }

// enrolled is the answer to an Enrol, with the host's time.
type enrolled struct {
	backend.EnrolReply
	There time.Duration
}

// Enrol implements [backend.QueueStore].
func (q queue) Enrol(ctx context.Context, r backend.EnrolRequest) (backend.EnrolReply, error) {
	sent := time.Now()
	reply, err := call[backend.EnrolRequest, enrolled](ctx, q.link, "enrol", r)
	if err == nil {
		q.clocks.note(sent, reply.There)
	}
	return reply.EnrolReply, err
}

// Serve implements [backend.QueueStore].
func (q queue) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	return call[backend.ServeRequest, backend.ServeReply](ctx, q.link, "serve", r)
}

// Leave implements [backend.QueueStore].
func (q queue) Leave(ctx context.Context, r backend.LeaveEntryRequest) error {
	_, err := call[backend.LeaveEntryRequest, any](ctx, q.link, "leave", r)
	return err
}
