//go:build linux || darwin

package sqlite_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/cas"
	"github.com/mortise-go/mortise/backend/sqlite"
	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Each statement is one that SQLite knows, with the tables that the first request makes.
func TestStatements(t *testing.T) {
	s := newStore(t)
	for _, text := range sqlite.Statements {
		p, err := s.past.Prepare(text)
		check.NoError(t, err)
		check.NoError(t, p.Close())
	}
}

func TestABadPath(t *testing.T) {
	for _, path := range []string{"", ":memory:"} {
		if _, err := mortise.New(sqlite.New(path)); !errors.Is(err, mortise.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", path, err)
		}
	}
}

func client(t *testing.T, path string) *mortise.Client {
	t.Helper()
	c, err := mortise.New(sqlite.New(path))
	check.NoError(t, err)
	t.Cleanup(func() { check.NoError(t, c.Shutdown(context.Background())) })
	return c
}

// What the errors of files say to do.
func TestRemedies(t *testing.T) {
	folder := t.TempDir()
	other, folderAsFile := filepath.Join(folder, "other"), filepath.Join(folder, "folder.db")
	check.NoError(t, os.WriteFile(other, []byte(strings.Repeat("no database ", 1000)), 0o600))
	check.NoError(t, os.Mkdir(folderAsFile, 0o700))
	for path, remedy := range map[string]string{
		filepath.Join(folder, "none", "locks.db"): "make the file's folder",
		other:        "choose another path",
		folderAsFile: "make the file's folder",
	} {
		_, err := client(t, path).TryLock(t.Context(), "n")
		check.ErrorIf(t, !errors.Is(err, mortise.ErrUnavailable) || !strings.Contains(err.Error(), remedy),
			"%s: %v, want the remedy: %s", path, err, remedy)
	}
}

// A path may have characters that mean something in a URL. Waiters are told at the longest path, too.
func TestALongPathAndAStrangeOne(t *testing.T) {
	folder, err := os.MkdirTemp("", "what? #1 100%41 'ü'")
	check.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(folder) })
	path := filepath.Join(folder, strings.Repeat("n", sqlite.MaxPath-len(folder)-1))
	_, err = mortise.New(sqlite.New(path + "n"))
	check.ErrorIf(t, !errors.Is(err, mortise.ErrInvalid), "a longer path: %v", err)
	a, b := client(t, path), client(t, path)
	l, err := a.Lock(t.Context(), "n")
	check.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		next, err := b.Lock(t.Context(), "n")
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	eventually(t, "b listens", func() bool {
		sockets, err := filepath.Glob(filepath.Join(folder, "n*.to-*"))
		return err == nil && len(sockets) == 1
	})
	check.NoError(t, l.Unlock(t.Context()))
	check.NoError(t, <-got)
	_, err = os.Stat(path)
	check.NoError(t, err)
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 10_000 {
		if is() {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatalf("not after 10,000 looks: %s", what)
}

func swap(t *testing.T, d cas.Driver, q cas.Swap) cas.Swapped {
	t.Helper()
	out := make([]cas.Swapped, 1)
	check.NoError(t, d.Swap(t.Context(), []cas.Swap{q}, out))
	return out[0]
}

func closed(t *testing.T, d cas.Driver) {
	t.Helper()
	check.NoError(t, d.(interface{ Close() error }).Close())
}

// The store's time goes on from the last write when the machine's clock has begun anew.
func TestTheMachineStartsAnew(t *testing.T) {
	s := newStore(t)
	d := s.Driver()
	was := swap(t, d, cas.Swap{Key: "k", Value: []byte("1")})
	closed(t, d)
	const earlier = 1_000_000_000_000
	s.exec("update mortise_store set base = base - ?", earlier) // the clock is that much less than it was
	d = s.Driver()
	now := swap(t, d, cas.Swap{Key: "k", Version: cas.Look})
	check.ErrorIf(t, now.Version != was.Version || now.Now < was.Stamp, "%+v was %+v", now, was)
	next := swap(t, d, cas.Swap{Key: "k", Version: was.Version, Value: []byte("2")})
	check.ErrorIf(t, !next.Done || next.Stamp < was.Stamp, "%+v was %+v", next, was)
	eventually(t, "the store's clock goes on", func() bool {
		return swap(t, d, cas.Swap{Key: "k", Version: cas.Look}).Now > next.Now
	})
	closed(t, d)
}

// A transaction of a process that does not go on holds up requests for as long as their contexts last.
func TestAProcessStopsInATransaction(t *testing.T) {
	s := newStore(t)
	d, key := s.Driver(), []cas.Swap{{Key: "k", Value: []byte("1")}}
	unlock := s.inTransaction()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 2)
	for range 2 {
		go func() { failed <- d.Swap(ctx, key, make([]cas.Swapped, 1)) }()
	}
	cancel()
	for range 2 {
		f := backend.FaultOf(<-failed)
		check.ErrorIf(t, f.MayHaveRun || !f.Temporary || !strings.Contains(f.Remedy, "stopped process"), "%+v", f)
	}
	unlock() // the process goes on
	r := swap(t, d, cas.Swap{Key: "k", Version: cas.Look})
	check.ErrorIf(t, r.Version != cas.None, "a request that failed was carried out: %+v", r)
	closed(t, d)
}

// Clients that have a removed file open do not go on in it beside those that have the new one.
func TestTheFileIsReplaced(t *testing.T) {
	s := newStore(t)
	a, b := client(t, s.path()), client(t, s.path())
	l, err := a.Lock(t.Context(), "n")
	check.NoError(t, err)
	for _, suffix := range []string{"", "-wal", "-shm"} {
		check.NoError(t, os.Remove(s.path()+suffix))
	}
	got, err := b.Lock(t.Context(), "n", mortise.WithWait(time.Minute))
	check.NoError(t, err) // its record is lost
	eventually(t, "the first holder knows that its lock is lost", func() bool {
		info, err := a.Inspect(t.Context(), "n")
		return err == nil && info.Held && !info.Mine
	})
	check.NoError(t, got.Unlock(t.Context()))
	check.ErrorIf(t, l.Unlock(t.Context()) == nil, "the holder whose lock was lost released it")
}

// A socket of a process that has ended is removed by another that has a notice for it.
func TestDeadSocketsAreRemoved(t *testing.T) {
	s := newStore(t)
	dead := s.path() + ".to-sdead"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	check.NoError(t, err)
	check.NoError(t, unix.Bind(fd, &unix.SockaddrUnix{Name: dead}))
	check.NoError(t, unix.Close(fd))
	d := s.Driver()
	swap(t, d, cas.Swap{Key: "k", Value: []byte("1"), Notices: []cas.Notice{{Session: "sdead", Text: "x"}}})
	gone := func(path string) func() bool {
		return func() bool {
			_, err := os.Lstat(path)
			return os.IsNotExist(err)
		}
	}
	eventually(t, "the socket of a dead session is removed", gone(dead))
	ctx, cancel := context.WithCancel(t.Context())
	_ = d.Listen(ctx, "slive", func(cas.Heard) { cancel() })
	check.ErrorIf(t, !gone(s.path()+".to-slive")(), "the socket of a session that has ended is there")
	closed(t, d)
}
