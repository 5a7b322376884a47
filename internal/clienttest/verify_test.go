package clienttest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

const verifyAfter = 250 * time.Millisecond

// unheard is a store that reports the end of a record only to a verification.
type unheard struct {
	begun time.Time
	mu    sync.Mutex
	asked []string // when, how many leases, and what lease time
	gone  bool
}

func (s *unheard) open(t *testing.T) *Client {
	s.begun = time.Now()
	return on(t, spyOn(memory.New(), "Queue", hooks{"Acquire": func(c *call) error {
		err := c.run(c.ctx)
		if reply := c.reply.(*backend.AcquireReply); reply.Granted {
			reply.VerifyAfter = verifyAfter
		}
		return err
	}, "Renew": func(c *call) error {
		in := c.request.([]backend.RenewRequest)
		s.mu.Lock()
		s.asked = append(s.asked, fmt.Sprintf("%v: %d for %v", time.Since(s.begun), len(in), in[0].Lease))
		gone := s.gone
		s.mu.Unlock()
		if gone {
			return nil
		}
		return c.run(c.ctx)
	}}))
}

// told checks the verifications and renewals since the last check.
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
		var s unheard
		test(t, s.open(t), &s)
	})
}

// A grant that is still held after a moment is verified once. Grants of one period are verified together, and their
// renewals are not delayed.
func TestAGrantIsVerifiedOnce(t *testing.T) {
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
			noError(t, l.Unlock(t.Context()))
		}
	})
}

func TestABriefLeaseIsNotVerified(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		for range 10 {
			l := need(c.Lock(t.Context(), "n"))(t)
			time.Sleep(verifyAfter)
			noError(t, l.Unlock(t.Context()))
		}
		time.Sleep(time.Minute)
		s.told(t)
	})
}

// A lease that is not renewed is verified too, and ends at its time.
func TestALeaseOfFixedLengthIsVerified(t *testing.T) {
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

// A deleted record is noticed at the verification, and not at the first renewal.
func TestALeaseWhoseGrantIsNotVerifiedIsLost(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		s.gone = true
		l := need(c.Lock(t.Context(), "n"))(t)
		<-l.Context().Done()
		if took := time.Since(s.begun); took > 2*verifyAfter || !errors.Is(l.Err(), ErrLost) {
			t.Errorf("%v after %v", l.Err(), took)
		}
	})
}

// After a local handoff the waiter's lease is verified in place of the first.
func TestALeaseThatWasHandedOffIsVerified(t *testing.T) {
	overUnheard(t, func(t *testing.T, c *Client, s *unheard) {
		first := need(c.Lock(t.Context(), "n"))(t)
		got := queued(t.Context(), c, "n")
		time.Sleep(100 * time.Millisecond)
		must(t, first.Unlock(t.Context()))
		second := got.lease(t)
		if took := time.Since(s.begun); took != 100*time.Millisecond {
			t.Fatalf("passed on after %v", took)
		}
		time.Sleep(5 * time.Second)
		s.told(t, "500ms: 1 for 0s")
		noError(t, second.Unlock(t.Context()))
	})
}

// Renewals that are due soon share a batch with one that is due, whatever is to be verified meanwhile.
func TestVerificationsDoNotSeparateRenewals(t *testing.T) {
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
		lock("late") // to be verified at 10.25s
		time.Sleep(2 * time.Second)
		s.told(t, "10s: 6 for 30s")
	})
}
