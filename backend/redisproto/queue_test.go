package redisproto_test

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/anykind"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// A client that cannot get a place among those who wait in turn waits as well: all are told of releases then.
func TestWhereNoPlaceIsToBeHadAllAreTold(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		holder, _ := session(t, b)
		s, _ := session(t, b)
		refused := func(what, name string) {
			t.Helper()
			acquire(t, holder, name, "h", time.Minute)
			r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: name, Owner: "o", Lease: time.Minute,
				Enrols: true})
			check.ErrorIf(t, err != nil || r.Granted || r.Enrolled || r.Remaining <= 0,
				"%s: %+v, %v; want it refused, without a place", what, r, err)
		}
		free := func(what, name string) {
			t.Helper()
			r, err := holder.Release(t.Context(), anykind.ReleaseRequest{Name: name, Owner: "h"})
			check.ErrorIf(t, err != nil || !r.Held, "%s: the release: %+v, %v", what, r, err)
		}
		do(t, srv, "SET", "mortise:1:next:{a}", "x")
		refused("where the key holds other data", "a")
		next := listen(t, srv, "redisson_lock__channel:{a}")
		free("where the key holds other data", "a")
		for _, want := range []string{"00", "2"} {
			check.Equal(t, "its release says %q", next(), "redisson_lock__channel:{a} "+want)
		}

		acquire(t, holder, "b", "h", time.Minute)
		do(t, srv, "CONFIG", "SET", "maxmemory", "1")
		r, err := s.Acquire(t.Context(), anykind.AcquireRequest{Name: "b", Owner: "o", Lease: time.Minute, Enrols: true})
		check.ErrorIf(t, err != nil || r.Granted || r.Enrolled, "on a full server: %+v, %v; want it refused, without a place",
			r, err)
		free("on a full server", "b")
		do(t, srv, "CONFIG", "SET", "maxmemory", "0")
	})
}

// A release takes its turn from the clients that wait for this name, and not from those that wait for {n},
// which shares the channel.
func TestAReleaseTakesNoTurnFromTheClientsThatWaitForItsTwin(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		waiting := map[string]string{"n": "mortise:1:next:{n}", "{n}": "mortise:1:next:{n}:"}
		for name := range waiting {
			holder, _ := session(t, b)
			waits, heard := session(t, b)
			waits.Subscribe(topic(name))
			heard.await(t, "watching "+name, 1)
			for n := range waiting {
				acquire(t, holder, n, "h:1", time.Minute)
				r, err := waits.Acquire(t.Context(), anykind.AcquireRequest{Name: n, Owner: "w:1", Lease: time.Minute,
					Enrols: true})
				check.FatalIf(t, err != nil || r.Granted || !r.Enrolled, "%v, %v", r, err)
			}
			r, err := holder.Release(t.Context(), anykind.ReleaseRequest{Name: name, Owner: "h:1"})
			check.FatalIf(t, err != nil || !r.Held, "%v, %v", r, err)
			for n, key := range waiting {
				want := int64(1)
				if n == name {
					want = 0
				}
				got := do(t, srv, "ZCARD", key)
				check.ErrorIf(t, got != want, "after the release of %q %v clients wait for %q, want %d", name, got, n, want)
			}
			do(t, srv, "FLUSHALL")
		}
	})
}

// Where a lock was removed under its owners, each takes its own entry along when it unlocks.
func TestOwnersOfARemovedLockLeaveNoEntryBehind(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		enter := func(name string) {
			t.Helper()
			acquire(t, s, name, "a:1", time.Minute)
			if r, err := s.Enter(t.Context(), backend.EnterRequest{Name: name,
				Owner: "b:1", Under: "a:1", Holds: 1, Lease: time.Minute}); err != nil || !r.Granted {
				t.Fatal(r, err)
			}
		}
		leave := func(name, owner string) bool {
			t.Helper()
			r, err := s.Release(t.Context(), anykind.ReleaseRequest{Kind: backend.KindDelegated, Name: name, Owner: owner})
			check.NoError(t, err)
			return r.Held
		}
		enter("n")
		do(t, srv, "DEL", "n")
		for _, owner := range []string{"b:1", "a:1"} {
			check.ErrorIf(t, leave("n", owner), "%s held what was removed", owner)
		}
		equal(t, "the keys that are left", keys(t, srv), []string{})
	})
}
