// Package lone keeps a connection for lone callers: calls that are the only ones of their client. A
// lone caller sends its command by itself, without another goroutine, and can leave before the reply
// arrives. Read then returns an error to the client library, which gives the connection up, and a
// goroutine reads the reply behind the library's back.
package lone

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// worth is the number of lone calls in a period after which a connection is made. There is one attempt in a period
	// at most, even if it fails, or if callers leave the connection.
	worth  = 32
	period = time.Second // a connection that was idle for a period is not used: the server may have closed it
	// patience bounds the wait for the reply to a call whose caller has left.
	patience = 10 * time.Second
	// replyBound is larger, in bytes, than the replies of the scripts that a lone caller sends.
	replyBound = 512
)

var (
	errOne  = &net.OpError{Op: "dial", Err: errors.New("the client of a lone caller has one connection")}
	errLeft = errors.New("the caller of the command has left")
	past    = time.Unix(1, 0)
)

// Dial calls dial, and returns a connection that a [Line] controls. It returns an error for a second
// connection of a client.
type Dial func(dial func() (net.Conn, error)) (net.Conn, error)

// Line is a connection for one call at a time, with a client of the library over this connection. It
// makes a new connection after a failure, and after a caller has left. Ready and Close may be called
// concurrently with all methods; the other methods are for one caller at a time.
type Line[C any] struct {
	build   func(Dial) (C, error)
	discard func(C)
	current atomic.Pointer[wire[C]] // nil if there is no connection
	taken   *wire[C]                // the connection of the call under way
	ctx     context.Context         // ends with Close
	cancel  context.CancelFunc

	epoch time.Time

	mu     sync.Mutex
	asked  int           // calls of Ready in this period without a connection
	until  time.Duration // the end of the period, since epoch
	making bool          // a connection is being made, or none may be made any more
}

// wire is a connection and the client over it.
type wire[C any] struct {
	client C
	stale  atomic.Int64 // the time since epoch, in nanoseconds, from which the connection is not used
	*conn
}

// New returns a Line. build makes a client whose connections come from the Dial; discard closes a
// client.
func New[C any](build func(Dial) (C, error), discard func(C)) *Line[C] {
	l := &Line[C]{build: build, discard: discard, epoch: time.Now()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Ready reports whether there is a connection. If there is none, and Ready was called often enough in
// this period, it starts to make one in the background.
func (l *Line[C]) Ready() bool {
	if l == nil {
		return false
	}
	now := time.Since(l.epoch)
	if w := l.current.Load(); w != nil && !w.over.Load() && int64(now) < w.stale.Load() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if now >= l.until {
		l.asked, l.until = 0, now+period
	}
	if l.asked++; l.asked == worth && !l.making {
		l.making = true
		go l.make()
	}
	return false
}

func (l *Line[C]) make() {
	w := new(wire[C])
	unfit := false
	client, err := l.build(func(dial func() (net.Conn, error)) (net.Conn, error) {
		if w.conn != nil {
			return nil, errOne
		}
		c, err := dial()
		if err != nil {
			return nil, err
		}
		w.conn = newConn(c)
		unfit = c.SetReadDeadline(time.Time{}) != nil
		return w.conn, nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.making = unfit || l.ctx.Err() != nil // unfit: without deadlines on the connection no caller could leave
	switch {
	case err != nil:
	case l.making:
		l.discard(client)
	default:
		w.client = client
		w.stale.Store(int64(time.Since(l.epoch) + period))
		if old := l.current.Swap(w); old != nil {
			l.discard(old.client)
		}
	}
}

// Close discards the client, and ends the wait for the replies to calls whose callers have left.
func (l *Line[C]) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.making = true
	if w := l.current.Swap(nil); w != nil {
		l.discard(w.client)
	}
}

// Take returns the client for the next call; Begin must follow. ok is false if there is no connection, or if the
// caller of the last call has left it.
func (l *Line[C]) Take() (c C, ok bool) {
	if l.taken = l.current.Load(); l.taken == nil || l.taken.gone() {
		return c, false
	}
	return l.taken.client, true
}

// Begin is called before the client gets a command. When ctx ends, the client gets an error, and the
// caller leaves.
func (l *Line[C]) Begin(ctx context.Context) {
	l.taken.stale.Store(math.MaxInt64)
	l.taken.begin(ctx)
}

// Rest waits for the reply to a command whose caller left. If known is true, the reply is the number
// value. Otherwise the reply is no number, or err says why there is no reply.
type Rest func() (value int64, known bool, err error)

// End is called when the client has returned. It returns nil if the client's result is the outcome of
// the command, and otherwise a Rest for the outcome.
func (l *Line[C]) End() Rest {
	c := l.taken.conn
	l.taken.stale.Store(int64(time.Since(l.epoch) + period))
	if !c.end() {
		return nil
	}
	return func() (int64, bool, error) { return c.rest(l.ctx) }
}

// conn is the connection as the client library sees it. Its Read returns an error when the caller leaves.
type conn struct {
	net.Conn
	over atomic.Bool // the client library has closed the connection

	mu    sync.Mutex
	bound bool            // a call is under way whose context can end
	left  bool            // its context has ended
	cut   bool            // the library got errLeft from Read, and gets nothing more
	reply []byte          // read by the library since the last write, up to replyBound
	done  <-chan struct{} // of the last context that can end
	same  int             // the number of earlier calls with this context
	ended func()          // context.AfterFunc calls it when this context ends
	watch func() bool     // stops the AfterFunc; nil if there is none
}

// often is the number of earlier calls with one context from which on the AfterFunc stays between calls.
const often = 3

func newConn(nc net.Conn) *conn {
	c := &conn{Conn: nc}
	c.ended = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.leave()
	}
	return c
}

func (c *conn) begin(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := ctx.Done()
	if c.bound = done != nil; !c.bound {
		return
	}
	if c.same++; done != c.done {
		c.unwatch()
		c.done, c.same = done, 0
	}
	if c.watch == nil {
		c.watch = context.AfterFunc(ctx, c.ended)
	}
	c.leave()
}

func (c *conn) unwatch() {
	if c.watch != nil {
		c.watch()
		c.watch = nil
	}
}

// leave makes a waiting Read return, if the caller's context has ended. It is called with the mutex.
func (c *conn) leave() {
	select {
	case <-c.done: // not closed if ended was called for the context of an earlier call
		if c.bound {
			c.left = true
			_ = c.Conn.SetReadDeadline(past)
		}
	default:
	}
}

// end ends the call. It reports whether the reply is still to come.
func (c *conn) end() (owed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = false
	if c.same < often {
		c.unwatch()
	}
	if c.left && !c.cut { // the reply came before the end of the context stopped a Read
		c.left = false
		_ = c.Conn.SetReadDeadline(time.Time{})
	}
	return c.owes()
}

// owes reports whether the client library was cut off before it had read the reply to its end. It is called with the
// mutex.
func (c *conn) owes() bool { return c.cut && !bytes.HasSuffix(c.reply, []byte("\r\n")) }

// rest reads the part of the reply that the client library did not read, and closes the connection.
func (c *conn) rest(ctx context.Context) (value int64, known bool, err error) {
	defer c.Conn.Close()
	defer context.AfterFunc(ctx, func() { c.Conn.Close() })()
	if err := c.Conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return 0, false, err
	}
	line := bytes.Clone(c.reply)
	for b := make([]byte, replyBound); !bytes.HasSuffix(line, []byte("\r\n")); {
		n, err := c.Conn.Read(b)
		if line = append(line, b[:n]...); err != nil {
			return 0, false, err
		}
	}
	number, is := strings.CutPrefix(string(line[:len(line)-2]), ":")
	value, err = strconv.ParseInt(number, 10, 64)
	return value, is && err == nil, nil
}

func (c *conn) Read(b []byte) (int, error) {
	if c.gone() {
		return 0, errLeft
	}
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 && len(c.reply)+n <= replyBound {
		c.reply = append(c.reply, b[:n]...)
	}
	if err != nil && c.left {
		c.cut, err = true, errLeft
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.gone() {
		return 0, errLeft
	}
	c.mu.Lock()
	c.reply = c.reply[:0]
	c.mu.Unlock()
	return c.Conn.Write(b)
}

func (c *conn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cut
}

// Close closes the connection, unless a reply is still to come: then rest closes it.
func (c *conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch()
	if c.over.Store(true); c.owes() {
		return nil
	}
	return c.Conn.Close()
}

func (c *conn) SetDeadline(t time.Time) error { return c.set(c.Conn.SetDeadline, t) }

func (c *conn) SetReadDeadline(t time.Time) error { return c.set(c.Conn.SetReadDeadline, t) }

// set sets a deadline for the client library. After the caller has left, the deadline that stops Read stays.
func (c *conn) set(deadline func(time.Time) error, t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return errLeft
	}
	err := deadline(t)
	if c.left {
		_ = c.Conn.SetReadDeadline(past)
	}
	return err
}
