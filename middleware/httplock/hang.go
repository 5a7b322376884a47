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

// lastWords is for how long a handler whose lock was lost can still write.
const lastWords = 2 * time.Second

// wakeOnLoss has the handler's reads end when the lease is lost, and its writes lastWords later: a
// handler that hangs in its connection does not see its context end. It returns the request to
// serve, and a function to be called when the handler has returned, after which the connection is left
// alone.
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
		r.Body = body // r is the middleware's own
	}
	done := make(chan struct{})
	stop := context.AfterFunc(lease.Context(), func() {
		defer close(done)
		if !over(lease.Err()) {
			return
		}
		c := http.NewResponseController(w)
		c.SetWriteDeadline(time.Now().Add(lastWords))
		// After a body's end it is the server that reads, to see the client leave.
		if !body.ended.Load() || a.hijacked.Load() {
			c.SetReadDeadline(time.Now())
		}
	})
	return r, sync.OnceFunc(func() {
		if !stop() {
			<-done
		}
	})
}

// watchedBody is a body that notices its end.
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

// Close has the server read the rest.
func (b *watchedBody) Close() error {
	defer b.ended.Store(true)
	return b.ReadCloser.Close()
}
