package httplock_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// bank pays out accounts of 100. Every payment waits until all requests are either in it or
// answered, so two that are not kept apart by a lock always meet.
type bank struct {
	requests int

	mu       sync.Mutex
	left     map[int]int
	inside   int
	answered int
	all      chan struct{} // closed when inside and answered are all requests
	paid     int
}

func newBank(requests int) *bank {
	return &bank{requests: requests, left: map[int]int{42: 100}, all: make(chan struct{})}
}

func (b *bank) arrived(inside, answered int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside += inside
	b.answered += answered
	if inside+answered > 0 && b.inside+b.answered == b.requests {
		close(b.all)
	}
}

// pay parses the account's id as a lenient handler does.
func (b *bank) pay(w http.ResponseWriter, r *http.Request, text string) {
	id, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		http.Error(w, "no such account", http.StatusNotFound)
		return
	}
	b.mu.Lock()
	left := b.left[id]
	b.mu.Unlock()
	b.arrived(1, 0)
	<-b.all
	if left < 100 {
		http.Error(w, "nothing is left", http.StatusConflict)
		return
	}
	b.mu.Lock()
	b.left[id] = 0
	b.paid++
	b.mu.Unlock()
	fmt.Fprint(w, r.PathValue("id"))
}

var spellings = []string{"42", "042", "+42", "42%20", "4%32"}

// payAll asks for account 42 by every spelling at once, and returns how often it was paid out.
func payAll(t *testing.T, b *bank, srv *httptest.Server, request func(spelling string) *http.Request) int {
	t.Helper()
	var all sync.WaitGroup
	for _, id := range spellings {
		all.Go(func() {
			a := sendWith(srv.Client(), request(id))
			if a.err != nil {
				t.Error(a.err)
				b.arrived(0, 1)
				return
			}
			t.Logf("%q: %d %s", id, a.StatusCode, strings.TrimSpace(a.body))
			check.ErrorIf(t, a.StatusCode == http.StatusOK && a.body != "42", "%q: the handler saw %q, want 42", id, a.body)
			if a.StatusCode == http.StatusLocked || a.StatusCode == http.StatusBadRequest ||
				a.StatusCode == http.StatusNotFound {
				b.arrived(0, 1)
			}
		})
	}
	all.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.paid
}

func TestAnAccountIsPaidOutOnceHoweverItsIDIsSpelt(t *testing.T) {
	locks := check.Value(mortise.New(memory.New())).In(t)
	defer locks.Close()

	b := newBank(len(spellings))
	mux := http.NewServeMux()
	mux.Handle("POST /accounts/{id}", httplock.New(locks, accountsByPath)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) { b.pay(w, r, r.PathValue("id")) })))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	paid := payAll(t, b, srv, func(id string) *http.Request {
		return check.Value(http.NewRequest("POST", srv.URL+"/accounts/"+id, nil)).In(t)
	})
	check.ErrorIf(t, paid != 1, "by path value: paid out %d times, want 1", paid)
}

func TestAnAccountIsPaidOutOnceHoweverItsHeaderIsSpelt(t *testing.T) {
	locks := check.Value(mortise.New(memory.New())).In(t)
	defer locks.Close()
	b := newBank(len(spellings))
	srv := httptest.NewServer(httplock.New(locks, accountsByHeader)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			r.SetPathValue("id", r.Header.Get("Account"))
			b.pay(w, r, r.Header.Get("Account"))
		})))
	defer srv.Close()
	paid := payAll(t, b, srv, func(id string) *http.Request {
		r := check.Value(http.NewRequest("POST", srv.URL, nil)).In(t)
		r.Header.Set("Account", id)
		return r
	})
	check.ErrorIf(t, paid != 1, "by header: paid out %d times, want 1", paid)
}

var (
	accountsByPath   = httplock.RouteKey("accounts:{id:int}")
	accountsByHeader = httplock.HeaderKey("accounts:{Account:int}")
)

// net/http keeps the header Host in Request.Host.
func TestTheHostIsAHeader(t *testing.T) {
	lower := func(host string) (string, error) { return strings.ToLower(host), nil }
	for what, c := range map[string]struct {
		key  httplock.KeyFunc
		want string
	}{
		"as it is": {httplock.HeaderKey("tenants:{host}"), "tenants:Shop.example%3A8080 Shop.example:8080"},
		"canonical": {httplock.HeaderKey("tenants:{Host}", httplock.Canonical("Host", lower)),
			"tenants:shop.example%3A8080 shop.example:8080"},
		"of another field": {httplock.HeaderKey("tenants:{X-Host}"), ""},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = "Shop.example:8080"
		name, err := c.key(r)
		got := name + " " + r.Host
		check.ErrorIf(t, (err != nil) != (c.want == "") || err == nil && got != c.want, "%s: %q, %v", what, got, err)
	}
}
