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
// and the error that came then, are for the handler. What has not come in time is read on: the end of
// a read by a deadline would end the request's context, and look like a client that has left.
func readAhead(w http.ResponseWriter, r *http.Request) (ahead *http.Request, whole bool) {
	late := &lateBody{from: watchedBody{ReadCloser: r.Body}, read: make(chan struct{})}
	go func() {
		defer func() {
			late.panicked = recover() // for the handler's goroutine
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

// readBody is a body of which some was read.
type readBody struct {
	io.Reader
	io.Closer
	whole bool // nothing is left to be read from the connection
}

// failed is the rest of a body whose reading has failed.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) { return 0, f.err }

// lateBody is a body that has not come in time; it is being read.
type lateBody struct {
	from  watchedBody
	read  chan struct{} // closed when it was read
	all   io.Reader     // then: what was read, and the rest
	whole bool          // then: nothing is left to be read from the connection

	panicked any // then: what the body below panicked with
}

// repanic has a panic of the body below come where the body is read.
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

// leave ends the reading of a body that has not come yet: the server does not answer while one reads.
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
