package faults_test

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/scripts"
)

// wire is a relay before a server. It knows where a command begins and which reply is whose, so
// that a fault can be put at one point of one operation.
type wire struct {
	*redistest.Relay
	t testing.TB

	// tear, if positive, is after how many bytes what the server sends unasked is
	// torn in two, as TCP may do anywhere.
	tear atomic.Int64
	// deaf has what the server sends unasked swallowed, and connections that the server closes stay open.
	deaf atomic.Bool

	mu    sync.Mutex
	armed []*fault
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

// arm prepares a fault for the k-th command from now that matches. What it holds is let go at the
// end of the test.
func (w *wire) arm(d deed, k int, matches func([]string) bool) *fault {
	f := &fault{deed: d, matches: matches, skip: k - 1}
	f.struck, f.gate, f.passed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	w.t.Cleanup(f.let)
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

// newWire starts a wire before the server at upstream, until the end of the test.
func newWire(t testing.TB, upstream string) *wire {
	t.Helper()
	w := &wire{t: t}
	w.Relay = redistest.NewRelay(t, upstream, func(r *redistest.Line) (up, down func()) {
		l := &line{Line: r, w: w}
		return l.requests, l.replies
	})
	return w
}

// line is one connection: what its two directions share.
type line struct {
	*redistest.Line
	w       *wire
	mu      sync.Mutex
	pending []*fault // one for each command that has no reply yet; nil: nothing planned
	over    bool     // no reply comes any more
}

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

// answered is the fault that waits for the next reply.
func (l *line) answered() (f *fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.pending) > 0 {
		f, l.pending = l.pending[0], l.pending[1:]
	}
	return f
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

// strikes reports whether a fault is one of a deed, and says that it has struck.
func (f *fault) strikes(d deed) bool {
	if f == nil || f.deed != d {
		return false
	}
	close(f.struck)
	return true
}

// waits waits until a fault that holds is let go, or the line has ended.
func (f *fault) waits(l *line) {
	select {
	case <-f.gate:
	case <-l.Dead():
	}
}

// values calls f with each RESP value that comes from a connection, until f says no.
func (l *line) values(from net.Conn, f func(data []byte) bool) {
	var buf []byte
	for c := range l.Chunks(from) {
		buf = append(buf, c.Data...)
		for n := frame(buf); n > 0; n = frame(buf) {
			if !f(bytes.Clone(buf[:n])) {
				return
			}
			buf = buf[n:]
		}
	}
}

// requests is the way to the server.
func (l *line) requests() {
	l.values(l.Client, func(data []byte) bool {
		args := command(data)
		f := l.w.plan(args)
		if f.strikes(cutBefore) {
			l.End()
			return false
		}
		held := f.strikes(holdRequest)
		if held {
			f.waits(l)
		}
		if !strings.HasSuffix(args[0], "SUBSCRIBE") {
			l.expect(f)
		}
		_, err := l.Server.Write(data)
		if held && err == nil {
			close(f.passed)
		}
		return err == nil
	})
}

// replies is the way back.
func (l *line) replies() {
	defer l.hangUp()
	mute := false
	l.values(l.Server, func(data []byte) bool {
		if mute {
			return true
		}
		var f *fault
		if !unasked(data) {
			f = l.answered()
		} else if l.w.deaf.Load() {
			return true
		} else if k := int(l.w.tear.Load()); k > 0 && k < len(data) {
			if _, err := l.Client.Write(data[:k]); err != nil || !l.Sleep(5*time.Millisecond) { // so that it arrives by itself
				return false
			}
			data = data[k:]
		}
		if f.strikes(loseAndCut) {
			return false
		}
		if f.strikes(loseAndMute) {
			mute = true
			return true
		}
		held := f.strikes(holdReply)
		if held {
			f.waits(l)
		}
		_, err := l.Client.Write(data)
		if held {
			close(f.passed)
		}
		return err == nil
	})
	if l.w.deaf.Load() {
		<-l.Dead()
	}
}

// command is a command's name, in upper case, and its arguments.
func command(data []byte) (args []string) {
	_, rest, _ := bytes.Cut(data, []byte("\r\n"))
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
	return args
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
	for _, word := range []string{"message\r", "smessage\r", "subscribe\r", "unsubscribe\r", "ssubscribe\r",
		"sunsubscribe\r"} {
		if bytes.HasPrefix(body, []byte(word)) {
			return true
		}
	}
	return false
}
