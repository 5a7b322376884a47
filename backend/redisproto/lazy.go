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
	built   atomic.Pointer[C]

	mu      sync.Mutex
	attempt *attempt[C] // the attempt under way; nil if there is none
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
	if c := l.built.Load(); c != nil {
		return *c, nil
	}
	l.mu.Lock()
	if c := l.built.Load(); c != nil { // built meanwhile
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

// Built reports whether there is a client.
func (l *Lazy[C]) Built() bool { return l.built.Load() != nil }

// Close discards the client. It does not wait for an attempt under way, whose client is discarded, too.
func (l *Lazy[C]) Close() {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if c := l.built.Load(); c != nil && !closed {
		l.discard(*c)
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
		l.built.Store(&client)
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
