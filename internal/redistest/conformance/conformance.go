//go:build unix

// Package conformance runs the suite of backend/backendtest over a Redis client:
// each test on a redis-server that no other test uses meanwhile.
package conformance

import (
	"strconv"
	"sync"
	"testing"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Run runs the suite. open returns a backend for one more client of the server at
// addr; what it makes is freed by t's Cleanup.
func Run(t *testing.T, open func(t *testing.T, addr string) backend.Backend) {
	RunSomeOn(t, nil, func(t *testing.T, s *redistest.Server) backend.Backend { return open(t, s.Addr()) },
		func(string) bool { return true })
}

// RunSomeOn runs the tests whose names are chosen, on servers that are started with further
// options.
func RunSomeOn(t *testing.T, opts []redistest.Option, open func(t *testing.T, s *redistest.Server) backend.Backend,
	chosen func(name string) bool) {
	servers := pool{owner: t, opts: append([]redistest.Option{redistest.WithAOF()}, opts...)}
	backendtest.RunSome(t, func(t *testing.T) backendtest.Store {
		return &store{t: t, server: servers.lend(t), open: open}
	}, chosen)
}

// pool are servers that run until the end of owner, and are lent to one test after the other: to start one for each
// test takes longer than most of the tests.
type pool struct {
	owner *testing.T
	opts  []redistest.Option
	mu    sync.Mutex
	idle  []*redistest.Server
}

// lend returns a server that is t's until its end.
func (p *pool) lend(t *testing.T) *redistest.Server {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s *redistest.Server
	if last := len(p.idle) - 1; last >= 0 {
		s, p.idle = p.idle[last], p.idle[:last]
	} else {
		s = redistest.Start(p.owner, p.opts...)
	}
	s.Lend(t)
	t.Cleanup(func() { p.takeBack(t, s) })
	return s
}

// takeBack empties a server for the next test. The sessions of t are closed by then. A server that t stopped is not
// lent again, nor one of a test that failed: the failure may have left anything there.
func (p *pool) takeBack(t *testing.T, s *redistest.Server) {
	if _, err := s.Do("PING"); err != nil || t.Failed() {
		s.Stop()
		return
	}
	for _, kind := range []string{"normal", "pubsub"} {
		s.Must("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
	}
	s.Must("FLUSHALL")
	s.Must("SCRIPT", "FLUSH")
	s.Lend(p.owner)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, s)
}

type store struct {
	t      *testing.T
	server *redistest.Server
	open   func(t *testing.T, s *redistest.Server) backend.Backend
}

func (s *store) Backend() backend.Backend { return s.open(s.t, s.server) }
func (s *store) Delete(name string)       { s.server.Must("DEL", name) }
func (s *store) Flush()                   { s.server.Must("FLUSHALL") }
func (s *store) Occupy(name string)       { s.server.Must("SET", name, "no lock") }
func (s *store) Down()                    { s.server.Stop() }
func (s *store) Up()                      { s.server.Restart() }

func (s *store) Cut() {
	for _, kind := range []string{"normal", "pubsub"} {
		s.server.Must("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
	}
}

func (s *store) Connections() int {
	return check.Value(strconv.Atoi(s.server.Info("connected_clients"))).In(s.t) - 1 // the one that asks
}
