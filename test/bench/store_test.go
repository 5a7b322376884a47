//go:build linux

package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// store is a server, and what is measured there.
type store interface {
	// addr is where clients of a workload connect to: the server, the slow link before it, or the server's port for TLS.
	addr(workload) string
	// empty forgets all locks.
	empty(t testing.TB)
	// cpu is what it has used so far, in µs.
	cpu(t testing.TB) float64
	// connections are those of clients; NaN if it cannot tell.
	connections(t testing.TB) float64
	// meter begins to count what clients send.
	meter(t testing.TB) meter
}

// meter counts what clients send.
type meter interface {
	// mark is put at the beginning and at the end of the window.
	mark(t testing.TB)
	// stop tells what was sent between the marks, and in all.
	stop(t testing.TB) (window, all int64)
}

// slowLink is a proxy before the server at addr that holds everything back for delay, each
// way. What is on its way meanwhile overlaps, as on a wire.
func slowLink(t testing.TB, addr string, delay time.Duration) string {
	t.Helper()
	return redistest.NewRelay(t, addr, func(l *redistest.Line) (up, down func()) {
		late := func(to, from net.Conn) func() {
			return func() {
				for c := range l.Chunks(from) {
					if !l.Sleep(delay - time.Since(c.Came)) {
						return
					}
					if _, err := to.Write(c.Data); err != nil {
						return
					}
				}
			}
		}
		return late(l.Server, l.Client), late(l.Client, l.Server)
	}).Addr()
}

type redisStore struct {
	*redistest.Server
	slow string
	tls  *redistest.TLS
}

func startRedis(t testing.TB) *redisStore {
	t.Helper()
	x := redistest.NewTLS(t)
	s := redistest.Start(t, redistest.WithTLS(x))
	return &redisStore{s, slowLink(t, s.Addr(), delay), x}
}

func (s *redisStore) addr(w workload) string {
	switch {
	case w.slow:
		return s.slow
	case w.encrypted:
		return s.TLSAddr()
	}
	return s.Addr()
}

func (s *redisStore) empty(testing.TB) { s.Must("FLUSHALL") }

func (s *redisStore) cpu(t testing.TB) (sum float64) {
	t.Helper()
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		sum += 1e6 * harness.Must(strconv.ParseFloat(s.Info(field), 64))(t)
	}
	return sum
}

func (s *redisStore) connections(t testing.TB) float64 {
	t.Helper()
	return float64(harness.Must(strconv.Atoi(s.Info("connected_clients")))(t) - 1) // but this one
}

var scriptLine = regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=([0-9]+),usec=([0-9]+)`)

// scripts tells how often clients have run one so far, and for how long. Scripts do not run scripts,
// so here the server's own count will do; MONITOR makes one that renews 256 leases several times as slow.
func (s *redisStore) scripts(t testing.TB) (calls int, took time.Duration) {
	t.Helper()
	for _, m := range scriptLine.FindAllStringSubmatch(fmt.Sprint(s.Must("INFO", "commandstats")), -1) {
		n := harness.Must(strconv.Atoi(m[1]))(t)
		d := harness.Must(time.ParseDuration(m[2] + "us"))(t)
		calls, took = calls+n, took+d
	}
	return calls, took
}

// monitor is a meter by MONITOR, which tells what clients send from what scripts run.
type monitor struct {
	server *redistest.Server
	conn   net.Conn
	n      int64 // may be read when done is closed, as marks
	marks  []int64
	done   chan struct{} // it has seen the last mark, or lost its connection
}

const (
	markText = "mortise-bench-mark"
	lastText = "mortise-bench-last"
)

func (s *redisStore) meter(t testing.TB) meter {
	t.Helper()
	conn := harness.Must(net.Dial("tcp", s.Addr()))(t)
	harness.Must(io.WriteString(conn, "MONITOR\r\n"))(t)
	in := bufio.NewReaderSize(conn, 1<<20)
	harness.Must(in.ReadString('\n'))(t)
	m := &monitor{server: s.Server, conn: conn, done: make(chan struct{})}
	go m.read(in)
	return m
}

func (m *monitor) read(in *bufio.Reader) {
	defer close(m.done)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
		// +1700000000.123456 [0 127.0.0.1:4711] "EVALSHA" ...
		// and [0 lua] where a script runs it. A line that is longer than the buffer comes in pieces.
		head := line[:min(len(line), 200)]
		switch {
		case err != nil || bytes.Contains(head, []byte(" lua] ")) || bytes.Contains(head, []byte(`"INFO"`)):
		case bytes.Contains(head, []byte(markText)):
			m.marks = append(m.marks, m.n)
		case bytes.Contains(head, []byte(lastText)):
			return
		default:
			m.n++
		}
	}
}

func (m *monitor) mark(testing.TB) { m.server.Must("ECHO", markText) }

func (m *monitor) stop(t testing.TB) (window, all int64) {
	t.Helper()
	m.server.Must("ECHO", lastText) // what was sent before comes before
	end := time.AfterFunc(time.Minute, func() { m.conn.Close() })
	<-m.done
	harness.ErrorIf(t, !end.Stop(), "the monitor has fallen silent")
	m.conn.Close()
	if len(m.marks) == 2 {
		window = m.marks[1] - m.marks[0]
	}
	return window, m.n
}
