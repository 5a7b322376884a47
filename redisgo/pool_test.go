package redisgo_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/conformance"
	"github.com/mortise-go/mortise/quorum"
	"github.com/mortise-go/mortise/redisgo"
)

const exhausted = "pool exhausted: 4 of 4 connections in use"

// occupied returns a Redis client whose four connections wait in blocking commands once occupy was called.
func occupied(t *testing.T, patience time.Duration) (rdb *redis.Client, occupy func()) {
	srv := redistest.Start(t)
	rdb = redis.NewClient(&redis.Options{Addr: srv.Addr(), PoolSize: 4, PoolTimeout: patience})
	t.Cleanup(func() { rdb.Close() })
	return rdb, func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for range 4 {
			go rdb.BLPop(t.Context(), 0, "jobs")
		}
		for s := rdb.PoolStats(); s.TotalConns-s.IdleConns < 4; s = rdb.PoolStats() {
			check.NoError(t, ctx.Err())
			runtime.Gosched()
		}
	}
}

func TestALeaseThatIsLostBehindAnExhaustedPoolNamesThePool(t *testing.T) {
	check.Long(t)
	rdb, occupy := occupied(t, time.Minute)
	conformance.RunLostBehindPool(t, redisgo.New(rdb), occupy, exhausted)
}

func TestAnErrorNamesTheServer(t *testing.T) { conformance.RunErrorNamesServer(t, onServer) }

func TestACallWhoseWaitEndsBehindAnExhaustedPoolNamesThePool(t *testing.T) {
	check.Long(t)
	rdb, occupy := occupied(t, time.Minute)
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	var stores []*mortise.Client
	for range 3 { // Quorum waits for a store for a tenth of the watchdog timeout
		stores = append(stores, check.Value(mortise.New(redisgo.New(rdb), mortise.WithWatchdogTimeout(time.Second))).In(t))
	}
	quorum := check.Value(quorum.New(stores...)).In(t)
	occupy()
	fair := locks.With(mortise.Fair())
	for call, lock := range map[string]func(wait mortise.Option) (*mortise.Lease, error){
		"Lock": func(wait mortise.Option) (*mortise.Lease, error) {
			return locks.Lock(t.Context(), "n", wait)
		},
		"LockAll, a command for all": func(wait mortise.Option) (*mortise.Lease, error) {
			return locks.LockAll(t.Context(), []string{"n", "m"}, wait)
		},
		"LockAll, a command for each": func(wait mortise.Option) (*mortise.Lease, error) {
			return mortise.Parts{}.And(fair, "n", "m").Lock(t.Context(), wait)
		},
		"Quorum": func(wait mortise.Option) (*mortise.Lease, error) { return quorum.Lock(t.Context(), "n", wait) },
		"Quorum, TryLock": func(mortise.Option) (*mortise.Lease, error) {
			return quorum.TryLock(t.Context(), "n")
		},
	} {
		_, err := lock(mortise.WithWait(50 * time.Millisecond))
		check.Is(t, call, err, mortise.ErrUnavailable)
		check.ErrorIf(t, !strings.Contains(err.Error(), exhausted), "%s: %v", call, err)
	}
}

func TestAnErrorOfThePoolHasItsNumbers(t *testing.T) {
	rdb, occupy := occupied(t, 20*time.Millisecond)
	locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	occupy()
	_, err := locks.TryLock(t.Context(), "m")
	for _, err := range []error{err, lease.Unlock(t.Context())} {
		check.Is(t, "the error", err, mortise.ErrUnavailable)
		check.ErrorIf(t, !strings.Contains(err.Error(), exhausted), "%v", err)
	}
}
