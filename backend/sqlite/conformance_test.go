//go:build linux || darwin

package sqlite_test

import (
	"database/sql"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/backendtest"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/cas/castest"
	"github.com/mortise-go/mortise/backend/sqlite"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

func TestConformance(t *testing.T) {
	check.Long(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Store { return newStore(t) })
}

func TestDriver(t *testing.T) {
	castest.Run(t, func(t *testing.T) castest.Store { return newStore(t) })
}

// store is a file in a folder of its own, as the suites want it. While the store is down, the folder is elsewhere.
type store struct {
	t      testing.TB
	folder string
	past   *sql.DB // a program beside mortise
}

const guest = "_pragma=busy_timeout(10000)&_txlock=immediate"

func newStore(t testing.TB) *store {
	t.Helper()
	folder, err := os.MkdirTemp("", "mortise") // t.TempDir is too long
	if err != nil {
		t.Fatal(err)
	}
	s := &store{t: t, folder: folder}
	t.Cleanup(func() {
		_ = os.RemoveAll(folder)
		_ = os.RemoveAll(folder + ".away")
	})
	d := s.Driver() // makes the tables
	if err := d.Swap(t.Context(), nil, nil); err != nil {
		t.Fatal(err)
	}
	_ = d.(interface{ Close() error }).Close()
	at := url.URL{Scheme: "file", OmitHost: true, Path: s.path(), RawQuery: guest}
	past, err := sql.Open("sqlite", at.String())
	if err != nil {
		t.Fatal(err)
	}
	s.past = past
	t.Cleanup(func() { _ = past.Close() })
	s.exec("select 1") // opens the file
	return s
}

func (s *store) path() string { return filepath.Join(s.folder, "locks.db") }

func (s *store) Backend() backend.Backend { return sqlite.New(s.path()) }

func (s *store) Driver() cas.Driver {
	d, err := sqlite.NewDriver(s.path())
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func (s *store) exec(text string, args ...any) {
	s.t.Helper()
	if _, err := s.past.Exec(text, args...); err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
}

// inTransaction keeps others from transactions until unlock is called.
func (s *store) inTransaction() (unlock func()) {
	s.t.Helper()
	f, err := os.Open(s.path() + "-lock")
	if err == nil {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return func() { _ = f.Close() }
}

func (s *store) Delete(name string) { s.exec("delete from mortise_names where key = ?", name) }
func (s *store) Flush()             { s.exec("delete from mortise_names") }
func (s *store) Connections() int   { return 0 }
func (s *store) OneValue()          {}
func (s *store) Cut()               { s.EndSession("*") }

// EndSession removes the sockets of sessions.
func (s *store) EndSession(session string) {
	sockets, err := filepath.Glob(s.path() + ".to-" + session)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, at := range sockets {
		_ = os.Remove(at) // its client may do it, too
	}
}

func (s *store) Down() { s.move(s.folder, s.folder+".away") }
func (s *store) Up()   { s.move(s.folder+".away", s.folder) }

func (s *store) move(from, to string) {
	s.t.Helper()
	if err := os.Rename(from, to); err != nil {
		s.t.Fatal(err)
	}
}

// Occupy puts data of another program into the row of a name. A proclamation is a part of its lock's value.
func (s *store) Occupy(name string) {
	if lock, is := strings.CutPrefix(name, "mortise:1:proclaim:{"); is {
		name = strings.TrimSuffix(lock, "}")
	}
	s.exec("update mortise_store set version = version + 1")
	s.exec(`insert into mortise_names (key, version, value, stamp) select ?, version, 'data', 0 from mortise_store
		where true on conflict do update set version = excluded.version, value = excluded.value`, name)
}
