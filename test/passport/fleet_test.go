//go:build linux

package passport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/passport"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// patience bounds everything that a test waits for.
const patience = 60 * time.Second

func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
	}
}

func key(id string) passport.Key {
	return passport.NewKey(id, []byte(id+": thirty-two bytes and more, of a test"))
}

func keysOf(ids []string) (keys []passport.Key) {
	for _, id := range ids {
		keys = append(keys, key(id))
	}
	return keys
}

// fleet is services a, b and c, each a process, on one Redis.
type fleet struct {
	*testing.T
	*witness
	redis    *redistest.Server
	client   string
	watchdog time.Duration
	peers    map[string]peer
	running  map[string]*running
	visits   atomic.Int64
	http     *http.Client
}

type running struct {
	cmd    *exec.Cmd
	wait   func() error
	killed bool
}

func newFleet(t *testing.T, client string, watchdog time.Duration, opts ...redistest.Option) *fleet {
	f := &fleet{
		T: t, witness: newWitness(t), redis: redistest.Start(t, opts...), client: client, watchdog: watchdog,
		peers: make(map[string]peer), running: make(map[string]*running), http: &http.Client{Transport: new(http.Transport)},
	}
	t.Cleanup(f.http.CloseIdleConnections)
	files := make(map[string][]*os.File)
	for _, name := range []string{"a", "b", "c"} {
		var addrs []string
		for range 2 {
			l := harness.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
			file, err := l.(*net.TCPListener).File()
			l.Close()
			harness.OK(t, err)
			defer file.Close()
			files[name] = append(files[name], file)
			addrs = append(addrs, l.Addr().String())
		}
		f.peers[name] = peer{"http://" + addrs[0], addrs[1]}
	}
	for name := range f.peers {
		f.start(name, files[name])
	}
	return f
}

func (f *fleet) start(name string, listeners []*os.File) {
	f.Helper()
	text, err := json.Marshal(config{
		Name: name, Redis: f.redis.Addr(), Client: f.client, Witness: f.witness.server.URL, Watchdog: f.watchdog,
		Keys: []string{"k1"}, Peers: f.peers,
	})
	harness.OK(f, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serviceEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = listeners
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in := harness.Must(cmd.StdinPipe())(f)
	out := harness.Must(cmd.StdoutPipe())(f)
	harness.OK(f, cmd.Start())
	r := &running{cmd: cmd, wait: sync.OnceValue(cmd.Wait)}
	f.running[name] = r
	f.Cleanup(func() {
		in.Close()
		if err := r.wait(); err != nil && !r.killed {
			f.Errorf("service %s: %v", name, err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		f.Fatalf("service %s did not start: %q, %v", name, line, err)
	}
}

// kill ends a process without a word, and returns when it has ended.
func (f *fleet) kill(name string) {
	f.Helper()
	r := f.running[name]
	r.killed = true
	harness.OK(f, r.cmd.Process.Kill())
	r.wait()
	f.died(name)
}

// lock is a name that nobody has used yet.
func (f *fleet) lock() string { return fmt.Sprint("orders:", f.visits.Add(1)) }

// begin has the first of the path do the job.
func (f *fleet) begin(ctx context.Context, j job, path ...string) <-chan result {
	j.Visit += path[0]
	j.Path = path[1:]
	done := make(chan result, 1)
	go func() { done <- post(ctx, f.http, f.peers[path[0]].HTTP, j) }()
	return done
}

func (f *fleet) result(c <-chan result) result {
	f.Helper()
	select {
	case r := <-c:
		return r
	case <-time.After(patience):
		f.Fatalf("no answer within %v", patience)
	}
	return result{}
}

func (f *fleet) run(j job, path ...string) result {
	f.Helper()
	return f.result(f.begin(context.Background(), j, path...))
}

func (f *fleet) fine(r result, visits int) {
	f.Helper()
	harness.FatalIf(f, r.Err != "" || r.Visits != visits,
		"%d visits, want %d: %s (%s)", r.Visits, visits, r.Err, r.Kind)
}

// free waits until nothing of a lock is left in Redis.
func (f *fleet) free(name string) {
	f.Helper()
	var keys any
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		var err error
		if keys, err = f.redis.Do("KEYS", "*"); err == nil {
			left := false
			for _, k := range keys.([]any) {
				left = left || strings.Contains(fmt.Sprint(k), name)
			}
			if !left {
				return
			}
		}
	}
	f.Fatalf("%s is not gone from Redis: %v", name, keys)
}

func (f *fleet) keys(name string, ids ...string) {
	f.Helper()
	body := harness.Must(json.Marshal(ids))(f)
	resp, err := f.http.Post(f.peers[name].HTTP+"/keys", "", bytes.NewReader(body))
	if err != nil || resp.StatusCode != 200 {
		f.Fatal(resp, err)
	}
	resp.Body.Close()
}
