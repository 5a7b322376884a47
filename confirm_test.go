package mortise

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// unheard is a store that hears of a record's end only when it is asked after it, and says so.
type unheard struct {
	backend.Backend
	backend.Store
	begun time.Time
	mu    sync.Mutex
	asked []string // when, for how many, and for how long
	gone  bool
}

const confirmAfter = 250 * time.Millisecond

func (s *unheard) Open(h backend.Handler) (backend.Store, error) {
	var err error
	s.Store, err = s.Backend.Open(h)
	return s, err
}

func (s *unheard) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := s.Store.Acquire(ctx, r)
	if reply.Granted {
		reply.VerifyAfter = confirmAfter
	}
	return reply, err
}

func (s *unheard) Enrol(ctx context.Context, r backend.AcquireRequest) (backend.EnrolReply, error) {
	reply, err := s.Acquire(ctx, r)
	return backend.EnrolReply{AcquireReply: reply}, err
}

func (s *unheard) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.mu.Lock()
	s.asked = append(s.asked, fmt.Sprintf("%v: %d for %v", time.Since(s.begun), len(in), in[0].Lease))
	gone := s.gone
	s.mu.Unlock()
	if !gone {
		s.Store.Renew(ctx, in, out)
	}
}

func (s *unheard) Capabilities() backend.Capabilities { return backend.Capabilities{Queue: s} }

func (s *unheard) Leave(ctx context.Context, name string) error {
	return s.Store.Capabilities().Queue.Leave(ctx, name)
}

func (s *unheard) Serve(ctx context.Context, r backend.ServeRequest) (backend.ServeReply, error) {
	return s.Store.Capabilities().Queue.Serve(ctx, r)
}

// told checks when the store was asked, since it was last checked.
func (s *unheard) told(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if fmt.Sprint(s.asked) != fmt.Sprint(want) {
		t.Errorf("asked at %q, want %q", s.asked, want)
	}
	s.asked = nil
}

func overUnheard(t *testing.T, test func(t *testing.T, c *Client, s *unheard)) {
	synctest.Test(t, func(t *testing.T) {
		s := &unheard{Backend: memory.New(), begun: time.Now()}
		c := need(New(s))(t)
		defer c.Close()
		test(t, c, s)
	})
}

// A tenure that still holds what the store granted a moment ago is asked after, once; those of one period together,
// and without putting their renewals off.
func TestALeaseIsConfirmedOnce(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		var leases []*Lease
		for i := range 5 {
			l := need(c.Lock(t.Context(), fmt.Sprint("n", i)))(t)
			leases = append(leases, l)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(9 * time.Second)
		s.told(t, "500ms: 5 for 0s")
		time.Sleep(time.Second)
		s.told(t, "10s: 5 for 30s")
		for _, l := range leases {
			check(t, l.Unlock(t.Context()))
		}
	})
}

func TestABriefLeaseIsNotConfirmed(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		for range 10 {
			l := need(c.Lock(t.Context(), "n"))(t)
			time.Sleep(confirmAfter)
			check(t, l.Unlock(t.Context()))
		}
		time.Sleep(time.Minute)
		s.told(t)
	})
}

// One that is not renewed is confirmed as well, and runs out when it was to.
func TestALeaseOfFixedLengthIsConfirmed(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		l := need(c.Lock(t.Context(), "n", WithLease(3*time.Second)))(t)
		time.Sleep(2 * time.Second)
		s.told(t, "500ms: 1 for 0s")
		<-l.Context().Done()
		if took := time.Since(s.begun); took < 2900*time.Millisecond || took > 3*time.Second {
			t.Errorf("it ran out after %v", took)
		}
		s.told(t)
	})
}

// A record that was deleted is noticed then, and not at the first renewal.
func TestALeaseThatIsNotConfirmedIsLost(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		s.gone = true
		l := need(c.Lock(t.Context(), "n"))(t)
		<-l.Context().Done()
		if took := time.Since(s.begun); took > 2*confirmAfter || !errors.Is(l.Err(), ErrLost) {
			t.Errorf("%v after %v", l.Err(), took)
		}
	})
}

// A waiter that goes on with the lease of another is confirmed in its place.
func TestALeaseThatIsPassedOnIsConfirmed(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		first := need(c.Lock(t.Context(), "n"))(t)
		got := make(chan *Lease)
		go func() {
			l, err := c.Lock(t.Context(), "n")
			check(t, err)
			got <- l
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		must(t, first.Unlock(t.Context()))
		second := <-got
		if took := time.Since(s.begun); took != 100*time.Millisecond {
			t.Fatalf("passed on after %v", took)
		}
		time.Sleep(5 * time.Second)
		s.told(t, "500ms: 1 for 0s")
		check(t, second.Unlock(t.Context()))
	})
}

// Renewals that are due soon go along with one that is due, whichever is to be confirmed meanwhile.
func TestConfirmationsKeepNoRenewalsApart(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		lock := func(name string) {
			if _, err := c.Lock(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 5 { // due from 10s to 10.4s
			lock(fmt.Sprint("n", i))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Until(s.begun.Add(9900 * time.Millisecond)))
		s.told(t, "500ms: 5 for 0s")
		lock("late") // to be confirmed at 10.25s
		time.Sleep(2 * time.Second)
		s.told(t, "10s: 6 for 30s")
	})
}
