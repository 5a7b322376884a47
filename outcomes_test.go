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
		acquire := func(s backend.Store, r backend.AcquireRequest) (backend.AcquireReply, error) {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return s.Acquire(context.Background(), r)
		}
		c := on(t, tapped{Backend: s, acquire: acquire})
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
		release := func(s backend.Store, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
			if n++; n == 1 {
				time.Sleep(3 * time.Second)
				return backend.ReleaseReply{}, unknownOutcome()
			}
			return s.Release(context.Background(), r)
		}
		c := on(t, tapped{Backend: s, release: release})
		l := need(c.Lock(t.Context(), "x"))(t)
		must(t, l.Unlock(t.Context()))
	})
}

// claiming counts the claims that are taken back.
type claiming struct {
	backend.Backend
	asked, withdrawn *atomic.Int32
}

type claimingStore struct {
	backend.ReadWriteStore
	claiming
}

func (b claiming) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Backend.Open(h)
	can := s.Capabilities()
	can.ReadWrite = claimingStore{can.ReadWrite, b}
	return only{s, can}, err
}

func (s claimingStore) AcquireRead(ctx context.Context, r backend.ReadRequest) (backend.ReadReply, error) {
	s.asked.Add(1)
	return s.ReadWriteStore.AcquireRead(ctx, r)
}

func (s claimingStore) AcquireWrite(ctx context.Context, r backend.WriteRequest) (backend.WriteReply, error) {
	s.asked.Add(1)
	return s.ReadWriteStore.AcquireWrite(ctx, r)
}

func (s claimingStore) Withdraw(ctx context.Context, name, claimant string) error {
	s.withdrawn.Add(1)
	return s.ReadWriteStore.Withdraw(ctx, name, claimant)
}

// The claims of a client's writers are one: a writer that left, and had never asked, took back that of the writer
// before it.
func TestAWriterThatNeverAskedTakesNoClaimBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := claiming{s, new(atomic.Int32), new(atomic.Int32)}
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
		asked := b.asked.Load()
		_, err := write.Lock(t.Context(), "x", WithWait(50*time.Millisecond)) // behind the first
		wants(t, err, ErrNotAcquired)
		synctest.Wait()
		if n := b.withdrawn.Load(); n != 0 || b.asked.Load() != asked {
			t.Errorf("%d claims taken back, %d more questions", n, b.asked.Load()-asked)
		}
		must(t, held.Unlock(t.Context()))
		synctest.Wait()
		must(t, c.Close())
		wants(t, errorOf(write.Lock(t.Context(), "x")), ErrClosed)
		synctest.Wait()
		if n := b.withdrawn.Load(); n != 0 {
			t.Errorf("%d claims taken back after Close", n)
		}
	})
}

func TestAPermitIsReleasedByItsIDThoughTheContextIsNil(t *testing.T) {
	c := need(New(memory.New()))(t)
	p := c.Semaphore("x")
	must(t, errorOf(p.TrySetPermits(t.Context(), 1)))
	permit := need(p.TryAcquire(t.Context()))(t)
	must(t, p.Release(nil, permit.ID())) //nolint:staticcheck // a nil context is the subject
	must(t, c.Close())
}

// A backend that panics in a repeated question, on a caller that cannot leave, left its slot twice: it hung.
func TestABackendThatPanicsInARepeatedQuestionLeavesItsSlotOnce(t *testing.T) {
	n := 0
	c := on(t, tapped{
		Backend: memory.New(),
		acquire: func(backend.Store, backend.AcquireRequest) (backend.AcquireReply, error) {
			if n++; n == 2 {
				panic("a hook of the client library")
			}
			return backend.AcquireReply{}, &backend.Fault{Err: errGone, Temporary: true}
		},
	})
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

// left is a store that lets callers leave; its first question fails after its caller has left.
type left struct {
	backend.Backend
	asked *atomic.Int32
}

type leftStore struct {
	backend.Store
	left
}

func (b left) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Backend.Open(h)
	return leftStore{s, b}, err
}

func (s leftStore) Capabilities() backend.Capabilities {
	can := s.Store.Capabilities()
	can.Leaver = s
	return can
}

func (leftStore) Leaves(k backend.Kind) bool { return k == backend.KindLock }

func (s leftStore) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	if s.asked.Add(1) > 1 {
		return s.Store.Acquire(context.Background(), r)
	}
	<-ctx.Done()
	return backend.AcquireReply{}, &backend.Left[backend.AcquireReply]{Wait: func() (backend.AcquireReply, error) {
		time.Sleep(time.Second)
		return backend.AcquireReply{}, &backend.Fault{Err: errGone, Temporary: true}
	}}
}

func TestAQuestionWhoseCallerHasLeftIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := left{s, new(atomic.Int32)}
		c := on(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wants(t, errorOf(c.Lock(ctx, "x")), context.DeadlineExceeded)
		time.Sleep(5 * time.Second)
		if n := b.asked.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// slowReentry is a store whose re-entries time out.
type slowReentry struct {
	backend.Backend
	asked *atomic.Int32
}

type slowReentryStore struct {
	backend.Store
	slowReentry
}

func (b slowReentry) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Backend.Open(h)
	return slowReentryStore{s, b}, err
}

func (s slowReentryStore) SetHolds(context.Context, backend.HoldsRequest) (backend.HoldsReply, error) {
	s.asked.Add(1)
	time.Sleep(3 * time.Second)
	return backend.HoldsReply{}, unknownOutcome()
}

func TestAReentryIsNotRepeatedBeyondItsPatience(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
		b := slowReentry{s, new(atomic.Int32)}
		c := on(t, b)
		l := need(c.Lock(t.Context(), "x"))(t)
		wants(t, errorOf(c.Lock(l.Context(), "x")), ErrUnavailable)
		if n := b.asked.Load(); n != 1 {
			t.Errorf("it was sent %d times", n)
		}
	})
}
