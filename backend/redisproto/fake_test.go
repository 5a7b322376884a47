package redisproto

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }

// fakeAdapter answers what it is told to, and keeps a pub/sub server in memory.
type fakeAdapter struct {
	Commands // none: see the methods

	features  Features
	untracked Commands
	unsent    error

	acquire func(ctx context.Context, a AcquireArgs) (int64, error)
	ints    []int64
	int     int64
	strings []string
	err     error
	renew   func(items []RenewItem, out []BatchReply)

	mu         sync.Mutex
	refuse     error // of Subscribe
	mute       bool  // takes everything and answers nothing
	dials      int
	open       *fakeSub
	invalidate func([]string)
}

func (a *fakeAdapter) Acquire(ctx context.Context, _ AcquireKeys, args AcquireArgs) (int64, error) {
	if a.acquire != nil {
		return a.acquire(ctx, args)
	}
	return a.int, a.err
}
func (a *fakeAdapter) AcquireFenced(context.Context, AcquireFencedKeys, AcquireFencedArgs) ([]int64, error) {
	return a.ints, a.err
}
func (a *fakeAdapter) Reenter(context.Context, ReenterKeys, ReenterArgs) ([]int64, error) {
	return a.ints, a.err
}
func (a *fakeAdapter) Release(context.Context, ReleaseKeys, ReleaseArgs) (int64, error) {
	return a.int, a.err
}
func (a *fakeAdapter) Enrol(context.Context, EnrolKeys, EnrolArgs) ([]int64, error) {
	return a.ints, a.err
}
func (a *fakeAdapter) Serve(context.Context, ServeKeys, ServeArgs) ([]int64, error) {
	return a.ints, a.err
}
func (a *fakeAdapter) LeaveQueue(context.Context, LeaveQueueKeys, LeaveQueueArgs) (int64, error) {
	return a.int, a.err
}
func (a *fakeAdapter) Renew(_ context.Context, _ RenewArgs, items []RenewItem, out []BatchReply) {
	a.renew(items, out)
}
func (a *fakeAdapter) Inspect(context.Context, InspectKeys) ([]string, error) {
	return a.strings, a.err
}
func (a *fakeAdapter) ForceRelease(context.Context, ForceReleaseKeys, ForceReleaseArgs) (int64, error) {
	return a.int, a.err
}
func (a *fakeAdapter) Features() Features                          { return a.features }
func (a *fakeAdapter) Ping(context.Context) error                  { return a.err }
func (a *fakeAdapter) LoadScripts(context.Context, []string) error { return a.err }
func (a *fakeAdapter) Close() error                                { return nil }
func (a *fakeAdapter) Unsent(err error) bool {
	return a.unsent != nil &&
		errors.Is(err, a.unsent)
}
func (a *fakeAdapter) OnInvalidate(fn func([]string)) { a.invalidate = fn }
func (a *fakeAdapter) Untracked() Commands            { return a.untracked }
func (a *fakeAdapter) ServerError(err error) (string, bool) {
	var e serverError
	ok := errors.As(err, &e)
	return string(e), ok
}

func (a *fakeAdapter) Subscribe(_ context.Context, ev Events) (Subscription, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dials++
	if a.refuse != nil {
		return nil, a.refuse
	}
	a.open = &fakeSub{a: a, ev: ev, channels: map[string]bool{}}
	return a.open, nil
}

// sub is the connection that is open, or nil.
func (a *fakeAdapter) sub() *fakeSub {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}

func (a *fakeAdapter) set(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

func (a *fakeAdapter) dialled() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dials
}

// publish reports how many heard it.
func (a *fakeAdapter) publish(channel, payload string) int {
	a.mu.Lock()
	s := a.open
	ok := s != nil && s.channels[channel]
	a.mu.Unlock()
	if !ok {
		return 0
	}
	s.ev.Message(channel, payload)
	return 1
}

// cut breaks the connection.
func (a *fakeAdapter) cut(err error) {
	a.mu.Lock()
	s := a.open
	a.open = nil
	a.mu.Unlock()
	s.ev.Down(err)
}

func (a *fakeAdapter) subscribed() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	if a.open != nil {
		for c := range a.open.channels {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

type fakeSub struct {
	a        *fakeAdapter
	ev       Events
	channels map[string]bool
	commands []string // guarded by a.mu
	closed   int
}

func (s *fakeSub) do(name string, channels []string, fn func(channel string)) error {
	s.a.mu.Lock()
	s.commands = append(s.commands, name)
	mute := s.a.mute
	s.a.mu.Unlock()
	if mute {
		return nil
	}
	for _, c := range channels {
		fn(c)
	}
	return nil
}

func (s *fakeSub) sent() []string {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return slices.Clone(s.commands)
}

func (s *fakeSub) closings() int {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	return s.closed
}

func (s *fakeSub) Subscribe(_ context.Context, channels ...string) error {
	return s.do("subscribe", channels, func(c string) {
		s.a.mu.Lock()
		s.channels[c] = true
		s.a.mu.Unlock()
		s.ev.Subscribed(c)
	})
}
func (s *fakeSub) Unsubscribe(_ context.Context, channels ...string) error {
	return s.do("unsubscribe", channels, func(c string) {
		s.a.mu.Lock()
		delete(s.channels, c)
		s.a.mu.Unlock()
		s.ev.Alive()
	})
}
func (s *fakeSub) Ping(context.Context) error {
	return s.do("ping", []string{""}, func(string) { s.ev.Alive() })
}
func (s *fakeSub) Close() error {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.closed++
	if s.a.open == s {
		s.a.open = nil
	}
	return nil
}

// recorder is a Handler that writes down what it hears.
type recorder struct {
	mu     sync.Mutex
	heard  []string
	failed []error
	deaf   []string // the names that failed
}

func (r *recorder) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, s)
}
func (r *recorder) Watching(t backend.Topic) { r.add("watching " + t.Name) }
func (r *recorder) Released(t backend.Topic) { r.add("released " + t.Name) }
func (r *recorder) Changed(t backend.Topic)  { r.add("changed " + t.Name) }
func (r *recorder) ChangedAll()              { r.add("changed all") }
func (r *recorder) WatchFailed(t backend.Topic, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, err)
	r.deaf = append(r.deaf, t.Name)
}

// take returns what was heard since the last call.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.heard
	r.heard = nil
	return h
}
