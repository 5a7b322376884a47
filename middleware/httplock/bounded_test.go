package httplock_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// A proxy's transport reads the body in its own goroutine while the proxy answers: with -race.
func TestAProxyAnswersBeforeItHasReadABoundedBody(t *testing.T) {
	check.Long(t)
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		io.Copy(io.Discard, r.Body)
	}))
	t.Cleanup(up.Close)
	proxy := httputil.NewSingleHostReverseProxy(check.Value(url.Parse(up.URL)).In(t))
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(middle.InMemory(t, memory.New()), orders)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<21)
			proxy.ServeHTTP(w, r)
		})))
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	pr, pw := io.Pipe()
	go func() {
		defer pw.Close()
		for range 40 {
			pw.Write(bytes.Repeat([]byte("x"), 30<<10))
			time.Sleep(time.Millisecond)
		}
	}()
	if resp, err := http.Post(srv.URL+"/orders/1", "x/y", pr); err == nil {
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
