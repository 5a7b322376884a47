package interop

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/test/internal/harness"
)

// versions of Redisson: the last of 2023, of 3.x, and of all.
var versions = []string{oldest, "3.52.0", "4.7.0"}

// oldest announces releases by SPUBLISH on every cluster that knows it, and cannot be told not to:
// it is left out of the cluster without sharded pub/sub.
const oldest = "3.25.2"

// long bounds everything that is awaited and should take no time. What is awaited
// beyond it is a lost wake-up. It is less than what anything that looks again by itself
// waits before it does.
const long = 25 * time.Second

// atOnce is how many tests run side by side. Nearly all of their time is waiting.
const atOnce = 16

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		flag.Set("test.parallel", strconv.Itoa(atOnce))
	}
	code := m.Run()
	if err := stopJava(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// build compiles the Java program for all versions, once.
var build = sync.OnceValue(func() error {
	cmd := exec.Command("./build", versions...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("./build: %w", err)
	}
	return nil
})

// request and reply are Driver.java's Request and Reply. Times are in ms.
type request struct {
	ID     int64  `json:"id"`
	Op     string `json:"op"`
	Client string `json:"client,omitempty"`
	Thread string `json:"thread"`
	Kind   string `json:"kind,omitempty"`
	Name   string `json:"name,omitempty"`
	Lease  int64  `json:"lease,omitempty"`
	Wait   int64  `json:"wait,omitempty"`
	Owner  string `json:"owner,omitempty"` // a client's id
	Of     int64  `json:"of,omitempty"`
	Count  int    `json:"count,omitempty"`
	Permit string `json:"permit,omitempty"`
	Parts  []part `json:"parts,omitempty"`
	Site
}

// Site is the servers that a Java client is opened on, and how. It is exported for encoding/json.
type Site struct {
	Nodes    []string `json:"nodes,omitempty"`
	Cluster  bool     `json:"cluster,omitempty"`
	Sharded  bool     `json:"sharded,omitempty"`
	Watchdog int64    `json:"watchdog,omitempty"`
}

type part struct {
	Client string `json:"client"`
	Name   string `json:"name"`
}

type reply struct {
	ID     int64  `json:"id"`
	OK     bool   `json:"ok"`
	Number int64  `json:"number"`
	Text   string `json:"text"`
	State  struct {
		Locked    bool  `json:"locked"`
		Held      bool  `json:"held"`
		Holds     int   `json:"holds"`
		Remaining int64 `json:"remaining"`
	} `json:"state"`
	// Error is the simple name of the exception's class.
	Error   string `json:"error"`
	Message string `json:"message"`
}

// java is a running Driver. Its methods may be called from any goroutine.
type java struct {
	*harness.Process
	version string

	mu      sync.Mutex
	last    int64
	pending map[int64]*call
}

// call is a request that is on its way.
type call struct {
	request request
	done    chan struct{} // closed when reply is there
	reply   reply
	at      time.Time // when the reply arrived
}

// javas are the programs that run, one for each version: started when a test first needs
// it, and for all sites.
var javas struct {
	mu      sync.Mutex
	running map[string]*java
}

// theJava is the program for a version. It says in t's log what Redisson said, if t fails.
func theJava(t *testing.T, version string) *java {
	t.Helper()
	harness.OK(t, build())
	javas.mu.Lock()
	defer javas.mu.Unlock()
	j := javas.running[version]
	if j == nil {
		j = harness.Must(startJava(version))(t)
		if javas.running == nil {
			javas.running = make(map[string]*java)
		}
		javas.running[version] = j
	}
	t.Cleanup(func() {
		if said := j.Output.String(); t.Failed() && said != "" {
			t.Logf("Redisson %s said:\n%s", version, said)
		}
	})
	return j
}

// stopJava ends all that run.
func stopJava() error {
	var errs []error
	for version, j := range javas.running {
		j.In.Close() // the program ends with it
		if err := j.Ends(long); err != nil {
			errs = append(errs, fmt.Errorf("Java %s: %w", version, err))
		}
	}
	return errors.Join(errs...)
}

func startJava(version string) (*java, error) {
	target := filepath.Join("java", "target", version)
	jars, err := os.ReadFile(filepath.Join(target, "classpath"))
	if err != nil {
		return nil, err
	}
	// The first compiler only: most of such a short life would go into the second.
	p, err := harness.Talk(exec.Command("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(target, "classes")+string(os.PathListSeparator)+strings.TrimSpace(string(jars)), "Driver"))
	if err != nil {
		return nil, err
	}
	j := &java{Process: p, version: version, pending: make(map[int64]*call)}
	go j.read()
	return j, nil
}

func (j *java) read() {
	for lines := bufio.NewScanner(j.Out); lines.Scan(); {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Fprintf(&j.Output, "not a reply: %s\n", lines.Bytes())
			continue
		}
		j.mu.Lock()
		c := j.pending[r.ID]
		delete(j.pending, r.ID)
		j.mu.Unlock()
		if c != nil {
			c.reply, c.at = r, time.Now()
			close(c.done)
		}
	}
}

// start sends a request.
func (j *java) start(r request) *call {
	c := &call{done: make(chan struct{})}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.last++
	r.ID = j.last
	c.request = r
	line, err := json.Marshal(r)
	if err != nil {
		panic(err) // it is made of plain fields
	}
	j.pending[r.ID] = c
	if err := j.Tell(string(line)); err != nil {
		delete(j.pending, r.ID)
		c.reply.Error, c.reply.Message = "Gone", err.Error()
		close(c.done)
	}
	return c
}

// wait awaits the reply for some time. The reply's Error is "Timeout" when there is none,
// and "Gone" when there will be none.
func (j *java) wait(c *call, d time.Duration) reply {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.reply
	case <-timer.C:
		return reply{Error: "Timeout", Message: fmt.Sprintf("no reply to %s within %v", c.request.Op, d)}
	case <-j.Gone:
		select {
		case <-c.done:
			return c.reply
		default:
			return reply{Error: "Gone", Message: "Java has ended:\n" + j.Output.String()}
		}
	}
}

// redisson is a RedissonClient.
type redisson struct {
	java *java
	name string // the driver's for it
	id   string // Redisson's UUID for it

	closed sync.Once
}

// open makes a RedissonClient on a site, until the end of the test. watchdog 0 is
// Redisson's own, 30 s.
func (j *java) open(t *testing.T, s *site, name string, watchdog time.Duration) *redisson {
	t.Helper()
	c := &redisson{java: j, name: t.Name() + "/" + name}
	r := request{Op: "open", Client: c.name, Thread: c.name,
		Site: Site{Cluster: s.cluster(), Sharded: s.sharded, Watchdog: watchdog.Milliseconds()}}
	for _, server := range s.servers {
		r.Nodes = append(r.Nodes, "redis://"+cmp.Or(s.front, server.Addr()))
	}
	got := j.wait(j.start(r), 2*long)
	harness.FatalIf(t, got.Error != "", "Redisson %s could not be opened: %s: %s", j.version, got.Error, got.Message)
	c.id = got.Text
	t.Cleanup(func() { c.close(t) })
	return c
}

// close shuts it down, without a release of what it holds. Once is enough.
func (c *redisson) close(t *testing.T) {
	c.closed.Do(func() {
		got := c.java.wait(c.java.start(request{Op: "close", Client: c.name, Thread: c.name}), long)
		harness.ErrorIf(t, got.Error != "",
			"Redisson %s could not be closed: %s: %s", c.java.version, got.Error, got.Message)
	})
}

// thread is a Java thread, which is an owner. Each name is a thread of its own, for each client.
type thread struct {
	t      *testing.T
	client *redisson
	name   string
	id     int64
}

func (c *redisson) thread(t *testing.T, name string) *thread {
	t.Helper()
	th := &thread{t: t, client: c, name: c.name + "/" + t.Name() + "/" + name}
	th.id = th.do(request{Op: "thread"}).Number
	return th
}

// owner is the thread as the store knows it.
func (th *thread) owner() string { return fmt.Sprintf("%s:%d", th.client.id, th.id) }

func (th *thread) start(r request) *call {
	r.Client, r.Thread = th.client.name, th.name
	return th.client.java.start(r)
}

// try is an operation that may fail in Java.
func (th *thread) try(r request) reply {
	th.t.Helper()
	got := th.client.java.wait(th.start(r), long)
	harness.FatalIf(th.t, got.Error == "Timeout" || got.Error == "Gone", "Java, %s %s: %s", r.Op, r.Name, got.Message)
	return got
}

// do is one that must not.
func (th *thread) do(r request) reply {
	th.t.Helper()
	got := th.try(r)
	harness.FatalIf(th.t, got.Error != "", "Java, %s %s: %s: %s", r.Op, r.Name, got.Error, got.Message)
	return got
}

// rlock is a lock as a Java thread has it.
type rlock struct {
	*thread
	kind, name string
}

func (th *thread) lockOf(kind, name string) *rlock { return &rlock{th, kind, name} }

func (l *rlock) ask(op string) request { return request{Op: op, Kind: l.kind, Name: l.name} }

// lock takes a lock that is free and returns the token, if the lock is fenced.
// lease 0 is the watchdog.
func (l *rlock) lock(lease time.Duration) int64 {
	l.t.Helper()
	r := l.ask("lock")
	r.Lease = lease.Milliseconds()
	return l.do(r).Number
}

// lockAndGetToken takes a fenced lock that is free, in one call. A call that has to wait may miss a release: see
// Driver.java.
func (l *rlock) lockAndGetToken() int64 { l.t.Helper(); return l.do(l.ask("lockAndGetToken")).Number }

// startLock begins to wait for one that is held.
func (l *rlock) startLock() *call { return l.start(l.ask("lock")) }

// tryLock returns the token, if the lock is fenced.
func (l *rlock) tryLock(wait, lease time.Duration) (int64, bool) {
	l.t.Helper()
	r := l.ask("tryLock")
	r.Wait, r.Lease = wait.Milliseconds(), lease.Milliseconds()
	got := l.do(r)
	return got.Number, got.OK
}

func (l *rlock) unlock()           { l.t.Helper(); l.do(l.ask("unlock")) }
func (l *rlock) forceUnlock() bool { l.t.Helper(); return l.do(l.ask("forceUnlock")).OK }
func (l *rlock) state() (r reply)  { l.t.Helper(); return l.do(l.ask("state")) }
func (l *rlock) lastToken() int64  { l.t.Helper(); return l.do(l.ask("token")).Number }

// heldBy asks Java whether the owner holds the lock that has a number, a thread's in Java, of a client.
func (l *rlock) heldBy(client string, n int64) bool {
	l.t.Helper()
	r := l.ask("heldBy")
	r.Owner, r.Of = client, n
	return l.do(r).OK
}

// await awaits the end of startLock: how long after the event it came, at most limit.
func (l *rlock) await(c *call, event time.Time) (time.Duration, reply) {
	l.t.Helper()
	got := l.client.java.wait(c, long)
	harness.FatalIf(l.t, got.Error != "", "Java waits for %s: %s: %s", l.name, got.Error, got.Message)
	return c.at.Sub(event), got
}
