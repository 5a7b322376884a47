//go:build unix

// Package redistest runs real redis-server processes for tests, talks to them, and
// counts what others send them.
//
//	s := redistest.Start(t)
//	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
//	s.Do("FLUSHALL")
//	s.Stop()    // SIGKILL
//	s.Restart() // same port, empty
//
// A server lives until the end of its test, on a port of its own of 127.0.0.1,
// and dies with the test binary. The environment variable MORTISE_SERVER names the
// server's binary; without it, it is the redis-server in PATH. Where it is missing the
// test fails, it does not skip: `make test` installs redis-server, `make servers` others.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// patience bounds everything here that waits for a server.
const patience = time.Minute

// Server is a redis-server process. Its methods are called from the test's
// goroutine, except Addr and Do, which may be called from any.
type Server struct {
	t        testing.TB
	binary   string
	dir      string
	port     int
	bus      int // the port of a cluster's nodes among themselves
	config   []string
	user     string
	password string
	started  bool // once, so a sentinel has a file of its own
	role
	secured
	socket  string
	process *process
}

// role is what a server is beside a master of its own.
type role struct {
	cluster  bool // of one node
	member   bool // of a Cluster
	sentinel bool
}

// secured is a server's TLS.
type secured struct {
	tls     *TLS
	tlsPort int
	noTLS   bool   // it was built without TLS
	front   *Relay // ends TLS for such a server; nil otherwise
}

// Option changes how a server is started.
type Option func(*Server)

// WithPassword sets requirepass; [Server.Do] uses it.
func WithPassword(password string) Option {
	return func(s *Server) {
		s.password = password
		s.config = append(s.config, "requirepass "+password)
	}
}

// WithACL adds users, each as a line of redis.conf without its leading "user":
// "alice on >secret ~orders:* &* +@all". Do goes on as the default user.
func WithACL(users ...string) Option {
	return func(s *Server) {
		for _, u := range users {
			s.config = append(s.config, "user "+u)
		}
	}
}

// WithConfig adds lines to redis.conf.
func WithConfig(lines ...string) Option {
	return func(s *Server) { s.config = append(s.config, lines...) }
}

// WithAOF writes every change to a file before it is answered, so that the data
// survives [Server.Stop] and [Server.Restart]. It is not synced to disk: the
// process is killed, not the machine.
func WithAOF() Option { return WithConfig("appendonly yes", "appendfsync no") }

// WithCluster makes the server a cluster of one node that serves all slots.
func WithCluster() Option {
	return func(s *Server) {
		s.cluster = true
		s.config = append(s.config, "cluster-enabled yes", "cluster-require-full-coverage no")
	}
}

// WithBinary starts another server than MORTISE_SERVER names.
func WithBinary(path string) Option { return func(s *Server) { s.binary = path } }

// Binary is the server that [Start] starts: the value of MORTISE_SERVER, a path or a name in
// PATH, or redis-server.
func Binary() (string, error) {
	name := os.Getenv("MORTISE_SERVER")
	if name == "" {
		path, err := exec.LookPath("redis-server")
		if err != nil {
			return "", errors.New("there is no redis-server in PATH: run the tests with `make test`, which installs it, " +
				"or `apt-get install redis-server`")
		}
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("MORTISE_SERVER=%s: %w: give the whole path; `make servers` installs servers in bin/servers",
			name, err)
	}
	return path, nil
}

// Start starts a server and waits until it answers.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s := &Server{t: t, dir: t.TempDir(), user: "default"}
	for _, o := range opts {
		o(s)
	}
	if s.binary == "" {
		path, err := Binary()
		check.FatalIf(t, err != nil, "redistest: %v", err)
		s.binary = path
	}
	for attempt := 1; ; attempt++ {
		s.port = freePort(t)
		if s.cluster || s.member {
			s.bus = freePort(t)
		}
		if s.tls != nil {
			s.tlsPort = freePort(t)
		}
		err := s.start()
		if err != nil && s.tls != nil && strings.Contains(err.Error(), "Failed finding TLS support") {
			s.Stop()
			s.noTLS = true
			err = s.start()
		}
		if err == nil {
			t.Cleanup(s.Stop) // before the port is given up
			s.started = true
			return s
		}
		s.Stop()
		// Another process may have taken the port in the meantime.
		check.FatalIf(t, attempt == 5 || !strings.Contains(err.Error(), "in use"), "redistest: %v", err)
	}
}

// Lend has t fail from now on where the server cannot do what its methods say. The server lives on after t, until the
// end of the test that started it.
func (s *Server) Lend(t testing.TB) { s.t = t }

// Addr is the server's host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Stop kills the server as the kernel would: SIGKILL, nothing is saved. On one that
// has stopped it does nothing.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.kill()
		s.process = nil
	}
	if s.front != nil {
		s.front.Close()
		s.front = nil
	}
}

// Restart starts the server again on the same port and waits until it answers.
// It is empty unless [WithAOF] was given.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := s.start()
		if err == nil {
			return
		}
		s.Stop()
		// A connection that ends may have the port.
		check.FatalIf(s.t, !strings.Contains(err.Error(), "in use") || time.Now().After(end), "redistest: restart: %v", err)
	}
}

// Pause stops the process in its tracks (SIGSTOP): connections stay, nothing answers.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	check.FatalIf(s.t, s.process == nil, "redistest: %v to a server that was stopped", sig)
	if err := s.process.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("redistest: %v: %v", sig, err)
	}
}

// start runs the server and waits for it to say that it is ready, and then to say
// so over a connection.
func (s *Server) start() error {
	run := s.server
	if s.sentinel {
		run = s.watcher
	}
	cmd, err := run(s.binary)
	if err != nil {
		return err
	}
	p := &process{cmd: cmd, ready: make(chan struct{}), gone: make(chan struct{})}
	p.cmd.SysProcAttr = DieWithParent()
	if err := p.start(); err != nil {
		return err
	}
	s.process = p
	select {
	case <-p.ready:
	case <-p.gone:
		return fmt.Errorf("%s ended at once:\n%s", s.binary, p.output())
	case <-time.After(patience):
		p.kill()
		return fmt.Errorf("%s was not ready within %v:\n%s", s.binary, patience, p.output())
	}
	c, err := net.DialTimeout("tcp", s.Addr(), patience)
	if err != nil {
		p.kill()
		return err
	}
	c.Close()
	if s.noTLS {
		if s.front, err = s.endTLS(); err != nil {
			return err
		}
	}
	if s.cluster {
		return s.formCluster()
	}
	return nil
}

// server is the command that runs it.
func (s *Server) server(path string) (*exec.Cmd, error) {
	conf := filepath.Join(s.dir, "redis.conf")
	lines := append([]string{
		"bind 127.0.0.1",
		"port " + strconv.Itoa(s.port),
		"dir " + s.dir,
		"daemonize no",
		`save ""`,
		"appendonly no",
	}, s.config...)
	if s.cluster || s.member {
		lines = append(lines, "cluster-port "+strconv.Itoa(s.bus))
	}
	if s.tls != nil && !s.noTLS {
		lines = append(lines, s.tls.lines(s.tlsPort)...)
	}
	return exec.Command(path, conf), os.WriteFile(conf, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

func (s *Server) formCluster() error {
	info, err := s.Do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	if !strings.Contains(fmt.Sprint(info), "cluster_slots_assigned:16384") {
		if _, err := s.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383"); err != nil {
			return err
		}
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		info, err = s.Do("CLUSTER", "INFO")
		if err == nil && strings.Contains(fmt.Sprint(info), "cluster_state:ok") {
			return nil
		}
	}
	return fmt.Errorf("the cluster was not formed within %v: %v %v", patience, info, err)
}

// process is one run of redis-server.
type process struct {
	cmd   *exec.Cmd
	ready chan struct{} // closed when it said that it accepts connections
	gone  chan struct{} // closed when it has ended
	mu    sync.Mutex
	tail  []string
}

func (p *process) start() error {
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		defer close(p.gone)
		said := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.mu.Lock()
			p.tail = append(p.tail, lines.Text())
			p.tail = p.tail[max(0, len(p.tail)-20):]
			p.mu.Unlock()
			if !said && (strings.Contains(lines.Text(), "Ready to accept connections") ||
				strings.Contains(lines.Text(), "Sentinel ID is")) {
				said = true
				close(p.ready)
			}
		}
		p.cmd.Wait()
	}()
	return nil
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.gone
}

func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.Clone(p.tail), "\n")
}

// freePort finds a port below those that the kernel gives to outgoing
// connections. One of theirs could be taken while the server is stopped, and a
// client that redials such a port without a listener can even connect to itself.
// A lock on a file keeps the port for this test among all that run on the machine,
// also while its server is stopped.
func freePort(t testing.TB) int {
	t.Helper()
	var last error
	for range 200 {
		port := 10000 + rand.IntN(20000)
		claim, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("redistest-%d.lock", port)),
			os.O_CREATE|os.O_RDWR, 0o666)
		if err != nil {
			last = err // another user's, perhaps
			continue
		}
		if syscall.Flock(int(claim.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !inPlace(claim) {
			claim.Close()
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			claim.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() {
			os.Remove(claim.Name()) // while it is still ours
			claim.Close()
		})
		return port
	}
	t.Fatal("redistest: no free port between 10000 and 30000: ", last)
	return 0
}

// inPlace tells whether a file that is locked is the one of its name: the test that had it before
// removed it, perhaps, after it was opened here.
func inPlace(f *os.File) bool {
	mine, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(f.Name())
	return err == nil && os.SameFile(mine, named)
}
