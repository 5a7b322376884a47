package httplock

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mortise-go/mortise"
)

// A server of HTTP/1 notices that a client has left only after the request's body was read to its end. A request that
// waits with an unread body would be served after its client has gone. So a request waits only if its body could be
// read ahead.

// mostAhead bounds how many bytes of a body are read ahead.
const mostAhead = 64 << 10

// aheadWait bounds how long readAhead waits for the body. It is a variable for tests.
var aheadWait = 10 * time.Second

// lockWaiting acquires the lock for a request that may wait. It also returns the request to serve: its body may have
// been read ahead.
func (m *middleware) lockWaiting(
	locks mortise.Locker, w http.ResponseWriter, r *http.Request, name string,
) (*mortise.Lease, *http.Request, error) {
	wait := func() (*mortise.Lease, *http.Request, error) {
		lease, err := locks.Lock(r.Context(), name, m.waiting...)
		return lease, r, err
	}
	switch {
	case r.ProtoMajor != 1, r.Body == nil, r.Body == http.NoBody, r.ContentLength == 0:
		return wait() // the server notices a client that leaves
	case r.ContentLength > 0 && r.ContentLength <= mostAhead:
		// Read the body before the lock is taken: a slow client must not hold the lock while it sends.
		var whole bool
		if r, whole = readAhead(w, r); whole {
			return wait()
		}
	}
	// Try the lock before the body is read: the client may send the rest of the body only after an answer.
	lease, err := locks.TryLock(r.Context(), name, m.options...)
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
// goes on in its goroutine: a deadline that ends the read would also end the request's context, as if the client had
// left.
func readAhead(w http.ResponseWriter, r *http.Request) (ahead *http.Request, whole bool) {
	late := &lateBody{from: watchedBody{ReadCloser: r.Body}, read: make(chan struct{})}
	go func() {
		defer func() {
			late.panicked = recover() // repanic raises the panic in the handler's goroutine
			close(late.read)
		}()
		data, err := io.ReadAll(io.LimitReader(&late.from, mostAhead+1))
		late.whole = err == nil && len(data) <= mostAhead
		rest := io.Reader(&late.from)
		if err != nil {
			rest = failed{err}
		}
		late.all = io.MultiReader(bytes.NewReader(data), rest)
	}()
	ahead = r.WithContext(r.Context())
	inTime := time.NewTimer(aheadWait)
	defer inTime.Stop()
	select {
	case <-late.read:
		late.repanic()
		ahead.Body = &readBody{Reader: late.all, Closer: r.Body, whole: late.whole}
		return ahead, late.whole
	case <-inTime.C:
		ahead.Body = late
		return ahead, false
	}
}

// readBody is a body that was read ahead, in part or as a whole.
type readBody struct {
	io.Reader
	io.Closer
	whole bool // nothing is left to read from the connection
}

// failed is the rest of a body after a failed read.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// lateBody is a body that did not arrive in time. A goroutine reads it, and sets the other fields before it closes
// read.
type lateBody struct {
	from  watchedBody
	read  chan struct{} // closed when the goroutine has ended
	all   io.Reader     // what was read, and the rest
	whole bool          // nothing is left to read from the connection

	panicked any // the panic of the underlying body
}

// repanic raises a panic of the underlying body in the goroutine of the caller.
func (b *lateBody) repanic() {
	if b.panicked != nil {
		panic(b.panicked)
	}
}

func (b *lateBody) Read(p []byte) (int, error) {
	<-b.read
	b.repanic()
	return b.all.Read(p)
}

func (b *lateBody) Close() error {
	<-b.read
	return b.from.Close()
}

// leave ends the read of a body that has not arrived yet: the server does not answer while a goroutine reads the body.
func leave(w http.ResponseWriter, r *http.Request) {
	b, late := r.Body.(*lateBody)
	if !late {
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
