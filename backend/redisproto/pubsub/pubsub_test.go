package pubsub

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
