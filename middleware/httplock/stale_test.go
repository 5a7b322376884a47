//go:build unix

package httplock_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// What a client of the server is told, the store has said: the client's cache may be behind.
func TestARefusalIsTheStoresNotTheCaches(t *testing.T) {
	s := middle.NewSite(t)
	for what, opts := range map[string][]httplock.Option{
		"no wait": nil, "a body too large to wait with": {httplock.WithMaxClientWait()},
	} {
		t.Run(what, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}",
				httplock.New(s.Stale(), orders, opts...)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/42", strings.NewReader(strings.Repeat("x", 4<<20))))
			check.Equal(t, "the lock is free, and the status is %d", w.Code, http.StatusOK)
		})
	}
}
