// Package lone has the connection of a lone caller: the caller sends a command by itself and may
// leave before the reply arrives. The connection is then taken from the client library, the library
// gets an error, and another goroutine reads the reply.
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
	// worth is after how many lone calls in a period a connection is made for them: one in a period at most, also
	// where it cannot be had or callers leave it.
	worth  = 32
	period = time.Second // and a connection that was idle so long is not used: the server may have closed it
	// patience bounds how long the reply to a call that was left is awaited.
	patience = 10 * time.Second
	// replyBound is more than the replies of the scripts that a lone caller sends.
	replyBound = 512
)

var (
	errOne  = &net.OpError{Op: "dial", Err: errors.New("the client of a lone caller has one connection")}
	errLeft = errors.New("the caller of the command has left")
	past    = time.Unix(1, 0)
)

// Dial dials for a client whose only connection is kept by a [Line].
type Dial func(dial func() (net.Conn, error)) (net.Conn, error)

// Line is a connection for one call at a time, and the client over this connection. A connection is
// replaced after a failure, and after its caller leaves. Ready and Close may be called concurrently
// with all other methods.
type Line[C any] struct {
	build   func(Dial) (C, error)
	discard func(C)
	current atomic.Pointer[wire[C]] // nil while there is none
	taken   *wire[C]                // by the call that is under way
	ctx     context.Context         // ends with Close
	cancel  context.CancelFunc

	epoch time.Time

	mu     sync.Mutex
	asked  int           // for a connection in this period, while there was none
	until  time.Duration // since epoch: the period's end
	making bool          // one, or none is made any more
}

type wire[C any] struct {
	client C
	stale  atomic.Int64 // since epoch: it is not used from then on
	*conn
}

// New makes a Line. build makes a client with connections from the Dial, and discard closes the
// client.
func New[C any](build func(Dial) (C, error), discard func(C)) *Line[C] {
	l := &Line[C]{build: build, discard: discard, epoch: time.Now()}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Ready reports whether there is a connection. Without a connection, Ready begins to make one in
// the background once a connection is worth its cost.
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
	l.making = unfit || l.ctx.Err() != nil // a caller could not leave a connection without deadlines
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

// Close discards the client, and ends the wait for replies to abandoned calls.
func (l *Line[C]) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancel()
	l.making = true
	if w := l.current.Swap(nil); w != nil {
		l.discard(w.client)
	}
}

// Take returns the client for the next call, to begin with Begin; ok is false if there is none, or if a call was left
// since Ready was asked.
func (l *Line[C]) Take() (c C, ok bool) {
	if l.taken = l.current.Load(); l.taken == nil || l.taken.gone() {
		return c, false
	}
	return l.taken.client, true
}

// Begin is called before the client gets a command; the command is cut off when ctx ends.
func (l *Line[C]) Begin(ctx context.Context) {
	l.taken.stale.Store(math.MaxInt64)
	l.taken.begin(ctx)
}

// Rest waits for the reply to a command that was cut off. The reply is value where known is true;
// otherwise the reply is no number, or err says why there is none.
type Rest func() (value int64, known bool, err error)

// End is called when the client has returned. Rest is nil where the client's result holds.
func (l *Line[C]) End() Rest {
	c := l.taken.conn
	l.taken.stale.Store(int64(time.Since(l.epoch) + period))
	if !c.end() {
		return nil
	}
	return func() (int64, bool, error) { return c.rest(l.ctx) }
}

// conn is what the client library reads and writes.
type conn struct {
	net.Conn
	over atomic.Bool // closed by the client library

	mu    sync.Mutex
	bound bool            // a call is under way whose caller may leave
	left  bool            // and it has
	cut   bool            // so the client library gets no more
	reply []byte          // what was read since the last write
	done  <-chan struct{} // of the last context that can end
	same  int             // calls before this one with that context
	ended func()          // is called when it ends
	watch func() bool     // has it not called; nil if it will not be
}

// often is after how many calls with one context that context is watched between calls, too.
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

// leave has a Read that waits return, if the caller's context has ended. It is called with the mutex.
func (c *conn) leave() {
	select {
	case <-c.done: // not so where it was the context of a call before
		if c.bound {
			c.left = true
			_ = c.Conn.SetReadDeadline(past)
		}
	default:
	}
}

// end reports whether the reply is yet to come.
func (c *conn) end() (owed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = false
	if c.same < often {
		c.unwatch()
	}
	if c.left && !c.cut { // the reply was there first
		c.left = false
		_ = c.Conn.SetReadDeadline(time.Time{})
	}
	return c.owes()
}

// owes reports whether a reply was not read to its end by the client library. It is called with the mutex.
func (c *conn) owes() bool { return c.cut && !bytes.HasSuffix(c.reply, []byte("\r\n")) }

// rest reads what the client library did not.
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

// Close leaves the connection to the goroutine that waits for a reply, if there is one.
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

// set keeps a deadline that has a Read return.
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
