//go:build unix

package redisgo_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/redisgo"
)

// Whichever master hangs, a new client locks the names of the others. A master that hangs answers nothing within the
// time that callers have.
func TestAHungMasterHoldsUpNoNewClientOfTheOthers(t *testing.T) {
	check.Long(t)
	c := redistest.StartCluster(t, 3)
	for hung, server := range c.Masters {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: time.Minute})
		defer rdb.Close()
		for master := range c.Masters {
			names := c.NamesOn(master, 1, redisproto.Slot)
			check.NoError(t, rdb.Eval(t.Context(), "return 1", names).Err()) // knows the slots
		}
		func() {
			server.Pause()
			defer server.Resume()
			for master := range c.Masters {
				if master == hung {
					continue
				}
				locks := check.Value(mortise.New(redisgo.New(rdb))).In(t)
				defer locks.Close()
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				lease, err := locks.TryLock(ctx, c.NamesOn(master, 1, redisproto.Slot)[0])
				check.FatalIf(t, err != nil, "master %d hangs, TryLock on master %d: %v", hung, master, err)
				check.NoError(t, lease.Unlock(ctx))
			}
		}()
	}
}
