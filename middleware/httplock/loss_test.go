package httplock_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/mortise-go/mortise"
	"github.com/mortise-go/mortise/backend/memory"
	"github.com/mortise-go/mortise/internal/redistest/check"
	"github.com/mortise-go/mortise/internal/redistest/middle"
	"github.com/mortise-go/mortise/middleware/httplock"
)

// heldShortly makes a middleware whose locks are lost after d.
func heldShortly(t *testing.T, d time.Duration, opts ...httplock.Option) func(http.Handler) http.Handler {
	return httplock.New(middle.InMemory(t, memory.New()), orders,
		append(opts, httplock.WithLockOptions(mortise.WithMaxHold(d)))...)
}

// began is a ResponseWriter that, like those of chi's middleware, begins the answer in ReadFrom before it reads a byte.
type began struct{ http.ResponseWriter }

func (b began) Unwrap() http.ResponseWriter { return b.ResponseWriter }

func (b began) ReadFrom(src io.Reader) (int64, error) {
	b.WriteHeader(http.StatusOK)
	return b.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
}

// A copy whose source fails at its first read has answered nothing.
func TestACopyOfNothingIsNoAnswer(t *testing.T) {
	check.Long(t)
	for name, wrap := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"net/http":                         func(w http.ResponseWriter) http.ResponseWriter { return w },
		"a writer that begins in ReadFrom": func(w http.ResponseWriter) http.ResponseWriter { return began{w} },
	} {
		t.Run(name, func(t *testing.T) {
			lock := heldShortly(t, 100*time.Millisecond)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(w, r.Body)
				check.ErrorIf(t, err == nil, "a body that did not come was read to its end")
			}))
			srv := serveByHand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				lock.ServeHTTP(wrap(w), r)
			}))
			c := dial(t, srv)
			fmt.Fprint(c, chunked)
			status, body := answerOf(t, c)
			check.ErrorIf(t, status != 500 || !strings.Contains(body, httplock.TypeLost), "answered %d %q", status, body)
		})
	}
}

// net/http removes all deadlines when a connection is hijacked.
func TestAConnectionHijackedAfterTheLossIsNotReadWithoutEnd(t *testing.T) {
	ended := make(chan error, 1)
	srv := serveByHand(t, heldShortly(t, 50*time.Millisecond)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			time.Sleep(20 * time.Millisecond) // in which the loss sets deadlines
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err == nil {
				defer conn.Close()
				_, err = rw.ReadString('\n')
			}
			ended <- err
		})))
	c := dial(t, srv)
	fmt.Fprint(c, "GET /orders/42 HTTP/1.1\r\nHost: x\r\n\r\n")
	check.ErrorIf(t, middle.Receive(t, "the handler's end", ended) == nil, "it read to the end")
}

// A handler that sees the loss late has lost all the same.
func TestALateHandlerWithoutAnAnswerIsAnsweredAsLost(t *testing.T) {
	byEachVersion(t, func(t *testing.T, version string) {
		connect := serveByPipes(t, heldShortly(t, time.Second)(http.HandlerFunc(
			func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
				time.Sleep(time.Minute) // longer than a write may take after the loss
			})))
		resp, err := clientOf(t, version, connect).Post("http://x/orders/42", "", nil)
		check.FatalIf(t, err != nil, "no answer: %v", err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		check.ErrorIf(t, err != nil || resp.Proto != version || resp.StatusCode != 500 ||
			!strings.Contains(string(body), httplock.TypeLost), "%s %d %s, %v", resp.Proto, resp.StatusCode, body, err)
	})
}

// The answer to a loss is not the handler's, and says nothing of the handler's.
func TestTheAnswerToALossHasNoHeaderOfTheHandlersAnswer(t *testing.T) {
	h := heldShortly(t, 50*time.Millisecond)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{"Cache-Control": "public, max-age=3600", "Etag": `"7"`,
			"Last-Modified": "Mon, 02 Jan 2006 15:04:05 GMT", "Content-Encoding": "br"} {
			w.Header().Set(name, value)
		}
		<-r.Context().Done()
	}))
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/orders/42", nil)
	r.SetPathValue("id", "42")
	h.ServeHTTP(w, r)
	check.ErrorIf(t, w.Code != 500, "answered %d", w.Code)
	for _, name := range []string{"Cache-Control", "Etag", "Last-Modified", "Content-Encoding"} {
		check.ErrorIf(t, w.Header().Get(name) != "", "%s: %s", name, w.Header().Get(name))
	}
}

// encoding is a ResponseWriter of a middleware that encodes what is written, and said so before.
type encoding struct{ http.ResponseWriter }

func (e encoding) WriteHeader(status int) {
	e.Header().Del("Content-Length")
	e.ResponseWriter.WriteHeader(status)
}

func (e encoding) Write(p []byte) (int, error) { return e.ResponseWriter.Write(bytes.ToUpper(p)) }

// A middleware outside that encodes answers, as gorilla/handlers.CompressHandler does, encodes refusals and losses too.
func TestAnswersKeepTheEncodingOfAMiddlewareOutside(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"refused": httplock.New(middle.InMemory(t, memory.New()),
			func(*http.Request) (string, error) { return "", errors.New("no key") })(http.NotFoundHandler()),
		"lost": heldShortly(t, 50*time.Millisecond)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		})),
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Content-Encoding", "upper")
		r := httptest.NewRequest("GET", "/orders/42", nil)
		r.SetPathValue("id", "42")
		h.ServeHTTP(encoding{w}, r)
		encoded := w.Header().Get("Content-Encoding") == "upper" && strings.Contains(w.Body.String(), `{"TYPE"`)
		check.ErrorIf(t, w.Code < 400 || !encoded, "%s: %d %v %s", name, w.Code, w.Header(), w.Body)
	}
}

// An error handler that answers nothing does not make a success of a refusal: net/http would send 200.
func TestAnErrorHandlerThatAnswersNothingRefuses(t *testing.T) {
	locks := middle.InMemory(t, memory.New())
	middle.Holding(t, locks, "orders:42")
	logs := httplock.WithErrorHandler(func(_ http.ResponseWriter, _ *http.Request, p httplock.Problem) { _ = p.Err })
	mux := http.NewServeMux()
	mux.Handle("/orders/{id}", httplock.New(locks, orders, logs)(http.HandlerFunc(fine)))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("POST", "/orders/42", nil))
	locked := w.Code == 423 && strings.Contains(w.Body.String(), httplock.TypeLocked)
	check.ErrorIf(t, !locked, "answered %d %s", w.Code, w.Body)
}
