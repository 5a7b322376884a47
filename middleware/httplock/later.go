package httplock

import (
	"errors"
	"net/http"
	"reflect"
	"runtime"
	"strings"
)

// fiber's adaptor.HTTPMiddleware calls a middleware with a handler that only notes that it was called, and serves the
// request after the middleware has returned: unlocked.

var errServedLater = errors.New("httplock: the handler is that of fiber's adaptor.HTTPMiddleware, which serves " +
	"the request after the lock is released; give fiber the locked handler as a whole: adaptor.HTTPHandler(lock(handler))")

// servesLater reports whether h is the handler that fiber's adaptor gives to a middleware.
func servesLater(h http.Handler) bool {
	f, ok := h.(http.HandlerFunc)
	if !ok {
		return false
	}
	at := reflect.ValueOf(f).Pointer()
	in := runtime.FuncForPC(at)
	if in == nil || !strings.Contains(in.Name(), ".HTTPMiddleware.") {
		return false
	}
	file, _ := in.FileLine(at) // the name may be that of a function into which the adaptor's was inlined
	return strings.Contains(file, "/gofiber/")
}

// refuseAll answers each request with 500.
type refuseAll struct {
	answer func(http.ResponseWriter, *http.Request, Problem)
}

func (h refuseAll) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.answer(w, r, Problem{Type: TypeInternal, Title: "The lock is not usable", Status: http.StatusInternalServerError,
		Detail: "the server's middleware does not lock its handler", Err: errServedLater})
}
