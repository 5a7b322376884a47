//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// The deployments.
const (
	standalone = "standalone"
	sentinels  = "sentinel" // a master, a replica and three sentinels
	cluster    = "cluster"  // three masters
)

// commandTimeout is the client libraries', of the lease's size.
const commandTimeout = time.Second

// site is a deployment. Each server stands behind two wires, and each worker process uses
// one of them: so servers can be cut off from all, or from half of them.
type site struct {
	t         *testing.T
	kind      string
	nodes     []*node
	sentinels *redistest.Sentinels
	cluster   *redistest.Cluster
	clients   harness.Site         // what clients are told
	sides     [2]map[string]string // where to connect to instead, by address
}

// node is a server.
type node struct {
	server *redistest.Server
	dir    string
	wires  [2]*wire
}

func newSite(t *testing.T, kind string) *site {
	t.Helper()
	s := &site{t: t, kind: kind}
	debug := redistest.WithConfig("enable-debug-command local", "repl-diskless-sync-delay 0", "repl-backlog-size 1mb")
	s.clients.Timeout = commandTimeout
	switch kind {
	case standalone:
		s.add(redistest.Start(t, debug, redistest.WithAOF()))
		s.clients.Addrs = []string{s.nodes[0].server.Addr()}
	case sentinels:
		s.sentinels = redistest.StartSentinels(t, 1, debug)
		for _, server := range s.sentinels.Servers {
			s.add(server)
		}
		s.clients.Addrs, s.clients.Sentinels = s.sentinels.Addrs(), true
		s.settle()
	case cluster:
		s.cluster = redistest.StartCluster(t, 3, debug, redistest.WithAOF())
		for _, m := range s.cluster.Masters {
			s.add(m)
		}
		s.clients.Addrs, s.clients.Cluster = s.cluster.Addrs(), true
	}
	for side := range s.sides {
		s.sides[side] = map[string]string{}
		for _, n := range s.nodes {
			s.sides[side][n.server.Addr()] = n.wires[side].Addr()
		}
	}
	return s
}

func (s *site) add(server *redistest.Server) {
	s.t.Helper()
	n := &node{server: server, dir: server.Must("CONFIG", "GET", "dir").([]any)[1].(string)}
	for side := range n.wires {
		n.wires[side] = newWire(s.t, server.Addr())
	}
	s.nodes = append(s.nodes, n)
}

// version is that of its servers.
func (s *site) version() string {
	return strings.TrimSpace("Redis " + s.nodes[0].server.Info("redis_version"))
}

// follow makes a server a replica of another.
func (s *site) follow(replica, master *redistest.Server) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(master.Addr())
	replica.Must("REPLICAOF", host, port)
}

// masters are the servers that serve.
func (s *site) masters() []*node {
	if s.kind != sentinels {
		return s.nodes
	}
	return []*node{s.master()}
}

// master is the one that the sentinels name.
func (s *site) master() (m *node) {
	s.t.Helper()
	harness.Await(s.t, patience, "a sentinel names a master", func() bool {
		if server := s.sentinels.Master(); server != nil {
			m = s.node(server)
		}
		return m != nil
	})
	return m
}

// node is the one of a server.
func (s *site) node(server *redistest.Server) *node {
	for _, n := range s.nodes {
		if n.server == server {
			return n
		}
	}
	return nil
}

// tellAll sends a command to all servers that serve.
func (s *site) tellAll(args ...string) {
	for _, n := range s.masters() {
		n.server.Must(args...)
	}
}

// wires are those of all servers on some sides.
func (s *site) wires(sides []int) (all []*wire) {
	for _, n := range s.nodes {
		for _, side := range sides {
			all = append(all, n.wires[side])
		}
	}
	return all
}

// replica is the server that is not the master.
func (s *site) replica() *node {
	m := s.master()
	for _, n := range s.nodes {
		if n != m {
			return n
		}
	}
	return nil
}

// serving is a server that serves; key's, if there is one.
func (s *site) serving(key string) *node {
	if s.kind != cluster || key == "" {
		return s.masters()[0]
	}
	slot := s.cluster.Masters[0].Must("CLUSTER", "KEYSLOT", key).(int64)
	return s.node(s.cluster.Master(int(slot)))
}

// agreed tells whether all sentinels name one master, which is one, and the other replicates it.
func (s *site) agreed() bool {
	var addr string
	for _, x := range s.sentinels.Watch {
		a := masterOf(x)
		if a == "" || addr != "" && a != addr {
			return false
		}
		addr = a
	}
	ok := 0
	for _, n := range s.nodes {
		role, err := n.server.Do("ROLE")
		if err != nil {
			return false
		}
		r := role.([]any)
		switch {
		case n.server.Addr() == addr && r[0] == "master" && len(r[2].([]any)) == 1:
			ok++
		case n.server.Addr() != addr && r[0] == "slave" && r[3] == "connected" && fmt.Sprint(r[1], ":", r[2]) == addr:
			ok++
		}
	}
	if ok != len(s.nodes) {
		return false
	}
	// They know the replica as one that can be promoted, and each other.
	for _, x := range s.sentinels.Watch {
		v, err := x.Do("SENTINEL", "CKQUORUM", redistest.MasterSet)
		if err != nil || !strings.HasPrefix(fmt.Sprint(v), "OK 3 ") {
			return false
		}
		v, err = x.Do("SENTINEL", "REPLICAS", redistest.MasterSet)
		if err != nil || len(v.([]any)) != 1 {
			return false
		}
		for i, field := range v.([]any)[0].([]any) {
			if value := v.([]any)[0].([]any); field == "flags" && value[i+1] != "slave" ||
				field == "master-link-status" && value[i+1] != "ok" {
				return false
			}
		}
	}
	return true
}

// masterOf is the address that a sentinel names; "" if it does not answer.
func masterOf(sentinel *redistest.Server) string {
	v, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", redistest.MasterSet)
	if err != nil || v == nil {
		return ""
	}
	at := v.([]any)
	return net.JoinHostPort(at[0].(string), at[1].(string))
}

// settle waits until the sentinels agree.
func (s *site) settle() {
	s.t.Helper()
	if harness.Awaits(patience, s.agreed) {
		return
	}
	for _, n := range s.nodes {
		role, err := n.server.Do("ROLE")
		s.t.Log(n.server.Addr(), role, err)
	}
	for _, x := range s.sentinels.Watch {
		v, err := x.Do("SENTINEL", "REPLICAS", redistest.MasterSet)
		s.t.Log(x.Addr(), masterOf(x), v, err)
	}
	s.t.Fatalf("the sentinels do not agree within %v", patience)
}

// taken waits until another is master, and all know.
func (s *site) taken(before *node) {
	s.t.Helper()
	harness.Await(s.t, patience, "another is master", func() bool { return s.master() != before })
	// Sentinels make the old master a replica when they see fit.
	next := s.master()
	harness.Await(s.t, patience, "the old master answers", func() bool {
		_, err := before.server.Do("PING")
		return err == nil
	})
	harness.Await(s.t, patience, "the old master follows", func() bool {
		host, port, _ := net.SplitHostPort(next.server.Addr())
		_, err := before.server.Do("REPLICAOF", host, port)
		return err == nil
	})
	s.settle()
}

// move moves the slot of a key to another server, which r picks.
func (s *site) move(r *rand.Rand, key string, slowly time.Duration) {
	s.t.Helper()
	s.cluster.Settle() // one that was just restarted refuses writes for two seconds
	from := s.serving(key)
	slot := from.server.Must("CLUSTER", "KEYSLOT", key).(int64)
	var to *redistest.Server
	for to == nil || to == from.server {
		to = s.cluster.Masters[r.IntN(len(s.cluster.Masters))]
	}
	m := s.cluster.Migrate(int(slot), to)
	m.MoveKeys()
	pass(slowly)
	m.Finish()
	s.cluster.Settle()
}
