//go:build unix

package postgres_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestDriver(t *testing.T) {
	castest.Run(t, func(t *testing.T) castest.Store { return driven{newStore(t)} })
}

// driven is a store as castest wants it.
type driven struct{ *store }

func (s driven) Driver() cas.Driver {
	d, err := postgres.NewDriver(s.url())
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// EndSession ends the server's process that sends a session what is for it. Tests beside this one have databases of
// their own, and sessions of the same names.
func (s driven) EndSession(session string) {
	s.exec("select pg_terminate_backend(pid) from pg_stat_activity "+
		"where datname = current_database() and application_name = $1", "mortise "+session)
}

// Each statement is one that the server knows, with the tables that Migrate makes; Migrate may be repeated.
func TestStatements(t *testing.T) {
	c := server.connect(t, server.database(t))
	check.NoError(t, postgres.Migrate(t.Context(), c))
	for name, sql := range postgres.Statements {
		_, err := c.Prepare(t.Context(), name, sql)
		check.ErrorIf(t, err != nil, "%s: %v", name, err)
	}
}

// Several processes may migrate at once.
func TestMigrateAtOnce(t *testing.T) {
	name := server.database(t)
	admin := server.connect(t, name)
	for _, sql := range []string{"drop table mortise_names cascade", "drop sequence mortise_versions"} {
		_, err := admin.Exec(t.Context(), sql)
		check.NoError(t, err)
	}
	var all sync.WaitGroup
	for range 4 {
		c := server.connect(t, name)
		all.Go(func() {
			if err := postgres.Migrate(t.Context(), c); err != nil {
				t.Errorf("Migrate: %v", err)
			}
		})
	}
	all.Wait()
}

func TestWithoutMigrate(t *testing.T) {
	s := newStore(t)
	s.exec("drop function mortise_swap")
	c, err := mortise.New(s.Backend())
	check.NoError(t, err)
	_, err = c.TryLock(t.Context(), "n")
	check.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "postgres.Migrate"), "TryLock: %v, want the remedy", err)
	check.NoError(t, c.Shutdown(t.Context()))
}

func TestABadURL(t *testing.T) {
	_, err := mortise.New(postgres.New("postgres://host:port/"))
	check.ErrorIf(t, err == nil, "a bad URL is no error")
}

// A client that nothing waits for has no connection that listens, and no row.
func TestAClientWithoutWaiters(t *testing.T) {
	s := newStore(t)
	c, err := mortise.New(s.Backend())
	check.NoError(t, err)
	l, err := c.Lock(t.Context(), "n")
	check.NoError(t, err)
	listeners := func() (n int) {
		check.NoError(t, s.past.QueryRow(t.Context(), "select count(*) from pg_stat_activity where datname = $1 and "+
			"application_name like 'mortise %'", s.database).Scan(&n))
		return n
	}
	check.Equal(t, "%d connections listen", listeners(), 0)
	check.NoError(t, l.Unlock(t.Context()))
	var live int
	row := s.past.QueryRow(t.Context(), "select count(*) from mortise_names where value is not null")
	check.NoError(t, row.Scan(&live))
	check.Equal(t, "%d rows have a value", live, 0)
	n, err := postgres.Sweep(t.Context(), s.past, -time.Second) // of the last millisecond, too
	check.ErrorIf(t, err != nil || n != 1, "Sweep: %d, %v; want the row of the lock", n, err)
	check.NoError(t, c.Shutdown(t.Context()))
}

// Isolation by default of the role, and a commit that need not be on disk, change nothing.
func TestTheRolesDefaults(t *testing.T) {
	for _, set := range []string{
		"default_transaction_isolation to 'serializable'", "default_transaction_isolation to 'repeatable read'",
		"synchronous_commit to off", "statement_timeout to '2s'", "client_encoding to 'latin1'", "search_path to public",
		"default_transaction_deferrable to on", "timezone to 'Asia/Tokyo'",
	} {
		t.Run(set, func(t *testing.T) {
			s := newStore(t)
			s.exec("alter database " + s.database + " set " + set)
			var clients []*mortise.Client
			for range 4 {
				c, err := mortise.New(s.Backend())
				check.NoError(t, err)
				clients = append(clients, c)
			}
			var inside, overlaps atomic.Int32
			var all sync.WaitGroup
			for _, c := range clients {
				for range 4 {
					all.Go(func() {
						for range 10 {
							l, err := c.Lock(t.Context(), "über", mortise.WithWait(time.Minute))
							if err != nil {
								t.Errorf("Lock: %v", err)
								return
							}
							if inside.Add(1) != 1 {
								overlaps.Add(1)
							}
							inside.Add(-1)
							if err := l.Unlock(t.Context()); err != nil {
								t.Errorf("Unlock: %v", err)
							}
						}
					})
				}
			}
			all.Wait()
			check.Equal(t, "%d overlaps", overlaps.Load(), 0)
			for _, c := range clients {
				check.NoError(t, c.Shutdown(t.Context()))
			}
		})
	}
}
