package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// The tests run an etcd of their own, on free ports: in this process, or in others that can be killed.

// server is the address of the etcd of most tests, which have a prefix each.
var server string

// memberOf has a test process be a member of an etcd until it is killed: its name, its folder, the port for
// clients, and the members as names and URLs.
const memberOf = "MORTISE_TEST_MEMBER_OF"

func TestMain(m *testing.M) {
	runtime.LockOSThread() // other processes end with the thread that started them
	os.Exit(func() int {
		var err error
		switch {
		case os.Getenv(memberOf) != "":
			err = member(strings.Fields(os.Getenv(memberOf)))
		case os.Getenv(holderOf) != "":
			err = hold(os.Getenv(holderOf))
		case os.Getenv(workerOf) != "":
			err = work(os.Getenv(workerOf), os.Getenv(inside))
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
	ports := freePorts(2)
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	e, err := startMember([]string{"one", dir, fmt.Sprint(ports[0]), "one=" + peer})
	if err != nil {
		fmt.Fprintln(os.Stderr, "no etcd for the tests:", err)
		return 1
	}
	defer e.Close()
	server = fmt.Sprintf("127.0.0.1:%d", ports[0])
	return run()
}

// freePorts returns ports that are free for a moment.
func freePorts(n int) (ports []int) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// startMember starts a member in this process.
func startMember(of []string) (*embed.Etcd, error) {
	name, dir, port, cluster := of[0], of[1], of[2], of[3]
	c := embed.NewConfig()
	c.Name, c.Dir, c.InitialCluster = name, dir, cluster
	c.UnsafeNoFsync = true // no test cuts the power
	c.TickMs, c.ElectionMs = 50, 500
	c.MaxTxnOps = 128
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	for one := range strings.SplitSeq(cluster, ",") {
		if of, peer, _ := strings.Cut(one, "="); of == name {
			at, err := url.Parse(peer)
			if err != nil {
				return nil, err
			}
			c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*at}, []url.URL{*at}
		}
	}
	at := url.URL{Scheme: "http", Host: "127.0.0.1:" + port}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{at}, []url.URL{at}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case <-time.After(time.Minute):
		e.Close()
		return nil, errors.New("the member is not ready after a minute")
	}
}

func member(of []string) error {
	_, err := startMember(of)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
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
