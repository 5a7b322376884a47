//go:build unix

package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Proxy stands in front of a server and writes down every command that clients
// send, in the order in which it passes them on. That is what a lock costs on the
// wire; INFO commandstats would count what scripts run inside, too.
// Its methods may be called concurrently.
type Proxy struct {
	listener net.Listener
	upstream string
	wg       sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	accepted int
	live     map[net.Conn]struct{}
	commands []Command
}

// Command is one command on the wire.
type Command struct {
	// Conn numbers the client connections from 1 in the order they were accepted.
	Conn int
	// Args is the command's name in upper case, and its arguments.
	Args []string
}

func (c Command) String() string { return strings.Join(c.Args, " ") }

// NewProxy starts a proxy in front of the server at addr, until the end of the test.
func NewProxy(t testing.TB, addr string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	p := &Proxy{listener: l, upstream: addr, live: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		p.mu.Unlock()
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Commands returns what was sent since the last Reset, each as its name in upper
// case and its arguments, separated by spaces.
func (p *Proxy) Commands() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]string, len(p.commands))
	for i, c := range p.commands {
		all[i] = c.String()
	}
	return all
}

// Count counts the commands since the last Reset that keep accepts; all if it is nil.
func (p *Proxy) Count(keep func(Command) bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, c := range p.commands {
		if keep == nil || keep(c) {
			n++
		}
	}
	return n
}

// PerConnection counts the commands since the last Reset by connection.
func (p *Proxy) PerConnection() map[int]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := make(map[int]int)
	for _, c := range p.commands {
		n[c.Conn]++
	}
	return n
}

// Connections tells how many client connections are open.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}

// Reset forgets what was sent so far.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands = nil
}

// Cut closes every connection that is open. New ones are accepted.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.live {
		c.Close()
	}
}

// Named is a filter for [Proxy.Count]: commands of these names, in upper case.
func Named(names ...string) func(Command) bool {
	return func(c Command) bool { return slices.Contains(names, c.Args[0]) }
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			client.Close()
			return
		}
		p.accepted++
		number := p.accepted
		p.live[client] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() {
			p.serve(number, client)
			p.mu.Lock()
			delete(p.live, client)
			p.mu.Unlock()
		})
	}
}

func (p *Proxy) serve(number int, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	p.wg.Go(func() {
		io.Copy(client, server)
		client.Close()
		server.Close()
	})
	in := bufio.NewReaderSize(client, 64<<10)
	out := bufio.NewWriterSize(server, 64<<10)
	for {
		args, raw, err := readCommand(in)
		if err != nil {
			return
		}
		if len(args) > 0 {
			args[0] = strings.ToUpper(args[0])
			p.mu.Lock()
			p.commands = append(p.commands, Command{number, args})
			p.mu.Unlock()
		}
		out.Write(raw)
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// readCommand reads one command, as an array or inline, and returns the bytes that
// it was read from as well.
func readCommand(r *bufio.Reader) (args []string, raw []byte, err error) {
	line, err := r.ReadBytes('\n')
	if err != nil {
		return nil, nil, err
	}
	if line[0] != '*' {
		return strings.Fields(string(line)), line, nil
	}
	raw = line
	n, err := number(line)
	if err != nil {
		return nil, nil, err
	}
	for range n {
		line, err = r.ReadBytes('\n')
		if err != nil {
			return nil, nil, err
		}
		size, err := number(line)
		if err != nil {
			return nil, nil, err
		}
		data := make([]byte, size+2)
		if _, err := io.ReadFull(r, data); err != nil {
			return nil, nil, err
		}
		raw = append(append(raw, line...), data...)
		args = append(args, string(data[:size]))
	}
	return args, raw, nil
}

// number parses the line of a RESP header: a type byte, digits, CR LF.
func number(line []byte) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(string(line[1:])))
	if err != nil || n < 0 || n > 512<<20 {
		return 0, fmt.Errorf("redistest: proxy: %q where a length should be", line)
	}
	return n, nil
}
