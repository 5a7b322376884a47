package httplock

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// A request waits only if its body could be read ahead. A server of HTTP/1 notices that a client has left only after
// the body was read to its end: the request would be served after its client has gone. A server of HTTP/2 bounds the
// bytes of a connection that no handler has read: unread bodies of requests that wait would stop all uploads of the
// connection, also the holder's.

// mostAhead bounds how many bytes of a body are read ahead.
const mostAhead = middleware.WaiterBytes

// aheadWait bounds how long readAhead waits for the body. It is a variable for tests.
var aheadWait = 10 * time.Second

// lockWaiting acquires the lock for a request that may wait. It also returns the request to serve: its body may have
// been read ahead.
func (m *wrapper) lockWaiting(
	locks mortise.Locker, w http.ResponseWriter, r *http.Request, name string,
) (*mortise.Lease, *http.Request, error) {
	wait := func() (*mortise.Lease, *http.Request, error) {
		lease, err := m.lockConnected(locks, w, r, name)
		return lease, r, err
	}
	switch {
	case r.Body == nil, r.Body == http.NoBody, r.ContentLength == 0:
		return wait()
	case r.ContentLength > 0 && r.ContentLength <= mostAhead:
		// Read the body before the lock is taken: a slow client must not hold the lock while it sends.
		var whole bool
		if r, whole = readAhead(w, r); whole {
			return wait()
		}
	}
	// Try the lock before the body is read: the client may send the rest of the body only after an answer.
	lease, err := locks.TryLock(middleware.AskStore(r.Context()), name, m.options...)
	if r.ContentLength < 0 && errors.Is(err, mortise.ErrNotAcquired) {
		var whole bool
		if r, whole = readAhead(w, r); whole {
			return wait()
		}
	}
	return lease, r, err
}

// readAhead reads a body of moderate length, and reports whether it has the whole body. The body of the returned
// request yields what was read, then the error of the read or the rest. If the body does not arrive in time, the read
// that is blocked goes on in its goroutine: a deadline that ends the read would also end the request's context, as if
// the client had left.
func readAhead(w http.ResponseWriter, r *http.Request) (ahead *http.Request, whole bool) {
	body := &aheadBody{from: watchedBody{ReadCloser: r.Body}, read: make(chan struct{})}
	ahead = r.WithContext(r.Context()) // before the read: at the body's end the server may set r.Trailer
	ahead.Body = body
	go body.readAhead()
	inTime := time.NewTimer(aheadWait)
	defer inTime.Stop()
	select {
	case <-body.read:
		body.repanic()
		return ahead, body.err == io.EOF
	case <-inTime.C:
		body.stop()
		return ahead, false
	case <-r.Context().Done(): // http.TimeoutHandler, or the server, ends the request: its body may never arrive
		body.stop()
		return ahead, false
	}
}

// aheadBody is a body that was read ahead, in part or as a whole. A goroutine reads it until the body's end, mostAhead
// or stop. Later reads go to the connection.
type aheadBody struct {
	from watchedBody
	read chan struct{} // closed when the goroutine has ended

	err      error // of the goroutine's last read
	panicked any   // the panic of the underlying body

	mu      sync.Mutex // guards the fields below
	data    []byte     // read, and not yet handed to the handler
	stopped bool       // the goroutine reads no more
}

func (b *aheadBody) readAhead() {
	defer func() {
		b.panicked = recover() // repanic raises the panic in the handler's goroutine
		close(b.read)
	}()
	part := make([]byte, 4<<10)
	for length := 0; b.err == nil && length <= mostAhead && !b.isStopped(); {
		var n int
		n, b.err = b.from.Read(part[:min(len(part), mostAhead+1-length)])
		length += n
		b.add(part[:n])
	}
}

// add keeps what was read. Its memory is at most mostAhead bytes, unless the body is larger.
func (b *aheadBody) add(part []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if need := len(b.data) + len(part); need > cap(b.data) {
		b.data = append(make([]byte, 0, max(need, min(2*need, mostAhead))), b.data...)
	}
	b.data = append(b.data, part...)
}

func (b *aheadBody) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
}

func (b *aheadBody) isStopped() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stopped
}

// repanic raises a panic of the underlying body in the goroutine of the caller.
func (b *aheadBody) repanic() {
	if b.panicked != nil {
		panic(b.panicked)
	}
}

// take hands over what was read.
func (b *aheadBody) take(p []byte) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := copy(p, b.data)
	if b.data = b.data[n:]; len(b.data) == 0 {
		b.data = nil // a handler that has read its body may run for long
	}
	return n
}

func (b *aheadBody) Read(p []byte) (int, error) {
	if err := b.from.begin(); err != nil {
		return 0, err
	}
	defer b.from.end()
	if n := b.take(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-b.read
	b.repanic()
	if n := b.take(p); n > 0 {
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.from.Read(p)
}

func (b *aheadBody) Close() error {
	<-b.read
	return b.from.Close()
}

// leave ends the read of a body that has not arrived yet: the server does not answer while a goroutine reads the body.
func leave(w http.ResponseWriter, r *http.Request) {
	b, ahead := r.Body.(*aheadBody)
	if !ahead {
		return
	}
	select {
	case <-b.read:
	default:
		if http.NewResponseController(w).SetReadDeadline(time.Now()) == nil {
			<-b.read
		}
	}
}
