//go:build unix

package redisgo_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// go-redis does not look at idle connections over TLS before it uses them. A restart of the
// server kills all of them at once, more than a call has tries.
func TestIdleTLSConnectionsThatARestartKilledFailNoCall(t *testing.T) {
	check.Long(t)
	for name, client := range map[string]func(s *redistest.Server, config *tls.Config) redis.UniversalClient{
		"server": func(s *redistest.Server, config *tls.Config) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: s.TLSAddr(), TLSConfig: config, PoolSize: idle})
		},
		"cluster": func(s *redistest.Server, config *tls.Config) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{s.TLSAddr()}, TLSConfig: config, PoolSize: idle,
				ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
					return []redis.ClusterSlot{{Start: 0, End: 16383,
						Nodes: []redis.ClusterNode{{Addr: s.TLSAddr()}}}}, nil
				},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := redistest.NewTLS(t)
			config := x.Config()
			config.ServerName = "127.0.0.1" // a cluster's client asks for it
			opts := []redistest.Option{redistest.WithTLS(x), redistest.WithAOF()}
			if name == "cluster" {
				opts = append(opts, redistest.WithCluster())
			}
			s := redistest.Start(t, opts...)
			rdb := client(s, config)
			defer rdb.Close()
			locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
			defer func() {
				now, cancel := context.WithCancel(context.Background())
				cancel() // what is still held expires
				locks.Shutdown(now)
			}()
			ctx := t.Context()
			var held []*mortise.Lease
			for i := range 12 {
				lease := check.Value(locks.Lock(ctx, fmt.Sprint("held", i))).In(t)
				held = append(held, lease)
			}

			fillPool(t, rdb)
			s.Restart()
			for i, lease := range held {
				err := lease.Unlock(ctx)
				check.ErrorIf(t, err != nil, "Unlock %d: %v", i, err)
			}
			fillPool(t, rdb)
			s.Restart()
			var all sync.WaitGroup
			for i := range 12 {
				all.Go(func() {
					_, err := locks.Lock(ctx, fmt.Sprint("new", i))
					check.ErrorIf(t, err != nil, "Lock %d: %v", i, err)
				})
			}
			all.Wait()
		})
	}
}

// idle is how many connections there are; a call has three tries.
const idle = 20

// fillPool leaves as many idle connections as the pool has room for.
func fillPool(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	open := func(ctx context.Context, node *redis.Client) error {
		var err error
		var conns []*redis.Conn
		for range idle {
			c := node.Conn()
			conns = append(conns, c)
			err = errors.Join(err, c.Ping(ctx).Err())
		}
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		if n := node.PoolStats().IdleConns; err == nil && n < idle {
			err = fmt.Errorf("there are %d idle connections, want %d", n, idle)
		}
		return err
	}
	var err error
	if c, is := rdb.(*redis.ClusterClient); is {
		err = c.ForEachMaster(t.Context(), open)
	} else {
		err = open(t.Context(), rdb.(*redis.Client))
	}
	check.NoError(t, err)
}
