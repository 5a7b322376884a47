//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/beside"
	"github.com/mortise-go/mortise/internal/redistest/pg"
)

// server is the server of all tests.
var server *pgServer

func TestMain(m *testing.M) {
	beside.Worker(ways...)
	runtime.LockOSThread() // the server ends with the thread that started it
	os.Exit(func() int {
		if url := os.Getenv(holderOf); url != "" {
			return hold(url)
		}
		if url := os.Getenv(transfersIn); url != "" {
			return transfer(url)
		}
		if url := os.Getenv(guardsIn); url != "" {
			return guards(url)
		}
		started, err := pg.Start("fsync=off", "synchronous_commit=local")
		if err != nil {
			fmt.Fprintln(os.Stderr, "no PostgreSQL for the tests (run make deps):", err)
			return 1
		}
		server = &pgServer{Server: started}
		defer server.Stop()
		return m.Run()
	}())
}

// pgServer is the server of all tests, which each have a database of its own.
type pgServer struct {
	*pg.Server
	names atomic.Int64
}

// database makes a database with mortise's tables, until the end of the test.
func (s *pgServer) database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d", s.names.Add(1))
	admin := s.connect(t, "postgres")
	exec := func(c *pgx.Conn, sql string) {
		t.Helper()
		if _, err := c.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec(admin, "create database "+name)
	t.Cleanup(func() { exec(admin, "drop database "+name+" with (force)") })
	if err := postgres.Migrate(context.Background(), s.connect(t, name)); err != nil {
		t.Fatal(err)
	}
	return name
}

// connect connects past all proxies, until the end of the test.
func (s *pgServer) connect(t testing.TB, database string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), s.URL(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
