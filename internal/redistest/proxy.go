//go:build unix

package redistest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy stands in front of a server and writes down every command that clients
// send, in the order in which it passes them on. That is what a lock costs on the
// wire; INFO commandstats would count what scripts run inside, too.
// Its methods may be called concurrently.
type Proxy struct {
	*Relay
	mu       sync.Mutex
	commands []Command
	delay    time.Duration   // of what the server sends
	tracking map[*Line]bool  // the lines of clients that track
	hangs    func(bool) bool // by whether a client tracks; nil: no line hangs
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
	p := &Proxy{tracking: make(map[*Line]bool)}
	p.Relay = NewRelay(t, addr, func(l *Line) (up, down func()) {
		return func() { p.pass(l) }, func() { p.answer(l) }
	})
	return p
}

// Delay sets how long all that the server sends is on its way.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hang lets nothing more pass, either way: over all connections of which is returns true, told whether the connection
// has client-side caching. The connections stay open.
func (p *Proxy) Hang(is func(tracking bool) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = is
}

// hung reports whether l hangs; hung then waits for its end.
func (p *Proxy) hung(l *Line) bool {
	p.mu.Lock()
	hangs := p.hangs != nil && p.hangs(p.tracking[l])
	p.mu.Unlock()
	if hangs {
		<-l.Dead()
	}
	return hangs
}

// answer carries the server's answers to a client.
func (p *Proxy) answer(l *Line) {
	for chunk := range l.Chunks(l.Server) {
		p.mu.Lock()
		delay := p.delay
		p.mu.Unlock()
		if delay > 0 && !l.Sleep(time.Until(chunk.Came.Add(delay))) || p.hung(l) {
			return
		}
		if _, err := l.Client.Write(chunk.Data); err != nil {
			return
		}
	}
}

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

// Reset forgets what was sent so far.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commands = nil
}

// Named is a filter for [Proxy.Count]: commands of these names, in upper case.
func Named(names ...string) func(Command) bool {
	return func(c Command) bool { return slices.Contains(names, c.Args[0]) }
}

// pass carries one client's commands to the server, and notes them.
func (p *Proxy) pass(l *Line) {
	in := bufio.NewReaderSize(l.Client, 64<<10)
	out := bufio.NewWriterSize(l.Server, 64<<10)
	for {
		args, raw, err := readCommand(in)
		if err != nil {
			return
		}
		if len(args) > 0 {
			args[0] = strings.ToUpper(args[0])
			p.mu.Lock()
			p.commands = append(p.commands, Command{l.Number, args})
			if len(args) > 2 && args[0] == "CLIENT" && strings.EqualFold(args[1], "TRACKING") {
				p.tracking[l] = strings.EqualFold(args[2], "ON")
			}
			p.mu.Unlock()
		}
		if p.hung(l) {
			return
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
