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
	"github.com/mortise-go/mortise/redisgo"
)

// A closed client stays closed. Waiters repeated their requests for as long as they sit out an outage: 34 s.
func TestAWaitEndsWhenTheRedisClientIsClosed(t *testing.T) {
	srv := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	waits, failed := make(chan struct{}, 1), make(chan error, 2)
	locks := check.Value(mortise.New(redisgo.New(rdb), mortise.WithObserver(mortise.Observer{
		Waiting: func(mortise.Event) { waits <- struct{}{} },
	}))).In(t)
	other := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer other.Close()
	holder := check.Value(mortise.New(redisgo.New(other))).In(t)
	defer holder.Close()
	held := check.Value(holder.Lock(t.Context(), "n")).In(t)
	mine := check.Value(locks.Lock(t.Context(), "mine")).In(t)
	go func() { _, err := locks.Lock(t.Context(), "n"); failed <- err }()
	<-waits
	for srv.Must("PUBSUB", "NUMSUB", "redisson_lock__channel:{n}").([]any)[1] == int64(0) {
		runtime.Gosched()
	}
	check.NoError(t, rdb.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	select {
	case err := <-failed:
		check.Is(t, "error", err, mortise.ErrUnavailable)
		check.ErrorIf(t, !strings.Contains(err.Error(), "closed"), "the error is %v", err)
	case <-ctx.Done():
		t.Fatal("the wait goes on though the Redis client is closed")
	}
	check.Is(t, "Unlock", mine.Unlock(ctx), mortise.ErrUnavailable)
	err := locks.Shutdown(ctx) // owes the release of "mine", which cannot succeed
	check.Is(t, "error", err, mortise.ErrUnavailable)
	check.ErrorIf(t, ctx.Err() != nil, "Shutdown did not return in time")
	check.NoError(t, held.Unlock(ctx))
}

func TestAWaitEndsWhenTheClusterClientIsClosed(t *testing.T) {
	check.Long(t)
	cluster := redistest.StartCluster(t, 3)
	for name, mode := range map[string]redisgo.Option{
		"sharded":     redisgo.WithShardedPubSub(redisgo.ShardedOn),
		"not sharded": redisgo.WithShardedPubSub(redisgo.ShardedOff),
	} {
		t.Run(name, func(t *testing.T) {
			mine := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			other := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			defer other.Close()
			conformance.RunClosed(t, redisgo.New(mine, mode), redisgo.New(other, mode), func() {
				check.NoError(t, mine.Close())
			})
		})
	}
}
