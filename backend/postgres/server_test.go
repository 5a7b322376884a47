//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/mortise-go/mortise/backend/postgres"
	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/beside"
)

// The tests start a PostgreSQL of their own, on a free port: `make deps` installs it on Debian. Its binaries are those
// in PATH, or the newest below /usr/lib/postgresql. A test has a database of its own.

// server is the server of all tests.
var server *pg

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
		var err error
		if server, err = startServer("fsync=off", "synchronous_commit=local"); err != nil {
			fmt.Fprintln(os.Stderr, "no PostgreSQL for the tests (run make deps):", err)
			return 1
		}
		defer server.stop()
		return m.Run()
	}())
}

// pg is a running server.
type pg struct {
	dir, bin string
	port     int
	as       *syscall.SysProcAttr
	settings []string
	process  *exec.Cmd
	ended    chan struct{}
	names    atomic.Int64
}

// binaries returns the folder of initdb and postgres.
func binaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(all) == 0 {
		return "", fmt.Errorf("initdb is neither in PATH nor below /usr/lib/postgresql")
	}
	slices.SortFunc(all, func(a, b string) int { return versionIn(a) - versionIn(b) })
	return filepath.Dir(all[len(all)-1]), nil
}

func versionIn(path string) int {
	n, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return n
}

// notRoot returns how the server's processes are started: PostgreSQL refuses to run as root.
func notRoot(dir string) (*syscall.SysProcAttr, error) {
	as := redistest.DieWithParent()
	if os.Getuid() != 0 {
		return as, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		as.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return as, os.Chown(dir, uid, gid)
	}
	return nil, fmt.Errorf("no user postgres or nobody")
}

// startServer makes a server with settings, and starts it.
func startServer(settings ...string) (*pg, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mortise-pg")
	if err != nil {
		return nil, err
	}
	s := &pg{dir: dir, bin: bin, settings: settings}
	if s.as, err = notRoot(dir); err == nil {
		err = s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

func (s *pg) data() string { return filepath.Join(s.dir, "data") }

func (s *pg) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = s.as, s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// start starts the server on a free port, and waits until it answers.
func (s *pg) start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	l.Close()
	args := []string{"-D", s.data(), "-k", s.dir, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}
	for _, x := range append([]string{"max_connections=400"}, s.settings...) {
		args = append(args, "-c", x)
	}
	s.process = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.process.SysProcAttr, s.process.Dir = s.as, s.dir
	log, err := os.Create(filepath.Join(s.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.process.Stdout, s.process.Stderr = log, log
	if err := s.process.Start(); err != nil {
		return err
	}
	s.ended = make(chan struct{})
	go func() { _ = s.process.Wait(); close(s.ended) }()
	for late := time.After(30 * time.Second); ; {
		if c, err := pgx.Connect(context.Background(), s.url("postgres")); err == nil {
			return c.Close(context.Background())
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("postgres ended: %s", text)
		case <-late:
			_ = s.process.Process.Kill()
			return fmt.Errorf("postgres does not answer within 30 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server, and removes its data.
func (s *pg) stop() {
	_ = s.process.Process.Signal(syscall.SIGQUIT)
	<-s.ended
	os.RemoveAll(s.dir)
}

func (s *pg) url(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

// database makes a database with mortise's tables, until the end of the test.
func (s *pg) database(t testing.TB) string {
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
func (s *pg) connect(t testing.TB, database string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), s.url(database))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}
