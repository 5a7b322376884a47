package mortise

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// gauges count what begins and ends, by kind, as metrics do.
type gauges struct {
	mu            sync.Mutex
	waiting, held map[string]int
}

func (g *gauges) observer() Observer {
	g.waiting, g.held = make(map[string]int), make(map[string]int)
	add := func(m map[string]int, kind string, n int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		m[kind] += n
	}
	return Observer{
		Waiting: func(e WaitingEvent) { add(g.waiting, e.Kind, 1) },
		Acquired: func(e AcquiredEvent) {
			if e.Contended {
				add(g.waiting, e.Kind, -1)
			}
			add(g.held, e.Kind, 1)
		},
		NotAcquired: func(e NotAcquiredEvent) {
			if e.Contended {
				add(g.waiting, e.Kind, -1)
			}
		},
		Released: func(e ReleasedEvent) { add(g.held, e.Kind, -1) },
	}
}

func (g *gauges) check(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for kind, n := range g.waiting {
		if n != 0 {
			t.Errorf("%d %s wait", n, kind)
		}
	}
	for kind, n := range g.held {
		if n != 0 {
			t.Errorf("%d %s are held", n, kind)
		}
	}
}

// A lock of one kind is entered again by way of another: its events are all of one kind.
func TestAnObserverIsToldOneKindOfAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		c := on(t, memory.New(), WithObserver(g.observer()))
		fair := need(c.Locker(Fair()))(t)
		outer := need(c.Lock(t.Context(), "n"))(t)
		inner := need(c.Lock(outer.Context(), "n"))(t)
		got := make(chan *Lease)
		go func() {
			l := need(fair.Lock(outer.Context(), "n"))(t)
			got <- l
		}()
		synctest.Wait() // it waits for its turn
		must(t, inner.Unlock(t.Context()))
		l := <-got
		must(t, l.Unlock(t.Context()))
		must(t, outer.Unlock(t.Context()))
		g.check(t)
	})
}

// A LockAll that got its locks too late gives them back and goes on: it waits once more.
func TestAnObserverIsToldOnceOfEachWaitOfLockAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		o := g.observer()
		told, slow := o.Acquired, true
		// The second lock's lease is over before its turn comes: the first was told as acquired.
		o.Acquired = func(e AcquiredEvent) {
			told(e)
			if e.Name == "a" && slow {
				slow = false
				time.Sleep(time.Minute)
			}
		}
		store := memory.New()
		c := on(t, store, WithObserver(o))
		other := on(t, store)
		l := need(other.Lock(t.Context(), "a"))(t)
		got := make(chan *Lease)
		go func() {
			m, err := LockAll(t.Context(), Parts(c, "a", "b"), WithWait(10*time.Minute))
			if err == nil {
				err = m.Unlock(context.Background())
			}
			t.Log(err)
			got <- nil
		}()
		synctest.Wait()
		must(t, l.Unlock(t.Context()))
		<-got
		time.Sleep(time.Minute)
		synctest.Wait()
		g.check(t)
	})
}
