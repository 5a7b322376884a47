package clienttest

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// waitsFor has a client wait for many names that another holds; b counts what it asks.
func waitsFor(t *testing.T, s *memory.Store, holder *Client, b *spy, names int) {
	t.Helper()
	c := on(t, b)
	t.Cleanup(func() { c.Close() })
	for i := range names {
		name := fmt.Sprint("n", i)
		must(t, errorOf(holder.Lock(t.Context(), name)))
		go func() { _ = errorOf(c.Lock(t.Context(), name)) }()
	}
	synctest.Wait()
}

// A client that waits for many names asks for them, though nothing happens, a hundred times a second at the most; one
// that waits for few asks every five seconds for each.
func TestAClientThatWaitsForManyNamesAsksRarely(t *testing.T) {
	const minutes = 5
	for names, most := range map[int]int{1: 16 * minutes, 10: 160 * minutes, 10_000: 6000 * minutes} {
		t.Run(fmt.Sprint(names, " names"), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				b := spyOn(s, "Queue", nil)
				waitsFor(t, s, open(), b, names)
				b.take("Acquire")
				time.Sleep(minutes * time.Minute)
				if n := b.take("Acquire"); n > most || n < most/3 {
					t.Errorf("%d asks in %d minutes, want %d to %d", n, minutes, most/3, most)
				}
			})
		})
	}
}

// interrupted returns what tells the client that opens b next that so many names are watched again.
func interrupted(b *spy, names int) (resubscribe func()) {
	var handler backend.Handler
	b.listen = func(h backend.Handler) backend.Handler {
		handler = h
		return h
	}
	return func() {
		for i := range names {
			handler.Watching(backend.Topic{Name: fmt.Sprint("n", i)})
		}
	}
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
		resubscribe := interrupted(b, names)
		waitsFor(t, s, open(WithWatchdogTimeout(time.Hour)), b, names)
		resubscribe()
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
		resubscribe := interrupted(b, names)
		waitsFor(t, s, open(), b, names)
		b.take("Acquire")
		resubscribe()
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
