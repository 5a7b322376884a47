//go:build unix

package redisgo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// silent is a hook that hides errors, like the example in go-redis' documentation of AddHook.
type silent struct{}

func (silent) DialHook(next redis.DialHook) redis.DialHook { return next }
func (silent) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { _ = next(ctx, cmd); return nil }
}
func (silent) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { _ = next(ctx, cmds); return nil }
}

// A hook must not turn an error into the zero value of a reply, which would be a grant.
func TestAHookThatHidesErrorsGrantsNoLock(t *testing.T) {
	check.Long(t)
	for name, client := range map[string]func(addr string) redis.UniversalClient{
		"server": func(addr string) redis.UniversalClient { return redis.NewClient(&redis.Options{Addr: addr}) },
		"cluster": func(addr string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []redistest.Option
			if name == "cluster" {
				opts = append(opts, redistest.WithCluster())
			}
			srv := redistest.Start(t, opts...)
			granted := 0
			for range 2 {
				rdb := client(srv.Addr())
				defer rdb.Close()
				rdb.(interface{ AddHook(redis.Hook) }).AddHook(silent{})
				locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
				defer func() {
					now, cancel := context.WithCancel(context.Background())
					cancel()
					_ = locks.Shutdown(now)
				}()
				_, err := locks.TryLock(t.Context(), "n", mortise.WithLease(time.Second))
				if err == nil {
					granted++
				} else if !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), "a hook of the Redis client") {
					t.Errorf("%v, want ErrUnavailable and the hook", err)
				}
			}
			check.ErrorIf(t, granted > 0, "%d owners of a lock without a record: EXISTS n is %v", granted,
				srv.Must("EXISTS", "n"))
		})
	}
}
