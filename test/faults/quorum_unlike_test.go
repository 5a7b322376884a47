package faults_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// A quorum of three stores of three kinds, a Redis, one that compares and swaps, and one in memory: whichever of them
// is away, the other two serve, and one owner is in. With two away nobody is.
func TestQuorum_OverStoresOfThreeKinds(t *testing.T) {
	eachRed(t, func(t *testing.T, s stack) {
		f := &fleet{t: t, s: s, servers: []*redistest.Server{redistest.Start(t)}}
		swaps, local := castest.NewMemory(), memory.New()
		open := func() mortise.Locker {
			with := mortise.WithWatchdogTimeout(quorumWatchdog)
			clients := []*mortise.Client{s.unproven(t, f.servers[0].Addr(), config{}, with)}
			clients = append(clients, harness.Client(t, swaps.Backend(), with), harness.Client(t, local, with))
			return harness.Must(quorum.New(clients...))(t)
		}
		a, b := open(), open()
		f.settle(a, quorumWatchdog)
		redis := struct{ down, up func() }{
			f.servers[0].Stop, func() { f.servers[0].Restart(); f.settle(a, quorumWatchdog) },
		}
		for what, away := range map[string]struct{ down, up func() }{
			"none":               {func() {}, func() {}},
			"Redis":              redis,
			"the one that swaps": {swaps.Down, swaps.Up},
			"the one in memory":  {func() { local.SetDown(context.DeadlineExceeded) }, func() { local.SetDown(nil) }},
		} {
			away.down()
			const rounds = 20
			var in atomic.Int32
			var wg sync.WaitGroup
			for _, l := range []mortise.Locker{a, b} {
				wg.Go(func() {
					for range rounds {
						lease, err := l.Lock(within(t, patience), "n")
						if err != nil {
							t.Errorf("%s away: %v", what, err)
							return
						}
						harness.ErrorIf(t, in.Add(1) != 1, "%s away: two owners are in", what)
						time.Sleep(time.Millisecond) // the other would come in now
						in.Add(-1)
						if err := lease.Unlock(context.Background()); err != nil {
							t.Errorf("%s away: Unlock: %v", what, err)
						}
					}
				})
			}
			wg.Wait()
			away.up()
		}
		swaps.Down()
		redis.down()
		_, err := a.TryLock(within(t, patience), "n")
		harness.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable), "two of three are away: %v", err)
	})
}
