package mortise

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

func TestLockAllHoldsAllOrNone(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		all, err := a.LockAll(t.Context(), "x", "y", "z")
		must(t, err)
		for _, n := range []string{"x", "y", "z"} {
			_, err := b.TryLock(t.Context(), n)
			wants(t, err, ErrNotAcquired)
			inner, err := a.TryLock(all.Context(), n)
			must(t, err)
			must(t, inner.Unlock(t.Context()))
		}
		_, err = LockAll(t.Context(), Parts(b, "w", "z"), WithWait(time.Second))
		wants(t, err, ErrNotAcquired)
		w, err := b.TryLock(t.Context(), "w")
		must(t, err)
		must(t, w.Unlock(t.Context()))
		must(t, all.Unlock(t.Context()))
		wants(t, all.Err(), ErrReleased)
		wants(t, context.Cause(all.Context()), ErrReleased)
		wants(t, all.Unlock(t.Context()), ErrNotHeld)
		all, err = LockAll(t.Context(), append(Parts(b, "w", "z"), Parts(a, "x")...))
		must(t, err)
		must(t, all.Unlock(t.Context()))
	})
}

func TestLockAllEndsWithItsFirstLostPart(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		all, err := a.LockAll(t.Context(), "x", "y")
		must(t, err)
		s.Delete("x")
		<-all.Context().Done()
		wants(t, context.Cause(all.Context()), ErrLost)
		wants(t, all.Err(), ErrLost)
		_, err = b.TryLock(t.Context(), "y")
		wants(t, err, ErrNotAcquired)
		wants(t, all.Unlock(t.Context()), ErrNotHeld)
		y, err := b.TryLock(t.Context(), "y")
		must(t, err)
		must(t, y.Unlock(t.Context()))
	})
}

func TestLockAllDoesNotDeadlockWhateverTheOrder(t *testing.T) {
	s := memory.New()
	names := []string{"a", "b", "c", "d", "e"}
	var in [5]atomic.Int32
	var wg sync.WaitGroup
	for range 3 {
		c, err := New(s)
		must(t, err)
		defer c.Close()
		for range 4 {
			wg.Go(func() {
				for range 40 {
					order := rand.Perm(len(names))[:2+rand.IntN(3)]
					var p []Part
					for _, i := range order {
						p = append(p, Part{c, names[i]})
					}
					l, err := LockAll(t.Context(), p, WithWait(time.Minute))
					if err != nil {
						t.Error(err)
						return
					}
					for _, i := range order {
						if in[i].Add(1) != 1 {
							t.Error("two in", names[i])
						}
					}
					for _, i := range order {
						in[i].Add(-1)
					}
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}

func TestLockAllRefusesBadInput(t *testing.T) {
	c := newClient(t)
	_, err := LockAll(t.Context(), nil)
	wants(t, err, ErrInvalid)
	_, err = LockAll(t.Context(), []Part{{nil, "x"}})
	wants(t, err, ErrInvalid)
	_, err = c.LockAll(t.Context(), "x", "")
	wants(t, err, ErrInvalidName)
	_, err = LockAll(t.Context(), Parts(c, "x"), WithWait(-1))
	wants(t, err, ErrInvalid)
	l, err := c.TryLock(t.Context(), "x")
	must(t, err)
	must(t, l.Unlock(t.Context()))
}

func TestNonReentrantRefusesItsOwnerAtOnce(t *testing.T) {
	c := newClient(t)
	strict, err := c.Locker(NonReentrant())
	must(t, err)
	l, err := strict.Lock(t.Context(), "x")
	must(t, err)
	_, err = strict.Lock(l.Context(), "x")
	wants(t, err, ErrInvalid)
	_, err = strict.TryLock(t.Context(), "x")
	wants(t, err, ErrNotAcquired)
	must(t, l.Unlock(t.Context()))
}

func TestSpinAsksAgainAfterGrowingPausesAndWatchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		polling, err := b.Locker(Polling(10 * time.Millisecond))
		must(t, err)
		before := drawn(t, b)
		l, err := a.Lock(t.Context(), "x")
		must(t, err)
		got := make(chan *Lease)
		go func() {
			l, err := polling.Lock(t.Context(), "x")
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if b.engine.Probe().Snapshot().Watches != 0 {
			t.Error("a polling waiter watches")
		}
		if n := drawn(t, b) - before - 1; n < 20 || n > 80 {
			t.Errorf("asked %d times in 20 s, want pauses from 10 ms to 640 ms", n)
		}
		must(t, l.Unlock(t.Context()))
		start := time.Now()
		m := <-got
		if d := time.Since(start); d > time.Second {
			t.Errorf("noticed the release after %v", d)
		}
		must(t, m.Unlock(t.Context()))
		_, err = b.Locker(Polling(-1))
		wants(t, err, ErrInvalid)
	})
}

// Stores that are new are waited for, wherever Quorum stands among the parts.
func TestLockAllWaitsForNewStoresOfAnyPart(t *testing.T) {
	for name, at := range map[string]int{"first": 0, "last": 1} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				var clients []*Client
				for range 3 {
					store := memory.New()
					store.Flush()
					clients = append(clients, on(t, store))
				}
				defer func() {
					for _, c := range clients {
						c.Close()
					}
				}()
				quorum, err := Quorum(clients...)
				must(t, err)
				parts := []Part{{quorum, "quorum"}, {open(), "a"}}
				parts[0], parts[at] = parts[at], parts[0]
				all, err := LockAll(t.Context(), parts, WithWait(time.Minute))
				if err != nil {
					t.Error(err)
					return
				}
				must(t, all.Unlock(t.Context()))
			})
		})
	}
}

// drawn is how many owners a client has drawn.
func drawn(t *testing.T, c *Client) int {
	t.Helper()
	id := c.engine.OwnerID()
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, ':')+1:])
	must(t, err)
	return n
}
