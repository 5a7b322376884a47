//go:build linux

package chaos

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// wire is a toxiproxy before a server. One toxic of our own stands in each direction of it
// from the start, and does what the weather says: adding and removing toxics on connections
// that are open, or blocked, is what toxiproxy does less well.
type wire struct {
	proxy *toxiproxy.Proxy
	stop  chan struct{}

	mu     sync.Mutex
	now    weather
	calm   chan struct{} // closed when the weather changes
	armed  *strike
	lines  map[*line]struct{}
	halves [2][]*line // connections whose other direction has not started
}

// The two directions.
const (
	upstream   = 0
	downstream = 1
)

// weather is what befalls all that passes.
type weather struct {
	hold  [2]bool          // nothing passes in this direction; it arrives when the weather changes
	delay [2]time.Duration // in this direction
	vary  time.Duration    // up to so much more, each way
	rate  int              // bytes a second, each way; 0: any
	tear  bool             // in pieces of a few bytes
}

// deed is what becomes of a reply: the command was run, and its client does not hear of it.
type deed int

const (
	dropAndMute deed = iota // the reply, and whatever follows it, is lost; the connection stays
	dropAndCut              // the reply is lost, the connection ends
	halve                   // half of it arrives, the connection ends
)

// strike waits for a reply to a script, and happens once.
type strike struct {
	deed   deed
	struck chan struct{}
	line   *line // that of the reply; set when struck is closed
}

var (
	wires    sync.Map // by name; toxics are made from JSON, and find their wire here
	wireSeq  atomic.Int64
	register = sync.OnceFunc(func() { toxics.Register("mortise_weather", new(sky)) })
)

// newWire starts a wire before the server at upstream, until the end of the test.
func newWire(t testing.TB, address string) *wire {
	t.Helper()
	register()
	w := &wire{stop: make(chan struct{}), calm: make(chan struct{}), lines: map[*line]struct{}{}}
	name := fmt.Sprint("wire", wireSeq.Add(1))
	wires.Store(name, w)
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	w.proxy = toxiproxy.NewProxy(server, name, "127.0.0.1:0", address)
	for direction, word := range []string{"upstream", "downstream"} {
		_, err := w.proxy.Toxics.AddToxicJson(strings.NewReader(fmt.Sprintf(
			`{"type":"mortise_weather","stream":%q,"attributes":{"wire":%q,"direction":%d}}`, word, name, direction)))
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

// set changes the weather. What was held before passes under the new one.
func (w *wire) set(x weather) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = x
	close(w.calm)
	w.calm = make(chan struct{})
}

// look tells the weather, and when to look again.
func (w *wire) look() (weather, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now, w.calm
}

// cut ends all connections that are open.
func (w *wire) cut() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.lines {
		l.end()
		n++
	}
	return n
}

// arm prepares a strike, which disarm takes back.
func (w *wire) arm(s *strike) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = s
}

func (w *wire) disarm() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = nil
	for l := range w.lines {
		l.due.Store(nil)
	}
}

// line is one connection: what the toxics of its two directions share.
type line struct {
	w    *wire
	due  atomic.Pointer[strike] // at the next reply
	dead chan struct{}
	once sync.Once
}

func (l *line) end() { l.once.Do(func() { close(l.dead) }) }

// half gives the two toxics of a connection the same line. toxiproxy starts them one
// after the other for each connection that it accepts.
func (w *wire) half(i int) *line {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.halves[i]) == 0 {
		l := &line{w: w, dead: make(chan struct{})}
		w.lines[l] = struct{}{}
		w.halves[1-i] = append(w.halves[1-i], l)
		return l
	}
	l := w.halves[i][0]
	w.halves[i] = w.halves[i][1:]
	return l
}

// sky is the toxic of one direction.
type sky struct {
	Wire      string `json:"wire"`
	Direction int    `json:"direction"`
}

func (k *sky) NewState() any {
	w, _ := wires.Load(k.Wire)
	return w.(*wire).half(k.Direction)
}

func (k *sky) Pipe(stub *toxics.ToxicStub) {
	l := stub.State.(*line)
	w := l.w
	defer func() { // closes the connection, and reads what still comes
		l.end()
		w.mu.Lock()
		delete(w.lines, l)
		w.mu.Unlock()
		stub.Close()
		for range stub.Input {
		}
	}()
	mute := false
	for {
		var chunk *stream.StreamChunk
		select {
		case chunk = <-stub.Input:
		case <-l.dead:
			return
		case <-w.stop:
			return
		}
		if chunk == nil {
			return
		}
		if mute {
			continue
		}
		data := chunk.Data
		if k.Direction == upstream && bytes.Contains(data, []byte("EVALSHA")) {
			w.mu.Lock()
			if s := w.armed; s != nil {
				w.armed = nil
				l.due.Store(s)
			}
			w.mu.Unlock()
		}
		if k.Direction == downstream {
			if s := l.due.Swap(nil); s != nil {
				s.line = l
				close(s.struck)
				switch s.deed {
				case dropAndMute:
					mute = true
					continue
				case halve:
					l.pass(stub, data[:max(1, len(data)/2)])
				}
				return
			}
		}
		if !l.weathers(k.Direction, chunk.Timestamp, len(data)) {
			return
		}
		if x, _ := w.look(); x.tear {
			for len(data) > 7 {
				if !l.pass(stub, data[:7]) || !l.sleep(200*time.Microsecond) { // so that it arrives by itself
					return
				}
				data = data[7:]
			}
		}
		if !l.pass(stub, data) {
			return
		}
	}
}

// weathers returns when so many bytes that came at a time may pass; false if they never may.
func (l *line) weathers(direction int, came time.Time, n int) bool {
	x, change := l.w.look()
	for x.hold[direction] {
		select {
		case <-change:
		case <-l.dead:
			return false
		case <-l.w.stop:
			return false
		}
		x, change = l.w.look()
	}
	d := x.delay[direction] - time.Since(came)
	if x.vary > 0 {
		d += rand.N(x.vary)
	}
	if x.rate > 0 {
		d = max(d, 0) + time.Duration(n)*time.Second/time.Duration(x.rate)
	}
	return d <= 0 || l.sleep(d)
}

func (l *line) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.dead:
		return false
	case <-l.w.stop:
		return false
	}
}

// pass hands bytes on.
func (l *line) pass(stub *toxics.ToxicStub, data []byte) bool {
	select {
	case stub.Output <- &stream.StreamChunk{Data: data}:
		return true
	case <-l.dead:
		return false
	case <-l.w.stop:
		return false
	}
}
