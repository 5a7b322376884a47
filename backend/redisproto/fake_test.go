package redisproto

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/mortise-go/mortise/backend"
)

// serverError is an error reply.
type serverError string

func (e serverError) Error() string { return string(e) }

// fakeAdapter answers what it is told to, and keeps a pub/sub server in memory.
type fakeAdapter struct {
	commands
	fakeServer

	features   Features
	untracked  Commands
	unsent     error
	load       func() error // of LoadScripts
	renew      func(items []RenewItem, out []BatchReply)
	invalidate func([]string)
	inspected  func()       // called by Inspect
	pinged     func() error // called by Ping
}

// fakeReplies is what scripts are answered: by a tape if there is one, else as the kind of reply says.
type fakeReplies struct {
	tape    *tape
	acquire func(ctx context.Context, a AcquireArgs) (int64, error)
	ints    []int64
	int     int64
	strings []string
	err     error
}

// number is the reply to a script with these arguments or, without any, keys.
func (r *fakeReplies) number(ctx context.Context, args any) (int64, error) {
	if r.tape != nil {
		return r.tape.number()
	}
	if a, ok := args.(AcquireArgs); ok && r.acquire != nil {
		return r.acquire(ctx, a)
	}
	return r.int, r.err
}

func (r *fakeReplies) numbers(script string) ([]int64, error) {
	if r.tape != nil {
		return r.tape.numbers(script)
	}
	return r.ints, r.err
}

func (r *fakeReplies) words() ([]string, error) {
	if r.tape != nil {
		return r.tape.words()
	}
	return r.strings, r.err
}

func (a *fakeAdapter) Renew(ctx context.Context, args RenewArgs, items []RenewItem, out []BatchReply) {
	if a.renew == nil {
		a.commands.Renew(ctx, args, items, out)
		return
	}
	a.renew(items, out)
}
func (a *fakeAdapter) Inspect(ctx context.Context, k InspectKeys) ([]string, error) {
	if a.inspected != nil {
		a.inspected()
	}
	return a.commands.Inspect(ctx, k)
}
func (a *fakeAdapter) Features() Features { return a.features }
func (a *fakeAdapter) Ping(context.Context) error {
	if a.pinged != nil {
		return a.pinged()
	}
	return a.err
}
func (a *fakeAdapter) LoadScripts(context.Context, []string) error {
	if a.load != nil {
		return a.load()
	}
	return a.err
}
func (a *fakeAdapter) Close() error { return nil }
func (a *fakeAdapter) Unsent(err error) bool {
	return a.unsent != nil && errors.Is(err, a.unsent)
}
func (a *fakeAdapter) OnInvalidate(fn func([]string)) { a.invalidate = fn }
func (a *fakeAdapter) Untracked(bool) Commands        { return a.untracked }
func (a *fakeAdapter) ServerError(err error) (string, bool) {
	e, ok := errors.AsType[serverError](err)
	return string(e), ok
}

// fakeServer is a pub/sub server of one connection at a time.
type fakeServer struct {
	mu        sync.Mutex
	refuse    error  // of Subscribe
	forbidden string // a channel
	mute      bool   // takes everything and answers nothing
	dials     int
	open      *fakeSub
}

func (a *fakeServer) Subscribe(_ context.Context, ev Events) (Subscription, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dials++
	if a.refuse != nil {
		return nil, a.refuse
	}
	a.open = &fakeSub{a: a, ev: ev, channels: map[string]bool{}}
	return a.open, nil
}

func (a *fakeServer) set(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
}

// sub is the connection that is open, or nil.
func (a *fakeServer) sub() (open *fakeSub) {
	a.set(func() { open = a.open })
	return open
}

func (a *fakeServer) dialled() (n int) {
	a.set(func() { n = a.dials })
	return n
}

// publish reports how many heard it.
func (a *fakeServer) publish(channel, payload string) int {
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
func (a *fakeServer) cut(err error) {
	a.mu.Lock()
	s := a.open
	a.open = nil
	a.mu.Unlock()
	s.ev.Down(err)
}

func (a *fakeServer) subscribed() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(a.open.channels))
}

type fakeSub struct {
	a        *fakeServer
	ev       Events
	channels map[string]bool
	commands []string // guarded by a.mu
	closed   int
}

func (s *fakeSub) do(name string, channels []string, fn func(channel string)) error {
	mute := false
	s.a.set(func() { s.commands, mute = append(s.commands, name), s.a.mute })
	if !mute {
		for _, c := range channels {
			fn(c)
		}
	}
	return nil
}

func (s *fakeSub) sent() (commands []string) {
	s.a.set(func() { commands = slices.Clone(s.commands) })
	return commands
}

func (s *fakeSub) closings() (n int) {
	s.a.set(func() { n = s.closed })
	return n
}

func (s *fakeSub) Subscribe(_ context.Context, channels ...string) error {
	forbids := false
	s.a.set(func() { forbids = slices.Contains(channels, s.a.forbidden) })
	if forbids {
		return serverError("NOPERM this user has no permissions to access one of the channels used as arguments")
	}
	return s.do("subscribe", channels, func(c string) {
		s.a.set(func() { s.channels[c] = true })
		s.ev.Subscribed(c)
	})
}
func (s *fakeSub) Unsubscribe(_ context.Context, channels ...string) error {
	return s.do("unsubscribe", channels, func(c string) {
		s.a.set(func() { delete(s.channels, c) })
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
