package redisgo_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// lockBy takes and releases a lock by the client of a URL, and closes the client.
func lockBy(t *testing.T, url string) {
	t.Helper()
	locks := check.Value(mortise.Open(url)).In(t)
	lease := check.Value(locks.Lock(t.Context(), "n")).In(t)
	check.Done(t, lease.Unlock(context.Background()))
	check.Done(t, locks.Close())
}

func TestAURLNamesAServer(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("secret"), redistest.WithSocket())
	lockBy(t, "redis://:secret@"+server.Addr()+"/0?max_retries=1")
	lockBy(t, "redis+unix://:secret@"+server.Socket())
	// The client that was made for the URL is closed with the locks.
	left := check.Value(strconv.Atoi(server.Info("connected_clients"))).In(t) - 1
	check.ErrorIf(t, left != 0, "%d connections are left", left)
	if calls := server.Calls("evalsha", "eval"); calls == 0 {
		t.Error("the server has run no script")
	}
}

func TestAURLNamesAClusterOrSentinels(t *testing.T) {
	check.Long(t)
	redistest.Environment(t)
	with := func(scheme, addrs, query string) string {
		first, more, _ := strings.Cut(addrs, ",")
		for addr := range strings.SplitSeq(more, ",") {
			query += "&addr=" + addr
		}
		return scheme + "://" + first + "?" + strings.TrimPrefix(query, "&")
	}
	lockBy(t, with("redis+cluster", os.Getenv("REDIS_CLUSTER"), ""))
	lockBy(t, with("redis+sentinel", os.Getenv("REDIS_SENTINELS"), "master_name="+os.Getenv("REDIS_MASTER")))
}
