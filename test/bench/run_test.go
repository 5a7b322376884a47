//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// workload is what every contender does.
type workload struct {
	name       string
	what       string
	processes  int
	goroutines int
	shared     bool
	try        bool
	hold       time.Duration
}

// plays tells whether c takes part.
func (w workload) plays(c contender) bool {
	switch {
	case w.shared:
		return c.role != floor // they do not wait
	default:
		return !c.fair
	}
}

// outcome is one run of a workload by one contender.
type outcome struct {
	rate       float64 // ops, or handoffs, per second
	p50        float64 // µs
	p99        float64
	max        float64
	mean       float64
	jain       float64
	held       float64 // µs
	cpu        float64 // µs of the clients' for each op
	server     float64 // µs of the server's for each op
	allocs     float64
	bytes      float64
	goroutines float64 // of all processes
	conns      float64
	commands   float64 // for each op; only where they were counted
}

// figures are those that every run measures, in an order of their own.
func (o *outcome) figures() []*float64 {
	return []*float64{
		&o.rate, &o.p50, &o.p99, &o.max, &o.mean, &o.jain, &o.held, &o.cpu, &o.server,
		&o.allocs, &o.bytes, &o.goroutines, &o.conns,
	}
}

// run is one run, on a server that is emptied before. A peer that fails is no failure of this
// test: its outcome is empty, and shows as 0 in the table.
func (w workload) run(t testing.TB, s *redistest.Server, c contender, window time.Duration, count bool) outcome {
	t.Helper()
	o, err := w.runOnce(t, s, c, window, count)
	switch {
	case err == nil:
	case c.role == peer:
		t.Logf("%s, %s: %v", w.name, c.name, err)
	default:
		t.Errorf("%s, %s: %v", w.name, c.name, err)
	}
	return o
}

func (w workload) runOnce(t testing.TB, s *redistest.Server, c contender, window time.Duration, count bool) (outcome, error) {
	t.Helper()
	s.Must("FLUSHALL")
	path := filepath.Join(t.TempDir(), "witness")
	var crew []*member
	for p := range w.processes {
		crew = append(crew, enlist(t, task{
			Contender: c.name, Addr: s.Addr(), Witness: path, Process: p, Goroutines: w.goroutines,
			Shared: w.shared, Try: w.try, Hold: w.hold, Window: window,
		}))
	}
	for _, m := range crew {
		if err := m.ready(); err != nil {
			return outcome{}, err
		}
	}
	var counted *monitor
	if count {
		counted = watch(t, s.Addr())
	}
	before := serverCPU(t, s)
	for _, m := range crew {
		if err := m.begin(); err != nil {
			return outcome{}, err
		}
	}
	time.Sleep(window / 2) // the middle of what is measured, nothing is awaited
	conns := connections(t, s)
	var o outcome
	var waits []float64
	var each []int
	ops, goroutines := 0, 0
	for _, m := range crew {
		r, err := m.report()
		if err != nil {
			return outcome{}, err
		}
		if r.Violations > 0 {
			return outcome{}, fmt.Errorf("%d times somebody was inside already", r.Violations)
		}
		if r.Failures > 0 {
			t.Logf("%s, %s: %d calls failed", w.name, c.name, r.Failures)
		}
		ops += r.Ops
		o.rate += float64(r.Ops) / r.Seconds
		o.held += r.Held * float64(r.Ops)
		o.cpu += r.CPU * float64(r.Ops)
		o.allocs += r.Allocs * float64(r.Ops)
		o.bytes += r.Bytes * float64(r.Ops)
		goroutines += r.Goroutines
		waits = append(waits, r.Waits...)
		each = append(each, r.Each...)
	}
	if ops == 0 {
		return outcome{}, errors.New("nobody got anything")
	}
	n := float64(ops)
	o.held /= n
	o.cpu /= n
	o.allocs /= n
	o.bytes /= n
	o.server = (serverCPU(t, s) - before) / n
	o.p50, o.p99, o.max, o.mean = quantile(waits, 0.5), quantile(waits, 0.99), quantile(waits, 1), mean(waits)
	o.jain = jain(each)
	o.goroutines, o.conns = float64(goroutines), conns
	if counted != nil {
		o.commands = float64(counted.stop(t, s)) / n
	}
	return o, nil
}

// member is a worker process.
type member struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func enlist(t testing.TB, k task) *member {
	t.Helper()
	text, err := json.Marshal(k)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	m := &member{cmd: exec.Command(self)}
	// The race detector makes a process sleep for a second at its end, by default.
	m.cmd.Env = append(os.Environ(), workerEnv+"="+string(text), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	m.cmd.Stderr = &m.stderr
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.out = bufio.NewReader(out)
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := time.AfterFunc(2*time.Minute, func() { m.cmd.Process.Signal(syscall.SIGQUIT) })
	t.Cleanup(func() {
		end.Stop()
		m.cmd.Process.Kill()
		m.cmd.Wait()
	})
	return m
}

func (m *member) failed(err error) error {
	m.cmd.Process.Kill()
	m.cmd.Wait()
	return fmt.Errorf("a worker failed: %w\n%s", err, m.stderr.String())
}

func (m *member) ready() error {
	for {
		line, err := m.out.ReadString('\n')
		if err != nil {
			return m.failed(err)
		}
		if line == "ready\n" {
			return nil
		}
	}
}

func (m *member) begin() error {
	if _, err := io.WriteString(m.in, "begin\n"); err != nil {
		return m.failed(err)
	}
	return nil
}

func (m *member) report() (r report, err error) {
	if err = json.NewDecoder(m.out).Decode(&r); err == nil {
		err = m.cmd.Wait()
	}
	if err != nil {
		return r, m.failed(err)
	}
	return r, nil
}

// monitor counts what clients send.
type monitor struct {
	conn net.Conn
	n    int64         // may be read when done is closed
	done chan struct{} // it has seen the mark, or lost its connection
}

// mark ends what is counted.
const mark = "mortise-bench-end"

func watch(t testing.TB, addr string) *monitor {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReaderSize(conn, 1<<20)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	m := &monitor{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			line, err := in.ReadSlice('\n')
			if err != nil && err != bufio.ErrBufferFull {
				return
			}
			// +1700000000.123456 [0 127.0.0.1:4711] "EVALSHA" ...
			// and [0 lua] where a script runs it. A line that is longer than the buffer comes in pieces.
			switch {
			case err != nil:
			case bytes.Contains(line, []byte(mark)):
				return
			case !bytes.Contains(line, []byte(" lua] ")) && !bytes.Contains(line, []byte(`"INFO"`)):
				m.n++
			}
		}
	}()
	return m
}

func (m *monitor) stop(t testing.TB, s *redistest.Server) int64 {
	t.Helper()
	s.Must("ECHO", mark) // what was sent before comes before
	end := time.AfterFunc(time.Minute, func() { m.conn.Close() })
	<-m.done
	if !end.Stop() {
		t.Error("the monitor has fallen silent")
	}
	m.conn.Close()
	return m.n
}

var cpuLine = regexp.MustCompile(`used_cpu_(?:user|sys):([0-9.]+)`)

// serverCPU is in µs.
func serverCPU(t testing.TB, s *redistest.Server) (sum float64) {
	t.Helper()
	for _, m := range cpuLine.FindAllStringSubmatch(fmt.Sprint(s.Must("INFO", "cpu")), -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += v * 1e6
	}
	return sum
}

func connections(t testing.TB, s *redistest.Server) float64 {
	t.Helper()
	_, after, ok := strings.Cut(fmt.Sprint(s.Must("INFO", "clients")), "connected_clients:")
	line, _, _ := strings.Cut(after, "\r")
	n, err := strconv.Atoi(line)
	if !ok || err != nil {
		t.Fatalf("INFO clients: %v", err)
	}
	return float64(n - 1) // but this one
}
