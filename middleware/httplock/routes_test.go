package httplock_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// Safe methods share the lock, and a browser's preflight needs none.
func TestReadersAreTheSafeMethods(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	rw := locks.RW()
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(rw.Write, orders, httplock.WithReaders(rw.Read))(http.HandlerFunc(fine)))
	middle.Holding(t, rw.Read, "orders:1")
	middle.Holding(t, rw.Write, "orders:2")
	for _, c := range []struct {
		methods         []string
		whileRead, held int // the answers while another reads, and while another writes
	}{
		{[]string{"GET", "HEAD", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"}, 200, 423},
		{[]string{"OPTIONS"}, 200, 200},
		{[]string{"POST", "PUT", "PATCH", "DELETE", "get", "PROPPATCH", "MKCOL", "OTHER"}, 423, 423},
	} {
		for _, method := range c.methods {
			for path, want := range map[string]int{"/orders/1": c.whileRead, "/orders/2": c.held} {
				w := httptest.NewRecorder()
				mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
				check.Equal(t, method+" "+path+": %d", w.Code, want)
			}
		}
	}
}

func TestRouteKeyOfTheRestOfAPath(t *testing.T) {
	lock := httplock.New(middle.InMemory(t, memory.New()), httplock.RouteKey("files:{path...}"))
	mux := http.NewServeMux()
	mux.Handle("/files/{path...}", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, httplock.Lease(r.Context()).Name())
	})))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/files/a/b", nil))
	check.Equal(t, "locked %s", w.Body.String(), "files:a%2Fb")
	calls := make(map[string]func())
	for _, name := range []string{"id:[0-9]+", "$", "...", "a b", "id*"} {
		calls[name] = func() { httplock.RouteKey("orders:{" + name + "}") }
	}
	middle.Panic(t, "httplock: RouteKey", calls)
}

// MaxBytesReader makes the server close the connection, also behind the middleware.
func TestABodyThatIsCutOffClosesTheConnection(t *testing.T) {
	for name, opts := range map[string][]httplock.Option{"refusing": nil, "waiting": {httplock.WithWait(time.Minute)}} {
		for length, closes := range map[int]bool{10: false, 1000: true} {
			srv := serveByHand(t, httplock.New(middle.InMemory(t, memory.New()), orders, opts...)(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					r.Body = http.MaxBytesReader(w, r.Body, 10)
					if _, err := io.ReadAll(r.Body); err != nil {
						http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
					}
				})))
			a := post11(t, srv, length)
			check.Equal(t, fmt.Sprint(name, ", ", length, " bytes: close %v"), a.Close, closes)
		}
	}
}

func post11(t *testing.T, srv *httptest.Server, n int) *http.Response {
	resp := check.Value(http.Post(srv.URL+"/orders/42", "", &zeros{n})).In(t)
	resp.Body.Close()
	return resp
}

// zeros is a body of n bytes.
type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n == 0 {
		return 0, io.EOF
	}
	n := min(z.n, len(p))
	z.n -= n
	return n, nil
}
