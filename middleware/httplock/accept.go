package httplock

import (
	"errors"
	"net/http"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/middleware/delegation"
)

// AcceptDelegations makes a middleware for requests to enter the locks of their callers: the
// middleware checks the delegations sent by a caller's [NewTransport], and puts them into the
// request's context; locks, a [*mortise.Client], enters the caller's locks from such a context. The
// middleware stands before all middleware with locks:
//
//	accept, lock := httplock.AcceptDelegations(locks, checker), httplock.New(locks, httplock.RouteKey("orders:{id}"))
//	mux.Handle("POST /orders/{id}/reserve", accept(lock(reserve)))
//
// A request without delegations passes unchanged. A request with bad delegations is answered with
// [TypeBadDelegation]: 400 if malformed, 403 if not authentic; with 503 ([TypeUnverified]) if the
// verifier failed. Such a request is never served without its delegations: the request would wait
// for its own caller. The header is removed, from the trailer too, so handlers do not pass the
// header on.
//
// A request passes even if the caller has unlocked meanwhile, or lost its lock; a Lock of locks
// then fails with delegation.ErrEnded, and [New]'s middleware answers with 412.
//
// Of the options, only [WithErrorHandler] applies. AcceptDelegations panics if locks or checker is
// nil, or an option does not apply. Cost: no command.
func AcceptDelegations(locks *mortise.Client, checker *delegation.Checker,
	opts ...Option) func(http.Handler) http.Handler {
	if locks == nil || checker == nil {
		panic("httplock: AcceptDelegations: the client of locks and the Checker must not be nil")
	}
	m := wrapper{answer: answerPlainly}
	for _, o := range opts {
		if o == nil {
			panic("httplock: AcceptDelegations: a nil Option")
		}
		o(&m)
	}
	if m.read != nil || m.options != nil || m.waits || m.locked != 0 || m.retryAfter != 0 || m.inAll != 0 || m.open {
		panic("httplock: AcceptDelegations: of the options only WithErrorHandler applies")
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			entries := r.Header.Values(delegation.Header)
			if len(entries) == 0 && !hasTrailer(r) {
				next.ServeHTTP(w, r)
				return
			}
			in := r.WithContext(r.Context())
			if len(entries) > 0 {
				ctx, err := checker.Accept(r.Context(), locks, entries...)
				if err != nil {
					m.answer(w, r, badDelegation(err))
					return
				}
				in = r.WithContext(ctx)
				in.Header = r.Header.Clone()
				in.Header.Del(delegation.Header)
			}
			remove(in.Trailer)
			serveCopy(next, w, in, r, remove)
		})
	}
}

func answerPlainly(w http.ResponseWriter, r *http.Request, p Problem) { p.ServeHTTP(w, r) }

func badDelegation(err error) Problem {
	p := Problem{
		Type: TypeBadDelegation, Title: "What the request says of its caller's locks is refused",
		Status: http.StatusForbidden,
		Detail: "the delegation is refused: " + delegation.Reason(err), Err: err,
	}
	switch {
	case errors.Is(err, delegation.ErrDuplicated), errors.Is(err, delegation.ErrOversize),
		errors.Is(err, delegation.ErrVersion), errors.Is(err, delegation.ErrMalformed):
		p.Status = http.StatusBadRequest
	case errors.Is(err, delegation.ErrUnverified):
		p.notServed(TypeUnverified, "What the request says of its caller's locks cannot be verified now")
	case delegation.Reason(err) == "error": // an error of the lock client
		p.Type, p.Title, p.Status, p.Detail = TypeInternal, "The lock is not usable", http.StatusInternalServerError, ""
	}
	return p
}
