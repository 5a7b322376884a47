package clienttest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/latch"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/semaphore"
)

// copied is a store in memory that reports replicas as a test wants.
type copied struct {
	*spy
	takes time.Duration // how long the replicas take
	have  atomic.Int64  // how many replicas acknowledge
	deaf  atomic.Int64  // how many releases more fail
	under atomic.Int64  // acquisitions that wait for replicas
}

// wait waits for the replicas of a grant, and sets how many acknowledged it.
func (s *copied) wait(granted bool, r backend.Replication, have *int) {
	if !granted || r.Replicas == 0 {
		return
	}
	*have = int(s.have.Load())
	s.under.Add(1)
	defer s.under.Add(-1)
	if *have >= r.Replicas {
		r.ReplicaWait = s.takes
	}
	time.Sleep(r.ReplicaWait)
}

func newCopied() *copied {
	s := new(copied)
	acquire := func(c *call) error {
		err := c.run(c.ctx)
		switch reply := c.reply.(type) {
		case *backend.AcquireReply:
			s.wait(reply.Granted, c.request.(backend.AcquireRequest).Replication, &reply.Replicas)
		case *backend.FairReply:
			s.wait(reply.Granted, c.request.(backend.FairRequest).Replication, &reply.Replicas)
		case *backend.HoldsReply:
			s.wait(reply.Held, c.request.(backend.HoldsRequest).Replication, &reply.Replicas)
		}
		return err
	}
	release := func(c *call) error {
		if s.deaf.Add(-1) >= 0 {
			return unknownOutcome()
		}
		return c.run(c.ctx)
	}
	s.spy = spyOn(memory.New(), "Replicas Fair CountingSemaphores CountDownLatches Semaphores",
		hooks{"Acquire": acquire, "Fair.Acquire": acquire, "SetHolds": acquire, "Release": release})
	return s
}

func TestInvalidWithReplicasIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := on(t, newCopied())
		bare := on(t, memory.New())
		third := on(t, memory.New())
		quorum := need(quorum.New(c, bare, third))(t)
		one := WithReplicas(1, time.Second)
		if one != WithReplicas(1, time.Second) || one == WithReplicas(2, time.Second) {
			t.Error("options do not compare as values")
		}
		lock := func(l Locker, opts ...Option) error {
			_, err := l.Lock(t.Context(), "n", opts...)
			return err
		}
		for what, err := range map[string]error{
			"no replica":           lock(c, WithReplicas(0, time.Second)),
			"fewer than none":      lock(c, WithReplicas(-1, time.Second)),
			"no time":              lock(c, WithReplicas(1, 0)),
			"less than no time":    lock(c, WithReplicas(1, -time.Second)),
			"all of the lease":     lock(c, WithLease(time.Second), one),
			"the other way round":  lock(c, one, WithLease(time.Second)),
			"all of the watchdog":  lock(c, WithReplicas(1, watchdogTimeout)),
			"all of WithMaxHold":   lock(c, WithMaxHold(100*time.Millisecond), one),
			"no replicas there":    lock(bare, one),
			"Quorum":               lock(quorum, one),
			"a counting semaphore": semaphore.NewCounting(c, "s").Acquire(t.Context(), 1, one),
			"a latch":              latch.New(c, "l").Wait(t.Context(), one),
			"semaphore":            errorOf(semaphore.New(c, "p", 0).Acquire(t.Context(), 1, one)),
		} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s: %v, want ErrInvalid", what, err)
			}
		}
	})
}

// The lease counts from before the request was sent: what the replicas take is part of it.
func TestTheTimeThatReplicasTakeIsPartOfTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.takes = 600 * time.Millisecond
		s.have.Store(1)
		c := on(t, s)
		began := time.Now()
		l := need(c.Lock(t.Context(), "n", WithLease(time.Second), WithReplicas(1, 900*time.Millisecond)))(t)
		if d := time.Since(began); d != s.takes {
			t.Errorf("Lock took %v, want %v", d, s.takes)
		}
		<-l.Context().Done()
		if d := time.Since(began); d > time.Second || d < 900*time.Millisecond {
			t.Errorf("the lease ended after %v, want just before %v", d, time.Second)
		}
	})
}

// A grant that lacks replicas is released until the store confirms it, and is no lease before.
func TestALockThatLacksReplicasIsReleasedThoughReleasesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.deaf.Store(5)
		c := on(t, s)
		_, err := c.Lock(t.Context(), "n", WithReplicas(2, time.Second))
		if !errors.Is(err, ErrNotReplicated) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrNotAcquired) {
			t.Fatalf("%v", err)
		}
		state := need(c.Inspect(t.Context(), "n"))(t)
		if !state.Held {
			t.Fatal("the releases arrived: this test is about those that do not")
		}
		time.Sleep(5 * time.Second)
		if state, err := c.Inspect(t.Context(), "n"); err != nil || state.Held {
			t.Errorf("five seconds later: %+v, %v", state, err)
		}
	})
}

// A waiter reports ErrNotReplicated too, and does not wait on.
func TestAWaiterWhoseGrantLacksReplicasReportsIt(t *testing.T) {
	for _, fair := range []Option{{}, Fair()} {
		synctest.Test(t, func(t *testing.T) {
			s := newCopied()
			c := on(t, s)
			l := c.With(fair, NonReentrant())
			held := need(l.Lock(t.Context(), "n"))(t)
			got := later(func() error { return errorOf(l.Lock(t.Context(), "n", WithReplicas(1, time.Second))) })
			synctest.Wait()
			then := later(func() error { return thenUnlock(l.Lock(t.Context(), "n")) })
			synctest.Wait()
			must(t, held.Unlock(t.Context()))
			if err := <-got; !errors.Is(err, ErrNotReplicated) {
				t.Fatalf("fair %v: %v", fair, err)
			}
			if err := <-then; err != nil {
				t.Errorf("fair %v: the next: %v", fair, err)
			}
		})
	}
}

// Attempts that lack replicas fail one after the other. The callers that wait behind an attempt are told of it, and not
// that another owner holds the lock: no owner does.
func TestCallersBehindAnAttemptThatLacksReplicasAreToldSo(t *testing.T) {
	for kind, fair := range map[string]Option{"plain": {}, "fair": Fair()} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCopied()
				s.have.Store(1)
				c := on(t, s)
				l := c.With(fair, NonReentrant())
				const callers = 37
				errs := make(chan error, callers)
				began := time.Now()
				for range callers {
					go func() {
						errs <- errorOf(l.Lock(t.Context(), "n", WithReplicas(2, 300*time.Millisecond), WithWait(2*time.Second)))
					}()
				}
				synctest.Wait()
				one := later(func() error {
					return thenUnlock(l.Lock(t.Context(), "n", WithReplicas(1, 300*time.Millisecond)))
				})
				none := later(func() error { return thenUnlock(l.Lock(t.Context(), "n")) })
				held := 0
				for range callers {
					err := <-errs
					if !errors.Is(err, ErrNotReplicated) || errors.Is(err, ErrNotAcquired) {
						if held++; held == 1 {
							t.Error(err)
						}
					} else if !contains(err.Error(), "1 of 2 replicas acknowledged") {
						t.Error(err)
					}
				}
				if held > 0 {
					t.Errorf("%d of %d callers are not told that replicas are lacking", held, callers)
				}
				if d := time.Since(began); d > 2*time.Second {
					t.Errorf("the last was told after %v", d)
				}
				must(t, <-one) // wants no more replicas than there are
				must(t, <-none)
			})
		})
	}
}

func TestAReentryThatLacksReplicasLeavesTheOuterHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.have.Store(1)
		c := on(t, s)
		outer := need(c.Lock(t.Context(), "n", WithReplicas(1, time.Second)))(t)
		holds := func(want int) {
			t.Helper()
			if state, err := c.Inspect(t.Context(), "n"); err != nil || state.Holds != want {
				t.Errorf("%+v, %v, want %d holds", state, err, want)
			}
		}
		_, err := c.Lock(outer.Context(), "n", WithReplicas(2, time.Second))
		if !errors.Is(err, ErrNotReplicated) {
			t.Fatalf("%v", err)
		}
		holds(1)
		inner := need(c.Lock(outer.Context(), "n", WithReplicas(1, time.Second)))(t)
		holds(2)
		must(t, inner.Unlock(t.Context()))
		must(t, outer.Err())
		must(t, outer.Unlock(t.Context()))
		holds(0)
	})
}

// Replicas that do not answer delay calls with WithReplicas, and no others.
func TestSlowReplicasDelayNoOtherCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		c := on(t, s)
		const many = 4 * 64
		done := make(chan error, many)
		for i := range many {
			go func() { done <- errorOf(c.Lock(t.Context(), fmt.Sprint(i), WithReplicas(1, time.Second))) }()
		}
		synctest.Wait()
		if n := s.under.Load(); n != 64 {
			t.Errorf("%d of them wait at once, want %d", n, 64)
		}
		began := time.Now()
		must(t, thenUnlock(c.Lock(t.Context(), "another")))
		if d := time.Since(began); d != 0 {
			t.Errorf("another took %v", d)
		}
		for range many {
			if err := <-done; !errors.Is(err, ErrNotReplicated) {
				t.Fatal(err)
			}
		}
	})
}

// A refusal says what is known: the store does not tell a holder from the reservation for the next waiter, which is
// short, nor from an attempt that waits for its replicas.
func TestARefusalClaimsNoHolderThatIsNotKnown(t *testing.T) {
	const reserved, attempt = "reserved for the next waiter", "by a call that waits for its replicas"
	synctest.Test(t, func(t *testing.T) {
		s := newCopied()
		s.have.Store(1)
		holder, c := on(t, s), on(t, s)
		for _, row := range []struct {
			lease             time.Duration
			opts              []Option
			reserved, attempt bool
		}{
			{lease: time.Minute},
			{lease: 900 * time.Millisecond, reserved: true},
			{lease: time.Minute, opts: []Option{WithReplicas(1, time.Second)}, attempt: true},
			{lease: 900 * time.Millisecond, opts: []Option{WithReplicas(1, time.Second)}, reserved: true, attempt: true},
		} {
			l := need(holder.Lock(t.Context(), "x", WithLease(row.lease)))(t)
			waits := append(row.opts[:len(row.opts):len(row.opts)], WithWait(100*time.Millisecond))
			for call, err := range map[string]error{
				"TryLock": errorOf(c.TryLock(t.Context(), "x", row.opts...)),
				"Lock":    errorOf(c.Lock(t.Context(), "x", waits...)),
			} {
				wants(t, err, ErrNotAcquired)
				text := err.Error()
				if !contains(text, "held by another owner") || contains(text, reserved) != row.reserved ||
					contains(text, attempt) != row.attempt || contains(text, "the holder's lease ends") == row.reserved {
					t.Errorf("%s, a lease of %v, options %v: %q", call, row.lease, row.opts, text)
				}
			}
			must(t, l.Unlock(t.Context()))
		}
	})
}
