//go:build unix

package redistest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Sentinels is a master with replicas, and three sentinels that replace it. Its methods are
// called from the test's goroutine, except Master.
type Sentinels struct {
	t       testing.TB
	Servers []*Server // the first was the master at the start
	Watch   []*Server // the sentinels
}

// MasterSet is the name of the master.
const MasterSet = "mortise"

// DownAfter is after how long without an answer a sentinel takes a server to be down. A machine
// that stands still for less makes no failover.
const DownAfter = 4 * time.Second

// StartSentinels waits until all replicas have the master's data, and the sentinels know them
// and each other.
func StartSentinels(t testing.TB, replicas int, opts ...Option) *Sentinels {
	t.Helper()
	x := &Sentinels{t: t}
	opts = slices.Concat([]Option{WithConfig("repl-diskless-sync-delay 0", "repl-ping-replica-period 1")}, opts)
	for range replicas + 1 {
		x.Servers = append(x.Servers, Start(t, opts...))
	}
	master := x.Servers[0]
	for _, s := range x.Servers[1:] {
		s.Must("REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	}
	for _, s := range x.Servers[1:] {
		x.until("a replica to have its master's data", s.InStep)
	}
	for range 3 {
		x.Watch = append(x.Watch, Start(t, func(s *Server) { s.sentinel = true }, WithConfig(
			fmt.Sprint("sentinel monitor ", MasterSet, " 127.0.0.1 ", master.port, " 2"),
			fmt.Sprint("sentinel down-after-milliseconds ", MasterSet, " ", DownAfter.Milliseconds()),
			fmt.Sprint("sentinel failover-timeout ", MasterSet, " ", 2*DownAfter.Milliseconds()),
		)))
	}
	for _, s := range x.Watch {
		x.until("the sentinels to know each other, and the replicas", func() bool {
			all := fmt.Sprint(s.Must("SENTINEL", "MASTER", MasterSet))
			return strings.Contains(all, fmt.Sprint("num-other-sentinels ", len(x.Watch)-1)) &&
				strings.Contains(all, fmt.Sprint("num-slaves ", replicas)) &&
				strings.Contains(all, "flags master link-pending") &&
				strings.Count(fmt.Sprint(s.Must("SENTINEL", "REPLICAS", MasterSet)), "flags slave link-pending") == replicas
		})
	}
	return x
}

// Addrs are the addresses of the sentinels.
func (x *Sentinels) Addrs() []string { return addrs(x.Watch) }

// Master is the server that the sentinels name, the first of them that answers.
func (x *Sentinels) Master() *Server {
	for _, w := range x.Watch {
		addr, err := w.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
		if err != nil || addr == nil {
			continue
		}
		for _, s := range x.Servers {
			if fmt.Sprint(addr) == fmt.Sprint([]any{"127.0.0.1", strconv.Itoa(s.port)}) {
				return s
			}
		}
	}
	return nil
}

// AwaitMasterAfter waits until the sentinels name another master than that one, and it is one.
func (x *Sentinels) AwaitMasterAfter(old *Server) *Server {
	x.t.Helper()
	var now *Server
	x.until("another master", func() bool {
		now = x.Master()
		return now != nil && now != old && strings.Contains(fmt.Sprint(now.Must("ROLE")), "master")
	})
	return now
}

func (x *Sentinels) until(what string, holds func() bool) {
	x.t.Helper()
	// A sentinel that stood still for two seconds does nothing for half a minute.
	for end := time.Now().Add(2 * patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			for _, s := range x.Watch {
				all, err := s.Do("SENTINEL", "MASTER", MasterSet)
				x.t.Logf("%s: %v %v\n%s", s.Addr(), all, err, s.process.output())
			}
			x.t.Fatalf("redistest: waited %v for %s", 2*patience, what)
		}
	}
}

// watcher is the command that runs a sentinel, which has few of a server's settings. A sentinel
// writes to its file what it knows, and goes on from there when it is restarted.
func (s *Server) watcher(path string) (*exec.Cmd, error) {
	conf := filepath.Join(s.dir, "sentinel.conf")
	if s.started {
		return exec.Command(path, conf, "--sentinel"), nil
	}
	lines := append([]string{"bind 127.0.0.1", "port " + strconv.Itoa(s.port), "dir " + s.dir, "daemonize no"},
		s.config...)
	return exec.Command(path, conf, "--sentinel"), os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
