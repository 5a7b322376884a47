package clienttest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// waitsFor has a client wait for many names that another holds; b counts what it asks.
func waitsFor(t *testing.T, holder *Client, b *spy, names int) *Client {
	t.Helper()
	c := on(t, b)
	t.Cleanup(func() { c.Close() })
	for i := range names {
		name := fmt.Sprint("n", i)
		must(t, errorOf(holder.Lock(t.Context(), name)))
		go func() { _ = errorOf(c.Lock(t.Context(), name)) }()
	}
	synctest.Wait()
	return c
}

// A client that waits for many names asks for them, though nothing happens, a hundred times a second at the most; one
// that waits for few asks every five seconds for each.
func TestAClientThatWaitsForManyNamesAsksRarely(t *testing.T) {
	const minutes = 5
	for names, most := range map[int]int{1: 16 * minutes, 10: 160 * minutes, 10_000: 6000 * minutes} {
		t.Run(fmt.Sprint(names, " names"), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				b := spyOn(s, "Queue", nil)
				waitsFor(t, open(), b, names)
				b.take("Acquire")
				time.Sleep(minutes * time.Minute)
				if n := b.take("Acquire"); n > most || n < most/3 {
					t.Errorf("%d asks in %d minutes, want %d to %d", n, minutes, most/3, most)
				}
			})
		})
	}
}

// The store has told a client that waits for many names when the lease of the owner before it ends. If the client asks
// meanwhile, for any reason, it asks again at that time all the same, and hears of nothing else.
func TestAClientThatWaitsForManyNamesAsksWhenTheLeaseBeforeItEndsThoughItAskedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b, stopped, deaf := spyOn(s, "Queue", nil), new(atomic.Bool), new(atomic.Bool)
		var handler backend.Handler
		b.listen = func(h backend.Handler) backend.Handler {
			handler = h
			return deafEars{h, deaf}
		}
		held := need(open().Lock(t.Context(), "x"))(t)
		c := waitsFor(t, open(), b, 1000)
		queued(t.Context(), on(t, deafStore{s, stopped}), "x")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		next := queued(ctx, c, "x")
		b.take("Acquire")
		stopped.Store(true)
		must(t, held.Unlock(t.Context()))
		start := time.Now()
		synctest.Wait()
		deaf.Store(true)
		x := backend.Topic{Name: "x"}
		handler.(backend.QueueHandler).First(x, b.entry.Load(), backend.FirstLease) // as the scripts for Redis tell it
		handler.Watching(x)
		must(t, next.lease(t).Unlock(t.Context()))
		if took := time.Since(start); took > backend.FirstLease+20*time.Millisecond {
			t.Errorf("it has the lock %v after the release", took)
		}
		if n := b.take("Acquire"); n != 2 {
			t.Errorf("it asked %d times, want once meanwhile, and once more", n)
		}
	})
}

// interrupted returns what tells the client that opens b next that a name is watched again.
func interrupted(b *spy) (resubscribe func(name string)) {
	var handler backend.Handler
	b.listen = func(h backend.Handler) backend.Handler {
		handler = h
		return h
	}
	return func(name string) { handler.Watching(backend.Topic{Name: name}) }
}

// Its waiters, which have all asked within a few seconds, do not do so again together.
func TestAClientThatWaitsForManyNamesAsksRarelyAfterAnInterruptionToo(t *testing.T) {
	const (
		names, window = 10_000, 5 * time.Second
		mean          = 100 * int(window/time.Second)
		deviation     = 23 // its root: when each asks is random
	)
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		resubscribe := interrupted(b)
		waitsFor(t, open(WithWatchdogTimeout(time.Hour)), b, names)
		for i := range names {
			resubscribe(fmt.Sprint("n", i))
		}
		time.Sleep(2 * window)
		b.take("Acquire")
		all := 0
		for at := window; at <= 6*time.Minute; at += window {
			time.Sleep(window)
			n := b.take("Acquire")
			all += n
			if n > mean+5*deviation {
				t.Errorf("%d asks within %v, %v after the interruption; want a mean of a hundred a second at most", n, window, at)
			}
		}
		if all < names {
			t.Errorf("%d asks in six minutes, want each to have asked", all)
		}
	})
}

// After an interruption of the messages the waiters of a client ask again, each some time within half a second.
func TestWaitersAskAtDifferentTimesAfterAnInterruption(t *testing.T) {
	const names = 30
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", nil)
		resubscribe := interrupted(b)
		waitsFor(t, open(), b, names)
		b.take("Acquire")
		for i := range names {
			resubscribe(fmt.Sprint("n", i))
		}
		synctest.Wait()
		if n := b.take("Acquire"); n > names/3 {
			t.Errorf("%d of %d asked at once", n, names)
		}
		time.Sleep(250 * time.Millisecond)
		if n := b.take("Acquire"); n < names/5 || n > names*4/5 {
			t.Errorf("%d of %d asked within 250 ms", n, names)
		}
		time.Sleep(250 * time.Millisecond)
		if n := b.take("Acquire"); n == 0 {
			t.Error("none asked in the next 250 ms")
		}
	})
}
