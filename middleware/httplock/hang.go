package httplock

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
)

// lastWords is how long a handler can still write after its lock was lost.
const lastWords = 2 * time.Second

// wakeOnLoss ends the handler's reads when the lease is lost, and its writes lastWords later: a handler that is blocked
// in a read or a write does not see its context end. It returns the request to serve, and a function to call after the
// handler has returned. After that call wakeOnLoss does not touch the connection.
func wakeOnLoss(w http.ResponseWriter, a *answered, r *http.Request, lease *mortise.Lease) (*http.Request, func()) {
	body := &watchedBody{ReadCloser: r.Body}
	ahead, _ := r.Body.(*readBody)
	late, _ := r.Body.(*lateBody)
	switch {
	case r.Body == nil, r.Body == http.NoBody, ahead != nil && ahead.whole:
		body.ended.Store(true)
	case late != nil:
		body = &late.from
	default:
		r.Body = body // r is the middleware's copy of the request
	}
	done := make(chan struct{})
	stop := context.AfterFunc(lease.Context(), func() {
		defer close(done)
		if !over(lease.Err()) {
			return
		}
		a.lost.Store(true)
		if a.written.Load() {
			a.boundWrites()
		}
		// After the body's end the server itself reads, to notice a client that leaves: do not end that read.
		if !body.ended.Load() || a.hijacked.Load() {
			http.NewResponseController(w).SetReadDeadline(time.Now())
		}
	})
	return r, sync.OnceFunc(func() {
		if !stop() {
			<-done
		}
	})
}

// watchedBody is a body that records its end.
type watchedBody struct {
	io.ReadCloser
	ended atomic.Bool
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Close makes the server read the rest, so the body has ended then.
func (b *watchedBody) Close() error {
	defer b.ended.Store(true)
	return b.ReadCloser.Close()
}
