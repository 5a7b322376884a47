//go:build unix

// Package conformance runs the suite of backend/backendtest over a Redis client:
// each test on a redis-server of its own.
package conformance

import (
	"strconv"
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
	backendtest.RunSome(t, func(t *testing.T) backendtest.Store {
		s := redistest.Start(t, append([]redistest.Option{redistest.WithAOF()}, opts...)...)
		return &store{t: t, server: s, open: open}
	}, chosen)
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
