//go:build unix

package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Slots is how many there are.
const Slots = 16384

// Cluster is a Redis Cluster: masters that share the slots evenly, and maybe replicas. Its
// methods are called from the test's goroutine.
type Cluster struct {
	t       testing.TB
	Masters []*Server // as they were at the start
}

// StartCluster starts masters and waits until each of them knows which has which slot.
func StartCluster(t testing.TB, masters int, opts ...Option) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range masters {
		c.Masters = append(c.Masters, c.start(opts))
	}
	for i, s := range c.Masters {
		s.Must("CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1)) // else they have to settle it first
		s.Must("CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(Slots*i/masters), fmt.Sprint(Slots*(i+1)/masters-1))
		c.meet(s)
	}
	c.Settle()
	return c
}

func (c *Cluster) start(opts []Option) *Server {
	c.t.Helper()
	return Start(c.t, slices.Concat([]Option{
		func(s *Server) { s.member = true },
		WithConfig("cluster-enabled yes", "cluster-require-full-coverage no", "cluster-node-timeout 15000",
			"repl-diskless-sync-delay 0"),
	}, opts)...)
}

func (c *Cluster) meet(s *Server) {
	c.t.Helper()
	first := c.Masters[0]
	s.Must("CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(first.port), fmt.Sprint(first.bus))
}

// Addrs are the addresses of the masters.
func (c *Cluster) Addrs() []string { return addrs(c.Masters) }

func addrs(servers []*Server) (all []string) {
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return all
}

// Settle waits until all masters are up, agree on which has which slot, and are linked with each
// other: what one publishes reaches the others.
func (c *Cluster) Settle() {
	c.t.Helper()
	c.until("the masters to agree", func() bool {
		var first string
		for _, s := range c.Masters {
			info, err := s.Do("CLUSTER", "INFO")
			if err != nil || !strings.Contains(fmt.Sprint(info), "cluster_state:ok") ||
				!strings.Contains(fmt.Sprint(info), fmt.Sprint("cluster_slots_ok:", Slots)) {
				return false
			}
			slots := fmt.Sprint(s.Must("CLUSTER", "SLOTS"))
			if first == "" {
				first = slots
			}
			if slots != first || !linked(s) {
				return false
			}
		}
		return true
	})
}

// linked tells whether a node has a link to all others that it knows.
func linked(s *Server) bool {
	for line := range strings.Lines(fmt.Sprint(s.Must("CLUSTER", "NODES"))) {
		if !strings.Contains(line, "myself") && !strings.Contains(line, " connected") {
			return false
		}
	}
	return true
}

// Replica starts a replica of one of the masters and waits until it has its data.
func (c *Cluster) Replica(of *Server, opts ...Option) *Server {
	c.t.Helper()
	s := c.start(opts)
	c.meet(s)
	id := fmt.Sprint(of.Must("CLUSTER", "MYID"))
	c.until("a replica to know its master", func() bool {
		return strings.Contains(fmt.Sprint(s.Must("CLUSTER", "NODES")), id)
	})
	s.Must("CLUSTER", "REPLICATE", id)
	c.until("a replica to have its master's data", s.InStep)
	c.until("all to know the replica", func() bool {
		me := fmt.Sprint(s.Must("CLUSTER", "MYID"))
		for _, m := range c.Masters {
			known := false
			for line := range strings.Lines(fmt.Sprint(m.Must("CLUSTER", "NODES"))) {
				known = known || strings.HasPrefix(line, me) && strings.Contains(line, "slave "+id)
			}
			if !known {
				return false
			}
		}
		return true
	})
	return s
}

// Failover makes a replica take over from its master.
func (c *Cluster) Failover(replica *Server) {
	c.t.Helper()
	c.until("a replica to be linked with all others", func() bool { return linked(replica) })
	// Its request for votes is sent once: where one is lost, or refused because the voter has
	// not yet heard of a slot that moved, the next comes after four node timeouts. So the
	// second time it takes over without being elected.
	var asked time.Time
	how := []string{"CLUSTER", "FAILOVER"}
	c.until("a replica to take over", func() bool {
		if strings.Contains(fmt.Sprint(replica.Must("ROLE")), "master") {
			return true
		}
		if time.Since(asked) > 6*time.Second { // it gives up after 5
			_, _ = replica.Do(how...)
			asked, how = time.Now(), []string{"CLUSTER", "FAILOVER", "TAKEOVER"}
		}
		return false
	})
}

// Master is the one that has a slot.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	for _, s := range c.Masters {
		me := fmt.Sprint(s.Must("CLUSTER", "MYID"))
		for _, r := range s.Must("CLUSTER", "SLOTS").([]any) {
			r := r.([]any)
			if int64(slot) >= r[0].(int64) && int64(slot) <= r[1].(int64) && r[2].([]any)[2] == me {
				return s
			}
		}
	}
	c.t.Fatalf("redistest: no master has slot %d", slot)
	return nil
}

// NamesOn are names whose slots a master had at the start. Slot computes the slot of a name.
func (c *Cluster) NamesOn(master, n int, slot func(name string) int) (names []string) {
	masters := len(c.Masters)
	for i := 0; len(names) < n; i++ {
		name := fmt.Sprint("name", i)
		if at := slot(name); at >= Slots*master/masters && at < Slots*(master+1)/masters {
			names = append(names, name)
		}
	}
	return names
}

// Move moves a slot and its keys to another master, as redis-cli does; between is called,
// unless it is nil, when the keys are there and the slot is not yet.
func (c *Cluster) Move(slot int, to *Server, between func()) {
	c.t.Helper()
	m := c.Migrate(slot, to)
	m.MoveKeys()
	if between != nil {
		between()
	}
	m.Finish()
}

// Migration is a slot on its way to another master.
type Migration struct {
	c        *Cluster
	slot     string
	from, to *Server
}

// Migrate begins to move a slot: its keys are where they were, new ones come to the other
// master.
func (c *Cluster) Migrate(slot int, to *Server) *Migration {
	c.t.Helper()
	m := &Migration{c, fmt.Sprint(slot), c.Master(slot), to}
	m.insist(to, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", fmt.Sprint(m.from.Must("CLUSTER", "MYID")))
	m.insist(m.from, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", fmt.Sprint(to.Must("CLUSTER", "MYID")))
	return m
}

// insist repeats a command until a server takes it: one that was just restarted may refuse it.
func (m *Migration) insist(on *Server, args ...string) (reply any) {
	m.c.t.Helper()
	m.c.until(strings.Join(args, " "), func() bool {
		var err error
		reply, err = on.Do(args...)
		return err == nil
	})
	return reply
}

// MoveKey moves one key.
func (m *Migration) MoveKey(key string) {
	m.c.t.Helper()
	// REPLACE: an attempt that broke off may have left something.
	m.insist(m.from, "MIGRATE", "127.0.0.1", fmt.Sprint(m.to.port), key, "0", "30000", "REPLACE")
}

// MoveKeys moves all that are left.
func (m *Migration) MoveKeys() {
	m.c.t.Helper()
	for {
		keys := m.insist(m.from, "CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.MoveKey(key.(string))
		}
	}
}

// Finish gives the slot to the other master.
func (m *Migration) Finish() {
	m.c.t.Helper()
	id := fmt.Sprint(m.to.Must("CLUSTER", "MYID"))
	m.insist(m.to, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
	m.insist(m.from, "CLUSTER", "SETSLOT", m.slot, "NODE", id)
}

func (c *Cluster) until(what string, holds func() bool) {
	c.t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, s := range c.Masters {
				info, err := s.Do("CLUSTER", "INFO")
				nodes, _ := s.Do("CLUSTER", "NODES")
				c.t.Logf("%s: %v %v\n%v", s.Addr(), info, err, nodes)
			}
			c.t.Fatalf("redistest: waited %v for %s", patience, what)
		}
	}
}
