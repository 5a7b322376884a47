package engine

import (
	"sync"
	"sync/atomic"

	"github.com/mortise-go/mortise/backend"
)

// Limit is the number of permits that a Semaphore of the user declares. Its requests share the Limit. The store may
// execute two requests of a client in either order, so a declaration and a replacement are never sent at the same time.
type Limit struct {
	N        atomic.Int64 // 0: the number in the store applies
	declared atomic.Bool  // the store has answered a request that set N: later ones set it only if there is no count

	mu        sync.Mutex
	declaring int           // requests under way that set N, even if the store has another number
	replacing int           // replacements that wait for these, or are under way
	idle      chan struct{} // closed when declaring becomes zero; nil if no replacement waits for that
}

// declares reports whether requests set the limit in the store, if the store has none. A nil Limit is no limit.
func (l *Limit) declares() bool { return l != nil && l.N.Load() > 0 }

// undeclared reports whether the next request is to set the limit, even if the store has another.
func (l *Limit) undeclared() bool { return l.declares() && !l.declared.Load() }

// declare sends a request, which sets the limit if that is not yet declared, nor about to be replaced.
func (l *Limit) declare(send func(declare bool) (backend.PermitReply, error)) (r backend.PermitReply, err error) {
	if !l.undeclared() || !l.begin() {
		return send(false)
	}
	answered := false
	defer func() { l.end(answered) }()
	r, err = send(true)
	answered = err == nil // a refusal counts, too: a waiter that asks again must not undo a later SetPermits
	return r, err
}

// begin reports whether a request may set the limit.
func (l *Limit) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.replacing > 0 || l.declared.Load() {
		return false
	}
	l.declaring++
	return true
}

// end notes the end of a request that was to set the limit.
func (l *Limit) end(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if answered {
		l.declared.Store(true)
	}
	if l.declaring--; l.declaring == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// replace sets the number of permits in the store to n, by set, and notes that. It first waits for the requests that
// declare another number, or until done is closed.
func (l *Limit) replace(n int64, done <-chan struct{}, set func() error) error {
	idle := l.reserve()
	ok := false
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.replacing--; ok {
			l.N.Store(n)
			l.declared.Store(true)
		}
	}()
	if idle != nil {
		select {
		case <-idle:
		case <-done:
		}
	}
	err := set()
	ok = err == nil
	return err
}

// reserve keeps requests from setting the limit. The channel, if it is not nil, is closed when none does.
func (l *Limit) reserve() (idle <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replacing++
	if l.declaring > 0 && l.idle == nil {
		l.idle = make(chan struct{})
	}
	return l.idle
}
