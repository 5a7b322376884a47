//go:build linux

package delegation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// patience bounds everything that a test waits for.
const patience = 60 * time.Second

func await(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	harness.Receive(t, patience, what, c)
}

func key(id string) delegation.Key {
	return delegation.NewKey(id, []byte(id+": thirty-two bytes and more, of a test"))
}

func keysOf(ids []string) (keys []delegation.Key) {
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
	running  map[string]*harness.Process
	visits   atomic.Int64
	http     *http.Client
}

func newFleet(t *testing.T, client string, watchdog time.Duration, opts ...redistest.Option) *fleet {
	f := &fleet{
		T: t, witness: newWitness(t), redis: redistest.Start(t, opts...), client: client, watchdog: watchdog,
		peers: make(map[string]peer), running: make(map[string]*harness.Process),
		http: &http.Client{Transport: new(http.Transport)},
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
	cmd := harness.Self(serviceEnv, config{
		Name: name, Redis: f.redis.Addr(), Client: f.client, Witness: f.witness.server.URL, Watchdog: f.watchdog,
		Keys: []string{"k1"}, Peers: f.peers,
	})
	cmd.ExtraFiles = listeners
	p := harness.Must(harness.Talk(cmd))(f)
	f.running[name] = p
	f.Cleanup(func() {
		p.In.Close()
		err := p.Ends(patience)
		harness.ErrorIf(f, err != nil && !p.Killed, "service %s: %v\n%s", name, err, p.Output.String())
	})
	line, err := p.Out.ReadString('\n')
	harness.FatalIf(f, err != nil || line != "ready\n", "service %s did not start: %q, %v", name, line, err)
}

// kill ends a process without a word, and returns when it has ended.
func (f *fleet) kill(name string) {
	f.running[name].Kill()
	f.died(name)
}

// lock is a name that has not been used yet.
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
	return harness.Receive(f, patience, "an answer", c)
}

func (f *fleet) run(j job, path ...string) result {
	f.Helper()
	return f.result(f.begin(context.Background(), j, path...))
}

func (f *fleet) fine(r result, visits int) {
	f.Helper()
	harness.FatalIf(f, r.Err != "" || r.Visits != visits, "%d visits, want %d: %s (%s)", r.Visits, visits, r.Err, r.Kind)
}

// free waits until nothing of a lock is left in Redis.
func (f *fleet) free(name string) {
	f.Helper()
	harness.Await(f, patience, name+" is gone from Redis", func() bool {
		keys, err := f.redis.Do("KEYS", "*")
		return err == nil && !strings.Contains(fmt.Sprint(keys), name)
	})
}

func (f *fleet) keys(name string, ids ...string) {
	f.Helper()
	body := harness.Must(json.Marshal(ids))(f)
	resp, err := f.http.Post(f.peers[name].HTTP+"/keys", "", bytes.NewReader(body))
	harness.FatalIf(f, err != nil || resp.StatusCode != 200, "%v, %v", resp, err)
	resp.Body.Close()
}
