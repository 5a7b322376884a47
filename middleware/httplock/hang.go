package httplock

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

const (
	// lastWords is how long a handler's writes can still take, in all, after its lock was lost.
	lastWords = 2 * time.Second
	// lastRest is how long a write can still read a body's rest, as net/http does before it sends an answer. The answer
	// then has the remainder of lastWords.
	lastRest = lastWords - 500*time.Millisecond
)

// readWait is how long a read of the body may go on after the loss, until it counts as blocked in the connection. It is
// a variable for tests.
var readWait = 50 * time.Millisecond

// wakeOnLoss ends the handler's reads when the lease is lost, and its writes after lastWords: a handler that is blocked
// in a read or a write does not see its context end. It returns the request to serve, and a function to call after the
// handler has returned. After that call wakeOnLoss does not touch the connection.
func wakeOnLoss(a *answered, r *http.Request, lease *mortise.Lease) (*http.Request, func()) {
	a.body = &watchedBody{ReadCloser: r.Body}
	ahead, _ := r.Body.(*aheadBody)
	switch {
	case r.Body == nil, r.Body == http.NoBody, r.ContentLength == 0:
		a.body.ended.Store(true)
	case ahead != nil:
		a.body = &ahead.from
	default:
		r.Body = a.body // r is the middleware's copy of the request
	}
	returned, done := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(lease.Context(), func() {
		defer close(done)
		if cause := middleware.AwaitLoss(lease, returned); cause != nil {
			a.wake(cause, returned)
		}
	})
	return r, sync.OnceFunc(func() {
		close(returned)
		if !stop() {
			<-done
		}
	})
}

// wake ends the handler's reads, and bounds its writes.
//
// The deadline for reads is set only while a call of the body is blocked. If the server has reached the body's end,
// which may be hidden by a middleware that wraps or buffers the body, the server itself reads, to notice a client that
// leaves: a deadline would end the context of the connection, and so the contexts of all later requests.
func (a *answered) wake(cause error, returned <-chan struct{}) {
	a.lose()
	if a.hijacked.Load() {
		http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(lastWords))
		a.breakReads()
	}
	select {
	case <-a.body.lose(cause):
	case <-returned:
	case <-time.After(readWait):
		if !a.body.ended.Load() {
			a.breakReads()
		}
	}
}

// watchedBody is a body that records its end, and fails after the loss.
type watchedBody struct {
	io.ReadCloser
	ended atomic.Bool

	mu    sync.Mutex    // guards the fields below
	calls int           // Read and Close that run
	cause error         // of the loss
	idle  chan struct{} // not nil if calls run that began before the loss; closed when they have ended
}

// lose makes later calls fail, unless the body has ended. The returned channel is closed when no call runs.
func (b *watchedBody) lose(cause error) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = cause
	idle := make(chan struct{})
	if b.calls == 0 {
		close(idle)
	} else {
		b.idle = idle
	}
	return idle
}

// begin begins a call. After the loss begin returns an error.
func (b *watchedBody) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause != nil && !b.ended.Load() {
		return fmt.Errorf("httplock: the rest of the body is not read: %w", b.cause)
	}
	b.calls++
	return nil
}

// end ends a call.
func (b *watchedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls--
	if b.calls == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

func (b *watchedBody) Read(p []byte) (int, error) {
	if err := b.begin(); err != nil {
		return 0, err
	}
	defer b.end()
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// Close makes the server read the rest, so the body has ended then.
func (b *watchedBody) Close() error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.end()
	defer b.ended.Store(true)
	return b.ReadCloser.Close()
}
