package mortise

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/bound"
)

// far is a store that is 20 ms away.
func far(s *memory.Store) backend.Backend {
	return spyOn(s, "", hooks{"Acquire": delayed(20 * time.Millisecond)})
}

// A wait that is shorter than a round trip bounds waiting, and not the question.
func TestAFreeLockIsAcquiredWithAWaitShorterThanARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c := on(t, far(s))
		defer c.Close()
		for _, wait := range []time.Duration{time.Nanosecond, 5 * time.Millisecond, 15 * time.Millisecond} {
			lease := need(c.Lock(t.Context(), "x", WithWait(wait)))(t)
			again := need(c.Lock(lease.Context(), "x", WithWait(wait)))(t)
			must(t, again.Unlock(t.Context()))
			must(t, lease.Unlock(t.Context()))
			all := need(LockAll(t.Context(), Parts(c, "a", "b"), WithWait(wait)))(t)
			must(t, all.Unlock(t.Context()))
		}
	})
}

// A held lock is refused after one round trip, with what is known of its holder.
func TestAHeldLockIsNotAcquiredWithAWaitShorterThanARoundTrip(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		c, other := on(t, far(s)), open()
		defer c.Close()
		must(t, errorOf(other.Lock(t.Context(), "x")))
		start := time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))), ErrNotAcquired)
		if d := time.Since(start); d != 20*time.Millisecond {
			t.Errorf("refused after %v, want one round trip", d)
		}
		mine := need(c.Lock(t.Context(), "mine"))(t)
		start = time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "mine", WithWait(5*time.Millisecond))), ErrNotAcquired)
		if d := time.Since(start); d != 5*time.Millisecond {
			t.Errorf("waited %v for this client's own holder, want 5ms", d)
		}
		must(t, mine.Unlock(t.Context()))
	})
}

// A call that waits for another of its client, which asks, or which held the lock until just now, is not told
// that the store does not answer.
func TestAShortWaitBehindAnotherCallIsNotUnavailable(t *testing.T) {
	for name, wait := range map[string]time.Duration{"which asks": 0, "which holds": 27 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
				c := on(t, far(s))
				defer c.Close()
				go func() {
					lease, err := c.Lock(t.Context(), "x")
					if err == nil {
						time.Sleep(10 * time.Millisecond)
						err = lease.Unlock(t.Context())
					}
					check(t, err)
				}()
				time.Sleep(wait + time.Millisecond)
				start := time.Now()
				_, err := c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))
				if d := time.Since(start); d != 5*time.Millisecond {
					t.Errorf("waited %v", d)
				}
				if !errors.Is(err, ErrNotAcquired) {
					t.Errorf("got %v, want %v", err, ErrNotAcquired)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// A store that does not answer is waited for a second, or as long as the caller's context lives.
func TestAStoreThatDoesNotAnswerEndsAShortWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		let := make(chan struct{})
		c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
			<-let
			return c.run(context.Background())
		}}))
		start := time.Now()
		wants(t, errorOf(c.Lock(t.Context(), "x", WithWait(5*time.Millisecond))), ErrUnavailable)
		if d := time.Since(start); d != bound.FirstAnswer {
			t.Errorf("unavailable after %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "y", WithWait(5*time.Millisecond))), context.DeadlineExceeded)
		if d := time.Since(start); d != bound.FirstAnswer+50*time.Millisecond {
			t.Errorf("the caller's deadline is passed by %v", d)
		}
		close(let)
		c.Close()
	})
}
