//go:build linux

package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// --- the contender

// etcdLocks has a session for each lock that is held or waited for: two Mutexes of one session
// and one name do not exclude each other. They are used again, as a program would.
type etcdLocks struct {
	client *clientv3.Client
	free   chan *concurrency.Session
}

func openEtcd(addr string) (locks, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + addr}, DialTimeout: 10 * time.Second,
		Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return &etcdLocks{c, make(chan *concurrency.Session, 1024)}, nil
}

func (e *etcdLocks) with(name string, lock func(*concurrency.Mutex) error) (func() error, error) {
	var s *concurrency.Session
	select {
	case s = <-e.free:
	default:
		var err error
		if s, err = concurrency.NewSession(e.client, concurrency.WithTTL(int(lease.Seconds()))); err != nil {
			return nil, err
		}
	}
	m := concurrency.NewMutex(s, "/"+name)
	if err := lock(m); err != nil {
		e.free <- s
		return nil, err
	}
	return func() error {
		err := m.Unlock(context.Background())
		e.free <- s
		return err
	}, nil
}

func (e *etcdLocks) Lock(ctx context.Context, name string) (func() error, error) {
	return e.with(name, func(m *concurrency.Mutex) error { return m.Lock(ctx) })
}

func (e *etcdLocks) TryLock(ctx context.Context, name string) (func() error, error) {
	return e.with(name, func(m *concurrency.Mutex) error {
		err := m.TryLock(ctx)
		if errors.Is(err, concurrency.ErrLocked) {
			return errHeld
		}
		return err
	})
}

func (e *etcdLocks) Close() { e.client.Close() }

// --- the server

// etcdBinary is where ./peers leaves it, if it is not installed.
const etcdBinary = "target/etcd/usr/bin/etcd"

// etcdStore is one server with a directory of its own, as etcd comes: it writes to the disk
// before it answers.
type etcdStore struct {
	cmd     *exec.Cmd
	client  *clientv3.Client
	address string
	slow    string
}

// findEtcd is the server's program, or "".
func findEtcd() string {
	if path, err := exec.LookPath("etcd"); err == nil {
		return path
	}
	if path, err := filepath.Abs(etcdBinary); err == nil {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func startEtcd(t testing.TB, path string) (*etcdStore, error) {
	t.Helper()
	s := &etcdStore{address: freeAddress(t)}
	url, peers := "http://"+s.address, "http://"+freeAddress(t)
	s.cmd = exec.Command(path, "--data-dir", t.TempDir(), "--log-level", "error",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	p, err := harness.Start(s.cmd)
	if err != nil {
		return nil, err
	}
	t.Cleanup(p.Kill)
	if s.client, err = clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()}); err != nil {
		return nil, err
	}
	t.Cleanup(func() { s.client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.client.Get(ctx, "/"); err != nil { // it waits for the server
		return nil, fmt.Errorf("etcd does not answer: %w\n%s", err, p.Output.String())
	}
	s.slow = slowLink(t, s.address, delay)
	return s, nil
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l := harness.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	return l.Addr().String()
}

func (s *etcdStore) addr(w workload) string {
	if w.slow {
		return s.slow
	}
	return s.address
}

func (s *etcdStore) empty(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	harness.Checkf(t, harness.Err(s.client.Delete(ctx, "/", clientv3.WithPrefix())), "etcd")
	leases, err := s.client.Leases(ctx)
	if err != nil {
		t.Errorf("etcd: %v", err)
		return
	}
	for _, l := range leases.Leases { // of the sessions of workers that are gone
		s.client.Revoke(ctx, l.ID)
	}
}

// cpu has a resolution of 10 ms.
func (s *etcdStore) cpu(t testing.TB) float64 {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		t.Errorf("etcd: %v", err)
		return math.NaN()
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after) // from the third on: user and system time are the 14th and 15th
	if len(fields) < 13 {
		return math.NaN()
	}
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) * 1e4
}

func (s *etcdStore) connections(testing.TB) float64 { return math.NaN() }

// messages is a meter by etcd's own metrics: what it received from clients.
type messages struct {
	store *etcdStore
	at    []int64
}

func (s *etcdStore) meter(t testing.TB) meter {
	t.Helper()
	m := &messages{store: s}
	m.mark(t)
	return m
}

func (m *messages) mark(t testing.TB) {
	t.Helper()
	reply, err := http.Get("http://" + m.store.address + "/metrics")
	if err != nil {
		t.Errorf("etcd: %v", err)
		return
	}
	defer reply.Body.Close()
	sum := 0.0
	for in := bufio.NewScanner(reply.Body); in.Scan(); {
		if line := in.Text(); strings.HasPrefix(line, "grpc_server_msg_received_total{") {
			v, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			sum += v
		}
	}
	m.at = append(m.at, int64(sum))
}

func (m *messages) stop(t testing.TB) (window, all int64) {
	t.Helper()
	m.mark(t)
	if len(m.at) != 4 {
		return 0, 0
	}
	return m.at[2] - m.at[1], m.at[3] - m.at[0]
}

// What ./peers has built.
const (
	redissonVersion = "4.7.0"
	javaClasses     = "target/java"
	javaClasspath   = "../interop/java/target/" + redissonVersion + "/classpath"
)

// javas are virtual machines with Worker.java. They are kept from run to run, so that their
// compilers have seen the code; between runs they have no client and nothing to do.
//
// One that is alone has both of Java's compilers. Several on a few cores would spend most of
// their time in the second one, for minutes, and hand over a fifth as often meanwhile: they have the first.
type javas struct {
	classpath string
	alone     *member
	crowd     []*member
	all       []*member
}

// findJava returns nil where Worker.java is not built.
func findJava(t testing.TB) *javas {
	t.Helper()
	jars, err := os.ReadFile(javaClasspath)
	if err != nil {
		return nil
	}
	if _, err := os.Stat(filepath.Join(javaClasses, "Worker.class")); err != nil {
		return nil
	}
	if _, err := exec.LookPath("java"); err != nil {
		return nil
	}
	j := &javas{classpath: javaClasses + string(os.PathListSeparator) + strings.TrimSpace(string(jars))}
	t.Cleanup(func() {
		for _, m := range j.all {
			m.dismiss()
		}
	})
	return j
}

func (j *javas) start(options ...string) (*member, error) {
	options = append(options, "-Xmx256m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp",
		j.classpath, "Worker")
	m, err := startMember(exec.Command("java", options...))
	if err == nil {
		j.all = append(j.all, m)
	}
	return m, err
}

// crew are n of them, the same ones each time. One whose run was broken off is not used again.
func (j *javas) crew(n int) (crew []*member, release func(), err error) {
	if n == 1 {
		if j.alone == nil {
			if j.alone, err = j.start(); err != nil {
				return nil, func() {}, err
			}
		}
		crew = []*member{j.alone}
	} else {
		for len(j.crowd) < n {
			m, err := j.start("-XX:TieredStopAtLevel=1")
			if err != nil {
				return nil, func() {}, err
			}
			j.crowd = append(j.crowd, m)
		}
		crew = slices.Clone(j.crowd[:n])
	}
	return crew, func() {
		for _, m := range crew {
			if !m.busy {
				continue
			}
			m.dismiss()
			if m == j.alone {
				j.alone = nil
			}
			j.crowd = slices.DeleteFunc(j.crowd, func(x *member) bool { return x == m })
		}
	}, nil
}

// warm has those that list needs compile what they will run. What these runs tell is not shown.
func (j *javas) warm(t testing.TB, h *hosts, list []workload) {
	t.Helper()
	c := harness.Must(find("Redisson"))(t)
	most, one := 0, false
	for _, w := range list {
		one = one || w.processes == 1
		most = max(most, w.processes)
	}
	var warming []workload
	if most > 1 {
		warming = append(warming, workload{name: "warming up", processes: most, goroutines: 8},
			workload{name: "warming up", processes: most, goroutines: 2, shared: true})
	}
	if one {
		warming = append(warming, workload{name: "warming up", processes: 1, goroutines: 32},
			workload{name: "warming up", processes: 1, goroutines: 32, shared: true})
	}
	for _, w := range warming {
		if _, err := w.run(t, h, c, 3*time.Second, nothing); err != nil {
			t.Logf("Redisson: %v", err)
		}
	}
}

// javaVersion is what `java -version` says first.
func javaVersion() string {
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Sprint(err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}
