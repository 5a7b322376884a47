package httplock_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/delegation"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// unavailable is a Locker whose store is unavailable.
type unavailable struct{ mortise.Locker }

func (unavailable) TryLock(context.Context, string, ...mortise.Option) (*mortise.Lease, error) {
	return nil, mortise.ErrUnavailable
}

// copying returns the middlewares that hand on a copy of the request.
func copying(t *testing.T) map[string]func(http.Handler) http.Handler {
	locks := middle.InMemory(t, memory.New())
	accept := httplock.AcceptDelegations(locks, middle.Checker(t, middle.Ring(t, "k1"), "stock"))
	lock := httplock.New(locks, orders)
	return map[string]func(http.Handler) http.Handler{
		"New": lock, "New with WithWait": httplock.New(locks, orders, httplock.WithWait(middle.Patience)),
		"New with WithFailOpen": httplock.New(unavailable{}, orders, httplock.WithFailOpen()),
		"AcceptDelegations":     accept,
		"both":                  func(h http.Handler) http.Handler { return accept(lock(h)) },
	}
}

// upload returns a chunked request with a file, and a delegation of another lock.
func upload(t *testing.T, url string) *http.Request {
	var b bytes.Buffer
	mp := multipart.NewWriter(&b)
	f := check.Value(mp.CreateFormFile("file", "x")).In(t)
	f.Write(make([]byte, 1000))
	mp.Close()
	r := check.Value(http.NewRequest("POST", url+"/orders/42", struct{ io.Reader }{&b})).In(t)
	r.Header.Set("Content-Type", mp.FormDataContentType())
	r.Header.Set(delegation.Header, middle.Entry(t, middle.Ring(t, "k1"), "stock",
		func(e *delegation.Entry) { e.Delegations[0].Name = "customers:7" }))
	r.ContentLength = -1
	return r
}

// net/http removes the temporary files of a form that it finds in its own request.
func TestUploadsLeaveNoFiles(t *testing.T) {
	for name, mw := range copying(t) {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			files := make(chan int, 1)
			srv := serveByHand(t, mw(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				check.NoError(t, r.ParseMultipartForm(1))
				files <- len(check.Value(os.ReadDir(dir)).In(t))
			})))
			resp := check.Value(http.DefaultClient.Do(upload(t, srv.URL))).In(t)
			resp.Body.Close()
			check.Equal(t, "%d temporary files while the handler runs", middle.Receive(t, "the files", files), 1)
			srv.Close() // waits until the request is complete
			check.Equal(t, "%d temporary files after the answer", len(check.Value(os.ReadDir(dir)).In(t)), 0)
		})
	}
}

// A server of HTTP/2 removes the files after a panic too.
func TestTheFormOfAHandlerThatPanicsIsTheServers(t *testing.T) {
	for name, mw := range copying(t) {
		r := upload(t, "http://x")
		r.SetPathValue("id", "42")
		func() {
			defer func() { check.Equal(t, name+" panicked with %v", recover(), any("as expected")) }()
			mw(http.HandlerFunc(func(_ http.ResponseWriter, in *http.Request) {
				check.NoError(t, in.ParseMultipartForm(1<<20))
				panic("as expected")
			})).ServeHTTP(httptest.NewRecorder(), r)
		}()
		form := r.MultipartForm
		check.ErrorIf(t, form == nil || len(form.File) != 1, "%s: the form is %v", name, form)
	}
}

// The server sets a trailer that was not announced in its own request.
func TestATrailerThatWasNotAnnouncedReachesTheHandler(t *testing.T) {
	for name, mw := range copying(t) {
		for how, end := range map[string]func(*http.Request) error{
			"read":   func(r *http.Request) error { return check.Err(io.Copy(io.Discard, r.Body)) },
			"closed": func(r *http.Request) error { return r.Body.Close() },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				srv := serveByHand(t, mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, len(r.Trailer), " ", end(r), " ", r.Trailer)
				})))
				c := dial(t, srv)
				trailer := "Sum: 7\r\n"
				if strings.Contains(name, "Accept") || name == "both" {
					trailer += "mortise-DELEGATION: stolen\r\n"
				}
				fmt.Fprint(c, chunked+chunk(2)+"0\r\n"+trailer+"\r\n")
				status, body := answerOf(t, c)
				check.ErrorIf(t, status != 200 || body != "0 <nil> map[Sum:[7]]", "%d %s", status, body)
			})
		}
	}
}
