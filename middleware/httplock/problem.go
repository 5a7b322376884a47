package httplock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// Problem is the reason why a request is not served, in the form of RFC 9457. Problem is an
// http.Handler: the handler answers with the problem.
type Problem struct {
	// Type is a constant from the list below.
	Type string `json:"type"`
	// Title says what the type means.
	Title string `json:"title"`
	// Status is the HTTP status.
	Status int `json:"status"`
	// Detail says more, to the client: no names of locks, nothing of the store.
	Detail string `json:"detail,omitempty"`
	// RetryAfter is sent in whole seconds, rounded up; 0 for none. While the lock is held,
	// RetryAfter is the remaining time of the holder's lease, bounded by WithRetryAfter; the holder
	// may renew or release the lease before.
	RetryAfter time.Duration `json:"-"`
	// Name is the lock's name, if known.
	Name string `json:"-"`
	// Err is the cause: not for the client.
	Err error `json:"-"`
}

// The types of problems: addresses of their documentation.
const (
	problems = "https://github.com/mortise-go/mortise/blob/main/docs/reference/problems.md"

	TypeLocked          = problems + "#locked"            // 423, or as WithStatus says
	TypeCrowded         = problems + "#too-many-waiting"  // 429
	TypeUnavailable     = problems + "#store-unavailable" // 503
	TypeClosing         = problems + "#shutting-down"     // 503
	TypeLost            = problems + "#lock-lost"         // 500
	TypeTimeout         = problems + "#timed-out"         // 503
	TypeClientGone      = problems + "#client-gone"       // 499, for the access log only
	TypeBadKey          = problems + "#bad-key"           // 400
	TypeDelegationEnded = problems + "#delegation-ended"  // 412
	TypeBadDelegation   = problems + "#bad-delegation"    // 400 or 403, by AcceptDelegations
	TypeUnverified      = problems + "#unverified"        // 503, by AcceptDelegations
	TypeInternal        = problems + "#internal"          // 500
)

// statusClientGone is the status that nginx and others log for a client that left before its answer. It is not
// registered, and no client receives it.
const statusClientGone = 499

// soon is the Retry-After if no remaining lease of a holder is known.
const soon = time.Second

// ServeHTTP answers with the problem, as application/problem+json.
func (p Problem) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.Status = cmp.Or(p.Status, http.StatusInternalServerError) // of a zero Problem
	body, err := json.Marshal(p)
	if err != nil { // cannot happen: the fields are strings and a number
		panic(err)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Length") // may be of another answer; a Content-Encoding may be of a middleware that encodes this one
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64((p.RetryAfter+time.Second-1)/time.Second), 10))
	}
	w.WriteHeader(p.Status)
	w.Write(body)
}

func badKey(name string, err error) Problem {
	p := Problem{
		Type: TypeBadKey, Title: "The request does not say what to lock",
		Status: http.StatusBadRequest, Name: name, Err: err,
	}
	var v *middleware.ValueError
	switch {
	case errors.As(err, &v):
		p.Detail = v.Error()
	case errors.Is(err, mortise.ErrInvalidName):
		p.Detail = "the key cannot be used: it is too long, not UTF-8, or its braces do not match"
	}
	return p
}

// refused returns the problem of a request whose lock was not acquired.
func (m *wrapper) refused(r *http.Request, name string, err error) Problem {
	p := Problem{Name: name, Err: err}
	switch {
	case errors.Is(err, errClientGone):
		p.Type, p.Title, p.Status = TypeClientGone, "The client did not wait", statusClientGone
	case middleware.IsCrowded(err):
		p.Type, p.Title, p.Status = TypeCrowded, "Too many requests wait already", http.StatusTooManyRequests
		p.RetryAfter, p.Detail = m.retryAfter,
			"what this request needs is locked, and too many requests wait; try again later"
	case errors.Is(err, mortise.ErrNotAcquired):
		p.Type, p.Title, p.Status, p.RetryAfter = TypeLocked, "Another request is being worked on", m.locked, soon
		p.Detail = "what this request needs is locked by another one; try again later"
		var e *mortise.Error
		if errors.As(err, &e) && e.Remaining > 0 {
			p.RetryAfter = min(e.Remaining, m.retryAfter)
		}
	case errors.Is(err, delegation.ErrEnded):
		p.Type, p.Title, p.Status = TypeDelegationEnded, "The caller's lock has ended", http.StatusPreconditionFailed
		p.Detail = "the caller that this request comes from holds the lock no longer; nothing was done"
	case errors.Is(err, mortise.ErrUnavailable):
		p.notServed(TypeUnavailable, "The lock service is not available")
		p.Detail = "the request was not served, because it could not be locked"
	case errors.Is(err, mortise.ErrClosed):
		p.notServed(TypeClosing, "The server is shutting down")
	case errors.Is(err, mortise.ErrInvalidName):
		return badKey(name, err)
	case errors.Is(context.Cause(r.Context()), mortise.ErrLost): // the lock of an outer middleware was lost
		return lost(name, err)
	case r.Context().Err() == nil:
		p.Type, p.Title, p.Status = TypeInternal, "The lock is not usable", http.StatusInternalServerError
	case errors.Is(r.Context().Err(), context.DeadlineExceeded):
		p.notServed(TypeTimeout, "The request's time ran out while it waited")
	case context.Cause(r.Context()) != context.Canceled:
		// net/http gives no cause when a client leaves: the server's BaseContext has ended. The cause of
		// signal.NotifyContext is context.Canceled for errors.Is.
		p.notServed(TypeClosing, "The server is shutting down")
	default:
		p.Type, p.Title, p.Status = TypeClientGone, "The client did not wait", statusClientGone
	}
	return p
}

// notServed makes p a 503, for a request that the client may send again soon.
func (p *Problem) notServed(kind, title string) {
	p.Type, p.Title, p.Detail = kind, title, "the request was not served"
	p.Status, p.RetryAfter = http.StatusServiceUnavailable, soon
}

// lost returns the problem of a request whose handler had begun: neither the status nor a Retry-After asks for a retry.
func lost(name string, err error) Problem {
	return Problem{
		Type:   TypeLost,
		Title:  "The lock was lost while the request was being worked on",
		Detail: "the request was begun and broken off; find out what was done before it is repeated",
		Status: http.StatusInternalServerError,
		Name:   name, Err: err,
	}
}
