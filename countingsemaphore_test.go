package mortise

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/mortise-go/mortise/backend/memory"
)

func TestRule08_OneWhoWantsLessIsServedWhenOneWhoWantsMoreLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		sem := open().CountingSemaphore("x")
		must(t, errorOf(sem.TrySetPermits(t.Context(), 0)))
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- sem.Acquire(ctx, 2) }()
		synctest.Wait()
		go func() { second <- sem.Acquire(t.Context(), 1) }()
		synctest.Wait()
		must(t, sem.Release(t.Context(), 1))
		synctest.Wait() // the first was woken, and refused
		cancel()
		wants(t, <-first, context.Canceled)
		synctest.Wait()
		select {
		case err := <-second:
			must(t, err)
		default:
			t.Error("a permit is free, and the one who wants it sleeps")
		}
	})
}
