package deploy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/redisproto"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// replicated asks for one replica. A master asks its replicas once for each WAIT how far they are, else each
// second: one that comes while WAIT waits is heard of late, so WAITs are short.
var replicated = mortise.WithReplicas(1, 300*time.Millisecond)

// crew locks names again and again, each with several goroutines, and counts, outside Redis, which
// of them are inside.
type crew struct {
	t       *testing.T
	opts    []mortise.Option
	forgets bool // what is confirmed may be lost in a failover: docs/explanation/guarantees.md
	turns   atomic.Int64
	last    atomic.Pointer[time.Time] // of the last turn
	stop    context.CancelFunc
	wg      sync.WaitGroup
}

// work has a crew fight for names with replicated locks.
func work(ctx context.Context, t *testing.T, names []string, clients ...*mortise.Client) *crew {
	return (&crew{t: t, opts: []mortise.Option{replicated}}).work(ctx, names, clients...)
}

// work has four goroutines fight for each name, with locks of one of the clients each. An Unlock must
// never say that the lock was not held, unless the deployment forgets.
func (x *crew) work(ctx context.Context, names []string, clients ...*mortise.Client) *crew {
	ctx, x.stop = context.WithCancel(ctx)
	for _, name := range names {
		inside := new(atomic.Int64)
		for i := range 4 {
			x.wg.Go(func() {
				for ctx.Err() == nil && x.turn(ctx, clients[i%len(clients)], name, inside) {
				}
			})
		}
	}
	x.t.Cleanup(x.end)
	return x
}

// turn is false where the crew is to end.
func (x *crew) turn(ctx context.Context, locks *mortise.Client, name string, inside *atomic.Int64) bool {
	lease, err := locks.Lock(ctx, name, x.opts...)
	if err != nil {
		if ctx.Err() == nil && !unavailable(err) {
			x.t.Errorf("Lock: %v", err)
			return false
		}
		return true
	}
	n := inside.Add(1)
	harness.ErrorIf(x.t, n != 1 && !x.forgets, "%d of them hold %s", n, name)
	time.Sleep(rand.N(2 * time.Millisecond))
	inside.Add(-1)
	now := time.Now()
	x.last.Store(&now)
	x.turns.Add(1)
	err = lease.Unlock(ctx)
	harness.ErrorIf(x.t, err != nil && ctx.Err() == nil && !unavailable(err) &&
		!(x.forgets && errors.Is(err, mortise.ErrLost)),
		"Unlock: %v", err)
	return true
}

func (x *crew) end() {
	x.stop()
	x.wg.Wait()
}

// progress waits for some more turns.
func (x *crew) progress() {
	x.t.Helper()
	then := x.turns.Load()
	eventually(x.t, "they take turns", func() bool { return x.turns.Load() > then+20 })
}

// resumes waits for the first turn that ends after a time, and holds that to the bound.
func (x *crew) resumes(since time.Time, what string) {
	x.t.Helper()
	eventually(x.t, "locking resumes", func() bool { last := x.last.Load(); return last != nil && last.After(since) })
	took := x.last.Load().Sub(since)
	x.t.Logf("%s: the first turn was over %v later", what, took.Round(time.Millisecond))
	harness.ErrorIf(x.t, *bound > 0 && took > *bound, "%s: locking resumed %v later", what, took)
}

// Under load, and while locks are being taken, the master dies. Every lock that was had with WithReplicas is
// held on the new master, and no other client gets one of them, nor one that is fought for. The master dies at
// once, or some time after its replica was cut off: then a lock that was taken without is lost.
func TestAFailoverLosesNoLockThatAReplicaHad(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		t.Run("at once", func(t *testing.T) { failover(t, s, false) })
		t.Run("cut off before", func(t *testing.T) { failover(t, s, true) })
	})
}

func failover(t *testing.T, s stack, cut bool) {
	x := startSentinels(t, 1)
	at := sentinelSite(x)
	long := mortise.WithWatchdogTimeout(5 * patience)
	a, b := ready(t, s.open(t, at), long), ready(t, s.open(t, at), long)
	ctx := within(t, 4*patience)
	load := work(ctx, t, []string{"orders:1", "orders:2", "orders:3", "orders:4"}, a, b)
	load.progress()

	// Locks are taken and kept, until that fails.
	var mu sync.Mutex
	var kept []*mortise.Lease
	var taking sync.WaitGroup
	for i := range 4 {
		taking.Go(func() {
			for n := 0; ; n++ {
				lease, err := a.Lock(ctx, fmt.Sprint("orders:kept:", i, ":", n), replicated)
				if err != nil {
					if !unavailable(err) {
						t.Error(err)
					}
					return
				}
				mu.Lock()
				kept = append(kept, lease)
				mu.Unlock()
			}
		})
	}
	eventually(t, "locks are kept", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(kept) >= 200
	})
	master, replica := x.Servers[0], x.Servers[1]
	var hole *mortise.Lease
	if cut {
		master.Must("ACL", "SETUSER", "replicator", "off")
		master.Must("CLIENT", "KILL", "USER", "replicator")
		taking.Wait()
		load.end() // its names are held where their releases are not heard of
		hole = harness.Must(a.Lock(ctx, "orders:hole"))(t)
		harness.CheckIsf(t, harness.Err(a.Lock(ctx, "orders:none", replicated)), mortise.ErrNotReplicated,
			"while the replica is cut off")
	}
	master.Stop()
	taking.Wait()
	harness.FatalIf(t, x.AwaitMasterAfter(master) != replica, "the replica is not the master")
	t.Logf("%d locks were kept when the master died", len(kept))
	for _, lease := range kept {
		harness.Checkf(t, lease.Err(), "%s", lease.Name())
		stranger, err := tryUntilAvailable(ctx, b, lease.Name())
		harness.ErrorIf(t, !errors.Is(err, mortise.ErrNotAcquired),
			"%s is held, and another's TryLock comes to %v, %v", lease.Name(), stranger, err)
	}

	if cut {
		_, err := tryUntilAvailable(ctx, b, hole.Name())
		harness.ErrorIf(t, err != nil, "what was taken without a replica is not lost: %v", err)
		_, err = lockUntilAvailable(ctx, a, "orders:found") // a's client library has found the new master, too
		harness.ErrorIf(t, err != nil, "a client goes on at the new master: %v", err)
		harness.CheckIsf(t, hole.Unlock(ctx), mortise.ErrLost, "and its holder's Unlock")
	}

	// There is no replica any more, so no lock is had; with the next one, they are.
	_, err := lockReplicated(ctx, a, "orders:alone")
	harness.CheckIsf(t, err, mortise.ErrNotReplicated, "without a replica")
	redistest.StartReplica(t, replica, redistest.WithConfig("masteruser replicator", "masterauth secret"))
	since := time.Now()
	if cut {
		load = work(ctx, t, []string{"orders:5", "orders:6"}, a, b)
	}
	load.resumes(since, "the new master had a replica")
	load.progress()
	load.end()
	for _, lease := range kept {
		gives(t, ctx, lease)
	}
}

// until asks again while the store is unavailable.
func until(ctx context.Context, ask func() (*mortise.Lease, error)) (*mortise.Lease, error) {
	for {
		lease, err := ask()
		if err == nil || !unavailable(err) || errors.Is(err, mortise.ErrNotReplicated) || ctx.Err() != nil {
			return lease, err
		}
	}
}

func tryUntilAvailable(ctx context.Context, locks *mortise.Client, name string) (*mortise.Lease, error) {
	return until(ctx, func() (*mortise.Lease, error) { return locks.TryLock(ctx, name) })
}

func lockUntilAvailable(ctx context.Context, locks *mortise.Client, name string,
	opts ...mortise.Option) (*mortise.Lease, error) {
	return until(ctx, func() (*mortise.Lease, error) { return locks.Lock(ctx, name, opts...) })
}

// lockReplicated is Lock with a replica.
func lockReplicated(ctx context.Context, locks *mortise.Client, name string) (*mortise.Lease, error) {
	return lockUntilAvailable(ctx, locks, name, replicated)
}

// otherMaster is one that does not have a slot.
func otherMaster(c *redistest.Cluster, slot int) *redistest.Server {
	if c.Masters[0] == c.Master(slot) {
		return c.Masters[1]
	}
	return c.Masters[0]
}

// A slot moves to another master, whose replicas then count, and that one fails over, while its
// locks are fought for.
func TestASlotMovesAndFailsOverUnderReplicatedLocks(t *testing.T) {
	t.Parallel()
	slot := redisproto.Slot("{orders}")
	each(t, func(t *testing.T, s stack) {
		acl := redistest.WithACL(suiteUser(t))
		stay := redistest.WithConfig("cluster-allow-replica-migration no") // where one has two, and another none
		c := redistest.StartCluster(t, 3, acl, stay)
		from, to := c.Master(slot), otherMaster(c, slot)
		c.Replica(from, acl, stay)
		next := c.Replica(to, acl, stay)
		c.Replica(to, acl, stay)
		at := clustered(c).as(user, password)
		long := mortise.WithWatchdogTimeout(5 * patience)
		a, b := ready(t, s.open(t, at), long), ready(t, s.open(t, at), long)
		ctx := within(t, 5*patience)
		var kept *mortise.Lease
		eventually(t, "a lock is had with a replica", func() (had bool) {
			var err error
			kept, err = lockReplicated(ctx, a, "{orders}kept")
			return err == nil
		})
		load := work(ctx, t, []string{"{orders}1", "{orders}2", "{orders}3"}, a, b)
		load.progress()

		m := c.Migrate(slot, to)
		m.MoveKeys()
		fresh := harness.Must(lockReplicated(ctx, a, "{orders}fresh"))(t) // which the new master has, by ASK
		m.MoveKeys()
		m.Finish()
		load.resumes(time.Now(), "the slot had moved")
		load.progress()

		c.Failover(next)
		load.resumes(time.Now(), "the replica had taken over")
		load.progress()
		load.end()
		for _, lease := range []*mortise.Lease{kept, fresh} {
			harness.CheckIsf(t, harness.Err(tryUntilAvailable(ctx, b, lease.Name())), mortise.ErrNotAcquired,
				"%s is held, and another's TryLock comes to", lease.Name())
			gives(t, ctx, lease)
		}
	})
}

// A replica that has stopped, but is connected: the error comes in time, nothing is left, and no other client
// is held up. A timeout may be longer than the client library waits for other replies.
func TestAReplicaThatHasStopped(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		replica := redistest.StartReplica(t, srv)
		at := server(srv.Addr())
		a, b := ready(t, s.open(t, at)), ready(t, s.open(t, at))
		ctx := within(t, 2*patience)
		once := func(wait time.Duration) {
			t.Helper()
			began := time.Now()
			_, err := a.Lock(ctx, "1", mortise.WithReplicas(1, wait))
			took := time.Since(began)
			harness.ErrorIf(t, !errors.Is(err, mortise.ErrNotReplicated) ||
				!strings.Contains(fmt.Sprint(err), "0 of 1 replicas"),
				"after %v: %v", took, err)
			harness.ErrorIf(t, took < wait, "after %v, want %v", took, wait)
			lease, err := b.TryLock(ctx, "1")
			if err != nil {
				t.Errorf("it is not free: %v", err)
				return
			}
			harness.Check(t, lease.Unlock(ctx))
		}
		replica.Pause()
		defer replica.Resume()
		once(100 * time.Millisecond)
		once(4 * time.Second)

		// Fifty wait for the replica, and one does not.
		many, cancel := context.WithCancel(ctx)
		defer cancel()
		done := make(chan error, 50)
		for i := range cap(done) {
			go func() {
				_, err := a.Lock(many, fmt.Sprint("many:", i), mortise.WithReplicas(1, 20*time.Second))
				done <- err
			}()
		}
		eventually(t, "some of them wait", func() bool {
			return strings.Count(fmt.Sprint(srv.Must("CLIENT", "LIST")), "cmd=wait") >= min(cap(done), 5)
		})
		began := time.Now()
		harness.Check(t, mortise.Do(ctx, a, "2", func(context.Context) error { return nil }))
		took := time.Since(began)
		harness.ErrorIf(t, took > 10*time.Second, "a call that wants no replica is held up for %v", took)
		replica.Resume()
		for range cap(done) {
			ended(t, "the call that waits for the replica", done)
		}
		cancel()
	})
}

// The script and WAIT are on their way before the script's reply: one round trip.
func TestWaitGoesOutWithTheScript(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		srv := redistest.Start(t)
		redistest.StartReplica(t, srv)
		p := newHolding(t, srv.Addr())
		locks := ready(t, s.open(t, server(p.Addr())))
		ctx := within(t, patience)
		lease := harness.Must(locks.Lock(ctx, "1", replicated))(t)
		harness.ErrorIf(t, p.pairs.Load() != 1, "%d scripts with WAIT behind them, want 1", p.pairs.Load())
		harness.Check(t, harness.Err(locks.Lock(lease.Context(), "1", replicated)))
		harness.ErrorIf(t, p.pairs.Load() != 2, "%d scripts with WAIT behind them, want 2", p.pairs.Load())
	})
}

// holding is a relay that keeps the reply to EVAL until WAIT has come on the same connection.
type holding struct {
	*redistest.Relay
	pairs atomic.Int64
}

func newHolding(t *testing.T, upstream string) *holding {
	p := new(holding)
	p.Relay = redistest.NewRelay(t, upstream, func(l *redistest.Line) (up, down func()) {
		waited := make(chan struct{}, 1) // full while no script is without WAIT
		waited <- struct{}{}
		return func() { p.requests(l, waited) }, func() { replies(l, waited) }
	})
	return p
}

func (p *holding) requests(l *redistest.Line, waited chan struct{}) {
	waits := false
	for c := range l.Chunks(l.Client) {
		sent := bytes.ToUpper(c.Data)
		if !waits && bytes.Contains(sent, []byte("\r\nEVAL\r\n")) {
			<-waited
			waits = true
		}
		if waits && bytes.Contains(sent, []byte("\r\nWAIT\r\n")) {
			p.pairs.Add(1)
			waited <- struct{}{}
			waits = false
		}
		if _, err := l.Server.Write(c.Data); err != nil {
			return
		}
	}
}

func replies(l *redistest.Line, waited chan struct{}) {
	for c := range l.Chunks(l.Server) {
		select {
		case <-waited:
		case <-l.Dead():
			return
		}
		_, err := l.Client.Write(c.Data)
		waited <- struct{}{}
		if err != nil {
			return
		}
	}
}
