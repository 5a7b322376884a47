package playground

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// The page's store is a backend like the others: it passes their suite over its messages.
func TestConformance(t *testing.T) {
	check.Long(t)
	backendtest.RunInBubbles(t, func(*testing.T) backendtest.Store {
		s := memory.New()
		return remoteStore{s, NewHost(s, nil)}
	})
}

// remoteStore is a memory.Store whose clients reach it by messages.
type remoteStore struct {
	*memory.Store
	host *Host
}

var errDown = errors.New("down for a test")

func (s remoteStore) Backend() backend.Backend {
	return Remote{func() (*Link, error) { return s.host.dial("a"), nil }}
}
func (s remoteStore) Cut()             { s.SetDown(errDown); s.SetDown(nil) }
func (s remoteStore) Down()            { s.SetDown(errDown) }
func (s remoteStore) Up()              { s.SetDown(nil) }
func (s remoteStore) Connections() int { return 0 }

// dial connects a service without a browser.
func (h *Host) dial(name string) *Link {
	var g *Guest
	l := NewLink(func(m []byte) { g.Receive(m) })
	g = h.Accept(name, l.Receive)
	return l
}

// world is a host and the services that use it, in a bubble.
type world struct {
	*testing.T
	host    *Host
	watcher *Observer
	ledger  *Ledger
	events  chan Event
	writes  []Written
}

const watchdog = 3 * time.Second

func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, events: make(chan Event, 1000)}
		w.ledger = NewLedger(100, func(x Written) { w.writes = append(w.writes, x) })
		w.host = NewHost(memory.New(), w.ledger)
		var err error
		if w.watcher, err = w.host.Observe(); err != nil {
			t.Fatal(err)
		}
		defer w.watcher.Close()
		test(w)
	})
}

// service starts a service. stop is its Stop.
func (w *world) service(name string, amount int, stop func()) *Service {
	w.Helper()
	s, err := Start(Config{
		Name: name, Watchdog: watchdog, Amount: amount, Stop: stop,
		Store:  Remote{func() (*Link, error) { return w.host.dial(name), nil }},
		Ledger: w.host.dial(name),
		Tell:   func(e Event) { e.What = name + " " + e.What; w.events <- e },
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	return s
}

// await waits for an event, and skips others.
func (w *world) await(what string) Event {
	w.Helper()
	for {
		select {
		case e := <-w.events:
			if e.What == what {
				return e
			}
		case <-time.After(time.Minute):
			w.Fatalf("no event %q within a minute", what)
		}
	}
}

func (w *world) state() State {
	w.Helper()
	s, err := w.watcher.State(LockName)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func TestAWaiterIsServedInTurn(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, c := w.service("A", 50, nil), w.service("B", 30, nil), w.service("C", 10, nil)
		a.Do("lock")
		first := w.await("A acquired")
		go b.Do("lock")
		w.await("B waiting")
		synctest.Wait()
		go c.Do("lock")
		w.await("C waiting")
		synctest.Wait()
		if s := w.state(); !s.Held || len(s.Queue) != 2 || s.Queue[0] != "B" || s.Queue[1] != "C" {
			t.Fatalf("state: %+v", s)
		}
		if e := w.await("A renewed"); e.Remaining <= 0 {
			t.Fatalf("renewed: %+v", e)
		}
		a.Do("write")
		a.Do("unlock")
		if second := w.await("B acquired"); second.Token <= first.Token {
			t.Fatalf("tokens: %d, then %d", first.Token, second.Token)
		}
		if e := w.await("B read"); e.Balance != 50 {
			t.Fatalf("B read %d, want 50", e.Balance)
		}
		c.Do("leave")
		w.await("C left")
		synctest.Wait()
		if s := w.state(); len(s.Queue) != 0 || s.Holder != "B" {
			t.Fatalf("state: %+v", s)
		}
		b.Do("unlock")
		if s := w.state(); s.Held || s.Balance != 50 {
			t.Fatalf("state: %+v", s)
		}
	})
}

// A holder that is stopped between its check and its write overwrites what was written since, unless the ledger is
// fenced.
func TestAPausedHolderWritesLate(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		inWorld(t, func(w *world) {
			w.ledger.SetFenced(fenced)
			wall := newWall(w)
			a, b := wall.service("A", 50), w.service("B", 30, nil)
			a.Do("lock")
			go a.Do("pause")
			w.await("A paused")
			b.Do("lock") // waits until A's lease is over
			b.Do("write")
			b.Do("unlock")
			wall.open()
			a.Do("resume")
			w.await("A lost")
			synctest.Wait()
			want := map[bool]int{false: 50, true: 70}[fenced]
			last := w.writes[len(w.writes)-1]
			if got := w.ledger.Read(); got != want || last.By != "A" || !last.Stale || last.Accepted == fenced {
				t.Fatalf("fenced %t: the balance is %d, want %d; the last write: %+v", fenced, got, want, last)
			}
			if fenced {
				w.await("A refused")
			}
			a.Do("write")
			if e := w.await("A failed"); e.Err == "" {
				t.Fatal("A does not say why it does not write")
			}
		})
	}
}

// wall holds the messages of a service, as the page does for a program that is stopped. The program's timers go on
// here.
type wall struct {
	*world
	mu     sync.Mutex
	closed bool
	held   []func()
}

func newWall(w *world) *wall { return &wall{world: w} }

func (w *wall) service(name string, amount int) *Service {
	w.Helper()
	through := func(f func([]byte)) func([]byte) {
		return func(m []byte) {
			w.mu.Lock()
			closed := w.closed
			if closed {
				w.held = append(w.held, func() { f(m) })
			}
			w.mu.Unlock()
			if !closed {
				f(m)
			}
		}
	}
	dial := func() *Link {
		var g *Guest
		l := NewLink(through(func(m []byte) { g.Receive(m) }))
		g = w.host.Accept(name, through(l.Receive))
		return l
	}
	s, err := Start(Config{
		Name: name, Watchdog: watchdog, Amount: amount, Stop: func() { w.mu.Lock(); w.closed = true; w.mu.Unlock() },
		Store:  Remote{func() (*Link, error) { return dial(), nil }},
		Ledger: dial(),
		Tell:   func(e Event) { e.What = name + " " + e.What; w.events <- e },
	})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(s.Close)
	return s
}

// open delivers what was held.
func (w *wall) open() {
	w.mu.Lock()
	held := w.held
	w.closed, w.held = false, nil
	w.mu.Unlock()
	for _, f := range held {
		f()
	}
}

// A guest that closes, as that of a service that was killed, leaves the queue; its lock stays for the lease.
func TestADeadServiceLeavesTheQueue(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.service("A", 50, nil), w.service("B", 30, nil)
		a.Do("lock")
		var ends *Guest
		dead, err := mortise.New(Remote{func() (*Link, error) {
			l := NewLink(func(m []byte) { ends.Receive(m) })
			ends = w.host.Accept("D", l.Receive)
			return l, nil
		}}, mortise.WithWatchdogTimeout(watchdog))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer dead.Shutdown(ctx)
		defer cancel()
		go dead.Lock(ctx, LockName)
		synctest.Wait()
		go b.Do("lock")
		synctest.Wait()
		if s := w.state(); len(s.Queue) != 2 {
			t.Fatalf("state: %+v", s)
		}
		ends.Close()
		if s := w.state(); len(s.Queue) != 1 || s.Queue[0] != "B" {
			t.Fatalf("state: %+v", s)
		}
		a.Do("unlock")
		w.await("B acquired")
		b.Do("unlock")
	})
}
