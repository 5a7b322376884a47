//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/pg"
)

// said runs the program to its end, and returns what it wrote.
func said(t *testing.T, store string, code int, args ...string) string {
	t.Helper()
	p := begin(t, store, args...)
	text := check.Value(io.ReadAll(p.lines)).In(t)
	if got := p.code(); got != code {
		t.Errorf("%v: exit code %d, want %d; %s", args, got, code, &p.said)
	}
	return string(text) + p.said.String()
}

// A new database has no tables, which doctor says; migrate creates them, and may be repeated.
func TestMigrateCreatesTheTablesOfPostgreSQL(t *testing.T) {
	check.Long(t)
	runtime.LockOSThread() // the server ends with the thread that started it
	server := check.Value(pg.Start("fsync=off")).In(t)
	t.Cleanup(server.Stop)
	store := server.URL("postgres")
	text := said(t, store, codeUnavailable, "run", "n", "--", "true")
	check.ErrorIf(t, !strings.Contains(text, "Migrate"), "without tables, no remedy: %s", text)
	said(t, store, codeUsage, "migrate", "--read-only")
	admin := check.Value(pgx.Connect(t.Context(), store)).In(t)
	defer admin.Close(context.Background())
	check.NoError(t, check.Err(admin.Exec(t.Context(), "create role guest login")))
	text = said(t, strings.Replace(store, "postgres@", "guest@", 1), codeNoPermission, "migrate")
	check.ErrorIf(t, !strings.Contains(text, "may create in the schema"), "no remedy: %s", text)
	for range 2 {
		text = said(t, store, 0, "migrate")
		check.ErrorIf(t, !strings.Contains(text, "the tables are there") || strings.Contains(text, "postgres@"), "%s", text)
	}
	said(t, store, 0, "run", "n", "--", "true")
	said(t, store, 0, "doctor")
	said(t, strings.Replace(store, "postgres:", "postgresql:", 1), 0, "bench", "--time", "50ms", "--callers", "2")
}

func TestMigrateOfStoresWithoutTables(t *testing.T) {
	text := said(t, "postgress://h/x", codeUsage, "migrate")
	check.ErrorIf(t, !strings.Contains(text, "postgres"), "a scheme that nothing has: %s", text)
	text = said(t, "sqlite:"+t.TempDir()+"/l.db", 0, "migrate")
	check.ErrorIf(t, !strings.Contains(text, "needs no tables"), "%s", text)
	text = said(t, "", 0, "migrate", "--print")
	check.ErrorIf(t, !strings.Contains(text, "create table if not exists mortise_names"), "%s", text)
}

func TestBenchMeasuresAndLeavesNoLock(t *testing.T) {
	server := redistest.Start(t)
	text := said(t, at(server), 0, "bench", "--time", "50ms", "--callers", "3")
	for _, row := range []string{"a ping", "1 caller", "3 callers, a name each", "3 callers, one name"} {
		check.ErrorIf(t, !strings.Contains(text, row), "no row %q: %s", row, text)
	}
	bench := begin(t, at(server), "bench", "--time", "1m")
	bench.line()
	bench.Process.Signal(os.Interrupt)
	check.ErrorIf(t, bench.code() != 0, "interrupted: %s", &bench.said)
	for lock, err := range client(t, server).Locks(t.Context(), "") {
		t.Errorf("left: %v, %v", lock.Name, err)
	}
}
