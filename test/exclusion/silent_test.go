//go:build linux

package exclusion

import (
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/wire"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// How long a lock is reserved for a client, and when a waiter asks though it was told of nothing.
const (
	reservation = wire.Reservation
	recheck     = 5500 * time.Millisecond
)

// place is where a lock is: on one server, or on a cluster with sharded pub/sub or without.
type place struct {
	name    string
	server  *redistest.Server
	cluster *redistest.Cluster
	site    harness.Site
}

func places(t *testing.T) []place {
	t.Helper()
	server := redistest.Start(t)
	// The second user may not ask whether pub/sub is sharded, so its clients go on without.
	cluster := redistest.StartCluster(t, 3, redistest.WithACL("blind on >pw ~* &* +@all -pubsub"))
	at := harness.Site{Addrs: cluster.Addrs(), Cluster: true}
	blind := at
	blind.User, blind.Password = "blind", "pw"
	return []place{
		{name: "one server", server: server, site: harness.At(server.Addr())},
		{name: "sharded cluster", cluster: cluster, site: at},
		{name: "cluster without sharded pub/sub", cluster: cluster, site: blind},
	}
}

// crew is a crew at the place, whose lock is on its server.
func (p place) crew(t *testing.T) *crew {
	t.Helper()
	// No waiter hopes for the end of a lease.
	c := newCrewAt(t, workerConfig{Workload: "crowd", Watchdog: time.Minute, Site: p.site})
	if c.server = p.server; p.cluster != nil {
		slot := p.cluster.Masters[0].Must("CLUSTER", "KEYSLOT", c.key(0)).(int64)
		c.server = p.cluster.Master(int(slot))
	}
	return c
}

// silences has a process hold the lock, and others stand behind it, the first of which are made silent before its
// release. It returns how long the lock was free for.
func silences(c *crew, client string, silent int, make func(p int)) time.Duration {
	c.t.Helper()
	c.Book.Worker[0].Linger.Store(1)
	first := c.hang(c.start(client, 1))
	for n := range silent + 2 {
		c.start(harness.Libraries[n%2], 1)
		c.Await("it is in the queue", func() bool {
			return c.server.Must("ZCARD", "mortise:1:next:{"+c.key(0)+"}2") == int64(n+1)
		})
	}
	listening := func() (n int) {
		for _, command := range []string{"CHANNELS", "SHARDCHANNELS"} {
			n += len(c.server.Must("PUBSUB", command, "redisson_lock__channel:{"+c.key(0)+"}:to:*").([]any))
		}
		return n
	}
	all := listening() // at this node; without sharded pub/sub others listen elsewhere
	for n := range silent {
		make(1 + n)
	}
	if c.Members[1].Killed && all == silent+2 {
		c.Await("the server has noticed", func() bool { return listening() == 2 })
	}
	harness.OK(c.t, c.Members[0].Cmd.Process.Signal(syscall.SIGTERM)) // it leaves, and does not come again
	next := int64(math.MaxInt64)
	harness.Await(c.t, patience, "another has the lock", func() bool {
		for _, h := range c.Book.All() {
			if h.Process != 0 && h.First != 0 {
				next = min(next, h.First)
			}
		}
		return next < math.MaxInt64
	})
	return time.Duration(next - first.Read(0).Leaving)
}

// within fails the test if a lock was free for longer than a bar allows, and more on a machine that may be busy.
func within(c *crew, free, bar time.Duration) {
	c.t.Helper()
	c.t.Logf("the lock was free for %v, the bar is %v", free.Round(100*time.Microsecond), bar)
	if *fleetFor < fleetTimed {
		bar += slack
	}
	harness.ErrorIf(c.t, free > bar, "the lock was free for %v, want %v at most", free, bar)
}

// eachSilent runs a test for clients of each library at each place; those whose times are asserted one by one.
func eachSilent(t *testing.T, places []place, counts []int, test func(t *testing.T, at place, client string, n int)) {
	for i, at := range places {
		for _, n := range counts {
			run := func(t *testing.T) { test(t, at, harness.Libraries[(i+n)%2], n) }
			if name := fmt.Sprintf("%s, %d", at.name, n); *fleetFor < fleetTimed {
				harness.Beside(t, name, run)
			} else {
				t.Run(name, run)
			}
		}
	}
}

// Clients that were killed at the head of a lock's queue hold the next up no longer than the server takes to count
// them. Where no node counts all subscribers each costs a reservation, and any number of them three.
func TestKilledClientsAtTheHeadOfTheQueue(t *testing.T) {
	eachSilent(t, places(t), []int{1, 5, 20}, func(t *testing.T, at place, client string, dead int) {
		c := at.crew(t)
		free := silences(c, client, dead, c.kill)
		bar := 100 * time.Millisecond
		switch {
		case at.site.User != "":
			bar += time.Duration(min(dead, 3)) * reservation
		case dead == 1:
			bar /= 2
		}
		within(c, free, bar)
		c.Finish()
		v := c.judge()
		harness.ErrorIf(t, v.Overlaps(), "%v\n%s", v, v.Why())
	})
}

// Clients that stand still are told of their reservations as if they lived.
func TestStoppedClientsAtTheHeadOfTheQueue(t *testing.T) {
	eachSilent(t, places(t), []int{1, 3, 8}, func(t *testing.T, at place, client string, stopped int) {
		c := at.crew(t)
		free := silences(c, client, stopped, c.freeze)
		bar := reservation + 100*time.Millisecond
		if stopped > 1 {
			bar = 3*reservation + recheck
		}
		within(c, free, bar)
		for n := range stopped {
			c.thaw(1 + n)
		}
		c.progress("the stopped clients went on", patience)
		c.Finish()
		v := c.judge()
		harness.ErrorIf(t, v.Overlaps(), "%v\n%s", v, v.Why())
	})
}
