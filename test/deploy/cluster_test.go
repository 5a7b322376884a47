package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// A slot moves while its locks are held, waited for, renewed, released and fought for: with all keys
// still at the old master, with some, with all at the new one, and after it. The lock
// that is held is renewed in each of these states but the second, in which Redis refuses
// commands about several keys of the slot; a release that is refused then goes on by itself.
func TestASlotMovesWhileItsLocksAreHeld(t *testing.T) {
	t.Parallel()
	const held, freed, turns = "{orders}:held", "{orders}:freed", "{orders}:turns"
	slot := redisproto.Slot(held)
	each(t, func(t *testing.T, s stack) {
		c := redistest.StartCluster(t, 3)
		at := clustered(c)
		var renewed, tried atomic.Int64
		count := mortise.WithObserver(mortise.Observer{
			Renewed: func(e mortise.Event) {
				if e.Name == held {
					renewed.Add(1)
					tried.Add(1)
				}
			},
			RenewalFailed: func(e mortise.Event) {
				if e.Name == held {
					tried.Add(1)
				}
			},
		})
		// Renewed every four seconds.
		a, b := ready(t, s.open(t, at), count, mortise.WithWatchdogTimeout(12*time.Second)), ready(t, s.open(t, at))
		ctx := within(t, 4*patience)
		lease := harness.Must(lockUntilAvailable(ctx, a, held))(t)
		other := harness.Must(lockUntilAvailable(ctx, a, freed))(t)
		waits, next := waiting(b, ctx, held), waiting(b, ctx, freed)
		eventually(t, "both are waited for", func() bool { return listens(c, held) && listens(c, freed) })

		load := (&crew{t: t, opts: []mortise.Option{mortise.WithLease(time.Hour)}}).work(ctx, []string{turns}, a, b)
		renews := func(state string) {
			t.Helper()
			then := renewed.Load() // the next may have been sent before
			eventually(t, "renewed "+state, func() bool { return renewed.Load() > then+1 })
			harness.OKf(t, lease.Err(), "%s", state)
			still(t, waits)
		}

		load.progress()
		m := c.Migrate(slot, otherMaster(c, slot))
		renews("with all keys at the old master")
		m.MoveKey(held)
		then := tried.Load()
		eventually(t, "a renewal is tried with some keys at the old master, and some at the new one",
			func() bool { return tried.Load() > then })
		m.MoveKeys()
		renews("with all keys at the new master")
		gives(t, ctx, other)
		m.Finish()
		ended(t, "the waiter for what was released on the way", next)
		renews("at the new master")
		load.progress()
		load.end()
		harness.Check(t, lease.Unlock(ctx))
		ended(t, "the waiter of all the time", waits)
	})
}

// One of three masters hangs: leases on the others are renewed as ever.
func TestAHungNodeLosesNoLeaseElsewhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		const watchdog = 4 * time.Second
		c := redistest.StartCluster(t, 3)
		locks := ready(t, s.open(t, clustered(c)), mortise.WithWatchdogTimeout(watchdog))
		ctx := within(t, 4*patience)
		held := map[int][]*mortise.Lease{}
		for _, master := range []int{0, 1, 2} {
			for _, name := range c.NamesOn(master, 5, redisproto.Slot) {
				lease := harness.Must(lockUntilAvailable(ctx, locks, name))(t)
				held[master] = append(held[master], lease)
			}
		}
		c.Masters[0].Pause()
		t.Cleanup(c.Masters[0].Resume)
		for _, lease := range held[0] {
			ended(t, "a lease on the node that hangs is lost", failing(lease))
		}
		select { // until renewals elsewhere would have been given up, too
		case <-time.After(2 * watchdog):
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
		lost := 0
		for _, master := range []int{1, 2} {
			for _, lease := range held[master] {
				if err := lease.Err(); err != nil {
					lost++
					t.Log(err)
				}
			}
		}
		harness.ErrorIf(t, lost > 0, "%d of %d leases on nodes that answer are lost", lost, len(held[1])+len(held[2]))
	})
}

// failing sends nil when a lease is lost.
func failing(lease *mortise.Lease) <-chan error {
	lost := make(chan error, 1)
	context.AfterFunc(lease.Context(), func() {
		if err := lease.Err(); errors.Is(err, mortise.ErrLost) {
			lost <- nil
		} else {
			lost <- err
		}
	})
	return lost
}

// Callers of locks on a master that hangs do not hold up those of locks elsewhere.
func TestCallersAtAHungNodeHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s stack) {
		c := redistest.StartCluster(t, 3)
		locks := ready(t, s.open(t, clustered(c)))
		ctx := within(t, 4*patience)
		// Each node has been reached.
		for _, name := range slices.Concat(c.NamesOn(0, 1, redisproto.Slot), c.NamesOn(1, 1, redisproto.Slot),
			c.NamesOn(2, 1, redisproto.Slot)) {
			lease := harness.Must(lockUntilAvailable(ctx, locks, name))(t)
			harness.OK(t, lease.Unlock(ctx))
		}
		c.Masters[0].Pause()
		t.Cleanup(c.Masters[0].Resume)
		hopeless, leave := context.WithCancel(ctx)
		var callers, asking sync.WaitGroup
		for _, name := range c.NamesOn(0, 400, redisproto.Slot) {
			asking.Add(1)
			callers.Go(func() {
				asking.Done()
				if lease, err := locks.TryLock(hopeless, name); err == nil {
					t.Errorf("%s: locked at a node that hangs", lease.Name())
				}
			})
		}
		asking.Wait()
		for _, name := range append(c.NamesOn(1, 10, redisproto.Slot), c.NamesOn(2, 10, redisproto.Slot)...) {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			lease, err := locks.TryLock(soon, name)
			cancel()
			harness.FatalIf(t, err != nil, "beside 400 callers at a node that hangs: %v", err)
			harness.Check(t, lease.Unlock(ctx))
		}
		leave()
		callers.Wait()
	})
}

// A user that may not ask whether the servers know sharded pub/sub goes on without it. One that may needs all
// of the row of clusters, and where something is missing, the error says so.
func TestTheLeastUserOnACluster(t *testing.T) {
	t.Parallel()
	kinds, extras := least(t, "client", "locks"), quiet(t, "client", "locks", "cluster")
	extras = slices.DeleteFunc(extras, func(rule string) bool { return slices.Contains(least(t, "cluster"), rule) })
	c := redistest.StartCluster(t, 3)
	each(t, func(t *testing.T, s stack) {
		needed, extras := least(t, "cluster"), extras
		if s.name != "go-redis" && c.Masters[0].Major() >= 8 {
			needed = append(needed, "+cluster|shards")
			extras = slices.DeleteFunc(slices.Clone(extras), func(rule string) bool { return rule == "+cluster|shards" })
		}
		n := 0
		once := func(rules []string) error {
			n++
			as := strings.ReplaceAll(fmt.Sprint(s.name, n), "/", "-")
			for _, m := range c.Masters {
				m.Must(slices.Concat([]string{"ACL", "SETUSER", as, "on", ">" + password, "resetchannels"}, rules)...)
			}
			at := clustered(c).as(as, password)
			v := &visitor{t: t, ctx: within(t, patience), name: fmt.Sprint("orders:", s.name, n)}
			v.listening = func() bool { return listens(c, v.name) }
			v.a, v.b = client(t, s.open(t, at)), client(t, s.open(t, at))
			return v.tour(func(v *visitor) {
				v.try(v.a.Ping(v.ctx))
				v.lock(v.a, v.b)
			})
		}
		visit := func(rules []string) error { return persist(func() error { return once(rules) }) }
		harness.Checkf(t, visit(slices.Concat(kinds, needed)), "the row is not enough")
		harness.OKf(t, visit(slices.Concat(kinds, needed, extras)), "with all that may be left out")
		for i, rule := range needed {
			err := visit(slices.Concat(kinds, needed[:i], needed[i+1:], extras))
			if err == nil {
				t.Errorf("%s is not needed", rule)
			} else if !permission(err) {
				t.Errorf("without %s the error does not say what to do: %v", rule, err)
			}
		}
	})
}

// listens reports whether a client listens for releases of a name, sharded or not.
func listens(c *redistest.Cluster, name string) bool {
	return slices.ContainsFunc(c.Masters, func(m *redistest.Server) bool {
		for _, kind := range []string{"CHANNELS", "SHARDCHANNELS"} {
			all, err := m.Do("PUBSUB", kind)
			if err == nil && strings.Contains(fmt.Sprint(all), name) {
				return true
			}
		}
		return false
	})
}
