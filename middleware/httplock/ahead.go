package httplock

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mortise-go/mortise"
)

// A server of HTTP/1 notices that a client has left only when the request's body was read to its
// end. A request that waited without would be served after its client has gone; so one waits only if
// its body could be read ahead.

// mostAhead is how much of a body is read ahead.
const mostAhead = 64 << 10

// aheadWait is for how long. A variable for tests.
var aheadWait = 10 * time.Second

// lockWaiting acquires the lock for a request that may wait. It returns the request with the body
// that was read ahead.
func (m *middleware) lockWaiting(
	locks mortise.Locker, w http.ResponseWriter, r *http.Request, name string,
) (*mortise.Lease, *http.Request, error) {
	wait := func() (*mortise.Lease, *http.Request, error) {
		lease, err := locks.Lock(r.Context(), name, m.waiting...)
		return lease, r, err
	}
	switch {
	case r.ProtoMajor != 1, r.Body == nil, r.Body == http.NoBody, r.ContentLength == 0:
		return wait() // the server notices
	case r.ContentLength > 0 && r.ContentLength <= mostAhead:
		// First the body, so that no slow sender holds the lock while it sends.
		var whole bool
		if r, whole = readAhead(w, r); whole {
			return wait()
		}
	}
	// The client may want an answer before it sends the rest: it gets one if the lock is free.
	lease, err := locks.TryLock(r.Context(), name, m.options...)
	if r.ContentLength < 0 && errors.Is(err, mortise.ErrNotAcquired) {
		var whole bool
		if r, whole = readAhead(w, r); whole {
			return wait()
		}
	}
	return lease, r, err
}

// readAhead reads a body of moderate length, and reports whether that is all of it. What was read,
// and the error that came then, are for the handler.
func readAhead(w http.ResponseWriter, r *http.Request) (ahead *http.Request, whole bool) {
	// The connection's deadline is the server's, and is touched only if the body does not come.
	tooLate := make(chan struct{})
	cut := time.AfterFunc(aheadWait, func() {
		defer close(tooLate)
		http.NewResponseController(w).SetReadDeadline(time.Now())
	})
	data, err := io.ReadAll(io.LimitReader(r.Body, mostAhead+1))
	whole = err == nil && len(data) <= mostAhead
	if !cut.Stop() {
		<-tooLate
		whole = false // the server can no longer notice that the client leaves
	}
	read := r.WithContext(r.Context())
	rest := io.Reader(r.Body)
	if err != nil {
		rest = failed{err}
	}
	read.Body = &readBody{Reader: io.MultiReader(bytes.NewReader(data), rest), Closer: r.Body, whole: whole}
	return read, whole
}

// readBody is a body of which some was read.
type readBody struct {
	io.Reader
	io.Closer
	whole bool // nothing is left to be read from the connection
}

// failed is the rest of a body whose reading has failed.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }
