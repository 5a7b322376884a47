package deploy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/internal/redistest"
)

// bound is how long locking may take to resume: `make failover` sets it. Without, time is
// printed only.
var bound = flag.Duration("deploy.resume", 0, "how long after the sentinels name a new master the first lock may come")

// sentinelUsers are one who may do what docs/deployments.md says of locks and of Sentinel, and one
// without the latter.
func sentinelUsers(t *testing.T) redistest.Option {
	rows := permissions(t, least)
	rules := slices.Concat([]string{"on", ">" + password, "resetchannels"}, rows["every kind"], rows["locks, `LockAll`"], rows["`WithReplicas`"])
	bare := strings.Join(rules, " ")
	return redistest.WithACL("bare "+bare, user+" "+bare+" "+strings.Join(rows[sentinels], " "), replicator)
}

// replicator is the user as whom replicas log in: who may not any more, has no news.
const replicator = "replicator on >secret +psync +replconf +ping"

func startSentinels(t *testing.T, replicas int) *redistest.Sentinels {
	t.Helper()
	return redistest.StartSentinels(t, replicas, sentinelUsers(t),
		redistest.WithConfig("masteruser replicator", "masterauth secret"))
}

// Under load, the master dies. Locking resumes on the replica; a lock that the replica had heard
// of is held all the time, and who waits for it gets it when it is released.
func TestAFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		x := startSentinels(t, 1)
		at := site{addrs: x.Addrs(), sentinels: true, user: user, password: password}
		// Sentinels may take half a minute, on a machine that stands still.
		var renewed atomic.Int64
		opts := []mortise.ClientOption{mortise.WithWatchdogTimeout(patience), mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.RenewedEvent) {
				if e.Name == "orders:held" {
					renewed.Add(1)
				}
			},
		})}
		a, b := ready(t, s.open(t, at), opts...), ready(t, s.open(t, at), opts...)
		ctx := within(t, 3*patience)
		bare := at
		bare.user = "bare"
		if err := client(t, s.open(t, bare)).Ping(ctx); (s.name == "go-redis") != (err == nil) || err != nil && !unavailable(err) {
			t.Errorf("without the row of Sentinel: %v", err)
		}

		held, err := lockUntilAvailable(ctx, a, "orders:held")
		if err != nil {
			t.Fatal(err)
		}
		waits := waiting(b, ctx, "orders:held")
		master := x.Master()
		eventually(t, "it waits", func() bool {
			return strings.Contains(fmt.Sprint(master.Must("PUBSUB", "CHANNELS")), "{orders:held}")
		})

		// Eight of them take turns at two names.
		var turns atomic.Int64
		var last atomic.Pointer[time.Time]
		load, stop := context.WithCancel(ctx)
		defer stop()
		done := make(chan error, 8)
		for i := range cap(done) {
			locks := []*mortise.Client{a, b}[i%2]
			go func() {
				for load.Err() == nil {
					lease, err := locks.Lock(load, fmt.Sprint("orders:", i/4))
					if err == nil {
						now := time.Now()
						last.Store(&now)
						turns.Add(1)
						err = lease.Unlock(load)
					}
					// What is confirmed may be lost in a failover: docs/guarantees.md.
					if err != nil && load.Err() == nil && !unavailable(err) && !errors.Is(err, mortise.ErrNotHeld) {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		eventually(t, "they take turns", func() bool { return turns.Load() > 100 })
		replica := x.Servers[1]
		eventually(t, "the replica has heard of the lock", func() bool { return replica.Must("EXISTS", "orders:held") == int64(1) })

		master.Stop()
		stopped := time.Now()
		if x.AwaitMasterAfter(master) != replica {
			t.Fatal("the replica is not the master")
		}
		named := time.Now()
		before := turns.Load()
		if at := last.Load(); at.After(named) {
			before-- // it resumed meanwhile
		}
		eventually(t, "locking resumes", func() bool { return turns.Load() > before })
		took := time.Since(named)
		t.Logf("the sentinels named a new master %v after the old one was killed; %v later somebody had a lock", named.Sub(stopped).Round(time.Millisecond), took.Round(time.Millisecond))
		if *bound > 0 && took > *bound {
			t.Errorf("locking resumed %v after the new master was named", took)
		}
		then := turns.Load()
		eventually(t, "they take turns as before", func() bool { return turns.Load() > then+100 })
		stop()
		for range cap(done) {
			ended(t, "the load", done)
		}

		eventually(t, "the watchdog renews it on the new master", func() bool { return renewed.Load() > 0 })
		still(t, waits)
		if err := held.Err(); err != nil {
			t.Errorf("the lock that was held: %v", err)
		}
		eventually(t, "it is waited for on the new master", func() bool {
			return strings.Contains(fmt.Sprint(replica.Must("PUBSUB", "CHANNELS")), "{orders:held}")
		})
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
		ended(t, "who waited for it", waits)
	})
}

// What docs/guarantees.md says of a failover: a lock of which the replica had not heard is lost.
// Its holder is told so at its next renewal, and somebody else may have it by then.
func TestALockThatTheReplicaHadNotHeardOfIsLost(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		x := startSentinels(t, 1)
		at := site{addrs: x.Addrs(), sentinels: true, user: user, password: password}
		// Its first renewal comes after ten seconds: after the failover.
		a, b := ready(t, s.open(t, at)), ready(t, s.open(t, at))
		ctx := within(t, 3*patience)

		master, replica := x.Servers[0], x.Servers[1]
		master.Must("ACL", "SETUSER", "replicator", "off")
		master.Must("CLIENT", "KILL", "USER", "replicator")
		eventually(t, "the replica has no news", func() bool {
			return strings.Contains(fmt.Sprint(replica.Must("INFO", "replication")), "master_link_status:down")
		})
		lease, err := lockUntilAvailable(ctx, a, "orders:1")
		if err != nil {
			t.Fatal(err)
		}
		master.Stop()
		if x.AwaitMasterAfter(master) != replica {
			t.Fatal("the replica is not the master")
		}
		next, err := lockUntilAvailable(ctx, b, "orders:1")
		if err != nil {
			t.Fatalf("the new master does not have the lock, and another does not get it: %v", err)
		}
		select {
		case <-lease.Context().Done():
		case <-time.After(patience):
			t.Fatal("the holder is not told")
		}
		if err := context.Cause(lease.Context()); !errors.Is(err, mortise.ErrLost) {
			t.Errorf("the holder is told %v", err)
		}
		if err := lease.Unlock(ctx); !errors.Is(err, mortise.ErrLost) {
			t.Errorf("its Unlock: %v", err)
		}
		if err := next.Err(); err != nil { // that Unlock touched nothing
			t.Error(err)
		}
		if err := next.Unlock(ctx); err != nil {
			t.Error(err)
		}
	})
}

// lockUntilAvailable goes on while the store is away.
func lockUntilAvailable(ctx context.Context, locks *mortise.Client, name string) (*mortise.Lease, error) {
	for {
		lease, err := locks.Lock(ctx, name)
		if err == nil || !unavailable(err) {
			return lease, err
		}
	}
}
