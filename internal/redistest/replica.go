//go:build unix

package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// StartReplica starts a replica of a server and waits until it has its data, and the server
// counts it.
func StartReplica(t testing.TB, of *Server, opts ...Option) *Server {
	t.Helper()
	of.Must("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	s := Start(t, opts...)
	s.Must("REPLICAOF", "127.0.0.1", strconv.Itoa(of.port))
	for end := time.Now().Add(patience); !s.InStep() || !of.counts(s); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("redistest: waited %v for a replica to have its master's data", patience)
		}
	}
	return s
}

// counts tells whether s is among the replicas that WAIT on a master counts.
func (s *Server) counts(replica *Server) bool {
	info, err := s.Do("INFO", "replication")
	return err == nil && strings.Contains(fmt.Sprint(info), fmt.Sprint("port=", replica.port, ",state=online"))
}

// InStep tells whether a replica is connected to its master.
func (s *Server) InStep() bool {
	info, err := s.Do("INFO", "replication")
	return err == nil && strings.Contains(fmt.Sprint(info), "master_link_status:up")
}
