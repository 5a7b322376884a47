//go:build linux

package chaos

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mortise-go/mortise/internal/redistest"
)

// wire is a relay before a server, which does what the weather says.
type wire struct {
	*redistest.Relay

	mu    sync.Mutex
	now   weather
	calm  chan struct{} // closed when the weather changes
	armed *strike
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
	line   *redistest.Line // that of the reply; set when struck is closed
}

// newWire starts a wire before the server at address, until the end of the test.
func newWire(t testing.TB, address string) *wire {
	t.Helper()
	w := &wire{calm: make(chan struct{})}
	w.Relay = redistest.NewRelay(t, address, func(l *redistest.Line) (up, down func()) {
		due := new(atomic.Pointer[strike]) // at the next reply
		return func() { w.requests(l, due) }, func() { w.replies(l, due) }
	})
	return w
}

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

// arm prepares a strike, which disarm takes back.
func (w *wire) arm(s *strike) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = s
}

func (w *wire) disarm() { w.arm(nil) }

// take is the strike that is armed, if there is one.
func (w *wire) take() *strike {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.armed
	w.armed = nil
	return s
}

func (w *wire) requests(l *redistest.Line, due *atomic.Pointer[strike]) {
	for c := range l.Chunks(l.Client) {
		if bytes.Contains(c.Data, []byte("EVALSHA")) {
			if s := w.take(); s != nil {
				due.Store(s)
			}
		}
		if !w.pass(l, upstream, l.Server, c) {
			return
		}
	}
}

func (w *wire) replies(l *redistest.Line, due *atomic.Pointer[strike]) {
	mute := false
	for c := range l.Chunks(l.Server) {
		if mute {
			continue
		}
		s := due.Swap(nil)
		if s == nil {
			if !w.pass(l, downstream, l.Client, c) {
				return
			}
			continue
		}
		s.line = l
		close(s.struck)
		switch s.deed {
		case dropAndMute:
			mute = true
			continue
		case halve:
			l.Client.Write(c.Data[:max(1, len(c.Data)/2)])
		}
		return
	}
}

// pass hands on what came, when the weather lets it; false if it never does.
func (w *wire) pass(l *redistest.Line, direction int, to net.Conn, c redistest.Chunk) bool {
	x, change := w.look()
	for x.hold[direction] {
		select {
		case <-change:
		case <-l.Dead():
			return false
		}
		x, change = w.look()
	}
	d := x.delay[direction] - time.Since(c.Came)
	if x.vary > 0 {
		d += rand.N(x.vary)
	}
	if x.rate > 0 {
		d = max(d, 0) + time.Duration(len(c.Data))*time.Second/time.Duration(x.rate)
	}
	if d > 0 && !l.Sleep(d) {
		return false
	}
	data := c.Data
	for x.tear && len(data) > 7 {
		if _, err := to.Write(data[:7]); err != nil || !l.Sleep(200*time.Microsecond) { // so that it arrives by itself
			return false
		}
		data = data[7:]
	}
	_, err := to.Write(data)
	return err == nil
}
