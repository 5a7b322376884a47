package redisgo

import (
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Replicas that stand still occupy the half of the pool for WAIT. A further script is not sent, and its error says why.
func TestAScriptWithWAITDoesNotQueueForEver(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", PoolSize: 4})
	defer rdb.Close()
	synctest.Test(t, func(t *testing.T) {
		var x waits
		r := x.enter(rdb)
		defer x.leave(rdb, r)
		for range cap(r.places) {
			r.places <- struct{}{}
		}
		cmd := newCmd(t.Context(), "eval", "return 1", "0")
		done := make(chan struct{})
		go func() {
			defer close(done)
			x.send(t.Context(), rdb, false, cmd, &redisproto.Wait{Replicas: 1, Timeout: 1})
		}()
		<-done
		f := backend.FaultOf(cmd.Err())
		check.ErrorIf(t, cmd.Err() == nil || f.MayHaveRun || !f.Temporary || f.Remedy == "", "%v: %+v", cmd.Err(), f)
	})
}
