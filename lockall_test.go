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
		all := need(a.LockAll(t.Context(), "x", "y", "z"))(t)
		for _, n := range []string{"x", "y", "z"} {
			wants(t, errorOf(b.TryLock(t.Context(), n)), ErrNotAcquired)
			inner := need(a.TryLock(all.Context(), n))(t)
			must(t, inner.Unlock(t.Context()))
		}
		wants(t, errorOf(LockAll(t.Context(), Parts(b, "w", "z"), WithWait(time.Second))), ErrNotAcquired)
		w := need(b.TryLock(t.Context(), "w"))(t)
		must(t, w.Unlock(t.Context()))
		must(t, all.Unlock(t.Context()))
		wants(t, all.Err(), ErrReleased)
		wants(t, context.Cause(all.Context()), ErrReleased)
		wants(t, all.Unlock(t.Context()), ErrNotHeld)
		all = need(LockAll(t.Context(), append(Parts(b, "w", "z"), Parts(a, "x")...)))(t)
		must(t, all.Unlock(t.Context()))
	})
}

func TestLockAllEndsWithItsFirstLostPart(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		all := need(a.LockAll(t.Context(), "x", "y"))(t)
		s.Delete("x")
		<-all.Context().Done()
		wants(t, context.Cause(all.Context()), ErrLost)
		wants(t, all.Err(), ErrLost)
		wants(t, errorOf(b.TryLock(t.Context(), "y")), ErrNotAcquired)
		wants(t, all.Unlock(t.Context()), ErrNotHeld)
		y := need(b.TryLock(t.Context(), "y"))(t)
		must(t, y.Unlock(t.Context()))
	})
}

func TestLockAllDoesNotDeadlockWhateverTheOrder(t *testing.T) {
	s := memory.New()
	names := []string{"a", "b", "c", "d", "e"}
	var in [5]atomic.Int32
	var wg sync.WaitGroup
	for range 3 {
		c := on(t, s)
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
					check(t, l.Unlock(t.Context()))
				}
			})
		}
	}
	wg.Wait()
}

func TestLockAllRefusesBadInput(t *testing.T) {
	c := newClient(t)
	wants(t, errorOf(LockAll(t.Context(), nil)), ErrInvalid)
	wants(t, errorOf(LockAll(t.Context(), []Part{{nil, "x"}})), ErrInvalid)
	wants(t, errorOf(c.LockAll(t.Context(), "x", "")), ErrInvalidName)
	wants(t, errorOf(LockAll(t.Context(), Parts(c, "x"), WithWait(-1))), ErrInvalid)
	l := need(c.TryLock(t.Context(), "x"))(t)
	must(t, l.Unlock(t.Context()))
}

func TestNonReentrantRefusesItsOwnerAtOnce(t *testing.T) {
	c := newClient(t)
	strict := need(c.Locker(NonReentrant()))(t)
	l := need(strict.Lock(t.Context(), "x"))(t)
	wants(t, errorOf(strict.Lock(l.Context(), "x")), ErrInvalid)
	wants(t, errorOf(strict.TryLock(t.Context(), "x")), ErrNotAcquired)
	must(t, l.Unlock(t.Context()))
}

func TestSpinAsksAgainAfterGrowingPausesAndWatchesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		a, b := open(), open()
		polling := need(b.Locker(Polling(10 * time.Millisecond)))(t)
		before := drawn(t, b)
		l := need(a.Lock(t.Context(), "x"))(t)
		got := make(chan *Lease)
		go func() {
			l, err := polling.Lock(t.Context(), "x")
			check(t, err)
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
		wants(t, errorOf(b.Locker(Polling(-1))), ErrInvalid)
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
				quorum := need(Quorum(clients...))(t)
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
	n := need(strconv.Atoi(id[strings.LastIndexByte(id, ':')+1:]))(t)
	return n
}
