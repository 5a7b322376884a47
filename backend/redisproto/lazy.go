package redisproto

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Lazy builds a client when the first command needs the client. Lazy serves client libraries with a
// dialing constructor, since opening a backend does no I/O. Concurrent commands share an attempt;
// after a failed attempt the next command tries again. The methods may be called concurrently; once
// the client is built, Get costs an atomic load.
type Lazy[C any] struct {
	build   func() (C, error)
	discard func(C)
	built   atomic.Pointer[C]

	mu      sync.Mutex
	attempt *attempt[C] // the one under way, or nil
	closed  bool
}

type attempt[C any] struct {
	done   chan struct{}
	client C
	err    error
}

// NewLazy makes a Lazy. All writes of build before its return are visible to each caller of Get.
// Close calls discard for a built client.
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
	if c := l.built.Load(); c != nil { // meanwhile
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

// Close discards the client, even a client still under construction, without a wait for the
// attempt.
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

// unsentError is the failure of a command that had no client to go out by.
type unsentError struct{ error }

func (e unsentError) Unwrap() error { return e.error }
