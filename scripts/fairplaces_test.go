package scripts_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/scripts"
)

// Where PUBLISH does not count all subscribers, a request that finds a fair lock free cannot tell which of the owners
// before it live. If it cut the place of an owner of mortise behind one of Redisson, the grant to the latter, which
// subtracts its wait from all places, would end the place at once.
func TestAPlaceBehindRedissonsWaiterOutlivesItsGrantWhereNobodyCountsSubscribers(t *testing.T) {
	srv := redistest.Start(t)
	const (
		java  = "0d3e54a0-9a5c-4a29-b6a4-6d1f3c1e7b11:"
		queue = "redisson_lock_queue:{n}"
		times = "redisson_lock_timeout:{n}"
		wait  = 5 * time.Minute
	)
	ask := func(owner string) any {
		return call(t, srv, "EVAL", scripts.FairAcquireSource, "5", "n", queue, times, "redisson_lock_token:{n}",
			"redisson_lock__channel:{n}", owner, "30000", strconv.FormatInt(wait.Milliseconds(), 10), "0", "0", "1000",
			"0", "publish")
	}
	call(t, srv, "HSET", "n", "other:1", "1")
	call(t, srv, "PEXPIRE", "n", "30000")
	for i, owner := range []string{java + "1", "go:1", java + "2", "go:2"} {
		if i%2 == 1 {
			ask(owner)
			continue
		}
		end := time.Now().Add(30*time.Second + time.Duration(i+1)*wait).UnixMilli()
		call(t, srv, "RPUSH", queue, owner)
		call(t, srv, "ZADD", times, strconv.FormatInt(end, 10), owner)
	}
	call(t, srv, "DEL", "n")
	check.Equal(t, "the last one is told %v", fmt.Sprint(ask("go:2")), "[0 0 1000 0]")
	// Redisson's grant to the first.
	call(t, srv, "LPOP", queue)
	call(t, srv, "ZREM", times, java+"1")
	for _, other := range call(t, srv, "ZRANGE", times, "0", "-1").([]any) {
		call(t, srv, "ZINCRBY", times, strconv.FormatInt(-wait.Milliseconds(), 10), other.(string))
	}
	for _, owner := range []string{"go:1", java + "2", "go:2"} {
		end := check.Value(strconv.ParseFloat(call(t, srv, "ZSCORE", times, owner).(string), 64)).In(t)
		left := time.Until(time.UnixMilli(int64(end)))
		check.ErrorIf(t, left < time.Minute, "after the grant the place of %s has %v", owner, left)
	}
}
