//go:build unix

package rueidis_test

import (
	"context"
	"testing"
	"time"

	redis "github.com/redis/rueidis"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/rueidis"
)

// Whichever master hangs, new clients lock the names of the others. A master that hangs answers nothing within the time
// that callers have.
func TestAHungMasterHoldsUpNoNewClientOfTheOthers(t *testing.T) {
	check.Long(t)
	c := redistest.StartCluster(t, 3)
	opt := redis.ClientOption{InitAddress: c.Addrs(), DisableCache: true, DisableRetry: true}
	opt.ConnWriteTimeout, opt.Dialer.Timeout = time.Minute, time.Minute
	rdb := check.Value(redis.NewClient(opt)).In(t)
	defer rdb.Close()
	for master := range c.Masters {
		check.NoError(t, rdb.Do(t.Context(), rdb.B().Exists().Key(c.NamesOn(master, 1, redisproto.Slot)[0]).Build()).Error())
	}
	clients := map[string]backend.Backend{"New": rueidis.New(opt), "NewWithClient": rueidis.NewWithClient(rdb)}
	for hung, server := range c.Masters {
		func() {
			server.Pause()
			defer server.Resume()
			for n := range 6 { // rueidis asks a random node
				master := (hung + 1 + n%2) % len(c.Masters)
				for what, b := range clients {
					locks := check.Value(mortise.New(b)).In(t)
					defer locks.Close()
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					lease, err := locks.TryLock(ctx, c.NamesOn(master, 1, redisproto.Slot)[0])
					check.FatalIf(t, err != nil, "%s: master %d hangs, TryLock on master %d: %v", what, hung, master, err)
					check.NoError(t, lease.Unlock(ctx))
				}
			}
		}()
	}
}
