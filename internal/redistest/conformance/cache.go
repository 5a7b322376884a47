//go:build unix

package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// RunCache tests when client-side caching refuses a lock that is free. open returns a backend with client-side caching
// for one more client of the server at addr.
func RunCache(t *testing.T, open func(t *testing.T, addr string) backend.Backend) {
	for name, test := range map[string]func(t *testing.T, c cached){
		"ALockThatThisProcessReleasedIsNotRefused":   releasedHere,
		"AConnectionThatHangsRefusesForASecond":      hangs,
		"AHeldLockIsRefusedAtOnceThoughOneHangs":     hangsHeld,
		"AFreeLockIsGrantedAtOnceThoughOneHangs":     hangsFree,
		"FrozenConnectionsAreNoHolder":               frozen,
		"AFarReleaseIsHeardWithItsInvalidation":      farAway,
		"OneTryCostsOneCommandAndAHundredCostTwo":    counted,
		"AnIdleCacheSendsNothingAndABusyOneFewTicks": ticks,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			c := cached{srv: srv, proxy: redistest.NewProxy(t, srv.Addr())}
			c.holder = session(t, open(t, srv.Addr()))
			c.Store = session(t, open(t, c.proxy.Addr()))
			test(t, c)
		})
	}
}

// cached is a session with client-side caching behind a proxy, and another session in the same process.
type cached struct {
	backend.Store
	holder backend.Store
	proxy  *redistest.Proxy
	srv    *redistest.Server
}

func session(t *testing.T, b backend.Backend) backend.Store {
	s := check.Value(b.Open(make(watched, 1))).In(t)
	t.Cleanup(func() { check.Done(t, s.Close()) })
	return s
}

var scriptsOnly = redistest.Named("EVALSHA", "EVAL")

func try(t *testing.T, s backend.Store, name, owner string) bool {
	t.Helper()
	ask := backend.AcquireRequest{Name: name, Owner: owner, Lease: time.Hour, Unasked: true}
	return check.Value(s.Acquire(t.Context(), ask)).In(t).Granted
}

// cache has c refuse name without a command.
func (c cached) cache(t *testing.T, name string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		before := c.proxy.Count(scriptsOnly)
		check.FatalIf(t, try(t, c, name, "c:1"), "%s is granted, and held", name)
		if c.proxy.Count(scriptsOnly) == before {
			return
		}
		check.FatalIf(t, time.Now().After(end), "a refusal of %s costs a command after %v", name, patience)
	}
}

// releasedHere: the invalidation takes 30 ms, the other client's Unlock returns before.
func releasedHere(t *testing.T, c cached) {
	c.proxy.Delay(30 * time.Millisecond)
	for what, release := range map[string]func() error{
		"Release": func() error {
			return check.Err(c.holder.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"}))
		},
		"ForceRelease": func() error {
			return check.Err(c.holder.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"}))
		},
		"ReleaseAll": func() error {
			out := make([]backend.ReleaseResult, 1)
			c.holder.Capabilities().Batch.ReleaseAll(t.Context(), []backend.ReleaseRequest{{Name: "n", Owner: "h:1"}}, out)
			return out[0].Err
		},
		"fair": func() error {
			return check.Err(c.holder.Capabilities().Fair.Release(t.Context(), backend.ReleaseRequest{Name: "n", Owner: "h:1"}))
		},
		"delegated": func() error {
			return check.Err(c.holder.Capabilities().Delegation.Release(t.Context(),
				backend.ReleaseRequest{Name: "n", Owner: "h:1"}))
		},
	} {
		check.FatalIf(t, !try(t, c.holder, "n", "h:1"), "%s: the lock is not free", what)
		c.cache(t, "n")
		check.NoError(t, release())
		check.ErrorIf(t, !try(t, c, "n", "c:2"), "%s has returned, and the lock is refused", what)
		check.NoError(t, check.Err(c.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"})))
	}
}

// hangs: another process releases the lock, and the invalidation never comes. Whether a call is refused is decided by
// the time at its beginning, so a busy machine does not make a refusal late.
func hangs(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	c.cache(t, "n")
	c.proxy.Hang(func(tracking bool) bool { return tracking })
	c.srv.Must("DEL", "n")
	freed := time.Now()
	for {
		began := time.Now()
		if try(t, c, "n", "c:2") {
			return
		}
		check.FatalIf(t, began.Sub(freed) > time.Second, "refused %v after it became free", began.Sub(freed))
		time.Sleep(5 * time.Millisecond)
	}
}

// hangsHeld: a lock that another process holds is refused by another connection than the one that hangs, and no call
// waits for that one.
func hangsHeld(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	c.srv.Must("HSET", "m", "java:1", "1")
	c.cache(t, "n")
	c.proxy.Hang(func(tracking bool) bool { return tracking })
	for range 20 {
		check.FatalIf(t, try(t, c, "m", "c:1"), "granted")
		check.FatalIf(t, soon(t, c, backend.AcquireRequest{Name: "m", Owner: "c:2", Fenced: true}).Granted, "granted")
	}
}

// hangsFree: a lock that is free is granted over another connection than the one that hangs, and released.
func hangsFree(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	c.cache(t, "n")
	c.proxy.Hang(func(tracking bool) bool { return tracking })
	for _, fenced := range []bool{false, true} {
		for range 5 {
			got := soon(t, c, backend.AcquireRequest{Name: "m", Owner: "c:1", Fenced: fenced})
			check.FatalIf(t, !got.Granted || fenced && got.Token == 0, "fenced: %v: %+v", fenced, got)
			released := check.Value(c.Release(t.Context(), backend.ReleaseRequest{Name: "m", Owner: "c:1"})).In(t)
			check.FatalIf(t, !released.Held, "not released")
		}
	}
}

// soon is Acquire, as TryLock calls it. Client libraries wait for a connection that hangs for longer.
func soon(t *testing.T, c cached, r backend.AcquireRequest) backend.AcquireReply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r.Lease, r.Unasked = time.Hour, true
	return check.Value(c.Acquire(ctx, r)).In(t)
}

// frozen: nothing answers any more, so the holder is not known.
func frozen(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	c.cache(t, "n")
	c.proxy.Hang(func(bool) bool { return true })
	froze := time.Now()
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := c.Acquire(ctx, backend.AcquireRequest{Name: "n", Owner: "c:2", Lease: time.Hour, Unasked: true})
		cancel()
		if err != nil {
			return
		}
		check.FatalIf(t, began.Sub(froze) > time.Second, "refused %v after the server was last heard", began.Sub(froze))
		time.Sleep(5 * time.Millisecond)
	}
}

// farAway: once what the server sent has arrived, the lock that another process released is granted.
func farAway(t *testing.T, c cached) {
	c.proxy.Delay(30 * time.Millisecond)
	for range 3 {
		c.srv.Must("HSET", "n", "java:1", "1")
		c.cache(t, "n")
		c.srv.Must("DEL", "n")
		check.NoError(t, c.Ping(t.Context())) // over the same connection, so its answer comes after the invalidation
		check.FatalIf(t, !try(t, c, "n", "c:2"), "refused after the invalidation")
		check.NoError(t, check.Err(c.ForceRelease(t.Context(), backend.ForceRequest{Name: "n"})))
	}
}

func counted(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	check.NoError(t, c.Ping(t.Context()))
	c.proxy.Reset()
	check.ErrorIf(t, try(t, c, "n", "c:1"), "granted")
	check.Equal(t, "the first TryLock costs %d commands", c.proxy.Count(scriptsOnly), 1)
	c.cache(t, "n")
	c.proxy.Reset()
	began := time.Now()
	for range 1000 {
		check.ErrorIf(t, try(t, c, "n", "c:1"), "granted")
	}
	sent, pauses := c.proxy.Count(scriptsOnly), int(time.Since(began)/(500*time.Millisecond)) // of a busy machine
	check.ErrorIf(t, sent > 3*pauses, "a thousand more cost %d in %v", sent, time.Since(began))
}

// ticks: at most a PING for each quarter of a second in which the cache answers, and none otherwise.
func ticks(t *testing.T, c cached) {
	c.srv.Must("HSET", "n", "java:1", "1")
	c.cache(t, "n")
	c.proxy.Reset()
	began := time.Now()
	pings := func() int { return c.proxy.Count(redistest.Named("PING")) }
	for pings() < 2 {
		check.FatalIf(t, time.Since(began) > patience, "no tick within %v", patience)
		check.ErrorIf(t, try(t, c, "n", "c:1"), "granted")
	}
	check.ErrorIf(t, time.Since(began) < 200*time.Millisecond, "two ticks within %v", time.Since(began))
}
