//go:build unix

package redisproto_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// delaying delays the exact renewals of its sessions on their way to the server.
type delaying struct {
	backend.Backend
	begun      chan struct{}
	pass, done chan struct{}
}

func (d delaying) Open(h backend.Handler) (backend.Store, error) {
	s, err := d.Backend.Open(h)
	return delayingStore{s, d}, err
}

type delayingStore struct {
	backend.Store
	d delaying
}

func (s delayingStore) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	exact := false
	for _, q := range in {
		exact = exact || q.Exact
	}
	if exact {
		s.d.begun <- struct{}{}
		<-s.d.pass
		defer func() { s.d.done <- struct{}{} }()
	}
	s.Store.Renew(ctx, in, out)
}

// exactBesideReentry lets an exact renewal and a re-entry meet, and has another client try the lock after pause.
func exactBesideReentry(t *testing.T, pause time.Duration, outer, inner []mortise.Option, unlockOuter bool) {
	t.Helper()
	check.Long(t)
	const watchdog = 3 * time.Second
	srv := redistest.Start(t)
	d := delaying{adapters["go-redis"](t, srv.Addr(), login{}),
		make(chan struct{}, 9), make(chan struct{}, 9), make(chan struct{}, 9)}
	c := check.Value(mortise.New(d, mortise.WithWatchdogTimeout(watchdog))).In(t)
	other := check.Value(mortise.New(adapters["go-redis"](t, srv.Addr(), login{}))).In(t)
	t.Cleanup(func() { _ = c.Shutdown(canceled()); _ = other.Shutdown(canceled()) })
	l := check.Value(c.Lock(t.Context(), "n", outer...)).In(t)
	do(t, srv, "PEXPIRE", "n", "600000") // the server's clock set back
	<-d.begun                            // the exact renewal is on its way
	got := make(chan *mortise.Lease, 1)
	go func() {
		x, err := c.Lock(l.Context(), "n", inner...)
		if err != nil {
			t.Error(err)
		}
		got <- x
	}()
	var x *mortise.Lease
	select {
	case x = <-got: // the re-entry overtakes it
	case <-time.After(300 * time.Millisecond): // it waits for the renewal
	}
	d.pass <- struct{}{}
	<-d.done
	if x == nil {
		x = <-got
	}
	if unlockOuter {
		check.NoError(t, l.Unlock(t.Context()))
	}
	time.Sleep(pause)
	y, err := other.TryLock(t.Context(), "n")
	check.ErrorIf(t, err == nil && x.Err() == nil, "two holders: the re-entry says %v, the other has %v, PTTL %v",
		x.Err(), y, do(t, srv, "PTTL", "n"))
}

func TestAnExactRenewalDoesNotCutTheLeaseOfAReentryBesideIt(t *testing.T) {
	exactBesideReentry(t, 3200*time.Millisecond, nil, []mortise.Option{mortise.WithLease(time.Minute)}, true)
}

func TestAnExactRenewalOfABoundedHoldDoesNotCutAReentryBesideIt(t *testing.T) {
	exactBesideReentry(t, 650*time.Millisecond, []mortise.Option{mortise.WithMaxHold(1600 * time.Millisecond)}, nil, false)
}

func TestAWriterThatLeavesFreesNoLockOfAReaderWithoutAnEnd(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	b := adapters["go-redis"](t, srv.Addr(), login{})
	c := check.Value(mortise.New(b, mortise.WithWatchdogTimeout(30*time.Second))).In(t)
	other := check.Value(mortise.New(adapters["go-redis"](t, srv.Addr(), login{}))).In(t)
	t.Cleanup(func() { _ = c.Shutdown(canceled()); _ = other.Shutdown(canceled()) })
	w := check.Value(c.RW().Write.Lock(t.Context(), "n")).In(t)
	r := check.Value(c.RW().Read.Lock(w.Context(), "n")).In(t)
	damages["PERSIST"](t, srv)
	check.NoError(t, w.Unlock(t.Context()))
	_, err := other.RW().Write.TryLock(t.Context(), "n")
	check.ErrorIf(t, err == nil && r.Err() == nil, "a writer beside a reader: the reader says %v", r.Err())
}

// 64 dead readers, and two that live: A with 30 s left, B with 26.3 s.
func TestTheLastOfManyReadersFreesTheLock(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	worst := int64(0)
	for range 60 {
		call := func(args ...string) any { return do(t, srv, args...) }
		call("FLUSHALL")
		call("EVAL", `redis.call('hset', 'n', 'mode', 'read', 'A', 1, 'B', 1)
			for i = 1, 64 do redis.call('hset', 'n', 'dead' .. i, '1') end
			redis.call('set', '{n}:A:rwlock_timeout:1', '1', 'px', 30000)
			redis.call('set', '{n}:B:rwlock_timeout:1', '1', 'px', 26255)
			redis.call('pexpire', 'n', 30000)`, "0")
		leave := func(r string) {
			call("EVAL", scripts.ReadReleaseSource, "4", "n", "{n}:"+r+":rwlock_timeout:1", "{n}", "redisson_rwlock:{n}",
				r, "publish")
		}
		leave("A")
		time.Sleep(100 * time.Millisecond)
		leave("B")
		worst = max(worst, call("PTTL", "n").(int64))
	}
	check.ErrorIf(t, worst > 0, "no reader lives, and the lock lasts for %d ms more", worst)
}

// late has the first exact renewal time out, and passes on a function that carries it out later.
type late struct {
	backend.Backend
	begun chan func()
	taken *atomic.Bool
}

func (d late) Open(h backend.Handler) (backend.Store, error) {
	s, err := d.Backend.Open(h)
	return lateStore{s, d}, err
}

type lateStore struct {
	backend.Store
	d late
}

// Renew implements [backend.Store].
func (s lateStore) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	for i, q := range in {
		if q.Exact && s.d.taken.CompareAndSwap(false, true) {
			s.d.begun <- func() {
				s.Store.Renew(context.Background(), []backend.RenewRequest{q}, make([]backend.RenewResult, 1))
			}
			out[i].Err = errors.New("timeout")
			return
		}
	}
	s.Store.Renew(ctx, in, out)
}

func TestAnExactRenewalThatComesLateCutsNoLease(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	d := late{adapters["go-redis"](t, srv.Addr(), login{}), make(chan func(), 1), new(atomic.Bool)}
	c := check.Value(mortise.New(d, mortise.WithWatchdogTimeout(3*time.Second))).In(t)
	other := check.Value(mortise.New(adapters["go-redis"](t, srv.Addr(), login{}))).In(t)
	t.Cleanup(func() { _ = c.Shutdown(canceled()); _ = other.Shutdown(canceled()) })
	l := check.Value(c.Lock(t.Context(), "n")).In(t)
	do(t, srv, "PEXPIRE", "n", "600000")
	arrive := <-d.begun
	x := check.Value(c.Lock(l.Context(), "n", mortise.WithLease(time.Minute))).In(t)
	check.NoError(t, l.Unlock(t.Context()))
	arrive()
	time.Sleep(3200 * time.Millisecond)
	_, err := other.TryLock(t.Context(), "n")
	check.ErrorIf(t, err == nil && x.Err() == nil, "two holders")
}
