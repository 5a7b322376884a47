//go:build unix

package httplock_test

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mortise-go/mortise/internal/redistest"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// site is a Redis and a client of it, and servers of handlers.
type site struct{ *middle.Site }

func newSite(t *testing.T, opts ...redistest.Option) *site { return &site{middle.NewSite(t, opts...)} }

var orders = httplock.RouteKey("orders:{id}")

// serve serves h at /orders/{id}.
func (s *site) serve(h http.HandlerFunc, wrap ...func(http.Handler) http.Handler) *httptest.Server {
	var handler http.Handler = h
	for i := len(wrap) - 1; i >= 0; i-- {
		handler = wrap[i](handler)
	}
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", handler)
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Start()
	s.Cleanup(srv.Close)
	return srv
}

// answer is what a client got.
type answer struct {
	*http.Response
	body    string
	problem httplock.Problem
	err     error
}

func send(ctx context.Context, method, url, body string) (a answer) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	return sendWith(http.DefaultClient, req)
}

func sendWith(c *http.Client, req *http.Request) (a answer) {
	if a.Response, a.err = c.Do(req); a.err != nil {
		return a
	}
	defer a.Body.Close()
	var b []byte
	b, a.err = io.ReadAll(a.Body)
	a.body = string(b)
	if a.Header.Get("Content-Type") == "application/problem+json" {
		a.err = json.Unmarshal(b, &a.problem)
	}
	return a
}

func post(srv *httptest.Server) answer {
	return send(context.Background(), "POST", srv.URL+"/orders/42", "{}")
}

// want checks an answer that is a problem.
func (s *site) want(a answer, status int, kind string) {
	s.Helper()
	check.FatalIf(s, a.err != nil, "%v", a.err)
	check.ErrorIf(s, a.StatusCode != status || a.problem.Type != kind || a.problem.Status != status,
		"got %d %q, want %d, a problem of type %s", a.StatusCode, a.body, status, kind)
}

func (s *site) ok(a answer, body string) {
	s.Helper()
	check.ErrorIf(s, a.err != nil || a.StatusCode != 200 || a.body != body,
		"got %v %v %q, want 200 %q", a.err, a.Response, a.body, body)
}
