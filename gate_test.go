package mortise

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
)

// gated is a store whose acquisitions take until they are let go.
type gated struct {
	*spy
	let       chan struct{}
	now, most atomic.Int32 // how many are on their way, and were at most
}

func newGated() *gated {
	s := &gated{let: make(chan struct{}, 1)}
	s.let <- struct{}{}
	s.spy = spyOn(memory.New(), "", hooks{"Acquire": func(c *call) error {
		n := s.now.Add(1)
		defer s.now.Add(-1)
		for m := s.most.Load(); n > m && !s.most.CompareAndSwap(m, n); m = s.most.Load() {
		}
		<-s.let
		return c.run(c.ctx)
	}})
	return s
}

func TestABurstOfCallersIsSentAFewAtATimeAndHoldsUpNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newGated()
		c := on(t, s)
		held := need(c.Lock(t.Context(), "held"))(t)
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				l, err := c.Lock(t.Context(), fmt.Sprint(i))
				if err != nil {
					t.Error(err)
					return
				}
				check(t, l.Unlock(t.Context()))
			})
		}
		synctest.Wait()
		close(s.let)
		wg.Wait()
		if n := s.most.Load(); n != 256 {
			t.Errorf("%d acquisitions were on their way at once, want %d", n, 256)
		}

		s.let = make(chan struct{})
		var failed atomic.Int32
		for i := range 256 + 10 {
			wg.Go(func() {
				l, err := c.Lock(t.Context(), fmt.Sprint(i))
				if err != nil {
					wants(t, err, ErrUnavailable)
					failed.Add(1)
					return
				}
				l.Unlock(t.Context())
			})
		}
		time.Sleep(2 * time.Minute)
		if n := failed.Load(); n != 10 {
			t.Errorf("%d callers were told that the store does not answer, want 10", n)
		}
		must(t, held.Err())
		close(s.let)
		wg.Wait()
		must(t, held.Unlock(t.Context()))
		must(t, c.Close())
	})
}

// An observer that does not return delays no acquisitions but its own.
func TestASlowAcquiredKeepsNoPlaceAtTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		free := make(chan struct{})
		c := open(WithObserver(Observer{Acquired: func(e AcquiredEvent) {
			if e.Name != "free" {
				<-free
			}
		}}))
		for i := range 256 {
			go c.Lock(context.Background(), fmt.Sprint(i))
		}
		synctest.Wait()
		_, err := c.Lock(context.Background(), "free")
		if err != nil {
			t.Errorf("another lock: %v", err)
		}
		close(free)
		time.Sleep(time.Second)
	})
}
