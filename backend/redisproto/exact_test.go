//go:build unix

package redisproto_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// renewing has renew carry out the renewals of its sessions.
type renewing struct {
	backend.Backend
	renew func(ctx context.Context, s backend.Store, in []backend.RenewRequest, out []backend.RenewResult)
}

func (r renewing) Open(h backend.Handler) (backend.Store, error) {
	s, err := r.Backend.Open(h)
	return renewingStore{s, r}, err
}

type renewingStore struct {
	backend.Store
	by renewing
}

func (s renewingStore) Renew(ctx context.Context, in []backend.RenewRequest, out []backend.RenewResult) {
	s.by.renew(ctx, s.Store, in, out)
}

func isExact(q backend.RenewRequest) bool { return q.Exact }

// exactBesideReentry lets an exact renewal and a re-entry meet, and has another client try the lock after pause.
func exactBesideReentry(t *testing.T, pause time.Duration, outer, inner []mortise.Option, unlockOuter bool) {
	t.Helper()
	check.Long(t)
	const watchdog = 3 * time.Second
	srv := redistest.Start(t)
	begun, pass, done := make(chan struct{}, 9), make(chan struct{}, 9), make(chan struct{}, 9)
	d := renewing{adapters["go-redis"](t, srv.Addr(), login{}),
		func(ctx context.Context, s backend.Store, in []backend.RenewRequest, out []backend.RenewResult) {
			if slices.ContainsFunc(in, isExact) {
				begun <- struct{}{}
				<-pass
				defer func() { done <- struct{}{} }()
			}
			s.Renew(ctx, in, out)
		}}
	c := check.Value(mortise.New(d, mortise.WithWatchdogTimeout(watchdog))).In(t)
	other := check.Value(mortise.New(adapters["go-redis"](t, srv.Addr(), login{}))).In(t)
	t.Cleanup(func() { _ = c.Shutdown(canceled()); _ = other.Shutdown(canceled()) })
	l := check.Value(c.Lock(t.Context(), "n", outer...)).In(t)
	do(t, srv, "PEXPIRE", "n", "600000") // the server's clock set back
	<-begun                              // the exact renewal is on its way
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
	pass <- struct{}{}
	<-done
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

// The first exact renewal times out, and is carried out later.
func TestAnExactRenewalThatComesLateCutsNoLease(t *testing.T) {
	check.Long(t)
	srv := redistest.Start(t)
	begun, taken := make(chan func(), 1), new(atomic.Bool)
	d := renewing{adapters["go-redis"](t, srv.Addr(), login{}),
		func(ctx context.Context, s backend.Store, in []backend.RenewRequest, out []backend.RenewResult) {
			i := slices.IndexFunc(in, isExact)
			if i < 0 || !taken.CompareAndSwap(false, true) {
				s.Renew(ctx, in, out)
				return
			}
			q := in[i]
			begun <- func() {
				s.Renew(context.Background(), []backend.RenewRequest{q}, make([]backend.RenewResult, 1))
			}
			out[i].Err = errors.New("timeout")
		}}
	c := check.Value(mortise.New(d, mortise.WithWatchdogTimeout(3*time.Second))).In(t)
	other := check.Value(mortise.New(adapters["go-redis"](t, srv.Addr(), login{}))).In(t)
	t.Cleanup(func() { _ = c.Shutdown(canceled()); _ = other.Shutdown(canceled()) })
	l := check.Value(c.Lock(t.Context(), "n")).In(t)
	do(t, srv, "PEXPIRE", "n", "600000")
	arrive := <-begun
	x := check.Value(c.Lock(l.Context(), "n", mortise.WithLease(time.Minute))).In(t)
	check.NoError(t, l.Unlock(t.Context()))
	arrive()
	time.Sleep(3200 * time.Millisecond)
	_, err := other.TryLock(t.Context(), "n")
	check.ErrorIf(t, err == nil && x.Err() == nil, "two holders")
}
