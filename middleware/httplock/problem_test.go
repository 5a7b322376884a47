package httplock_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// signalled is a cause as signal.NotifyContext gives it.
type signalled struct{}

func (signalled) Error() string { return "terminated signal received" }

func (signalled) Is(target error) bool { return target == context.Canceled }

// The contexts of all requests end with the server's BaseContext. A cause tells this apart from a client that leaves.
func TestAWaitThatTheServersContextEndsIsNoClientThatLeft(t *testing.T) {
	for name, c := range map[string]struct {
		cause              error
		status             int
		kind, retriesAfter string
	}{
		"a signal":      {signalled{}, 503, httplock.TypeClosing, "1"},
		"another cause": {errors.New("drained"), 503, httplock.TypeClosing, "1"},
		"no cause":      {nil, 499, httplock.TypeClientGone, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := middle.InMemory(t, memory.New())
				middle.Holding(t, locks, "orders:42")
				base, stop := context.WithCancelCause(t.Context())
				time.AfterFunc(time.Second, func() { stop(c.cause) })
				conn, leave := context.WithCancel(base)
				defer leave()
				r := httptest.NewRequestWithContext(conn, "POST", "/orders/42", nil)
				r.SetPathValue("id", "42")
				w := httptest.NewRecorder()
				httplock.New(locks, orders, httplock.WithMaxClientWait())(http.NotFoundHandler()).ServeHTTP(w, r)
				retry := w.Header().Get("Retry-After")
				check.ErrorIf(t, w.Code != c.status || !strings.Contains(w.Body.String(), c.kind) || retry != c.retriesAfter,
					"%d %s, Retry-After: %s", w.Code, w.Body, retry)
			})
		})
	}
}
