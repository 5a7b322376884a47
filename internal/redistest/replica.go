//go:build unix

package redistest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// StartReplica starts a replica of a server and waits until it has its data, and the server
// counts it.
func StartReplica(t testing.TB, of *Server, opts ...Option) *Server {
	t.Helper()
	of.Must("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	s := Start(t, opts...)
	s.Must("REPLICAOF", "127.0.0.1", strconv.Itoa(of.port))
	for end := time.Now().Add(patience); !s.InStep() || !of.counts(s); time.Sleep(5 * time.Millisecond) {
		check.FatalIf(t, time.Now().After(end), "redistest: waited %v for a replica to have its master's data", patience)
	}
	return s
}

// counts tells whether s is a master of the replica's, and has heard from it how far it is: before that,
// which may take a second, WAIT does not count it.
func (s *Server) counts(replica *Server) bool {
	s.Must("PUBLISH", "redistest", "") // that it may be further than nowhere
	info, err := s.Do("INFO", "replication")
	_, offset, listed := strings.Cut(fmt.Sprint(info), fmt.Sprint("port=", replica.port, ",state=online,offset="))
	return err == nil && listed && !strings.HasPrefix(offset, "0,")
}

// InStep tells whether a replica is connected to its master.
func (s *Server) InStep() bool { return s.Info("master_link_status") == "up" }
