package httplock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// A server of HTTP/1 watches the connection of a request, and ends the request's context when the client leaves: until
// the first byte that follows the request. From then on the server does not notice that the client leaves. So the
// middleware looks at the connection of a request that waits. HTTP/2 needs no such look: its server always reads.

// lookEvery is how often the connection of a request that waits is looked at.
const lookEvery = 100 * time.Millisecond

var (
	errClientGone = fmt.Errorf("httplock: the client left while its request waited: %w", context.Canceled)
	errPipelined  = fmt.Errorf("httplock: %w: more bytes follow the request on its connection, "+
		"so a client that leaves would not be noticed, and the request does not wait", mortise.ErrNotAcquired)
)

// sight is what a look at a connection shows.
type sight int

const (
	quiet sight = iota // nothing; also if the connection cannot be looked at
	more               // bytes that the server has not read
	gone               // the client has left
)

// rawConn returns the connection below the ResponseWriter of a request of HTTP/1; nil if there is none to look at.
//
// net/http gives a handler no access to the connection without taking it over, so rawConn reads two unexported fields
// of net/http's ResponseWriter, which do not change while a request is served. A field that is missing, or of another
// type, counts as no connection.
func rawConn(w http.ResponseWriter) syscall.RawConn {
	for {
		u, wraps := w.(interface{ Unwrap() http.ResponseWriter })
		if !wraps {
			break
		}
		w = u.Unwrap()
	}
	conn := field(reflect.ValueOf(w), "conn")
	rwc := field(conn, "rwc")
	if !rwc.IsValid() || rwc.Type() != reflect.TypeFor[net.Conn]() || conn.Type().Elem().PkgPath() != "net/http" {
		return nil
	}
	c := *(*net.Conn)(rwc.Addr().UnsafePointer())
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		c = t.NetConn()
	}
	if s, ok := c.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			return raw
		}
	}
	return nil
}

// field returns a field of the struct that v points to; the zero Value if there is none.
func field(v reflect.Value, name string) reflect.Value {
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	f, ok := v.Elem().Type().FieldByName(name)
	if !ok || len(f.Index) != 1 { // an embedded struct's: the pointer to it may be nil
		return reflect.Value{}
	}
	return v.Elem().Field(f.Index[0])
}

// lookout looks at a connection until stop, and ends a context when the client has left, or has sent more.
type lookout struct {
	conn syscall.RawConn
	end  context.CancelCauseFunc

	mu      sync.Mutex // guards the fields below
	timer   *time.Timer
	more    bool  // the last look showed more
	over    error // why the request must not wait, or be served
	stopped bool
}

// watchConn begins to look at conn. The returned context ends with parent at the latest.
func watchConn(parent context.Context, conn syscall.RawConn) (context.Context, *lookout) {
	ctx, end := context.WithCancelCause(parent)
	o := &lookout{conn: conn, end: end}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = time.AfterFunc(lookEvery, o.look)
	return ctx, o
}

func (o *lookout) look() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	if o.judge(); o.over != nil {
		o.end(o.over)
		return
	}
	o.timer.Reset(lookEvery)
}

// judge looks at the connection. Two looks in turn must show more: the server may have been about to read it. o.mu is
// locked.
func (o *lookout) judge() {
	seen := look(o.conn)
	switch {
	case o.over != nil:
	case seen == gone:
		o.over = errClientGone
	case seen == more && o.more:
		o.over = errPipelined
	}
	o.more = seen == more
}

// stop looks for the last time. It returns an error if the request must not be served.
func (o *lookout) stop() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.timer.Stop()
	o.judge()
	return o.over
}

// lockConnected waits for the lock while the client is connected.
func (m *wrapper) lockConnected(
	locks mortise.Locker, w http.ResponseWriter, r *http.Request, name string,
) (*mortise.Lease, error) {
	ctx := r.Context()
	var o *lookout
	if r.ProtoMajor == 1 {
		if conn := rawConn(w); conn != nil {
			if look(conn) == more {
				lease, err := locks.TryLock(middleware.AskStore(ctx), name, m.options...)
				if errors.Is(err, mortise.ErrNotAcquired) {
					err = fmt.Errorf("%w: %w", errPipelined, err)
				}
				return lease, err
			}
			ctx, o = watchConn(ctx, conn)
		}
	}
	lease, err := locks.Lock(ctx, name, m.waiting...)
	if over := o.stop(); over != nil {
		if lease != nil {
			release(r.Context(), lease)
		}
		return nil, over
	}
	return lease, err
}
