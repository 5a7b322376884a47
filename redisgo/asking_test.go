//go:build unix

package redisgo_test

import (
	"context"
	"fmt"
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
	c := redistest.StartCluster(t, 3)
	for hung, server := range c.Masters {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), ReadTimeout: time.Minute})
		defer rdb.Close()
		for master := range c.Masters {
			check.NoError(t, rdb.Eval(t.Context(), "return 1", []string{nameOn(c, master)}).Err()) // knows the slots
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
				lease, err := locks.TryLock(ctx, nameOn(c, master))
				check.FatalIf(t, err != nil, "master %d hangs, TryLock on master %d: %v", hung, master, err)
				check.NoError(t, lease.Unlock(ctx))
			}
		}()
	}
}

// nameOn is a name whose slot is a master's.
func nameOn(c *redistest.Cluster, master int) string {
	for i := 0; ; i++ {
		name := fmt.Sprint("name", i)
		if redisproto.Slot(name)*len(c.Masters)/redistest.Slots == master {
			return name
		}
	}
}
