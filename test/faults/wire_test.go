package faults_test

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/scripts"
)

// wire is a toxiproxy before a server, with two toxics of our own: they know where
// a command begins and which reply is whose, so a fault can be put at one point
// of one operation.
type wire struct {
	proxy *toxiproxy.Proxy
	stop  chan struct{}

	// tear, if positive, is after how many bytes what the server sends unasked is
	// torn in two, as TCP may do anywhere.
	tear atomic.Int64

	mu     sync.Mutex
	armed  []*fault
	halves [2][]*line // lines whose upstream, downstream toxic has not started
}

// deed is what a fault does to the command that it waits for.
type deed int

const (
	// cutBefore cuts the connection; the server never sees the command.
	cutBefore deed = iota
	// loseAndCut swallows the reply and cuts the connection.
	loseAndCut
	// loseAndMute swallows the reply and all that follows it, and leaves the
	// connection open. (All that follows: a later reply would be taken for the one
	// that is missing, which TCP cannot do.)
	loseAndMute
	// holdRequest keeps the command, and what follows it on its connection, from
	// the server, until it is let go: also when its client has left.
	holdRequest
	// holdReply keeps the reply, and what follows it, from the client.
	holdReply
)

func (d deed) String() string {
	return [...]string{"cut before request", "reply lost and cut", "reply lost and mute", "request held", "reply held"}[d]
}

var deeds = []deed{cutBefore, loseAndCut, loseAndMute, holdRequest, holdReply}

// fault waits for a command, strikes once, and is over.
type fault struct {
	deed    deed
	matches func(args []string) bool
	skip    int           // matching commands that pass before
	struck  chan struct{} // closed when it has struck
	gate    chan struct{} // closed by let
	once    sync.Once
	passed  chan struct{} // closed when what was held is on its way
}

// arm prepares a fault for the k-th command from now that matches.
func (w *wire) arm(d deed, k int, matches func([]string) bool) *fault {
	f := &fault{deed: d, matches: matches, skip: k - 1, struck: make(chan struct{}), gate: make(chan struct{}), passed: make(chan struct{})}
	w.mu.Lock()
	w.armed = append(w.armed, f)
	w.mu.Unlock()
	return f
}

// arrive lets go what is held and, if that is a command, waits until the server has
// run it.
func (f *fault) arrive(t testing.TB, srv *redistest.Server) {
	t.Helper()
	runs := scriptRuns(srv)
	f.let()
	if f.deed == holdRequest {
		closed(t, soon, "what was held went on", f.passed)
		await(t, soon, "the server ran what was held", func() bool { return scriptRuns(srv) > runs })
	}
}

// let lets go what is held.
func (f *fault) let() { f.once.Do(func() { close(f.gate) }) }

// script matches the commands that run the script of a name.
func script(name string) func([]string) bool {
	i := slices.IndexFunc(scripts.All, func(s scripts.Script) bool { return s.Name == name })
	s := scripts.All[i]
	return func(args []string) bool {
		return len(args) > 1 && (args[0] == "EVALSHA" && args[1] == s.SHA1 || args[0] == "EVAL" && args[1] == s.Source)
	}
}

// about narrows a match to commands that name a key.
func about(key string, matches func([]string) bool) func([]string) bool {
	return func(args []string) bool { return matches(args) && slices.Contains(args[2:], key) }
}

var (
	wires    sync.Map // by name; toxics are made from JSON, and find their wire here
	wireSeq  atomic.Int64
	register = sync.OnceFunc(func() {
		toxics.Register("mortise_requests", new(requests))
		toxics.Register("mortise_replies", new(replies))
	})
)

// newWire starts a wire before the server at upstream, until the end of the test.
func newWire(t testing.TB, upstream string) *wire {
	t.Helper()
	register()
	w := &wire{stop: make(chan struct{})}
	name := fmt.Sprint("wire", wireSeq.Add(1))
	wires.Store(name, w)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w.proxy = toxiproxy.NewProxy(server, name, "127.0.0.1:0", upstream)
	for kind, direction := range map[string]string{"mortise_requests": "upstream", "mortise_replies": "downstream"} {
		_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
			`{"type":%q,"stream":%q,"attributes":{"wire":%q}}`, kind, direction, name)))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(w.stop)
		w.proxy.Stop()
		wires.Delete(name)
	})
	return w
}

func (w *wire) addr() string { return w.proxy.Listen }

// line is one connection: what the toxics of its two directions share.
type line struct {
	w       *wire
	mu      sync.Mutex
	pending []*fault // one for each command that has no reply yet; nil: nothing planned
	over    bool     // no reply comes any more
	dead    chan struct{}
	once    sync.Once
}

func (l *line) end() { l.once.Do(func() { close(l.dead) }) }

// expect notes that a command has no reply yet.
func (l *line) expect(f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = append(l.pending, f)
	if l.over {
		l.giveUp()
	}
}

// hangUp notes that no reply comes any more.
func (l *line) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.giveUp()
}

// giveUp has the faults strike that wait for a reply: it is lost. Its client gave up the
// connection first, where the server, or all of the machine, stood still for as long.
func (l *line) giveUp() {
	for _, f := range l.pending {
		if f != nil && (f.deed == loseAndCut || f.deed == loseAndMute || f.deed == holdReply) {
			close(f.struck)
		}
	}
	l.pending = nil
}

// half gives the two toxics of a connection the same line. toxiproxy starts them one
// after the other for each connection that it accepts.
func (w *wire) half(i int) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.halves[i]) == 0 {
		l := &line{w: w, dead: make(chan struct{})}
		w.halves[1-i] = append(w.halves[1-i], l)
		return l
	}
	l := w.halves[i][0]
	w.halves[i] = w.halves[i][1:]
	return l
}

// plan finds the fault that waits for a command.
func (w *wire) plan(args []string) *fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, f := range w.armed {
		if !f.matches(args) {
			continue
		}
		if f.skip > 0 {
			f.skip--
			continue
		}
		w.armed = slices.Delete(w.armed, i, i+1)
		return f
	}
	return nil
}

// pass hands bytes on; it is false when the test is over.
func (w *wire) pass(stub *toxics.ToxicStub, data []byte) bool {
	select {
	case stub.Output <- &stream.StreamChunk{Data: data}:
		return true
	case <-w.stop:
		return false
	}
}

// leave closes the stub, which closes the connection, and reads what still comes.
func leave(stub *toxics.ToxicStub) {
	stub.Close()
	for range stub.Input {
	}
}

// requests is the toxic on the way to the server.
type requests struct {
	Wire string `json:"wire"`
}

func (r *requests) NewState() any { return wireNamed(r.Wire).half(0) }

func (r *requests) Pipe(stub *toxics.ToxicStub) {
	l := stub.State.(*line)
	defer leave(stub)
	defer l.end()
	var buf []byte
	for chunk := range stub.Input {
		buf = append(buf, chunk.Data...)
		for {
			args, n := command(buf)
			if n == 0 {
				break
			}
			data := bytes.Clone(buf[:n])
			buf = buf[n:]
			f := l.w.plan(args)
			if f != nil && f.deed == cutBefore {
				close(f.struck)
				return
			}
			if f != nil && f.deed == holdRequest {
				close(f.struck)
				select {
				case <-f.gate:
				case <-l.w.stop:
					return
				}
			}
			if !strings.HasSuffix(args[0], "SUBSCRIBE") {
				l.expect(f)
			}
			if !l.w.pass(stub, data) {
				return
			}
			if f != nil && f.deed == holdRequest {
				close(f.passed)
			}
		}
	}
}

// replies is the toxic on the way back.
type replies struct {
	Wire string `json:"wire"`
}

func (r *replies) NewState() any { return wireNamed(r.Wire).half(1) }

func (r *replies) Pipe(stub *toxics.ToxicStub) {
	l := stub.State.(*line)
	defer leave(stub)
	defer l.end()
	defer l.hangUp()
	var buf []byte
	mute := false
	for chunk := range stub.Input {
		if mute {
			continue
		}
		buf = append(buf, chunk.Data...)
		for !mute {
			n := frame(buf)
			if n == 0 {
				break
			}
			data := bytes.Clone(buf[:n])
			buf = buf[n:]
			var f *fault
			if unasked(data) {
				if k := int(l.w.tear.Load()); k > 0 && k < len(data) {
					if !l.w.pass(stub, data[:k]) {
						return
					}
					time.Sleep(5 * time.Millisecond) // so that it arrives by itself
					data = data[k:]
				}
			} else {
				l.mu.Lock()
				if len(l.pending) > 0 {
					f, l.pending = l.pending[0], l.pending[1:]
				}
				l.mu.Unlock()
			}
			if f != nil {
				switch f.deed {
				case loseAndCut:
					close(f.struck)
					return
				case loseAndMute:
					close(f.struck)
					mute = true
					continue
				case holdReply:
					close(f.struck)
					select {
					case <-f.gate:
					case <-l.dead:
					case <-l.w.stop:
						return
					}
				}
			}
			if !l.w.pass(stub, data) {
				return
			}
			if f != nil && f.deed == holdReply {
				close(f.passed)
			}
		}
	}
}

func wireNamed(name string) *wire {
	w, _ := wires.Load(name)
	return w.(*wire)
}

// command finds the first command in buf and its length; 0 if it is not complete.
func command(buf []byte) (args []string, n int) {
	if n = frame(buf); n == 0 {
		return nil, 0
	}
	rest := buf[:n]
	_, rest, _ = bytes.Cut(rest, []byte("\r\n"))
	for len(rest) > 0 {
		head, body, _ := bytes.Cut(rest, []byte("\r\n"))
		size, err := strconv.Atoi(string(head[1:]))
		if err != nil {
			panic(fmt.Sprintf("wire: a command with %q where a length should be", head))
		}
		args = append(args, string(body[:size]))
		rest = body[size+2:]
	}
	args[0] = strings.ToUpper(args[0])
	return args, n
}

// frame is the length of the first RESP2 or RESP3 value in buf; 0 if it is not complete.
func frame(buf []byte) int {
	i := bytes.Index(buf, []byte("\r\n"))
	if i < 0 {
		return 0
	}
	count, _ := strconv.Atoi(string(buf[1:i]))
	n := i + 2
	switch buf[0] {
	case '$', '=', '!':
		if count >= 0 {
			n += count + 2
		}
		if n > len(buf) {
			return 0
		}
		return n
	case '%':
		count *= 2
	case '*', '~', '>':
	case '|':
		count = 2*count + 1
	default:
		return n
	}
	for range max(count, 0) {
		m := frame(buf[n:])
		if m == 0 {
			return 0
		}
		n += m
	}
	return n
}

// unasked tells that a value is no reply: a push of RESP3, or what arrives on a
// RESP2 connection that subscribes.
func unasked(data []byte) bool {
	if data[0] == '>' {
		return true
	}
	if data[0] != '*' {
		return false
	}
	_, body, _ := bytes.Cut(data, []byte("\r\n"))
	_, body, _ = bytes.Cut(body, []byte("\r\n"))
	for _, word := range []string{"message\r", "smessage\r", "subscribe\r", "unsubscribe\r", "ssubscribe\r", "sunsubscribe\r"} {
		if bytes.HasPrefix(body, []byte(word)) {
			return true
		}
	}
	return false
}
