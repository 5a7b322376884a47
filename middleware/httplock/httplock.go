package httplock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
)

// New makes a middleware that serves requests with the same key one at a time, over all processes
// with the same store of locks. key returns the name of a request's lock; see [RouteKey],
// [HeaderKey], [ContextKey], [Join].
//
// Without options a request is refused at once while another request holds its lock. See the
// package's documentation for modes and answers.
//
// New does no I/O. New panics if locks or key is nil, or an option is nil or invalid, and the middleware
// panics for a nil handler, as http.ServeMux.Handle does: such a mistake in the program shows at its
// start.
//
// Cost: two commands for a request whose lock is free.
func New(locks mortise.Locker, key KeyFunc, opts ...Option) func(http.Handler) http.Handler {
	if locks == nil || key == nil {
		panic("httplock: New: the Locker and the KeyFunc must not be nil")
	}
	m := wrapper{locks: locks, read: locks, key: key, locked: http.StatusLocked, answer: answerPlainly,
		retryAfter: DefaultRetryAfter, perName: DefaultMaxWaiters}
	for _, o := range opts {
		if o == nil {
			panic("httplock: New: a nil Option")
		}
		o(&m)
	}
	m.waiting = append(m.options[:len(m.options):len(m.options)], mortise.WithWait(m.wait),
		mortise.WithMaxWaiters(m.perName))
	m.limit = middleware.NewLimit(m.inAll)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httplock: New: the Handler must not be nil")
		}
		if servesLater(next) {
			return refuseAll{m.answer}
		}
		m := m
		m.next = next
		return &m
	}
}

// Option changes what [New] makes.
type Option func(*wrapper)

// WithWait makes a request wait for its lock, for d at most; then the request is answered as
// locked. d must be positive.
//
// The wait ends with the client. A server of HTTP/1 notices the departure of a client only after
// the request's body was read to its end, and unread bodies of HTTP/2 stop other uploads of their
// connection. So the middleware reads bodies before the wait, up to 64 KiB and for 10 s. A request
// with a larger, or slower, body does not wait: the request is refused at once if the lock is held.
// A body of unknown length is read only if the lock is held.
//
// A request of HTTP/1 does not wait, either, if more bytes follow it on its connection (pipelining): the
// server would not notice the departure.
//
// The WriteTimeout of the http.Server includes the wait: see Bounds in the package's documentation.
func WithWait(d time.Duration) Option {
	if d <= 0 {
		panic(fmt.Sprintf("httplock: WithWait(%v): a wait is positive; without it requests are refused at once", d))
	}
	return func(m *wrapper) { m.waits, m.wait = true, d }
}

// WithMaxClientWait makes a request wait for its lock for as long as its client does, until the
// request's context ends, and for [MaxClientWait] at most: the same as WithWait(MaxClientWait).
func WithMaxClientWait() Option { return WithWait(MaxClientWait) }

// MaxClientWait bounds [WithMaxClientWait]: no server notices at once a client lost by, for
// example, a broken network.
const MaxClientWait = 5 * time.Minute

// The most requests of a process that wait, unless [WithMaxWaiters] says otherwise.
const (
	DefaultMaxWaiters      = 512  // for one lock
	DefaultMaxWaitersInAll = 4096 // for all locks of all middlewares
)

// WithMaxWaiters bounds how many requests wait at once in this process, by [WithWait]: perName for the
// same lock, and inAll for all locks of the middleware. A further request for the lock is answered at once with
// 429 and [TypeCrowded]; a further request in all is served if its lock is free, and otherwise
// answered likewise. Without a bound, a flood for a busy name leaves as many requests waiting, each
// with up to 64 KiB of its body in memory. Both are at least one. The first bound counts other callers
// of the same client, too: see mortise.WithMaxWaiters.
//
// Without this option the bounds are [DefaultMaxWaiters] and [DefaultMaxWaitersInAll]; the second is
// then one bound for all middlewares of the process without the option, those of grpclock included.
func WithMaxWaiters(perName, inAll int) Option {
	if perName < 1 || inAll < 1 {
		panic(fmt.Sprintf("httplock: WithMaxWaiters(%d, %d): at least one each; without WithWait no request waits",
			perName, inAll))
	}
	return func(m *wrapper) { m.perName, m.inAll = perName, inAll }
}

// WithStatus answers status instead of 423 while the lock is held: 409 for clients with an
// Idempotency-Key; such clients expect 409 while their request is still in progress. status is
// between 400 and 599.
func WithStatus(status int) Option {
	if status < 400 || status > 599 {
		panic(fmt.Sprintf("httplock: WithStatus(%d): a refusal's status is between 400 and 599", status))
	}
	return func(m *wrapper) { m.locked = status }
}

// DefaultRetryAfter is the longest Retry-After sent while a lock is held, unless [WithRetryAfter]
// says otherwise.
const DefaultRetryAfter = 3 * time.Second

// WithRetryAfter bounds the Retry-After sent while the lock is held. The remaining time of the
// holder's lease is an upper bound only: a renewed lease may have 30 s to go when its request is
// about to end. Use the usual duration of a request. The bound is at least a second; by default
// [DefaultRetryAfter].
func WithRetryAfter(most time.Duration) Option {
	if most < time.Second {
		panic(fmt.Sprintf("httplock: WithRetryAfter(%v): at least a second", most))
	}
	return func(m *wrapper) { m.retryAfter = most }
}

// WithReaders locks requests of safe methods by read, and other requests by New's Locker: readers share
// the lock, writers do not. The safe methods are GET, HEAD, TRACE, PROPFIND, REPORT, SEARCH and QUERY.
// OPTIONS, a browser's question before a request to another origin, passes without a lock.
//
//	rw := client.RW()
//	lock := httplock.New(rw.Write, key, httplock.WithReaders(rw.Read))
func WithReaders(read mortise.Locker) Option {
	if read == nil {
		panic("httplock: WithReaders: the Locker must not be nil")
	}
	return func(m *wrapper) { m.read, m.readers = read, true }
}

// WithLockOptions passes options to each Lock or TryLock: mortise.WithLease or mortise.WithMaxHold,
// to bound the effect of a handler without an end. A service open to strangers needs such an
// option: see Bounds in the package's documentation. Instead of mortise.WithWait and
// mortise.WithMaxWaiters use [WithWait] and [WithMaxWaiters]. An option refused by mortise is answered
// with 500.
func WithLockOptions(opts ...mortise.Option) Option {
	return func(m *wrapper) { m.options = append(m.options[:len(m.options):len(m.options)], opts...) }
}

// WithFailOpen serves requests WITHOUT a lock while the store of locks is unavailable
// (mortise.ErrUnavailable): for work that may overlap, but must not stop. Such a
// request's context carries no lease: [Lease] returns nil.
func WithFailOpen() Option {
	return func(m *wrapper) { m.open = true }
}

// WithErrorHandler replaces all answers. The Problem is the default answer: change the Problem and
// send it, p.ServeHTTP(w, r), or answer something else. If the function writes no answer, the
// default answer is sent: a refused request must not look served. Name and Err are for a log.
func WithErrorHandler(answer func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	if answer == nil {
		panic("httplock: WithErrorHandler: the function must not be nil")
	}
	return func(m *wrapper) {
		m.answer = func(w http.ResponseWriter, r *http.Request, p Problem) {
			out, a := watch(w)
			answer(out, r, p)
			if !a.written.Load() { // net/http would send 200
				p.ServeHTTP(w, r)
			}
		}
	}
}

// Lease returns the lease in a request's context, of the innermost middleware; nil if there is
// none. A nil lease holds nothing. Before a write, a handler checks the lease's Err, or sends its
// Token along.
func Lease(ctx context.Context) *mortise.Lease {
	l, _ := ctx.Value(leaseKey{}).(*mortise.Lease)
	return l
}

type leaseKey struct{}

// under returns r with ctx, to which it adds the lease; nil for none.
func under(ctx context.Context, r *http.Request, lease *mortise.Lease) *http.Request {
	return r.WithContext(context.WithValue(ctx, leaseKey{}, lease))
}

// releaseWait bounds how long an answer waits for the release of its lock. The lock is released before the answer is
// complete, so that the client's next request is not refused because of this one.
const releaseWait = 2 * time.Second

type wrapper struct {
	locks, read mortise.Locker
	readers     bool // read is of WithReaders
	key         KeyFunc
	options     []mortise.Option
	waiting     []mortise.Option // options and mortise.WithWait
	waits       bool
	wait        time.Duration
	locked      int
	retryAfter  time.Duration
	perName     int // the most requests that wait for a lock
	inAll       int // 0: the limit of the process
	limit       *middleware.Limit
	open        bool
	answer      func(http.ResponseWriter, *http.Request, Problem)
	next        http.Handler
}

func (m *wrapper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if m.readers && r.Method == http.MethodOptions {
		m.next.ServeHTTP(w, r)
		return
	}
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
	lease, ahead, err := m.lock(w, r, name)
	defer leave(w, ahead)
	switch {
	case err == nil:
		m.serve(w, ahead, r, name, lease)
	case m.open && errors.Is(err, mortise.ErrUnavailable):
		serveCopy(m.next, w, under(r.Context(), ahead, nil), r, keep)
	default:
		p := m.refused(r, name, err)
		leave(w, ahead)
		m.answer(w, ahead, p)
	}
}

// lock acquires the request's lock. It also returns the request to serve: its body may have been read ahead.
func (m *wrapper) lock(
	w http.ResponseWriter, r *http.Request, name string,
) (lease *mortise.Lease, _ *http.Request, err error) {
	locks := m.locks
	if m.readers && safe(r.Method) {
		locks = m.read
	}
	if m.waits {
		lease, r, err = m.lockLimited(locks, w, r, name)
	} else {
		lease, err = locks.TryLock(middleware.AskStore(r.Context()), name, m.options...)
	}
	switch {
	case err == nil && lease == nil:
		err = errors.New("httplock: the Locker returned neither a lease nor an error")
	case err == nil && r.Context().Err() != nil: // the client has left, or the server ends the request
		release(r.Context(), lease)
		lease, err = nil, context.Cause(r.Context())
	}
	return lease, r, err
}

// lockLimited acquires the lock for a request that may wait if the limit permits it.
func (m *wrapper) lockLimited(
	locks mortise.Locker, w http.ResponseWriter, r *http.Request, name string,
) (*mortise.Lease, *http.Request, error) {
	leave, ok := m.limit.Enter(mostAhead)
	if !ok {
		lease, err := m.limit.TryLock(middleware.AskStore(r.Context()), locks, name, m.options...)
		return lease, r, err
	}
	defer leave() // also if the request's body panics
	return m.lockWaiting(locks, w, r, name)
}

// safe reports whether requests of the method only read, as its registration says (RFC 9110, 9.2.1), without OPTIONS.
func safe(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodTrace, "PROPFIND", "REPORT", "SEARCH", "QUERY":
		return true
	}
	return false
}

// serve serves r under the lease. ahead is r, or a copy of r with a body that was read ahead.
func (m *wrapper) serve(w http.ResponseWriter, ahead, r *http.Request, name string, lease *mortise.Lease) {
	defer release(r.Context(), lease) // also if the handler panics
	header := maps.Clone(w.Header())
	out, a := watch(w)
	in, returned := wakeOnLoss(a, under(lease.Context(), ahead, lease), lease)
	a.in = in
	defer returned() // also if the handler panics
	serveCopy(m.next, out, in, r, keep)
	if err := lease.Err(); middleware.IsLoss(err) && !a.written.Load() {
		// Without an answer of the handler net/http would send 200. The header belongs to the handler's answer.
		returned()
		a.lose()
		clear(w.Header())
		maps.Copy(w.Header(), header)
		m.answer(out, ahead, lost(name, err))
		a.boundRest()
		a.finished.Store(true)
	}
}

// keep leaves a trailer as it is.
func keep(http.Header) {}

// release unlocks the lease, also after the client has gone: Unlock sends the release in any case, and repeats it. The
// observer of the lock client gets the error.
func release(ctx context.Context, lease *mortise.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseWait)
	defer cancel()
	if middleware.IsLoss(lease.Err()) {
		cancel() // the lock is lost: do not wait for the release
	}
	lease.Unlock(ctx)
}
