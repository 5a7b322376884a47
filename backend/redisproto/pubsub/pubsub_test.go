package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// server confirms what it is sent, and keeps the events that a watcher tells.
type server struct {
	mu     sync.Mutex
	events []string
	ev     ShardEvents
	down   error // of Open
}

func (s *server) note(event string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, event)
}

func (s *server) config() Config {
	return Config{
		Open: func(_ context.Context, ev ShardEvents) (Subscription, error) {
			s.ev = ev
			return s, s.down
		},
		Watching: func(t backend.Topic) { s.note("watching " + t.Name) },
		Message:  func(t backend.Topic, payload string) { s.note(payload + " for " + t.Name) },
		Failed: func(err error) func(backend.Topic) {
			return func(t backend.Topic) { s.note(err.Error() + " for " + t.Name) }
		},
	}
}

func (s *server) Subscribe(_ context.Context, channels ...string) error {
	for _, c := range channels {
		s.ev.Subscribed(c)
	}
	return nil
}

func (s *server) Unsubscribe(context.Context, ...string) error { s.ev.Alive(); return nil }
func (s *server) Ping(context.Context) error                   { s.ev.Alive(); return nil }
func (s *server) Close() error                                 { return nil }

func TestWhatIsToldOfTopics(t *testing.T) {
	a, b := backend.Topic{Name: "a"}, backend.Topic{Name: "b"}
	for _, test := range []struct {
		name string
		down error
		do   func(w Watcher, s *server)
		want []string
	}{
		{"confirmed and heard", nil, func(w Watcher, s *server) {
			w.Watch("c", a)
			synctest.Wait()
			s.ev.Message("c", "x")
			s.ev.Message("other", "y")
		}, []string{"watching a", "x for a"}},
		{"two topics share a channel", nil, func(w Watcher, s *server) {
			w.Watch("c", a)
			synctest.Wait()
			w.Watch("c", b)
			synctest.Wait()
			w.Unwatch("c", a)
			s.ev.Message("c", "x")
		}, []string{"watching a", "watching b", "x for b"}},
		{"a channel of two slots that is refused", nil, func(w Watcher, s *server) {
			w.Watch("c", a)
			w.Watch("d", b)
			synctest.Wait()
			s.ev.Refused([]string{"d", "e"}, errors.New("denied"))
		}, []string{"watching a", "watching b", "denied for b"}},
		{"no connection", errors.New("no"), func(w Watcher, s *server) { w.Watch("c", a); synctest.Wait() },
			[]string{"no for a"}},
		{"closed", nil, func(w Watcher, s *server) { w.Close(); w.Watch("c", a) }, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{down: test.down}
				w := New(s.config())
				test.do(w, s)
				w.Close()
				slices.Sort(s.events)
				slices.Sort(test.want)
				check.ErrorIf(t, !slices.Equal(s.events, test.want), "told %q, want %q", s.events, test.want)
			})
		})
	}
}

func TestTopicsLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSubscriptions((&server{}).config())
		topic := func(i int) (string, backend.Topic) { return fmt.Sprint(i), backend.Topic{Name: fmt.Sprint(i)} }
		for i := range 10_000 {
			w.Watch(topic(i))
		}
		synctest.Wait()
		check.ErrorIf(t, !w.Listens("7"), "a channel is not subscribed")
		for i := range 10_000 {
			w.Unwatch(topic(i))
		}
		time.Sleep(2 * Linger)
		synctest.Wait()
		check.ErrorIf(t, len(w.channels)+len(w.left)+len(w.todo)+w.watched != 0,
			"left behind: %d channels, %d left, %d to do, %d watched", len(w.channels), len(w.left), len(w.todo), w.watched)
		w.Close()
	})
}

var errDenied = errors.New("denied")

// strict is a server that refuses each SUBSCRIBE with a channel whose name begins with "bad", and ends the connection.
type strict struct{ server }

func (s *strict) config() Config {
	c := s.server.config()
	c.Open = func(_ context.Context, ev ShardEvents) (Subscription, error) {
		s.ev = ev
		return s, nil
	}
	c.Denied = func(err error) bool { return errors.Is(err, errDenied) }
	return c
}

func (s *strict) Subscribe(ctx context.Context, channels ...string) error {
	if slices.ContainsFunc(channels, func(c string) bool { return strings.HasPrefix(c, "bad") }) {
		s.ev.Down(errDenied)
		return nil
	}
	return s.server.Subscribe(ctx, channels...)
}

// A channel that is refused is found among those that were subscribed with it, and only its topics are told.
func TestARefusedChannelFailsItsOwnTopicsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(strict)
		w := New(s.config())
		var want []string
		for i := range 50 {
			name := fmt.Sprint("c", i)
			if i%20 == 10 {
				name = "bad" + name
			}
			w.Watch(name, backend.Topic{Name: name})
			if i == 5 {
				synctest.Wait() // these are confirmed before
			}
		}
		for range 2 * 50 { // as calls do whose wait has failed, the refused ones leave
			time.Sleep(lastSearch)
			synctest.Wait()
			s.mu.Lock()
			for _, name := range []string{"badc10", "badc30"} {
				if slices.Contains(s.events, "denied for "+name) {
					w.Unwatch(name, backend.Topic{Name: name})
				}
			}
			s.mu.Unlock()
		}
		for i := range 50 {
			name := fmt.Sprint("c", i)
			if i%20 == 10 {
				want = append(want, "denied for bad"+name)
				continue
			}
			check.ErrorIf(t, !w.Listens(name), "%s is not subscribed", name)
			want = append(want, "watching "+name)
		}
		w.Close()
		slices.Sort(s.events)
		slices.Sort(want)
		got := slices.Compact(s.events) // a channel is confirmed on each connection
		check.ErrorIf(t, !slices.Equal(got, want), "told %q, want %q", got, want)
	})
}
