//go:build unix

// Package pg starts a PostgreSQL for tests, on a free port: `make deps` installs it on Debian. Its binaries are those
// in PATH, or the newest below /usr/lib/postgresql.
package pg

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// Server is a running server. It ends with the thread that started it.
type Server struct {
	dir, bin string
	port     int
	as       *syscall.SysProcAttr
	settings []string
	process  *exec.Cmd
	ended    chan struct{}
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
	if as == nil {
		as = new(syscall.SysProcAttr)
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

// Start makes a server with settings, such as fsync=off, and starts it.
func Start(settings ...string) (*Server, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mortise-pg")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, bin: bin, settings: settings}
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

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = s.as, s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

// start starts the server on a free port, and waits until it answers.
func (s *Server) start() error {
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
		if s.ready() {
			return nil
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("postgres ended: %s", text)
		case <-late:
			_ = s.process.Process.Kill()
			<-s.ended
			return fmt.Errorf("postgres does not answer within 30 s")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ready reports whether the server takes connections: it writes so into its file of process ids, where pg_ctl looks.
func (s *Server) ready() bool {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return err == nil && strings.TrimSpace(lines[len(lines)-1]) == "ready"
}

// Stop ends the server, and removes its data.
func (s *Server) Stop() {
	_ = s.process.Process.Signal(syscall.SIGQUIT)
	<-s.ended
	os.RemoveAll(s.dir)
}

// Port is the server's port at 127.0.0.1.
func (s *Server) Port() int { return s.port }

// URL names a database; "postgres" is there from the beginning. The user, postgres, may do all.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}
