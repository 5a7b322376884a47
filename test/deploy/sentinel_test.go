package deploy_test

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// bound is how long locking may take to resume: `make failover` sets it. Without, time is
// printed only.
var bound = flag.Duration("deploy.resume", 0, "how long after the sentinels name a new master the first lock may come")

// sentinelUsers are one that may do what docs/reference/deployments.md says of locks and of Sentinel, and one
// without the latter.
func sentinelUsers(t *testing.T) redistest.Option {
	rules := append([]string{"on", ">" + password, "resetchannels"}, least(t, "client", "locks", "replicas")...)
	bare := strings.Join(rules, " ")
	return redistest.WithACL("bare "+bare, user+" "+bare+" "+strings.Join(least(t, "sentinel"), " "), replicator)
}

// replicator is the user as whom replicas log in: a replica that may not any more has no news.
const replicator = "replicator on >secret +psync +replconf +ping"

func startSentinels(t *testing.T, replicas int) *redistest.Sentinels {
	t.Helper()
	return redistest.StartSentinels(t, replicas, sentinelUsers(t),
		redistest.WithConfig("masteruser replicator", "masterauth secret"))
}

// sentinelSite is where a client finds its servers by sentinels.
func sentinelSite(x *redistest.Sentinels) site {
	return site{Site: harness.Site{Addrs: x.Addrs(), Sentinels: true, User: user, Password: password}}
}

// Under load, the master dies. Locking resumes on the replica; a lock that the replica had heard
// of is held all the time, and its waiter gets it when it is released.
func TestAFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		x := startSentinels(t, 1)
		at := sentinelSite(x)
		// Sentinels may take half a minute, on a machine that stands still.
		var renewed atomic.Int64
		opts := []mortise.ClientOption{mortise.WithWatchdogTimeout(patience), mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.Event) {
				if e.Name == "orders:held" {
					renewed.Add(1)
				}
			},
		})}
		a, b := ready(t, s.open(t, at), opts...), ready(t, s.open(t, at), opts...)
		ctx := within(t, 3*patience)
		bare := at
		bare.User = "bare"
		err := client(t, s.open(t, bare)).Ping(ctx)
		harness.ErrorIf(t, (s.name == "go-redis") != (err == nil) || err != nil && !unavailable(err),
			"without the row of Sentinel: %v", err)

		held := harness.Must(lockUntilAvailable(ctx, a, "orders:held"))(t)
		waits := waiting(b, ctx, "orders:held")
		master := x.Master()
		eventually(t, "it waits", func() bool {
			return strings.Contains(fmt.Sprint(master.Must("PUBSUB", "CHANNELS")), "{orders:held}")
		})

		// Eight of them take turns at two names.
		load := (&crew{t: t, forgets: true}).work(ctx, []string{"orders:0", "orders:1"}, a, b)
		load.progress()
		replica := x.Servers[1]
		eventually(t, "the replica has heard of the lock",
			func() bool { return replica.Must("EXISTS", "orders:held") == int64(1) })

		master.Stop()
		stopped := time.Now()
		harness.FatalIf(t, x.AwaitMasterAfter(master) != replica, "the replica is not the master")
		named := time.Now()
		t.Logf("the sentinels named a new master %v after the old one was killed", named.Sub(stopped).Round(time.Millisecond))
		load.resumes(named, "a new master was named")
		load.progress()
		load.end()

		eventually(t, "the watchdog renews it on the new master", func() bool { return renewed.Load() > 0 })
		still(t, waits)
		harness.Checkf(t, held.Err(), "the lock that was held")
		eventually(t, "it is waited for on the new master", func() bool {
			return strings.Contains(fmt.Sprint(replica.Must("PUBSUB", "CHANNELS")), "{orders:held}")
		})
		harness.Check(t, held.Unlock(ctx))
		ended(t, "the waiter for it", waits)
	})
}

// What docs/explanation/guarantees.md says of a failover: a lock of which the replica had not heard is lost.
// Its holder is told so at its next renewal, and another may have it by then.
func TestALockThatTheReplicaHadNotHeardOfIsLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		x := startSentinels(t, 1)
		at := sentinelSite(x)
		// Its first renewal comes after ten seconds: after the failover.
		a, b := ready(t, s.open(t, at)), ready(t, s.open(t, at))
		ctx := within(t, 3*patience)

		master, replica := x.Servers[0], x.Servers[1]
		master.Must("ACL", "SETUSER", "replicator", "off")
		master.Must("CLIENT", "KILL", "USER", "replicator")
		eventually(t, "the replica has no news", func() bool { return replica.Info("master_link_status") == "down" })
		lease := harness.Must(lockUntilAvailable(ctx, a, "orders:1"))(t)
		master.Stop()
		harness.FatalIf(t, x.AwaitMasterAfter(master) != replica, "the replica is not the master")
		next, err := lockUntilAvailable(ctx, b, "orders:1")
		harness.FatalIf(t, err != nil, "the new master does not have the lock, and another does not get it: %v", err)
		harness.Receive(t, patience, "the holder is told", lease.Context().Done())
		harness.CheckIsf(t, context.Cause(lease.Context()), mortise.ErrLost, "the holder is told")
		harness.CheckIsf(t, lease.Unlock(ctx), mortise.ErrLost, "its Unlock")
		harness.Check(t, next.Err()) // that Unlock touched nothing
		harness.Check(t, next.Unlock(ctx))
	})
}
