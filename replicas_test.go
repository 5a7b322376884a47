package mortise

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
)

// copied is a store in memory that has replicas, of which it says what a test wants.
type copied struct {
	store *memory.Store
	takes time.Duration // that it waits for them
	have  atomic.Int64  // how many it says have it
	deaf  atomic.Int64  // how many releases yet do not arrive
	under atomic.Int64  // acquisitions that wait
}

func (s *copied) Open(h backend.Handler) (backend.Store, error) {
	x, err := s.store.Open(h)
	if err != nil {
		return nil, err
	}
	return &copiedSession{x, s}, nil
}

type copiedSession struct {
	backend.Store
	of *copied
}

func (x *copiedSession) Capabilities() backend.Capabilities {
	can := x.Store.Capabilities()
	return backend.Capabilities{Replicas: true, Fair: copiedFair{can.Fair, x}, CountingSemaphores: can.CountingSemaphores,
		CountDownLatches: can.CountDownLatches, Semaphores: can.Semaphores}
}

type copiedFair struct {
	backend.FairStore
	of *copiedSession
}

func (x copiedFair) Acquire(ctx context.Context, r backend.FairRequest) (backend.FairReply, error) {
	reply, err := x.FairStore.Acquire(ctx, r)
	if err == nil && reply.Granted && r.Replicas > 0 {
		reply.Replicas = x.of.wait(r.Replicas, r.ReplicaWait)
	}
	return reply, err
}

func (x *copiedSession) wait(replicas int, wait time.Duration) int {
	have := int(x.of.have.Load())
	x.of.under.Add(1)
	defer x.of.under.Add(-1)
	if have >= replicas {
		wait = x.of.takes
	}
	time.Sleep(wait)
	return have
}

func (x *copiedSession) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	reply, err := x.Store.Acquire(ctx, r)
	if err == nil && reply.Granted && r.Replicas > 0 {
		reply.Replicas = x.wait(r.Replicas, r.ReplicaWait)
	}
	return reply, err
}

func (x *copiedSession) SetHolds(ctx context.Context, r backend.HoldsRequest) (backend.HoldsReply, error) {
	reply, err := x.Store.SetHolds(ctx, r)
	if err == nil && reply.Held && r.Replicas > 0 {
		reply.Replicas = x.wait(r.Replicas, r.ReplicaWait)
	}
	return reply, err
}

func (x *copiedSession) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	if x.of.deaf.Add(-1) >= 0 {
		return backend.ReleaseReply{}, &backend.Fault{Err: errors.New("not heard"), MayHaveRun: true, Temporary: true}
	}
	return x.Store.Release(ctx, r)
}

func TestWithReplicasThatMakesNoSenseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := need(New(&copied{store: memory.New()}))(t)
		defer c.Close()
		bare := need(New(memory.New()))(t)
		defer bare.Close()
		third := need(New(memory.New()))(t)
		defer third.Close()
		quorum := need(Quorum(c, bare, third))(t)
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
			"all of the watchdog":  lock(c, WithReplicas(1, DefaultWatchdogTimeout)),
			"all of WithMaxHold":   lock(c, WithMaxHold(100*time.Millisecond), one),
			"no replicas there":    lock(bare, one),
			"Quorum":               lock(quorum, one),
			"a counting semaphore": c.CountingSemaphore("s").Acquire(t.Context(), 1, one),
			"a latch":              c.CountDownLatch("l").Wait(t.Context(), one),
			"semaphore":            func() error { _, err := c.Semaphore("p").Acquire(t.Context(), one); return err }(),
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
		s := &copied{store: memory.New(), takes: 600 * time.Millisecond}
		s.have.Store(1)
		c := need(New(s))(t)
		defer c.Close()
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

// What is given back is taken back until it is, and is no lease before.
func TestWhatLacksReplicasIsGivenBackThoughReleasesAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &copied{store: memory.New()}
		s.deaf.Store(5)
		c := need(New(s))(t)
		defer c.Close()
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

// One that waited is told so as well, and does not wait on.
func TestOneWhoWaitedAndLacksReplicasIsToldSo(t *testing.T) {
	for _, fair := range []LockerOption{{}, Fair()} {
		synctest.Test(t, func(t *testing.T) {
			s := &copied{store: memory.New()}
			c := need(New(s))(t)
			defer c.Close()
			l := need(c.Locker(fair, NonReentrant()))(t)
			held := need(l.Lock(t.Context(), "n"))(t)
			got, then := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := l.Lock(t.Context(), "n", WithReplicas(1, time.Second))
				got <- err
			}()
			synctest.Wait()
			go func() {
				l, err := l.Lock(t.Context(), "n")
				if err == nil {
					err = l.Unlock(t.Context())
				}
				then <- err
			}()
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

func TestAReentryThatLacksReplicasLeavesTheOuterHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &copied{store: memory.New()}
		s.have.Store(1)
		c := need(New(s))(t)
		defer c.Close()
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

// Replicas that do not answer hold up calls that ask for them, and no others.
func TestReplicasThatAreSlowHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &copied{store: memory.New()}
		c := need(New(s))(t)
		defer c.Close()
		const many = 4 * 64
		done := make(chan error, many)
		for i := range many {
			go func() {
				_, err := c.Lock(t.Context(), fmt.Sprint(i), WithReplicas(1, time.Second))
				done <- err
			}()
		}
		synctest.Wait()
		if n := s.under.Load(); n != 64 {
			t.Errorf("%d of them wait at once, want %d", n, 64)
		}
		began := time.Now()
		l := need(c.Lock(t.Context(), "another"))(t)
		must(t, l.Unlock(t.Context()))
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
