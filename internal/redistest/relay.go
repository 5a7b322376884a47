//go:build unix

package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest/check"
)

// Relay is a TCP proxy in front of a server. The tests decide what passes: see [NewRelay]. Its
// methods may be called concurrently.
type Relay struct {
	listener net.Listener
	upstream string
	open     func(*Line) (up, down func())
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lines  map[*Line]struct{}
	last   int
}

// Line is one connection through a Relay.
type Line struct {
	Number         int // from 1, in the order in which connections were accepted
	Client, Server net.Conn

	dead chan struct{}
	once sync.Once
}

// Chunk is a piece of what came over a connection, and when it came.
type Chunk struct {
	Data []byte
	Came time.Time
}

// NewRelay starts a relay in front of the server at upstream, until the end of the test. open is
// called for each connection and returns what carries bytes up to the server and down to the
// client; nil copies them. The server sees the end of input when up returns, and the line ends
// when down returns.
func NewRelay(t testing.TB, upstream string, open func(*Line) (up, down func())) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check.FatalIf(t, err != nil, "redistest: relay: %v", err)
	r := relay(l, upstream, open)
	t.Cleanup(r.Close)
	return r
}

func relay(l net.Listener, upstream string, open func(*Line) (up, down func())) *Relay {
	r := &Relay{listener: l, upstream: upstream, open: open, lines: make(map[*Line]struct{})}
	r.wg.Go(r.accept)
	return r
}

// Addr is the host:port that clients connect to.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Connections is the number of lines that are open.
func (r *Relay) Connections() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.lines)
}

// Cut ends every line that is open, and returns how many there were. New ones are accepted.
func (r *Relay) Cut() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.lines {
		l.End()
	}
	return len(r.lines)
}

// Close ends the relay and all of its lines.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.listener.Close()
	r.Cut()
	r.wg.Wait()
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(client) })
	}
}

func (r *Relay) serve(client net.Conn) {
	server, err := net.Dial("tcp", r.upstream)
	if err != nil {
		client.Close()
		return
	}
	l := &Line{Client: client, Server: server, dead: make(chan struct{})}
	defer l.End()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return
	}
	r.last++
	l.Number = r.last
	r.lines[l] = struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.lines, l)
		r.mu.Unlock()
	}()
	up, down := func() { io.Copy(server, client) }, func() { io.Copy(client, server) }
	if r.open != nil {
		u, d := r.open(l)
		if u != nil {
			up = u
		}
		if d != nil {
			down = d
		}
	}
	r.wg.Go(func() {
		up()
		server.(*net.TCPConn).CloseWrite()
	})
	down()
}

// End closes both connections.
func (l *Line) End() {
	l.once.Do(func() {
		close(l.dead)
		l.Client.Close()
		l.Server.Close()
	})
}

// Dead is closed when the line has ended.
func (l *Line) Dead() <-chan struct{} { return l.dead }

// Sleep waits for d. It reports whether the line is still open.
func (l *Line) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.dead:
		return false
	}
}

// Chunks reads from one of the line's connections, ahead of what takes them. It is closed at the
// end of input.
func (l *Line) Chunks(from net.Conn) <-chan Chunk {
	chunks := make(chan Chunk, 1024)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			select {
			case chunks <- Chunk{buf[:n], time.Now()}:
			case <-l.dead:
				return
			}
		}
	}()
	return chunks
}
