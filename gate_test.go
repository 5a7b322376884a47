package mortise

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// slow is a store whose acquisitions take until they are let go.
type slow struct {
	store *memory.Store
	let   chan struct{}
	most  atomic.Int32
	now   atomic.Int32
}

func (s *slow) Open(h backend.Handler) (backend.Store, error) {
	x, err := s.store.Open(h)
	return &slowSession{only{Store: x}, s}, err
}

type slowSession struct {
	backend.Store
	slow *slow
}

func (x *slowSession) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	n := x.slow.now.Add(1)
	for m := x.slow.most.Load(); n > m && !x.slow.most.CompareAndSwap(m, n); m = x.slow.most.Load() {
	}
	defer x.slow.now.Add(-1)
	<-x.slow.let
	return x.Store.Acquire(ctx, r)
}

func TestABurstOfCallersIsSentAFewAtATimeAndHoldsUpNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slow{store: memory.New(), let: make(chan struct{}, 1)}
		s.let <- struct{}{}
		c := need(New(s))(t)
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
