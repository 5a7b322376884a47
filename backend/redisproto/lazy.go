package redisproto

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Lazy builds a client at the first command. It is for client libraries whose constructor dials, since
// opening a backend does no I/O. Concurrent commands share an attempt; after a failed attempt the next
// command tries again. The methods may be called concurrently; once the client is built, Get costs an
// atomic load.
type Lazy[C any] struct {
	build   func() (C, error)
	discard func(C)
	current atomic.Pointer[C]
	built   atomic.Bool

	mu      sync.Mutex
	attempt *attempt[C] // the attempt under way; nil if there is none
	old     []C         // replaced clients
	closed  bool
}

type attempt[C any] struct {
	done   chan struct{}
	client C
	err    error
}

// NewLazy returns a Lazy. All writes of build before its return are visible to each caller of Get. Close
// calls discard for a client that was built.
func NewLazy[C any](build func() (C, error), discard func(C)) *Lazy[C] {
	return &Lazy[C]{build: build, discard: discard}
}

// Get returns the client. An error means that the caller's command was not sent; the session
// recognizes such an error without [Adapter.Unsent].
func (l *Lazy[C]) Get(ctx context.Context) (C, error) {
	if c := l.current.Load(); c != nil {
		return *c, nil
	}
	l.mu.Lock()
	if c := l.current.Load(); c != nil { // built meanwhile
		l.mu.Unlock()
		return *c, nil
	}
	a := l.attempt
	if l.closed {
		a = &attempt[C]{done: closedChan, err: unsentError{errClosed}}
	} else if a == nil {
		a = &attempt[C]{done: make(chan struct{})}
		l.attempt = a
		go l.try(a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.client, a.err
	case <-ctx.Done():
		var none C
		return none, unsentError{ctx.Err()}
	}
}

// Current returns the client without building one. It reports false if there is none at present.
func (l *Lazy[C]) Current() (c C, built bool) {
	if p := l.current.Load(); p != nil {
		return *p, true
	}
	return c, false
}

// Built reports whether a client was built.
func (l *Lazy[C]) Built() bool { return l.built.Load() }

// Replace makes the next command build another client. The present client serves the commands that have it already,
// and is discarded by Close.
func (l *Lazy[C]) Replace() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.current.Load(); c != nil && !l.closed {
		l.old = append(l.old, *c)
		l.current.Store(nil)
	}
}

// Close discards all clients. It does not wait for an attempt under way, whose client is discarded, too. Close of a nil
// Lazy does nothing.
func (l *Lazy[C]) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	all := l.old
	if c := l.current.Load(); c != nil && !l.closed {
		all = append(all, *c)
	}
	l.old, l.closed = nil, true
	l.mu.Unlock()
	for _, c := range all {
		l.discard(c)
	}
}

func (l *Lazy[C]) try(a *attempt[C]) {
	defer close(a.done)
	client, err := l.build()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt = nil
	switch {
	case err != nil:
		a.err = unsentError{err}
	case l.closed:
		l.discard(client)
		a.err = unsentError{errClosed}
	default:
		a.client = client
		l.current.Store(&client)
		l.built.Store(true)
	}
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

var errClosed = errors.New("the client was closed")

// unsentError is the error of a command that was not sent, since there was no client.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }
