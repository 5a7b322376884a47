package httplock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/mortise-go/mortise"
)

// New makes a middleware that serves requests of one key one at a time: over all
// processes that share the store of locks. key says what a request is locked by; see
// [RouteKey], [HeaderKey], [ContextKey], [Join].
//
// Without options a request is refused at once while another holds its lock. See the package's
// documentation for modes and answers.
//
// It does no I/O. It panics if locks or key is nil, or an option makes no sense, as
// http.ServeMux.Handle does: that is a mistake in the program, to be seen when it starts.
//
// Cost: two commands for a request whose lock is free.
func New(locks mortise.Locker, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	if locks == nil || key == nil {
		panic("httplock: New: the Locker and the KeyFunc must not be nil")
	}
	m := middleware{locks: locks, read: locks, key: key, locked: http.StatusLocked, answer: answerPlainly,
		retryAfter: DefaultRetryAfter}
	for _, o := range opts {
		o(&m)
	}
	m.waiting = append(m.options[:len(m.options):len(m.options)], mortise.WithWait(m.wait))
	return func(next http.Handler) http.Handler {
		m := m
		m.next = next
		return &m
	}
}

// Option changes what [New] makes.
type Option func(*middleware)

// WithWait has a request wait for its lock, for d at most; then it is answered as
// locked. It must be positive.
//
// The wait ends with the client. A server of HTTP/1 notices that a client has left only when the
// request's body was read to its end, so bodies are read before the wait, up to 64 KiB and for 10 s.
// A request whose body is larger, or has not come by then, does not wait: it is refused at once if
// the lock is held. A chunked body is read only if the lock is held.
func WithWait(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("httplock: WithWait(%v): a wait is positive; without it requests are refused at once", d))
	}
	return func(m *middleware) { m.waits, m.wait = true, d }
}

// WithMaxClientWait has a request wait for its lock for as long as its client does, until the request's
// context ends, and for [MaxClientWait] at most: it is WithWait(MaxClientWait).
func WithMaxClientWait() Option { return WithWait(MaxClientWait) }

// MaxClientWait bounds [WithMaxClientWait]: no server notices at once that a client has vanished, such
// as by a broken network.
const MaxClientWait = 5 * time.Minute

// WithStatus answers status instead of 423 where the lock is held: 409 for clients that send an Idempotency-Key, which
// expect it for a request that is still being worked on. It is between 400 and 599.
func WithStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("httplock: WithStatus(%d): a refusal's status is between 400 and 599", status))
	}
	return func(m *middleware) { m.locked = status }
}

// DefaultRetryAfter is the longest Retry-After that is sent where a lock is held, unless
// [WithRetryAfter] says otherwise.
const DefaultRetryAfter = 3 * time.Second

// WithRetryAfter bounds the Retry-After that is sent where the lock is held. What is left of the
// holder's lease is an upper bound only: a lease that is renewed may have 30 s to go when the request
// that holds it is about to end. Take the time that a request takes. It is at least a second; by
// default it is [DefaultRetryAfter].
func WithRetryAfter(most time.Duration) Option {
	if most < time.Second {
		panic(fmt.Sprintf("httplock: WithRetryAfter(%v): at least a second", most))
	}
	return func(m *middleware) { m.retryAfter = most }
}

// WithReaders has GET and HEAD requests lock by read instead, the others by New's
// Locker: readers share the lock, writers do not.
//
//	rw := client.RW()
//	lock := httplock.New(rw.Write, key, httplock.WithReaders(rw.Read))
func WithReaders(read mortise.Locker) Option {
	if read == nil {
		panic("httplock: WithReaders: the Locker must not be nil")
	}
	return func(m *middleware) { m.read = read }
}

// WithLockOptions passes options to each Lock or TryLock: mortise.WithLease or
// mortise.WithMaxHold, to bound what a handler that hangs can hold up. A service that strangers can
// call needs one of them: see Bounds in the package's documentation. For
// mortise.WithWait use this package's. One that mortise refuses is answered with 500.
func WithLockOptions(opts ...mortise.Option) Option {
	return func(m *middleware) { m.options = append(m.options[:len(m.options):len(m.options)], opts...) }
}

// WithFailOpen serves requests WITHOUT a lock while the store of locks is unavailable (mortise.ErrUnavailable):
// for work that may overlap at worst, and must not stop. Such a request's context
// carries no lease: [Lease] returns nil.
func WithFailOpen() Option {
	return func(m *middleware) { m.open = true }
}

// WithErrorHandler replaces all answers. The Problem is what would have been answered: change it and have
// it answer, p.ServeHTTP(w, r), or answer something else. Name and Err are there for
// a log.
func WithErrorHandler(answer func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	if answer == nil {
		panic("httplock: WithErrorHandler: the function must not be nil")
	}
	return func(m *middleware) { m.answer = answer }
}

// Lease returns the lease that a request's context carries, of the innermost middleware; nil if there is
// none, which is a lease that holds nothing. A handler that is about to
// write asks its Err, or sends its Token along.
func Lease(ctx context.Context) *mortise.Lease {
	l, _ := ctx.Value(leaseKey{}).(*mortise.Lease)
	return l
}

type leaseKey struct{}

// releaseWait bounds for how long an answer waits for its lock's release. It is
// released before the answer is complete, so that a client which then sends the
// next request is not refused because of its last one.
const releaseWait = 2 * time.Second

type middleware struct {
	locks, read mortise.Locker
	key         KeyFunc
	options     []mortise.Option
	waiting     []mortise.Option // options, and the wait
	waits       bool
	wait        time.Duration
	locked      int
	retryAfter  time.Duration
	open        bool
	answer      func(http.ResponseWriter, *http.Request, Problem)
	next        http.Handler
}

func (m *middleware) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, err := m.key(r)
	if err == nil && name == "" {
		err = errEmptyKey
	}
	switch {
	case errors.Is(err, ErrNoLock):
		m.next.ServeHTTP(w, r)
		return
	case err != nil:
		m.answer(w, r, badKey(name, err))
		return
	}
	lease, r, err := m.lock(w, r, name)
	switch {
	case err == nil:
		m.serve(w, r, name, lease)
	case m.open && errors.Is(err, mortise.ErrUnavailable):
		m.next.ServeHTTP(w, r)
	default:
		m.answer(w, r, m.refused(r, name, err))
	}
}

// lock returns the request to serve, too: its body may have been read.
func (m *middleware) lock(
	w http.ResponseWriter, r *http.Request, name string,
) (lease *mortise.Lease, _ *http.Request, err error) {
	locks := m.locks
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		locks = m.read
	}
	if m.waits {
		lease, r, err = m.lockWaiting(locks, w, r, name)
	} else {
		lease, err = locks.TryLock(r.Context(), name, m.options...)
	}
	if err == nil && lease == nil {
		err = errors.New("httplock: the Locker returned neither a lease nor an error")
	}
	return lease, r, err
}

func (m *middleware) serve(w http.ResponseWriter, r *http.Request, name string, lease *mortise.Lease) {
	defer release(r.Context(), lease) // when the handler panics, too
	out, a := watch(w)
	in, returned := wakeOnLoss(w, a, r.WithContext(context.WithValue(lease.Context(), leaseKey{}, lease)), lease)
	defer returned() // when it panics, too
	m.next.ServeHTTP(out, in)
	if err := lease.Err(); over(err) && !a.written.Load() {
		// A handler that broke off without a word would be taken for a success.
		returned()
		http.NewResponseController(w).SetWriteDeadline(time.Now().Add(lastWords)) // which may be over
		m.answer(w, r, lost(name, err))
	}
}

// over tells that a lease ended without Unlock.
func over(err error) bool {
	return errors.Is(err, mortise.ErrLost) || errors.Is(err, mortise.ErrClosed)
}

// release unlocks, also if the client has gone: the release is sent in any case, and
// repeated. Its error is the client's observer's to hear.
func release(ctx context.Context, lease *mortise.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if over(lease.Err()) {
		cancel() // nothing is held that a call could wait for
	}
	lease.Unlock(ctx)
}
