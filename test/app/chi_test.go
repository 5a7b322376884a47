package app

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/middleware/httplock"
	"github.com/mortise-go/mortise/test/internal/harness"
)

// chi hands over a path's segment as it was sent where net/http's server could not normalise it:
// 4%32 for 42. Handlers that decode it, and handlers that do not, must not get beside the others.
func TestOnChiAnAccountIsPaidOutOnceHoweverItsIDIsSpelt(t *testing.T) {
	for name, text := range map[string]func(*http.Request) string{
		"a handler that asks chi": func(r *http.Request) string { return chi.URLParam(r, "id") },
		"a handler that asks chi and decodes": func(r *http.Request) string {
			s, err := url.PathUnescape(chi.URLParam(r, "id"))
			harness.Check(t, err)
			return s
		},
		"a handler that asks the request": func(r *http.Request) string { return r.PathValue("id") },
	} {
		t.Run(name, func(t *testing.T) {
			locks := harness.Must(mortise.New(memory.New()))(t)
			defer locks.Close()
			spellings := []string{"42", "042", "+42", "42%20", "4%32", "%34%32", "%2b42"}
			var (
				mu              sync.Mutex
				inside, refused int
				all             = make(chan struct{})
			)
			arrived := func(in, out int) {
				mu.Lock()
				defer mu.Unlock()
				if inside, refused = inside+in, refused+out; inside+refused == len(spellings) {
					close(all)
				}
			}
			app := chi.NewRouter()
			app.With(httplock.New(locks, accounts)).Post("/accounts/{id}", func(w http.ResponseWriter, r *http.Request) {
				id, err := strconv.Atoi(strings.TrimSpace(text(r)))
				if err != nil || id != 42 {
					http.Error(w, "no such account", http.StatusNotFound)
					return
				}
				arrived(1, 0)
				<-all // all others are in here, or answered
				fmt.Fprint(w, "paid 100")
			})
			srv := httptest.NewServer(app)
			defer srv.Close()
			var posts sync.WaitGroup
			for _, id := range spellings {
				posts.Go(func() {
					resp, err := http.Post(srv.URL+"/accounts/"+id, "", nil)
					if err != nil {
						t.Error(err)
						arrived(0, 1)
						return
					}
					defer resp.Body.Close()
					body, _ := io.ReadAll(resp.Body)
					t.Logf("%q: %d %s", id, resp.StatusCode, body)
					if resp.StatusCode != http.StatusOK {
						arrived(0, 1)
					}
				})
			}
			posts.Wait()
			harness.ErrorIf(t, inside != 1, "paid out %d times, want 1", inside)
		})
	}
}

var accounts = httplock.RouteKey("accounts:{id:int}")
