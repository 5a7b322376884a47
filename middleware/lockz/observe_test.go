package lockz_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/lockz"
)

func newWithPage(store backend.Backend, mux *http.ServeMux) (*mortise.Client, error) {
	page := lockz.New()
	mux.Handle("/debug/lockz", page)
	return mortise.New(store, mortise.WithObserver(page.Observer()))
}

func TestThePageIsServed(t *testing.T) {
	mux := http.NewServeMux()
	c, err := newWithPage(memory.New(), mux)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	server := httptest.NewServer(mux)
	defer server.Close()
	lease, err := c.Lock(t.Context(), "orders:42")
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(server.URL + "/debug/lockz")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(body), "orders:42") {
		t.Errorf("%s, %v", body, err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
