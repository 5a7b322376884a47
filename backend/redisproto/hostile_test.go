//go:build unix

package redisproto_test

import (
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/internal/redistest"
)

// A read-write lock's hash says how many keys a holder has, and scripts look at each.
func TestAHoldCountThatIsDamagedDoesNotStopTheServer(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		do(t, srv, "CONFIG", "SET", "lua-time-limit", "60000") // or BUSY would tell
		s := rwOf(t, b)
		in := backend.Topic{Kind: backend.KindWrite, Name: "n"}
		for _, count := range []string{"1e15", "inf", "9223372036854775807", "0x7fffffffffff"} {
			quick := func(what string, do func()) {
				t.Helper()
				began := time.Now()
				do()
				if took := time.Since(began); took > 3*time.Second {
					t.Fatalf("%s with a hold count of %s took %v", what, count, took)
				}
			}
			damage := func(mode string) { do(t, srv, "HSET", "n", "mode", mode, "somebody:1", count) }
			side(t, s, backend.KindRead, "n", "a:1")
			damage("read")
			quick("Inspect", func() {
				if r, err := s.Inspect(t.Context(), in); err != nil || !r.Held {
					t.Errorf("Inspect: %+v, %v", r, err)
				}
			})
			quick("a reader's release", func() { unside(t, s, backend.KindRead, "n", "a:1") })
			side(t, s, backend.KindWrite, "n", "a:2")
			damage("write")
			quick("a writer's release", func() { unside(t, s, backend.KindWrite, "n", "a:2") })
			damage("read")
			quick("ForceRelease", func() {
				if was, err := s.ForceRelease(t.Context(), in); err != nil || !was {
					t.Errorf("ForceRelease: %v, %v", was, err)
				}
			})
		}
	})
}

// 292 years are the longest that a time.Duration can say; added to a clock they are over.
func TestARecordThatEndsInCenturiesHasNoEnd(t *testing.T) {
	overAll(t, func(t *testing.T, srv *redistest.Server, b backend.Backend) {
		s, _ := session(t, b)
		for _, kind := range []backend.Kind{backend.KindLock, backend.KindWrite, backend.KindFair} {
			do(t, srv, "DEL", "n")
			do(t, srv, "HSET", "n", "somebody:1", "1")
			if kind == backend.KindWrite {
				do(t, srv, "HSET", "n", "mode", "write")
			}
			for _, ms := range []string{"9223372036854", "9000000000000000", "3153700000000"} {
				do(t, srv, "PEXPIRE", "n", ms)
				r, err := s.Acquire(t.Context(), backend.AcquireRequest{Kind: kind, Name: "n", Owner: "a:1", Lease: time.Minute})
				if err != nil || r.Granted || r.Remaining >= 0 {
					t.Errorf("kind %d, which ends in %s ms: %+v, %v; want it refused, without an end", kind, ms, r, err)
				}
			}
		}
	})
}
