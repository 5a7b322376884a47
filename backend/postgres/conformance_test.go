//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) backendtest.Store { return newStore(t) })
}

// store is a database behind a proxy, as the suite wants it.
type store struct {
	t        testing.TB
	database string
	mu       sync.Mutex // guards past
	past     *pgx.Conn  // not through the proxy
	proxy    *redistest.Gate
}

func newStore(t testing.TB) *store {
	t.Helper()
	name := server.database(t)
	return &store{
		t: t, database: name, past: server.connect(t, name),
		proxy: redistest.NewGate(t, fmt.Sprintf("127.0.0.1:%d", server.Port())),
	}
}

func (s *store) url() string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.proxy.Addr(), s.database)
}

func (s *store) Backend() backend.Backend { return postgres.New(s.url()) }

func (s *store) exec(sql string, args ...any) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.past.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func (s *store) Delete(name string) { s.exec("delete from mortise_names where key = $1", name) }
func (s *store) Flush()             { s.exec("delete from mortise_names") }
func (s *store) Cut()               { _ = s.proxy.Cut() }
func (s *store) Down()              { s.proxy.Down() }
func (s *store) Up()                { s.proxy.Up() }
func (s *store) Connections() int   { return s.proxy.Connections() }
func (s *store) OneValue()          {}

// Occupy puts data of another program into the row of a name. A proclamation is a part of its lock's value.
func (s *store) Occupy(name string) {
	if lock, is := strings.CutPrefix(name, "mortise:1:proclaim:{"); is {
		name = strings.TrimSuffix(lock, "}")
	}
	s.exec(`insert into mortise_names (key, version, value, stamp) values ($1, nextval('mortise_versions'), 'data', 0)
		on conflict (key) do update set version = excluded.version, value = excluded.value`, name)
}
