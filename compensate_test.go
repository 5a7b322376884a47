package mortise

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// After an outage the acquisitions of unknown outcome are looked for again and again, as long as they
// could take effect: often at first, then rarely.
func TestAcquisitionsOfUnknownOutcomeAreReleasedRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		releases := 0
		c := on(t, tapped{Backend: memory.New(), acquire: func(backend.Store, backend.AcquireRequest) (backend.AcquireReply, error) {
			return backend.AcquireReply{}, &backend.Fault{Err: errGone, MayHaveRun: true}
		}, release: func(s backend.Store, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
			if releases++; !r.Undo {
				t.Error("the store is asked to announce what it may not find")
			}
			return s.Release(t.Context(), r)
		}})
		wants(t, errorOf(c.Lock(t.Context(), "x", WithLease(10*time.Minute))), ErrUnavailable)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if releases < 20 || releases > 40 {
			t.Errorf("%d releases in the ten minutes of the lease, want one each half minute and some at the beginning", releases)
		}
	})
}

// A release that failed is repeated until it is answered, and not once more.
func TestAReleaseThatFailedIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		releases := 0
		c := on(t, tapped{Backend: memory.New(), release: func(s backend.Store, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
			reply, err := s.Release(t.Context(), r)
			if releases++; releases <= 10 {
				return backend.ReleaseReply{}, &backend.Fault{Err: errGone, MayHaveRun: true, Temporary: true}
			}
			return reply, err
		}})
		l := need(c.Lock(t.Context(), "x", WithLease(10*time.Minute)))(t)
		wants(t, l.Unlock(t.Context()), ErrUnavailable)
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if releases != 11 {
			t.Errorf("%d releases were sent, want ten whose replies are lost and one that is answered", releases)
		}
	})
}

// What is looked for rarely holds Shutdown up for a second all the same.
func TestShutdownIsHeldUpForASecondByWhatIsLookedForRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, tapped{Backend: memory.New(), acquire: func(backend.Store, backend.AcquireRequest) (backend.AcquireReply, error) {
			return backend.AcquireReply{}, &backend.Fault{Err: errGone, MayHaveRun: true}
		}})
		wants(t, errorOf(c.Lock(t.Context(), "x", WithLease(10*time.Hour))), ErrUnavailable)
		time.Sleep(time.Hour)
		start := time.Now()
		must(t, c.Shutdown(t.Context()))
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
	})
}

// An acquisition that arrives after the release that failed is found, though what
// compensates for the release was answered.
func TestAnAcquisitionThatArrivesAfterAReleaseThatFailedIsFound(t *testing.T) {
	for range 40 {
		bubble(t, func(t *testing.T, s *memory.Store, open func(...ClientOption) *Client) {
			var late func()
			var down atomic.Bool
			n := 0
			c := on(t, tapped{Backend: s, acquire: func(s backend.Store, r backend.AcquireRequest) (backend.AcquireReply, error) {
				if n++; n == 1 {
					late = func() { s.Acquire(context.Background(), r) }
					return backend.AcquireReply{}, &backend.Fault{Err: errGone, MayHaveRun: true, Temporary: true}
				}
				return s.Acquire(context.Background(), r)
			}, release: func(s backend.Store, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
				if down.Load() {
					return backend.ReleaseReply{}, &backend.Fault{Err: errGone, Temporary: true}
				}
				return s.Release(context.Background(), r)
			}})
			l := need(c.Lock(t.Context(), "x", WithLease(10*time.Minute)))(t)
			down.Store(true)
			wants(t, l.Unlock(t.Context()), ErrUnavailable)
			down.Store(false)
			time.Sleep(5 * time.Second)
			late()
			time.Sleep(2 * time.Minute)
			st := need(c.Inspect(t.Context(), "x"))(t)
			if st.Held {
				t.Fatal("an acquisition that arrived late is left behind")
			}
		})
		if t.Failed() {
			return
		}
	}
}

// fairTapped is tapped with the queues of fair locks.
type fairTapped struct {
	tapped
	leave func(backend.FairStore, backend.LeaveRequest) (backend.LeaveReply, error)
}

type fairTappedSession struct {
	backend.FairStore
	of fairTapped
}

func (b fairTapped) Open(h backend.Handler) (backend.Store, error) {
	s, err := b.Backend.Open(h)
	return only{s, backend.Capabilities{Fair: fairTappedSession{s.Capabilities().Fair, b}}}, err
}

func (s fairTappedSession) Leave(_ context.Context, r backend.LeaveRequest) (backend.LeaveReply, error) {
	return s.of.leave(s.FairStore, r)
}

func (s fairTappedSession) Acquire(_ context.Context, r backend.FairRequest) (backend.FairReply, error) {
	reply, err := s.of.acquire(nil, r.AcquireRequest)
	return backend.FairReply{AcquireReply: reply}, err
}

// An acquisition of a fair lock that arrives late is found within a twentieth of its lease, however long its
// place would be kept.
func TestAFairAcquisitionOfUnknownOutcomeIsLookedForWithinATwentiethOfItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last time.Time
		var longest time.Duration
		c := on(t, fairTapped{tapped{Backend: memory.New(), acquire: func(backend.Store, backend.AcquireRequest) (backend.AcquireReply, error) {
			return backend.AcquireReply{}, &backend.Fault{Err: errGone, MayHaveRun: true}
		}}, func(s backend.FairStore, r backend.LeaveRequest) (backend.LeaveReply, error) {
			if !last.IsZero() {
				longest = max(longest, time.Since(last))
			}
			last = time.Now()
			return s.Leave(t.Context(), r)
		}})
		fair := need(c.Locker(Fair()))(t)
		wants(t, errorOf(fair.Lock(t.Context(), "x", WithLease(10*time.Minute), WithWait(24*time.Hour))), ErrUnavailable)
		time.Sleep(time.Hour)
		synctest.Wait()
		if longest == 0 || longest > 10*time.Minute/20 {
			t.Errorf("not looked for in %v", longest)
		}
	})
}
