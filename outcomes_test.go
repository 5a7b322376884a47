package mortise

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// Time spent waiting for a slot of the in-flight limiter was counted as time of the lease.
func TestALeaseCountsFromWhenItsRequestIsSentAndNotFromTheWaitForASlot(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		var slow atomic.Bool
		slow.Store(true)
		c := on(t, spyOn(s, "", hooks{"Acquire": func(c *call) error {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return c.run(context.Background())
		}}))
		for i := range 256 {
			go c.Lock(t.Context(), fmt.Sprint(i))
		}
		synctest.Wait()
		slow.Store(false)
		l := need(c.Lock(context.Background(), "x", WithLease(time.Second)))(t)
		must(t, l.Err())
	})
}

// Rule 11: a lost reply of an Unlock is no failure, also where it was awaited for as long as a client library waits.
func TestRule11_AReleaseThatTimedOutIsRepeatedInTheCallersTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		n := 0
		c := on(t, spyOn(s, "", hooks{"Release": func(c *call) error {
			if n++; n == 1 {
				time.Sleep(3 * time.Second)
				return unknownOutcome()
			}
			return c.run(context.Background())
		}}))
		l := need(c.Lock(t.Context(), "x"))(t)
		must(t, l.Unlock(t.Context()))
	})
}

// The claims of a client's writers are one: a writer that left, and had never asked, took back that of the writer
// before it.
func TestAWriterThatNeverAskedTakesNoClaimBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "ReadWrite", nil)
		c := on(t, b)
		read := open().RW().Read
		write := c.RW().Write
		held := need(read.Lock(t.Context(), "x"))(t)
		go func() {
			if l, err := write.Lock(context.Background(), "x"); err == nil {
				l.Unlock(context.Background())
			}
		}()
		synctest.Wait()
		b.take("AcquireRead", "AcquireWrite")
		_, err := write.Lock(t.Context(), "x", WithWait(50*time.Millisecond)) // behind the first
		wants(t, err, ErrNotAcquired)
		synctest.Wait()
		if n, asked := b.take("Withdraw"), b.take("AcquireRead", "AcquireWrite"); n != 0 || asked != 0 {
			t.Errorf("%d claims taken back, %d more questions", n, asked)
		}
		must(t, held.Unlock(t.Context()))
		synctest.Wait()
		must(t, c.Close())
		wants(t, errorOf(write.Lock(t.Context(), "x")), ErrClosed)
		synctest.Wait()
		if n := b.take("Withdraw"); n != 0 {
			t.Errorf("%d claims taken back after Close", n)
		}
	})
}

func TestAPermitIsReleasedByItsIDThoughTheContextIsNil(t *testing.T) {
	c := on(t, memory.New())
	p := c.Semaphore("x")
	must(t, errorOf(p.TrySetPermits(t.Context(), 1)))
	permit := need(p.TryAcquire(t.Context()))(t)
	must(t, p.Release(nil, permit.ID())) //nolint:staticcheck // a nil context is the subject
	must(t, c.Close())
}

// A backend that panics in a repeated question, on a caller that cannot leave, left its slot twice: it hung.
func TestABackendThatPanicsInARepeatedQuestionLeavesItsSlotOnce(t *testing.T) {
	n := 0
	c := on(t, spyOn(memory.New(), "", hooks{"Acquire": func(*call) error {
		if n++; n == 2 {
			panic("a hook of the client library")
		}
		return &backend.Fault{Err: errGone, Temporary: true}
	}}))
	func() {
		defer func() {
			if recover() == nil {
				t.Error("it did not panic")
			}
		}()
		_, _ = c.TryLock(context.Background(), "x")
	}()
	if n := c.engine.Probe().Snapshot().Slots; n != 0 {
		t.Errorf("%d slots are taken", n)
	}
}

// A store that lets callers leave; its first question fails after its caller has left.
func TestAQuestionWhoseCallerHasLeftIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		asked := 0
		c := on(t, spyOn(s, "Leaver Queue", hooks{"Acquire": func(c *call) error {
			if asked++; asked > 1 {
				return c.run(context.Background())
			}
			<-c.ctx.Done()
			return &backend.Left[backend.AcquireReply]{Wait: func() (backend.AcquireReply, error) {
				time.Sleep(time.Second)
				return backend.AcquireReply{}, &backend.Fault{Err: errGone, Temporary: true}
			}}
		}}))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "x")), context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
		if asked != 1 {
			t.Errorf("the store was asked %d times", asked)
		}
	})
}

func TestAReentryIsNotRepeatedBeyondItsPatience(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := spyOn(s, "Queue", hooks{"SetHolds": func(*call) error {
			time.Sleep(3 * time.Second)
			return unknownOutcome()
		}})
		c := on(t, b)
		l := need(c.Lock(t.Context(), "x"))(t)
		wants(t, errorOf(c.Lock(l.Context(), "x")), ErrUnavailable)
		if n := b.take("SetHolds"); n != 1 {
			t.Errorf("it was sent %d times", n)
		}
	})
}
