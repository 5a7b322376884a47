//go:build linux

package chaos

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// The deployments.
const (
	standalone = "standalone"
	sentinels  = "sentinel" // a master, a replica and three sentinels
	cluster    = "cluster"  // three masters
)

// site is a deployment. Each server stands behind two wires, and each worker process uses
// one of them: so servers can be cut off from all, or from half of them.
type site struct {
	t         *testing.T
	kind      string
	nodes     []*node
	sentinels []*sentinel
	cluster   *redistest.Cluster
	addrs     []string             // what clients are told
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
	switch kind {
	case standalone:
		s.add(redistest.Start(t, debug, redistest.WithAOF()))
		s.addrs = []string{s.nodes[0].server.Addr()}
	case sentinels:
		s.add(redistest.Start(t, debug))
		s.add(redistest.Start(t, debug))
		master := s.nodes[0].server
		s.follow(s.nodes[1].server, master)
		for range 3 {
			s.sentinels = append(s.sentinels, newSentinel(t, master.Addr()))
			s.addrs = append(s.addrs, s.sentinels[len(s.sentinels)-1].addr())
		}
		s.settle()
	case cluster:
		s.cluster = redistest.StartCluster(t, 3, debug, redistest.WithAOF())
		for _, m := range s.cluster.Masters {
			s.add(m)
		}
		s.addrs = s.cluster.Addrs()
	}
	for side := range s.sides {
		s.sides[side] = map[string]string{}
		for _, n := range s.nodes {
			s.sides[side][n.server.Addr()] = n.wires[side].addr()
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
	info, _ := s.nodes[0].server.Do("INFO", "server")
	for l := range strings.Lines(fmt.Sprint(info)) {
		if v, ok := strings.CutPrefix(l, "redis_version:"); ok {
			return "Redis " + strings.TrimSpace(v)
		}
	}
	return "Redis"
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
func (s *site) master() *node {
	s.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		for _, x := range s.sentinels {
			addr := x.master()
			for _, n := range s.nodes {
				if addr == n.server.Addr() {
					return n
				}
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("no sentinel names a master within %v", patience)
		}
	}
}

// replica is the other.
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
	m := s.cluster.Master(int(slot))
	for _, n := range s.nodes {
		if n.server == m {
			return n
		}
	}
	return nil
}

// agreed tells whether all sentinels name one master, which is one, and the other replicates it.
func (s *site) agreed() bool {
	var addr string
	for _, x := range s.sentinels {
		a := x.master()
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
	for _, x := range s.sentinels {
		v, err := x.do("SENTINEL", "CKQUORUM", masterSet)
		if err != nil || !strings.HasPrefix(fmt.Sprint(v), "OK 3 ") {
			return false
		}
		v, err = x.do("SENTINEL", "REPLICAS", masterSet)
		if err != nil || len(v.([]any)) != 1 {
			return false
		}
		for i, field := range v.([]any)[0].([]any) {
			if value := v.([]any)[0].([]any); field == "flags" && value[i+1] != "slave" || field == "master-link-status" && value[i+1] != "ok" {
				return false
			}
		}
	}
	return true
}

// settle waits until the sentinels agree.
func (s *site) settle() {
	s.t.Helper()
	for end := time.Now().Add(patience); !s.agreed(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			for _, n := range s.nodes {
				role, err := n.server.Do("ROLE")
				s.t.Log(n.server.Addr(), role, err)
			}
			for _, x := range s.sentinels {
				v, err := x.do("SENTINEL", "REPLICAS", masterSet)
				s.t.Log(x.addr(), x.master(), v, err)
			}
			s.t.Fatalf("the sentinels do not agree within %v", patience)
		}
	}
}

// sentinel is a process that watches the master.
type sentinel struct {
	t      testing.TB
	port   int
	config string
	cmd    process
}

func (x *sentinel) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(x.port)) }

// downAfter is after what silence sentinels take a server for dead: longer than a busy
// machine stands still.
const downAfter = 4 * time.Second

func newSentinel(t *testing.T, master string) *sentinel {
	t.Helper()
	dir := t.TempDir()
	x := &sentinel{t: t, port: freePort(t), config: filepath.Join(dir, "sentinel.conf")}
	host, port, _ := net.SplitHostPort(master)
	lines := []string{
		"bind 127.0.0.1", "port " + strconv.Itoa(x.port), "dir " + dir,
		fmt.Sprintf("sentinel monitor %s %s %s 2", masterSet, host, port),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", masterSet, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", masterSet, 2*downAfter.Milliseconds()),
	}
	if err := os.WriteFile(x.config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.start()
	t.Cleanup(func() { x.cmd.kill() })
	return x
}

// start starts it with what it has written down, and waits until it answers.
func (x *sentinel) start() {
	x.t.Helper()
	if err := x.cmd.start("redis-server", x.config, "--sentinel"); err != nil {
		x.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if _, err := x.do("PING"); err == nil {
			return
		}
		if time.Now().After(end) {
			x.t.Fatalf("a sentinel does not answer within %v:\n%s", patience, x.cmd.output.String())
		}
	}
}

// master is the address that it names; "" if it does not answer.
func (x *sentinel) master() string {
	v, err := x.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterSet)
	if err != nil || v == nil {
		return ""
	}
	at := v.([]any)
	return net.JoinHostPort(at[0].(string), at[1].(string))
}
