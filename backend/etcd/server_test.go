package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/beside"
)

// The tests run an etcd of their own on free ports: processes of the server that .ci/etcd builds, or of MORTISE_ETCD.

// server is the address of the etcd of most tests, which have a prefix each. In the short tier there is none.
var server string

func TestMain(m *testing.M) {
	beside.Worker(ways...)
	runtime.LockOSThread() // other processes end with the thread that started them
	flag.Parse()
	os.Exit(func() int {
		var err error
		switch {
		case os.Getenv(holderOf) != "":
			err = hold(os.Getenv(holderOf))
		case os.Getenv(workerOf) != "":
			err = work(os.Getenv(workerOf), os.Getenv(inside))
		case testing.Short():
			return m.Run()
		default:
			return withServer(m.Run)
		}
		if err != nil {
			fmt.Println("failed:", err)
		}
		return 1
	}())
}

func withServer(run func() int) int {
	dir, err := os.MkdirTemp("", "mortise-etcd")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	one := newMembers(dir)[0]
	if err = one.start(); err == nil {
		defer one.stop()
		err = one.ready()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no etcd for the tests (run make etcd, or .ci/etcd alone; -short needs none):", err)
		return 1
	}
	server = one.addr
	return run()
}

// member is a process of etcd's server, which may be started again.
type member struct {
	name, dir, addr, peer, cluster string
	// disk: the disk is waited for, as etcd comes. No test cuts the power.
	disk bool

	cmd   *exec.Cmd
	ended chan struct{}
}

// newMembers returns the members of an etcd, one for each folder, on ports that are free for a moment.
func newMembers(dirs ...string) (all []*member) {
	free := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close()
		return l.Addr().String()
	}
	var cluster []string
	for i, dir := range dirs {
		m := &member{name: fmt.Sprint("m", i), dir: dir, addr: free(), peer: "http://" + free()}
		cluster = append(cluster, m.name+"="+m.peer)
		all = append(all, m)
	}
	for _, m := range all {
		m.cluster = strings.Join(cluster, ",")
	}
	return all
}

// start starts the process.
func (m *member) start() error {
	path := os.Getenv("MORTISE_ETCD")
	if path == "" {
		path = "../../bin/servers/etcd-3.6"
	}
	m.cmd = exec.Command(path, "--name", m.name, "--data-dir", m.dir+"/data", "--initial-cluster", m.cluster,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--listen-client-urls", "http://"+m.addr, "--advertise-client-urls", "http://"+m.addr,
		"--heartbeat-interval", "50", "--election-timeout", "500", "--max-txn-ops", "128", "--log-level", "error",
		fmt.Sprintf("--unsafe-no-fsync=%t", !m.disk))
	m.cmd.SysProcAttr = redistest.DieWithParent()
	log, err := os.Create(m.dir + "/log")
	if err != nil {
		return err
	}
	defer log.Close()
	m.cmd.Stdout, m.cmd.Stderr = log, log
	if err := m.cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	m.ended = ended
	go func() {
		_ = m.cmd.Wait()
		close(ended)
	}()
	return nil
}

// ready waits until a majority of the members takes requests of this one.
func (m *member) ready() error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.addr}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	go func() {
		select {
		case <-m.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if _, err = c.Get(ctx, "any"); err != nil {
		said, _ := os.ReadFile(m.dir + "/log")
		return fmt.Errorf("%s is not ready: %w; it said:\n%s", m.cmd, err, said)
	}
	return nil
}

// stop kills the process, if it runs.
func (m *member) stop() {
	_ = m.cmd.Process.Kill()
	<-m.ended
}

// direct returns a client past all proxies.
func direct(t testing.TB, endpoints ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var background = context.Background()
